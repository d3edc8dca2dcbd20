# cython: language_level=3, cdivision=True
"""Put commands into transactions, each of which also writes down the row that it has reached.

Redis runs the commands of a transaction together, or none of them, and so are they replicated and
persisted. So the marker always says exactly which rows have run.
"""

import bisect

from .buffer cimport append, end_command, put_with_large, rollback
from .merge cimport MergedChunk
from .out cimport Reference, digits, full_size, put_crlf, put_digits
from .slots cimport end_of
from .values import pack

cdef bytes OPENS = b"*1\r\n$5\r\nMULTI\r\n"
cdef bytes CLOSES = b"*1\r\n$4\r\nEXEC\r\n"


cdef class BatchedChunk(Chunk):
    """Commands in transactions. Each has the replies to MULTI, to its commands, and to EXEC.

    Only the reply to EXEC answers commands: all of its transaction.
    """

    @property
    def commands(self):
        return self.inner.commands

    @property
    def memory(self):
        return self.capacity + 16 * len(self.ends) + self.inner.memory

    def place(self, index):
        return self.inner.place(index)

    def rows_after(self, commands):
        return self.inner.rows_after(commands)

    def covered(self, replies):
        return self.inner.covered(self.firsts[bisect.bisect_left(self.execs, replies)])

    def within(self, commands):
        ends = [self.inner.covered(first) for first in self.firsts[1:]]
        done = bisect.bisect_right(ends, commands)
        return self.execs[done - 1] + 1 if done else 0

    def parts(self, at):
        number = bisect.bisect_left(self.execs, at)
        first = self.inner.covered(self.firsts[number])
        if self.execs[number] != at:
            return range(first, first)
        return range(first, self.inner.covered(self.firsts[number + 1]))

    def elements(self, at):
        """Return which replies of ``inner`` the elements of the reply to an EXEC are.

        The reply has one element more: that to the marker.
        """
        number = bisect.bisect_left(self.execs, at)
        return range(self.firsts[number], self.firsts[number + 1])

    def command(self, at, part):
        return self.inner.command(self.inner.within(part), part)


cdef class Batcher:
    """Puts the commands of consecutive chunks into transactions.

    Args:
        marker: the key to write the number of rows to that have run.
        most_commands: a transaction ends with the row that reaches this number of commands,
        most_bytes: or this size.
    """

    def __cinit__(
        self, bytes marker, Py_ssize_t most_commands, Py_ssize_t most_bytes,
        Py_ssize_t start_bytes,
    ):
        self.out = Buffer(start_bytes)
        self.marker = pack("SET", marker, b"")[:-len(b"$0\r\n\r\n")]
        self.most_commands, self.most_bytes = most_commands, most_bytes

    def batch(self, Chunk inner not None):
        """Return a chunk of the transactions with the commands of one, which it keeps."""
        cdef Buffer out = self.out
        cdef BatchedChunk chunk = BatchedChunk()
        cdef const Reference *large = inner.references
        cdef const Reference *own
        cdef const char *start = inner.data
        cdef const char *end
        cdef const long long *rows = inner.rows.data.as_longlongs
        cdef const long long *lasts = NULL
        cdef Py_ssize_t i, last, extra = 0, begun = 0, begin = 0, count = len(inner.ends)
        cdef Py_ssize_t commands = len(inner.rows)
        cdef list execs = [], firsts = [0]
        rollback(out, 0)        # what a call that ran out of memory has left
        if isinstance(inner, MergedChunk):
            lasts = (<MergedChunk>inner).lasts.data.as_longlongs
        for i in range(count):
            if i == begun:
                begin = full_size(&out.out)
                append(out, OPENS, len(OPENS))
                end_command(out, 0)
            own = large
            end = end_of(inner, i, &large, &extra)
            put_with_large(out, inner.data, start, end, own, large)
            end_command(out, 0)
            start = end
            last = i if lasts is NULL else lasts[i] - 1
            if last + 1 < commands:
                if rows[last + 1] == rows[last]:
                    continue
                if i + 1 - begun < self.most_commands:
                    if full_size(&out.out) - begin < self.most_bytes:
                        continue
            self.finish(rows[last] + 1)
            execs.append(out.commands - 1)
            firsts.append(i + 1)
            begun = i + 1
        out.take_as(chunk)
        chunk.inner, chunk.rows = inner, inner.rows
        chunk.first_command = inner.first_command
        chunk.execs, chunk.firsts = array("q", execs), array("q", firsts)
        return chunk

    cdef int finish(self, Py_ssize_t row) except -1:
        """End a transaction, after which this many rows have run."""
        cdef char[64] value
        cdef char *p = value
        cdef int size = digits(row)
        p[0] = c'$'
        p = put_crlf(put_digits(put_crlf(put_digits(p + 1, size)), row))
        append(self.out, self.marker, len(self.marker))
        append(self.out, value, p - value)
        end_command(self.out, 0)
        append(self.out, CLOSES, len(CLOSES))
        return end_command(self.out, 0)
