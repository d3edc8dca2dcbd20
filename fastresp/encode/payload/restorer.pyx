# cython: language_level=3, cdivision=True
"""Turn stored values into arguments of RESTORE for a server of another version.

A payload, as DUMP returns it, is a type byte and a value, followed by a footer: the RDB version in
2 bytes, and a CRC-64 of all bytes before it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from ...resp.buffer cimport Buffer, append, capacity, make_room, put_copy, take_back
from .decoding cimport (
    INTSET, LISTPACK, LONG_SIZE, NO_FORM, SHORT_SIZE, Cursor, Packed, Stored, open_packed,
    read_entry, read_number, read_stored,
)
from .duplicates cimport Keys
from .encoding cimport (
    BINARY_SORTED_SET, ENTRY_ROOM, HASH_LISTPACK, MODULE_VALUE, PLAIN_HASH, PLAIN_LIST, PLAIN_SET,
    SET_LISTPACK, STREAM_1, STREAM_2, STREAM_3, TIMED_HASH, TIMED_HASH_LISTPACK, VALKEY_TIMED_HASH,
    Word, back_length, begin_length, begin_listpack, end_listpack, is_disputed, put_back_length,
    put_length, put_size, put_word, read_integer,
)
from .format cimport crc64, read_score
from .stored_values cimport (
    Elements, ValueType, first_byte, group_end, is_stream, largest_text, pass_part, type_name,
    value_type, why_damaged,
)

import time

from ...outcome.errors import CommandError, SourceError
from ...outcome.messages import Hint, Message, shown_reply

cdef enum:
    START_BYTES = 65536
    # Maximum memory for a converted value that is kept for the next value.
    KEPT_BYTES = 1048576
    # Maximum size of a table of names that is kept for the next value.
    KEPT_NAMES = 4096
    # Minimum size in bytes of a listpack with a disputed entry size; see is_disputed().
    DISPUTED_BYTES = 16384
    # The number of bytes before the string in such an entry.
    LONG_HEADER = 5
    # Room before the items for the number of items and the first time of expiry.
    ITEMS_ROOM = 32
    # convert(): the key has expired with all fields of its hash.
    EXPIRED_VALUE = -2
    VERSION_BYTES = 2
    CHECKSUM_BYTES = 8
    FOOTER_BYTES = 10
    # From this version on, Redis and Valkey differ. Source: rdb.h of both.
    FIRST_DIFFERENT = 12
    KEY_SHOWN = 40
    # The number of keys that are remembered, in 16 MiB, to leave out keys that SCAN returns twice.
    UNIQUE_KEYS = 524288

# The plain RDB types, which every server since 2.6 accepts. Source: rdb.h.
cdef dict PLAIN = {
    "list": PLAIN_LIST, "set": PLAIN_SET, "zset": BINARY_SORTED_SET, "hash": PLAIN_HASH,
}


cdef class Restorer:
    """Makes rows (key, expiry, payload) that create copies of keys on the target.

    The target may be older than the source, or another product. A value is converted only if the
    target does not accept it unchanged.

    Args:
        version: the RDB version of the target; see ``format_of()``.
        valkey, source_valkey: whether the target and the source are Valkey.
        field_ttl: what to do with the times to live of a hash's fields if the target does not
            support them: "keep" raises SourceError, "drop" drops them, and leaves out fields that
            have expired.
        short_sizes: the result of ``has_short_sizes()`` for the target.
        old, new: a prefix of keys, and its replacement.
        unique: whether to leave out keys that were read before: SCAN may return a key twice.
            Only the first UNIQUE_KEYS keys are remembered.

    Attributes:
        version: the RDB version of the target.
        error: the SourceError of the key that follows the last row; None if there is no error.
        gone: the number of keys that no longer existed when they were read, or that have expired
            since; RESTORE of an expired key would delete the target's key of this name.
        converted: the number of values that were converted for the target.
        expiries_dropped: the number of fields whose time to live was dropped.
        expired: the number of fields left out because they had expired.
    """

    cdef readonly int version
    cdef bint valkey, source_valkey
    cdef int sizes                      # LONG_SIZE or SHORT_SIZE of the target; 0 if unknown
    cdef bint drops                     # whether to drop expiries that the target can't store
    cdef bytes old, new
    cdef Keys keys                      # of the rows so far; None to allow a key twice
    cdef readonly object error
    cdef readonly Py_ssize_t gone, converted, expiries_dropped, expired
    cdef long long requested            # when the last rows were requested, in ms since 1970
    cdef long long now                  # the time of the last conversion, in ms since 1970
    cdef Elements elements
    cdef Keys names                     # the fields or members of the value being checked
    cdef Buffer out

    def __init__(
        self, int version, *, bint valkey, bint source_valkey, str field_ttl="keep",
        short_sizes=None, bytes old=b"", bytes new=b"", bint unique=False,
    ):
        if field_ttl not in ("keep", "drop"):
            raise ValueError(f"field_ttl must be 'keep' or 'drop', not {field_ttl!r}")
        self.version, self.valkey, self.source_valkey = version, valkey, source_valkey
        self.sizes = 0 if short_sizes is None else SHORT_SIZE if short_sizes else LONG_SIZE
        self.drops = field_ttl == "drop"
        self.old, self.new = old, new
        self.keys = Keys(UNIQUE_KEYS) if unique else None
        self.elements = Elements()
        self.names = Keys()
        self.out = Buffer(START_BYTES)

    def dumped_rows(self, list replies not None, keys):
        """Return rows (key, expiry, payload); the expiry is in ms since 1970, or 0 for none.

        Args:
            replies: for each key, the replies to PEXPIRETIME and to DUMP.
            keys: an iterator that returns the keys.

        Returns:
            The rows of all existing keys; if ``error`` is set, only the rows before the error.
        """
        cdef list rows = []
        cdef tuple row
        cdef Py_ssize_t at
        self.requested = time.time_ns() // 1_000_000
        try:
            for at in range(0, len(replies) - 1, 2):
                row = self.dumped_row(replies[at + 1], replies[at], next(keys))
                if row is not None:
                    rows.append(row)
        except SourceError as error:
            self.error = error
        return rows

    def stored_rows(self, list values not None, list expiries not None, list keys not None):
        """Return the rows of keys in an RDB file, like ``dumped_rows()``.

        Args:
            values: the type byte and the bytes of each value.
            expiries: the times of expiry in ms since 1970; -1 for none.
            keys: the keys.
        """
        cdef list rows = []
        cdef tuple row
        self.requested = time.time_ns() // 1_000_000
        try:
            for value, expiry, key in zip(values, expiries, keys):
                row = self.stored_row(value, expiry, key)
                if row is not None:
                    rows.append(row)
        except SourceError as error:
            self.error = error
        return rows

    cdef tuple dumped_row(self, payload, expiry, bytes key):
        if payload is None or (type(payload) is bytes and expiry == -2):
            self.gone += 1
            return None
        if type(payload) is not bytes or type(expiry) is not int:
            raise unreadable(key, expiry if type(payload) is bytes else payload)
        return self.row(key, expiry, self.relabelled(<bytes>payload, key))

    cdef tuple stored_row(self, bytes value, expiry, bytes key):
        cdef const char *data = PyBytes_AS_STRING(value)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        if size == 0:
            raise damaged(key)
        made = self.payload(key, data, size, crc64(0, data, size), True, None)
        return self.row(key, expiry, made)

    cdef tuple row(self, bytes key, expiry, bytes payload):
        # The key has expired, or all fields of the hash have.
        if payload is None or 0 <= expiry <= self.requested:
            self.gone += 1
            return None
        if self.keys is not None:
            self.keys.prepare(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), 0)
            if self.keys.add() >= 0:
                return None
        if self.old != self.new:
            key = self.renamed(key)
        return key, 0 if expiry < 0 else expiry, payload

    cpdef bytes renamed(self, bytes key):
        """Return the target's name for a key."""
        if key.startswith(self.old):
            return self.new + key[len(self.old):]
        if key.startswith(self.new):
            old = self.old.decode(errors="replace")
            text = f"key {shown(key)} begins with the new prefix, so a renamed key may replace it; "
            advice = "copy only the keys to be renamed, with "
            raise SourceError(Message(text, advice, Hint("match", old + "*")))
        return key

    cdef bytes relabelled(self, bytes payload, bytes key):
        """Check the checksum of a payload; return the payload for the target."""
        cdef const char *data = PyBytes_AS_STRING(payload)
        cdef Py_ssize_t body = PyBytes_GET_SIZE(payload) - FOOTER_BYTES
        cdef uint64_t of_body, crc
        cdef int version
        cdef bint same
        if body < 1:
            raise damaged(key)
        with nogil:
            of_body = crc64(0, data, body)
        crc = crc64(of_body, data + body, VERSION_BYTES)
        if memcmp(&crc, data + body + VERSION_BYTES, CHECKSUM_BYTES):
            raise damaged(key)
        version = <unsigned char>data[body] | <unsigned char>data[body + 1] << 8
        same = version == self.version or version < min(self.version, FIRST_DIFFERENT)
        return self.payload(key, data, body, of_body, False, payload if same else None)

    cdef bytes payload(
        self, bytes key, const char *data, Py_ssize_t size, uint64_t crc, bint check, bytes whole
    ):
        """Return a payload for the target; None if all fields of a hash have expired.

        Args:
            key: the key, for errors.
            data, size: the type byte and the value.
            crc: the checksum of ``data``.
            check: as for ``to_target()``.
            whole: a payload of this value that the target accepts; None to make one.
        """
        cdef int kind = <unsigned char>data[0]
        cdef Word value
        cdef char *to
        value.text, value.size = data + 1, size - 1
        # Pass on a type that is unknown here: the target may know it.
        if value_type(kind).layout is not NULL:
            try:
                kind = self.convert(kind, data + 1, size - 1, &value, check)
            except SourceError as error:
                raise SourceError(Message(f"key {shown(key)}: ", error.args[0])) from None
            if kind == EXPIRED_VALUE:
                return None
        if value.text == data + 1 and whole is not None:
            return whole
        self.converted += value.text != data + 1
        made = PyBytes_FromStringAndSize(NULL, 1 + value.size + FOOTER_BYTES)
        to = PyBytes_AS_STRING(made)
        to[0] = <char>kind
        memcpy(to + 1, value.text, value.size)
        to += 1 + value.size
        if value.text != data + 1:
            crc = crc64(0, PyBytes_AS_STRING(made), 1 + value.size)
        to[0], to[1] = <char>(self.version & 255), <char>(self.version >> 8)
        crc = crc64(crc, to, VERSION_BYTES)
        memcpy(to + VERSION_BYTES, &crc, CHECKSUM_BYTES)
        return made

    def to_target(self, int kind, const unsigned char[::1] data not None, *, bint check=False):
        """Return the type and the bytes of a value for the target; None if all fields expired.

        Args:
            kind: the type of the value, which is the first byte of a DUMP payload.
            data: the bytes of the value, without a payload's footer.
            check: whether to check each element, and to search for duplicate fields or members,
                even if the value needs no conversion. Needed for a file, whose values have no
                checksum: servers trust a payload's checksum, and crash later if a compact form is
                damaged.

        Raises:
            SourceError: the value is damaged, or the target can't store it.
        """
        cdef Word value
        cdef int found = self.convert(kind, first_byte(data), data.shape[0], &value, check)
        return None if found == EXPIRED_VALUE else (found, value.text[:value.size])

    cdef bint knows(self, int kind) noexcept nogil:
        """Return whether the target accepts values of a type. Source: rdb.h of each version."""
        if kind == VALKEY_TIMED_HASH:
            return self.valkey and self.version >= 80
        if kind in (TIMED_HASH, TIMED_HASH_LISTPACK):
            return not self.valkey and self.version >= 12
        if kind in (SET_LISTPACK, STREAM_3):
            return self.version >= 11
        return kind < HASH_LISTPACK or self.version >= 10

    cdef int convert(
        self, int kind, const char *data, Py_ssize_t size, Word *value, bint check
    ) except -1:
        """Set ``value`` to the value for the target; return its type, or EXPIRED_VALUE.

        ``value`` is valid until the next call, while ``data`` is.
        """
        cdef Buffer out = self.out
        cdef ValueType *stored = value_type(kind)
        cdef bint same
        if stored.layout is NULL or (kind == VALKEY_TIMED_HASH and not self.source_valkey):
            raise SourceError(f"a value of the unknown type {kind}; fastresp can't convert it")
        same = (stored.form != LISTPACK and not check) or self.can_pass(kind, data, size, check)
        if same and self.knows(kind):
            value.text, value.size = data, size
            return kind
        if capacity(&out.out) > KEPT_BYTES:
            out = self.out = Buffer(START_BYTES)
        take_back(out, 0)
        if is_stream(kind):
            return put_stream(self, kind, data, size, value, same)
        return put_items(self, kind, data, size, value)

    cdef bint can_pass(self, int kind, const char *data, Py_ssize_t size, bint check) except -1:
        """Return whether the target, if it knows the type, accepts these bytes.

        If Valkey 9.1 wrote a listpack with a disputed size (``is_disputed()``), Redis up to 8.2 and
        Valkey 8.1 crash when they read it. Valkey 9.1 refuses such a listpack that they wrote.
        """
        cdef Elements elements = self.elements
        if largest_text(kind, data, size) < DISPUTED_BYTES and not check or kind == MODULE_VALUE:
            return True
        if elements.open(kind, data, size):
            if check and elements.form != INTSET and type_name(kind) in ("set", "zset", "hash"):
                self.check_names(kind)
            with nogil:
                while elements.next_item() == 1:
                    pass
        if elements.fault is not NULL:
            raise elements.error()
        if elements.node.disputed and is_stream(kind) and not self.sizes:
            raise SourceError(
                "a stream with a string of 16,378, 2,097,146 or 268,435,450 bytes, which servers "
                "store in different ways; the target's way is unknown, so copy this key by value"
            )
        return elements.node.disputed in (0, self.sizes)

    cdef int check_names(self, int kind) except -1:
        """Read the items; set a fault at a duplicate name, or at an item that is out of order.

        Servers sort a listpack with expiries by expiry, with fields without an expiry last. The
        table has room for a limited number of names. A compact form with more names is refused; in
        other values with more names, the server finds the duplicates.
        """
        cdef Elements elements = self.elements
        cdef uint64_t expiry, last = 0
        if self.names.room > KEPT_NAMES:
            self.names = Keys()
        self.names.forget()
        while elements.next_item() == 1:
            self.names.prepare(elements.item[0].text, elements.item[0].size, 0)
            if self.names.add() >= 0:
                elements.stop(b"a field or member that occurs twice")
            elif elements.form != NO_FORM and self.names.count >= self.names.most:
                elements.stop(b"a compact form with over a million fields or members")
            elif kind == TIMED_HASH_LISTPACK:
                expiry = <uint64_t>expiry_of(elements.item)     # the largest number if never
                if expiry < last:
                    elements.stop(b"a field that is not in the order of the times of expiry")
                last = expiry
        return 0


