# cython: language_level=3, cdivision=True
"""Compile the commands of a template into programs, and write the commands of rows.

A program is a sequence of ops for one command; each op writes one or more arguments.
"""

from cpython.list cimport PyList_Check, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from ..resp.buffer cimport (
    append, end_command, end_header, make_room, open_header, own_size, put_crlf, take_back,
)
from ..resp.values cimport (
    NULLS_ERROR, NULLS_SKIP, bulk_string, check_command, command_header, has_refused_subcommand,
    is_null, put_argument, put_simple, put_value,
)
from ..resp.numbers_and_times cimport put_vector, width_of
from .fields cimport (
    NESTED, ROW_DICT, ROW_MAPPING, ROW_SEQUENCE, Absent, Field, FieldReader, Items, Pairs, Row,
    as_json, as_milliseconds, peek,
)

from collections.abc import Mapping

from ..outcome.errors import EncodeError
from ..outcome.messages import quoted_name, shown_value
from ..resp.values import pack

# The value of ``nested`` for the pairs of {*field}, whose values are never written as JSON.
cdef int IS_ITEM = -1


cdef class Plan(FieldReader):
    """The commands to write for each row.

    Args:
        text: the template as the user wrote it, for error messages.
        commands: for each command, its arguments; each argument is a sequence of bytes and Fields.
            An Items, a Pairs or a vector must be the only part of its argument.
    """

    def __init__(self, text, commands):
        self.text = text
        self.commands = tuple(commands)
        self.programs = tuple([compile_command(command) for command in self.commands])

    cdef int put_row(
        self, Buffer b, object row, Py_ssize_t index, Nulls nulls, object default
    ) except -1:
        """Write the commands of a row, and record the end of each command."""
        cdef Py_ssize_t start
        cdef PyObject *program      # borrowed, like op and value: see put_simple
        if type(row) is not self.row_type:
            b.argument = -1
            self.classify(row)
        for self.program in range(PyTuple_GET_SIZE(self.programs)):
            program = PyTuple_GET_ITEM(self.programs, self.program)
            start = own_size(&b.out)
            if put_command(self, <Program>program, b, row, nulls, default):
                if not (<Program>program).checked:
                    b.argument = -1
                    check_command(b.out.base + start, b.out.p)
                end_command(b, index)
            else:
                take_back(b, start)
        return 0

    cdef str field(self):
        """Return the name of the field being written, for messages; None if there is no field."""
        cdef Op op = (<Program>self.programs[self.program]).ops[self.op]
        if op.kind == OP_PAIRS:
            return repr(self.pair)
        return repr(op.field.key) if op.field is not None else None


cdef Py_ssize_t n_deletes(Plan plan) except -1:
    """Return the number of a plan's commands that delete null fields."""
    return sum([(<Program>program).deletes for program in plan.programs])


cdef int put_command(
    Plan plan, Program program, Buffer b, object row, Nulls nulls, object default
) except -1:
    """Write one command; return 1, or 0 if it is left out because of a null or empty lists."""
    cdef Py_ssize_t i, n, arguments = 0, start = own_size(&b.out), left_out = b.nulls_left_out
    cdef Py_ssize_t listed = 0
    cdef bint needed = program.alone
    cdef PyObject *op
    cdef PyObject *value
    cdef int digits = program.digits
    if not program.counted:
        open_header(b, digits)
    for i in range(PyTuple_GET_SIZE(program.ops)):
        op = PyTuple_GET_ITEM(program.ops, i)
        b.argument = arguments
        plan.op = i
        n = (<Op>op).arguments
        if (<Op>op).kind == OP_COPY:
            append(b, (<Op>op).text, (<Op>op).size)
        elif (<Op>op).kind == OP_VALUE:
            value = peek(plan.row_kind, (<Op>op).name, (<Op>op).position, row)
            if value is NULL or not put_simple(b, value, True):
                looked_up = fetch(plan, (<Op>op).field, row, nulls, default)
                n = put_argument(b, looked_up, nulls, default)
        else:
            n = put_composed(plan, b, <Op>op, row, nulls, default)
        if (<Op>op).kind >= OP_ITEMS:
            listed += n
        if n == 0 and nulls == NULLS_SKIP and (<Op>op).kind != OP_COPY:
            needed = True
            if (<Op>op).kind != OP_PAIRS:
                b.nulls_left_out = left_out
                return 0
        arguments += n
    if not program.counted:
        if listed == 0 and needed:
            b.nulls_left_out = left_out
            return 0
        end_header(b, start, c'*', arguments, &digits)
        program.digits = digits
        b.deletes += program.deletes
    return 1


