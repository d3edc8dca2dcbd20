# cython: language_level=3, cdivision=True
"""Read values as a server stores them: the value of a DUMP payload, or of a key in an RDB file.

Nothing is trusted: lengths, sizes, numbers of entries, and compressed strings are checked.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ...resp.buffer cimport put_digits, put_signed
from ...resp.mergeable cimport is_score
from .decoding cimport (
    INTSET, LISTPACK, NO_FORM, ZIPLIST, ZIPMAP, Cursor, Packed, Stored, expand, fail, open_packed,
    read_entry, read_number, read_stored, skip,
)
from .encoding cimport (
    BINARY_SORTED_SET, HASH_LISTPACK, HASH_ZIPLIST, HASH_ZIPMAP, INTEGER_SET, LISTPACK_NODE,
    LIST_OF_NODES, LIST_OF_ZIPLISTS, LIST_ZIPLIST, MODULE_VALUE, PLAIN_HASH, PLAIN_LIST, PLAIN_NODE,
    PLAIN_SET, PLAIN_STRING, SET_LISTPACK, SORTED_SET_LISTPACK, SORTED_SET_ZIPLIST, STREAM_1,
    STREAM_2, STREAM_3, TEXT_SORTED_SET, TIMED_HASH, TIMED_HASH_LISTPACK, VALKEY_TIMED_HASH, Word,
)
from .format cimport shortest_score

from ...outcome.errors import SourceError

cdef enum:
    # Maximum memory for decompressed strings that is kept for the next value.
    KEPT_BYTES = 1048576
    IMPOSSIBLE = -2

# Later times of expiry count as damaged, so that sums can't overflow; Redis allows 2^48 ms.
cdef uint64_t MAX_EXPIRY = <uint64_t>1 << 62
cdef const char *NOTHING = b""
cdef const char *NO_MEMORY = b"no memory for a compressed string"
cdef const char *ENDS_EARLY = b"it ends early"

cdef bytes STREAM = b"(ss)lllLLLLL(sllL(i8l)(s8E(i)))"
# For each type: its name as in TYPE, its layout, the compact form of its elements, and the number
# of words per item. A layout has a letter per part of a value:
#   s  a string                 8  eight bytes: a time in ms, or a double
#   l  a number                 i  16 bytes: the ID of a stream's entry
#   a  a score as text          L  a number, since STREAM_2
#   M  opcodes of a module      E  eight bytes, since STREAM_3
#   (  a number, and as many repetitions of the parts up to the closing parenthesis
# A stream has its nodes; the number of entries, and IDs; the groups, each with its pending entries
# and its consumers, which have pending entries of their own.
# Source: rdbSaveObject() in rdb.c of Redis and Valkey.
cdef dict TYPES = {
    PLAIN_STRING: ("string", b"s", NO_FORM, 1),
    PLAIN_LIST: ("list", b"(s)", NO_FORM, 1),
    PLAIN_SET: ("set", b"(s)", NO_FORM, 1),
    TEXT_SORTED_SET: ("zset", b"(sa)", NO_FORM, 2),
    PLAIN_HASH: ("hash", b"(ss)", NO_FORM, 2),
    BINARY_SORTED_SET: ("zset", b"(s8)", NO_FORM, 2),
    MODULE_VALUE: ("module", b"lM", NO_FORM, 0),
    HASH_ZIPMAP: ("hash", b"s", ZIPMAP, 2),
    LIST_ZIPLIST: ("list", b"s", ZIPLIST, 1),
    INTEGER_SET: ("set", b"s", INTSET, 1),
    SORTED_SET_ZIPLIST: ("zset", b"s", ZIPLIST, 2),
    HASH_ZIPLIST: ("hash", b"s", ZIPLIST, 2),
    LIST_OF_ZIPLISTS: ("list", b"(s)", ZIPLIST, 1),
    STREAM_1: ("stream", STREAM, LISTPACK, 2),
    HASH_LISTPACK: ("hash", b"s", LISTPACK, 2),
    SORTED_SET_LISTPACK: ("zset", b"s", LISTPACK, 2),
    LIST_OF_NODES: ("list", b"(ls)", LISTPACK, 1),
    STREAM_2: ("stream", STREAM, LISTPACK, 2),
    SET_LISTPACK: ("set", b"s", LISTPACK, 1),
    STREAM_3: ("stream", STREAM, LISTPACK, 2),
    VALKEY_TIMED_HASH: ("hash", b"(ss8)", NO_FORM, 3),
    TIMED_HASH: ("hash", b"8(lss)", NO_FORM, 3),
    TIMED_HASH_LISTPACK: ("hash", b"8s", LISTPACK, 3),
}
# The same by type, after the unknown type.
cdef ValueType[TIMED_HASH_LISTPACK + 2] VALUE_TYPES


cdef int fill_types() except -1:
    for kind, (_, layout, form, words) in TYPES.items():
        VALUE_TYPES[<int>kind + 1] = ValueType(<bytes>layout, form, words)
    return 0


fill_types()


cdef ValueType *value_type(int kind) noexcept nogil:
    """Return how the values of a type are stored."""
    return &VALUE_TYPES[kind + 1 if 0 <= kind <= TIMED_HASH_LISTPACK else 0]


cdef bint pass_module(Cursor *c) noexcept nogil:
    """Move past the opcodes of a module's value. Source: RDB_MODULE_OPCODE in rdb.h."""
    cdef uint64_t opcode = 0, number
    cdef Stored text
    while True:
        if not read_number(c, &opcode):
            return False
        if opcode == 0:
            return True
        if opcode <= 2:             # a signed or unsigned number
            if not read_number(c, &number):
                return False
        elif opcode <= 4:           # a float or a double
            if not skip(c, 4 if opcode == 3 else 8):
                return False
        elif opcode > 5:
            return fail(c, b"an unknown opcode of a module")
        elif not read_stored(c, &text):
            return False


