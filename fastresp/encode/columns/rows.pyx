# cython: language_level=3, cdivision=True
"""Write the rows of a batch of columns as commands, without the GIL."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from ...resp.out cimport (
    Out,
    close_header,
    cut,
    fill_bulk,
    prefetch,
    put_bulk,
    put_copy,
    put_crlf,
    put_header,
    put_reference,
    reserve,
)
from .cell cimport (
    ARGUMENT_TOO_LARGE,
    BAD_INDEX,
    EMPTY_COMMAND,
    FORM_MAP,
    FORM_STRUCT,
    IS_NOT_ALLOWED,
    IS_NULL,
    IS_NULL_ROW,
    NO_MEMORY,
    NULL_KEY,
    RAISED,
    Cell,
    is_null,
    span,
    stood_for,
    value,
)
from .numbers_and_strings cimport VALUE_MARK
from ...resp.values cimport (
    NULLS_EMPTY,
    NULLS_ERROR,
    NULLS_SKIP,
    Nulls,
    check_command,
)
from .steps cimport (
    SHORT_BYTES,
    STEP_COPY,
    STEP_FIELDS,
    STEP_GROUP,
    STEP_ITEMS,
    STEP_JOINED,
    STEP_NAME,
    STEP_VALUE,
    Command,
    Name,
    Part,
    Step,
    Steps,
)


cdef int put_rows(
    Job *job, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil:
    """Write rows, and mark the end of each command; stop before a row with a Fault."""
    # In registers, since the compiler must assume that a write could change anything in memory.
    cdef Out *out = job.out
    cdef Py_ssize_t row = at[0], start, whole = job.commands, commands = whole
    cdef Command *first = steps.commands
    cdef Command *behind = first + steps.n_commands
    cdef Command *command
    cdef bint null_rows = steps.by_row and steps.root.validity is not NULL
    cdef char *p = out.p
    cdef char *end
    job.fault, job.counted_row = 0, -1
    while row < last and p - out.base + out.extra < chunk_bytes:
        if null_rows and is_null(&steps.root, row):
            job.fault = IS_NULL_ROW
            break
        command = first
        while command != behind:
            start = p - out.base
            if command.plain and out.end - p >= command.most:
                end = put_plain(job, command, row, p)
            else:
                end = put_command(job, command, row, p)
            command += 1
            if end is not NULL:
                p = end
                job.ends[commands] = p - out.base + out.extra
                job.rows[commands] = before + row
                commands += 1
                prefetch(p)
                continue
            cut(out, start)
            p = out.p
            if job.fault:
                break
            job.argument, job.cell = -1, NULL
        if job.fault:
            job.left_out, job.deletes = job.left_out_before, job.deletes_before
            break
        row += 1
        whole = commands
    at[0] = row
    out.p = p
    job.commands, job.whole = commands, whole
    return job.fault


cdef inline char *put_plain(Job *job, Command *command, Py_ssize_t row, char *p) noexcept nogil:
    """Write a command whose values are all short and not null; needs room for all of it.

    Most rows are like that; it costs half as much as put_command(), which handles the rest.
    """
    cdef Step *step = command.steps
    cdef Step *end = step + command.n_steps
    cdef char *start = p
    while step != end:
        copy_padded(p, step.text, step.size)
        p += step.size
        if step.kind == STEP_VALUE:
            p = put_short(step.cell, row, p)
        elif step.kind == STEP_JOINED:
            p = put_short_parts(step, row, p)
        if p is NULL:
            return put_command(job, command, row, start)
        step += 1
    return p


cdef inline char *put_short(Cell *cell, Py_ssize_t row, char *p) noexcept nogil:
    """Write a value as one argument; return NULL if it is null or not short."""
    cdef Py_ssize_t n
    cdef const char *text
    cdef char *end
    if cell.brief:
        if is_null(cell, row):
            return NULL
        end = cell.write(cell, row, p + cell.digits + 3)
        return NULL if end is NULL else fill_bulk(p, end, &cell.digits)
    text = value(cell, row, &n)
    if text is NULL or n >= SHORT_BYTES:
        return NULL
    return put_bulk(p, text, n)


cdef inline char *put_short_parts(Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write an argument of several parts; return NULL if one is null or not short."""
    cdef Part *part = step.parts
    cdef Part *end = part + step.n_parts
    cdef char *to = p + step.digits + 3
    cdef Cell *cell
    while part != end:
        cell = part.cell
        if cell is NULL:
            to = put_copy(to, part.text, part.size)
        elif cell.brief:
            to = NULL if is_null(cell, row) else cell.write(cell, row, to)
            if to is NULL:
                return NULL
        else:
            part.text = value(cell, row, &part.size)
            if part.text is NULL or part.size >= SHORT_BYTES:
                return NULL
            to = put_copy(to, part.text, part.size)
        part += 1
    return fill_bulk(p, to, &step.digits)


