# cython: language_level=3, cdivision=True
"""Find the keys of commands and their slots. Source: the Redis Cluster specification."""

from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

from .buffer cimport Buffer, Chunk, append, append_bulk, end_command
from .grammar cimport digits_end, known_length_end

from .commands import COMMANDS, POSITIONS, commands_with

cdef dict OF_EFFECTS = {
    "multi": MULTI, "end": END, "watch": WATCH, "connection": CONNECTION, "wait": CONNECTION,
}
cdef dict BOUNDS = {
    name: OF_EFFECTS[command.effect]
    for name, command in COMMANDS.items() if command.effect in OF_EFFECTS
}

cdef enum:
    POLYNOMIAL = 0x1021
    STEP = 8
    MAX_NAMES = 1000

# The CRC-16 of a byte followed by 0 to 7 zero bytes: a step handles 8 bytes, with independent
# lookups.
cdef uint16_t crcs[STEP][256]

cdef int fill_crcs() noexcept:
    cdef int byte, step, _, crc
    for byte in range(256):
        crc = byte << 8
        for step in range(STEP):
            for _ in range(8):
                crc = (crc << 1 ^ (POLYNOMIAL if crc & 0x8000 else 0)) & 0xFFFF
            crcs[step][byte] = <uint16_t>crc
    return 0


cdef inline unsigned int place_of(const char *name, long long size) noexcept nogil:
    """Return the hash of a name in capitals; its rule is at or after this index of the table."""
    cdef unsigned int place = <unsigned int>size
    cdef long long i
    for i in range(size):
        place = place * 31 + <unsigned char>name[i]
    return place


cdef const Rule *rule_of(const Rule *table, const char *name, long long size) noexcept nogil:
    """Return the key positions of a command; NULL if they are unknown."""
    cdef char[LONGEST_NAME] capitals
    cdef unsigned int place
    cdef const Rule *rule
    cdef long long i
    if size > LONGEST_NAME:
        return NULL
    for i in range(size):
        capitals[i] = name[i] & ~0x20 if c'a' <= name[i] <= c'z' else name[i]
    place = place_of(capitals, size)
    while True:
        rule = &table[place % RULES]
        if rule.size == 0:
            return NULL
        if rule.size == size and memcmp(rule.name, capitals, size) == 0:
            return rule
        place += 1


cdef class Rules:
    """The key positions of commands.

    Args:
        more: further commands, such as commands of other modules: a dict from the name, in
            capitals, to a tuple of the first key's position, the last key's position, and the step.
            Names in POSITIONS are ignored.
    """

    def __cinit__(self, more=()):
        for name, at in POSITIONS.items():
            self.add(name, at.first, at.last, at.step, at.number_at)
        for name in more:
            if 0 < len(name) <= LONGEST_NAME and self.count < MAX_NAMES:
                if rule_of(self.table, name, len(name)) is NULL:
                    first, last, step = more[name]
                    self.add(name, first, last, max(step, 1), 0)

    cdef int add(self, bytes name, int first, int last, int step, int count) except -1:
        cdef unsigned int place = place_of(name, len(name))
        cdef Rule *rule = &self.table[place % RULES]
        while rule.size:
            place += 1
            rule = &self.table[place % RULES]
        memcpy(rule.name, <const char *>name, len(name))
        rule.first, rule.last, rule.step, rule.count = first, last, step, count
        rule.size = <int>len(name)
        rule.bounds = BOUNDS.get(name, NOTHING)
        self.count += 1
        return 0

    cdef void start(self, LastRule *last) noexcept:
        """Initialise ``last`` before the first command."""
        last.table, last.size, last.rule = self.table, -1, NULL

    def slot(self, bytes command not None, *, bint every=False):
        """Return the slot of a command; if it has no single slot, NO_KEY, UNKNOWN or SEVERAL.

        Args:
            command: the command as RESP.
            every: whether all keys must have this slot; if False, only the first key is examined.
        """
        cdef Walk walk
        cdef LastRule last
        self.start(&last)
        walk.base = walk.p = command
        walk.large = walk.stop = NULL
        cdef int slot = slot_of_all(&walk, &last) if every else slot_of_first(&walk, &last)
        return UNKNOWN if last.rule is NULL else slot


