# cython: language_level=3, cdivision=True
"""Parse the commands that create values, and find errors that a server would report."""

from ...resp.grammar cimport digits_end, known_length_end
from ...resp.verbs cimport is_score, is_word, next_word
from .pieces cimport Word
from .values cimport HASH, LIST, LIST_FROM_HEAD, SET, SORTED_SET, STRING

from ...outcome.messages import shown_argument

cdef enum:
    # The maximum number of digits of a time to live, in seconds or milliseconds: the server must be
    # able to add the current time.
    TIME_DIGITS = 14


cdef str shown(const Word *word):
    """Return an argument as it is shown in messages."""
    return shown_argument(word.text[:word.size])


cdef int verb_of(const Word *name) noexcept nogil:
    """Return the kind of value that a command creates, or EXPIRE, PEXPIRE or OTHER."""
    cdef const char *text = name.text
    if name.size == 4:
        if is_word(text, 4, b"HSET"):
            return HASH
        if is_word(text, 4, b"SADD"):
            return SET
        if is_word(text, 4, b"ZADD"):
            return SORTED_SET
    elif name.size == 5:
        if is_word(text, 5, b"RPUSH"):
            return LIST
        if is_word(text, 5, b"LPUSH"):
            return LIST_FROM_HEAD
        if is_word(text, 5, b"HMSET"):
            return HASH
    elif name.size == 6 and is_word(text, 6, b"EXPIRE"):
        return EXPIRE
    elif name.size == 7 and is_word(text, 7, b"PEXPIRE"):
        return PEXPIRE
    elif name.size == 3 and is_word(text, 3, b"SET"):
        return STRING
    return OTHER


cdef void read_value_command(ValueCommand *m, const char *p, const char *end) noexcept nogil:
    """Parse the command from ``p`` to ``end``."""
    cdef long long words, size
    p = known_length_end(p + 1, &words)
    m.end = end
    m.name.text = next_word(&p, &size)
    m.name.size = size
    m.verb = verb_of(&m.name) if words >= 2 else OTHER
    m.key.text, m.key.size = NULL, 0
    if words >= 2:
        m.key.text = next_word(&p, &size)
        m.key.size = size
    m.items = p
    m.words = words - 2


cdef str why_refused(const ValueCommand *m):
    """Return why a command that creates a value can't be serialised; None if it can."""
    cdef const char *p = m.items
    cdef const char *text
    cdef long long size
    cdef Py_ssize_t _
    cdef bint pairs = m.verb == HASH or m.verb == SORTED_SET
    if m.words < 1 + pairs or (pairs and m.words % 2):
        noun = "argument" if m.words == 1 else "arguments"
        return f"{shown(&m.name)} has {m.words} {noun} after the key"
    if m.verb == SORTED_SET:
        for _ in range(0, m.words, 2):
            text = next_word(&p, &size)
            if not is_score(text, text + size):
                score = shown_argument(text[:size])
                return f"{score} is not a plain decimal number, which a score must be here"
            next_word(&p, &size)
    return None


cdef long long read_time(const char *text, Py_ssize_t size) noexcept nogil:
    """Parse a time to live; return -1 if the text is not a plain number above 0."""
    cdef long long n = 0
    cdef Py_ssize_t i
    if not 0 < size <= TIME_DIGITS or digits_end(text, text + size) != text + size:
        return -1
    for i in range(size):
        n = n * 10 + (text[i] - c'0')
    return n if n else -1


cdef long long time_of(const ValueCommand *m) noexcept nogil:
    """Return the time to live that EXPIRE or PEXPIRE sets, in ms; -1 if the time is invalid."""
    cdef const char *p = m.items
    cdef const char *text
    cdef long long size, n = -1
    if m.words == 1:
        text = next_word(&p, &size)
        n = read_time(text, size)
    return n * 1000 if n > 0 and m.verb == EXPIRE else n


cdef long long time_of_set(const ValueCommand *m, const char *p) noexcept nogil:
    """Return the time to live in ms from SET's option EX or PX at p; -1 for an invalid time."""
    cdef long long size, n = -1
    cdef const char *unit = next_word(&p, &size)
    cdef bint seconds = size == 2 and is_word(unit, 2, b"EX")
    cdef const char *text
    if m.words == 3 and (seconds or (size == 2 and is_word(unit, 2, b"PX"))):
        text = next_word(&p, &size)
        n = read_time(text, size)
    return n * 1000 if n > 0 and seconds else n