cdef str shown(bytes key):
    return f"{key[:KEY_SHOWN]!r}" + "..." * (len(key) > KEY_SHOWN)


cdef object damaged(bytes key):
    return SourceError(
        f"key {shown(key)}: the value was damaged on its way here: its checksum differs (check the "
        "network and the proxies before the source)"
    )


cdef object unreadable(bytes key, object reply):
    text = reply.text if isinstance(reply, CommandError) else shown_reply(reply)
    return SourceError(f"key {shown(key)} can't be read: {text}")


cdef int put_stream(
    Restorer self, int kind, const char *data, Py_ssize_t size, Word *value, bint same
) except -1:
    """Write a stream without the parts that the target does not know.

    Args:
        same: whether the target accepts the listpacks unchanged.
    """
    cdef int target = STREAM_2 if self.version >= 10 else STREAM_1
    cdef const char *layout = value_type(kind).layout
    cdef Cursor c
    if self.knows(kind):
        target = kind
    c.p, c.end, c.fault, c.largest = data, data + size, NULL, 0
    if not same:                    # then can_pass() has checked the nodes
        copy_nodes(self, &c)
        layout = group_end(layout + 1)
    if not copy_parts(self.out, &c, layout, kind, target) or c.p != c.end:
        raise SourceError(why_damaged(kind, data, size))
    value.text, value.size = self.out.out.base, self.out.out.p - self.out.out.base
    return target


