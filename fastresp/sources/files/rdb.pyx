# cython: language_level=3, cdivision=True
"""Read an RDB file, the snapshot of a server, key by key.

``RdbReader(read).batch()`` returns the next keys of one database as a KeyBatch: lists of the keys,
of their expiries, of their RDB types, and of their values. A value is the type byte followed by the
value's bytes, as in a DUMP payload without its footer. Source of the format: rdb.h and rdb.c.
"""

from libc.stdint cimport int32_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from ...encode.payload.decoding cimport fail, read_number, read_stored, skip
from ...encode.payload.encoding cimport MODULE_VALUE
from ...encode.payload.format cimport crc64
from ...encode.payload.stored_values cimport (
    DAMAGED,
    INCOMPLETE,
    type_name,
    value_end,
    why_damaged,
)

from typing import NamedTuple

from ...outcome.errors import SourceError

cdef enum:
    # Bytes per read, which fit in the CPU's cache: with 1 MiB, reading takes 1.3 times as long.
    BLOCK_BYTES = 1 << 18
    # The approximate size of a batch.
    BATCH_BYTES = 1 << 20
    HEADER_BYTES = 9
    # Files of version 5 and later end with a checksum.
    CHECKSUM_VERSION = 5
    MAX_REDIS = 12
    VALKEY_9 = 80
    # More auxiliary fields, or longer ones, are not kept.
    MAX_AUX = 100
    MAX_DATABASE = 1 << 30
    # Opcodes.
    SLOT_IMPORT = 243
    SLOT_INFO = 244
    FUNCTION = 245
    MODULE_AUX = 247
    IDLE = 248
    FREQUENCY = 249
    AUX = 250
    RESIZE_DB = 251
    EXPIRES_MS = 252
    EXPIRES_S = 253
    SELECT_DB = 254
    END = 255

# Replaced by the result of why_damaged(), which needs Python.
cdef const char *BAD_VALUE = b"a value is damaged"

# The types of values, as TYPE names them; "module" for types of modules.
TYPES = ("string", "list", "set", "zset", "hash", "stream", "module")


class KeyBatch(NamedTuple):
    """Keys of a database, with their values.

    Attributes:
        database: the index of the database.
        keys: the keys.
        expires: when each key expires, in milliseconds since 1970; -1 for never.
        types: the RDB type of each value.
        sizes: the number of bytes of each value in the file.
        values: the type byte and the bytes of each value; empty if they are not wanted.
    """

    database: int
    keys: list[bytes]
    expires: list[int]
    types: list[int]
    sizes: list[int]
    values: list[bytes]


def type_of(int kind):
    """Return the type, from TYPES, of a value with this RDB type."""
    return type_name(kind)


cdef uint64_t kinds_of(type) except? 0:
    """Return the RDB types of ``type``, which is in TYPES, as a bit mask; all bits for None."""
    cdef uint64_t kinds = 0
    cdef int kind
    if type is None:
        return ~kinds
    for kind in range(64):
        if type_name(kind) == type:
            kinds |= <uint64_t>1 << kind
    if not kinds:
        raise ValueError(f"type must be one of {', '.join(TYPES)}, not {type!r}")
    return kinds


