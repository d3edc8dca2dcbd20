# cython: language_level=3, cdivision=True
"""Turn the commands of each key into one RESTORE of the whole value, or into a file record.

Commands of a key must be adjacent. A key is created whole or not at all, unless it exceeds a
limit: then RESTORE creates the beginning of the key, and later commands wait for its reply: the
chunk with this RESTORE is a fence. If the server accepts the RESTORE, merged commands add the
remaining items. Otherwise, a new RESTORE creates the key from the remaining items; if the first was
refused because the key exists, the new one is refused as well.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from ...resp.buffer cimport (
    Buffer, Chunk, append, end_command, end_header, make_room, open_header, own_size, put_bulk,
    put_copy, put_signed, rollback,
)
from ...resp.mergeable cimport next_word
from .duplicates cimport Keys, resize
from .encoding cimport Word, put_footer, put_refused
from .format cimport Format
from .serialized_chunk cimport SerializedChunk, make_chunk
from .values cimport (
    EXPIRE, OTHER, PEXPIRE, STRING, Value, ValueCommand, ValueKind, ValueWriter, read_value_command,
    shown, time_of, time_of_set, why_invalid,
)

from collections import deque
from time import time

from ...outcome.errors import EncodeError
from ...outcome.messages import Hint, InPython, Message

cdef enum:
    # The commands of the current key may use at most this multiple of ``max_bytes`` of memory.
    MEMORY_FACTOR = 8
    # Memory is reused for the next key if it has room for at most this many words.
    MAX_KEPT_WORDS = 65536
    BEFORE_VALUE = 128
    EXPIRES_MS = 252                    # RDB_OPCODE_EXPIRETIME_MS. Source: rdb.h.


cdef inline bint same(const Word *a, const char *text, Py_ssize_t size) noexcept nogil:
    return a.size == size and memcmp(a.text, text, size) == 0


cdef class Serializer:
    """Turns chunks of commands into chunks of serialised values.

    Args:
        format: the format of the values.
        exists: ``"replace"`` to replace existing keys; otherwise, the server refuses existing keys.
        max_bytes: a larger key begins with RESTORE and continues with commands.
        max_argument: the maximum size of an argument in bytes; None for no limit.
        merger: merges the commands of a larger key; None for a file, which can't have such keys.
        several: whether chunks are sent over several connections.
        file: whether to write records of an RDB file instead of commands.
        keys: finds duplicate keys.

    Attributes:
        error: why later commands can't be serialised; None if there is no error.
        key_count: the number of keys so far.
        expiring: the number of keys with a time to live in a file.
        keys: the keys so far, up to a limit.
    """

    cdef Buffer out
    cdef ValueWriter values
    cdef readonly Keys keys
    cdef object merger                  # None if large keys are refused
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t max_argument
    cdef bint replace, file, several
    cdef int digits
    cdef bint gathering                 # whether there is a current key
    cdef Word key                       # the current key: adjacent commands create its value
    cdef Value value
    cdef Py_ssize_t words_room, ends_room
    cdef Py_ssize_t bytes               # size of the current key's items
    cdef long long expires_ms           # -1 for no time to live
    cdef long long row                  # source row of the current key's first command
    cdef Py_ssize_t first               # index of the current key's first command
    cdef object waiting                 # chunks that are not read yet
    cdef list sources                   # chunks that are read, but not returned completely
    cdef Py_ssize_t next_command        # index of the first command not in a returned chunk
    cdef Py_ssize_t at                  # index of the command being read, or of the next command
    cdef Chunk fence                    # the beginning of a large key, whose other commands wait
    cdef bytes fenced_key               # the key that the fence begins
    cdef bint restarted                 # whether the current key is the fenced key
    cdef bint key_existed               # whether the fence was refused because the key exists
    cdef readonly object error
    cdef Chunk failed_in                # the chunk with the error
    cdef readonly Py_ssize_t key_count  # number of keys
    cdef long long now_ms
    cdef bint fencing                   # whether the next chunk is a fence
    cdef readonly Py_ssize_t expiring   # number of keys with a time to live

    def __cinit__(
        self, Format format not None, *, exists="error", Py_ssize_t max_bytes, max_argument=None,
        merger=None, bint several=False, bint file=False, Keys keys=None,
    ):
        self.out = Buffer(1 << 19)
        self.values = ValueWriter(format)
        self.keys = Keys() if keys is None else keys
        self.max_bytes = max_bytes
        self.max_argument = (1 << 62) if max_argument is None else max_argument
        self.max_bytes = min(self.max_bytes, self.max_argument // 2)
        self.replace = exists == "replace"
        self.merger = merger
        self.several = several
        self.file = file
        self.digits = 3
        self.now_ms = int(time() * 1000)
        self.waiting = deque()
        self.sources = []

    def __dealloc__(self):
        free(self.value.words)
        free(self.value.ends)

    def serialize(self, Chunk chunk):
        """Read a chunk of commands; return the chunks of the keys that are complete.

        Args:
            chunk: the chunk; None to continue with commands that waited for a reply.
        """
        cdef list chunks = []
        if chunk is not None:
            self.waiting.append(chunk)
        while self.waiting and self.error is None and not self.blocked:
            chunk = self.waiting.popleft()
            try:
                chunks += self.serialize_chunk(chunk)
            except BaseException as error:  # even MemoryError: later commands must not follow
                self.fail(error)
            if self.error is not None:
                self.failed_in = chunk
        return chunks

    @property
    def failing(self):
        """(chunk, index) of the command that ``error`` is about; None if unknown."""
        cdef Chunk chunk
        command = getattr(self.error, "command", None)
        for chunk in [*self.sources, self.failed_in]:
            if chunk is not None and command is not None:
                if 0 <= command - chunk.first_command < len(chunk.rows):
                    return chunk, command - chunk.first_command
        return None

    @property
    def blocked(self):
        """Whether later commands wait for the reply to the RESTORE of a large key's beginning."""
        return self.fence is not None and not self.fence.answered

    def wait_for(self, Chunk fence not None):
        """Wait for the reply to ``fence``, the last part of a fence that was split by lane."""
        self.fence = fence

    def finish(self):
        """Return the chunks of all remaining keys; no more commands may follow."""
        cdef list chunks = self.serialize(None)
        if self.gathering and self.error is None and not self.waiting:
            try:
                self.end_key()
                chunks.append(self.take_chunk())
            except BaseException as error:
                self.fail(error)
        return chunks

    cdef list serialize_chunk(self, Chunk chunk):
        cdef list chunks = []
        cdef Py_ssize_t i, count = len(chunk.ends), first
        cdef const char *p
        cdef const char *base = chunk.data
        cdef ValueCommand command
        cdef Chunk lead = self.continue_large_key(chunk)
        if lead is not None:
            chunks.append(lead)
        first = self.next_command - chunk.first_command if lead is not None else 0
        if first == count or self.error is not None:
            return chunks
        if chunk.n_references:
            memoryview(chunk).release()  # joins the pieces
            base = chunk.joined
        self.sources.append(chunk)
        try:
            p = base + (chunk.ends.data.as_longlongs[first - 1] if first else 0)
            for i in range(first, count):
                self.at = chunk.first_command + i
                read_value_command(&command, p, base + chunk.ends.data.as_longlongs[i])
                self.add_command(&command, p, chunk.rows.data.as_longlongs[i])
                p = command.end
            self.at += 1
            self.check_size(chunk.rows.data.as_longlongs[count - 1])
        except BaseException as error:
            self.fail(error)
        done = self.take_chunk()
        if done is not None:
            chunks.append(done)
        return chunks

    cdef int fail(self, error) except -1:
        """Drop the current key, and set the error."""
        self.error = error
        self.gathering = False
        rollback(self.out, self.out.commands)
        return 0

    cdef Chunk continue_large_key(self, Chunk chunk):
        """Return the merged commands that continue a large key; None if there are none."""
        cdef Py_ssize_t count = 0, size
        cdef ValueCommand command
        cdef Chunk lead
        cdef const char *base
        cdef const char *end
        if self.fence is None or self.fence.refused:
            if self.fence is not None:
                # The next rows begin the key again; if the key existed, these rows must fail.
                self.key_existed = self.key_existed or self.fence.existed
                self.fence = None
            return None
        if chunk.n_references:
            memoryview(chunk).release()
        base = <const char *>chunk.joined if chunk.n_references else chunk.data
        command.end = base
        try:
            while count < len(chunk.ends):
                self.at = chunk.first_command + count
                end = base + chunk.ends.data.as_longlongs[count]
                read_value_command(&command, command.end, end)
                if not same(&command.key, self.fenced_key, len(self.fenced_key)):
                    self.fence = self.fenced_key = None
                    self.key_existed = False
                    break
                self.check(&command, True, chunk.rows.data.as_longlongs[count])
                count += 1
        except EncodeError as error:
            self.fail(error)
        if count == 0:
            return None
        size = chunk.ends.data.as_longlongs[count - 1]
        append(self.out, base, size)
        end_command(self.out, 0)
        lead = self.out.take()
        lead.first_command = chunk.first_command
        lead.ends, lead.rows = chunk.ends[:count], chunk.rows[:count]
        lead = self.merger.merge(lead)
        lead.fence = self.several
        self.next_command = chunk.first_command + count
        return lead

    cdef int add_command(
        self, const ValueCommand *command, const char *start, long long row
    ) except -1:
        """Add a command to the current key, or begin a new key."""
        cdef bint joins = self.gathering and same(&self.key, command.key.text, command.key.size)
        if self.gathering and not joins:
            self.end_key()
        cdef bytes fenced = self.fenced_key
        if fenced is not None and not same(&command.key, fenced, len(fenced)):
            self.fenced_key = None
            self.key_existed = False
        self.check(command, joins, row)
        if command.verb == EXPIRE or command.verb == PEXPIRE:
            return 0 if joins else self.put_expire(command, start, row)
        if not joins:
            self.begin_key(command, row)
        return self.add_items(command, row)

    cdef int check(self, const ValueCommand *command, bint joins, long long row) except -1:
        """Refuse a command that can't be serialised, or that can't follow its predecessor."""
        cdef str message = None
        if command.verb == OTHER or (command.verb == STRING and not self.file):
            kinds = "string, hash, list, set or sorted set"[0 if self.file else 8:]
            message = f"{shown(&command.name)} does not make a {kinds}"
        elif command.verb != EXPIRE and command.verb != PEXPIRE:
            message = why_invalid(command)
            if message is None and joins and command.verb != <int>self.value.kind:
                message = f"key {shown(&command.key)} is made by commands that can't be combined"
        elif joins:
            self.expires_ms = time_of(command)
            if self.expires_ms < 0:
                message = f"{shown(&command.name)} needs one plain number above 0"
        if message is not None:
            self.refuse(message, row)
        return 0

    cdef int put_expire(
        self, const ValueCommand *command, const char *start, long long row
    ) except -1:
        """Write an EXPIRE or PEXPIRE whose key the preceding commands do not create."""
        if self.file:
            self.refuse(f"{shown(&command.name)} must follow a command that makes its key", row)
        if self.fenced_key is None or self.replace:
            append(self.out, start, command.end - start)
        else:
            # The beginning of this key was refused, so EXPIRE must not change the existing key.
            # Servers check whether the key exists before they check the value.
            put_refused(self.out, &command.key)
        return end_command(self.out, self.at + 1 - self.next_command)

    cdef int begin_key(self, const ValueCommand *command, long long row) except -1:
        """Begin a new current key."""
        self.restarted = self.fenced_key is not None
        if not self.restarted:
            self.keys.prepare(command.key.text, command.key.size, row)
        self.gathering = True
        self.key = command.key
        self.row = row
        self.first = self.at
        self.value.kind = <ValueKind>command.verb
        self.value.size = self.value.commands = self.bytes = 0
        self.expires_ms = -1
        return 0

    cdef int add_items(self, const ValueCommand *command, long long row) except -1:
        """Add the arguments of a command to the current key."""
        cdef Value *v = &self.value
        cdef const char *p = command.items
        cdef long long size
        cdef Py_ssize_t i, count = command.words
        cdef Word *word
        if v.size + count > self.words_room:
            v.words = <Word *>resize(v.words, 2 * (v.size + count) * sizeof(Word))
            self.words_room = 2 * (v.size + count)
        if v.commands == self.ends_room:
            v.ends = <Py_ssize_t *>resize(v.ends, (2 * v.commands + 64) * sizeof(Py_ssize_t))
            self.ends_room = 2 * v.commands + 64
        if v.kind == STRING:
            count = 1
            self.expires_ms = -1
        for i in range(count):
            word = &v.words[v.size + i]
            word.text = next_word(&p, &size)
            word.size = size
        v.size += count
        v.ends[v.commands] = v.size
        v.commands += 1
        self.bytes += p - command.items
        if count < command.words:
            self.expires_ms = time_of_set(command, p)
            if self.expires_ms < 0:
                self.refuse("SET may only have EX or PX and a number above 0", row)
        return 0

    cdef int end_key(self) except -1:
        """Write the current key.

        Raises:
            EncodeError: the key is a duplicate.
        """
        cdef long long before = -1 if self.restarted else self.keys.add()
        if before >= 0:
            self.refuse(
                Message(
                    f"row {before:,} and row {self.row:,} make the same key, {shown(&self.key)}, "
                    "with other keys between them; sort the rows by key with ",
                    InPython("read() and "),
                    Hint("sort_by"),
                ),
                self.row,
                self.first,
            )
        self.gathering = False
        if self.file:
            self.put_record()
        elif self.restarted and self.key_existed:
            put_refused(self.out, &self.key)
        else:
            self.put_restore()
        # One reply answers all commands of the key.
        end_command(self.out, self.at - self.next_command)
        self.key_count += 1
        if self.words_room > MAX_KEPT_WORDS:
            free(self.value.words)
            free(self.value.ends)
            self.value.words, self.value.ends = NULL, NULL
            self.words_room = self.ends_room = 0
            self.values = ValueWriter(self.values.format)
        return 0

    cdef int put_restore(self) except -1:
        cdef Buffer b = self.out
        cdef char *p = make_room(b, self.key.size + BEFORE_VALUE)
        cdef char[32] text
        cdef Py_ssize_t header, start, size
        p = put_copy(p, b"*5\r\n" if self.replace else b"*4\r\n", 4)
        p = put_copy(p, b"$7\r\nRESTORE\r\n", 13)
        p = put_bulk(p, self.key.text, self.key.size)
        p = put_bulk(p, text, put_signed(text, max(self.expires_ms, 0)) - text)
        b.out.p = p
        header = own_size(&b.out)
        open_header(b, self.digits)
        start = own_size(&b.out)
        self.values.put(b, &self.value, NULL)
        put_footer(b, start, self.values.format.rdb_version)
        size = own_size(&b.out) - start
        if size > self.max_argument:
            self.refuse(
                f"the value of key {shown(&self.key)} has {size:,} bytes, more than the "
                f"{self.max_argument:,} that the server accepts in one argument; raise its "
                "proto-max-bulk-len, or load without serialising",
                self.row,
                self.first,
            )
        end_header(b, header, c'$', size, &self.digits)
        append(b, b"\r\n$7\r\nREPLACE\r\n", 15 if self.replace else 2)
        return 0

    cdef int put_record(self) except -1:
        """Write the key in the format of an RDB file."""
        cdef Buffer b = self.out
        cdef char *p
        cdef long long at = self.now_ms + self.expires_ms
        if self.expires_ms >= 0:
            p = make_room(b, 9)
            p[0] = <char>EXPIRES_MS
            memcpy(p + 1, &at, 8)
            b.out.p = p + 9
            self.expiring += 1
        return self.values.put(b, &self.value, &self.key)

    cdef int check_size(self, long long row) except -1:
        """If the current key is large, write its RESTORE now; later commands wait for its reply."""
        if not self.gathering:
            return 0
        if self.bytes < self.max_bytes:
            if len(self.sources) < 2:
                return 0
            memory = sum([chunk.memory for chunk in self.sources])
            if memory + self.words_room * sizeof(Word) < MEMORY_FACTOR * self.max_bytes:
                return 0
        if self.merger is None:
            self.refuse(
                f"key {shown(&self.key)} is too large for an RDB file: its items have more than "
                f"{self.max_bytes:,} bytes, or its commands need more than "
                f"{MEMORY_FACTOR * self.max_bytes:,} bytes of memory; load it into a server "
                "instead",
                row,
                self.at - 1,
            )
        self.fenced_key = self.key.text[:self.key.size]
        self.end_key()
        self.fencing = True
        return 0

    cdef SerializedChunk take_chunk(self):
        """Return a chunk of the keys written since the last call; None if there are no keys."""
        cdef SerializedChunk chunk
        cdef Chunk source
        cdef list sources
        if self.out.commands == 0:
            return None
        sources = [] if self.file else self.sources
        chunk = make_chunk(self.out.take(), self.next_command, sources)
        self.next_command += chunk.lasts[len(chunk.lasts) - 1]
        sources, self.sources = self.sources, []
        for source in sources:
            if source.first_command + len(source.rows) > self.next_command:
                self.sources.append(source)
            else:
                source.joined = None    # an unused copy of large arguments
        if self.fencing:
            self.fencing = False
            chunk.fence = True
            self.fence = chunk
        return chunk

    cdef int refuse(self, message, long long row, Py_ssize_t command=-1) except -1:
        """Raise the error for a command, by default the current command."""
        command = self.at if command < 0 else command
        message = Message(f"row {row:,}, command {command:,}: ", message)
        raise EncodeError(message, command=command, row=row)
