"""What no reader of RESP lets pass, in one place. Sizes are in bytes."""

cdef enum:
    # Lua and modules can nest replies; beyond this depth it is an attack or an error.
    DEPTH = 1024
    # The length or the integer of a line, without its type byte and CRLF. Servers write at most 20.
    NUMBER_BYTES = 32
    # Big numbers and doubles of RESP3 may have some thousand digits.
    BIG_NUMBER_BYTES = 65536
    # A simple string or an error. Scripts may return long ones.
    LINE_BYTES = 16777216
    # Of a longer error text the beginning is kept. Redis itself cuts what it quotes at 128.
    ERROR_BYTES = 4096
    # One reply, if nobody says otherwise: as much as the largest bulk string that a server takes
    # by default (proto-max-bulk-len).
    REPLY_BYTES = 536870912
    # What an element of an array counts for, besides its own bytes: about the memory of a small
    # object and its place in a list. And what an error among them does.
    ELEMENT_BYTES = 64
    NESTED_ERROR_BYTES = 1024
    # How much of the bytes around a fault an error message shows.
    SHOWN_BYTES = 16

cdef extern from *:
    """
    /* As hiredis has it: more elements than this no reply has. */
    #define FASTRESP_ELEMENTS ((1LL << 32) - 1)
    /* No limit is larger, lest a sum overflows. */
    #define FASTRESP_MOST_BYTES (1LL << 60)
    """
    const long long ELEMENTS "FASTRESP_ELEMENTS"
    const long long MOST_BYTES "FASTRESP_MOST_BYTES"


cdef inline long long reply_limit(object most) except -1:
    """How many bytes a reply may have: as asked for, or as a rule."""
    if most is None:
        return REPLY_BYTES
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ValueError(f"max_reply_bytes is a number of bytes above 0, or None, not {most!r}")
    return min(most, MOST_BYTES)


cdef inline str endless(char kind):
    """That a line is too long, in words."""
    return f"a line that begins with {chr(kind)!r} does not end within {LINE_BYTES:,} bytes"


cdef inline str beyond(str what, long long most):
    """That a reply is too large, in words."""
    return f"{what}, more than the {most:,} bytes that a reply may have (max_reply_bytes)"
