# cython: language_level=3, cdivision=True
"""Put commands into transactions, each of which also records the number of completed rows.

A marker is a key whose value is the number of rows that have run. Redis runs, replicates and
persists the commands of a transaction together, or not at all, so the markers are always exact
(see docs/decisions.md).

A transaction is a sequence from MULTI to EXEC, or a call of a script that runs the commands if the
marker has the expected old value.

In a cluster, the keys of a transaction must be in one slot, so each slot has a marker. Adjacent
commands seldom have the same slot, and a transaction with one command costs four times as much as
the command alone. So commands are first gathered, and sorted by slot.
"""

from cpython.array cimport array, clone
from libc.stdlib cimport calloc, free, malloc

import bisect

from ..outcome.errors import CheckpointError
from .buffer cimport (
    PY_SSIZE_T_MAX, Buffer, Chunk, Reference, append, append_bulk, end_command, end_header,
    full_size, open_header, own_size, put_copy, put_digits, put_with_large, rollback,
)
from .grammar cimport known_length_end
from .merge cimport MergedChunk
from .slots cimport LastRule, Rules, Walk, end_of, slot_of_all

cdef enum:
    MAX_PREFIX = 32
    VALUE_ROOM = 64
    # Lua's unpack() returns less than 8,000 values. Source: LUAI_MAXCSTACK in luaconf.h of Lua 5.1.
    SCRIPTED_WORDS = 7000
    # The maximum number of arguments of a command. Source: processMultibulkBuffer() of Redis.
    EVAL_WORDS = 1 << 20
    # Arguments of a script call besides commands: EVAL, script, 1, marker, old value, new value.
    OWN_WORDS = 6
    # Limits of the gathered commands.
    GATHERED_BYTES = 1 << 25
    GATHERED_COMMANDS = 1 << 19
    # The approximate size of a sent chunk.
    PIECE_BYTES = 1 << 19

cdef array LONGLONGS = array("q")
cdef bytes OPENS = b"*1\r\n$5\r\nMULTI\r\n"
cdef bytes SETS = b"*3\r\n$3\r\nSET\r\n"
# An HSET of a marker with a field but no value: a server queues this command, but can't run it. In
# the error reply, TransactionFilter restores the name of the replaced command.
cdef bytes FAILS = b"*5\r\n$4\r\nHSET\r\n"
cdef bytes SCRIPTED_FAILS = b"$1\r\n5\r\n" + FAILS[4:]
cdef bytes FAILS_END = b"$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"
cdef Py_ssize_t FAILS_WORDS = 6
cdef bytes CLOSES = b"*1\r\n$4\r\nEXEC\r\n"
cdef bytes CALLS = b"$4\r\nEVAL\r\n"
cdef bytes ONE_KEY = b"$1\r\n1\r\n"


cdef class BatchedChunk(Chunk):
    """Commands in transactions, with replies to MULTI, to the commands, and to EXEC.

    The reply to EXEC answers all commands of the transaction; the transaction's other replies
    answer none of the commands. A script call has one reply, which counts as the reply to EXEC.

    Attributes:
        inner: the commands without transactions.
        execs: array of int64, for each transaction the index of the reply to EXEC.
        waits: array of int64, the reply indices of the EXECs that are sent only after all earlier
            EXECs are answered, because the previous transaction sets the same marker.
        firsts: array of int64, for each transaction the index of its first reply in ``inner``;
            then, as the last element, the number of replies in ``inner``.
        opening: the number of commands between MULTI and the source's commands.
        lacking: as for Batcher.
    """

    cdef readonly Chunk inner
    cdef readonly array execs
    cdef readonly array waits
    cdef readonly array firsts
    cdef readonly Py_ssize_t opening
    cdef readonly dict lacking

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
        """Return where the replies to ``inner`` start and stop within the reply to EXEC.

        A reply to EXEC begins with the replies to the opening commands, and ends with the reply to
        the command that sets the marker.
        """
        number = bisect.bisect_left(self.execs, at)
        return range(self.firsts[number], self.firsts[number + 1])

    def command(self, at, part):
        return self.inner.command(self.inner.within(part), part)


