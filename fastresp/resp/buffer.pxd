from cpython.array cimport array
from libc.string cimport memcpy, memmove


cdef extern from *:
    """
    #if defined(__GNUC__)
    /* Three cache lines, about a kilobyte ahead of where the next command goes. */
    static inline void fastresp_prefetch(const char *p) {
        __builtin_prefetch(p + 1024, 1);
        __builtin_prefetch(p + 1088, 1);
        __builtin_prefetch(p + 1152, 1);
    }
    #else
    #define fastresp_prefetch(p)
    #endif
    """
    # Saves a sixth of the time of a command: a chunk does not stay in the first cache.
    void prefetch "fastresp_prefetch"(const char *p) noexcept nogil


cdef extern from *:
    """
    /* More than 16 bytes, and not many; what overlaps at the end is written twice. */
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
    /* Not inline: where GCC knows that n is not too large it writes 'rep movsq', which takes
       30 cycles to begin with. */
    #if defined(__GNUC__)
    __attribute__((noinline, unused))
    #endif
    static void fastresp_copy_long(char *to, const char *from, Py_ssize_t n) {
        memcpy(to, from, n);
    }
    """
    void copy_long "fastresp_copy_long"(char *to, const char *data, Py_ssize_t n) noexcept nogil
    # Of 129 bytes in a third of the time of memcpy: that is called by way of a table, and asks
    # first what it has to do with.
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
    /* How many decimal digits a number has: its bits are 0.301 digits each, and one too few. */
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


# "$n" and CRLF for every n below 1,024, each with its width in the last of 8 bytes: written
# by one store, where dividing out the digits took a third of the time of a command.
cdef enum:
    READY_HEADERS = 1024
cdef char ready_headers[READY_HEADERS][8]


cdef enum:
    SPARES = 8
    COPIED_HERE = 256


cdef class Spare:
    cdef char *data[SPARES]             # owned, from malloc
    cdef int count
    cdef char *pop(self) noexcept
    cdef int push(self, char *data) noexcept


cdef class Payload:
    cdef object value                   # a str or bytes, which nobody can change
    cdef const char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t offset              # where in the buffer it belongs
    cdef Py_ssize_t start               # where in the stream of the chunk


cdef class Chunk:
    cdef char *data                     # owned, from malloc
    cdef Py_ssize_t capacity            # bytes allocated
    cdef Spare spare                    # where the memory goes in the end; None to free it
    cdef Py_ssize_t size                # bytes of whole commands
    cdef list payloads                  # None, or the large arguments that are not among them
    cdef bytes joined                   # all in one, once somebody has asked for that
    cdef readonly Py_ssize_t first_command
    cdef readonly array ends            # 'q': end offset of each command
    cdef readonly array rows            # 'q': source row of each command
    cdef Py_ssize_t total(self) noexcept


cdef class Buffer:
    cdef char *data                     # owned, from malloc
    cdef Py_ssize_t size                # bytes in use
    cdef Py_ssize_t capacity            # bytes allocated
    cdef Py_ssize_t start_capacity      # bytes that fresh memory has
    cdef Spare spare                    # memory of that size to use again
    cdef Py_ssize_t large               # arguments from this size on are not copied
    cdef Py_ssize_t most                # arguments beyond this size are refused
    cdef list payloads                  # None, or the arguments that were not copied
    cdef Py_ssize_t extra               # their bytes
    cdef Py_ssize_t commands            # whole commands in this buffer
    cdef Py_ssize_t first_command       # index of its first command in the stream
    cdef Py_ssize_t argument            # index of the argument being written, -1 between them
    cdef object checked_name            # a command name that has been found harmless
    cdef Py_ssize_t room                # commands that ends and rows have room for
    cdef array ends                     # None until the first command ends
    cdef array rows
    cdef int renew(self) noexcept
    cdef int grow(self, Py_ssize_t n) except -1
    cdef int grow_marks(self) except -1
    cdef int put_payload(self, object value, const char *data, Py_ssize_t n) except -1
    cdef int move_payloads(self, Py_ssize_t start, Py_ssize_t by) except -1
    cdef int drop_payloads(self, Py_ssize_t size) noexcept
    cdef Chunk take(self)


cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX


cdef int refuse(Buffer b, Py_ssize_t n) except -1


cdef inline int reserve(Buffer b, Py_ssize_t n) except -1:
    """Make room for n more bytes."""
    if b.capacity - b.size < n:
        b.grow(n)
    return 0


cdef inline char *put_digits(char *p, unsigned long long n) noexcept nogil:
    """Write n in decimal and return the end. At most 20 bytes."""
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
    """The same for a number that may be negative. At most 20 bytes."""
    if n < 0:
        p[0] = c'-'
        return put_digits(p + 1, 0 - <unsigned long long>n)
    return put_digits(p, <unsigned long long>n)


cdef inline char *put_crlf(char *p) noexcept nogil:
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline char *put_header(char *p, char kind, Py_ssize_t n) noexcept nogil:
    """Write '*n' or '$n' and CRLF. Needs room for 24 bytes."""
    if n < READY_HEADERS:
        memcpy(p, &ready_headers[n], 8)
        p[0] = kind
        return p + ready_headers[n][7]
    p[0] = kind
    return put_crlf(put_digits(p + 1, <unsigned long long>n))


cdef inline char *put_payload(char *p, const char *data, Py_ssize_t n) noexcept nogil:
    """memcpy, without the call where the payload is short (half the cost for a key)."""
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


cdef inline int put_raw(Buffer b, const char *data, Py_ssize_t n) except -1:
    """Append bytes as they are."""
    reserve(b, n)
    put_payload(b.data + b.size, data, n)
    b.size += n
    return 0


cdef inline int put_bulk(Buffer b, const char *data, Py_ssize_t n) except -1:
    """Append one bulk string: one argument."""
    if n > b.most:
        refuse(b, n)
    reserve(b, n + 32)
    cdef char *p = put_header(b.data + b.size, c'$', n)
    b.size = put_crlf(put_payload(p, data, n)) - b.data
    return 0


cdef inline int open_header(Buffer b, int digits) except -1:
    """Leave room for a header of that many digits, whose number is not known yet."""
    reserve(b, digits + 3)
    b.size += digits + 3
    return 0


cdef inline int close_header(
    Buffer b, Py_ssize_t start, char kind, int digits, Py_ssize_t n
) except -1:
    """Fill in the header opened at start; return the digits it took, a good guess for the next.

    A wrong guess costs one memmove of what was written since.
    """
    cdef char header[32]
    if n > b.most and kind == c'$':
        refuse(b, n)
    cdef Py_ssize_t have = digits + 3
    cdef Py_ssize_t need = put_header(header, kind, n) - header
    if need != have:
        reserve(b, need)
        memmove(b.data + start + need, b.data + start + have, b.size - start - have)
        b.size += need - have
        if b.payloads is not None:
            b.move_payloads(start, need - have)
    memcpy(b.data + start, header, need)
    return <int>need - 3


cdef inline int end_command(Buffer b, Py_ssize_t row) except -1:
    """Mark the end of a whole command that came from that source row."""
    if b.commands == b.room:
        b.grow_marks()
    b.ends.data.as_longlongs[b.commands] = b.size + b.extra
    b.rows.data.as_longlongs[b.commands] = row
    b.commands += 1
    prefetch(b.data + b.size)
    return 0


cdef inline void cut(Buffer b, Py_ssize_t size) noexcept:
    """Take back what was written beyond so many bytes of the buffer."""
    b.size = size
    if b.payloads is not None:
        b.drop_payloads(size)


cdef inline void rollback(Buffer b, Py_ssize_t commands) noexcept:
    """Cut back to the end of that many whole commands."""
    cdef Py_ssize_t end = b.ends.data.as_longlongs[commands - 1] if commands else 0
    b.commands = commands
    if b.payloads is None:
        b.size = end
    else:
        while b.payloads and (<Payload>b.payloads[-1]).start >= end:
            b.extra -= (<Payload>b.payloads.pop()).size
        b.size = end - b.extra
