# cython: language_level=3, cdivision=True
"""Chunks of serialised values that refer to the original commands, and a splitter by lane.

A lane is the index of the connection for a chunk.
"""

from cpython.array cimport array, clone
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from ...resp.buffer cimport Chunk
from ...resp.grammar cimport known_length_end
from ...resp.merge cimport MergedChunk
from ...resp.slots cimport SLOTS, key_slot
from ...resp.mergeable cimport next_word

cdef array LONGLONGS = array("q")


# The number of replies, commands and bytes of a lane in a chunk.
cdef struct LaneSize:
    Py_ssize_t replies
    Py_ssize_t commands
    Py_ssize_t bytes


cdef class SerializedChunk(MergedChunk):
    """A chunk with one command per key; one reply answers all original commands of a key."""

    @property
    def memory(self):
        cdef Py_ssize_t commands = sum(len(each.rows) for each in self.sources)
        cdef Py_ssize_t sources = sum(each.memory for each in self.sources)
        # The chunks of several lanes may share their sources.
        return self.capacity + 48 * len(self.rows) + sources * len(self.rows) // max(commands, 1)

    def command(self, at, part):
        """Return an original command of a key."""
        cdef Py_ssize_t index = self.place(part)
        for source in self.sources:
            if index < source.first_command + len(source.rows):
                index -= source.first_command
                return source.command(index, index)


cdef SerializedChunk make_chunk(Chunk keys, Py_ssize_t first_command, list sources):
    """Turn a chunk of serialised keys into one that refers to the original commands.

    Args:
        keys: the serialised keys; ``keys.rows`` has the cumulative number of commands per key.
        first_command: the index of the first original command.
        sources: the chunks with the original commands; empty if ``command()`` won't be called.
    """
    cdef SerializedChunk chunk = SerializedChunk()
    cdef Chunk source
    cdef Py_ssize_t count, first, last, at = 0
    chunk.ends, chunk.lasts = keys.ends, keys.rows
    chunk.data, keys.data = keys.data, NULL
    chunk.capacity, chunk.spare = keys.capacity, keys.spare
    keys.spare = None
    chunk.size = chunk.total()
    chunk.first_command = first_command
    count = chunk.lasts[len(chunk.lasts) - 1]
    chunk.rows = clone(LONGLONGS, count if sources else 0, False)
    chunk.sources = []
    for source in sources:
        first = max(first_command - source.first_command, 0)
        last = min(first_command + count - source.first_command, <Py_ssize_t>len(source.rows))
        if first < last:
            chunk.sources.append(source)
            memcpy(
                chunk.rows.data.as_longlongs + at,
                source.rows.data.as_longlongs + first,
                (last - first) * sizeof(long long),
            )
            at += last - first
    return chunk