cdef bint pass_score(Cursor *c) noexcept nogil:
    """Move past a score in text form; a size byte of 253 or more means NaN or an infinity."""
    cdef uint8_t size
    if c.p == c.end:
        return False
    size = <uint8_t>c.p[0]
    c.p += 1
    return skip(c, size if size < 253 else 0)


cdef bint pass_part(Cursor *c, char letter, int kind) noexcept nogil:
    """Move past the part that a letter of a layout describes."""
    cdef uint64_t number
    cdef Stored text
    if letter == c's':
        return read_stored(c, &text)
    if letter == c'l' or (letter == c'L' and kind >= STREAM_2):
        return read_number(c, &number)
    if letter == c'8' or (letter == c'E' and kind >= STREAM_3):
        return skip(c, 8)
    if letter == c'i':
        return skip(c, 16)
    if letter == c'a':
        return pass_score(c)
    if letter == c'M':
        return pass_module(c)
    return True


cdef const char *group_end(const char *layout) noexcept nogil:
    """Return the remaining layout after the parenthesis that closes a group."""
    cdef int depth = 1
    while depth:
        depth += (layout[0] == c'(') - (layout[0] == c')')
        layout += 1
    return layout


cdef const char *pass_layout(Cursor *c, const char *layout, int kind) noexcept nogil:
    """Move past the bytes that a layout describes, up to its end or a closing parenthesis.

    Return the remaining layout; NULL if the bytes are damaged or end early.
    """
    cdef uint64_t count = 0
    while layout[0] != 0 and layout[0] != c')':
        if layout[0] != c'(':
            if not pass_part(c, layout[0], kind):
                return NULL
            layout += 1
            continue
        if not read_number(c, &count):
            return NULL
        while count:
            if pass_layout(c, layout + 1, kind) is NULL:
                return NULL
            count -= 1
        layout = group_end(layout + 1)
    return layout


cdef str type_name(int kind):
    return TYPES[kind][0] if kind in TYPES else None


cdef Py_ssize_t pass_value(Cursor *c, int kind, const char *data, Py_ssize_t size) noexcept nogil:
    cdef const char *layout = value_type(kind).layout
    c.p, c.end, c.fault, c.largest = data, data + size, NULL, 0
    if layout is NULL:
        c.fault = b"a value of an unknown type"
    elif pass_layout(c, layout, kind) is not NULL:
        return c.p - data
    return INCOMPLETE if c.fault is NULL else DAMAGED


cdef Py_ssize_t value_end(int kind, const char *data, Py_ssize_t size) noexcept nogil:
    cdef Cursor c
    return pass_value(&c, kind, data, size)


