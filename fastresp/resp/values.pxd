from cpython.object cimport PyObject

from .buffer cimport Buffer, append, append_bulk, append_reference, make_room
from .out cimport digits, put_crlf, put_header, put_signed


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


# What a None among the arguments does.
cdef enum Nulls:
    NULLS_ERROR     # it is an error
    NULLS_SKIP      # the command (or the pair, or the element) is left out
    NULLS_EMPTY     # it is sent as an empty string


cdef Nulls nulls_policy(object name) except *
cdef int put_huge(Buffer b, object value, bint framed) except -1
cdef int put_bytes(Buffer b, object text, bint framed) except -1
cdef int put_float(Buffer b, double value, bint framed) except -1
cdef int put_other(Buffer b, object value, bint framed, object default) except -1
cdef int put_arguments(Buffer b, object args, Nulls nulls, object default) except -1
cdef str ARRAY_HINT

cdef bint holds_bytes(Py_buffer *view) noexcept
cdef str shown(object value)
cdef str usual_text(object value)
cdef bint check_name(const char *name, Py_ssize_t size, const char *end) except -1
cdef object locate(
    Exception error, str where, object command, object row, object argument, object words
)


cdef inline int put_text(Buffer b, const char *text, Py_ssize_t n, bint framed) except -1:
    return append_bulk(b, text, n) if framed else append(b, text, n)


cdef inline int put_frozen(
    Buffer b, PyObject *value, const char *text, Py_ssize_t n, bint framed
) except -1:
    """Write the text of an object that can't change; a large one need not be copied."""
    if n < b.out.large or not framed:
        return put_text(b, text, n, framed)
    return append_reference(b, <object>value, text, n)


cdef inline int put_integer(Buffer b, PyObject *value, bint framed) except -1:
    """Write an int, or a subclass of it, by its value."""
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
    """Write a value if it is of a common type; runs no Python code, so a borrowed one will do."""
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
    """Write a value: as one argument when framed, else as a piece of one."""
    if not put_simple(b, <PyObject *>value, framed):
        put_other(b, value, framed, default)
    return 0


cdef inline int put_argument(Buffer b, object value, Nulls nulls, object default) except -1:
    """Write one argument; 0 when it is a null that is to be left out."""
    if value is None and nulls != NULLS_ERROR:
        if nulls == NULLS_SKIP:
            return 0
        value = b""
    put_value(b, value, True, default)
    return 1


cdef inline bint check_command(const char *p, const char *end) except -1:
    """Refuse a whole command that would change the reply stream; p points at its '*'.

    Return whether another command of the same name might have to be refused.
    """
    cdef Py_ssize_t n = 0
    while p[0] != c'\n':
        p += 1
    p += 2
    while p[0] != c'\r':
        n = n * 10 + (p[0] - 48)
        p += 1
    # The names that matter have 4 to 12 bytes and one of eight first letters.
    if n < 4 or n > 12:
        return False
    cdef char first = p[2] & 0xDF
    if first in (c'C', c'H', c'M', c'P', c'Q', c'R', c'S', c'U'):
        return check_name(p + 2, n, end)
    return False
