# cython: language_level=3, cdivision=True
"""Distribute the commands of a source over lanes by key slot, so that those of a key stay in order."""

from cpython.array cimport clone, resize

from .buffer cimport append, append_reference, end_command, rollback
from .grammar cimport known_length_end
from .out cimport Reference, digits, full_size
from .slots cimport (
    EXEC,
    MULTI,
    NO_KEY,
    SEVERAL,
    SLOTS,
    UNKNOWN,
    Walk,
    next_argument,
    slot_of,
    slot_of_all,
)

from ..outcome.errors import EncodeError
from ..outcome.excerpts import shown_argument

cdef array LONGLONGS = array("q")

cdef enum:
    # What the header and the end of a large argument have besides the digits: "$", CRLF.
    AROUND = 3
    CRLF = 2
    # The most bytes of a name in a message.
    NAME_SHOWN = 40


cdef const char *end_of(
    Chunk chunk, Py_ssize_t index, const Reference **large, Py_ssize_t *extra
) noexcept:
    """Return the end of a command in the chunk's own memory.

    Args:
        large: the first large argument from the command on; becomes the first after it.
        extra: bytes of large arguments before the command; becomes those before its end.
    """
    cdef long long end = chunk.ends.data.as_longlongs[index]
    cdef const Reference *stop = chunk.references + chunk.n_references
    while large[0] < stop and large[0].offset + extra[0] < end:
        extra[0] += large[0].size
        large[0] += 1
    return chunk.data + end - extra[0]