cdef int copy_nodes(Restorer self, Cursor *c) except -1:
    """Copy the nodes of a stream, and write disputed sizes as the target does."""
    cdef uint64_t count = 0
    cdef const char *start = c.p
    cdef Py_ssize_t begun, size
    cdef Stored s
    cdef Packed node
    read_number(c, &count)
    append(self.out, start, c.p - start)
    while count:
        count -= 1
        start = c.p
        read_stored(c, &s)          # the ID
        append(self.out, start, c.p - start)
        read_stored(c, &s)
        start, size = s.text, s.size
        if s.expanded:
            start, size = self.elements.expanded(0, &s), s.expanded
        if start is NULL:
            raise self.elements.error()
        open_packed(&node, LISTPACK, start, size)
        begun = begin_length(self.out)
        begin_listpack(self.out)
        start = node.p
        while read_entry(&node, &s) == 1:
            put_entry_again(self, start, node.p - start, s.size)
            start = node.p
        end_listpack(self.out, begun, node.entries)
    return 0


cdef int put_entry_again(
    Restorer self, const char *entry, Py_ssize_t size, Py_ssize_t text
) except -1:
    """Copy a listpack's entry; if its size is disputed, write the size as the target does.

    Args:
        entry, size: the entry.
        text: the size of the string in the entry.
    """
    cdef char *p
    if not is_disputed(text):
        return append(self.out, entry, size)
    size = text + LONG_HEADER
    p = put_copy(make_room(self.out, size + ENTRY_ROOM), entry, size)
    self.out.out.p = put_back_length(p, size, back_length(size) - (self.sizes == SHORT_SIZE))
    return 0