cdef char *put_command(Job *job, Command *command, Py_ssize_t row, char *p) noexcept nogil:
    """Write one command; return NULL if it is left out or there is a Fault."""
    cdef Py_ssize_t start = p - job.out.base, left_out = job.left_out
    if row != job.counted_row:
        job.counted_row = row
        job.left_out_before, job.deletes_before = left_out, job.deletes
    if command.counted:
        p = put_counted(job, command, row, p)
    else:
        p = put_varying(job, command, row, p)
        if p is NULL:
            job.left_out = left_out
        else:
            job.deletes += command.deletes
    if p is not NULL and not command.checked and is_refused(job, job.out.base + start, p):
        return NULL
    return p


cdef char *put_counted(Job *job, Command *command, Py_ssize_t row, char *p) noexcept nogil:
    """Write a command that has the same number of arguments for every row."""
    cdef Step *step = command.steps
    cdef Step *end = step + command.n_steps
    while step != end:
        if step.kind == STEP_VALUE:
            p = put_value(job, nulls_of(job, step), step.cell, row, step.text, step.size, p)
        else:
            p = put_constant(job, step.text, step.size, p)
            if p is not NULL and step.kind == STEP_JOINED:
                p = put_joined(job, step, row, p)
        if p is NULL:
            note(job, command, step)
            return NULL
        step += 1
    return p


cdef inline Nulls nulls_of(Job *job, Step *step) noexcept nogil:
    """Return what a null in this place does."""
    return job.pair_nulls if step.pair else job.nulls


cdef int note(Job *job, Command *command, Step *step) noexcept nogil:
    """Record the place of a value that can't be written."""
    cdef Step *before = command.steps
    job.argument = step.arguments
    while before != step:
        job.argument += before.arguments + (before.kind < STEP_COPY)
        before += 1
    if step.kind != STEP_JOINED:
        job.cell = step.cell
    return 0


cdef char *put_varying(Job *job, Command *command, Py_ssize_t row, char *p) noexcept nogil:
    """Write a command whose number of arguments depends on the row."""
    cdef Py_ssize_t arguments = 0, pairs = 0, left_out = 0, start = p - job.out.base
    cdef Step *step = command.steps
    cdef Step *last = step + command.n_steps
    cdef bint skips = job.pair_nulls == NULLS_SKIP
    cdef char *end
    job.alone = command.alone
    p = make_room(job, p, command.digits + 3)
    if p is NULL:
        return NULL
    p += command.digits + 3
    while step != last:
        if step.pair and skips and step.kind == STEP_VALUE and is_null(step.cell, row):
            left_out += 1
            step += 1
            continue
        job.written = 1
        if step.kind == STEP_VALUE:
            end = put_value(job, nulls_of(job, step), step.cell, row, step.text, step.size, p)
        elif step.kind == STEP_NAME:
            job.written = 0
            end = put_name(job, step, row, p)
        else:
            p = end = put_constant(job, step.text, step.size, p)
            if p is not NULL and step.kind == STEP_JOINED:
                end = put_joined(job, step, row, p)
            elif p is not NULL and step.kind == STEP_ITEMS:
                end = put_items(job, step.cell, row, p)
            elif p is not NULL and step.kind == STEP_FIELDS:
                end = put_fields(job, step, row, p)
                pairs += job.written > 0
            elif p is not NULL:
                job.written = 0
                if step.kind == STEP_GROUP and pairs == 0 and (
                    job.nulls == NULLS_SKIP or command.alone
                ):
                    return NULL
                pairs = -step.pair
        if end is not NULL:
            p = end
            arguments += step.arguments + job.written
            pairs += step.pair
        elif job.fault or not step.pair:
            note(job, command, step)
            job.argument = arguments + step.arguments
            if step.kind == STEP_ITEMS or step.kind == STEP_FIELDS:
                job.argument += job.written
            return NULL
        else:
            job.left_out += step.kind == STEP_VALUE
        step += 1
    if arguments == 0:
        job.fault, job.argument = EMPTY_COMMAND, 0
        return NULL
    job.left_out += left_out
    p = close_header(job.out, start, p, c'*', arguments, &command.digits)
    if p is NULL:
        job.fault = NO_MEMORY
    return p


