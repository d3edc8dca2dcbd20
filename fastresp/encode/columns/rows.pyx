# cython: language_level=3, cdivision=True
"""Write the rows of a batch of columns as commands, without the GIL."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t

from ...resp.buffer cimport (
    Out, close_header, cut, fill_bulk, prefetch, put_bulk, put_copy, put_crlf, put_header,
    put_reference,
)
from ...resp.values cimport NULLS_EMPTY, NULLS_ERROR, NULLS_SKIP, Nulls, check_command
from .column_view cimport (
    ARGUMENT_TOO_LARGE, BAD_INDEX, IS_NOT_ALLOWED, IS_NULL, IS_NULL_ROW, KIND_MAP, KIND_STRUCT,
    NO_MEMORY, NULL_KEY, RAISED, ColumnView, is_null, resolve, span, value,
)
from .steps cimport (
    SHORT_BYTES, STEP_COPY, STEP_FIELDS, STEP_ITEMS, STEP_JOINED, STEP_NAME, STEP_VALUE,
    ArgumentPart, CommandSteps, FieldName, Step, Steps,
)
from .text cimport VALUE_MARK

cdef int put_rows(
    WriteState *state, Steps steps, Py_ssize_t before, Py_ssize_t *at, Py_ssize_t last,
    Py_ssize_t chunk_bytes,
) noexcept nogil:
    """Write rows, and record the end of each command; stop before a row with a Fault.

    Args:
        state: the state of the writer.
        steps: the steps, attached to the batch.
        before: the number of rows before the batch.
        at: the first row to write; receives the index after the last written row.
        last: the index after the last row to write.
        chunk_bytes: stop after the row that reaches this size.

    Returns:
        The Fault; 0 if there is no Fault.
    """
    # Local variables stay in registers; the compiler must assume that a write changes any memory.
    cdef Out *out = state.out
    cdef Py_ssize_t row = at[0], start, whole = state.commands, commands = whole
    cdef CommandSteps *first = steps.commands
    cdef CommandSteps *behind = first + steps.n_commands
    cdef CommandSteps *command
    cdef bint null_rows = steps.by_row and steps.root.validity is not NULL
    cdef char *p = out.p
    cdef char *end
    state.fault, state.counted_row = 0, -1
    while row < last and p - out.base + out.extra < chunk_bytes:
        if null_rows and is_null(&steps.root, row):
            state.fault = IS_NULL_ROW
            break
        command = first
        while command != behind:
            start = p - out.base
            if command.plain and out.end - p >= command.most:
                end = put_plain(state, command, row, p)
            else:
                end = put_command(state, command, row, p)
            command += 1
            if end is not NULL:
                p = end
                state.ends[commands] = p - out.base + out.extra
                state.rows[commands] = before + row
                commands += 1
                prefetch(p)
                continue
            cut(out, start)
            p = out.p
            if state.fault:
                break
            state.argument, state.column = -1, NULL
        if state.fault:
            state.left_out, state.deletes = state.left_out_before, state.deletes_before
            break
        row += 1
        whole = commands
    at[0] = row
    out.p = p
    state.commands, state.whole = commands, whole
    return state.fault


cdef inline char *put_plain(
    WriteState *state, CommandSteps *command, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a command that has only short values and no nulls, like most commands.

    There must be room for the whole command. If a value is null or long, this calls put_command()
    instead, which costs twice as much.
    """
    cdef Step *step = command.steps
    cdef Step *end = step + command.n_steps
    cdef char *start = p
    while step != end:
        copy_padded(p, step.text, step.size)
        p += step.size
        if step.kind == STEP_VALUE:
            p = put_short(step.column, row, p)
        elif step.kind == STEP_JOINED:
            p = put_short_parts(step, row, p)
        if p is NULL:
            return put_command(state, command, row, start)
        step += 1
    return p


cdef inline char *put_short(ColumnView *column, Py_ssize_t row, char *p) noexcept nogil:
    """Write a value as one argument; return NULL if the value is null or not short."""
    cdef Py_ssize_t n
    cdef const char *text
    cdef char *end
    if column.brief:
        if is_null(column, row):
            return NULL
        end = column.write(column, row, p + column.digits + 3)
        return NULL if end is NULL else fill_bulk(p, end, &column.digits)
    text = value(column, row, &n)
    if text is NULL or n >= SHORT_BYTES:
        return NULL
    return put_bulk(p, text, n)