cdef class RdbReader:
    """Reads keys and values from the bytes of an RDB file, which may be damaged.

    Memory is bounded by the largest value.

    Args:
        read: called with a number of bytes; returns this many bytes as a bytes object, fewer only
            at the end of the file.
        name: the name of the file, for errors; may be empty.
        match: a glob pattern of the wanted keys, as for SCAN; None for all keys.
        type: the wanted type, from TYPES; None for all types.
        database: the wanted database; None for all databases.

    Attributes:
        version: the RDB version.
        valkey: whether the file begins with VALKEY, not with REDIS.
        database: the current database.
        aux: the auxiliary fields so far, such as ``redis-ver``.
        functions: the source code of the function libraries so far.
        keys: number of keys read, wanted or not.
        other_databases: number of keys in databases that are not wanted.
        unmatched: number of keys in the wanted databases that do not match.
        other_types: number of matching keys in the wanted databases that have another type.

    Raises:
        SourceError: the file is not an RDB file, or its version is unknown.
    """

    def __init__(self, read, *, str name="", match=None, type=None, database=None):
        self.read, self.name = read, name
        self.pattern = match.encode() if isinstance(match, str) else match
        if match is not None:
            self.glob.text = PyBytes_AS_STRING(self.pattern)
            self.glob.size = PyBytes_GET_SIZE(self.pattern)
        self.wanted_kinds = kinds_of(type)
        self.wanted_database = -1 if database is None else database
        self.strings = Elements()
        self.aux, self.functions = {}, []
        self.hold(b"")
        self.read_header()

    @property
    def offset(self):
        """The offset in the file of the next byte to read."""
        return self.block_offset + (self.at.p - PyBytes_AS_STRING(self.block))

    @property
    def other(self):
        """The first matching key of an unwanted type, cut if long, and its type's name; or None."""
        return None if self.other_types == 0 else (kept(&self.other), type_name(self.other.kind))

    def batch(self, *, bint values=True):
        """Return the next keys of one database as a KeyBatch; None at the end of the file.

        Args:
            values: whether the values are wanted.

        Raises:
            SourceError: the file is truncated or damaged; the message has the offset and the last
                key. Keys returned earlier are whole; a wrong checksum is found only at the end.
        """
        cdef Entry entry
        cdef Step step
        cdef Py_ssize_t size = 0
        cdef int database = self.database
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        made = KeyBatch(database, [], [], [], [], [])
        cdef list keys = made.keys, expires = made.expires, types = made.types
        cdef list sizes = made.sizes, found = made.values
        while size < BATCH_BYTES:
            step = self.step(&entry)
            if step == AT_KEY:
                keys.append(entry.key.text[:entry.key.size])
                expires.append(entry.expires)
                types.append(entry.kind)
                sizes.append(entry.size)
                if values:
                    found.append(joined(&entry))
                size += entry.key.size + (entry.size if values else 64)
                continue
            try:
                if not self.advance(step):
                    break
            except SourceError as error:
                if not keys:
                    raise
                self.error = error  # for the next call: these keys are whole
                break
            if self.database != database:
                if keys:
                    break
                database = self.database
        return made._replace(database=database) if keys else None

    cdef Step step(self, Entry *entry) noexcept nogil:
        """Read up to the next wanted key, or until Python is needed."""
        cdef Step step = AT_KEY
        while step == AT_KEY:
            step = self.next_key(entry)
            if step == AT_KEY and self.is_wanted(entry):
                return AT_KEY
        return step

    cdef inline bint is_wanted(self, Entry *entry) noexcept nogil:
        """Return whether a key is wanted; if not, count it."""
        if self.wanted_database >= 0 and self.database != self.wanted_database:
            self.other_databases += 1
        elif self.glob.text is not NULL and not matches(&self.glob, &entry.key):
            self.unmatched += 1
        elif not self.wanted_kinds >> entry.kind & 1:
            if self.other_types == 0:
                keep(&self.other, entry)
            self.other_types += 1
        else:
            return True
        return False

    cdef Step next_key(self, Entry *entry) noexcept nogil:
        """Read the next key and its value."""
        cdef Cursor c = self.at
        cdef Stored key
        cdef const char *start
        if not read_attributes(&c, entry):
            return self.stopped(&c)
        if entry.kind >= SLOT_IMPORT:
            if c.p - self.at.p == 1:
                return AT_OPCODE
            c.fault = b"no key follows an expiry"
            return self.stopped(&c)
        start = c.p
        if not read_stored(&c, &key):
            return self.stopped(&c)
        entry.value = c.p
        if not (self.decode(&c, start, &key, &entry.key) and self.pass_value(&c, entry.kind)):
            return self.stopped(&c)
        entry.size = c.p - entry.value
        self.at.p = c.p
        self.keys += 1
        keep(&self.last, entry)
        return AT_KEY

    cdef bint pass_value(self, Cursor *c, int kind) noexcept nogil:
        """Skip the value of an RDB type."""
        cdef Py_ssize_t size = value_end(kind, c.p, c.end - c.p)
        if size == DAMAGED:
            self.bad_value, self.bad_kind = c.p, kind
            return fail(c, BAD_VALUE)
        if size == INCOMPLETE:
            return False
        c.p += size
        return True

    cdef Step stopped(self, Cursor *c) noexcept nogil:
        """Return why a read function returned False."""
        self.problem = c.fault
        return AT_CUT if c.fault is NULL else AT_DAMAGE

    cdef bint decode(
        self, Cursor *c, const char *start, const Stored *stored, Word *word
    ) noexcept nogil:
        """Decode a string that starts at ``start``; ``word`` is valid until the next call."""
        if stored.text is not NULL and stored.expanded == 0:
            word.text, word.size = stored.text, stored.size
            return True
        self.strings.open(0, start, c.p - start)
        return self.strings.next(word) > 0 or fail(c, b"a compressed string is damaged")

    cdef bint advance(self, Step step) except -1:
        """Handle the reason why step() stopped; return False at the end of the file."""
        cdef Cursor c = self.at
        if self.ended:
            return False
        if step == AT_OPCODE:
            c.p += 1
            if self.read_opcode(<unsigned char>self.at.p[0], &c):
                if not self.ended:
                    self.at.p = c.p
                return not self.ended
            step = self.stopped(&c)
        if step == AT_DAMAGE:
            raise self.damaged(
                why_damaged(self.bad_kind, self.bad_value, self.at.end - self.bad_value)
                if self.problem is BAD_VALUE else self.problem.decode()
            )
        self.fill()
        return True

    cdef bint read_opcode(self, int code, Cursor *c) except -1:
        """Read the data of an opcode; return False if bytes are damaged or missing (see Cursor)."""
        cdef uint64_t n = 0, ranges = 0, _
        if code == END:
            self.check_end()
            return True
        if code == SELECT_DB:
            if not read_number(c, &n):
                return False
            if n > MAX_DATABASE:
                return fail(c, b"the index of a database is invalid")
            self.database = <int>n
            return True
        if code == RESIZE_DB:
            return read_number(c, &_) and read_number(c, &_)
        if code == SLOT_INFO:
            return read_number(c, &_) and read_number(c, &_) and read_number(c, &_)
        if code == AUX:
            return self.read_aux(c)
        if code == FUNCTION:
            code_of = self.read_string(c)
            if code_of is not None:
                self.functions.append(code_of)
            return code_of is not None
        if code == MODULE_AUX:
            # In the format of a module's value: an identifier, and values with an opcode each.
            return self.pass_value(c, MODULE_VALUE)
        if code == SLOT_IMPORT and self.valkey:
            # The name of a slot migration, and its ranges of slots.
            if self.read_string(c) is None or not read_number(c, &ranges):
                return False
            while ranges and read_number(c, &_) and read_number(c, &_):
                ranges -= 1
            return ranges == 0
        return fail(c, b"an opcode is unknown")

    cdef bint read_aux(self, Cursor *c) except -1:
        """Read the name and the value of an auxiliary field."""
        name = self.read_string(c)
        value = None if name is None else self.read_string(c)
        if value is not None and len(self.aux) < MAX_AUX and len(name) + len(value) < BLOCK_BYTES:
            self.aux[name] = value
        return value is not None

    cdef bytes read_string(self, Cursor *c):
        """Read a string; return None if bytes are damaged or missing (see Cursor)."""
        cdef Word word
        cdef Stored stored
        cdef const char *start = c.p
        if not read_stored(c, &stored) or not self.decode(c, start, &stored, &word):
            return None
        return word.text[:word.size]

    cdef int fill(self) except -1:
        """Read more bytes, twice as many each time for a large value."""
        cdef bytes rest = self.at.p[:self.at.end - self.at.p]
        more = self.read(max(BLOCK_BYTES, len(rest)))
        if not more:
            raise SourceError(
                f"{self.prefix()}truncated: it ends at byte {self.offset + len(rest):,}, before "
                f"the end of the snapshot{self.progress()}; copy the file again once the server "
                "has written it"
            )
        self.hold(rest + more)
        return 0

    cdef int hold(self, bytes block) except -1:
        """Continue in a new block, which begins with the next byte to read."""
        if self.block is not None:
            self.add_to_checksum()
            self.block_offset = self.offset
        self.block = block
        self.at.p = self.summed = PyBytes_AS_STRING(block)
        self.at.end = self.at.p + PyBytes_GET_SIZE(block)
        return 0

    cdef void add_to_checksum(self) noexcept:
        self.crc = crc64(self.crc, self.summed, self.at.p - self.summed)
        self.summed = self.at.p

    cdef int read_header(self) except -1:
        """Read the version."""
        while self.at.end - self.at.p < HEADER_BYTES:
            more = self.read(BLOCK_BYTES)
            if not more:
                break
            self.hold(self.block + more)
        cdef bytes head = self.block[:HEADER_BYTES]
        self.valkey = head.startswith(b"VALKEY")
        digits = head[6 if self.valkey else 5:]
        known = self.valkey or head.startswith(b"REDIS")
        if not known or not digits.isdigit() or len(head) < HEADER_BYTES:
            raise SourceError(
                f"{self.prefix()}not an RDB file: it begins with {head!r}, not with REDIS or "
                "VALKEY and a version; pass a file that SAVE or BGSAVE wrote"
            )
        self.version = int(digits)
        known = self.version == VALKEY_9 if self.valkey else 0 < self.version <= MAX_REDIS
        if not known:
            raise SourceError(
                f"{self.prefix()}RDB version {self.version} is unknown; the versions of Redis up "
                f"to {MAX_REDIS}, and {VALKEY_9} of Valkey, can be read: copy from the server "
                "instead"
            )
        self.at.p += HEADER_BYTES
        return 0

    cdef int check_end(self) except -1:
        """Check the checksum, and that no bytes follow."""
        cdef uint64_t found
        cdef int size = 8 if self.version >= CHECKSUM_VERSION else 0
        while self.at.end - self.at.p <= size:
            self.fill()
        self.ended = True
        self.at.p += 1
        self.add_to_checksum()
        if size:
            memcpy(&found, self.at.p, 8)
            if found and found != self.crc:
                raise self.damaged("the checksum of the file is wrong, so a value may be damaged")
            self.at.p += 8
        if self.at.p < self.at.end or self.read(1):
            raise SourceError(
                f"{self.prefix()}more bytes follow the snapshot, which ends at byte "
                f"{self.offset:,}, as in an append-only file: read its base file (.base.rdb), or "
                "save the server's data with BGSAVE"
            )
        return 0

    cdef object damaged(self, str reason):
        return SourceError(
            f"{self.prefix()}damaged at byte {self.offset:,}: {reason}{self.progress()}; use "
            "another copy of the file"
        )

    cdef str prefix(self):
        return f"{self.name}: " if self.name else ""

    cdef str progress(self):
        if self.keys == 0:
            return " (no key was read)"
        key = kept(&self.last).decode(errors="backslashreplace")
        return f" (key {self.keys:,}, '{key}', is the last whole one)"