cdef class Batcher:
    """Puts the commands of chunks into transactions.

    Args:
        markers: the markers: one key for all commands, or one key per lane or slot. A lane is the
            index of a connection.
        prefix: the bytes before the number in a marker's value.
        max_commands: a transaction ends with the row that reaches this number of commands.
        max_bytes: a transaction also ends with the row that reaches this size.
        start_bytes: the initial size of the buffer.
        lacking: by command name in capitals, the largest number of arguments that is too few. A
            command with too few arguments would make a server refuse the whole transaction. So each
            such command is replaced by an HSET, which fails only when EXEC runs it. Users of
            checkpoints have permission to run HSET.
        most_of_source: a transaction also ends with the row that reaches this number of commands,
            counted before merging; None for no limit.
        opening: commands at the start of each transaction, such as SCRIPT LOAD: a server may forget
            scripts at any time, and NOSCRIPT would not stop the rest of the transaction.
        script: the script that runs each transaction; None for MULTI and EXEC. The key of a call is
            the marker. The arguments are the marker's expected value; for each command, the number
            of arguments and the arguments; and the marker's new value.
        reached: array of int64, the number of rows in each marker; required for a script.

    Attributes:
        reached: the number of rows that each marker will have after the transactions so far.
    """

    cdef Buffer out
    cdef list markers
    cdef bytes prefix
    cdef Py_ssize_t max_commands
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t most_of_source
    cdef dict lacking
    cdef list opening
    cdef Py_ssize_t few_words
    cdef bytes script                   # the transaction's script; None for MULTI and EXEC
    cdef public array reached           # 'q': for a script, the number of rows in each marker
    cdef Py_ssize_t header              # offset of the script call being written
    cdef int header_digits              # guessed number of digits of ``words``
    cdef Py_ssize_t words               # number of arguments in the script call so far

    def __cinit__(
        self, list markers not None, bytes prefix not None, Py_ssize_t max_commands,
        Py_ssize_t max_bytes, Py_ssize_t start_bytes, dict lacking=None, list opening=None,
        most_of_source=None, script=None, array reached=None,
    ):
        if len(prefix) > MAX_PREFIX:
            raise ValueError(f"a prefix of {len(prefix)} bytes is too long")
        self.out = Buffer(start_bytes)
        self.markers, self.prefix = markers, prefix
        self.max_commands, self.max_bytes = max_commands, max_bytes
        self.opening = opening or []
        self.most_of_source = PY_SSIZE_T_MAX if most_of_source is None else most_of_source
        self.lacking = lacking or {}
        self.few_words = max(self.lacking.values(), default=0)
        self.script, self.reached, self.header_digits = script, reached, 4
        if script is not None and (reached is None or len(reached) != len(markers)):
            raise ValueError("a script needs the rows that each marker has reached")

    cpdef BatchedChunk batch(self, Chunk inner, list ends=None, list numbers=None, bint first=True):
        """Return a chunk of transactions with the commands of ``inner``.

        Args:
            inner: a chunk of commands; the new chunk refers to ``inner``.
            ends: for each sequence of commands with the same marker, the index after the last
                command; None for one sequence.
            numbers: the index of each sequence's marker.
            first: whether an earlier transaction may have set the marker of the first sequence.

        Raises:
            CheckpointError: a command has too many arguments for a script.
        """
        cdef Buffer out = self.out
        cdef BatchedChunk chunk = BatchedChunk()
        cdef const Reference *large = inner.references
        cdef const Reference *own
        cdef const char *start = inner.data
        cdef const char *end
        cdef const long long *rows = inner.rows.data.as_longlongs
        cdef const long long *lasts = NULL
        cdef Py_ssize_t i, last, extra = 0, begun = 0, begin = 0, count = len(inner.ends)
        cdef Py_ssize_t commands = len(inner.rows), run = 0, run_end = commands, marker = 0
        cdef list execs = [], waits = [], firsts = [0]
        cdef Py_ssize_t begun_at = 0
        cdef bint follows = first, few
        rollback(out, 0)        # drop remains of a call that ran out of memory
        if isinstance(inner, MergedChunk):
            lasts = (<MergedChunk>inner).lasts.data.as_longlongs
        if ends is not None:
            run_end, marker = ends[0], numbers[0]
        for i in range(count):
            if i == begun:
                begin = full_size(&out.out)
                self.open(marker)
            own = large
            end = end_of(inner, i, &large, &extra)
            last = i if lasts is NULL else lasts[i] - 1
            if self.script is not None:
                self.pass_on(inner, start, end, own, large, rows[last], marker)
            else:
                if self.lacks(start):
                    append(out, FAILS, len(FAILS))
                    self.end_failing(marker)
                else:
                    put_with_large(out, inner.data, start, end, own, large)
                end_command(out, 0)
            start = end
            if last + 1 < run_end:
                if rows[last + 1] == rows[last]:
                    continue
                few = last + 1 - begun_at < self.most_of_source
                if few and i + 1 - begun < self.max_commands:
                    if full_size(&out.out) - begin < self.max_bytes:
                        continue
            self.finish(marker, rows[last] + 1)
            execs.append(out.commands - 1)
            if follows and self.script is None:
                waits.append(out.commands - 1)
            follows = True
            firsts.append(i + 1)
            begun, begun_at = i + 1, last + 1
            if last + 1 == run_end and last + 1 < commands:
                run += 1
                run_end, marker = ends[run], numbers[run]
                follows = False
        out.take_as(chunk)
        chunk.inner, chunk.rows = inner, inner.rows
        chunk.first_command, chunk.lane = inner.first_command, inner.lane
        chunk.opening = len(self.opening) if self.script is None else 0
        chunk.lacking = self.lacking
        chunk.execs, chunk.firsts = array("q", execs), array("q", firsts)
        chunk.waits = chunk.execs if len(waits) == len(execs) else array("q", waits)
        return chunk

    cdef bint lacks(self, const char *command) except *:
        """Return whether a command has too few arguments, according to ``lacking``."""
        cdef long long words, size
        cdef const char *name
        if not self.few_words:
            return False
        name = known_length_end(command + 1, &words)
        if words > self.few_words:
            return False
        name = known_length_end(name + 1, &size)
        return words <= self.lacking.get(name[:size].upper(), 0)

    cdef int open(self, Py_ssize_t marker) except -1:
        """Begin a transaction."""
        cdef Buffer out = self.out
        cdef bytes script = self.script
        cdef bytes key
        if script is None:
            append(out, OPENS, len(OPENS))
            end_command(out, 0)
            for each in self.opening:
                append(out, each, len(<bytes>each))
                end_command(out, 0)
            return 0
        self.header, self.words = own_size(&out.out), OWN_WORDS
        open_header(out, self.header_digits)
        append(out, CALLS, len(CALLS))
        append_bulk(out, script, len(script))
        append(out, ONE_KEY, len(ONE_KEY))
        key = self.markers[marker]
        append_bulk(out, key, len(key))
        return self.append_value(self.reached.data.as_longlongs[marker])

    cdef int pass_on(
        self, Chunk inner, const char *start, const char *end, const Reference *first,
        const Reference *stop, long long row, Py_ssize_t marker,
    ) except -1:
        """Append a command to the arguments of a script."""
        cdef char[VALUE_ROOM] text
        cdef long long words
        if self.lacks(start):
            self.words += FAILS_WORDS
            append(self.out, SCRIPTED_FAILS, len(SCRIPTED_FAILS))
            return self.end_failing(marker)
        start = known_length_end(start + 1, &words)
        self.words += words + 1
        if words > SCRIPTED_WORDS or self.words > EVAL_WORDS:
            raise CheckpointError(
                f"row {row:,} has a command of {words:,} arguments, and a script can run at most "
                f"{SCRIPTED_WORDS:,}: allow the user +client|kill, so that commands are sent in "
                "transactions without a script, then resume the load"
            )
        append_bulk(self.out, text, put_digits(text, words) - text)
        return put_with_large(self.out, inner.data, start, end, first, stop)

    cdef int end_failing(self, Py_ssize_t marker) except -1:
        """Append the remaining arguments of an HSET that is meant to fail."""
        cdef bytes key = self.markers[marker]
        append_bulk(self.out, key, len(key))
        return append(self.out, FAILS_END, len(FAILS_END))

    cdef int append_value(self, Py_ssize_t row) except -1:
        """Append the value that a marker has after ``row`` rows."""
        cdef char[VALUE_ROOM] value
        cdef char *end = put_copy(value, self.prefix, len(self.prefix))
        end = put_digits(end, row)
        return append_bulk(self.out, value, end - value)

    cdef int finish(self, Py_ssize_t marker, Py_ssize_t row) except -1:
        """End a transaction by setting the marker to ``row``, the new number of rows."""
        cdef bytes key = self.markers[marker]
        if self.script is not None:
            self.append_value(row)
            end_header(self.out, self.header, c'*', self.words, &self.header_digits)
            self.reached.data.as_longlongs[marker] = row
            return end_command(self.out, 0)
        append(self.out, SETS, len(SETS))
        append_bulk(self.out, key, len(key))
        self.append_value(row)
        end_command(self.out, 0)
        append(self.out, CLOSES, len(CLOSES))
        return end_command(self.out, 0)


# A command of a chunk.
cdef struct Place:
    const char *start
    const char *end
    const Reference *large              # the command's first large argument
    const Reference *stop               # the end of the command's large arguments
    Py_ssize_t chunk                    # index of the chunk
    Py_ssize_t index                    # index of the command in the chunk
    int marker                          # index of the command's marker


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

    cdef Batcher batcher
    cdef object merger
    cdef array rows
    cdef bint by_slot
    cdef Rules rules
    cdef LastRule last
    cdef Buffer out
    cdef list held
    cdef Py_ssize_t size                # number of gathered bytes
    cdef Py_ssize_t count               # number of gathered commands
    cdef bint broken                    # whether commands may be lost, so no more may be sent
    cdef Py_ssize_t commands            # number of commands in the returned chunks
    cdef Py_ssize_t covered             # number of rows covered by the returned chunks

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
