# cython: language_level=3, cdivision=True
"""Memory for RESP: a growable buffer of whole commands, and the chunks cut from it."""

from cpython.array cimport array, clone, resize
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, realloc


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


cdef int prepare_headers() except -1:
    cdef Py_ssize_t n
    cdef char *end
    for n in range(READY_HEADERS):
        ready_headers[n][0] = c'$'
        end = put_crlf(put_digits(&ready_headers[n][1], n))
        ready_headers[n][7] = <char>(end - ready_headers[n])
    return 0


prepare_headers()


cdef class Spare:
    """Memory that a chunk has left for the next: fresh pages cost half as much as the encoding."""

    def __dealloc__(self):
        free(self.data)


cdef class Chunk:
    """Whole commands as RESP, a read-only buffer of bytes.

    Attributes:
        first_command: index of its first command in the stream.
        ends: array of int64, the end offset of each command in this chunk.
        rows: array of int64, the index of the source row that each command came from.
    """

    def __dealloc__(self):
        if self.spare is not None and self.spare.data is NULL:
            self.spare.data = self.data
        else:
            free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __repr__(self):
        commands = f"{len(self.ends):,} commands from {self.first_command:,}"
        return f"<Chunk of {commands}, {self.size:,} bytes>"


cdef class Buffer:
    """A growable buffer that knows where commands end, and nothing of what they mean."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.start_capacity = start_capacity
        self.spare = Spare()
        self.renew()

    def __dealloc__(self):
        free(self.data)

    cdef int renew(self) except -1:
        self.data = self.spare.data
        self.spare.data = NULL
        if self.data is NULL:
            self.data = fresh_memory(self.start_capacity)
        if self.data is NULL:
            raise MemoryError(f"no memory for a buffer of {self.start_capacity:,} bytes")
        self.capacity = self.start_capacity
        self.size = self.commands = self.room = 0
        self.ends = self.rows = None
        return 0

    cdef int grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t capacity = max(self.size + n, self.capacity + self.capacity // 2)
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

    cdef Chunk take(self):
        """Hand over the whole commands as a chunk and begin anew with fresh memory."""
        cdef Chunk chunk = Chunk()
        resize(self.ends, self.commands)
        resize(self.rows, self.commands)
        chunk.ends = self.ends
        chunk.rows = self.rows
        chunk.first_command = self.first_command
        chunk.size = self.size
        chunk.data = self.data
        chunk.spare = self.spare if self.capacity == self.start_capacity else None
        self.data = NULL
        self.first_command += self.commands
        self.renew()
        return chunk
