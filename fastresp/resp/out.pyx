# cython: language_level=3, cdivision=True
"""Write RESP into one growing buffer, with or without the GIL."""

from libc.stdlib cimport realloc


cdef int prepare_headers() except -1:
    cdef Py_ssize_t n
    cdef char *end
    for n in range(READY_HEADERS):
        ready_headers[n][0] = c'$'
        end = put_crlf(put_digits(&ready_headers[n][1], n))
        ready_headers[n][7] = <char>(end - ready_headers[n])
    return 0


prepare_headers()


cdef char *grow(Out *out, char *p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t size = p - out.base
    cdef Py_ssize_t room = max(size + n, capacity(out) + capacity(out) // 2)
    cdef char *base = <char *>realloc(out.base, room)
    if base is NULL:
        return NULL
    out.base, out.p, out.end = base, base + size, base + room
    return out.p


cdef char *put_reference(Out *out, char *p, const char *data, Py_ssize_t n) noexcept nogil:
    """Write one argument by reference; the argument's memory must stay valid and unchanged."""
    cdef Py_ssize_t room = max(2 * out.n_references, 4)
    cdef Reference *references = out.references
    if out.n_references == out.max_references:
        references = <Reference *>realloc(references, room * sizeof(Reference))
        if references is NULL:
            return NULL
        out.references, out.max_references = references, room
    p = reserve(out, p, HEADER_ROOM + 2)
    if p is NULL:
        return NULL
    p = put_header(p, c'$', n)
    references += out.n_references
    references.data, references.size, references.offset = data, n, p - out.base
    references.owner = NULL
    out.n_references += 1
    out.extra += n
    return put_crlf(p)


cdef Py_ssize_t offset_of(Out *out, Py_ssize_t place) noexcept nogil:
    """Convert a stream offset into an offset in the Out's memory, which has no large values."""
    cdef Py_ssize_t i
    for i in range(out.n_references):
        if out.references[i].offset >= place:
            break
        place -= out.references[i].size
    return place


cdef void move_references(Out *out, Py_ssize_t start, Py_ssize_t by) noexcept nogil:
    """Adjust the references after the offset ``start``, because the bytes there were moved."""
    cdef Py_ssize_t i
    for i in range(out.n_references):
        if out.references[i].offset > start:
            out.references[i].offset += by