cdef bint copy_parts(
    Buffer out, Cursor *c, const char *layout, int kind, int target
) except -1:
    """Copy the parts of a layout, except those that the target does not know.

    Return False if the bytes are damaged.
    """
    cdef uint64_t count = 0
    cdef const char *start
    while layout[0] != 0 and layout[0] != c')':
        start = c.p
        if layout[0] != c'(':
            if not pass_part(c, layout[0], kind):
                return False
            if target >= (STREAM_3 if layout[0] == c'E' else STREAM_2 if layout[0] == c'L' else 0):
                append(out, start, c.p - start)
            layout += 1
            continue
        if not read_number(c, &count):
            return False
        append(out, start, c.p - start)
        while count:
            if not copy_parts(out, c, layout + 1, kind, target):
                return False
            count -= 1
        layout = group_end(layout + 1)
    return True


cdef int put_items(
    Restorer self, int kind, const char *data, Py_ssize_t size, Word *value
) except -1:
    """Write a value in the plain type or, if fields of a hash expire, in a type for such hashes."""
    cdef Elements elements = self.elements
    cdef Buffer out = self.out
    cdef int target = PLAIN[type_name(kind)], found
    cdef int64_t first = INT64_MAX
    cdef uint64_t count = 0
    cdef char[ENTRY_ROOM] number
    cdef Py_ssize_t expired = self.expired
    if elements.open(kind, data, size) and elements.words == 3:
        first = first_expiry(elements)
        elements.open(kind, data, size)
    if first < INT64_MAX:
        target = timed_type(self)
    out.out.p = make_room(out, ITEMS_ROOM) + ITEMS_ROOM
    while True:
        found = elements.next_item() if elements.fault is NULL else -1
        if found < 0:
            raise elements.error()
        if found == 0:
            break
        count += put_item(self, target, first, elements.item)
    if count == 0 and self.expired > expired:
        return EXPIRED_VALUE
    # Write the header of the items into the room before them.
    cdef Py_ssize_t width = put_length(number, count) - number
    cdef char *start = out.out.base + ITEMS_ROOM - width
    memcpy(start, number, width)
    if target == TIMED_HASH:
        start -= 8
        memcpy(start, &first, 8)
    value.text, value.size = start, out.out.p - start
    return target


