from cpython.array cimport array

from .out cimport (
    Out,
    Reference,
    close_header,
    cut,
    full_size,
    offset_of,
    prefetch,
    put_bulk,
    put_copy,
    reserve,
)


cdef enum:
    SPARES = 8


cdef class Spare:
    cdef char *data[SPARES]             # owned, from malloc
    cdef int count
    cdef char *pop(self) noexcept
    cdef int push(self, char *data) noexcept


cdef class Chunk:
    cdef char *data                     # owned, from malloc
    cdef Py_ssize_t capacity            # number of bytes allocated
    cdef Spare spare                    # receives the memory after use; None to free the memory
    cdef Py_ssize_t size                # number of bytes of whole commands
    cdef Reference *references          # uncopied large arguments; owned, including their owners
    cdef Py_ssize_t n_references
    cdef bytes joined                   # all bytes in one object, built on request
    cdef readonly Py_ssize_t first_command
    cdef readonly array ends            # 'q': end offset of each command
    cdef readonly array rows            # 'q': source row of each command
    cdef readonly int lane              # index of the connection for the chunk; -1 for any
    cdef readonly array places          # 'q': source index of each command; None if consecutive
    cdef array done                     # 'q': rows covered up to each command; None for 1, 2, 3...
    cdef Py_ssize_t rows_before         # number of rows covered by earlier chunks of all lanes
    cdef public bint fence              # whether later chunks wait for the replies to this chunk
    cdef public bint answered           # for a fence, whether all replies have arrived
    cdef public bint refused            # for a fence, whether the last reply is an error
    cdef public bint existed            # for a fence, whether the error says that the key exists
    cdef Py_ssize_t total(self) noexcept


cdef class Buffer:
    cdef Out out
    cdef Py_ssize_t owned               # number of references with a counted owner
    cdef Py_ssize_t start_capacity      # number of bytes to allocate at first
    cdef Spare spare                    # memory of start_capacity bytes, for reuse
    cdef Py_ssize_t commands            # number of whole commands in this buffer
    cdef Py_ssize_t first_command       # stream index of this buffer's first command
    cdef Py_ssize_t nulls_left_out      # number of nulls left out of the stream's whole commands
    cdef Py_ssize_t deletes             # number of commands so far that delete null fields
    cdef Py_ssize_t argument            # index of the current argument; -1 between arguments
    cdef object checked_name            # the last command name that passed the check
    cdef Py_ssize_t room                # capacity of ends and rows, in commands
    cdef array ends                     # None until the first command ends
    cdef array rows
    cdef int renew(self) noexcept
    cdef int grow_marks(self) except -1
    cdef int own(self, object owner) noexcept
    cdef int disown(self) noexcept
    cdef Chunk take(self)
    cdef Chunk take_as(self, Chunk chunk)


cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX


cdef int refuse(Buffer b, Py_ssize_t n) except -1
cdef char *no_memory(Buffer b, Py_ssize_t n) except NULL
cdef int append_reference(Buffer b, object owner, const char *data, Py_ssize_t n) except -1


cdef inline char *make_room(Buffer b, Py_ssize_t n) except NULL:
    """Make room for n more bytes; return the address to write to."""
    cdef char *p = reserve(&b.out, b.out.p, n)
    return no_memory(b, n) if p is NULL else p


cdef inline int append(Buffer b, const char *data, Py_ssize_t n) except -1:
    """Append bytes as they are."""
    b.out.p = put_copy(make_room(b, n), data, n)
    return 0


cdef inline int append_bulk(Buffer b, const char *data, Py_ssize_t n) except -1:
    """Append one argument as a bulk string."""
    if n > b.out.most:
        refuse(b, n)
    b.out.p = put_bulk(make_room(b, n + 32), data, n)
    return 0


cdef inline int open_header(Buffer b, int digits) except -1:
    """Leave room for a header with a number that is not known yet, of about ``digits`` digits."""
    b.out.p = make_room(b, digits + 3) + digits + 3
    return 0


cdef inline int end_header(
    Buffer b, Py_ssize_t start, char kind, Py_ssize_t n, int *digits
) except -1:
    """Fill in a header left open at the offset ``start``; other arguments as for fill_header()."""
    if n > b.out.most and kind == c'$':
        refuse(b, n)
    cdef char *p = close_header(&b.out, start, b.out.p, kind, n, digits)
    if p is NULL:
        no_memory(b, 0)
    b.out.p = p
    return 0


cdef int put_with_large(
    Buffer out, const char *base, const char *start, const char *end, const Reference *first,
    const Reference *stop,
) except -1


cdef inline int end_command(Buffer b, Py_ssize_t row) except -1:
    """Record the end of a whole command, and the index of its source row."""
    if b.commands == b.room:
        b.grow_marks()
    b.ends.data.as_longlongs[b.commands] = full_size(&b.out)
    b.rows.data.as_longlongs[b.commands] = row
    b.commands += 1
    prefetch(b.out.p)
    return 0


cdef inline void take_back(Buffer b, Py_ssize_t size) noexcept:
    """Truncate the buffer to ``size`` bytes."""
    cut(&b.out, size)
    if b.owned > b.out.n_references:
        b.disown()


cdef inline void rollback(Buffer b, Py_ssize_t commands) noexcept:
    """Truncate to the first ``commands`` whole commands."""
    b.commands = commands
    take_back(b, offset_of(&b.out, b.ends.data.as_longlongs[commands - 1] if commands else 0))
