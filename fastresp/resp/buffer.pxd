"""Write RESP into one growing buffer, with or without the GIL.

Functions with a ``char *p`` write at p and return the end of the written bytes. Callers keep p in
a local variable, since the compiler must assume that writing through p could change the Out. NULL
means out of memory; the caller that holds the GIL raises MemoryError.
"""

from cpython.array cimport array
from cpython.object cimport PyObject
from libc.string cimport memcpy, memmove


cdef extern from *:
    """
    #if defined(__GNUC__)
    /* Three cache lines, about 1 KiB beyond the write position. */
    static inline void fastresp_prefetch(const char *p) {
        __builtin_prefetch(p + 1024, 1);
        __builtin_prefetch(p + 1088, 1);
        __builtin_prefetch(p + 1152, 1);
    }
    #else
    #define fastresp_prefetch(p)
    #endif
    """
    # Saves a sixth of the time per command: a chunk does not fit into the L1 cache.
    void prefetch "fastresp_prefetch"(const char *p) noexcept nogil


cdef extern from *:
    """
    /* Copy at least 17 bytes, but not many; the last copied block may overlap its predecessor. */
    static inline void fastresp_copy(char *to, const char *from, Py_ssize_t n) {
        Py_ssize_t at = 0;
        if (n < 32) {
            memcpy(to, from, 16);
            memcpy(to + n - 16, from + n - 16, 16);
            return;
        }
        for (; at + 64 < n; at += 64)
            memcpy(to + at, from + at, 64);
        if (n - at > 32)
            memcpy(to + at, from + at, 32);
        memcpy(to + n - 32, from + n - 32, 32);
    }
    /* Not inline: if GCC knows that n is small enough, it emits 'rep movsq', which needs
       30 cycles to start. */
    #if defined(__GNUC__)
    __attribute__((noinline, unused))
    #endif
    static void fastresp_copy_long(char *to, const char *from, Py_ssize_t n) {
        memcpy(to, from, n);
    }
    """
    void copy_long "fastresp_copy_long"(char *to, const char *data, Py_ssize_t n) noexcept nogil
    # Needs a third of memcpy's time for 129 bytes: memcpy is called through a table and first
    # dispatches on the size.
    void copy_short "fastresp_copy"(char *to, const char *data, Py_ssize_t n) noexcept nogil


cdef extern from *:
    """
    #include <stdint.h>
    static const char fastresp_pairs[201] =
        "00010203040506070809101112131415161718192021222324"
        "25262728293031323334353637383940414243444546474849"
        "50515253545556575859606162636465666768697071727374"
        "75767778798081828384858687888990919293949596979899";
    static const uint64_t fastresp_powers[20] = {
        0, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
        100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000, 10000000000000000000u,
    };
    /* The number of decimal digits: 0.301 per bit, corrected by one with the table of powers. */
    static inline int fastresp_digits(uint64_t number) {
        int bits = 1, guess;
    #if defined(__GNUC__)
        bits = 64 - __builtin_clzll(number | 1);
    #else
        while (bits < 64 && number >> bits) bits++;
    #endif
        guess = bits * 1233 >> 12;
        return guess + (number >= fastresp_powers[guess]);
    }
    """
    const char *PAIRS "fastresp_pairs"
    int digits "fastresp_digits"(unsigned long long number) noexcept nogil


cdef enum:
    COPIED_HERE = 256
    # The size of the longest header.
    HEADER_ROOM = 24
    READY_HEADERS = 1024

# "$n" and CRLF for every n below 1,024, with the header's width in the last of 8 bytes. One store
# writes a header; computing the digits took a third of the time per command.
cdef char ready_headers[READY_HEADERS][8]


# A large value that is not copied: a second copy of 512 MB would need too much memory.
cdef struct Reference:
    const char *data
    Py_ssize_t size
    Py_ssize_t offset           # where the value belongs in the Out's memory
    PyObject *owner             # keeps the value alive; NULL until set with the GIL held


cdef struct Out:
    char *base                  # owned, from malloc
    char *p                     # where to write the next byte
    char *end                   # end of the allocated memory
    Reference *references       # owned: the large values, in stream order
    Py_ssize_t n_references
    Py_ssize_t max_references  # number of allocated entries
    Py_ssize_t extra            # total size of the large values in bytes
    Py_ssize_t large            # arguments of at least this size need not be copied
    Py_ssize_t most             # arguments larger than this are rejected


cdef char *grow(Out *out, char *p, Py_ssize_t n) noexcept nogil
cdef char *put_reference(Out *out, char *p, const char *data, Py_ssize_t n) noexcept nogil
cdef Py_ssize_t offset_of(Out *out, Py_ssize_t place) noexcept nogil
cdef void move_references(Out *out, Py_ssize_t start, Py_ssize_t by) noexcept nogil


cdef inline Py_ssize_t own_size(Out *out) noexcept nogil:
    """Return the number of bytes written, not counting large values."""
    return out.p - out.base


cdef inline Py_ssize_t full_size(Out *out) noexcept nogil:
    """Return the number of bytes written, counting large values."""
    return out.p - out.base + out.extra


cdef inline Py_ssize_t capacity(Out *out) noexcept nogil:
    """Return the number of bytes allocated."""
    return out.end - out.base