cdef class LaneSplitter:
    """Splits chunks of serialised keys into one chunk per lane of a cluster.

    The key is the first argument, as in all commands that create keys.

    Args:
        of_slots: the lane of each slot.
        serializer: the serializer that made the chunks. If it waits for the reply to a chunk, it
            is told to wait for the reply to the last part of this chunk instead.
    """

    cdef short[SLOTS] lanes             # lane of each slot
    cdef int count                      # number of lanes
    cdef object serializer
    cdef long long row                  # index of the last row counted in ``rows``
    cdef Py_ssize_t commands            # number of commands in the chunks so far
    cdef Py_ssize_t rows                # number of rows covered by the chunks so far

    def __cinit__(self, of_slots, serializer):
        self.serializer = serializer
        self.row = -1
        self.remap(of_slots)

    def remap(self, of_slots):
        """Change the lane of each slot."""
        cdef int slot
        for slot in range(SLOTS):
            self.lanes[slot] = of_slots[slot]
        self.count = max(of_slots) + 1

    def split(self, Chunk chunk not None):
        """Split a chunk into one chunk per lane; the chunk with the last command is last."""
        cdef Py_ssize_t count = len(chunk.ends), i, at = 0
        cdef int lane, last = -1
        cdef bint one_lane = True
        cdef dict parts
        cdef int *key_lanes = <int *>malloc((count + 1) * sizeof(int))
        if key_lanes is NULL:
            raise MemoryError(f"no memory for {count:,} keys")
        try:
            for i in range(count):
                key_lanes[i] = last = self.lane_of(chunk.data + at)
                one_lane = one_lane and last == key_lanes[0]
                at = chunk.ends.data.as_longlongs[i]
            if not isinstance(chunk, SerializedChunk) or one_lane:
                return [self.assign(chunk, last)]
            parts = self.parts(chunk, key_lanes)
            chunks = [self.set_offsets(parts[lane]) for lane in parts if lane != last]
            chunks.append(self.set_offsets(parts[last]))
            if chunk.fence:
                chunks[-1].fence = True
                self.serializer.wait_for(chunks[-1])
            return chunks
        finally:
            free(key_lanes)

    cdef int lane_of(self, const char *p) noexcept:
        cdef long long words, size
        p = known_length_end(p + 1, &words)
        next_word(&p, &size)
        p = next_word(&p, &size)
        return self.lanes[key_slot(p, size)]

    cdef Chunk assign(self, Chunk chunk, int lane):
        """Assign a whole chunk to one lane."""
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
        return self.set_offsets(chunk)

    cdef Chunk set_offsets(self, Chunk chunk):
        """Set a chunk's ``first_command`` and ``rows_before``; return the chunk."""
        chunk.first_command, chunk.rows_before = self.commands, self.rows
        self.commands += len(chunk.rows)
        self.rows = chunk.rows_after(len(chunk.rows))
        return chunk

    cdef dict parts(self, SerializedChunk chunk, const int *key_lanes):
        """Return the chunk of each lane that has keys, in the order of the lanes."""
        cdef LaneSize *sizes = <LaneSize *>calloc(2 * self.count, sizeof(LaneSize))
        cdef LaneSize *written = sizes + self.count
        cdef Py_ssize_t i, j, start = 0, first = 0, last, end
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef long long row
        cdef SerializedChunk part
        cdef LaneSize *size
        if sizes is NULL:
            raise MemoryError(f"no memory for {self.count:,} lanes")
        add_sizes(chunk, key_lanes, sizes)
        cdef dict parts = {
            lane: empty_part(chunk, lane, &sizes[lane])
            for lane in range(self.count) if sizes[lane].replies
        }
        for i in range(len(chunk.ends)):
            part, size = parts[key_lanes[i]], &written[key_lanes[i]]
            end, last = chunk.ends.data.as_longlongs[i], chunk.lasts.data.as_longlongs[i]
            memcpy(part.data + size.bytes, chunk.data + start, end - start)
            size.bytes += end - start
            for j in range(first, last):
                row = rows[j]
                part.rows.data.as_longlongs[size.commands] = row
                part.places.data.as_longlongs[size.commands] = chunk.first_command + j
                part.covered_rows += row - self.row
                part.done.data.as_longlongs[size.commands] = part.covered_rows
                self.row = row
                size.commands += 1
            part.ends.data.as_longlongs[size.replies] = size.bytes
            part.lasts.data.as_longlongs[size.replies] = size.commands
            size.replies += 1
            start, first = end, last
        free(sizes)
        return parts


cdef int add_sizes(SerializedChunk chunk, const int *key_lanes, LaneSize *sizes) noexcept:
    """Add the replies, commands and bytes of each lane to ``sizes``."""
    cdef Py_ssize_t i, start = 0, first = 0
    cdef LaneSize *size
    for i in range(len(chunk.ends)):
        size = &sizes[key_lanes[i]]
        size.replies += 1
        size.bytes += chunk.ends.data.as_longlongs[i] - start
        size.commands += chunk.lasts.data.as_longlongs[i] - first
        start, first = chunk.ends.data.as_longlongs[i], chunk.lasts.data.as_longlongs[i]
    return 0


cdef SerializedChunk empty_part(SerializedChunk chunk, int lane, const LaneSize *size):
    """Return a chunk with room for the keys of a lane."""
    cdef SerializedChunk part = SerializedChunk()
    part.data = <char *>malloc(size.bytes)
    if part.data is NULL:
        raise MemoryError(f"no memory for a chunk of {size.bytes:,} bytes")
    part.size = part.capacity = size.bytes
    part.ends = clone(LONGLONGS, size.replies, False)
    part.lasts = clone(LONGLONGS, size.replies, False)
    part.rows = clone(LONGLONGS, size.commands, False)
    part.places = clone(LONGLONGS, size.commands, False)
    part.done = clone(LONGLONGS, size.commands, False)
    part.sources = chunk.sources
    part.lane = lane
    return part
