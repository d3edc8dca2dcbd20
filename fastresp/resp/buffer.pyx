# cython: language_level=3, cdivision=True
"""Memory for RESP: a growable buffer of whole commands, and the chunks cut from it."""

from cpython.array cimport array, clone, resize
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from ..outcome.errors import EncodeError


cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Memory of the size of a chunk is asked for as a huge page: a tenth of the time of a
       command goes into looking up pages otherwise. A wish, not a need. */
    static char *fastresp_fresh_memory(size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t huge = 1 << 21;
        void *memory;
        if (size > huge / 2 && size <= huge && posix_memalign(&memory, huge, huge) == 0) {
            (void)madvise(memory, huge, MADV_HUGEPAGE);
            return (char *)memory;
        }
    #endif
        return (char *)malloc(size);
    }
    """
    char *fresh_memory "fastresp_fresh_memory"(size_t size) noexcept

cdef array LONGLONGS = array("q")
cdef char *BYTES_FORMAT = b"B"


cdef int prepare_headers() except -1:
    cdef Py_ssize_t n
    cdef char *end
    for n in range(READY_HEADERS):
        ready_headers[n][0] = c'$'
        end = put_crlf(put_digits(&ready_headers[n][1], n))
        ready_headers[n][7] = <char>(end - ready_headers[n])
    return 0


prepare_headers()


cdef int refuse(Buffer b, Py_ssize_t n) except -1:
    """Raise for an argument that is larger than the server takes."""
    raise EncodeError(
        f"an argument of {n:,} bytes is more than the {b.most:,} that the server takes; split it, "
        "or raise the server's proto-max-bulk-len"
    )


cdef class Spare:
    """Memory that chunks have left for the next: fresh pages cost half as much as the encoding."""

    def __dealloc__(self):
        while self.count:
            free(self.pop())

    cdef char *pop(self) noexcept:
        if self.count == 0:
            return NULL
        self.count -= 1
        return self.data[self.count]

    cdef int push(self, char *data) noexcept:
        if self.count == SPARES:
            free(data)
        else:
            self.data[self.count] = data
            self.count += 1
        return 0


cdef class Payload:
    """A large argument that stays where it is: a second copy of 512 MB would be one too many."""

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        export(self, <char *>self.data, self.size, view, flags)


cdef class Chunk:
    """Whole commands as RESP, a read-only buffer of bytes.

    Attributes:
        first_command: index of its first command in the stream.
        ends: array of int64, the end offset of each command in this chunk.
        rows: array of int64, the index of the source row that each command came from.
    """

    def __dealloc__(self):
        if self.spare is not None:
            self.spare.push(self.data)
        else:
            free(self.data)

    def __len__(self):
        return self.total()

    cdef Py_ssize_t total(self) noexcept:
        cdef Py_ssize_t n = len(self.ends)
        return self.ends.data.as_longlongs[n - 1] if n else 0

    @property
    def memory(self):
        """Bytes of memory that the chunk takes, without large arguments of the user's own."""
        return self.capacity + 16 * len(self.ends)

    def piece(self, Py_ssize_t start, Py_ssize_t end):
        """Its bytes from one offset to another, or fewer: large arguments are pieces of their own.

        Returns:
            A memoryview, empty only if ``start`` is ``end``.
        """
        cdef Payload payload
        cdef Py_ssize_t before = 0, until
        end = min(end, self.total())
        start = min(start, end)
        if self.payloads is not None:
            for payload in self.payloads:
                until = payload.start + payload.size
                if start < payload.start:
                    end = min(end, payload.start)
                    break
                if start < until:
                    end = min(end, until)
                    return memoryview(payload)[start - payload.start:end - payload.start]
                before += payload.size
        return memoryview(Part.of(self, start - before, end - start))

    def pieces(self):
        """All its bytes, in pieces that follow one another."""
        cdef Py_ssize_t at = 0
        cdef list pieces = []
        while at < self.total():
            pieces.append(self.piece(at, self.total()))
            at += len(pieces[-1])
        return pieces

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.payloads is None:
            export(self, self.data, self.size, view, flags)
            return
        if self.joined is None:
            self.joined = b"".join(self.pieces())
        export(self, <char *>self.joined, self.total(), view, flags)

    def __repr__(self):
        commands = f"{len(self.ends):,} commands from {self.first_command:,}"
        return f"<Chunk of {commands}, {len(self):,} bytes>"


cdef class Part:
    """A stretch of a chunk's own memory."""

    cdef Chunk chunk
    cdef Py_ssize_t start
    cdef Py_ssize_t size

    @staticmethod
    cdef Part of(Chunk chunk, Py_ssize_t start, Py_ssize_t size):
        cdef Part part = Part()
        part.chunk = chunk
        part.start = start
        part.size = size
        return part

    def __getbuffer__(self, Py_buffer *view, int flags):
        export(self, self.chunk.data + self.start, self.size, view, flags)