cdef bint read_attributes(Cursor *c, Entry *entry) noexcept nogil:
    """Read the attributes of a key, and the byte after them: a value's type, or an opcode."""
    cdef int32_t seconds
    cdef uint64_t idle
    entry.expires = -1
    while c.p < c.end:
        entry.kind = <unsigned char>c.p[0]
        c.p += 1
        if entry.kind == EXPIRES_MS:
            if not skip(c, 8):
                return False
            memcpy(&entry.expires, c.p - 8, 8)
            # A server deletes keys that expired before 1970; 0 and -1 have other meanings.
            entry.expires = max(entry.expires, 1)
        elif entry.kind == EXPIRES_S:
            if not skip(c, 4):
                return False
            memcpy(&seconds, c.p - 4, 4)
            entry.expires = max(<int64_t>seconds * 1000, 1)
        elif entry.kind == FREQUENCY:
            if not skip(c, 1):
                return False
        elif entry.kind == IDLE:
            if not read_number(c, &idle):
                return False
        else:
            return True
    return False


cdef inline void keep(KeptKey *to, Entry *entry) noexcept nogil:
    to.kind, to.size = entry.kind, entry.key.size
    memcpy(to.text, entry.key.text, min(entry.key.size, KEPT))


cdef bytes kept(KeptKey *key):
    return key.text[:min(key.size, KEPT)]


