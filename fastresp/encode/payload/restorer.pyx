# cython: language_level=3, cdivision=True
"""Turn values as DUMP returns them into arguments of RESTORE for a server of another version.

A payload is a type byte and a value, followed by a footer: the RDB version in 2 bytes, and a CRC-64
of all bytes before it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memcmp

from .format cimport crc64

from ...outcome.errors import CommandError, SourceError
from ...outcome.messages import shown_reply

cdef enum:
    VERSION_BYTES = 2
    FOOTER_BYTES = 10
    # From this version on, Redis and Valkey differ. Source: rdb.h of both.
    FIRST_FOREIGN = 12
    KEY_SHOWN = 40


cdef class Restorer:
    """Relabels payloads for a server, and renames their keys.

    Args:
        rdb_version: the RDB version of the server; see ``format_of()``.
        old, new: a prefix of keys, and the prefix that replaces it.

    Attributes:
        gone: the number of keys that no longer existed when they were read.
        relabelled: the number of payloads whose RDB version was changed.
    """

    cdef readonly Py_ssize_t gone
    cdef readonly Py_ssize_t relabelled
    cdef int version
    cdef bytes old
    cdef bytes new

    def __init__(self, int rdb_version, bytes old=b"", bytes new=b""):
        self.version = rdb_version
        self.old, self.new = old, new

    def row(self, payload, expiry, bytes key not None):
        """Return the row of a key for RESTORE: key, expiry and payload; None for a missing key.

        Args:
            payload: the reply to DUMP.
            expiry: the reply to PEXPIRETIME.
            key: the key.

        Raises:
            SourceError: a reply is an error, or the payload is damaged.
        """
        if type(payload) is bytes and type(expiry) is int:
            if expiry == -2:            # expired since DUMP
                self.gone += 1
                return None
            payload = self.checked(<bytes>payload, key)
            return self.renamed(key), 0 if expiry < 0 else expiry, payload
        if payload is None:
            self.gone += 1
            return None
        raise unreadable(key, expiry if type(payload) is bytes else payload)

    cdef bytes checked(self, bytes payload, bytes key):
        """Check the checksum of a payload; return the payload with a version for the server."""
        cdef const char *data = PyBytes_AS_STRING(payload)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), body = size - FOOTER_BYTES
        cdef uint64_t of_body, crc
        cdef char[VERSION_BYTES] label
        cdef int version
        cdef char *to
        if body < 1:
            raise damaged(key)
        with nogil:
            of_body = crc64(0, data, body)
        crc = crc64(of_body, data + body, VERSION_BYTES)
        if memcmp(&crc, data + body + VERSION_BYTES, sizeof(crc)):
            raise damaged(key)
        version = <unsigned char>data[body] | <unsigned char>data[body + 1] << 8
        if version == self.version or version < min(self.version, FIRST_FOREIGN):
            return payload
        label[0], label[1] = <char>(self.version & 255), <char>(self.version >> 8)
        crc = crc64(of_body, label, VERSION_BYTES)
        changed = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(changed)
        memcpy(to, data, body)
        memcpy(to + body, label, VERSION_BYTES)
        memcpy(to + body + VERSION_BYTES, &crc, sizeof(crc))
        self.relabelled += 1
        return changed

    cdef bytes renamed(self, bytes key):
        if self.old is self.new or not key.startswith(self.old):
            return key
        return self.new + key[len(self.old):]


cdef str shown(bytes key):
    return f"{key[:KEY_SHOWN]!r}" + "..." * (len(key) > KEY_SHOWN)


cdef object damaged(bytes key):
    return SourceError(
        f"the value of key {shown(key)} was damaged on its way here: its checksum differs (check "
        "the network and proxies before the source)"
    )


cdef object unreadable(bytes key, object reply):
    text = reply.text if isinstance(reply, CommandError) else shown_reply(reply)
    return SourceError(f"can't read the value of key {shown(key)}: {text}")