cdef Py_ssize_t largest_text(int kind, const char *data, Py_ssize_t size) except -1:
    cdef Cursor c
    cdef Py_ssize_t end = pass_value(&c, kind, data, size)
    if end < 0:
        raise SourceError(why_damaged(kind, data, size))
    if end < size:
        raise SourceError(f"a damaged {type_name(kind)}: it ends at byte {end:,} of {size:,}")
    return c.largest


cdef str why_damaged(int kind, const char *data, Py_ssize_t size):
    cdef Cursor c
    pass_value(&c, kind, data, size)
    if value_type(kind).layout is NULL:
        return f"a value of the unknown type {kind}"
    fault = c.fault if c.fault is not NULL else ENDS_EARLY
    return f"a damaged {type_name(kind)}: {fault.decode()} at byte {c.p - data:,} of the value"


@cython.final
cdef class Elements:
    """Reads the elements of a value, without Python objects.

    An item has one to three words, valid until the next item is read:

    - string, list, set: the string, element or member
    - hash: a field and a value; if fields may expire, also an expiry in ms since 1970, or -1
    - sorted set: a member and a score
    - stream: an entry's ID and its number of fields (not trusted), then each field and its value
    """

    def __dealloc__(self):
        self.release(0)

    cdef void release(self, Py_ssize_t most) noexcept nogil:
        """Free each block of more than ``most`` bytes; the blocks hold decompressed strings."""
        cdef int at
        for at in range(MAX_WORDS + 1):
            if self.scratch[at].size > most:
                free(self.scratch[at].memory)
                self.scratch[at].memory, self.scratch[at].size = NULL, 0

    cdef bint open(self, int kind, const char *data, Py_ssize_t size) noexcept nogil:
        """Begin to read a value; return False and set ``fault`` if this fails."""
        cdef ValueType *stored = value_type(kind)
        cdef const char *layout = stored.layout
        self.cursor.p, self.cursor.end = data, data + size
        self.cursor.fault = self.fault = NULL
        self.kind, self.size = kind, size
        self.release(KEPT_BYTES)
        self.form = self.node.form = NO_FORM
        self.left = self.stream.fields = 0
        self.node.disputed = 0
        if layout is NULL or kind == MODULE_VALUE:
            self.fault = b"a value of this type has no elements"
            return False
        self.form, self.words = stored.form, stored.words
        self.next_word = self.words
        if layout[0] == c'8':
            if not skip(&self.cursor, 8):
                self.stop(NULL)
                return False
            memcpy(&self.first_expiry, data, 8)
            layout += 1
        self.left = 1
        if layout[0] == c'(' and not read_number(&self.cursor, &self.left):
            self.stop(NULL)
            return False
        return True

    cdef int next(self, Word *word) noexcept nogil:
        """Read the next word; return 1, or 0 at the end, or -1 with ``fault`` set."""
        cdef int found
        if self.next_word == self.words:
            found = self.next_item()
            if found != 1:
                return found
            self.next_word = 0
        word[0] = self.item[self.next_word]
        self.next_word += 1
        return 1

    cdef int next_item(self) noexcept nogil:
        """Read the next item into ``item``; return 1, 0 or -1 as ``next()`` does."""
        cdef int found
        if self.fault is not NULL:
            return -1
        while True:
            if self.node.form != NO_FORM:
                found = self.read_stream() if is_stream(self.kind) else self.read_entries()
                if found < 0:
                    return self.stop(self.node.fault)
                if found:
                    return found
                self.node.form = NO_FORM
            elif self.left:
                self.left -= 1
                found = self.read_plain() if self.form == NO_FORM else self.open_node()
                if found:
                    return found
            elif self.cursor.p != self.cursor.end and not is_stream(self.kind):
                return self.stop(b"bytes after the value")
            else:
                return 0

    cdef int stop(self, const char *fault) noexcept nogil:
        """Record ``fault`` (if NULL, the cursor's) unless there already is a fault; return -1."""
        if self.fault is NULL:
            self.fault = fault if fault is not NULL else self.cursor.fault
            if self.fault is NULL:
                self.fault = ENDS_EARLY
        return -1

    cdef object error(self):
        """Return an exception for ``fault``."""
        if self.fault == NO_MEMORY:
            return MemoryError(NO_MEMORY.decode())
        at = self.size - (self.cursor.end - self.cursor.p)
        name = type_name(self.kind) or "value"
        return SourceError(
            f"a damaged {name}: {self.fault.decode()}, before byte {at:,} of the value"
        )

    cdef char *expanded(self, int at, const Stored *s) noexcept nogil:
        """Decompress a string; return NULL and set ``fault`` if this fails."""
        cdef Scratch *scratch = &self.scratch[at]
        if scratch.size < s.expanded:
            free(scratch.memory)
            scratch.size = 0
            scratch.memory = <char *>malloc(s.expanded)
            if scratch.memory is NULL:
                self.stop(NO_MEMORY)
                return NULL
            scratch.size = s.expanded
        if not expand(s.text, s.size, scratch.memory, s.expanded):
            self.stop(b"a compressed string is damaged")
            return NULL
        return scratch.memory

    cdef bint keep(self, int at, const Stored *s) noexcept nogil:
        """Set the word at this index of the item; return False and set ``fault`` if this fails."""
        cdef Word *word = &self.item[at]
        if s.text is NULL:
            return self.keep_number(at, s.integer)
        word.text, word.size = s.text, s.size
        if s.expanded:
            word.text, word.size = self.expanded(at, s), s.expanded
        return word.text is not NULL

    cdef bint keep_number(self, int at, int64_t number) noexcept nogil:
        cdef char *text = self.numbers[at]
        self.item[at].text = text
        self.item[at].size = put_signed(text, number) - text
        return True

    cdef int keep_expiry(self, int64_t expiry) noexcept nogil:
        """Set the third word to a time of expiry; return 1, or -1 with ``fault`` set."""
        if not -1 <= expiry < <int64_t>MAX_EXPIRY:
            return self.stop(b"an impossible time of expiry")
        return self.keep_number(2, expiry)

    cdef int read_plain(self) noexcept nogil:
        """Read an item that is stored as strings; return 1, or -1 with ``fault`` set."""
        cdef Cursor *c = &self.cursor
        cdef uint64_t after = 0
        cdef int64_t expiry = 0
        cdef Stored s
        if self.kind == TIMED_HASH and not read_number(c, &after):
            return self.stop(NULL)
        if not read_stored(c, &s) or not self.keep(0, &s):
            return self.stop(NULL)
        if self.words == 1:
            return 1
        if self.kind == TEXT_SORTED_SET:
            return self.read_score()
        if self.kind != BINARY_SORTED_SET and (not read_stored(c, &s) or not self.keep(1, &s)):
            return self.stop(NULL)
        if self.kind == PLAIN_HASH:
            return 1
        if self.kind == TIMED_HASH:
            expiry = <int64_t>(self.first_expiry + after - 1) if after else -1
            if self.first_expiry >= MAX_EXPIRY or after >= MAX_EXPIRY:
                expiry = IMPOSSIBLE
        elif not skip(c, 8):
            return self.stop(NULL)
        else:
            memcpy(&expiry, c.p - 8, 8)
        if self.kind == BINARY_SORTED_SET:
            return self.keep_double(expiry)
        return self.keep_expiry(expiry)

    cdef int keep_double(self, int64_t bits) noexcept nogil:
        cdef double score
        cdef char *text = self.numbers[1]
        memcpy(&score, &bits, 8)
        if score != score:
            return self.stop(b"a score that is not a number")
        self.item[1].text = text
        self.item[1].size = shortest_score(score, text)
        return 1

    cdef int read_score(self) noexcept nogil:
        """Read a score in text form; a size byte of 254 means infinity, 255 negative infinity."""
        cdef const char *p = self.cursor.p
        cdef Word *word = &self.item[1]
        cdef uint8_t size
        if not pass_score(&self.cursor):
            return self.stop(NULL)
        size = <uint8_t>p[0]
        word.text, word.size = p + 1, size
        if size == 254:
            word.text, word.size = b"inf", 3
        elif size == 255:
            word.text, word.size = b"-inf", 4
        if size == 253 or not is_score(word.text, word.text + word.size):
            return self.stop(b"a score that is not a number")
        return 1

    cdef int open_node(self) noexcept nogil:
        """Open the next compact form and return 0, or read a plain node and return 1."""
        cdef Cursor *c = &self.cursor
        cdef uint64_t container = LISTPACK_NODE
        cdef const char *p
        cdef Py_ssize_t size
        cdef Stored s
        if self.kind == LIST_OF_NODES and not read_number(c, &container):
            return self.stop(NULL)
        if is_stream(self.kind):
            if not read_stored(c, &s):
                return self.stop(NULL)
            if not read_id(&self.stream, &s):
                return self.stop(b"an ID with the wrong size")
        if not read_stored(c, &s):
            return self.stop(NULL)
        if container == PLAIN_NODE:
            return 1 if self.keep(0, &s) else -1
        if container != LISTPACK_NODE or s.text is NULL:
            return self.stop(b"a node of an unknown kind")
        p, size = s.text, s.size
        if s.expanded:
            p, size = self.expanded(MAX_WORDS, &s), s.expanded
        if p is NULL or not open_packed(&self.node, self.form, p, size):
            return self.stop(self.node.fault)
        if is_stream(self.kind) and not open_stream_node(&self.stream, &self.node):
            return self.stop(self.node.fault)
        return 0

    cdef int read_entries(self) noexcept nogil:
        """Read an item of a compact form; return 1, 0 or -1 as ``next()`` does."""
        cdef Packed *node = &self.node
        cdef int at, found
        cdef Stored s
        s.text = NULL
        for at in range(self.words):
            found = read_entry(node, &s)
            if found < 1:
                return self.stop(b"half an item") if found == 0 and at else found
            if at == 2:
                if s.text is not NULL:
                    s.integer = IMPOSSIBLE
                return self.keep_expiry(s.integer if s.integer else -1)
            self.keep(at, &s)
        if self.kind == SORTED_SET_LISTPACK or self.kind == SORTED_SET_ZIPLIST:
            if s.text is not NULL and not is_score(s.text, s.text + s.size):
                return self.stop(b"a score that is not a number")
        return 1

    cdef int read_stream(self) noexcept nogil:
        """Read an entry's ID and number of fields, or a field; return as ``next()`` does."""
        cdef StreamNode *stream = &self.stream
        cdef uint64_t ms = 0, sequence = 0
        cdef char *text = self.numbers[0]
        cdef int found
        cdef Stored name, value
        if stream.fields:
            if not read_field(stream, &self.node, &name, &value):
                return -1
            return 1 if self.keep(0, &name) and self.keep(1, &value) else -1
        found = open_stream_entry(stream, &self.node, &ms, &sequence)
        if found == 1:
            self.item[0].text = text
            text = put_digits(text, ms)
            text[0] = c'-'
            self.item[0].size = put_digits(text + 1, sequence) - self.item[0].text
            self.keep_number(1, stream.fields)
        return found