fill_crcs()
cdef Rules BUILT_IN = Rules()


cdef inline uint64_t two_bytes(const unsigned char *p) noexcept nogil:
    return <uint64_t>p[0] << 8 | p[1]


cdef inline uint64_t four_bytes(const unsigned char *p) noexcept nogil:
    """Return four bytes as a big-endian number, which compiles to one load."""
    return <uint64_t>p[0] << 24 | <uint64_t>p[1] << 16 | <uint64_t>p[2] << 8 | p[3]


cdef inline uint64_t first_bytes(const unsigned char *p, Py_ssize_t size) noexcept nogil:
    """Return 1 to 8 bytes as a big-endian number."""
    if size >= 4:
        return four_bytes(p) << 8 * (size - 4) | four_bytes(p + size - 4)
    if size >= 2:
        return two_bytes(p) << 8 * (size - 2) | two_bytes(p + size - 2)
    return p[0]


cdef inline int crc16(const char *text, Py_ssize_t size, bint *has_tag) noexcept nogil:
    """Return the CRC-16/XMODEM of a string.

    A step handles 8 bytes, and the first step 1 to 8 bytes: leading zero bytes don't change a CRC.

    Args:
        has_tag: receives whether the string has a '{'.
    """
    cdef const unsigned char *p = <const unsigned char *>text
    cdef const unsigned char *end = p + size
    cdef unsigned int high, crc = 0
    cdef uint64_t number, others, braces = 0
    cdef uint64_t ones = 0x0101010101010101ULL
    cdef Py_ssize_t n = (size - 1) % STEP + 1
    while p < end:
        number = first_bytes(p, n)
        # Whether a number has a zero byte. Source: S. E. Anderson, Bit Twiddling Hacks.
        others = number ^ ones * c'{'
        braces |= (others - ones) & ~others & ones << 7
        high = crc ^ <unsigned int>(number >> 48)
        crc = (
            crcs[3][number >> 24 & 0xFF] ^ crcs[2][number >> 16 & 0xFF]
            ^ crcs[1][number >> 8 & 0xFF] ^ crcs[0][number & 0xFF]
        )
        if n > 4:
            crc ^= crcs[5][number >> 40 & 0xFF] ^ crcs[4][number >> 32 & 0xFF]
            crc ^= crcs[7][high >> 8] ^ crcs[6][high & 0xFF]
        p += n
        n = STEP
    has_tag[0] = braces != 0
    return crc


cdef int key_slot(const char *key, Py_ssize_t size) noexcept nogil:
    """Return the slot of a key's hash tag, between '{' and '}', or of the key if it has no tag."""
    cdef bint has_tag
    cdef int crc = crc16(key, size, &has_tag)
    if has_tag:
        crc = crc_of_tag(key, size, crc)
    return crc & (SLOTS - 1)


cdef int crc_of_tag(const char *key, Py_ssize_t size, int whole) noexcept nogil:
    """Return the CRC-16 of the hash tag in a key with a '{', or ``whole`` if there is no tag."""
    cdef const char *tag = <const char *>memchr(key, c'{', size) + 1
    cdef const char *stop = <const char *>memchr(tag, c'}', key + size - tag)
    cdef bint _
    return whole if stop is NULL or stop == tag else crc16(tag, stop - tag, &_)


cdef long long read_name(Walk *walk, LastRule *last) noexcept nogil:
    """Skip a command's name, and find its rule; return the command's number of arguments.

    Args:
        walk: at the start of the command; is moved past the name.
        last: the last name read; is set to the command's name and rule.
    """
    cdef long long words, size
    cdef const char *text
    walk.p = known_length_end(walk.p + 1, &words)
    text = next_argument(walk, &size)
    if size != last.size or memcmp(text, last.name, size) != 0:
        last.rule = rule_of(last.table, text, size)
        last.size = -1
        if size <= LONGEST_NAME:
            memcpy(last.name, text, size)
            last.size = size
    return words


cdef long long read_count(const char *p, long long size) noexcept nogil:
    """Parse an argument that is a number of keys; return 0 if a server would refuse the number."""
    cdef long long n = 0
    if not 0 < size < 10 or digits_end(p, p + size) != p + size:
        return 0
    while size > 0:
        n = n * 10 + (p[0] - c'0')
        p += 1
        size -= 1
    return n


