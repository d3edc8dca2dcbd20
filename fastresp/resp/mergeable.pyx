# cython: language_level=3, cdivision=True
"""The commands that can be merged, and the requirements on their arguments.

A MergeRule describes a command that can be merged. A command's items are its repeatable arguments,
such as elements or field-value pairs.

A command is merged only if a server runs it as a whole or not at all, and if no single item can
cause an error. So an error reply to a merged command is what each original command would have got.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from .buffer cimport put_copy
from .grammar cimport digits_end

# The servers check the type of the key and everything that could be refused before they change
# anything; tests/merge/test_verbs.py tries each rule. Source: t_list.c, t_set.c, t_hash.c,
# t_zset.c, t_string.c, t_stream.c, geo.c and db.c of Redis 6.2 to 8.2 and of Valkey. PFADD is
# excluded: it adds items until an item meets a damaged part of the value.
cdef MergeRule[RULES_SIZE] RULES = [
    MergeRule(b"LPUSH", 5, 2, 1, ANYTHING, NULL, 0),
    MergeRule(b"RPUSH", 5, 2, 1, ANYTHING, NULL, 1),
    MergeRule(b"SADD", 4, 2, 1, ANYTHING, NULL, 2),
    MergeRule(b"SREM", 4, 2, 1, ANYTHING, NULL, 3),
    MergeRule(b"HSET", 4, 2, 2, ANYTHING, NULL, 4),
    MergeRule(b"HMSET", 5, 2, 2, ANYTHING, NULL, 5),
    MergeRule(b"HDEL", 4, 2, 1, ANYTHING, NULL, 6),
    MergeRule(b"ZADD", 4, 2, 2, SCORE, NULL, 7),
    MergeRule(b"ZREM", 4, 2, 1, ANYTHING, NULL, 8),
    MergeRule(b"SET", 3, 1, 2, PAIR, b"MSET", 9),
    MergeRule(b"SET", -1, 1, 2, TIMED, b"MSETEX", 10),       # chosen by the options of SET
    MergeRule(b"DEL", 3, 1, 1, ANYTHING, NULL, 11),
    MergeRule(b"UNLINK", 6, 1, 1, ANYTHING, NULL, 12),
    MergeRule(b"GEOADD", 6, 2, 3, PLACE, NULL, 13),
    MergeRule(b"XDEL", 4, 2, 1, STREAM_ID, NULL, 14),
    MergeRule(b"MULTI", 5, 1, 1, OPENS, NULL, 15),
    MergeRule(b"EXEC", 4, 1, 1, CLOSES, NULL, 16),
    MergeRule(b"DISCARD", 7, 1, 1, CLOSES, NULL, 17),
]


# An odd multiplier for digests of field names; any would do.
cdef uint64_t PRIME = 0x9E3779B97F4A7C15


cdef frozenset names_of(int number):
    """Return the names that a rule needs: its own name, and the name of the merged command."""
    cdef const char *merged = RULES[number].merged
    own = RULES[number].name.decode()
    return frozenset((own,)) if merged is NULL else frozenset((own, merged.decode()))


cdef bint is_word(const char *text, long long size, const char *capitals) noexcept nogil:
    """Return whether a string equals ``capitals``, ignoring case."""
    cdef int i
    for i in range(<int>size):
        if capitals[i] == 0 or (text[i] & ~0x20) != capitals[i]:
            return False
    return capitals[size] == 0


cdef const MergeRule *find_rule(const char *name, long long size, LastName *last) noexcept nogil:
    """Return the rule of a command's name; NULL if the command can't be merged."""
    cdef int i
    if size > LONGEST_NAME:
        return NULL
    if size != last.size or memcmp(name, last.name, size) != 0:
        memcpy(last.name, name, size)
        last.size = size
        last.rule = NULL
        for i in range(RULES_SIZE):
            if RULES[i].name_size == size and is_word(name, size, RULES[i].name):
                last.rule = &RULES[i]
    return last.rule


cdef bint is_score(const char *p, const char *end) noexcept nogil:
    """Return whether all servers accept a string as a score, such as ``1e-7`` or ``+inf``."""
    cdef const char *whole
    cdef const char *stop
    cdef const char *digits
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        p += 1
    digits = p
    if end - p == 3 and memcmp(p, b"inf", 3) == 0:
        return True
    whole = stop = digits_end(p, end)
    if whole == p:
        return False
    if whole < end and whole[0] == c'.':
        stop = digits_end(whole + 1, end)
        if stop == whole + 1:
            return False
    if stop - p > NUMBER_BYTES:
        return False
    if stop < end and stop[0] == c'e':
        p = stop + 1
        if p < end and (p[0] == c'-' or p[0] == c'+'):
            p += 1
        stop = digits_end(p, end)
        if not 0 < stop - p <= 3:
            return False
        # A number with an exponent of two digits is in range.
        if stop - p == 3 and not is_in_range(digits, p):
            return False
    return stop == end


cdef bint is_in_range(const char *p, const char *exponent) noexcept nogil:
    """Return whether the nearest double of a number is finite and not 0, as servers require.

    Args:
        p: the first digit of the number.
        exponent: the first of the exponent's three digits.
    """
    # The largest double is 1.7976931348623157e308; numbers below 2.47e-324 are nearer to 0.
    cdef const char *most = b"17976931348623157"
    cdef int power = 0, i = 0
    cdef int e = (exponent[0] - c'0') * 100 + (exponent[1] - c'0') * 10 + exponent[2] - c'0'
    cdef bint point = False
    cdef const char *first
    if exponent[-1] == c'-':
        e = -e
    while p[0] == c'0' or p[0] == c'.':
        point |= p[0] == c'.'
        power -= point and p[0] == c'0'
        p += 1
    if p[0] == c'e':
        return False
    first = p
    if point:
        power -= 1
    else:
        power = <int>(digits_end(p, exponent) - p) - 1
    e += power
    if not -324 <= e <= 308:
        return False
    if e == -324:
        return first[0] >= c'5'
    if e < 308:
        return True
    while p[0] != c'e' and most[i]:
        if p[0] != c'.':
            if p[0] != most[i]:
                return p[0] < most[i]
            i += 1
        p += 1
    while p[0] == c'0' or p[0] == c'.':
        p += 1
    return p[0] == c'e'


cdef bint is_degrees(const char *p, const char *end, int limit) noexcept nogil:
    """Return whether a string is a plain decimal number above -limit and below limit."""
    cdef const char *whole
    cdef int degrees = 0
    if p < end and p[0] == c'-':
        p += 1
    whole = digits_end(p, end)
    if not 0 < whole - p <= 3 or end - p > NUMBER_BYTES:
        return False
    while p < whole:
        degrees = degrees * 10 + (p[0] - c'0')
        p += 1
    if degrees >= limit:
        return False
    return whole == end or (
        whole[0] == c'.' and end > whole + 1 and digits_end(whole + 1, end) == end
    )


cdef bint is_stream_id(const char *p, const char *end) noexcept nogil:
    cdef const char *stop = digits_end(p, end)
    if not 0 < stop - p <= ID_DIGITS:
        return False
    if stop < end and stop[0] == c'-':
        p = stop + 1
        stop = digits_end(p, end)
        if not 0 < stop - p <= ID_DIGITS:
            return False
    return stop == end


cdef bint is_fit(
    const MergeRule *rule, int place, const char *text, const char *end
) noexcept nogil:
    """Return whether every server accepts this text as argument ``place`` of an item."""
    if rule.check == SCORE:
        return place > 0 or is_score(text, end)
    if rule.check == PLACE:
        # The limits are 180 and 85.05 degrees. Source: GEO_LONG_MAX and GEO_LAT_MAX in geohash.h.
        return place > 1 or is_degrees(text, end, 85 if place else 180)
    return rule.check != STREAM_ID or is_stream_id(text, end)


cdef bint are_fit(const ParsedCommand *c) noexcept nogil:
    """Return whether every server accepts all items of a command."""
    cdef const char *p = c.items
    cdef const char *text
    cdef long long size
    cdef int place
    while p < c.end:
        for place in range(c.rule.size):
            text = next_word(&p, &size)
            if not is_fit(c.rule, place, text, text + size):
                return False
    return True


cdef const char *zadd_options_end(const char *p, Py_ssize_t *words) noexcept nogil:
    """Return the end of ZADD's options, and subtract their number from ``words``.

    INCR is not skipped, because ZADD with INCR is not merged.
    """
    cdef const char *text
    cdef const char *after = p
    cdef long long size
    while words[0] > 0:
        text = next_word(&after, &size)
        if size != 2 or not (
            is_word(text, 2, b"NX") or is_word(text, 2, b"XX") or is_word(text, 2, b"GT")
            or is_word(text, 2, b"LT") or is_word(text, 2, b"CH")
        ):
            break
        p = after
        words[0] -= 1
    return p


cdef void read_options_of_set(ParsedCommand *c) noexcept nogil:
    """Read the arguments of SET: a key and a value, and possibly EX or PX with a time."""
    cdef const char *p = c.items
    cdef const char *text
    cdef long long size
    c.small = (p - 5)[0] & 0x20
    if memcmp(p - 5, b"set" if c.small else b"SET", 3) != 0:
        c.rule = NULL                   # the name of the merged command can't keep mixed case
    elif c.item_words == 4:
        next_word(&p, &size)
        next_word(&p, &size)
        c.tail = p
        c.item_words = 2
        text = next_word(&p, &size)
        c.rule += 1
        if size != 2 or not (is_word(text, 2, b"EX") or is_word(text, 2, b"PX")):
            c.rule = NULL
        text = next_word(&p, &size)
        if (
            text[0] == c'0'
            or not 0 < size <= TIME_DIGITS
            or digits_end(text, text + size) != text + size
        ):
            c.rule = NULL
    elif c.item_words != 2:
        c.rule = NULL


cdef const char *read_name(ParsedCommand *c, const char *p, LastName *last) noexcept nogil:
    """Read a command's header and name; return the end of the name."""
    cdef const char *text
    cdef long long words, size
    p = known_length_end(p + 1, &words)
    c.name = p
    c.words = c.item_words = words
    text = next_word(&p, &size)
    c.rule = find_rule(text, size, last)
    return p


