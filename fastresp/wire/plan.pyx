# cython: language_level=3, cdivision=True
"""A parsed template as a program that writes one row's commands."""

from cpython.list cimport PyList_Check, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from .buffer cimport close_header, cut, end_command, open_header, put_crlf, put_raw, reserve
from .encode cimport (
    NULLS_ERROR,
    NULLS_SKIP,
    check_command,
    put_argument,
    put_simple,
    put_value,
    shown,
    usual_text,
)
from .vectors cimport put_vector, width_of

import dataclasses
import json
from collections.abc import Mapping

from ..errors import EncodeError, TemplateError
from .encode import pack


cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object, object) except? NULL


# How the fields of a row are reached.
cdef enum RowKind:
    ROW_DICT        # an exact dict
    ROW_MAPPING     # by item: anything else with keys()
    ROW_SEQUENCE    # tuple, list and the like: by position; by attribute or item where it has names
    ROW_VALUE       # a str, a number: is itself field 0
    ROW_OBJECT      # by attribute; is itself field 0


cdef class Field:
    """A placeholder: which field of the row goes here, by name or position, and as what."""

    def __init__(self, key, *, convert=None, at=0):
        self.name = key if isinstance(key, str) else None
        self.position = -1 if isinstance(key, str) else key
        self.convert = convert
        self.at = at

    @property
    def key(self):
        """The field's name, or its position."""
        return self.position if self.name is None else self.name


cdef class Items(Field):
    """A placeholder for a list, each item an argument; a dict gives name-value pairs."""


cdef class Pairs(Field):
    """A placeholder for all fields not named in the same command, as name-value pairs."""


cdef class Row(Field):
    """A placeholder for the whole row, its fields by name, as JSON."""


cdef class Plan:
    """What to write for each row.

    Args:
        text: the template as the user wrote it, for error messages.
        commands: for each command its arguments, for each argument its parts: bytes or Field.
            An Items, a Pairs or a vector is the only part of its argument.
    """

    def __init__(self, text, commands):
        self.text = text
        self.commands = tuple(commands)
        self.programs = tuple([compile_command(command) for command in self.commands])

    cdef int put_row(
        self, Buffer b, object row, Py_ssize_t index, Nulls nulls, object default
    ) except -1:
        """Write a row's commands, and mark the end of each."""
        cdef Py_ssize_t start
        cdef PyObject *program      # borrowed, like op and value: see put_simple
        if type(row) is not self.row_type:
            b.argument = -1
            classify(self, row)
        for self.program in range(PyTuple_GET_SIZE(self.programs)):
            program = PyTuple_GET_ITEM(self.programs, self.program)
            start = b.size
            if put_command(self, <Program>program, b, row, nulls, default):
                if not (<Program>program).checked:
                    b.argument = -1
                    check_command(b.data + start, b.data + b.size)
                end_command(b, index)
            else:
                cut(b, start)
        return 0

    cdef str field(self):
        """The name of the field that is being written, or None."""
        cdef Op op = (<Program>self.programs[self.program]).ops[self.op]
        if op.kind == OP_PAIRS:
            return repr(self.pair)
        return repr(op.field.key) if op.field is not None else None


cdef int put_command(
    Plan plan, Program program, Buffer b, object row, Nulls nulls, object default
) except -1:
    """Write one command; 0 when a null says to leave it out."""
    cdef Py_ssize_t i, n, arguments = 0, start = b.size
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
            put_raw(b, (<Op>op).text, (<Op>op).size)
        elif (<Op>op).kind == OP_VALUE:
            value = peek(plan.row_kind, (<Op>op).name, (<Op>op).position, row)
            if value is NULL or not put_simple(b, value, True):
                n = put_argument(b, fetch(plan, (<Op>op).field, row, default), nulls, default)
        else:
            n = put_composed(plan, program, b, <Op>op, row, nulls, default)
        if n == 0 and nulls == NULLS_SKIP and (<Op>op).kind != OP_COPY:
            return 0
        arguments += n
    if not program.counted:
        if arguments == 0:
            raise EncodeError("the command is empty; a command is at least a name")
        program.digits = close_header(b, start, c'*', digits, arguments)
    return 1


cdef Py_ssize_t put_composed(
    Plan plan, Program program, Buffer b, Op op, object row, Nulls nulls, object default
) except -1:
    """Write what takes more than copying one value; return how many arguments that made."""
    if op.kind == OP_CONVERTED:
        return put_argument(b, fetch(plan, op.field, row, default), nulls, default)
    if op.kind == OP_VECTOR:
        value = look_up(plan, op.field, row)
        if value is None:
            return put_argument(b, value, nulls, default)
        return put_vector(b, value, op.width, &op.length)
    if op.kind == OP_JOINED:
        return put_joined(plan, b, op, row, nulls, default)
    if op.kind == OP_ITEMS:
        return put_items(b, op.field, fetch(plan, op.field, row, default), nulls, default)
    return put_fields(plan, b, op.field, program.used, row, nulls, default)