cdef inline char *make_room(Job *job, char *p, Py_ssize_t n) noexcept nogil:
    """Make room for n more bytes at p; return NULL and set a Fault if out of memory."""
    p = reserve(job.out, p, n)
    if p is NULL:
        job.fault = NO_MEMORY
    return p


cdef inline char *put_constant(
    Job *job, const char *text, Py_ssize_t n, char *p
) noexcept nogil:
    """Write bytes that are the same for every row."""
    p = make_room(job, p, n)
    return NULL if p is NULL else put_copy(p, text, n)


cdef inline void copy_padded(char *p, const char *text, Py_ssize_t n) noexcept nogil:
    """Copy constants in steps of 16 bytes: they are padded, and p has room."""
    cdef Py_ssize_t i = 0
    while i < n:
        memcpy(p + i, text + i, 16)
        i += 16


cdef char *put_value(
    Job *job, Nulls nulls, Cell *cell, Py_ssize_t row, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constants and a value as one argument; return NULL if it is left out."""
    cdef Py_ssize_t n
    cdef const char *text = value(cell, row, &n)
    if text is NULL:
        if n < 0 or nulls != NULLS_EMPTY:
            job.fault = <int>n if n < 0 or nulls == NULLS_SKIP else IS_NOT_ALLOWED
            return NULL
        text = before
    if n >= job.out.large or n > job.out.most:
        return put_large(job, cell, text, n, before, before_size, p)
    p = make_room(job, p, before_size + n + 32)
    if p is NULL:
        return NULL
    return put_bulk(put_copy(p, before, before_size), text, n)


cdef char *put_name(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write the name of a column whose value is null; return NULL if it has a value."""
    cdef Py_ssize_t n
    if value(step.cell, row, &n) is not NULL:
        return NULL
    if n < 0:
        job.fault = <int>n
        return NULL
    return put_constant(job, step.text, step.size, p)


cdef char *put_large(
    Job *job, Cell *cell, const char *text, Py_ssize_t n, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constants and a large value; refer to its memory if that lasts."""
    if n > job.out.most:
        job.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(job, p, before_size + 32 + (0 if cell.lasting else n))
    if p is NULL:
        return NULL
    p = put_copy(p, before, before_size)
    if not cell.lasting:
        return put_bulk(p, text, n)
    p = put_reference(job.out, p, text, n)
    if p is NULL:
        job.fault = NO_MEMORY
    return p


cdef char *put_joined(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write an argument of several parts; look them up first for the total length."""
    cdef Py_ssize_t k, size = 0
    cdef Part *part
    for k in range(step.n_parts):
        part = &step.parts[k]
        if part.cell is not NULL:
            part.text = value(part.cell, row, &part.size)
            if part.text is NULL and (part.size < 0 or job.nulls != NULLS_EMPTY):
                job.fault = <int>part.size
                if part.size == 0 and job.nulls == NULLS_ERROR:
                    job.fault = IS_NOT_ALLOWED
                job.cell = part.cell
                return NULL
        size += part.size
    if size > job.out.most:
        job.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(job, p, size + 32)
    if p is NULL:
        return NULL
    p = put_header(p, c'$', size)
    for k in range(step.n_parts):
        p = put_copy(p, step.parts[k].text, step.parts[k].size)
    return put_crlf(p)


cdef char *put_items(Job *job, Cell *cell, Py_ssize_t row, char *p) noexcept nogil:
    """Write the items of a list, or the pairs of a map or struct, and count the arguments."""
    cdef Py_ssize_t at, start, end, k, left_out = job.left_out
    cdef Cell *names
    job.written = 0
    cell = stood_for(cell, &row)
    if cell is NULL:
        return put_null(job, BAD_INDEX if row < 0 else IS_NULL, p)
    if cell.form == FORM_STRUCT:
        for k in range(cell.n_children):
            p = put_pair(job, NULL, 0, &cell.children[k], row, p)
            if p is NULL:
                return NULL
    else:
        span(cell, row, &start, &end)
        names = &cell.children[0].children[0] if cell.form == FORM_MAP else NULL
        for at in range(start, end):
            if names is not NULL:
                p = put_pair(job, names, at, &cell.children[0].children[1], at, p)
            else:
                p = put_item(job, &cell.children[0], at, p)
            if p is NULL:
                return NULL
    # An empty list leaves out the command, like a null list; so do pairs of nothing but nulls.
    if job.written == 0 and (
        job.nulls == NULLS_SKIP or job.alone and job.left_out > left_out
    ):
        return NULL
    return p


cdef char *put_fields(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write the fields of a row as pairs, or the names of null ones, and count the arguments."""
    # In registers, as in put_rows().
    cdef Out *out = job.out
    cdef Cell *keys = step.cell.children.children
    cdef Cell *values = &keys[1]
    cdef Name *names = step.names
    cdef const int32_t *numbers = <const int32_t *>keys.values + keys.offset
    cdef const int32_t *offsets = <const int32_t *>values.values + values.offset
    cdef const char *text = values.bytes
    cdef Py_ssize_t short = min(SHORT_BYTES, out.large, out.most), at = 0, last = 0, n
    cdef Py_ssize_t n_names = step.n_names, number = 0, written = 0
    cdef bint has_nulls = values.validity is not NULL, absent = step.absent
    cdef char *full = out.end - SHORT_BYTES - 64
    cdef char *end
    if not is_null(step.cell, row):
        span(step.cell, row, &at, &last)
    for at in range(at, last):
        number = numbers[at]
        if not 0 <= number < n_names:
            job.fault = BAD_INDEX
            return NULL
        if names[number].text is NULL:
            continue
        if has_nulls and is_null(values, at):
            if absent:
                end = put_constant(job, names[number].text, names[number].size, p)
                written += 1
            elif job.pair_nulls == NULLS_SKIP:
                job.left_out += 1
                continue
            else:
                end = put_value(
                    job, job.pair_nulls, step.values, at, names[number].text, names[number].size, p
                )
                written += 2
        elif absent:
            continue
        else:
            written += 2
            n = offsets[at + 1] - offsets[at]
            end = NULL
            if n < short and full - p > names[number].size:
                end = put_short_field(&names[number], text + offsets[at], n, p)
            if end is NULL:
                end = put_value(
                    job, job.pair_nulls, step.values, at, names[number].text, names[number].size, p
                )
        if end is NULL:
            job.written = written - (not absent)
            job.name = value(&keys.children[0], number, &job.name_size)
            return NULL
        p = end
        full = out.end - SHORT_BYTES - 64
    job.written = written
    return p


cdef inline char *put_short_field(
    Name *name, const char *text, Py_ssize_t n, char *p
) noexcept nogil:
    """Write a field whose value is a string or a number of JSON; return NULL if it is another."""
    if n and <unsigned char>text[0] == VALUE_MARK:
        text, n = text + 1, n - 1
        if n == 0 or text[0] > c'9':
            return NULL
    copy_padded(p, name.text, name.size)
    return put_bulk(p + name.size, text, n)


cdef char *put_null(Job *job, int fault, char *p) noexcept nogil:
    """Write an empty argument, or nothing, for a null list."""
    if fault == IS_NULL and job.nulls == NULLS_EMPTY:
        job.written = 1
        return put_constant(job, b"$0\r\n\r\n", 6, p)
    job.fault = IS_NOT_ALLOWED if fault == IS_NULL and job.nulls == NULLS_ERROR else fault
    return NULL


cdef char *put_item(Job *job, Cell *cell, Py_ssize_t at, char *p) noexcept nogil:
    """Write one item of a list; return p unchanged if it is left out."""
    cdef char *end = put_value(job, job.nulls, cell, at, NULL, 0, p)
    if end is not NULL:
        job.written += 1
        return end
    job.left_out += 1
    return NULL if job.fault else p


cdef char *put_pair(
    Job *job, Cell *names, Py_ssize_t at, Cell *values, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a field-value pair; return p unchanged if the value is left out.

    Args:
        names: the names of a map's pairs; NULL for a struct's field.
    """
    cdef Py_ssize_t start = p - job.out.base, n = values.name_size
    cdef const char *name = values.name
    cdef char *end
    if names is not NULL:
        name = value(names, at, &n)
        if name is NULL:
            job.fault = <int>n if n < 0 else NULL_KEY
            return NULL
    if n > job.out.most:
        job.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(job, p, n + 32)
    if p is NULL:
        return NULL
    job.written += 1
    end = put_value(job, job.pair_nulls, values, row, NULL, 0, put_bulk(p, name, n))
    if end is not NULL:
        job.written += 1
        return end
    if job.fault:
        return NULL
    job.written -= 1
    job.left_out += 1
    return job.out.base + start


cdef bint is_refused(Job *job, const char *command, const char *end) noexcept with gil:
    """Whether a command must be refused for its name, which came from the data."""
    try:
        check_command(command, end)
        return False
    except BaseException as error:
        Py_INCREF(error)
        job.error = <PyObject *>error
        job.fault = RAISED
        return True
