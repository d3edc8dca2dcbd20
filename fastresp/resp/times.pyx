# cython: language_level=3, cdivision=True
"""Write dates, times, durations and decimals of columns as text: ISO 8601 and digits."""

from libc.string cimport memcpy, memset

from .out cimport put_digits


cdef enum:
    DAY_S = 86400
    SECOND_NS = 1000000000
    # 0001-01-01 and 10000-01-01, in days since 1970-01-01.
    FIRST_DAY = -719162
    END_DAY = 2932897
    WORDS = 4
    BILLION = 1000000000


cdef char *put_date(char *p, long long days) noexcept nogil:
    """Write a date, given as days since 1970-01-01, as date.isoformat does."""
    cdef unsigned int day, year, century, of_century, of_year, month
    if days < FIRST_DAY or days >= END_DAY:
        return NULL
    # Count from 0000-03-01: then the leap day ends a year, and the earlier months follow a pattern
    # of 153 days per five months. Source: Fliegel and Van Flandern, CACM 11 (1968), 657.
    day = <unsigned int>(days + 719468)
    century = (4 * day + 3) // 146097
    of_century = day - 146097 * century // 4
    year = (4 * of_century + 3) // 1461
    of_year = of_century - 1461 * year // 4
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year += 100 * century
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    p = put_two(put_two(p, year // 100), year % 100)
    p[0] = c'-'
    p = put_two(p + 1, month)
    p[0] = c'-'
    return put_two(p + 1, day)


cdef char *put_time(char *p, long long value, long long per_second) noexcept nogil:
    """Write a time of day as time.isoformat does, with nine decimals if six are too few."""
    cdef unsigned int second, fraction
    if value < 0 or value >= DAY_S * per_second:
        return NULL
    second = <unsigned int>(value // per_second)
    fraction = <unsigned int>(value % per_second * (SECOND_NS // per_second))
    p = put_two(p, second // 3600)
    p[0] = c':'
    p = put_two(p + 1, second // 60 % 60)
    p[0] = c':'
    p = put_two(p + 1, second % 60)
    if fraction == 0:
        return p
    p[0] = c'.'
    if fraction % 1000 == 0:
        return put_fraction(p + 1, fraction // 1000, 6)
    return put_fraction(p + 1, fraction, 9)


cdef char *put_timestamp(char *p, long long value, long long per_second) noexcept nogil:
    """Write a date and time, given as units since 1970-01-01, as datetime.isoformat does."""
    cdef long long day = DAY_S * per_second
    cdef long long days = value // day
    cdef long long of_day = value % day
    if of_day < 0:
        days -= 1
        of_day += day
    p = put_date(p, days)
    if p is NULL:
        return NULL
    p[0] = c'T'
    return put_time(p + 1, of_day, per_second)


cdef char *put_offset(char *p, int seconds) noexcept nogil:
    """Write a UTC offset of less than a day, as datetime.isoformat does."""
    p[0] = c'+'
    if seconds < 0:
        p[0] = c'-'
        seconds = -seconds
    p = put_two(p + 1, seconds // 3600)
    p[0] = c':'
    p = put_two(p + 1, seconds // 60 % 60)
    if seconds % 60:
        p[0] = c':'
        p = put_two(p + 1, seconds % 60)
    return p


cdef char *put_duration(char *p, long long value, long long per_second) noexcept nogil:
    """Write a duration as ISO 8601, such as P1DT2H3M4.5S; a negative duration has a sign."""
    cdef unsigned long long size = <unsigned long long>value
    cdef unsigned long long second = <unsigned long long>per_second
    if value < 0:
        size = 0 - size
    return put_days(
        p, value < 0, size // second // DAY_S, <int>(size // second % DAY_S),
        <int>(size % second * (SECOND_NS // second)),
    )


cdef char *put_days(
    char *p, bint negative, unsigned long long days, int seconds, int nanoseconds
) noexcept nogil:
    """Write a duration as ISO 8601, given as a sign, days, seconds and nanoseconds."""
    cdef int width = 9
    if negative:
        p[0] = c'-'
        p += 1
    p[0] = c'P'
    p += 1
    if days:
        p = put_digits(p, days)
        p[0] = c'D'
        p += 1
        if seconds == 0 and nanoseconds == 0:
            return p
    p[0] = c'T'
    p += 1
    if seconds >= 3600:
        p = put_digits(p, seconds // 3600)
        p[0] = c'H'
        p += 1
    if seconds % 3600 >= 60:
        p = put_digits(p, seconds // 60 % 60)
        p[0] = c'M'
        p += 1
    if seconds % 60 or nanoseconds or p[-1] == c'T':
        p = put_digits(p, seconds % 60)
        if nanoseconds:
            p[0] = c'.'
            while nanoseconds % 10 == 0:
                nanoseconds //= 10
                width -= 1
            p = put_fraction(p + 1, nanoseconds, width)
        p[0] = c'S'
        p += 1
    return p


cdef char *put_decimal(
    char *p, const unsigned long long *words, int nwords, int scale
) noexcept nogil:
    """Write a decimal as format(d, 'f') does.

    Args:
        words: an integer of ``nwords`` 64-bit words, lowest word first.
        scale: the integer is divided by 10**scale.
    """
    cdef unsigned long long[WORDS] n
    cdef char[80] digits
    cdef char *end
    cdef int i, count
    cdef bint carry = True, small = True
    memcpy(n, words, 8 * nwords)
    if n[nwords - 1] >> 63:
        p[0] = c'-'
        p += 1
        for i in range(nwords):
            n[i] = ~n[i] + carry
            carry = carry and n[i] == 0
    for i in range(1, nwords):
        small = small and n[i] == 0
    end = put_digits(digits, n[0]) if small else put_long(digits, n, nwords)
    count = <int>(end - digits)
    if scale <= 0:
        memcpy(p, digits, count)
        if small and n[0] == 0:
            return p + 1
        memset(p + count, c'0', -scale)
        return p + count - scale
    if count > scale:
        memcpy(p, digits, count - scale)
        p += count - scale
        p[0] = c'.'
        memcpy(p + 1, digits + count - scale, scale)
    else:
        memset(p, c'0', scale + 2 - count)
        p[1] = c'.'
        p += 1
        memcpy(p + 1 + scale - count, digits, count)
    return p + 1 + scale


cdef char *put_long(char *p, unsigned long long *n, int nwords) noexcept nogil:
    """Write an integer of several words in decimal; the words become zero."""
    cdef unsigned int[9] groups         # groups of nine digits; 256 bits have 78 digits
    cdef unsigned long long high, low, rest
    cdef int count = 0, i
    while nwords:
        rest = 0
        for i in range(nwords - 1, -1, -1):
            high = rest << 32 | n[i] >> 32
            low = high % BILLION << 32 | <unsigned int>n[i]
            n[i] = high // BILLION << 32 | low // BILLION
            rest = low % BILLION
        groups[count] = <unsigned int>rest
        count += 1
        while nwords and n[nwords - 1] == 0:
            nwords -= 1
    p = put_digits(p, groups[count - 1])
    for i in range(count - 2, -1, -1):
        p = put_fraction(p, groups[i], 9)
    return p


cdef inline char *put_two(char *p, unsigned int n) noexcept nogil:
    p[0] = <char>(48 + n // 10)
    p[1] = <char>(48 + n % 10)
    return p + 2


cdef inline char *put_fraction(char *p, unsigned int n, int width) noexcept nogil:
    """Write n in decimal, padded with zeros to ``width``."""
    cdef int i
    for i in range(width - 1, -1, -1):
        p[i] = <char>(48 + n % 10)
        n //= 10
    return p + width