cdef int put_joined(
    Plan plan, Buffer b, Op op, object row, Nulls nulls, object default
) except -1:
    """Write one argument of several parts; 0 when a part is a null that leaves it out."""
    cdef Py_ssize_t start = b.size
    cdef int digits = op.digits
    open_header(b, digits)
    for part in op.parts:
        if isinstance(part, bytes):
            put_raw(b, <bytes>part, len(<bytes>part))
            continue
        op.field = <Field>part
        value = fetch(plan, op.field, row, default)
        if value is not None or nulls == NULLS_ERROR:
            put_value(b, value, False, default)
        elif nulls == NULLS_SKIP:
            return 0
    op.digits = close_header(b, start, c'$', digits, b.size - start - digits - 3)
    reserve(b, 2)
    b.size = put_crlf(b.data + b.size) - b.data
    return 1


cdef Py_ssize_t put_items(
    Buffer b, Field field, object value, Nulls nulls, object default
) except -1:
    """Write the items of a list as arguments; return how many that made."""
    cdef Py_ssize_t first = b.argument
    if value is None:
        return put_argument(b, value, nulls, default)
    if isinstance(value, Mapping):
        for name in value:
            put_pair(b, name, value[name], nulls, default)
    elif isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__iter__"):
        raise EncodeError(
            f"{{*{field.key}}} takes a list, and the field holds one {type(value).__name__}; "
            f"write {{{field.key}}} for a single value"
        )
    else:
        for item in value:
            b.argument += put_argument(b, item, nulls, default)
    return b.argument - first


cdef Py_ssize_t put_fields(
    Plan plan, Buffer b, Field field, frozenset used, object row, Nulls nulls, object default
) except -1:
    """Write the fields that the command does not name; return how many arguments that made."""
    cdef Py_ssize_t first = b.argument
    if plan.row_kind == ROW_DICT:
        for name, value in (<dict>row).items():
            if name not in used:
                plan.pair = name
                put_pair(b, name, value, nulls, default)
        return b.argument - first
    for position, name in enumerate(names_of(plan, field, row)):
        if name not in used and (position not in used or plan.row_kind == ROW_OBJECT):
            plan.pair = name
            put_pair(b, name, row[name] if plan.by_item else getattr(row, name), nulls, default)
    return b.argument - first


cdef object names_of(Plan plan, Field field, object row):
    """The names of a row's fields, which a placeholder asks for."""
    if plan.row_kind <= ROW_MAPPING:
        return row.keys()
    names = plan.row_names
    if names is None and plan.row_kind != ROW_SEQUENCE:
        names = getattr(row, "__dict__", None)
    if names is None:
        raise TemplateError(
            f"{{{field.key}}} takes the names of a row's fields, and a {type(row).__name__} has "
            "none", plan.text, field.at,
        )
    return names


cdef int put_pair(Buffer b, object name, object value, Nulls nulls, object default) except -1:
    """Write a name and its value, or neither where the value is a null to be left out."""
    if value is None and nulls == NULLS_SKIP:
        return 0
    b.argument += put_argument(b, name, NULLS_ERROR, default)
    b.argument += put_argument(b, value, nulls, default)
    return 0


cdef inline PyObject *peek(int row_kind, PyObject *name, Py_ssize_t i, object row) except? NULL:
    """The value of a field, borrowed from the row, where that is possible; else NULL."""
    if i < 0:
        return PyDict_GetItemWithError(row, <object>name) if row_kind == ROW_DICT else NULL
    if PyTuple_Check(row):
        return PyTuple_GET_ITEM(row, i) if i < PyTuple_GET_SIZE(row) else NULL
    if PyList_Check(row):
        return PyList_GET_ITEM(row, i) if i < PyList_GET_SIZE(row) else NULL
    return NULL


cdef object fetch(Plan plan, Field field, object row, object default):
    """The value of a field in a row, or the row, as JSON where its placeholder says so."""
    if isinstance(field, Row):
        return as_json(as_dict(plan, field, row), default)
    value = look_up(plan, field, row)
    return value if field.convert is None else as_json(value, default)


cdef dict as_dict(Plan plan, Field field, object row):
    if plan.row_kind == ROW_DICT:
        return row
    names = names_of(plan, field, row)
    if plan.by_item:
        return {name: row[name] for name in names}
    return {name: getattr(row, name) for name in names}