cdef void read_command(
    ParsedCommand *c, const char *p, const char *end, LastName *last
) noexcept nogil:
    """Parse a command; set its ``rule`` to NULL if it can't be merged."""
    cdef long long size
    p = read_name(c, p, last)
    c.end = end
    if c.rule is NULL or c.rule.check >= OPENS:
        return
    c.item_words -= c.rule.shared
    if c.rule.shared == 2 and c.item_words > 0:
        next_word(&p, &size)
    if c.rule.check == SCORE:
        p = zadd_options_end(p, &c.item_words)
    c.items = p
    c.tail = end
    if c.item_words <= 0 or c.item_words % c.rule.size:
        c.rule = NULL
    elif c.rule.check == PAIR:
        read_options_of_set(c)
    elif c.rule.check > TIMED and not are_fit(c):
        c.rule = NULL


cdef bint read_hset(HashWrite *h, const char *start, const char *end) noexcept nogil:
    """Parse an HSET; return False for any other command, or without field-value pairs."""
    cdef long long words, size
    cdef const char *p = known_length_end(start + 1, &words)
    cdef const char *text = next_word(&p, &size)
    if words < 4 or words % 2 or size != 4 or not is_word(text, 4, b"HSET"):
        return False
    h.key = p
    h.end = end
    h.count = (words - 2) // 2
    return True