cdef int export(object owner, char *data, Py_ssize_t size, Py_buffer *view, int flags) except -1:
    """Fill in a view of read-only bytes."""
    if flags & PyBUF_WRITABLE:
        raise BufferError("RESP that was made is not to be changed")
    view.obj = owner
    view.buf = data
    view.len = size
    view.readonly = True
    view.itemsize = 1
    view.format = BYTES_FORMAT if flags & PyBUF_FORMAT else NULL
    view.ndim = 1
    view.shape = &view.len if flags & PyBUF_ND else NULL
    view.strides = &view.itemsize if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
    view.suboffsets = NULL
    view.internal = NULL
    return 0


cdef class Buffer:
    """A growable buffer that knows where commands end, and nothing of what they mean."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.start_capacity = start_capacity
        self.large = self.most = PY_SSIZE_T_MAX
        self.spare = Spare()
        self.renew()

    def __dealloc__(self):
        free(self.data)

    cdef int renew(self) noexcept:
        """Begin anew, empty. Where there is no memory now, the next write asks again."""
        self.size = self.commands = self.room = self.capacity = self.extra = 0
        self.ends = self.rows = self.payloads = None
        self.data = self.spare.pop()
        if self.data is NULL:
            self.data = fresh_memory(self.start_capacity)
        if self.data is not NULL:
            self.capacity = self.start_capacity
        return 0

    cdef int grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t capacity = max(self.size + n, self.capacity + self.capacity // 2)
        if self.capacity == 0:
            capacity = max(n, self.start_capacity)
        cdef char *data = <char *>realloc(self.data, capacity)
        if data is NULL:
            raise MemoryError(f"no memory for a buffer of {capacity:,} bytes")
        self.data = data
        self.capacity = capacity
        return 0

    cdef int grow_marks(self) except -1:
        cdef Py_ssize_t room = self.room + self.room // 2
        if self.room:
            resize(self.ends, room)
            resize(self.rows, room)
        else:
            # 128 bytes is a usual command; the arrays cost a sixteenth of the buffer each.
            room = self.start_capacity // 128 + 16
            self.ends = clone(LONGLONGS, room, False)
            self.rows = clone(LONGLONGS, room, False)
        self.room = room
        return 0

    cdef int put_payload(self, object value, const char *data, Py_ssize_t n) except -1:
        """Append one argument without copying it; the value has to be one that can't change."""
        if n > self.most:
            refuse(self, n)
        reserve(self, 32)
        cdef Payload payload = Payload()
        self.size = put_header(self.data + self.size, c'$', n) - self.data
        payload.value = value
        payload.data = data
        payload.size = n
        payload.offset = self.size
        payload.start = self.size + self.extra
        if self.payloads is None:
            self.payloads = []
        self.payloads.append(payload)
        self.extra += n
        self.size = put_crlf(self.data + self.size) - self.data
        return 0

    cdef int move_payloads(self, Py_ssize_t start, Py_ssize_t by) except -1:
        """Follow the bytes behind an offset that were moved."""
        cdef Payload payload
        for payload in self.payloads:
            if payload.offset > start:
                payload.offset += by
                payload.start += by
        return 0

    cdef int drop_payloads(self, Py_ssize_t size) noexcept:
        """Drop those that came behind so many bytes of the buffer."""
        while self.payloads and (<Payload>self.payloads[-1]).offset > size:
            self.extra -= (<Payload>self.payloads.pop()).size
        return 0

    cdef Chunk take(self):
        """Hand over the whole commands as a chunk and begin anew."""
        cdef Chunk chunk = Chunk()
        resize(self.ends, self.commands)
        resize(self.rows, self.commands)
        chunk.ends = self.ends
        chunk.rows = self.rows
        chunk.first_command = self.first_command
        chunk.payloads = self.payloads
        chunk.size = chunk.capacity = self.size
        self.first_command += self.commands
        if self.size * 4 < self.capacity:
            # Much memory for little is copied, lest the chunks in flight hold it all.
            chunk.data = <char *>malloc(self.size or 1)
            if chunk.data is not NULL:
                memcpy(chunk.data, self.data, self.size)
                if self.capacity == self.start_capacity:
                    self.spare.push(self.data)
                else:
                    free(self.data)
                self.renew()
                return chunk
        chunk.data = self.data
        chunk.capacity = self.capacity
        chunk.spare = self.spare if self.capacity == self.start_capacity else None
        self.renew()
        return chunk