cdef int slot_of_all(Walk *walk, LastRule *last) noexcept nogil:
    """Return the slot that all keys of a command share.

    Return SEVERAL if the keys are in several slots, NO_KEY if there is no key, and UNKNOWN if the
    key positions are unknown.
    """
    cdef long long words = read_name(walk, last), i, size, begin, end
    cdef const Rule *rule = last.rule
    cdef int slot = NO_KEY, found
    cdef const char *text
    if rule is NULL:
        return UNKNOWN
    begin = end = rule.first
    if rule.count == 0:
        end = rule.last if rule.last >= 0 else words + rule.last
    elif rule.first > rule.count:
        begin = words                   # unknown until the number of keys is read
    for i in range(1, words):
        text = next_argument(walk, &size)
        if i == rule.count:
            begin = i + 1
            end = i + read_count(text, size) * rule.step
        elif 0 < begin <= i <= end and (i - begin) % rule.step == 0:
            found = key_slot(text, size)
            if slot >= 0 and found != slot:
                return SEVERAL
            slot = found
    return slot


cdef const char *first_key(Walk *walk, LastRule *last, long long *size) noexcept nogil:
    """Return a command's first key, or argument 1 if the key positions are unknown.

    Return NULL if there is no key.
    """
    cdef long long words = read_name(walk, last), i
    cdef const Rule *rule = last.rule
    cdef const char *text
    cdef int first = 1 if rule is NULL else rule.first
    for i in range(1, words):
        if first == 0:
            break
        text = next_argument(walk, size)
        if rule is not NULL and i == rule.count and size[0] == 1 and text[0] == c'0':
            break
        if i == first:
            return text
    return NULL


cdef int slot_of_first(Walk *walk, LastRule *last) noexcept nogil:
    """Return the slot of ``first_key()``, or NO_KEY."""
    cdef long long size
    cdef const char *key = first_key(walk, last, &size)
    return NO_KEY if key is NULL else key_slot(key, size)


cdef tuple all_keys(Walk *walk, LastRule *last):
    """Return the keys of a command; argument 1 if the key positions are unknown."""
    cdef long long words = read_name(walk, last), i, size, begin = 1, end = 1, step = 1
    cdef const Rule *rule = last.rule
    cdef const char *text
    cdef list found = []
    if rule is not NULL:
        begin = end = rule.first
        step = max(rule.step, 1)
        if rule.count == 0:
            end = rule.last if rule.last >= 0 else words + rule.last
    for i in range(1, words):
        text = next_argument(walk, &size)
        if rule is not NULL and rule.count and i == rule.count:
            if begin > i:
                begin = i + 1
            end = i + read_count(text, size) * step
        elif 0 < begin <= i and (i == begin or (i <= end and (i - begin) % step == 0)):
            found.append(text[:size])
    return tuple(found)


def tags():
    """Return for each slot a hash tag: the smallest decimal number that hashes to this slot."""
    cdef list found = [None] * SLOTS
    cdef Py_ssize_t number = 0, left = SLOTS
    cdef bytes text
    cdef int slot
    while left:
        text = b"%d" % number
        slot = key_slot(text, len(text))
        if found[slot] is None:
            found[slot] = text
            left -= 1
        number += 1
    return found


def keys_in(list keys not None, bytes wanted not None):
    """Return the keys that are in wanted slots, in the order of ``keys``.

    Args:
        keys: bytes objects.
        wanted: the wanted slots, from ``mask_of()``.

    Raises:
        ValueError: ``wanted`` has the wrong length.
    """
    cdef list found = []
    cdef const unsigned char *mask = wanted
    cdef bytes key
    if len(wanted) != SLOTS:
        raise ValueError(f"wanted must have {SLOTS} bytes, not {len(wanted)}")
    for key in keys:
        if mask[key_slot(key, len(key))]:
            found.append(key)
    return found


def mask_of(slots):
    """Return bytes with one byte per slot: 1 for the given slots, 0 for the other slots."""
    cdef bytearray mask = bytearray(SLOTS)
    for slot in slots:
        mask[slot] = 1
    return bytes(mask)


