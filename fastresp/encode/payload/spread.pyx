# cython: language_level=3, cdivision=True
"""Distribute serialised keys over the lanes of a cluster by key slot.

A lane is the index of the connection for a chunk.
"""

from cpython.array cimport clone
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from ...resp.buffer cimport Chunk
from ...resp.grammar cimport known_length_end
from ...resp.slots cimport SLOTS, key_slot
from ...resp.verbs cimport next_word
from .serialized_chunk cimport SerializedChunk
from .serializer cimport Serializer

cdef array LONGLONGS = array("q")


cdef class Spreader:
    """Splits chunks of keys into one chunk for each lane.

    The key is the first argument, as in all commands that create keys.

    Args:
        of_slots: the lane of each slot.
        serializer: the serializer that made the chunks. If it waits for the reply to a chunk, and
            the chunk is split, it waits for the reply to the last part instead.
    """

    def __cinit__(self, of_slots, Serializer serializer not None):
        self.serializer = serializer
        self.row = -1
        self.remap(of_slots)

    def remap(self, of_slots):
        """Change the lane of each slot."""
        cdef int slot
        for slot in range(SLOTS):
            self.lanes[slot] = of_slots[slot]
        self.count = max(of_slots) + 1

    def spread(self, Chunk chunk not None):
        """Split a chunk into one chunk per lane; the last returned chunk has the last command."""
        cdef Py_ssize_t count = len(chunk.ends), i, at = 0
        cdef int lane, last = -1
        cdef SerializedChunk whole
        cdef list chunks = []
        cdef Share *shares = NULL
        cdef int *chosen = <int *>malloc((count + 1) * sizeof(int))
        if chosen is NULL:
            raise MemoryError(f"no memory for {count:,} keys")
        try:
            for i in range(count):
                chosen[i] = last = self.lane_of(chunk.data + at)
                at = chunk.ends.data.as_longlongs[i]
            if not isinstance(chunk, SerializedChunk) or all_equal(chosen, count):
                return [self.numbered(chunk, last)]
            whole = chunk
            shares = <Share *>calloc(self.count, sizeof(Share))
            if shares is NULL:
                raise MemoryError(f"no memory for {self.count:,} lanes")
            measure(whole, chosen, shares)
            order = [lane for lane in range(self.count) if shares[lane].replies and lane != last]
            parts = self.parts(whole, chosen, shares)
            chunks = [self.count_in(parts[lane]) for lane in [*order, last]]
            if whole.fence:
                chunks[-1].fence = True
                self.serializer.fence = chunks[-1]
            return chunks
        finally:
            free(chosen)
            free(shares)

    cdef int lane_of(self, const char *p) noexcept:
        cdef long long words, size
        p = known_length_end(p + 1, &words)
        next_word(&p, &size)
        p = next_word(&p, &size)
        return self.lanes[key_slot(p, size)]

    cdef Chunk numbered(self, Chunk chunk, int lane):
        """Assign a whole chunk to a lane."""
        cdef Py_ssize_t count = len(chunk.rows), i
        chunk.places = clone(LONGLONGS, count, False)
        chunk.done = clone(LONGLONGS, count, False)
        cdef long long covered = 0
        for i in range(count):
            chunk.places.data.as_longlongs[i] = chunk.first_command + i
            covered += chunk.rows.data.as_longlongs[i] - self.row
            self.row = chunk.rows.data.as_longlongs[i]
            chunk.done.data.as_longlongs[i] = covered
        chunk.lane = lane
        return self.count_in(chunk)

    cdef Chunk count_in(self, Chunk chunk):
        """Set a chunk's ``first_command`` and ``rows_before``; return the chunk."""
        chunk.first_command, chunk.rows_before = self.commands, self.rows
        self.commands += len(chunk.rows)
        self.rows = chunk.rows_after(len(chunk.rows))
        return chunk

    cdef dict parts(self, SerializedChunk whole, const int *chosen, const Share *shares):
        """Return the chunk of each lane that has keys."""
        cdef dict parts = {
            lane: empty_part(whole, lane, &shares[lane])
            for lane in range(self.count) if shares[lane].replies
        }
        cdef Share *at = <Share *>calloc(self.count, sizeof(Share))
        cdef Py_ssize_t i, j, start = 0, first = 0, last, end
        cdef long long *rows = whole.rows.data.as_longlongs
        cdef long long row
        cdef SerializedChunk part
        cdef Share *share
        if at is NULL:
            raise MemoryError(f"no memory for {self.count:,} lanes")
        for i in range(len(whole.ends)):
            part, share = parts[chosen[i]], &at[chosen[i]]
            end, last = whole.ends.data.as_longlongs[i], whole.lasts.data.as_longlongs[i]
            memcpy(part.data + share.size, whole.data + start, end - start)
            share.size += end - start
            for j in range(first, last):
                row = rows[j]
                part.rows.data.as_longlongs[share.commands] = row
                part.places.data.as_longlongs[share.commands] = whole.first_command + j
                part.covered_rows += row - self.row
                part.done.data.as_longlongs[share.commands] = part.covered_rows
                self.row = row
                share.commands += 1
            part.ends.data.as_longlongs[share.replies] = share.size
            part.lasts.data.as_longlongs[share.replies] = share.commands
            share.replies += 1
            start, first = end, last
        free(at)
        return parts


cdef bint all_equal(const int *chosen, Py_ssize_t count) noexcept:
    cdef Py_ssize_t i
    for i in range(1, count):
        if chosen[i] != chosen[0]:
            return False
    return True


cdef int measure(SerializedChunk whole, const int *chosen, Share *shares) noexcept:
    """Add up the replies, commands and bytes of each lane in ``shares``."""
    cdef Py_ssize_t i, start = 0, first = 0
    cdef Share *share
    for i in range(len(whole.ends)):
        share = &shares[chosen[i]]
        share.replies += 1
        share.size += whole.ends.data.as_longlongs[i] - start
        share.commands += whole.lasts.data.as_longlongs[i] - first
        start, first = whole.ends.data.as_longlongs[i], whole.lasts.data.as_longlongs[i]
    return 0


cdef SerializedChunk empty_part(SerializedChunk whole, int lane, const Share *share):
    """Return a chunk with room for the keys of a lane."""
    cdef SerializedChunk part = SerializedChunk()
    part.data = <char *>malloc(share.size)
    if part.data is NULL:
        raise MemoryError(f"no memory for a chunk of {share.size:,} bytes")
    part.size = part.capacity = share.size
    part.ends = clone(LONGLONGS, share.replies, False)
    part.lasts = clone(LONGLONGS, share.replies, False)
    part.rows = clone(LONGLONGS, share.commands, False)
    part.places = clone(LONGLONGS, share.commands, False)
    part.done = clone(LONGLONGS, share.commands, False)
    part.sources = whole.sources
    part.lane = lane
    return part