cdef Py_ssize_t put_composed(
    Plan plan, Buffer b, Op op, object row, Nulls nulls, object default
) except -1:
    """Write an op that is neither OP_COPY nor OP_VALUE; return the number of arguments written."""
    if op.kind == OP_CONVERTED:
        return put_argument(b, fetch(plan, op.field, row, nulls, default), nulls, default)
    if op.kind == OP_VECTOR:
        value = plan.look_up(op.field, row, nulls)
        if is_null(value):
            return put_argument(b, value, nulls, default)
        return put_vector(b, value, op.width, &op.length)
    if op.kind == OP_JOINED:
        return put_joined(plan, b, op, row, nulls, default)
    if op.kind == OP_ITEMS:
        value = fetch(plan, op.field, row, nulls, default)
        return put_items(plan, b, op.field, value, nulls, default)
    return put_fields(plan, b, op, row, default)


cdef int put_joined(
    Plan plan, Buffer b, Op op, object row, Nulls nulls, object default
) except -1:
    """Write one argument of several parts; return 1, or 0 if it is left out because of a null."""
    cdef Py_ssize_t start = own_size(&b.out)
    cdef int digits = op.digits
    cdef PyObject *borrowed
    open_header(b, digits)
    for part in op.parts:
        if isinstance(part, bytes):
            append(b, <bytes>part, len(<bytes>part))
            continue
        op.field = <Field>part
        if op.field.convert is None:
            borrowed = peek(plan.row_kind, <PyObject *>op.field.name, op.field.position, row)
            if borrowed is not NULL and put_simple(b, borrowed, False):
                continue
        value = fetch(plan, op.field, row, nulls, default)
        if not is_null(value):
            put_value(b, value, False, default)
        elif nulls == NULLS_ERROR:
            put_value(b, None, False, default)
        elif nulls == NULLS_SKIP:
            return 0
    end_header(b, start, c'$', own_size(&b.out) - start - digits - 3, &digits)
    op.digits = digits
    b.out.p = put_crlf(make_room(b, 2))
    return 1


cdef Py_ssize_t put_items(
    Plan plan, Buffer b, Field field, object value, Nulls nulls, object default
) except -1:
    """Write the value of {*field} as arguments; return the number of arguments written."""
    cdef Py_ssize_t first = b.argument, size
    if is_null(value):
        return put_argument(b, value, nulls, default)
    if isinstance(value, Mapping):
        for name in value:
            put_pair(b, name, value[name], IS_ITEM, plan.pair_nulls, default)
    elif isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__iter__"):
        raise EncodeError(
            f"{{*{field.key}}} needs a list, and the field is a {type(value).__name__}; "
            f"write {{{field.key}}} for a single value"
        )
    else:
        size = PyList_GET_SIZE(value) if PyList_Check(value) else -1
        for item in value:
            if put_argument(b, item, nulls, default):
                b.argument += 1
            else:
                b.nulls_left_out += 1
            if size >= 0 and PyList_GET_SIZE(value) != size:
                raise EncodeError(
                    f"the list of {{*{field.key}}} changed while it was being read; neither "
                    "default= nor another thread may change a row"
                )
    return b.argument - first


cdef Py_ssize_t put_fields(
    Plan plan, Buffer b, Op op, object row, object default
) except -1:
    """Write the pairs of {**}, or the names of its null fields; return the number of arguments."""
    cdef Py_ssize_t first = b.argument
    cdef Nulls nulls = plan.pair_nulls
    cdef bint nested = op.field.convert is not None, absent = isinstance(op.field, Absent)
    cdef frozenset used = op.used
    if op.left_out is not None:
        check_left_out(plan, op, row)
        op.left_out = None
    if plan.row_kind == ROW_DICT:
        for name, value in (<dict>row).items():
            if name not in used:
                plan.pair = name
                if not absent:
                    put_pair(b, name, value, nested, nulls, default)
                elif is_null(value):
                    b.argument += put_argument(b, name, NULLS_ERROR, default)
        return b.argument - first
    cdef bint by_position = has_positions(plan, row)
    for position, name in enumerate(plan.names(op.field, row)):
        if name not in used and not (by_position and position in used):
            plan.pair = name
            value = row[name] if plan.by_item else getattr(row, name)
            if not absent:
                put_pair(b, name, value, nested, nulls, default)
            elif is_null(value):
                b.argument += put_argument(b, name, NULLS_ERROR, default)
    return b.argument - first


cdef int check_left_out(Plan plan, Op op, object row) except -1:
    """Raise TemplateError unless the first row has every field to leave out.

    Without this check, {**} would send a field whose name is misspelt in the template.
    """
    names = list(plan.names(op.field, row))
    for field in op.left_out:
        found = field.key in names or str(field.key) in names
        if has_positions(plan, row):
            found = found or 0 <= field.position < len(names)
        if not found:
            raise plan.missing(field, row, True)
    return 0


