# cython: language_level=3, cdivision=True
"""Placeholders, the lookup of their fields in a row, and nested values of rows as JSON."""

from ..resp.values cimport NULLS_ERROR, Nulls, is_null, usual_text

import dataclasses
import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from ..outcome.errors import EncodeError, TemplateError
from ..outcome.messages import is_format, joined_names, shown_value, suggestion

# The value of a key that a mapping lacks.
cdef object ABSENT = object()
cdef object EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
cdef object MILLISECOND = timedelta(milliseconds=1)
# Types with attributes that are not fields.
cdef tuple SINGLE = (str, bytes, bytearray, memoryview, int, float)


cdef class Field:
    """A placeholder: a field of the row, by name, position or path, and its conversion.

    Args:
        key: the field's name or position. For a path, the text of the path, which may also be the
            name of a field.
        head: the first Field of a path.
        path: the names of a path after ``head``.
        convert: the conversion of the value; None to send the value itself.
        at: the placeholder's offset in the template's text.
    """

    def __init__(self, key, *, head=None, path=(), convert=None, at=0):
        self.name = key if isinstance(key, str) else None
        self.position = -1 if isinstance(key, str) else key
        self.convert = convert
        self.at = at
        self.head = head
        self.path = (str(key if head is None else head.key), *path)

    @property
    def key(self):
        """The field's name, or its position."""
        return self.position if self.name is None else self.name


cdef class Items(Field):
    """A placeholder for a list as one argument per item, or for a dict as field-value pairs."""


cdef class Pairs(Field):
    """A placeholder for all fields not named in the same command, as field-value pairs.

    Args:
        left_out: additional Fields to leave out.
        convert: "json" to write nested values as JSON.
    """

    def __init__(self, key, *, left_out=(), convert=None, at=0):
        super().__init__(key, convert=convert, at=at)
        self.left_out = tuple(left_out)


cdef class Absent(Pairs):
    """A placeholder for the names of the null fields that a {**} leaves out.

    Args:
        pairs: the placeholder {**}.
        named: the Fields in the command that has the {**}.
    """

    def __init__(self, Pairs pairs not None, named):
        super().__init__(
            pairs.key, left_out=[*named, *pairs.left_out], convert=pairs.convert, at=pairs.at
        )


cdef class Row(Field):
    """A placeholder for the whole row as a JSON object."""