cdef bytes joined(Entry *entry):
    """Return the type byte and the value."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, entry.size + 1)
    cdef char *p = PyBytes_AS_STRING(made)
    p[0] = <char>entry.kind
    memcpy(p + 1, entry.value, entry.size)
    return made


cdef bint matches(const Word *glob, const Word *key) noexcept nogil:
    """Return whether a key matches a pattern of SCAN; source: stringmatchlen() in util.c."""
    cdef const char *p = glob.text
    cdef const char *end = glob.text + glob.size
    cdef const char *c = key.text
    cdef const char *c_end = key.text + key.size
    cdef const char *star = NULL    # after the last star
    cdef const char *after = NULL   # the byte up to which this star matches
    cdef const char *following
    while c < c_end:
        if p < end and p[0] == c'*':
            p += 1
            star, after = p, c
            continue
        following = p
        if p < end and matches_one(&following, end, c[0]):
            p, c = following, c + 1
            continue
        if star is NULL:
            return False
        after += 1
        p, c = star, after
    while p < end and p[0] == c'*':
        p += 1
    return p == end


cdef bint matches_one(const char **at, const char *end, char c) noexcept nogil:
    """Return whether one element of a pattern matches a byte; move ``at`` to the next element."""
    cdef const char *p = at[0]
    cdef bint negated, found = False
    cdef unsigned char low, high, byte = <unsigned char>c
    if p[0] == c'[':
        p += 1
        negated = p < end and p[0] == c'^'
        p += negated
        while p < end and p[0] != c']':
            if p[0] == c'\\' and end - p >= 2:
                p += 1
                found |= p[0] == c
            elif end - p >= 3 and p[1] == c'-':
                low, high = min(<unsigned char>p[0], <unsigned char>p[2]), max(
                    <unsigned char>p[0], <unsigned char>p[2]
                )
                found |= low <= byte <= high
                p += 2
            else:
                found |= p[0] == c
            p += 1
        at[0] = p + (p < end)
        return found != negated
    if p[0] == c'\\' and end - p >= 2:
        p += 1
    elif p[0] == c'?':
        at[0] = p + 1
        return True
    at[0] = p + 1
    return p[0] == c
