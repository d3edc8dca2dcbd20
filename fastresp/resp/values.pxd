from cpython.object cimport Py_TYPE, PyObject
from libc.string cimport strcmp

from .buffer cimport (
    Buffer, append, append_bulk, append_reference, digits, make_room, put_crlf, put_header,
    put_signed,
)
from .grammar cimport known_length_end


# Declared with borrowed pointers: counting references would cost as much as the encoding.
cdef extern from "Python.h":
    bint PyBytes_CheckExact(PyObject *)
    char *PyBytes_AS_STRING(PyObject *)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *)
    bint PyUnicode_CheckExact(PyObject *)
    bint PyUnicode_IS_COMPACT_ASCII(PyObject *)
    void *PyUnicode_DATA(PyObject *)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *)
    bint PyLong_CheckExact(PyObject *)
    long long PyLong_AsLongLongAndOverflow(PyObject *, int *) except? -1


# How to handle a None among the arguments.
cdef enum Nulls:
    NULLS_AUTO      # leave out a field-value pair; raise an error in any other argument
    NULLS_ERROR     # raise an error
    NULLS_SKIP      # leave out the command, the pair or the list item
    NULLS_EMPTY     # send an empty string


cdef Nulls nulls_policy(object name) except *


cdef inline Nulls of_values(Nulls nulls) noexcept nogil:
    """Return how to handle a null outside a field-value pair."""
    return NULLS_ERROR if nulls == NULLS_AUTO else nulls


cdef inline Nulls of_pairs(Nulls nulls) noexcept nogil:
    """Return how to handle a null in a field-value pair."""
    return NULLS_SKIP if nulls == NULLS_AUTO else nulls


cdef int put_huge(Buffer b, object value, bint framed) except -1
cdef int put_bytes(Buffer b, object text, bint framed) except -1
cdef int put_float(Buffer b, double value, bint framed) except -1
cdef int put_other(Buffer b, object value, bint framed, object default) except -1
cdef int put_arguments(Buffer b, object args, Nulls nulls, object default) except -1
cdef str ARRAY_HINT

cdef bint holds_bytes(Py_buffer *view) noexcept
cdef bint is_date(object value) except -1
cdef str usual_text(object value)
cdef bint has_refused_subcommand(bytes name) except -1
cdef bint check_name(const char *name, Py_ssize_t size, const char *end) except -1
cdef bytes bulk_string(bytes text)
cdef bytes command_header(Py_ssize_t arguments)
cdef object locate(
    Exception error, str where, object command, object row, object argument, object words
)


cdef inline int put_text(Buffer b, const char *text, Py_ssize_t n, bint framed) except -1:
    return append_bulk(b, text, n) if framed else append(b, text, n)


cdef inline int put_frozen(
    Buffer b, PyObject *value, const char *text, Py_ssize_t n, bint framed
) except -1:
    """Write the bytes of an immutable object; large data is not copied."""
    if n < b.out.large or not framed:
        return put_text(b, text, n, framed)
    return append_reference(b, <object>value, text, n)


cdef inline int put_integer(Buffer b, PyObject *value, bint framed) except -1:
    """Write an int, or an instance of a subclass, by its value."""
    cdef int overflow = 0
    cdef long long n = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef char *p
    if overflow:
        held = <object>value
        return put_huge(b, held, framed)
    p = make_room(b, 64)
    if framed:
        p = put_header(p, c'$', digits(0 - <unsigned long long>n if n < 0 else n) + (n < 0))
        b.out.p = put_crlf(put_signed(p, n))
    else:
        b.out.p = put_signed(p, n)
    return 0


cdef inline bint put_simple(Buffer b, PyObject *value, bint framed) except -1:
    """Write a value of a common type; return False for any other type.

    No Python code runs, so a borrowed reference is safe.
    """
    if PyUnicode_CheckExact(value) and PyUnicode_IS_COMPACT_ASCII(value):
        put_frozen(
            b, value, <const char *>PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value), framed
        )
    elif PyBytes_CheckExact(value):
        put_frozen(b, value, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), framed)
    elif PyLong_CheckExact(value):
        put_integer(b, value, framed)
    else:
        return False
    return True


cdef inline int put_value(Buffer b, object value, bint framed, object default) except -1:
    """Write a value: as one argument if ``framed`` is True, otherwise as a part of an argument."""
    if not put_simple(b, <PyObject *>value, framed):
        put_other(b, value, framed, default)
    return 0


cdef inline bint is_null(object value) noexcept:
    """Return whether a value is None or numpy.ma.masked."""
    cdef const char *name
    if value is None:
        return True
    name = Py_TYPE(value).tp_name
    return name[0] == c'M' and strcmp(name, b"MaskedConstant") == 0


cdef inline int put_argument(Buffer b, object value, Nulls nulls, object default) except -1:
    """Write one argument; return 1, or 0 if the value is a null that must be left out."""
    if is_null(value):
        if nulls == NULLS_SKIP:
            return 0
        value = None if nulls == NULLS_ERROR else b""
    put_value(b, value, True, default)
    return 1


cdef inline bint check_command(const char *p, const char *end) except -1:
    """Refuse a whole command that would change the reply stream; p points at the '*'.

    Return whether other commands with this name may be refused, depending on the subcommand.
    """
    cdef long long n
    p = known_length_end(p + 1, &n)
    p = known_length_end(p + 1, &n)
    # The relevant names have 4 to 12 bytes and one of eight first letters.
    if n < 4 or n > 12:
        return False
    cdef char first = p[0] & 0xDF
    if first in (c'C', c'H', c'M', c'P', c'Q', c'R', c'S', c'U'):
        return check_name(p, n, end)
    return False