cdef class FieldReader:
    """Looks up fields in rows, and remembers how to access rows of the last type."""

    cdef int classify(self, object row) except -1:
        """Determine how to access the fields of rows of the same type as ``row``."""
        cdef int kind
        self.row_names = None
        self.by_item = False
        if hasattr(row, "__arrow_c_stream__") and hasattr(row, "columns"):
            raise EncodeError(
                f"this row is a {type(row).__name__}, a whole table; pass a list of tables, or "
                "load each separately"
            )
        if type(row) is dict:
            kind = ROW_DICT
        elif is_null(row):
            kind = ROW_OBJECT
        elif isinstance(row, SINGLE):
            kind = ROW_VALUE
        elif hasattr(row, "keys") and hasattr(row, "__getitem__"):
            kind = ROW_MAPPING
            self.by_item = True
        elif hasattr(row, "__getitem__") and hasattr(row, "__len__"):
            kind = ROW_SEQUENCE
            fields = getattr(row, "_fields", None)
            if fields is None:
                fields = names_of_dtype(row)
                self.by_item = fields is not None
            self.row_names = None if fields is None else tuple(fields)
        else:
            kind = ROW_OBJECT
            if dataclasses.is_dataclass(row):
                self.row_names = tuple([field.name for field in dataclasses.fields(row)])
        self.row_kind = kind
        self.row_type = type(row)
        return 0

    cdef object look_up(self, Field field, object row, Nulls nulls):
        """Return the value of a field.

        If a mapping lacks the field, return None, or raise TemplateError if nulls are errors.
        """
        cdef Py_ssize_t depth = 0
        cdef PyObject *borrowed = peek(
            self.row_kind, <PyObject *>field.name, field.position, row
        )
        if borrowed is not NULL:
            return <object>borrowed
        holder, value = row, ABSENT
        # A field with dots in its name takes precedence over a path.
        if field.head is None or self.row_kind <= ROW_MAPPING:
            value = self.find(field, row, field)
        if value is ABSENT and field.head is not None:
            value = self.find(field.head, row, field)
            while value is not None and value is not ABSENT and depth < len(field.path) - 1:
                holder = value
                depth += 1
                value = self.within(field, holder, depth)
        if value is not ABSENT:
            return value
        if nulls == NULLS_ERROR or is_format(".".join(field.path[depth:]), holder):
            error = self.missing_within(field, holder, depth) if depth else self.missing(field, row)
            raise error from KeyError(field.path[depth])
        return None

    cdef object find(self, Field field, object row, Field placeholder):
        """Return the value of a field by name or position; ABSENT if a mapping lacks the field.

        Args:
            placeholder: the placeholder, for error messages.
        """
        cdef PyObject *value
        cdef str name = field.name
        try:
            if self.row_kind == ROW_DICT and name is not None:
                value = PyDict_GetItemWithError(row, name)
                return ABSENT if value is NULL else <object>value
            if self.row_kind <= ROW_MAPPING:
                if name is not None:
                    return item_of(row, name)
                return row[str(field.position) if isinstance(row, Mapping) else field.position]
            if name is not None:
                if self.by_item:
                    # NumPy raises ValueError for a missing name.
                    if name in self.row_names:
                        return row[name]
                    raise self.missing(placeholder, row)
                # A tuple's count and index are methods, not fields.
                if self.row_kind != ROW_VALUE and type(row) is not tuple and type(row) is not list:
                    return getattr(row, name)
            elif self.row_kind == ROW_VALUE or self.row_kind == ROW_OBJECT:
                if field.position == 0:
                    return row
            else:
                return row[field.position]
        except (LookupError, AttributeError) as error:
            raise self.missing(placeholder, row) from error
        raise self.missing(placeholder, row)

    cdef object within(self, Field field, object holder, Py_ssize_t depth):
        """Return the field ``field.path[depth]`` of ``holder``; ABSENT if a mapping lacks it."""
        cdef str name = field.path[depth]
        if isinstance(holder, Mapping):
            return item_of(holder, name)
        if isinstance(holder, SINGLE) or type(holder) is tuple or type(holder) is list:
            raise self.missing_within(field, holder, depth)
        try:
            return getattr(holder, name)
        except AttributeError as error:
            raise self.missing_within(field, holder, depth) from error

    cdef object names(self, Field field, object row):
        """Return the names of a row's fields; ``field`` is the placeholder that needs the names."""
        if self.row_kind <= ROW_MAPPING:
            return row.keys()
        names = self.row_names
        if names is None and self.row_kind != ROW_SEQUENCE:
            names = getattr(row, "__dict__", None)
        if names is None:
            raise TemplateError(
                f"{{{field.key}}} needs fields with names, and this row is a {type(row).__name__} "
                "without names", self.text, field.at,
            )
        return names

    cdef dict as_dict(self, Field field, object row):
        """Return a row's fields as a dict."""
        if self.row_kind == ROW_DICT:
            return row
        names = self.names(field, row)
        if self.by_item:
            return {name: row[name] for name in names}
        return {name: getattr(row, name) for name in names}

    cdef object missing(self, Field field, object row, bint left_out=False):
        """Return the error for a missing field, with the row's fields and the closest name.

        Args:
            left_out: whether {**-name} names the field to leave it out, and the first row lacks it.
        """
        kind = type(row).__name__
        message = f"the row has no field {{{field.key}}}"
        if left_out:
            message = (
                f"the first row has no field {{{field.key}}}; a field to leave out must exist, "
                "even as None"
            )
        names = names_in(row)
        first = field if field.head is None else field.head
        if self.row_kind == ROW_VALUE:
            has = f"it is a single {kind}; write {{0}} for it"
            if isinstance(row, str) and os.path.isfile(row):
                has += f"; to load the rows of that file, pass read([{row!r}, ...])"
        elif names:
            has = "its fields are " + joined_names(names)
            if first.name is not None:
                has += suggestion(field.path, 0, names)
            elif self.row_kind <= ROW_MAPPING:
                has += "; write a mapping's fields by name, not by position"
        elif self.row_kind != ROW_SEQUENCE:
            has = f"the {kind} has no fields"
        else:
            has = f"it is a {kind} of {len(row)} values without names, counted from {{0}}"
        return TemplateError(f"{message}: {has}", self.text, field.at)

    cdef object missing_within(self, Field field, object holder, Py_ssize_t depth):
        """Return the error for a ``holder`` that lacks the field ``field.path[depth]``."""
        before = ".".join(field.path[:depth])
        names = names_in(holder)
        message = f"the row has no field {{{field.key}}}: "
        if not names:
            return EncodeError(
                f"{message}{before} is {shown_value(holder)} (a {type(holder).__name__}), which "
                "has no fields"
            )
        has = f"the fields of {before} are {joined_names(names)}"
        has += suggestion(field.path, depth, names)
        return TemplateError(message + has, self.text, field.at)


