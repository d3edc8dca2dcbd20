# cython: language_level=3, cdivision=True
"""Distribute the commands of a source over lanes by key slot: commands of a key stay in order.

A lane is the index of a connection.
"""

from cpython.array cimport array, clone, resize
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from .buffer cimport Buffer, Chunk, Reference, full_size, make_room, put_copy, put_with_large
from .grammar cimport known_length_end
from .slots cimport (
    END, MULTI, NO_KEY, NOTHING, OPEN, SEVERAL, SLOTS, WATCH, WATCHED, LastRule, Rule, Rules, Walk,
    end_of, key_slot, next_argument, same_head, slot_of_all, slot_of_first, start_of,
)
from .mergeable cimport next_word

from .commands import FOR_ALL
from .shown import refusal

cdef array LONGLONGS = array("q")

cdef enum:
    # Room after the commands for the headers of large arguments; headers are always copied.
    BEHIND = 64
    # The maximum size of ``Router.head``.
    HEAD_ROOM = 64
    # The minimum number of bytes that same_head() can compare.
    MIN_HEAD = 8
    # The maximum number of bytes of a name in a message.
    NAME_SHOWN = 40
    # Used instead of a lane's index: all lanes that have slots.
    ALL = 32767


# Where to write the commands of a chunk for one lane.
cdef struct Cursor:
    Py_ssize_t commands                 # number of commands
    Py_ssize_t size                     # size of the commands in bytes, without large arguments
    char *p                             # where to write the next command; NULL if there is no room
    const char *limit                   # the end of the room for commands
    const char *base                    # p minus the offset of the next command
    Py_ssize_t at                       # index in the buffer of the next command
    Py_ssize_t room                     # capacity of ends, rows, places and done
    Py_ssize_t end                      # end offset of the last command, with large arguments
    Py_ssize_t covered                  # number of rows covered so far
    long long *ends
    long long *rows
    long long *places
    long long *done


