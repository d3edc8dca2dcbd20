# cython: language_level=3, cdivision=True
"""Gather the commands of lanes, and put the commands of each marker into transactions.

A lane is the index of the connection for a command. A marker is a key whose value is the number of
rows that have run (see docs/decisions.md).

In a cluster, the keys of a transaction must be in one slot, so each slot has a marker. Adjacent
commands seldom have the same slot, and a transaction with one command costs four times as much as
the command alone. So commands are gathered first.
"""

from cpython.array cimport array, clone
from libc.stdlib cimport calloc, free, malloc

from .buffer cimport end_command, put_with_large, rollback
from .slots cimport Walk, end_of, slot_of_all

cdef enum:
    # Limits of the gathered commands.
    GATHERED_BYTES = 1 << 25
    GATHERED_COMMANDS = 1 << 19
    # The approximate size of a sent chunk.
    PIECE_BYTES = 1 << 19

cdef array LONGLONGS = array("q")


cdef class Gatherer:
    """Gathers the commands of lanes, and puts the commands of each marker into transactions.

    Args:
        batcher: makes the transactions.
        rows: array of int64, the value of each marker: the number of leading source rows that ran
            in earlier loads. The commands of these rows are not sent again.
        rules: in a cluster, where each slot has a marker, the key positions of commands; None if
            each lane has a marker.
        merger: merges commands with the same marker; None to merge no commands.
        start_row: the index of the first row read from the source.
    """

    def __cinit__(
        self, Batcher batcher not None, array rows not None, *, Rules rules=None, merger=None,
        Py_ssize_t start_row=0,
    ):
        self.batcher, self.rows, self.merger = batcher, rows, merger
        self.by_slot = rules is not None
        self.rules = rules
        if self.by_slot:
            rules.start(&self.last)
        self.out = Buffer(2 * PIECE_BYTES)
        self.held = []
        self.covered = start_row

    @property
    def full(self):
        """Whether enough commands are gathered for ``flush()``."""
        if not self.by_slot:
            return self.count > 0
        return self.size >= GATHERED_BYTES or self.count >= GATHERED_COMMANDS

    def add(self, Chunk chunk not None):
        """Gather the commands of a chunk, which must be for one lane."""
        self.held.append(chunk)
        self.size += chunk.total()
        self.count += len(chunk.ends)

    def flush(self):
        """Return all gathered commands as chunks of transactions."""
        cdef list held = self.held, found = []
        cdef dict lanes = {}
        cdef Chunk chunk
        if self.broken or not held:
            return []
        self.broken = True
        for chunk in held:
            lanes.setdefault(chunk.lane, []).append(chunk)
        self.held, self.size, self.count = [], 0, 0
        for several in lanes.values():
            found.append(self.order(several))
        # Lanes take turns, so that no lane waits for all chunks of another lane.
        ready = []
        for turn in range(max(map(len, found))):
            for pieces in found:
                if turn < len(pieces):
                    ready.append(self.finished(*pieces[turn]))
        self.broken = False
        return ready

    def finished(self, Chunk chunk, list ends, list numbers, bint first):
        """Return the commands of a chunk as transactions; arguments as for ``Batcher.batch()``."""
        chunk.first_command, chunk.rows_before = self.commands, self.covered
        self.commands += len(chunk.ends)
        self.covered = chunk.rows_after(len(chunk.ends))
        if self.merger is not None:
            chunk = self.merger.merge(chunk)
        return self.batcher.batch(chunk, ends, numbers, first)

    cdef list order(self, list chunks):
        """Copy a lane's commands to new chunks, sorted by marker; skip commands that have run.

        Returns:
            Tuples of the arguments of ``finished()``.
        """
        cdef Py_ssize_t count = 0, left, i, at, begin = 0, size = 0
        cdef Py_ssize_t markers = len(self.rows)
        cdef Place *places
        cdef Place *ordered = NULL
        cdef Py_ssize_t *starts = NULL
        cdef list found = [], ends = [], numbers = []
        cdef bint first = True, ending, cut
        for chunk in chunks:
            count += len((<Chunk>chunk).ends)
        places = <Place *>malloc(count * sizeof(Place))
        ordered = <Place *>malloc(count * sizeof(Place))
        starts = <Py_ssize_t *>calloc(markers + 1, sizeof(Py_ssize_t))
        try:
            if places is NULL or ordered is NULL or starts is NULL:
                raise MemoryError(f"no memory to put {count:,} commands in order")
            left = self.find(chunks, places)
            for i in range(left):
                starts[places[i].marker + 1] += 1
            for i in range(markers):
                starts[i + 1] += starts[i]
            for i in range(left):
                at = starts[places[i].marker]
                ordered[at] = places[i]
                starts[places[i].marker] = at + 1
            for i in range(left):
                size += ordered[i].end - ordered[i].start
                ending = i + 1 == left or ordered[i + 1].marker != ordered[i].marker
                # All commands of a row must be in the same transaction.
                cut = size >= PIECE_BYTES and (
                    ending
                    or row_of(chunks, &ordered[i + 1]) != row_of(chunks, &ordered[i])
                )
                if ending or cut:
                    ends.append(i + 1 - begin)
                    numbers.append(ordered[i].marker)
                if i + 1 == left or cut:
                    chunk = self.copy(chunks, ordered, begin, i + 1)
                    found.append((chunk, ends, numbers, first))
                    # The next chunk may begin with the same marker.
                    first = not ending
                    ends, numbers, begin, size = [], [], i + 1, 0
        finally:
            free(places)
            free(ordered)
            free(starts)
        return found

    cdef Py_ssize_t find(self, list chunks, Place *places) except -1:
        """Fill ``places`` with the commands that have not run; return the number of commands."""
        cdef Py_ssize_t number, i, extra, found = 0, markers = len(self.rows)
        cdef Chunk chunk
        cdef const Reference *large
        cdef const char *start
        cdef Place *place
        cdef Walk walk
        cdef int marker
        for number in range(len(chunks)):
            chunk = chunks[number]
            large, start, extra = chunk.references, chunk.data, 0
            walk.base = start
            walk.stop = large + chunk.n_references
            for i in range(len(chunk.ends)):
                place = &places[found]
                place.start, place.large = start, large
                place.chunk, place.index = number, i
                place.end = start = end_of(chunk, i, &large, &extra)
                place.stop = large
                marker = chunk.lane
                if self.by_slot:
                    walk.p, walk.large = place.start, place.large
                    marker = slot_of_all(&walk, &self.last)
                if not 0 <= marker < markers:
                    raise AssertionError(f"a command without a marker ({marker}) was gathered")
                place.marker = marker
                if chunk.rows.data.as_longlongs[i] >= self.rows.data.as_longlongs[marker]:
                    found += 1
        return found

    cdef Chunk copy(self, list chunks, const Place *ordered, Py_ssize_t begin, Py_ssize_t end):
        """Return a chunk of the commands ``ordered[begin:end]``."""
        cdef Buffer out = self.out
        cdef array places = clone(LONGLONGS, end - begin, False)
        cdef array done = clone(LONGLONGS, end - begin, False)
        cdef long long covered = 0
        cdef const Place *place
        cdef Chunk chunk, made
        cdef Py_ssize_t i
        rollback(out, 0)        # drop remains of a call that ran out of memory
        for i in range(begin, end):
            place = &ordered[i]
            chunk = chunks[place.chunk]
            put_with_large(out, chunk.data, place.start, place.end, place.large, place.stop)
            end_command(out, chunk.rows.data.as_longlongs[place.index])
            places.data.as_longlongs[i - begin] = chunk.places[place.index]
            covered += rows_of(chunk, place.index)
            done.data.as_longlongs[i - begin] = covered
        made = out.take()
        made.places, made.done, made.lane = places, done, chunk.lane
        return made


cdef long long row_of(list chunks, const Place *place):
    """Return the index of a command's source row."""
    return (<Chunk>chunks[place.chunk]).rows.data.as_longlongs[place.index]


cdef Py_ssize_t rows_of(Chunk chunk, Py_ssize_t index) noexcept:
    """Return the number of rows that a command covers but earlier commands do not."""
    cdef long long *done
    if chunk.done is None:
        return 1
    done = chunk.done.data.as_longlongs
    return done[index] - (done[index - 1] if index else 0)