cdef bint has_positions(Plan plan, object row) except -1:
    """Return whether named fields also have positions, as in a sqlite3.Row."""
    return plan.row_kind == ROW_SEQUENCE or (
        plan.row_kind == ROW_MAPPING and not isinstance(row, Mapping)
    )


cdef inline int put_pair(
    Buffer b, object name, object value, int nested, Nulls nulls, object default
) except -1:
    """Write a field-value pair, or nothing if the value is a null that must be left out."""
    cdef bint simple = type(value) is str or type(value) is int
    if not simple and nulls == NULLS_SKIP and is_null(value):
        b.nulls_left_out += 1
        return 0
    if name is None:
        raise nameless(value)
    put_value(b, name, True, default)
    b.argument += 1
    if simple:
        put_value(b, value, True, default)
        b.argument += 1
        return 0
    if nested > 0 and isinstance(value, NESTED):
        value = as_json(value, default)
    elif nested == 0 and default is None and (type(value) is dict or type(value) is list):
        raise EncodeError(
            f"cannot send {shown_value(value)} (a {type(value).__name__}), which is not one "
            f"argument: write {{**!json}} for JSON, or {{**-{quoted_name(str(name))}}} to leave it "
            "out"
        )
    b.argument += put_argument(b, value, nulls, default)
    return 0


cdef object nameless(object value):
    """Return the error for a field whose name is None."""
    return EncodeError(
        f"the name of a field is None, with the value {shown_value(value)}: a row of "
        "csv.DictReader has more values than the header has names; correct the row, or name the "
        "additional values with restkey="
    )


cdef object fetch(Plan plan, Field field, object row, Nulls nulls, object default):
    """Return the value of a placeholder, converted as the placeholder requires."""
    if isinstance(field, Row):
        fields = plan.as_dict(field, row)
        if None in fields:
            raise nameless(fields[None])
        return as_json(fields, default)
    value = plan.look_up(field, row, nulls)
    if field.convert == "ms":
        return as_milliseconds(value)
    return value if field.convert is None else as_json(value, default)


cdef Program compile_command(command):
    """Compile the arguments of a command.

    Adjacent arguments without placeholders become one OP_COPY.
    """
    cdef Program program = Program()
    cdef Op op
    fields = [part for argument in command for part in argument if isinstance(part, Field)]
    program.counted = not any([isinstance(field, (Items, Pairs)) for field in fields])
    program.digits = 1
    program.alone = sum([not isinstance(parts[0], (Items, Pairs)) for parts in command]) <= 2
    ops = [ready_op(command_header(len(command)), 0)] if program.counted else []
    for argument in command:
        if all([isinstance(part, bytes) for part in argument]):
            op = ready_op(bulk_string(b"".join(argument)), 1)
            if ops and (<Op>ops[-1]).kind == OP_COPY:
                op = ready_op((<Op>ops[-1]).ready + op.ready, (<Op>ops.pop()).arguments + 1)
        else:
            op = field_op(tuple(argument))
            if op.kind == OP_PAIRS:
                op.used = names_of([*fields, *(<Pairs>op.field).left_out])
                program.deletes = isinstance(op.field, Absent)
                op.left_out = None if program.deletes else (<Pairs>op.field).left_out
        ops.append(op)
    program.ops = tuple(ops)
    if all([isinstance(part, bytes) for part in command[0]]):
        pack(*[
            b"".join([part for part in argument if isinstance(part, bytes)])
            for argument in command
        ])
        program.checked = not has_refused_subcommand(b"".join(command[0]))
    return program


cdef frozenset names_of(list fields):
    """Return the names and positions of fields, for {**} to leave out."""
    keys = [field.key for field in fields if not isinstance(field, (Pairs, Row))]
    # A field of a mapping may have a number as its name.
    return frozenset(keys + [str(key) for key in keys])


cdef Op ready_op(bytes ready, Py_ssize_t arguments):
    cdef Op op = Op()
    op.kind = OP_COPY
    op.ready = ready
    op.text = ready
    op.size = len(ready)
    op.arguments = arguments
    return op


cdef Op field_op(tuple parts):
    cdef Op op = Op()
    op.arguments = 1
    op.digits = 1
    op.parts = parts
    op.kind = OP_JOINED
    if len(parts) == 1:
        op.field = parts[0]
        op.name = <PyObject *>op.field.name
        op.position = op.field.position
        op.kind = OP_VALUE if op.field.convert is None else OP_CONVERTED
        op.width = width_of(op.field.convert)
        if op.width:
            op.kind = OP_VECTOR
            op.length = -1
        if isinstance(op.field, (Items, Pairs)):
            op.kind = OP_ITEMS if isinstance(op.field, Items) else OP_PAIRS
            op.arguments = 0
    return op
