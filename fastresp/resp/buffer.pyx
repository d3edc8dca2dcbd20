# cython: language_level=3, cdivision=True
"""Memory for RESP: one growing buffer, with or without the GIL, and chunks cut from the buffer."""

cimport cython
from cpython.array cimport array, clone, resize
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from ..outcome.errors import EncodeError


cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Request a huge page for memory of a chunk's size: otherwise, address translation costs a
       tenth of the time per command. */
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

cdef enum:
    # Bytes around a large argument in addition to the length's digits: "$" and CRLF.
    AROUND = 3
    CRLF = 2

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


cdef int refuse(Buffer b, Py_ssize_t n) except -1:
    """Raise the error for an argument of n bytes, which is larger than the server accepts."""
    raise EncodeError(
        f"an argument of {n:,} bytes is more than the {b.out.most:,} that the server accepts; "
        "split it, or raise the server's proto-max-bulk-len"
    )


cdef char *no_memory(Buffer b, Py_ssize_t n) except NULL:
    raise MemoryError(f"no memory for a buffer of {own_size(&b.out) + n:,} bytes")


cdef int append_reference(Buffer b, object owner, const char *data, Py_ssize_t n) except -1:
    """Append one argument without copying it; ``owner``, which owns the data, must be immutable."""
    if n > b.out.most:
        refuse(b, n)
    cdef char *p = put_reference(&b.out, b.out.p, data, n)
    if p is NULL:
        no_memory(b, 0)
    b.out.p = p
    b.own(owner)
    return 0


cdef int put_with_large(
    Buffer out, const char *base, const char *start, const char *end, const Reference *first,
    const Reference *stop,
) except -1:
    """Append a command without copying its large arguments.

    Args:
        base: the memory of the command's chunk.
        start, end: the command in this memory, which does not contain the large arguments.
        first, stop: the range of the command's large arguments.
    """
    cdef const Reference *large = first
    cdef const char *at
    while large < stop:
        at = base + large.offset
        append(out, start, at - digits(large.size) - AROUND - start)
        append_reference(out, <object>large.owner, large.data, large.size)
        start = at + CRLF
        large += 1
    return append(out, start, end - start)


cdef class Spare:
    """Keeps the memory of used chunks: getting fresh memory would take half the encoding time.

    A chunk returns its memory in the thread that releases the chunk.
    """

    def __dealloc__(self):
        while self.count:
            free(self.pop())

    cdef char *pop(self) noexcept:
        with cython.critical_section(self):
            if self.count == 0:
                return NULL
            self.count -= 1
            return self.data[self.count]

    cdef int push(self, char *data) noexcept:
        with cython.critical_section(self):
            if self.count == SPARES:
                free(data)
            else:
                self.data[self.count] = data
                self.count += 1
        return 0


cdef class Chunk:
    """Whole commands as RESP, readable through the buffer protocol.

    Each command gets one reply; in a MergedChunk, one reply may answer several commands.

    Attributes:
        first_command: index in the stream of the chunk's first command.
        ends: array of int64, for each reply the end offset of the commands that it answers.
        rows: array of int64, the index of the source row of each command.
    """

    def __cinit__(self):
        self.lane = -1

    def __dealloc__(self):
        if self.spare is not None:
            self.spare.push(self.data)
        else:
            free(self.data)
        cdef Py_ssize_t i
        for i in range(self.n_references):
            Py_XDECREF(self.references[i].owner)
        free(self.references)

    def __len__(self):
        return self.total()

    cdef Py_ssize_t total(self) noexcept:
        cdef Py_ssize_t n = len(self.ends)
        return self.ends.data.as_longlongs[n - 1] if n else 0

    @property
    def memory(self):
        """The memory of the chunk in bytes, without large arguments that the user owns."""
        marks = 16 if self.done is None else 32
        return self.capacity + marks * len(self.ends) + (len(self.joined) if self.joined else 0)

    @property
    def commands(self):
        """The number of commands."""
        return len(self.ends)

    def place(self, index):
        """Return the source index of one of the chunk's commands."""
        return self.first_command + index if self.places is None else self.places[index]

    def rows_after(self, commands):
        """Return the number of rows covered up to this chunk's first ``commands`` commands.

        Rows of earlier chunks are counted. A command covers its own row, and any rows directly
        before it that made no commands.
        """
        if self.done is None:
            return self.rows[commands - 1] + 1 if self.lane < 0 else self.rows_before + commands
        return self.rows_before + self.done[commands - 1]

    def covered(self, replies):
        """Return the number of commands that the first ``replies`` replies answer."""
        return replies

    def within(self, commands):
        """Return how many leading replies together answer at most ``commands`` commands."""
        return min(commands, len(self.ends))

    def parts(self, at):
        """Return the indices of the commands that a reply answers."""
        return range(at, at + 1)

    def command(self, at, part):
        """Return the bytes of one of the commands that a reply answers.

        Args:
            at: index of the reply.
            part: index of the command.
        """
        cdef Py_ssize_t start = self.ends[at - 1] if at else 0, end = self.ends[at]
        cdef list pieces = []
        while start < end:
            pieces.append(self.piece(start, end))
            start += len(pieces[-1])
        return b"".join(pieces)

    def piece(self, Py_ssize_t start, Py_ssize_t end):
        """Return the bytes from ``start`` to ``end``, or only to the next edge of a large argument.

        Returns:
            A memoryview; empty only if ``start`` equals ``end``.
        """
        cdef Reference *large
        cdef Py_ssize_t before = 0, at, i
        end = min(end, self.total())
        start = min(start, end)
        for i in range(self.n_references):
            large = &self.references[i]
            at = large.offset + before
            if start < at:
                end = min(end, at)
                break
            if start < at + large.size:
                end = min(end, at + large.size)
                return memoryview(Part.of(self, large.data + start - at, end - start))
            before += large.size
        return memoryview(Part.of(self, self.data + start - before, end - start))

    def pieces(self):
        """Return all bytes of the chunk, as a list of memoryviews."""
        cdef Py_ssize_t at = 0
        cdef list pieces = []
        while at < self.total():
            pieces.append(self.piece(at, self.total()))
            at += len(pieces[-1])
        return pieces

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.n_references == 0:
            export(self, self.data, self.size, view, flags)
            return
        if self.joined is None:
            joined = b"".join(self.pieces())
            with cython.critical_section(self):
                if self.joined is None:
                    self.joined = joined
        export(self, <char *>self.joined, self.total(), view, flags)

    def __repr__(self):
        commands = f"{self.commands:,} commands from {self.first_command:,}"
        return f"<Chunk of {commands}, {len(self):,} bytes>"


