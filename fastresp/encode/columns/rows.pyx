# cython: language_level=3, cdivision=True
"""Write the rows of a batch of columns as commands, without the GIL."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from .arguments cimport copy_padded, make_room, put_constant, put_fields, put_items, put_value
from .cell cimport (
    ARGUMENT_TOO_LARGE,
    IS_NOT_ALLOWED,
    IS_NULL_ROW,
    NO_MEMORY,
    RAISED,
    Cell,
    is_null,
    value,
)
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
)
from ...resp.values cimport NULLS_EMPTY, NULLS_ERROR, NULLS_SKIP, Nulls, check_command
from .steps cimport (
    SHORT_BYTES,
    STEP_COPY,
    STEP_FIELDS,
    STEP_ITEMS,
    STEP_JOINED,
    STEP_NAME,
    STEP_VALUE,
    Command,
    Part,
    Step,
    Steps,
)


cdef int put_rows(
    Job *job, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil:
    """Write rows, and record the end of each command; stop before a row with a Fault.

    Args:
        job: the state of the writer.
        steps: the steps, attached to the batch.
        before: the number of rows before the batch.
        at: the first row to write; receives the index after the last written row.
        last: the index after the last row to write.
        chunk_bytes: stop after the row that reaches this size.

    Returns:
        The Fault; 0 if there is no Fault.
    """
    # Local variables stay in registers; the compiler must assume that a write changes any memory.
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
    """Write a command that has only short values and no nulls, like most commands.

    There must be room for the whole command. For any other command, put_command() is called, which
    costs twice as much.
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
    """Write a value as one argument; return NULL if the value is null or not short."""
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
    """Write an argument of several parts; return NULL if a part is null or not short."""
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
    """Write one command; return NULL if the command is left out, or for a Fault."""
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
    """Return how to handle a null in a step."""
    return job.pair_nulls if step.pair else job.nulls


cdef int note(Job *job, Command *command, Step *step) noexcept nogil:
    """Record the argument and the cell of a step whose value can't be written."""
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
    cdef Py_ssize_t arguments = 0, listed = 0, left_out = 0, start = p - job.out.base
    cdef Step *step = command.steps
    cdef Step *last = step + command.n_steps
    cdef bint skips = job.pair_nulls == NULLS_SKIP
    cdef char *end
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
            elif p is not NULL:
                job.written = 0
        if end is not NULL:
            p = end
            arguments += step.arguments + job.written
            listed += job.written + step.pair if step.lists else 0
        elif job.fault or not step.pair:
            note(job, command, step)
            job.argument = arguments + step.arguments
            if step.kind == STEP_ITEMS or step.kind == STEP_FIELDS:
                job.argument += job.written
            return NULL
        else:
            job.left_out += step.kind == STEP_VALUE
        step += 1
    if listed == 0 and (command.alone or command.pairs and job.nulls == NULLS_SKIP):
        return NULL
    job.left_out += left_out
    p = close_header(job.out, start, p, c'*', arguments, &command.digits)
    if p is NULL:
        job.fault = NO_MEMORY
    return p


cdef char *put_name(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write the name of a column if the value is null; otherwise return NULL."""
    cdef Py_ssize_t n
    if value(step.cell, row, &n) is not NULL:
        return NULL
    if n < 0:
        job.fault = <int>n
        return NULL
    return put_constant(job, step.text, step.size, p)


cdef char *put_joined(Job *job, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write an argument of several parts, after adding up the sizes of all parts."""
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


cdef bint is_refused(Job *job, const char *command, const char *end) noexcept with gil:
    """Return whether a command must be refused; check its name, which comes from the data."""
    try:
        check_command(command, end)
        return False
    except BaseException as error:
        Py_INCREF(error)
        job.error = <PyObject *>error
        job.fault = RAISED
        return True