cdef inline char *put_short_parts(Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write an argument of several parts; return NULL if a part is null or not short."""
    cdef ArgumentPart *part = step.parts
    cdef ArgumentPart *end = part + step.n_parts
    cdef char *to = p + step.digits + 3
    cdef ColumnView *column
    while part != end:
        column = part.column
        if column is NULL:
            to = put_copy(to, part.text, part.size)
        elif column.brief:
            to = NULL if is_null(column, row) else column.write(column, row, to)
            if to is NULL:
                return NULL
        else:
            part.text = value(column, row, &part.size)
            if part.text is NULL or part.size >= SHORT_BYTES:
                return NULL
            to = put_copy(to, part.text, part.size)
        part += 1
    return fill_bulk(p, to, &step.digits)


cdef char *put_command(
    WriteState *state, CommandSteps *command, Py_ssize_t row, char *p
) noexcept nogil:
    """Write one command; return NULL if the command is left out, or for a Fault."""
    cdef Py_ssize_t start = p - state.out.base, left_out = state.left_out
    if row != state.counted_row:
        state.counted_row = row
        state.left_out_before, state.deletes_before = left_out, state.deletes
    if command.counted:
        p = put_counted(state, command, row, p)
    else:
        p = put_varying(state, command, row, p)
        if p is NULL:
            state.left_out = left_out
        else:
            state.deletes += command.deletes
    if p is not NULL and not command.checked and is_refused(state, state.out.base + start, p):
        return NULL
    return p


cdef char *put_counted(
    WriteState *state, CommandSteps *command, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a command that has the same number of arguments for every row."""
    cdef Step *step = command.steps
    cdef Step *end = step + command.n_steps
    while step != end:
        if step.kind == STEP_VALUE:
            p = put_value(state, nulls_of(state, step), step.column, row, step.text, step.size, p)
        else:
            p = put_constant(state, step.text, step.size, p)
            if p is not NULL and step.kind == STEP_JOINED:
                p = put_joined(state, step, row, p)
        if p is NULL:
            record_fault(state, command, step)
            return NULL
        step += 1
    return p


cdef inline Nulls nulls_of(WriteState *state, Step *step) noexcept nogil:
    """Return how to handle a null in a step."""
    return state.pair_nulls if step.pair else state.nulls


cdef int record_fault(WriteState *state, CommandSteps *command, Step *step) noexcept nogil:
    """Record the argument and the column of a step whose value can't be written."""
    cdef Step *before = command.steps
    state.argument = step.arguments
    while before != step:
        state.argument += before.arguments + (before.kind < STEP_COPY)
        before += 1
    if step.kind != STEP_JOINED:
        state.column = step.column
    return 0


cdef char *put_varying(
    WriteState *state, CommandSteps *command, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a command whose number of arguments depends on the row."""
    cdef Py_ssize_t arguments = 0, listed = 0, left_out = 0, start = p - state.out.base
    cdef Step *step = command.steps
    cdef Step *last = step + command.n_steps
    cdef bint skips = state.pair_nulls == NULLS_SKIP
    cdef char *end
    p = make_room(state, p, command.digits + 3)
    if p is NULL:
        return NULL
    p += command.digits + 3
    while step != last:
        if step.pair and skips and step.kind == STEP_VALUE and is_null(step.column, row):
            left_out += 1
            step += 1
            continue
        state.written = 1
        if step.kind == STEP_VALUE:
            end = put_value(state, nulls_of(state, step), step.column, row, step.text, step.size, p)
        elif step.kind == STEP_NAME:
            state.written = 0
            end = put_name(state, step, row, p)
        else:
            p = end = put_constant(state, step.text, step.size, p)
            if p is not NULL and step.kind == STEP_JOINED:
                end = put_joined(state, step, row, p)
            elif p is not NULL and step.kind == STEP_ITEMS:
                end = put_items(state, step.column, row, p)
            elif p is not NULL and step.kind == STEP_FIELDS:
                end = put_fields(state, step, row, p)
            elif p is not NULL:
                state.written = 0
        if end is not NULL:
            p = end
            arguments += step.arguments + state.written
            listed += state.written + step.pair if step.lists else 0
        elif state.fault or not step.pair:
            record_fault(state, command, step)
            state.argument = arguments + step.arguments
            if step.kind == STEP_ITEMS or step.kind == STEP_FIELDS:
                state.argument += state.written
            return NULL
        else:
            state.left_out += step.kind == STEP_VALUE
        step += 1
    if listed == 0 and (command.alone or command.pairs and state.nulls == NULLS_SKIP):
        return NULL
    state.left_out += left_out
    p = close_header(state.out, start, p, c'*', arguments, &command.digits)
    if p is NULL:
        state.fault = NO_MEMORY
    return p


cdef char *put_name(WriteState *state, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write the name of a column if the value is null; otherwise return NULL."""
    cdef Py_ssize_t n
    if value(step.column, row, &n) is not NULL:
        return NULL
    if n < 0:
        state.fault = <int>n
        return NULL
    return put_constant(state, step.text, step.size, p)


cdef char *put_joined(WriteState *state, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write an argument of several parts, after adding up the sizes of all parts."""
    cdef Py_ssize_t k, size = 0
    cdef ArgumentPart *part
    for k in range(step.n_parts):
        part = &step.parts[k]
        if part.column is not NULL:
            part.text = value(part.column, row, &part.size)
            if part.text is NULL and (part.size < 0 or state.nulls != NULLS_EMPTY):
                state.fault = <int>part.size
                if part.size == 0 and state.nulls == NULLS_ERROR:
                    state.fault = IS_NOT_ALLOWED
                state.column = part.column
                return NULL
        size += part.size
    if size > state.out.most:
        state.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(state, p, size + 32)
    if p is NULL:
        return NULL
    p = put_header(p, c'$', size)
    for k in range(step.n_parts):
        p = put_copy(p, step.parts[k].text, step.parts[k].size)
    return put_crlf(p)


cdef bint is_refused(WriteState *state, const char *command, const char *end) noexcept with gil:
    """Return whether a command whose name comes from the data must be refused."""
    try:
        check_command(command, end)
        return False
    except BaseException as error:
        Py_INCREF(error)
        state.error = <PyObject *>error
        state.fault = RAISED
        return True


cdef char *put_value(
    WriteState *state, Nulls nulls, ColumnView *column, Py_ssize_t row, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constant text, then a value as one argument.

    Return NULL for a Fault, or if the value is null and the argument is left out.
    """
    cdef Py_ssize_t n
    cdef const char *text = value(column, row, &n)
    if text is NULL:
        if n < 0 or nulls != NULLS_EMPTY:
            state.fault = <int>n if n < 0 or nulls == NULLS_SKIP else IS_NOT_ALLOWED
            return NULL
        text = before
    if n >= state.out.large or n > state.out.most:
        return put_large(state, column, text, n, before, before_size, p)
    p = make_room(state, p, before_size + n + 32)
    if p is NULL:
        return NULL
    return put_bulk(put_copy(p, before, before_size), text, n)


cdef char *put_large(
    WriteState *state, ColumnView *column, const char *text, Py_ssize_t n, const char *before,
    Py_ssize_t before_size, char *p,
) noexcept nogil:
    """Write constant text, then a large value; a value in the batch's memory is not copied."""
    if n > state.out.most:
        state.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(state, p, before_size + 32 + (0 if column.zero_copy else n))
    if p is NULL:
        return NULL
    p = put_copy(p, before, before_size)
    if not column.zero_copy:
        return put_bulk(p, text, n)
    p = put_reference(state.out, p, text, n)
    if p is NULL:
        state.fault = NO_MEMORY
    return p


cdef char *put_items(WriteState *state, ColumnView *column, Py_ssize_t row, char *p) noexcept nogil:
    """Write the items of a list, or the pairs of a map or struct, and count the arguments."""
    cdef Py_ssize_t at, start, end, k
    cdef ColumnView *names
    state.written = 0
    column = resolve(column, &row)
    if column is NULL:
        return put_null(state, BAD_INDEX if row < 0 else IS_NULL, p)
    if column.kind == KIND_STRUCT:
        for k in range(column.n_children):
            p = put_pair(state, NULL, 0, &column.children[k], row, p)
            if p is NULL:
                return NULL
    else:
        span(column, row, &start, &end)
        names = &column.children[0].children[0] if column.kind == KIND_MAP else NULL
        for at in range(start, end):
            if names is not NULL:
                p = put_pair(state, names, at, &column.children[0].children[1], at, p)
            else:
                p = put_item(state, &column.children[0], at, p)
            if p is NULL:
                return NULL
    # Leave out the command for an empty or null list, and if the values of all pairs are null.
    return NULL if state.written == 0 and state.nulls == NULLS_SKIP else p


cdef char *put_fields(WriteState *state, Step *step, Py_ssize_t row, char *p) noexcept nogil:
    """Write a row's fields as pairs, or with ``step.absent`` only the names of null fields."""
    # Local variables stay in registers, as in put_rows().
    cdef Out *out = state.out
    cdef ColumnView *keys = step.column.children.children
    cdef ColumnView *values = &keys[1]
    cdef FieldName *names = step.names
    cdef const int32_t *numbers = <const int32_t *>keys.values + keys.offset
    cdef const int32_t *offsets = <const int32_t *>values.values + values.offset
    cdef const char *text = values.bytes
    cdef Py_ssize_t short = min(SHORT_BYTES, out.large, out.most), at = 0, last = 0, n
    cdef Py_ssize_t n_names = step.n_names, number = 0, written = 0
    cdef bint has_nulls = values.validity is not NULL, absent = step.absent
    cdef char *full = out.end - SHORT_BYTES - 64
    cdef char *end
    if not is_null(step.column, row):
        span(step.column, row, &at, &last)
    for at in range(at, last):
        number = numbers[at]
        if not 0 <= number < n_names:
            state.fault = BAD_INDEX
            return NULL
        if names[number].text is NULL:
            continue
        if has_nulls and is_null(values, at):
            if absent:
                end = put_constant(state, names[number].text, names[number].size, p)
                written += 1
            elif state.pair_nulls == NULLS_SKIP:
                state.left_out += 1
                continue
            else:
                end = put_value(
                    state, state.pair_nulls, step.values, at, names[number].text,
                    names[number].size, p
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
                    state, state.pair_nulls, step.values, at, names[number].text,
                    names[number].size, p
                )
        if end is NULL:
            state.written = written - (not absent)
            state.name = value(&keys.children[0], number, &state.name_size)
            return NULL
        p = end
        full = out.end - SHORT_BYTES - 64
    state.written = written
    return p


cdef inline char *put_short_field(
    FieldName *name, const char *text, Py_ssize_t n, char *p
) noexcept nogil:
    """Write a field with a JSON string or number; return NULL for other values."""
    if n and <unsigned char>text[0] == VALUE_MARK:
        text, n = text + 1, n - 1
        if n == 0 or text[0] > c'9':
            return NULL
    copy_padded(p, name.text, name.size)
    return put_bulk(p + name.size, text, n)


cdef char *put_null(WriteState *state, int fault, char *p) noexcept nogil:
    """Write an empty argument for a null list, if nulls are sent as empty strings.

    Otherwise, return NULL, and set the Fault unless nulls are left out.
    """
    if fault == IS_NULL and state.nulls == NULLS_EMPTY:
        state.written = 1
        return put_constant(state, b"$0\r\n\r\n", 6, p)
    state.fault = IS_NOT_ALLOWED if fault == IS_NULL and state.nulls == NULLS_ERROR else fault
    return NULL


cdef char *put_item(WriteState *state, ColumnView *column, Py_ssize_t at, char *p) noexcept nogil:
    """Write one item of a list; return p unchanged if the item is left out."""
    cdef char *end = put_value(state, state.nulls, column, at, NULL, 0, p)
    if end is not NULL:
        state.written += 1
        return end
    state.left_out += 1
    return NULL if state.fault else p


cdef char *put_pair(
    WriteState *state, ColumnView *names, Py_ssize_t at, ColumnView *values, Py_ssize_t row, char *p
) noexcept nogil:
    """Write a field-value pair; return p unchanged if the pair is left out.

    Args:
        names: the column of a map's keys; NULL for a struct's field.
    """
    cdef Py_ssize_t start = p - state.out.base, n = values.name_size
    cdef const char *name = values.name
    cdef char *end
    if names is not NULL:
        name = value(names, at, &n)
        if name is NULL:
            state.fault = <int>n if n < 0 else NULL_KEY
            return NULL
    if n > state.out.most:
        state.fault = ARGUMENT_TOO_LARGE
        return NULL
    p = make_room(state, p, n + 32)
    if p is NULL:
        return NULL
    state.written += 1
    end = put_value(state, state.pair_nulls, values, row, NULL, 0, put_bulk(p, name, n))
    if end is not NULL:
        state.written += 1
        return end
    if state.fault:
        return NULL
    state.written -= 1
    state.left_out += 1
    return state.out.base + start
