# cython: language_level=3, cdivision=True
"""Encode a redis-py pipeline as RESP in one call, with redis-py's rules."""

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_Check, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.long cimport PyLong_Check
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_Check

from .buffer cimport Buffer, Reference, capacity, make_room, own_size, put_header, take_back
from .values cimport (
    ARRAY_HINT,
    PyUnicode_CheckExact,
    PyUnicode_DATA,
    PyUnicode_GET_LENGTH,
    PyUnicode_IS_COMPACT_ASCII,
    holds_bytes,
    put_bytes,
    put_float,
    put_integer,
    put_other,
    put_simple,
)

from collections import deque
from numbers import Integral

from ..outcome.errors import EncodeError

# redis-py calls sendall() for each piece.
cdef Py_ssize_t PIECE_BYTES = 1 << 20
cdef Py_ssize_t SLACK_BYTES = 1 << 16
# A larger argument is a separate piece: copying it costs more than another sendall().
cdef Py_ssize_t LARGE_BYTES = 1 << 16
# A buffer larger than this is not kept for the next pipeline.
cdef Py_ssize_t KEPT_BYTES = 4 << 20

# The idle buffer of the last call, if no call in any thread uses it. Popping and appending are
# atomic, even without a GIL.
cdef object idle = deque(maxlen=1)


def pack_pipeline(commands, encode=None):
    """Encode commands as RESP, with redis-py's rules.

    Args:
        commands: an iterable of commands, each an iterable of arguments, name first. A name such as
            ``"CONFIG GET"`` is split at white space.
        encode: a function from str to bytes; None for UTF-8.

    Returns:
        A list of bytes objects of about 1 MiB; each argument of 64 KiB or more is a separate item.

    Raises:
        EncodeError: redis-py does not accept an argument's type.
        UnicodeEncodeError: a text can't be encoded.
    """
    cdef Buffer b
    cdef list pieces = []
    cdef object checked = None
    cdef object name
    cdef tuple args
    try:
        b = idle.pop()
    except IndexError:
        b = Buffer(PIECE_BYTES + SLACK_BYTES)
        b.out.large = LARGE_BYTES
    for command in commands:
        args = command if type(command) is tuple else tuple(command)
        name = args[0]
        if name is not checked:
            if is_one_word(<PyObject *>name):
                checked = name
            else:
                args = split_name(name) + args[1:]
        put_args(b, args, encode)
        if own_size(&b.out) >= PIECE_BYTES:
            move(b, pieces)
    if own_size(&b.out):
        move(b, pieces)
    if capacity(&b.out) <= KEPT_BYTES:
        idle.append(b)
    return pieces


cdef int move(Buffer b, list pieces) except -1:
    """Move the buffer's content to the pieces."""
    cdef Reference *large
    cdef Py_ssize_t i, at = 0
    for i in range(b.out.n_references):
        large = &b.out.references[i]
        pieces.append(PyBytes_FromStringAndSize(b.out.base + at, large.offset - at))
        owner = <object>large.owner
        if not PyBytes_Check(owner):
            owner = PyBytes_FromStringAndSize(large.data, large.size)
        pieces.append(owner)
        at = large.offset
    pieces.append(PyBytes_FromStringAndSize(b.out.base + at, own_size(&b.out) - at))
    take_back(b, 0)
    return 0


cdef int put_args(Buffer b, tuple args, object encode) except -1:
    cdef Py_ssize_t i, n = len(args)
    cdef object value
    b.out.p = put_header(make_room(b, 24), c'*', n)
    for i in range(n):
        value = args[i]
        if encode is not None and i and PyUnicode_Check(value):
            value = encode(value)
        if not put_simple(b, <PyObject *>value, True):
            put_rare(b, value)
    return 0


cdef int put_rare(Buffer b, object value) except -1:
    """Write a value of a less common type, or refuse the value as redis-py does."""
    cdef bytes text
    if PyUnicode_Check(value):
        text = PyUnicode_AsUTF8String(value)
        return put_bytes(b, text, True)
    if PyBytes_Check(value):
        return put_bytes(b, value, True)
    if PyMemoryView_Check(value) and holds_bytes(PyMemoryView_GET_BUFFER(value)):
        text = value.tobytes()
        return put_bytes(b, text, True)
    if isinstance(value, bytearray):
        text = bytes(value)
        return put_bytes(b, text, True)
    if PyFloat_Check(value):
        return put_float(b, PyFloat_AS_DOUBLE(value), True)
    if PyLong_Check(value) and not isinstance(value, bool):
        return put_integer(b, <PyObject *>value, True)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return put_other(b, int(value), True, None)     # NumPy's integers
    hint = f" ({ARRAY_HINT})" if PyObject_CheckBuffer(value) else ""
    raise EncodeError(
        f"Invalid input of type: '{type(value).__name__}'. Convert to a bytes, string, int or "
        f"float first.{hint}"
    )


cdef bint is_one_word(PyObject *name) noexcept:
    """Return whether a name is an ASCII str without spaces; False for any bytes object."""
    cdef const unsigned char *text
    cdef Py_ssize_t i, n
    if not (PyUnicode_CheckExact(name) and PyUnicode_IS_COMPACT_ASCII(name)):
        return False
    text = <const unsigned char *>PyUnicode_DATA(name)
    n = PyUnicode_GET_LENGTH(name)
    for i in range(n):
        if text[i] <= 32:
            return False
    return n > 0


cdef tuple split_name(object name):
    """Split a name into words with redis-py's rules: split bytes only if they contain a space."""
    if isinstance(name, str):
        return tuple(name.encode().split())
    return tuple(name.split()) if b" " in name else (name,)