cdef int timed_type(Restorer self) except -1:
    """Return the type for a hash whose fields expire."""
    if self.knows(VALKEY_TIMED_HASH):
        return VALKEY_TIMED_HASH
    if self.knows(TIMED_HASH):
        return TIMED_HASH
    if self.drops:
        self.now = time.time_ns() // 1_000_000
        return PLAIN_HASH
    raise SourceError(Message(
        "fields of the hash have a time to live, which the target does not support; use a newer "
        "target, or drop the times to live with ", Hint("field_ttl", "drop"),
    ))


cdef int64_t first_expiry(Elements elements) noexcept nogil:
    """Return when the first field expires, in ms since 1970, or INT64_MAX for never."""
    cdef int64_t first = INT64_MAX, expiry
    while elements.next_item() == 1:
        expiry = expiry_of(elements.item)
        if 0 <= expiry < first:
            first = expiry
    return first


cdef inline int64_t expiry_of(const Word *item) noexcept nogil:
    cdef int64_t expiry = -1
    read_integer(item[2].text, item[2].size, &expiry)
    return expiry or 1              # for servers, 0 means that a field does not expire


cdef bint put_item(Restorer self, int target, int64_t first, const Word *item) except -1:
    """Write an item; return False if it is left out because the field has expired."""
    cdef Buffer out = self.out
    cdef int64_t expiry = -1
    cdef double score
    cdef char *p
    if self.elements.words == 3:
        expiry = expiry_of(item)
    if expiry >= 0 and target == PLAIN_HASH:
        if expiry <= self.now:
            self.expired += 1
            return False
        self.expiries_dropped += 1
    if target == TIMED_HASH:
        put_size(out, expiry - first + 1 if expiry >= 0 else 0)
    put_word(out, &item[0])
    if target in (PLAIN_LIST, PLAIN_SET):
        return True
    if target != BINARY_SORTED_SET:
        put_word(out, &item[1])
        if target != VALKEY_TIMED_HASH:
            return True
    p = make_room(out, 8)
    if target == VALKEY_TIMED_HASH:
        memcpy(p, &expiry, 8)
    else:
        score = read_score(item[1].text, item[1].size)
        memcpy(p, &score, 8)
    out.out.p = p + 8
    return True
