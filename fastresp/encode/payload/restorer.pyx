# cython: language_level=3, cdivision=True
"""Turn stored values into arguments of RESTORE for a server of another version.

A payload, as DUMP returns it, is a type byte and a value, followed by a footer: the RDB version in
2 bytes, and a CRC-64 of all bytes before it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from .converter cimport EXPIRED_VALUE, Converter
from .duplicates cimport Keys
from .encoding cimport Word
from .format cimport crc64
from .layouts cimport layout_of

import time

from ...outcome.errors import CommandError, SourceError
from ...outcome.messages import Hint, Message, shown_reply

cdef enum:
    VERSION_BYTES = 2
    CHECKSUM_BYTES = 8
    FOOTER_BYTES = 10
    # From this version on, Redis and Valkey differ. Source: rdb.h of both.
    FIRST_DIFFERENT = 12
    KEY_SHOWN = 40
    # The number of keys that are remembered, in 16 MiB, to leave out keys that SCAN returns twice.
    UNIQUE_KEYS = 524288


cdef class Restorer:
    """Makes rows (key, expiry, payload) that create copies of keys on the target.

    A value is converted only if the target does not accept it unchanged.

    Args:
        rdb_version: the RDB version of the target; see ``format_of()``.
        valkey, source_valkey: whether the target and the source are Valkey.
        field_ttl, short_sizes: as for ``Converter``.
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
    """

    cdef readonly object error
    cdef readonly Py_ssize_t gone
    cdef readonly Py_ssize_t converted
    cdef Converter converter
    cdef Keys keys                      # of the rows so far; None to allow a key twice
    cdef readonly int version           # the RDB version of the target
    cdef long long now                  # when the last rows were requested, in ms since 1970
    cdef bytes old
    cdef bytes new

    def __init__(
        self, int rdb_version, *, bint valkey, bint source_valkey, str field_ttl="keep",
        short_sizes=None, bytes old=b"", bytes new=b"", bint unique=False,
    ):
        self.version = rdb_version
        self.converter = Converter(
            rdb_version, valkey=valkey, source_valkey=source_valkey, field_ttl=field_ttl,
            short_sizes=short_sizes,
        )
        self.old, self.new = old, new
        self.keys = Keys(UNIQUE_KEYS) if unique else None

    @property
    def expiries_dropped(self):
        return self.converter.dropped

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
        self.now = time.time_ns() // 1_000_000
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
        self.now = time.time_ns() // 1_000_000
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
        if payload is None or 0 <= expiry <= self.now:
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
            check: as for ``Converter.converted()``.
            whole: a payload of this value that the target accepts; None to make one.
        """
        cdef int kind = <unsigned char>data[0]
        cdef Word value
        cdef char *to
        value.text, value.size = data + 1, size - 1
        # Pass on a type that is unknown here: the target may know it.
        if layout_of(kind) is not NULL:
            try:
                kind = self.converter.convert(kind, data + 1, size - 1, &value, check)
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