cdef const char *first_byte(const unsigned char[::1] data) noexcept:
    return <const char *>&data[0] if data.shape[0] else NOTHING


def elements(int kind, const unsigned char[::1] data not None):
    """Return the elements of a value as a flat list of bytes, as Elements describes.

    Args:
        kind: the type of the value: the first byte of a DUMP payload, or of an RDB file's entry.
        data: the bytes of the value, without a payload's footer.

    Raises:
        SourceError: the value is damaged.
    """
    cdef const char *p = first_byte(data)
    cdef Py_ssize_t size = data.shape[0]
    cdef Elements found = Elements()
    cdef Word word = Word(NULL, 0)
    cdef int more
    largest_text(kind, p, size)
    if not found.open(kind, p, size):
        raise found.error()
    items = []
    while True:
        more = found.next(&word)
        if more == 0:
            return items
        if more < 0:
            raise found.error()
        items.append(word.text[:word.size])


def stream_nodes_end(int kind, const unsigned char[::1] data not None):
    """Return the offset where a stream's nodes end and its metadata and groups begin.

    Raises:
        SourceError: the value is damaged.
    """
    cdef const char *p = first_byte(data)
    cdef Cursor c
    c.p, c.end, c.fault, c.largest = p, p + data.shape[0], NULL, 0
    if not is_stream(kind) or pass_layout(&c, b"(ss)", kind) is NULL:
        raise SourceError(why_damaged(kind, p, data.shape[0]))
    return c.p - p