cdef class LaneBuffer:
    """The commands for one lane that are not in a chunk yet."""

    cdef Buffer out
    cdef array places                   # 'q': source index of each command; None if equal to rows
    cdef array done                     # 'q': rows covered up to each command; None for 1, 2, 3...
    cdef Py_ssize_t rows                # number of rows covered

    def __cinit__(self, Py_ssize_t start_capacity):
        self.out = Buffer(start_capacity)

    cdef int reserve(self, Cursor *cursor, bint plain) except -1:
        """Make room for the commands counted in a cursor, and point the cursor to this room."""
        cdef Buffer out = self.out
        while out.room < out.commands + cursor.commands:
            out.grow_marks()
        if not plain:
            self.widen()
            cursor.places = self.places.data.as_longlongs
            cursor.done = self.done.data.as_longlongs
        cursor.p = make_room(out, cursor.size + BEHIND)
        cursor.limit, cursor.room = out.out.end - BEHIND, out.room
        cursor.ends, cursor.rows = out.ends.data.as_longlongs, out.rows.data.as_longlongs
        cursor.at, cursor.end, cursor.covered = out.commands, full_size(&out.out), self.rows
        cursor.base = cursor.p - cursor.end
        return 0

    cdef int widen(self) except -1:
        """Extend ``places`` and ``done`` to the capacity of ``ends`` and ``rows``."""
        cdef Py_ssize_t room = self.out.room, i
        if self.places is None:
            done = clone(LONGLONGS, room, False)
            self.places = clone(LONGLONGS, room, False)
            self.done = done
            for i in range(self.out.commands):      # each row so far made one command
                self.places.data.as_longlongs[i] = self.out.rows.data.as_longlongs[i]
                self.done.data.as_longlongs[i] = i + 1
        if len(self.places) < room:
            resize(self.places, room)
        if len(self.done) < room:
            resize(self.done, room)
        return 0

    cdef void accept(self, const Cursor *cursor) noexcept:
        """Add the commands that were written through a cursor."""
        self.out.out.p = cursor.p
        self.out.commands = cursor.at
        self.rows = cursor.covered

    cdef Chunk take(self):
        """Return a chunk of the commands, and empty the buffer."""
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

    A command or transaction is sent on the lane of its first key's slot. In a cluster, all keys of
    a command must be in one slot. Without a cluster, a command without a key is sent on lane 0.

    Args:
        lanes: number of lanes.
        max_bytes: the size at which the commands of a lane become a chunk.
        full_bytes: after a chunk smaller than this, all buffered commands are returned, in case the
            source pauses.
        merger: a function that returns a new Merger for a lane; None to merge no commands.
        of_slots: in a cluster, the lane of each slot; -1 for a slot without an owner.
        keyless: in a cluster, the lane of commands without a key, except connection commands; -1
            to refuse such commands.
        rules: the key positions of commands.
        start_row: the index of the first row read from the source.
        for_all: whether the commands in FOR_ALL may be sent to all nodes.

    Attributes:
        paused: whether no commands are left in the buffers after the last ``route()``.
    """

    cdef list buffers
    cdef list mergers
    cdef object merger
    cdef Py_ssize_t start_bytes         # initial memory of a LaneBuffer
    cdef short[SLOTS] lanes             # lane of each slot
    cdef list serving                   # the lanes that have slots
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t full_bytes
    cdef bint strict                    # whether this is a cluster
    cdef int keyless                    # in a cluster, the lane of keyless commands; -1 for none
    cdef tuple refused                  # the arguments of refusal(); None if nothing was refused
    cdef Chunk refused_in               # the chunk of the refused command
    cdef Rules rules
    cdef Cursor *cursors                # for each lane, the cursor for the current chunk
    cdef short *chosen                  # the lane of each command of a chunk
    cdef Py_ssize_t room                # capacity, in commands
    cdef LastRule last
    cdef char[HEAD_ROOM] head           # the bytes of the last command before its key
    cdef Py_ssize_t head_size           # 0 if the last key was not argument 1
    cdef int transaction                # the lane of the open transaction; -1 outside
    cdef Py_ssize_t begun               # index in the chunk of the transaction's MULTI
    cdef int of_transaction             # the slot of the transaction's first key, or NO_KEY
    cdef bint plain                     # whether each row so far made one command
    cdef readonly bint paused
    cdef Py_ssize_t start_row
    cdef bint for_all
    cdef Py_ssize_t commands            # number of commands in the returned chunks
    cdef Py_ssize_t rows                # number of rows covered by the returned chunks
    cdef Py_ssize_t row                 # index of the last copied row

    def __cinit__(
        self, int lanes, Py_ssize_t max_bytes, Py_ssize_t full_bytes, merger=None, *,
        of_slots=None, int keyless=-1, Rules rules=None, Py_ssize_t start_row=0,
        bint for_all=True,
    ):
        self.buffers, self.mergers = [], []
        self.merger = merger
        self.max_bytes = max_bytes
        self.full_bytes = full_bytes
        self.start_bytes = 2 * max_bytes + full_bytes // lanes
        self.strict = of_slots is not None
        self.keyless = keyless
        if of_slots is None:
            of_slots = [slot % lanes for slot in range(SLOTS)]    # as Topology.lanes()
        self.more(lanes)
        self.remap(of_slots)
        self.rules = Rules() if rules is None else rules
        self.rules.start(&self.last)
        self.transaction = -1
        self.for_all = for_all
        self.start_row = self.rows = start_row
        self.row = start_row - 1
        self.plain = True

    @property
    def error(self):
        """The error of the first command that can't be sent; None if there is no such command."""
        return None if self.refused is None else refusal(*self.refused)

    @property
    def failing(self):
        """The chunk and the index of the command with ``error``; None if there is no error."""
        if self.refused is not None:
            return self.refused_in, self.refused[1] - self.refused_in.first_command

    cdef int more(self, Py_ssize_t lanes) except -1:
        """Add lanes until there are ``lanes`` lanes."""
        cdef Cursor *cursors = <Cursor *>realloc(self.cursors, lanes * sizeof(Cursor))
        if cursors is NULL:
            raise MemoryError(f"no memory for {lanes:,} lanes")
        self.cursors = cursors
        while len(self.buffers) < lanes:
            self.buffers.append(LaneBuffer(self.start_bytes))
            self.mergers.append(None if self.merger is None else self.merger())
        return 0

    def remap(self, of_slots):
        """Change the lane of each slot, and add lanes if needed; all buffers must be empty."""
        cdef int slot
        self.more(max(len(self.buffers), max(of_slots) + 1))
        self.serving = sorted(set(of_slots) - {-1})
        for slot in set(range(len(self.buffers))).difference(self.serving):
            self.buffers[slot] = LaneBuffer(1)       # a closed lane needs no memory
        for slot in range(SLOTS):
            self.lanes[slot] = of_slots[slot]
        self.head_size = 0

    def __dealloc__(self):
        free(self.cursors)
        free(self.chosen)

    def route(self, Chunk chunk not None):
        """Add commands; return chunks of full lanes, or of all lanes if this sets ``paused``."""
        cdef Py_ssize_t first, count
        self.paused = self.refused is not None or chunk.total() < self.full_bytes
        if self.refused is not None:
            return []
        first = self.copy_alike(chunk)
        if first < len(chunk.ends):
            count = self.assign(chunk, first)
            self.check_plain(chunk, first, count)
            self.copy(chunk, first, count)
        self.paused = self.paused or self.refused is not None
        return self.take_chunks(self.paused)

    cdef Py_ssize_t copy_alike(self, Chunk chunk) except -1:
        """Copy the leading commands that begin with ``head``; return the number of copied commands.

        Copy nothing unless each row made exactly one command: if a row's second command were
        refused, the first must not be sent, but would already be copied. This function takes 8 ns
        less per command than ``assign()`` and ``copy()``.
        """
        cdef long long *ends = chunk.ends.data.as_longlongs
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef Py_ssize_t i = 0, at, head_size = self.head_size, count = len(chunk.ends)
        cdef const char *start = chunk.data
        cdef const char *end
        cdef const char *key
        cdef long long size
        cdef int lane
        cdef Cursor *cursor
        if self.transaction >= 0 or not head_size or chunk.n_references:
            return 0
        if not self.plain or not is_one_each(chunk, self.start_row):
            return 0
        memset(self.cursors, 0, len(self.buffers) * sizeof(Cursor))
        while i < count:
            end = chunk.data + ends[i]
            if end - start <= head_size or not same_head(start, self.head, head_size):
                break
            key = known_length_end(start + head_size + 1, &size)
            lane = self.lanes[key_slot(key, size)]
            if lane < 0:
                break
            cursor = &self.cursors[lane]
            if cursor.limit - cursor.p < end - start or cursor.at == cursor.room:
                try:
                    self.extend(lane, end - start)
                except BaseException:
                    self.accept()           # keep the earlier commands
                    raise
            cursor.p = put_copy(cursor.p, start, end - start)
            at = cursor.at
            cursor.ends[at], cursor.rows[at] = cursor.p - cursor.base, rows[i]
            cursor.at = cursor.covered = at + 1     # each row so far made one command
            start = end
            i += 1
        if i:
            self.row = rows[i - 1]
        self.accept()
        return i

    cdef int extend(self, int lane, Py_ssize_t size) except -1:
        """Make room for another command of ``size`` bytes in the buffer of a lane."""
        cdef Cursor *cursor = &self.cursors[lane]
        cdef LaneBuffer buffer = self.buffers[lane]
        cdef Cursor larger = cursor[0]
        if cursor.p is not NULL:
            buffer.accept(cursor)
        larger.commands, larger.size = 1, size
        buffer.reserve(&larger, True)
        cursor[0] = larger
        return 0

    cdef void accept(self) noexcept:
        """Count the commands written into the buffers."""
        cdef Py_ssize_t lane
        for lane in range(len(self.buffers)):
            if self.cursors[lane].p is not NULL:
                (<LaneBuffer>self.buffers[lane]).accept(&self.cursors[lane])

    cdef Py_ssize_t assign(self, Chunk chunk, Py_ssize_t first) except -1:
        """Choose the lanes of the commands from ``first`` onwards.

        Returns:
            The index after the last command that may be sent.
        """
        cdef Walk walk
        cdef Py_ssize_t i, extra = 0, count = len(chunk.ends)
        cdef const Reference *large = chunk.references
        cdef const char *start = start_of(chunk, first)
        cdef const char *end
        cdef long long size
        cdef int lane
        cdef Cursor *cursor
        cdef object each
        memset(self.cursors, 0, len(self.buffers) * sizeof(Cursor))
        if count > self.room:
            free(self.chosen)
            self.room = 0
            self.chosen = <short *>malloc(count * sizeof(short))
            if self.chosen is NULL:
                raise MemoryError(f"no memory for {count:,} commands")
            self.room = count
        walk.base = chunk.data
        walk.stop = large + chunk.n_references
        for i in range(first, count):
            walk.p, walk.large = start, large
            end = end_of(chunk, i, &large, &extra)
            lane = -1
            if self.head_size and end - start > self.head_size and walk.large is large:
                if same_head(start, self.head, self.head_size):
                    walk.p = known_length_end(start + self.head_size + 1, &size)
                    lane = self.lanes[key_slot(walk.p, size)]
            if lane < 0:
                lane = self.choose(chunk, &walk, i)
                if lane < 0:
                    return self.begin_of(chunk, i)
            self.chosen[i] = <short>lane
            if lane == ALL:
                for each in self.serving:
                    self.cursors[<int>each].commands += 1
                    self.cursors[<int>each].size += end - start
            else:
                cursor = &self.cursors[lane]
                cursor.commands += 1
                cursor.size += end - start
            start = end
        return count

    cdef Py_ssize_t begin_of(self, Chunk chunk, Py_ssize_t index) noexcept:
        """Return the index of the first command in the row of the command at ``index``.

        If a transaction is open, end it, and use the row of its MULTI instead.
        """
        cdef long long *rows = chunk.rows.data.as_longlongs
        if self.transaction >= 0:
            index = self.begun
            self.transaction = -1
        while index > 0 and rows[index - 1] == rows[index]:
            index -= 1
        return index

    cdef int check_plain(self, Chunk chunk, Py_ssize_t first, Py_ssize_t count) noexcept:
        """Clear ``plain`` if a row did not make exactly one command on one lane."""
        cdef Py_ssize_t i
        self.plain = self.plain and is_one_each(chunk, self.start_row)
        for i in range(first, count if self.plain else first):
            if self.chosen[i] == ALL:
                self.plain = False
                break
        return 0

    cdef int copy(self, Chunk chunk, Py_ssize_t first, Py_ssize_t count) except -1:
        """Copy the commands from ``first`` up to ``count - 1`` into their lanes' buffers."""
        cdef Py_ssize_t i, extra = 0, lane
        cdef const Reference *large = chunk.references
        cdef const Reference *own
        cdef const char *start = start_of(chunk, first)
        cdef const char *end
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef Cursor *cursor
        for lane in range(len(self.buffers)):
            if self.cursors[lane].commands:
                (<LaneBuffer>self.buffers[lane]).reserve(&self.cursors[lane], self.plain)
        for i in range(first, count):
            own = large
            end = end_of(chunk, i, &large, &extra)
            if self.chosen[i] == ALL:
                for each in self.serving:   # only the first lane counts the rows
                    self.put(each, chunk, i, start, end, own, large)
                    self.row = rows[i]
            elif own is not large:
                self.put(self.chosen[i], chunk, i, start, end, own, large)
            else:
                cursor = &self.cursors[self.chosen[i]]
                cursor.p = put_copy(cursor.p, start, end - start)
                cursor.end += end - start
                self.note(cursor, chunk, i)
            self.row = rows[i]
            start = end
        self.accept()
        return 0

    cdef int put(
        self, int lane, Chunk chunk, Py_ssize_t i, const char *start, const char *end,
        const Reference *first, const Reference *large,
    ) except -1:
        """Copy a command, which may have large arguments, to the buffer of a lane."""
        cdef Cursor *cursor = &self.cursors[lane]
        cdef LaneBuffer buffer = self.buffers[lane]
        buffer.out.out.p = cursor.p
        put_with_large(buffer.out, chunk.data, start, end, first, large)
        cursor.p, cursor.end = buffer.out.out.p, full_size(&buffer.out.out)
        self.note(cursor, chunk, i)
        return 0

    cdef inline void note(self, Cursor *cursor, Chunk chunk, Py_ssize_t i) noexcept:
        """Record the end and the row of a copied command."""
        cdef long long row = chunk.rows.data.as_longlongs[i]
        cursor.ends[cursor.at] = cursor.end
        cursor.rows[cursor.at] = row
        cursor.covered += row - self.row
        if not self.plain:
            cursor.places[cursor.at] = chunk.first_command + i
            cursor.done[cursor.at] = cursor.covered
        cursor.at += 1

    def flush(self):
        """Return the chunks of all remaining commands."""
        return self.take_chunks(True)

    cdef list take_chunks(self, bint everything):
        cdef list chunks = []
        cdef LaneBuffer buffer
        cdef Chunk chunk
        cdef int lane
        for lane in range(len(self.buffers)):
            buffer = self.buffers[lane]
            if full_size(&buffer.out.out) >= (1 if everything else self.max_bytes):
                chunk = buffer.take()
                chunk.lane = lane
                chunk.first_command, chunk.rows_before = self.commands, self.rows
                self.commands += len(chunk.ends)
                self.rows = chunk.rows_after(len(chunk.ends))
                chunks.append(chunk if self.merger is None else self.mergers[lane].merge(chunk))
        return chunks

    cdef int choose(self, Chunk chunk, Walk *walk, Py_ssize_t index) except -2:
        """Return the lane of the current command; -1 if the command can't be sent."""
        cdef Walk start = walk[0]
        cdef bint strict = self.strict
        cdef int lane
        cdef int slot = (
            slot_of_all(walk, &self.last) if strict else slot_of_first(walk, &self.last)
        )
        cdef const Rule *rule = self.last.rule
        cdef int bounds = NOTHING if rule is NULL else rule.bounds
        self.head_size = 0
        if strict and bounds == WATCH:
            return self.refuse(chunk, &start, index, WATCHED)
        if self.transaction >= 0:
            if strict and slot != NO_KEY and slot != self.of_transaction:
                return self.refuse(chunk, &start, index, slot if slot < 0 else SEVERAL)
            lane = self.transaction
            if bounds == END:
                self.transaction = -1
            return lane
        if bounds == MULTI:
            slot = self.of_transaction = self.ahead(chunk, index)
        lane = self.lanes[slot] if slot >= 0 else -1
        if slot == NO_KEY and bounds == NOTHING:
            lane = self.keyless
        if lane < 0:
            if strict and slot == NO_KEY and self.for_all and self.is_for_all(start):
                return ALL
            if strict:
                return self.refuse(chunk, &start, index, slot)
            lane = 0
        if bounds == MULTI:
            self.transaction, self.begun = lane, index
        elif slot >= 0 and rule is not NULL and rule.first == 1:
            if rule.last == 1 or not strict:
                self.keep_head(start.p)
        return lane

    cdef bint is_for_all(self, Walk start) noexcept:
        """Return whether the command at ``start``, which has no key, must run on all nodes."""
        cdef long long words, size, more
        cdef const char *name
        cdef const char *word
        start.p = known_length_end(start.p + 1, &words)
        name = next_argument(&start, &size)
        if words < 2:
            return False
        word = next_argument(&start, &more)
        return (name[:size].upper(), word[:min(more, NAME_SHOWN)].upper()) in FOR_ALL

    cdef int keep_head(self, const char *p) noexcept:
        """Store as ``head`` the bytes before the key (argument 1), which most commands share."""
        cdef const char *begin = p
        cdef long long words, size
        p = known_length_end(p + 1, &words)
        next_word(&p, &size)
        if MIN_HEAD <= p - begin <= HEAD_ROOM:
            self.head_size = p - begin
            memcpy(self.head, begin, p - begin)
        return 0

    cdef int refuse(self, Chunk chunk, Walk *walk, Py_ssize_t index, int why) except -2:
        """Store the arguments of ``refusal()`` for ``error``; return -1.

        ``refusal()`` is not called here, since a signal could interrupt the call.
        """
        cdef long long words, size
        cdef const char *text
        walk.p = known_length_end(walk.p + 1, &words)
        text = next_argument(walk, &size)
        self.refused_in = chunk
        self.refused = (
            chunk.rows.data.as_longlongs[index], chunk.first_command + index,
            text[:min(size, NAME_SHOWN)], size, why,
        )
        return -1

    cdef int ahead(self, Chunk chunk, Py_ssize_t index) noexcept:
        """Return the slot of the first key in the transaction whose MULTI is at ``index``.

        Return NO_KEY if there is no key; in a cluster, OPEN if the transaction does not end in its
        row.
        """
        cdef Walk walk
        cdef const Reference *large = chunk.references
        cdef long long *rows = chunk.rows.data.as_longlongs
        cdef Py_ssize_t i, extra = 0
        cdef int found = NO_KEY, slot
        walk.base = walk.p = chunk.data
        walk.stop = large + chunk.n_references
        for i in range(index + 1):
            walk.p = end_of(chunk, i, &large, &extra)
        for i in range(index + 1, len(chunk.ends)):
            if self.strict and rows[i] != rows[index]:
                return OPEN
            walk.large = large
            slot = slot_of_first(&walk, &self.last)
            if slot >= 0 and found < 0:
                found = slot
            if self.last.rule is not NULL and self.last.rule.bounds == END:
                return found
            if found >= 0 and not self.strict:
                return found
            walk.p = end_of(chunk, i, &large, &extra)
        return OPEN if self.strict else found


cdef inline bint is_one_each(Chunk chunk, Py_ssize_t start_row) noexcept:
    """Return whether each row of a chunk makes exactly one command."""
    cdef long long *rows = chunk.rows.data.as_longlongs
    cdef long long different = 0
    cdef Py_ssize_t i, first = start_row + chunk.first_command
    for i in range(len(chunk.rows)):
        different |= rows[i] ^ (first + i)
    return different == 0
