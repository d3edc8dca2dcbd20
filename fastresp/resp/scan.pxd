from libc.string cimport memchr


cdef inline const char *line_end(const char *p, const char *end) noexcept nogil:
    """The byte after the next CRLF, or NULL. A CR or LF alone is part of a line."""
    while True:
        p = <const char *>memchr(p, c'\r', end - p)
        if p is NULL or end - p < 2:
            return NULL
        if p[1] == c'\n':
            return p + 2
        p += 1
