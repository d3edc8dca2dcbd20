# cython: language_level=3, cdivision=True
"""A chunk of serialised values, with references to the original commands."""

from cpython.array cimport array, clone
from libc.string cimport memcpy

from ...resp.buffer cimport Chunk
from ...resp.merge cimport MergedChunk

cdef array LONGLONGS = array("q")


cdef class SerializedChunk(MergedChunk):
    """A chunk of keys, each with one reply, which answers all commands that create the key."""

    @property
    def memory(self):
        cdef Py_ssize_t commands = sum(len(each.rows) for each in self.sources)
        cdef Py_ssize_t held = sum(each.memory for each in self.sources)
        # The chunks of several lanes may share their sources.
        return self.capacity + 48 * len(self.rows) + held * len(self.rows) // max(commands, 1)

    def command(self, at, part):
        """Return one of the original commands of a key."""
        cdef Py_ssize_t index = self.place(part)
        for source in self.sources:
            if index < source.first_command + len(source.rows):
                index -= source.first_command
                return source.command(index, index)


cdef SerializedChunk serialized(Chunk taken, Py_ssize_t first_command, list held):
    """Return a chunk of keys.

    Args:
        taken: the chunk of keys. For each key, its ``rows`` contain the total number of commands
            for this key and all keys before it.
        first_command: the index of the first command.
        held: the chunks with the original commands; empty if no command will be requested.
    """
    cdef SerializedChunk chunk = SerializedChunk()
    cdef Chunk source
    cdef Py_ssize_t count, first, last, at = 0
    chunk.ends, chunk.lasts = taken.ends, taken.rows
    chunk.data, taken.data = taken.data, NULL
    chunk.capacity, chunk.spare = taken.capacity, taken.spare
    taken.spare = None
    chunk.size = chunk.total()
    chunk.first_command = first_command
    count = chunk.lasts[len(chunk.lasts) - 1]
    chunk.rows = clone(LONGLONGS, count if held else 0, False)
    chunk.sources = []
    for source in held:
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
