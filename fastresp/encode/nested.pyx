# cython: language_level=3, cdivision=True
"""Encode nested values of rows as JSON."""

from ..resp.values cimport is_null, shown, usual_text

import json

from ..outcome.errors import EncodeError

NESTED = (dict, list, tuple)


cdef str as_json(object value, object default):
    """Return a value as compact JSON; a null becomes 'null', and NaN and infinity are errors."""
    cdef Watched watched = None
    if default is not None:
        watched = default = Watched(value, default)
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


cdef class Watched:
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
            self.look(self.value)
        result = self.default(value)
        self.look(result)
        # Check at powers of two: without checks, a list that grows with each call never ends.
        self.calls += 1
        if self.calls & (self.calls - 1) == 0:
            self.check()
        return result

    cdef int look(self, object value) except -1:
        """Record the sizes of all lists and dicts in a value."""
        cdef list left = [value]
        while left:
            value = left.pop()
            if isinstance(value, NESTED) and id(value) not in self.sizes:
                self.sizes[id(value)] = value, len(value)
                left.extend(value.values() if isinstance(value, dict) else value)
        return 0

    cdef int check(self) except -1:
        """Raise if items may be missing from the text."""
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
        f"JSON has no form for {shown(value)} (a {type(value).__name__}); {hint}, or pass "
        "default=, a function that does"
    )