def keys_of(Chunk chunk not None):
    """Return a list that contains, for each command of a chunk, a tuple of its keys."""
    cdef list found = []
    cdef const Reference *large = chunk.references
    cdef Py_ssize_t i, extra = 0
    cdef Walk walk
    cdef LastRule last
    BUILT_IN.start(&last)
    walk.base = walk.p = chunk.data
    walk.stop = large + chunk.n_references
    for i in range(len(chunk.ends)):
        walk.large = large
        found.append(all_keys(&walk, &last))
        walk.p = end_of(chunk, i, &large, &extra)
    return found


cdef bytes MEMORY_USAGE = b"*3\r\n$6\r\nMEMORY\r\n$5\r\nUSAGE\r\n"
cdef bytes HSTRLEN = b"*3\r\n$7\r\nHSTRLEN\r\n"
cdef frozenset READS = frozenset(name.encode() for name in commands_with("read"))
cdef frozenset SMALL = frozenset(name.encode() for name in commands_with("small"))


def size_queries(Chunk chunk not None, Py_ssize_t first, Py_ssize_t stop):
    """Return commands that query how large the replies to some commands of a chunk may be.

    The queries return the length of the field for HGET, and the memory of the keys for other
    commands.

    Args:
        chunk: the chunk of the commands.
        first, stop: the range of the commands.

    Returns:
        None if a command changes the effect of later commands, as MULTI and SELECT do. Otherwise a
        tuple of three. First, a chunk of queries; None if no queries are needed. Second, a list
        with the number of queries for each command: 0 for a small reply, -1 for an unknown size.
        Third, a list: for each command, the number of bytes that earlier commands of the range
        write to its keys.
    """
    cdef list counts = [], written = []
    cdef dict writes = {}
    cdef Buffer out = Buffer(1 << 16)
    cdef const Reference *large = chunk.references
    cdef const Reference *here
    cdef const char *start
    cdef Py_ssize_t i, before, extra = 0
    cdef Walk walk
    cdef LastRule last
    cdef tuple keys
    cdef bytes key, name = b"", known = b""
    cdef bint reads = True, small = False, of_field = False
    BUILT_IN.start(&last)
    walk.base = walk.p = chunk.data
    walk.stop = large + chunk.n_references
    for i in range(stop):
        start, here = walk.p, large
        walk.large = large
        if i >= first:
            keys = all_keys(&walk, &last)
            if last.rule is not NULL and last.rule.bounds != NOTHING:
                return None
            if last.size != len(known) or memcmp(last.name, <const char *>known, len(known)) != 0:
                known = last.name[:max(last.size, 0)]
                name = known.upper()
                reads, small, of_field = name in READS, name in SMALL, name == b"HGET"
            before = 0
            if writes:
                for key in keys:
                    before += writes.get(key, 0)
            if not reads:
                for key in keys:
                    writes[key] = writes.get(key, 0) + size_of(chunk, i)
            written.append(before)
            if small:
                counts.append(0)
            elif last.rule is NULL or not keys:
                counts.append(-1)
            else:
                counts.append(len(keys))
                if of_field:
                    walk.p, walk.large = start, here
                    query_field_size(out, &walk, i)
                else:
                    for key in keys:
                        append(out, MEMORY_USAGE, len(MEMORY_USAGE))
                        append_bulk(out, key, len(key))
                        end_command(out, i)
        walk.p = end_of(chunk, i, &large, &extra)
    return (out.take() if out.commands else None), counts, written


cdef int query_field_size(Buffer out, Walk *walk, Py_ssize_t row) except -1:
    """Append a query for the length of an HGET's field; ``walk`` is at the start of the HGET."""
    cdef const char *text
    cdef long long words, size
    cdef int i
    walk.p = known_length_end(walk.p + 1, &words)
    next_argument(walk, &size)
    append(out, HSTRLEN, len(HSTRLEN))
    for i in range(1, 3):
        text, size = "", 0
        if i < words:
            text = next_argument(walk, &size)
        append_bulk(out, text, size)
    end_command(out, row)
    return 0


cdef inline long long size_of(Chunk chunk, Py_ssize_t index):
    """Return the size of a command in bytes."""
    cdef long long *ends = chunk.ends.data.as_longlongs
    return ends[index] - (ends[index - 1] if index else 0)