cdef bint has_fields(HashWrite *h, const FieldSet *s) noexcept nogil:
    """Return whether an HSET without large arguments writes the fields of a field set."""
    cdef const char *p = h.key
    cdef const char *name = s.names
    cdef long long size
    cdef Py_ssize_t i
    next_word(&p, &size)
    h.pairs = p
    if h.count != s.count:
        return False
    for i in range(s.count):
        if h.end - p < s.sizes[i] or memcmp(p, name, s.sizes[i]) != 0:
            return False
        p += s.sizes[i]
        name += s.sizes[i]
        next_word(&p, &size)
    return True


cdef char *put_values(const HashWrite *h, const FieldSet *s, char *p) noexcept nogil:
    """Write the values of an HSET that has the fields of a field set."""
    cdef const char *value = h.pairs
    cdef const char *after
    cdef long long size
    cdef Py_ssize_t i
    for i in range(s.count):
        value += s.sizes[i]
        after = value
        next_word(&after, &size)
        p = put_copy(p, value, after - value)
        value = after
    return p


cdef uint64_t digest_of(HashWrite *h) noexcept nogil:
    """Return a hash value of the field names, and find where the pairs begin."""
    cdef const char *p = h.key
    cdef const char *text
    cdef long long size
    cdef uint64_t digest = h.count, part
    cdef Py_ssize_t at
    next_word(&p, &size)
    h.pairs = p
    for _ in range(h.count):
        text = next_word(&p, &size)
        for at in range(0, size, 8):
            part = 0
            memcpy(&part, text + at, min(size - at, 8))
            digest = (digest ^ part) * PRIME
            digest ^= digest >> 29
        digest = (digest ^ <uint64_t>size) * PRIME
        next_word(&p, &size)
    return digest


cdef list field_names(const HashWrite *h):
    cdef const char *p = h.pairs
    cdef const char *text
    cdef long long size
    cdef list names = []
    for _ in range(h.count):
        text = next_word(&p, &size)
        names.append(text[:size])
        next_word(&p, &size)
    return names