cdef object item_of(object mapping, object name):
    try:
        return mapping[name]
    except KeyError:
        return ABSENT


cdef object names_of_dtype(object row):
    """Return the field names in a row of a NumPy structured array; None for any other row."""
    return getattr(getattr(row, "dtype", None), "names", None)


cdef list names_in(object value):
    """Return the names of a value's fields as text; None if the fields have no names."""
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        names = value.keys()
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = getattr(value, "_fields", getattr(value, "__dict__", names_of_dtype(value)))
    return None if names is None else [str(name) for name in names]


NOT_A_TIME = (
    "!ms needs a time with its UTC offset, such as 2026-11-27T07:00:00Z, or the number of "
    "milliseconds since 1970"
)


cdef object as_milliseconds(object value):
    """Return a datetime, or ISO 8601 text, as milliseconds since 1970, rounded down.

    Nulls, integers and the text of integers are returned unchanged.
    """
    if is_null(value) or hasattr(value, "__index__"):
        return value
    when = text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if isinstance(text, str):
        if text.removeprefix("-").isdecimal() and text.isascii():
            return text
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            when = None
    if not isinstance(when, datetime) or when != when or when.utcoffset() is None:
        raise EncodeError(f"cannot send {shown_value(value)}: {NOT_A_TIME}")
    return (when - EPOCH) // MILLISECOND


NESTED = (dict, list, tuple)


cdef str as_json(object value, object default):
    """Return a value as compact JSON; a null becomes 'null', and NaN and infinity are errors."""
    cdef SizeGuard watched = None
    if default is not None:
        watched = default = SizeGuard(value, default)
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"),
            default=json_text if default is None else default,
        )
    except ValueError as error:
        if not str(error).startswith("Out of range float"):
            raise
        raise EncodeError(
            "NaN and infinity have no JSON form; replace them with None or a number"
        ) from None
    if watched is not None:
        watched.check()
    return text


cdef class SizeGuard:
    """Calls default= for json.dumps, and detects whether the value being encoded has changed.

    json.dumps checks a list's size again after each item, so it omits items of a list that shrinks.
    """

    cdef object value
    cdef object default
    cdef dict sizes         # by address: each list or dict, and its number of items
    cdef Py_ssize_t calls

    def __init__(self, value, default):
        self.value = value
        self.default = default

    def __call__(self, value):
        if self.sizes is None:
            self.sizes = {}
            self.record_sizes(self.value)
        result = self.default(value)
        self.record_sizes(result)
        # Check at powers of two: without checks, a list that grows with each call never ends.
        self.calls += 1
        if self.calls & (self.calls - 1) == 0:
            self.check()
        return result

    cdef int record_sizes(self, object value) except -1:
        """Record the sizes of all lists and dicts in a value."""
        cdef list left = [value]
        while left:
            value = left.pop()
            if isinstance(value, NESTED) and id(value) not in self.sizes:
                self.sizes[id(value)] = value, len(value)
                left.extend(value.values() if isinstance(value, dict) else value)
        return 0

    cdef int check(self) except -1:
        """Raise EncodeError if the JSON may lack items."""
        if self.sizes is not None:
            for value, size in self.sizes.values():
                if len(value) != size:
                    raise EncodeError(
                        f"a {type(value).__name__} changed while it was encoded as JSON; neither "
                        "default= nor another thread may change a row"
                    )
        return 0


def json_text(value):
    """Return the JSON form of a value whose type JSON lacks; this is a default= of json.dumps."""
    text = usual_text(value)
    if text is not None or is_null(value):
        return text
    hint = "decode it" if isinstance(value, (bytes, bytearray, memoryview)) else "convert it"
    raise EncodeError(
        f"JSON has no form for {shown_value(value)} (a {type(value).__name__}); {hint}, or pass "
        "default=, a function that does"
    )