cdef inline char *reserve(Out *out, char *p, Py_ssize_t n) noexcept nogil:
    """Make room for n more bytes at p; return the new p."""
    return p if out.end - p >= n else grow(out, p, n)


cdef inline void cut(Out *out, Py_ssize_t size) noexcept nogil:
    """Truncate the memory to ``size`` bytes, and drop the large values after this offset."""
    out.p = out.base + size
    while out.n_references and out.references[out.n_references - 1].offset > size:
        out.n_references -= 1
        out.extra -= out.references[out.n_references].size


cdef inline char *put_digits(char *p, unsigned long long n) noexcept nogil:
    """Write n in decimal: at most 20 bytes."""
    cdef char *end = p + digits(n)
    p = end
    while n >= 100:
        p -= 2
        memcpy(p, &PAIRS[2 * (n % 100)], 2)
        n //= 100
    if n >= 10:
        memcpy(p - 2, &PAIRS[2 * n], 2)
    else:
        p[-1] = <char>(48 + n)
    return end


cdef inline char *put_signed(char *p, long long n) noexcept nogil:
    """Write a signed number in decimal: at most 20 bytes."""
    if n < 0:
        p[0] = c'-'
        return put_digits(p + 1, 0 - <unsigned long long>n)
    return put_digits(p, <unsigned long long>n)


cdef inline char *put_crlf(char *p) noexcept nogil:
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline char *put_copy(char *p, const char *data, Py_ssize_t n) noexcept nogil:
    """Copy bytes. Not calling memcpy() for short data halves the cost of a key."""
    if n > COPIED_HERE:
        copy_long(p, data, n)
    elif n > 16:
        copy_short(p, data, n)
    elif n >= 8:
        memcpy(p, data, 8)
        memcpy(p + n - 8, data + n - 8, 8)
    elif n >= 4:
        memcpy(p, data, 4)
        memcpy(p + n - 4, data + n - 4, 4)
    elif n:
        p[0] = data[0]
        p[n >> 1] = data[n >> 1]
        p[n - 1] = data[n - 1]
    return p + n


cdef inline char *put_header(char *p, char kind, Py_ssize_t n) noexcept nogil:
    """Write '*n' or '$n' and CRLF. Needs room for HEADER_ROOM bytes."""
    if n < READY_HEADERS:
        memcpy(p, &ready_headers[n], 8)
        p[0] = kind
        return p + ready_headers[n][7]
    p[0] = kind
    return put_crlf(put_digits(p + 1, <unsigned long long>n))


cdef inline char *put_bulk(char *p, const char *data, Py_ssize_t n) noexcept nogil:
    """Write one argument as a bulk string. Needs room for n + 32 bytes."""
    return put_crlf(put_copy(put_header(p, c'$', n), data, n))


cdef inline char *fill_header(
    char *p, char *end, char kind, Py_ssize_t n, int *digits
) noexcept nogil:
    """Fill in a header once its number is known; return the end of the header's content.

    If the guessed number of digits is wrong, the content is moved. There must be room for
    HEADER_ROOM bytes after the content.

    Args:
        p: start of the ``digits`` + 3 bytes that are reserved for the header.
        end: end of the content, which follows the header.
        digits: the guessed number of digits; updated to the actual number, for the next guess.
    """
    cdef char long_header[32]
    cdef const char *header = long_header
    cdef Py_ssize_t have = digits[0] + 3, need
    if n < READY_HEADERS:
        header = ready_headers[n]
        need = header[7]
    else:
        need = put_header(long_header, c'$', n) - long_header
    if need != have:
        memmove(p + need, p + have, end - p - have)
        digits[0] = <int>need - 3
    if need <= 8:
        memcpy(p, header, 4)
        memcpy(p + need - 4, header + need - 4, 4)
    else:
        memcpy(p, header, need)
    if kind != c'$':
        p[0] = kind
    return end + need - have


cdef inline char *fill_bulk(char *p, char *end, int *digits) noexcept nogil:
    """Fill in the header of an argument, and end the argument with CRLF."""
    return put_crlf(fill_header(p, end, c'$', end - p - digits[0] - 3, digits))


cdef inline char *close_header(
    Out *out, Py_ssize_t start, char *end, char kind, Py_ssize_t n, int *digits
) noexcept nogil:
    """Fill in the header at the offset ``start``; large values may follow the header."""
    cdef char *moved
    end = reserve(out, end, HEADER_ROOM)
    if end is NULL:
        return NULL
    moved = fill_header(out.base + start, end, kind, n, digits)
    if moved != end:
        move_references(out, start, moved - end)
    return moved


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
    cdef public bint existed            # for a fence, whether that error says that the key exists
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


cdef inline void mark_command(Buffer b, Py_ssize_t row) noexcept nogil:
    """Like ``end_command()``, but requires room: ``commands`` must be less than ``room``."""
    b.ends.data.as_longlongs[b.commands] = full_size(&b.out)
    b.rows.data.as_longlongs[b.commands] = row
    b.commands += 1
    prefetch(b.out.p)


cdef inline int end_command(Buffer b, Py_ssize_t row) except -1:
    """Record the end of a whole command, and the index of its source row."""
    if b.commands == b.room:
        b.grow_marks()
    mark_command(b, row)
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