cdef class Share:
    """The commands for one lane that are not in a chunk yet."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.out = Buffer(start_capacity)

    cdef int add(self, Py_ssize_t row, Py_ssize_t place, Py_ssize_t rows) except -1:
        """End a command, made from a row; it is the first of so many rows."""
        cdef Py_ssize_t at = self.out.commands
        if at == self.room:
            self.grow()
        self.places.data.as_longlongs[at] = place
        self.rows += rows
        self.done.data.as_longlongs[at] = self.rows
        return end_command(self.out, row)

    cdef int grow(self) except -1:
        cdef Py_ssize_t room = self.room + self.room // 2
        if self.room:
            resize(self.places, room)
            resize(self.done, room)
        else:
            room = self.out.start_capacity // 128 + 16
            self.places = clone(LONGLONGS, room, False)
            self.done = clone(LONGLONGS, room, False)
        self.room = room
        return 0

    cdef int cut(self, Py_ssize_t commands) except -1:
        """Drop all but the first commands."""
        rollback(self.out, commands)
        self.rows = self.done[commands - 1] if commands else 0
        return 0

    cdef Chunk take(self):
        """Return a chunk of the commands, and start over."""
        cdef Py_ssize_t count = self.out.commands
        cdef Chunk chunk = self.out.take()
        resize(self.places, count)
        resize(self.done, count)
        chunk.places, chunk.done = self.places, self.done
        self.places = self.done = None
        self.room = self.rows = 0
        return chunk


cdef class Router:
    """Distributes the commands of chunks over lanes.

    A command goes to the lane of its first key's slot; one without a key, to the first lane; a
    transaction, to the lane of the first key in it. In a cluster, a command must have keys of one
    slot.

    Args:
        lanes: number of lanes.
        most_bytes: the commands of a lane become a chunk when they have this size.
        full_bytes: after a smaller chunk the source may pause, so nothing is kept back.
        mergers: for each lane, what merges its commands; None to leave them as they are.
        of_slots: in a cluster, the lane of each slot, -1 for none.
        transactions: whether each MULTI of a cluster is in a chunk with its EXEC.

    Attributes:
        error: why the commands after those returned can't be sent; None if nothing is wrong.
    """

    def __cinit__(
        self, int lanes, Py_ssize_t most_bytes, Py_ssize_t full_bytes, list mergers=None, *,
        of_slots=None, bint transactions=True,
    ):
        cdef int slot
        self.shares = [Share(most_bytes + most_bytes // 2) for _ in range(lanes)]
        self.mergers = mergers
        self.most_bytes = most_bytes
        self.full_bytes = full_bytes
        self.strict = of_slots is not None
        self.transactions = transactions
        for slot in range(SLOTS):
            self.lanes[slot] = of_slots[slot] if self.strict else <short>(slot * lanes // SLOTS)
        self.last.size = -1
        self.transaction = -1
        self.row = -1

    def route(self, Chunk chunk not None):
        """Add the commands of a chunk; return the chunks of the lanes that have enough."""
        cdef Walk walk
        cdef Py_ssize_t i, row, extra = 0
        cdef const Reference *large = chunk.references
        cdef const char *start = chunk.data
        cdef const char *end
        cdef Share share
        walk.base = start
        walk.stop = large + chunk.n_references
        for i in range(len(chunk.ends) if self.error is None else 0):
            walk.p, walk.large = start, large
            try:
                share = self.shares[self.choose(chunk, &walk, i, extra)]
            except EncodeError as error:
                self.error = error
                if self.transaction >= 0:
                    share = self.shares[self.transaction]
                    share.cut(self.begun)
                return self.given(True)
            walk.large = large
            end = end_of(chunk, i, &large, &extra)
            try:
                if walk.large is large:
                    append(share.out, start, end - start)
                else:
                    self.put(share.out, &walk, start, end, large)
                row = chunk.rows.data.as_longlongs[i]
                share.add(row, chunk.first_command + i, row - self.row)
            except BaseException:
                rollback(share.out, share.out.commands)
                raise
            self.row = row
            start = end
        return self.given(chunk.total() < self.full_bytes)

    def flush(self):
        """Return the chunks of all that is left."""
        return self.given(True)

    cdef list given(self, bint everything):
        cdef list chunks = []
        cdef Share share
        cdef Chunk chunk
        cdef int lane
        for lane in range(len(self.shares)):
            share = self.shares[lane]
            if full_size(&share.out.out) >= (1 if everything else self.most_bytes):
                chunk = share.take()
                chunk.lane = lane
                chunk.first_command, chunk.rows_before = self.commands, self.rows
                self.commands += len(chunk.ends)
                self.rows += chunk.done[len(chunk.done) - 1]
                chunks.append(chunk if self.mergers is None else self.mergers[lane].merge(chunk))
        return chunks

    cdef int choose(self, Chunk chunk, Walk *walk, Py_ssize_t index, Py_ssize_t extra) except -1:
        """Return the lane of a command; so many bytes before it are elsewhere."""
        cdef Walk start = walk[0]
        cdef int slot = slot_of_all(walk, &self.last) if self.strict else slot_of(walk, &self.last)
        cdef int begins = 0 if self.last.rule is NULL else self.last.rule.begins, lane
        if self.transaction >= 0:
            if self.strict and slot != NO_KEY and slot != self.of_transaction:
                self.refuse(chunk, &start, index, SEVERAL)
            lane = self.transaction
            if begins == EXEC:
                self.transaction = -1
            return lane
        if begins == MULTI and not (self.strict and not self.transactions):
            walk[0] = start
            slot = self.of_transaction = self.ahead(chunk, walk, index, extra)
        lane = self.lanes[slot] if slot >= 0 else -1
        if lane < 0:
            if self.strict:
                self.refuse(chunk, &start, index, slot)
            lane = 0
        if begins == MULTI:
            self.transaction = lane
            self.begun = (<Share>self.shares[lane]).out.commands
        return lane

    cdef int refuse(self, Chunk chunk, Walk *walk, Py_ssize_t index, int slot) except -1:
        """Raise for a command that has no node."""
        cdef long long words, size
        cdef const char *text
        cdef Py_ssize_t row = chunk.rows.data.as_longlongs[index]
        walk.p = known_length_end(walk.p + 1, &words)
        text = next_argument(walk, &size)
        name = shown_argument(text[:min(size, NAME_SHOWN)], size)
        if slot == SEVERAL:
            why = (
                f"{name} has keys of several slots, and a node of a cluster runs a command or "
                "transaction only on keys of one slot; use one command per key, or a hash tag such "
                "as {user7}:name"
            )
        elif slot == UNKNOWN:
            why = f"it is not known where {name} has its keys; send it with a cluster client"
        elif slot == NO_KEY:
            why = f"{name} has no key, so it has no node in the cluster; send it to each node alone"
        else:
            why = f"no node of the cluster serves slot {slot:,}; check CLUSTER INFO"
        place = chunk.first_command + index
        raise EncodeError(f"row {row:,}, command {place:,}: {why}", command=place, row=row)

    cdef int ahead(
        self, Chunk chunk, Walk *walk, Py_ssize_t index, Py_ssize_t extra
    ) noexcept:
        """Return the slot of the first key in a transaction that begins at a command; or NO_KEY."""
        cdef const Reference *large = walk.large
        cdef Py_ssize_t i
        cdef int slot
        for i in range(index + 1, len(chunk.ends)):
            walk.p, walk.large = end_of(chunk, i - 1, &large, &extra), large
            slot = slot_of(walk, &self.last)
            if slot >= 0:
                return slot
            if self.last.rule is not NULL and self.last.rule.begins == EXEC:
                break
        return NO_KEY

    cdef int put(
        self, Buffer out, Walk *walk, const char *start, const char *end, const Reference *stop
    ) except -1:
        """Append a command with large arguments, without copying these."""
        cdef const Reference *large = walk.large
        cdef const char *at
        while large < stop:
            at = walk.base + large.offset
            append(out, start, at - digits(large.size) - AROUND - start)
            append_reference(out, <object>large.owner, large.data, large.size)
            start = at + CRLF
            large += 1
        return append(out, start, end - start)
