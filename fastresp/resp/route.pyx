# cython: language_level=3, cdivision=True
"""Distribute the commands of a source over lanes by key slot: those of a key stay in order."""

from cpython.array cimport clone, resize
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from .buffer cimport append, append_reference, make_room, rollback
from .grammar cimport known_length_end
from .out cimport Reference, digits, full_size, put_copy
from .slots cimport (
    EXEC,
    MULTI,
    NO_KEY,
    NOTHING,
    SEVERAL,
    SLOTS,
    UNKNOWN,
    Rule,
    Walk,
    end_of,
    key_slot,
    next_argument,
    slot_of,
    slot_of_all,
)
from .verbs cimport next_word

from ..outcome.errors import EncodeError
from ..outcome.excerpts import shown_argument

cdef array LONGLONGS = array("q")

cdef enum:
    # Room behind the commands for headers of large arguments, which are copied anyway.
    BEHIND = 64
    # The bytes before a key that are compared at once.
    LEAST_HEAD = 8
    MOST_HEAD = 64
    # What the header and the end of a large argument have besides the digits: "$", CRLF.
    AROUND = 3
    CRLF = 2
    # The most bytes of a name in a message.
    NAME_SHOWN = 40


cdef class Share:
    """The commands for one lane that are not in a chunk yet."""

    def __cinit__(self, Py_ssize_t start_capacity):
        self.out = Buffer(start_capacity)

    cdef int reserve(self, Part *part, bint plain) except -1:
        """Make room for the commands counted in a part, and let it point there."""
        cdef Buffer out = self.out
        part.p = make_room(out, part.size + BEHIND)
        while out.room < out.commands + part.commands:
            out.grow_marks()
        if not plain:
            self.widen()
            part.places = self.places.data.as_longlongs
            part.done = self.done.data.as_longlongs
        part.ends, part.rows = out.ends.data.as_longlongs, out.rows.data.as_longlongs
        part.at, part.end, part.covered = out.commands, full_size(&out.out), self.rows
        return 0

    cdef int widen(self) except -1:
        """Give the other marks as much room as the ends and rows have."""
        cdef Py_ssize_t room = self.out.room, i
        if self.places is None:
            self.places = clone(LONGLONGS, room, False)
            self.done = clone(LONGLONGS, room, False)
            for i in range(self.out.commands):      # so far each row made one command
                self.places.data.as_longlongs[i] = self.out.rows.data.as_longlongs[i]
                self.done.data.as_longlongs[i] = i + 1
        elif len(self.places) < room:
            resize(self.places, room)
            resize(self.done, room)
        return 0

    cdef void accept(self, const Part *part) noexcept:
        """Count what was written into a part."""
        self.out.out.p = part.p
        self.out.commands = part.at
        self.rows = part.covered

    cdef int cut(self, Py_ssize_t commands) except -1:
        """Drop all but the first commands."""
        rollback(self.out, commands)
        if self.done is None:
            self.rows = commands
        else:
            self.rows = self.done.data.as_longlongs[commands - 1] if commands else 0
        return 0

    cdef Chunk take(self):
        """Return a chunk of the commands, and start over."""
        cdef Py_ssize_t count = self.out.commands
        cdef Chunk chunk = self.out.take()
        chunk.places = chunk.rows
        if self.places is not None:
            resize(self.places, count)
            resize(self.done, count)
            chunk.places, chunk.done = self.places, self.done
        self.places = self.done = None
        self.rows = 0
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
        merger: returns what merges the commands of a lane; None to leave them as they are.
        of_slots: in a cluster, the lane of each slot, -1 for none.
        transactions: whether each MULTI of a cluster is in a chunk with its EXEC.

    Attributes:
        error: why the commands after those returned can't be sent; None if nothing is wrong.
    """

    def __cinit__(
        self, int lanes, Py_ssize_t most_bytes, Py_ssize_t full_bytes, merger=None, *,
        of_slots=None, bint transactions=True,
    ):
        self.shares, self.mergers = [], []
        self.merger = merger
        self.most_bytes = most_bytes
        self.full_bytes = full_bytes
        self.start_bytes = 2 * most_bytes + full_bytes // lanes
        self.strict = of_slots is not None
        self.transactions = transactions
        if of_slots is None:
            of_slots = [slot * lanes // SLOTS for slot in range(SLOTS)]
        self.more(lanes)
        self.remap(of_slots)
        self.last.size = -1
        self.transaction = -1
        self.row = -1
        self.plain = True

    cdef int more(self, Py_ssize_t lanes) except -1:
        """Add lanes until there are this many."""
        cdef Part *parts = <Part *>realloc(self.parts, lanes * sizeof(Part))
        if parts is NULL:
            raise MemoryError(f"no memory for {lanes:,} lanes")
        self.parts = parts
        while len(self.shares) < lanes:
            self.shares.append(Share(self.start_bytes))
            self.mergers.append(None if self.merger is None else self.merger())
        return 0

    def remap(self, of_slots):
        """Change the lane of each slot; there may be new ones. Nothing may be kept back."""
        cdef int slot
        self.more(max(len(self.shares), max(of_slots) + 1))
        for slot in range(SLOTS):
            self.lanes[slot] = of_slots[slot]
        self.head_size = 0

    def again(self, commands):
        """Return chunks of commands that were in chunks before: see ``Chunks.moved()``."""
        cdef Part part
        cdef Walk walk
        cdef bytes command
        cdef Share share
        cdef int slot
        self.plain = False              # these commands cover no more rows
        walk.large = walk.stop = NULL
        for place, row, command in commands:
            walk.base = walk.p = command
            slot = slot_of(&walk, &self.last)
            share = self.shares[max(self.lanes[slot], 0) if slot >= 0 else 0]
            part.commands, part.size = 1, len(command)
            share.reserve(&part, False)
            part.p = put_copy(part.p, command, len(command))
            part.ends[part.at], part.rows[part.at] = part.end + len(command), row
            part.places[part.at], part.done[part.at] = place, part.covered
            part.at += 1
            share.accept(&part)
        return self.given(True)

    def __dealloc__(self):
        free(self.parts)
        free(self.chosen)

    def route(self, Chunk chunk not None):
        """Add the commands of a chunk; return the chunks of the lanes that have enough."""
        cdef Py_ssize_t count
        if self.error is not None:
            return []
        memset(self.parts, 0, len(self.shares) * sizeof(Part))
        count = self.assign(chunk)
        self.look_at_rows(chunk, count)
        self.copy(chunk, count)
        if self.error is not None and self.transaction >= 0:
            (<Share>self.shares[self.transaction]).cut(self.begun)
        return self.given(self.error is not None or chunk.total() < self.full_bytes)

    cdef Py_ssize_t assign(self, Chunk chunk) except -1:
        """Choose a lane for each command; return for how many, which are all but after an error."""
        cdef Walk walk
        cdef Py_ssize_t i, extra = 0, count = len(chunk.ends)
        cdef const Reference *large = chunk.references
        cdef const char *start = chunk.data
        cdef const char *end
        cdef long long size
        cdef int lane
        cdef Part *part
        if count > self.room:
            free(self.chosen)
            self.room = 0
            self.chosen = <short *>malloc(count * sizeof(short))
            if self.chosen is NULL:
                raise MemoryError(f"no memory for {count:,} commands")
            self.room = count
        walk.base = start
        walk.stop = large + chunk.n_references
        for i in range(count):
            walk.p, walk.large = start, large
            end = end_of(chunk, i, &large, &extra)
            lane = -1
            if self.head_size and end - start > self.head_size and walk.large is large:
                if same_head(start, self.head, self.head_size):
                    walk.p = known_length_end(start + self.head_size + 1, &size)
                    lane = self.lanes[key_slot(walk.p, size)]
            if lane < 0:
                try:
                    lane = self.choose(chunk, &walk, i)
                except EncodeError as error:
                    self.error = error
                    return i
            self.chosen[i] = <short>lane
            part = &self.parts[lane]
            part.commands += 1
            part.size += end - start
            start = end
        return count

    cdef int look_at_rows(self, Chunk chunk, Py_ssize_t count) noexcept:
        """Find out whether each row still makes one command, so that both have the same index."""
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef Py_ssize_t i
        for i in range(count if self.plain else 0):
            if rows[i] != chunk.first_command + i:
                self.plain = False
                break
        return 0

    cdef int copy(self, Chunk chunk, Py_ssize_t count) except -1:
        """Copy commands to the shares of their lanes."""
        cdef Py_ssize_t i, extra = 0, lane
        cdef const Reference *large = chunk.references
        cdef const Reference *first
        cdef const char *start = chunk.data
        cdef const char *end
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef Part *part
        cdef Share share
        for lane in range(len(self.shares)):
            if self.parts[lane].commands:
                (<Share>self.shares[lane]).reserve(&self.parts[lane], self.plain)
        for i in range(count):
            part = &self.parts[self.chosen[i]]
            first = large
            end = end_of(chunk, i, &large, &extra)
            if first is large:
                part.p = put_copy(part.p, start, end - start)
                part.end += end - start
            else:
                share = self.shares[self.chosen[i]]
                share.out.out.p = part.p
                put_with_large(share.out, chunk.data, start, end, first, large)
                part.p, part.end = share.out.out.p, full_size(&share.out.out)
            part.ends[part.at] = part.end
            part.rows[part.at] = rows[i]
            part.covered += rows[i] - self.row
            if not self.plain:
                part.places[part.at] = chunk.first_command + i
                part.done[part.at] = part.covered
            part.at += 1
            self.row = rows[i]
            start = end
        for lane in range(len(self.shares)):
            if self.parts[lane].commands:
                (<Share>self.shares[lane]).accept(&self.parts[lane])
        return 0

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
                self.rows = chunk.rows_after(len(chunk.ends))
                chunks.append(chunk if self.merger is None else self.mergers[lane].merge(chunk))
        return chunks

    cdef int choose(self, Chunk chunk, Walk *walk, Py_ssize_t index) except -1:
        """Return the lane of a command at which the walk is."""
        cdef Walk start = walk[0]
        cdef int slot = slot_of_all(walk, &self.last) if self.strict else slot_of(walk, &self.last)
        cdef const Rule *rule = self.last.rule
        cdef int begins = NOTHING if rule is NULL else rule.begins, lane
        self.head_size = 0
        if self.transaction >= 0:
            if self.strict and slot != NO_KEY and slot != self.of_transaction:
                self.refuse(chunk, &start, index, SEVERAL)
            lane = self.transaction
            if begins == EXEC:
                self.transaction = -1
            return lane
        if begins == MULTI and not (self.strict and not self.transactions):
            slot = self.of_transaction = self.ahead(chunk, index)
        lane = self.lanes[slot] if slot >= 0 else -1
        if lane < 0:
            if self.strict:
                self.refuse(chunk, &start, index, slot)
            lane = 0
        if begins == MULTI:
            self.transaction = lane
            self.begun = (<Share>self.shares[lane]).out.commands + self.parts[lane].commands
        elif slot >= 0 and rule.first == 1 and (rule.last == 1 or not self.strict):
            self.keep_head(start.p)
        return lane

    cdef int keep_head(self, const char *p) noexcept:
        """Keep what comes before a key that is argument 1: most commands begin with the same."""
        cdef const char *begin = p
        cdef long long words, size
        p = known_length_end(p + 1, &words)
        next_word(&p, &size)
        if LEAST_HEAD <= p - begin <= MOST_HEAD:
            self.head_size = p - begin
            memcpy(self.head, begin, p - begin)
        return 0

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

    cdef int ahead(self, Chunk chunk, Py_ssize_t index) noexcept:
        """Return the slot of the first key in a transaction that begins at a command; or NO_KEY."""
        cdef Walk walk
        cdef const Reference *large = chunk.references
        cdef Py_ssize_t i, extra = 0
        cdef int slot
        walk.base = walk.p = chunk.data
        walk.stop = large + chunk.n_references
        for i in range(index + 1):
            walk.p = end_of(chunk, i, &large, &extra)
        for i in range(index + 1, len(chunk.ends)):
            walk.large = large
            slot = slot_of(&walk, &self.last)
            if slot >= 0:
                return slot
            if self.last.rule is not NULL and self.last.rule.begins == EXEC:
                break
            walk.p = end_of(chunk, i, &large, &extra)
        return NO_KEY


cdef inline bint same_head(const char *p, const char *head, Py_ssize_t size) noexcept nogil:
    """Compare at least 8 bytes; memcmp() would be a call."""
    cdef uint64_t a, b
    cdef Py_ssize_t i = 0
    while i + 8 < size:
        memcpy(&a, p + i, 8)
        memcpy(&b, head + i, 8)
        if a != b:
            return False
        i += 8
    memcpy(&a, p + size - 8, 8)
    memcpy(&b, head + size - 8, 8)
    return a == b


cdef int put_with_large(
    Buffer out, const char *base, const char *start, const char *end, const Reference *large,
    const Reference *stop,
) except -1:
    """Append a command with large arguments, without copying these.

    There must be room for the rest.
    """
    cdef const char *at
    while large < stop:
        at = base + large.offset
        append(out, start, at - digits(large.size) - AROUND - start)
        append_reference(out, <object>large.owner, large.data, large.size)
        start = at + CRLF
        large += 1
    return append(out, start, end - start)