cdef class Part:
    """A range of a chunk's bytes, in the chunk's memory or in a large argument."""

    cdef Chunk chunk
    cdef const char *data
    cdef Py_ssize_t size

    @staticmethod
    cdef Part of(Chunk chunk, const char *data, Py_ssize_t size):
        cdef Part part = Part()
        part.chunk = chunk
        part.data = data
        part.size = size
        return part

    def __getbuffer__(self, Py_buffer *view, int flags):
        export(self, <char *>self.data, self.size, view, flags)


cdef int export(object owner, char *data, Py_ssize_t size, Py_buffer *view, int flags) except -1:
    """Fill in a read-only buffer view."""
    if flags & PyBUF_WRITABLE:
        raise BufferError("a Chunk is read-only; copy it to change it, as in bytearray(chunk)")
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
    """A growable buffer that records where each command ends."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.start_capacity = start_capacity
        self.out.large = self.out.most = PY_SSIZE_T_MAX
        self.spare = Spare()
        self.renew()

    def __dealloc__(self):
        take_back(self, 0)
        free(self.out.base)
        free(self.out.references)

    cdef int renew(self) noexcept:
        """Start an empty buffer in new memory; if allocation fails, the next write tries again."""
        cdef Out *out = &self.out
        self.commands = self.room = self.owned = 0
        self.ends = self.rows = None
        out.references = NULL
        out.n_references = out.max_references = out.extra = 0
        out.base = self.spare.pop()
        if out.base is NULL:
            out.base = fresh_memory(self.start_capacity)
        out.p = out.end = out.base
        if out.base is not NULL:
            out.end += self.start_capacity
        return 0

    cdef int grow_marks(self) except -1:
        cdef Py_ssize_t room = self.room + self.room // 2
        if self.room:
            resize(self.ends, room)
            resize(self.rows, room)
        else:
            # A typical command has 128 bytes, so each array has a sixteenth of the buffer's size.
            room = self.start_capacity // 128 + 16
            self.ends = clone(LONGLONGS, room, False)
            self.rows = clone(LONGLONGS, room, False)
        self.room = room
        return 0

    cdef int own(self, object owner) noexcept:
        """Set the owner of the references added since the last call, and keep the owner alive."""
        while self.owned < self.out.n_references:
            Py_INCREF(owner)
            self.out.references[self.owned].owner = <PyObject *>owner
            self.owned += 1
        return 0

    cdef int disown(self) noexcept:
        """Release the owners of dropped references."""
        while self.owned > self.out.n_references:
            self.owned -= 1
            Py_XDECREF(self.out.references[self.owned].owner)
        return 0

    cdef Chunk take(self):
        """Return the whole commands as a chunk, and empty the buffer."""
        return self.take_as(Chunk())

    cdef Chunk take_as(self, Chunk chunk):
        """Move the whole commands into ``chunk``, empty the buffer, and return ``chunk``."""
        cdef Out *out = &self.out
        cdef bint usual = capacity(out) == self.start_capacity
        resize(self.ends, self.commands)
        resize(self.rows, self.commands)
        chunk.ends = self.ends
        chunk.rows = self.rows
        chunk.first_command = self.first_command
        chunk.references = out.references
        chunk.n_references = out.n_references
        chunk.size = chunk.capacity = own_size(out)
        self.first_command += self.commands
        if chunk.size * 4 < capacity(out):
            # Copy a small chunk out of large memory, so that chunks in flight keep less memory.
            chunk.data = <char *>malloc(chunk.size or 1)
            if chunk.data is not NULL:
                memcpy(chunk.data, out.base, chunk.size)
                if usual:
                    self.spare.push(out.base)
                else:
                    free(out.base)
                self.renew()
                return chunk
        chunk.data = out.base
        chunk.capacity = capacity(out)
        chunk.spare = self.spare if usual else None
        self.renew()
        return chunk
