# cython: language_level=3, cdivision=True
"""Write Python values as bulk strings: one value is one argument, whatever its bytes.

The pipelines of redis-py are written with redis-py's rules.
"""

from cpython.buffer cimport (
    PyBUF_FULL_RO, PyBuffer_Release, PyBuffer_ToContiguous, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_Check, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.list cimport PyList_Check
from cpython.long cimport PyLong_Check
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.tuple cimport PyTuple_Check
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_Check
from libc.string cimport memcpy

from .buffer cimport (
    Buffer, Reference, capacity, make_room, own_size, put_crlf, put_header, refuse, take_back,
)
from .numbers_and_times cimport half_of, put_days, put_double, put_half, put_single
from .grammar cimport known_length_end

from collections import deque
from datetime import date, time, timedelta
# Not imported where it is used: an import may run any Python code, and borrowed references are in
# use there.
from decimal import Decimal
from numbers import Integral
from uuid import UUID

from ..outcome.errors import EncodeError, TemplateError
from ..outcome.messages import (
    DEFAULT, SKIP_OR_EMPTY, WITHOUT_NULLS, Message, message_of, shown_value, without_nulls_option,
)
from ..outcome.passwords import holds_passwords
from .commands import commands_with


# The raw bytes of a float64 array would make a wrong FLOAT32 vector of twice the length.
cdef str ARRAY_HINT = (
    "only one-dimensional buffers of bytes are sent as they are; write {field!f32} in a template "
    "to send a FLOAT32 vector (or !f16, !f64), {*field} to send each item as an argument, or pass "
    "its .tobytes()"
)


cdef extern from "Python.h":
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject **PySequence_Fast_ITEMS(object)


# Commands after which replies no longer match commands.
cdef frozenset REFUSED = frozenset((b"CLIENT REPLY", *map(str.encode, commands_with("stream"))))
# Commands with both refused and allowed subcommands.
cdef enum:
    SUBCOMMAND_BYTES = 8    # longer than all refused subcommands
cdef frozenset PARTLY_REFUSED = frozenset([each.split()[0] for each in REFUSED if b" " in each])


def pack(*args, default=None):
    """Encode one command as RESP, name first.

    Args:
        *args: str (as UTF-8), bytes, int, float (as ``repr``), Decimal (without an exponent),
            date, time and datetime (as ``isoformat``), timedelta (ISO 8601: ``P1DT2H3M4.5S``),
            UUID, or a one-dimensional buffer of bytes, such as bytearray, memoryview or mmap.
            Subclasses and NumPy scalars are written by their value. All other arrays are refused:
            pass their ``.tobytes()``, or use ``!f32`` in a template.
        default: a function that converts objects of all other types to str, bytes, int or float.
            It is also called for Decimal, date, time, datetime, timedelta and UUID objects.

    Returns:
        The command as an array of bulk strings.

    Raises:
        EncodeError: an argument can't be encoded, or the command changes the reply stream.
    """
    cdef Buffer b = Buffer(512)
    try:
        put_arguments(b, args, NULLS_ERROR, default)
    except Exception as error:
        located = locate(error, "", None, None, b.argument, args)
        located.args = (without_nulls_option(located.args[0]),) if located.args else ()
        raise located from located.__cause__
    return PyBytes_FromStringAndSize(b.out.base, own_size(&b.out))


cdef int put_arguments(Buffer b, object args, Nulls nulls, object default) except -1:
    """Write one command from a list or tuple; return 0 if it is left out because of a null."""
    cdef Py_ssize_t i, start = own_size(&b.out)
    b.argument = -1
    if not PyTuple_Check(args) and not PyList_Check(args):
        raise not_a_command(args)
    cdef Py_ssize_t n = PySequence_Fast_GET_SIZE(args)
    if n == 0:
        raise EncodeError("the command is empty; it needs at least a name")
    # Get the name first, since default= may replace the first item.
    name = <object>PySequence_Fast_ITEMS(args)[0]
    b.out.p = put_header(make_room(b, 24), c'*', n)
    for i in range(n):
        if not put_simple(b, PySequence_Fast_ITEMS(args)[i], True):
            b.argument = i
            item = <object>PySequence_Fast_ITEMS(args)[i]
            if not put_argument(b, item, nulls, default):
                return 0
            if PySequence_Fast_GET_SIZE(args) != n:
                raise EncodeError("the list of arguments changed while it was being read")
    b.argument = -1
    if name is not b.checked_name:
        # Most streams use a few literal names; the same object need not be checked again.
        if not check_command(b.out.base + start, b.out.p) and isinstance(name, (str, bytes)):
            b.checked_name = name
    return 1


cdef object not_a_command(object row):
    hint = "a command is a list or tuple of arguments, its name first"
    if isinstance(row, (str, bytes)):
        hint += "; if it is a template, pass it as the template, and rows of values as the data"
    elif hasattr(row, "__arrow_c_stream__"):
        hint = (
            "it is a whole table; pass a list of tables, or load each separately, with a template"
        )
    elif hasattr(row, "keys"):
        hint += "; rows with named fields need a template, such as 'HSET user:{id} {**}'"
    return EncodeError(f"{shown_value(row)} is not a command: {hint}")


cdef bint has_refused_subcommand(bytes name) except -1:
    """Return whether some, but not all, commands with this name are refused."""
    return name.upper() in PARTLY_REFUSED


cdef bint check_name(const char *name, Py_ssize_t size, const char *end) except -1:
    cdef bytes word = name[:size].upper()
    cdef bytes full_word = word
    cdef const char *second = name + size + 2
    cdef long long n
    cdef bint partly = has_refused_subcommand(word)
    if partly and second < end:
        second = known_length_end(second + 1, &n)
        full_word = word + b" " + second[:min(n, end - second, SUBCOMMAND_BYTES)].upper()
    if full_word in REFUSED:
        raise EncodeError(
            f"{full_word.decode()} changes the reply stream, so it can't be part of a load; "
            "send it over a connection of its own"
        )
    return partly


cdef bytes bulk_string(bytes text):
    """Return bytes as a bulk string."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


cdef bytes command_header(Py_ssize_t arguments):
    """Return the header of a command with this number of arguments."""
    return b"*%d\r\n" % arguments


cdef int put_other(Buffer b, object value, bint framed, object default) except -1:
    """Write a value of a type without a fast path in put_value()."""
    cdef bytes text
    if PyUnicode_Check(value):
        try:
            text = PyUnicode_AsUTF8String(value)
        except UnicodeEncodeError as error:
            raise EncodeError(
                f"cannot send {shown_value(value)}: character {error.start} is a lone surrogate, "
                "which UTF-8 can't encode; encode the text to bytes with the error handler you want"
            ) from None
        return put_bytes(b, text, framed)
    if PyBytes_Check(value):
        return put_bytes(b, value, framed)
    if PyLong_Check(value) and value is not True and value is not False:
        return put_integer(b, <PyObject *>value, framed)
    if PyFloat_Check(value):
        return put_float(b, PyFloat_AS_DOUBLE(value), framed)
    if PyObject_CheckBuffer(value):
        return put_buffer(b, value, framed, default)
    if PyIndex_Check(value) and not isinstance(value, bool):
        return put_value(b, PyNumber_Index(value), framed, None)
    return put_default(b, value, framed, default)


cdef int put_bytes(Buffer b, object text, bint framed) except -1:
    """Write the bytes of a bytes object, or of a subclass."""
    cdef PyObject *value = <PyObject *>text
    return put_frozen(b, value, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), framed)


cdef int put_huge(Buffer b, object value, bint framed) except -1:
    """Write an int beyond 64 bits, through Decimal: str(int) is limited to 4,300 digits."""
    cdef bytes text = str(Decimal(value)).encode()
    return put_bytes(b, text, framed)


cdef int put_float(Buffer b, double value, bint framed) except -1:
    """Write a float as repr(float) does: the shortest text that reads back as the same float."""
    cdef char[32] text
    cdef Py_ssize_t n = put_double(text, value) - text
    cdef char *p = make_room(b, 96)
    if framed:
        p = put_header(p, c'$', n)
    memcpy(p, text, 32)     # a fixed size is faster than the exact size
    p += n
    b.out.p = put_crlf(p) if framed else p
    return 0


cdef int put_buffer(Buffer b, object value, bint framed, object default) except -1:
    """Write a buffer of bytes, or a NumPy scalar, which is a buffer without dimensions."""
    cdef Py_buffer view
    cdef char *p
    cdef bint dated
    try:
        PyObject_GetBuffer(value, &view, PyBUF_FULL_RO)
    except Exception as error:      # a released memoryview, an array of dates
        try:
            return put_default(b, value, framed, default)
        except EncodeError as refused:
            raise refused from error
    try:
        if view.ndim == 0 and view.format is not NULL and hasattr(value, "__float__"):
            return put_scalar(b, value, view.format, framed, default)
        dated = is_date(value)
        if dated or not holds_bytes(&view):
            if dated or default is not None:
                return put_default(b, value, framed, default)
            raise EncodeError(
                f"cannot send {shown_value(value)} (a {type(value).__name__}): {ARRAY_HINT}"
            )
        if view.len > b.out.most:
            refuse(b, view.len)
        p = make_room(b, view.len + 32)
        if framed:
            p = put_header(p, c'$', view.len)
        PyBuffer_ToContiguous(p, &view, view.len, c'C')
        p += view.len
        b.out.p = put_crlf(p) if framed else p
        return 0
    finally:
        PyBuffer_Release(&view)


cdef bint holds_bytes(Py_buffer *view) noexcept:
    """Return whether a buffer is a one-dimensional array of single bytes."""
    cdef const char *kind = view.format
    if view.ndim != 1:
        return False
    if kind is NULL:
        return True
    if kind[0] in (c'@', c'=', c'<', c'>', c'!'):
        kind += 1
    return kind[0] in (c'B', c'b', c'c') and kind[1] == 0


cdef bint is_date(object value) except -1:
    """Return whether a value is a datetime64 or timedelta64, which NumPy exposes as 8 bytes."""
    return getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M")


cdef int put_scalar(Buffer b, object value, bytes kind, bint framed, object default) except -1:
    """Write a NumPy scalar by its value, not its raw bytes."""
    cdef char[32] text
    kind = kind.lstrip(b"@=<>!")
    if kind == b"d":
        return put_float(b, float(value), framed)
    if kind == b"f":
        return put_text(b, text, put_single(text, <float>float(value)) - text, framed)
    if kind == b"e":
        return put_text(b, text, put_half(text, half_of(float(value))) - text, framed)
    if kind == b"g":
        return put_other(b, str(value), framed, None)
    if len(kind) == 1 and kind in b"bBhHiIlLqQ":
        return put_value(b, PyNumber_Index(value), framed, None)
    return put_default(b, value, framed, default)


cdef int put_default(Buffer b, object value, bint framed, object default) except -1:
    """Write the result of default= for a value; without default=, write the value's usual text.

    Raises:
        EncodeError: the value is None, ``default`` returned an unsupported type, or there is no
            ``default`` and the value has no usual text.
    """
    cdef str text
    kind = type(value).__name__
    if value is None:
        asked = "" if default is None else ", and default= is not called for it"
        raise EncodeError(
            Message(f"cannot send None: Redis has no null{asked}; ", WITHOUT_NULLS)
        )
    if default is not None:
        result = default(value)
        if isinstance(result, (str, bytes, int, float)) and not isinstance(result, bool):
            return put_value(b, result, framed, None)
        raise EncodeError(
            f"default= returned {shown_value(result)} (a {type(result).__name__}) for "
            f"{shown_value(value)} (a {kind}); it must return str, bytes, int or float"
        )
    text = usual_text(value)
    if text is not None:
        return put_other(b, text, framed, None)
    if kind in ("NAType", "NaTType"):   # pandas: values that can't be compared
        raise EncodeError(
            f"cannot send {value} (a {kind}): it is a pandas null; replace it with None, or pass "
            "the DataFrame itself, whose columns mark their nulls"
        )
    if kind in ("bool", "bool_"):       # including NumPy's
        raise EncodeError(Message(
            f"cannot send {value} (a bool): Redis has no booleans; send {int(value)} or "
            f"'{str(value).lower()}', or pass ", DEFAULT, "int"
        ))
    raise EncodeError(Message(
        f"cannot send {shown_value(value)} (a {kind}): an argument must be str, bytes, int, float, "
        "Decimal, a date, time or timedelta, UUID or a buffer; convert it, or pass ", DEFAULT,
        ", a function that converts it"
    ))


cdef str usual_text(object value):
    """Return a value as text in the usual form of its type; None for a type without one."""
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else str(value)
    if isinstance(value, (date, time)):     # a datetime is a date
        if value != value:
            raise EncodeError(Message(
                f"cannot send {value} (a {type(value).__name__}): it is a null; replace it with "
                "None, and use ", SKIP_OR_EMPTY
            ))
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration(value)
    if isinstance(value, UUID):
        return str(value)
    return None


cdef str duration(object value):
    """Return a timedelta as ISO 8601 text, including the nanoseconds of pandas."""
    cdef char[40] text
    cdef char *end
    cdef bint negative = value.days < 0
    if negative:
        value = -value
    end = put_days(
        text, negative, value.days, value.seconds,
        value.microseconds * 1000 + getattr(value, "nanoseconds", 0),
    )
    return text[:end - text].decode()


cdef bint is_secret(object name) except -1:
    """Return whether a command may contain a password, which errors must not show."""
    if isinstance(name, str):
        name = name.encode(errors="replace")
    return isinstance(name, bytes) and holds_passwords(name)


cdef Nulls nulls_policy(object name) except *:
    if name == "auto" or name == "delete":  # for "delete", the template deletes null fields
        return NULLS_AUTO
    if name == "error":
        return NULLS_ERROR
    if name == "skip":
        return NULLS_SKIP
    if name == "empty":
        return NULLS_EMPTY
    raise ValueError(
        "nulls must be 'auto', 'skip', 'empty', 'error' or 'delete', not " + shown_value(name)
    )


cdef object locate(
    Exception error, str where, object command, object row, object argument, object words
):
    """Return the exception to raise for an error, with the position of the argument.

    Args:
        error: the error.
        where: the position, for the message.
        command, row, argument: the indices of the position; None if unknown.
        words: the command or its known beginning, name first.
    """
    if isinstance(error, MemoryError):
        return error
    if isinstance(error, TemplateError):
        error.row = row
        return error
    if not isinstance(error, EncodeError):
        error, cause = EncodeError(f"{type(error).__name__}: {error}"), error
        error.__cause__ = cause
    if argument == -1:
        argument = None
    else:
        where += f", argument {argument}" if where else f"argument {argument}"
        if isinstance(words, (list, tuple)) and words and is_secret(words[0]):
            error = EncodeError(
                "cannot send this value, not shown since it may be a password; convert it to str "
                "or bytes"
            )
    located = EncodeError(
        Message(where, ": " if where else "", message_of(error)),
        command=command, row=row, argument=argument,
    )
    located.__cause__ = error.__cause__
    return located


# redis-py calls sendall() for each piece.
cdef Py_ssize_t PIECE_BYTES = 1 << 20
cdef Py_ssize_t SLACK_BYTES = 1 << 16
# A larger argument is a separate piece: copying it costs more than another sendall().
cdef Py_ssize_t LARGE_BYTES = 1 << 16
# A buffer larger than this is not kept for the next pipeline.
cdef Py_ssize_t KEPT_BYTES = 4 << 20

# The buffer of the last call; empty while a call in any thread uses the buffer. Popping and
# appending are atomic, even without a GIL.
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
        UnicodeEncodeError: a str can't be encoded.
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
    """Split a name at white space, as redis-py does; split bytes only if they contain a space."""
    if isinstance(name, str):
        return tuple(name.encode().split())
    return tuple(name.split()) if b" " in name else (name,)