cdef object look_up(Plan plan, Field field, object row):
    try:
        if field.name is not None:
            if plan.row_kind <= ROW_MAPPING:
                return row[field.name]
            if plan.by_item:
                # NumPy raises a ValueError for a name that there is not.
                if field.name in plan.row_names:
                    return row[field.name]
                raise missing(plan, field, row)
            # A tuple's count and index are methods, not fields.
            if plan.row_kind != ROW_VALUE and type(row) is not tuple and type(row) is not list:
                return getattr(row, field.name)
        elif plan.row_kind == ROW_VALUE or plan.row_kind == ROW_OBJECT:
            if field.position == 0:
                return row
        elif not isinstance(row, Mapping):
            return row[field.position]
    except (LookupError, AttributeError) as error:
        raise missing(plan, field, row) from error
    raise missing(plan, field, row)


cdef object missing(Plan plan, Field field, object row):
    """The error for a field that a row does not have, telling what it does have."""
    kind = type(row).__name__
    names = list(row.keys()) if plan.row_kind <= ROW_MAPPING else plan.row_names
    if names is None and plan.row_kind == ROW_OBJECT:
        names = list(getattr(row, "__dict__", ()))
    if plan.row_kind == ROW_VALUE:
        has = f"it is a single {kind}, which is {{0}}"
    elif names is not None and not names:
        has = f"the {kind} has no fields"
    elif names is not None:
        has = "its fields are " + ", ".join([str(name) for name in names[:20]])
        if len(names) > 20:
            has += f" and {len(names) - 20} more"
        if field.name is None and plan.row_kind <= ROW_MAPPING:
            has += "; fields of a mapping go by name"
    else:
        has = f"it is a {kind} of {len(row)} values without names, counted from {{0}}"
    return TemplateError(f"the row has no field {{{field.key}}}: {has}", plan.text, field.at)


cdef str as_json(object value, object default):
    """A value as compact JSON text, a null as 'null'. NaN and infinity have no JSON form."""
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"),
            default=json_text if default is None else default,
        )
    except ValueError as error:
        if not str(error).startswith("Out of range float"):
            raise
        raise EncodeError("NaN and infinity have no form in JSON") from None


def json_text(value):
    """Give what stands in JSON for a value of a type that it does not have."""
    text = usual_text(value)
    if text is not None:
        return text
    hint = "decode it" if isinstance(value, (bytes, bytearray, memoryview)) else "convert it"
    raise EncodeError(
        f"JSON has no form for {shown(value)} (a {type(value).__name__}); {hint}, or pass "
        "default=, a function that does"
    )


cdef int classify(Plan plan, object row) except -1:
    """Find out how to reach the fields of rows of this type."""
    cdef int kind
    plan.row_names = None
    plan.by_item = False
    if type(row) is dict:
        kind = ROW_DICT
    elif isinstance(row, (str, bytes, bytearray, memoryview, int, float)):
        kind = ROW_VALUE
    elif hasattr(row, "keys") and hasattr(row, "__getitem__"):
        kind = ROW_MAPPING
        plan.by_item = True
    elif hasattr(row, "__getitem__") and hasattr(row, "__len__"):
        kind = ROW_SEQUENCE
        fields = getattr(row, "_fields", None)
        if fields is None:
            # A row of a structured array of NumPy.
            fields = getattr(getattr(row, "dtype", None), "names", None)
            plan.by_item = fields is not None
        plan.row_names = None if fields is None else tuple(fields)
    else:
        kind = ROW_OBJECT
        if dataclasses.is_dataclass(row):
            plan.row_names = tuple([field.name for field in dataclasses.fields(row)])
    plan.row_kind = kind
    plan.row_type = type(row)
    return 0


cdef Program compile_command(command):
    """Turn a command's arguments into ops; neighbours without placeholders become one copy."""
    cdef Program program = Program()
    cdef Op op
    fields = [part for argument in command for part in argument if isinstance(part, Field)]
    program.used = frozenset([
        field.key for field in fields if not isinstance(field, (Pairs, Row))
    ])
    program.counted = not any([isinstance(field, (Items, Pairs)) for field in fields])
    program.digits = 1
    ops = [ready_op(b"*%d\r\n" % len(command), 0)] if program.counted else []
    for argument in command:
        if all([isinstance(part, bytes) for part in argument]):
            text = b"".join(argument)
            op = ready_op(b"$%d\r\n%b\r\n" % (len(text), text), 1)
            if ops and (<Op>ops[-1]).kind == OP_COPY:
                op = ready_op((<Op>ops[-1]).ready + op.ready, (<Op>ops.pop()).arguments + 1)
        else:
            op = field_op(tuple(argument))
        ops.append(op)
    program.ops = tuple(ops)
    if all([isinstance(part, bytes) for part in command[0]]):
        pack(*[
            b"".join([part for part in argument if isinstance(part, bytes)])
            for argument in command
        ])
        program.checked = b"".join(command[0]).upper() != b"CLIENT"
    return program


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
