"""RDB files: one with every opcode, written byte by byte, and files that servers save."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import every_encoding
import redis
from server_programs import WHEEL_SERVERS, located

from fastresp.encode.key_columns import VALUE_COLUMNS
from fastresp.encode.payload.format import checksum
from fastresp.outcome.errors import DecodeError, SourceError
from fastresp.server.local_server import LocalServer
from fastresp.sources.files.rdb import RdbReader
from fastresp.sources.files.rdb_columns import RdbColumns, field_names

__all__ = [
    "EXPIRES_MS", "RDB_VERSIONS", "every_opcode", "finished", "read_every_way", "saved",
    "text",
]  # fmt: skip

# The servers of the tests, and the RDB version of each.
RDB_VERSIONS = {
    "redis-6.2": 9, "redis-7.0": 10, "valkey-8.1": 11, "redis-8.2": 12, "valkey-9.1": 80,
}  # fmt: skip
KINDS = [kind for kind in VALUE_COLUMNS if kind != "json"]
MAX_FIELDS = 100
EXPIRES_MS = 4_102_444_800_123


def text(data: bytes) -> bytes:
    """Encode a string of at most 16,383 bytes, with its length in one or two bytes."""
    if len(data) < 64:
        return bytes([len(data)]) + data
    return struct.pack(">H", 0x4000 | len(data)) + data


def finished(body: bytes, head: bytes = b"REDIS0011") -> bytes:
    """Return a file: the version, these bytes, the end and the checksum."""
    data = head + body + b"\xff"
    return data + struct.pack("<Q", checksum(data))


def every_opcode() -> bytes:
    """Return the bytes between the version and the end of a file with every opcode."""
    compressed = b"\xc3\x05\x12" + b"\x00a\xe0\x08\x00"  # LZF of 18 times "a"
    return b"".join(
        [
            b"\xfa" + text(b"redis-ver") + text(b"7.2.5"),
            b"\xfa" + text(b"redis-bits") + b"\xc0\x40",
            b"\xf5" + text(b"#!lua name=one\nredis.register_function('f', function() end)"),
            # A module's data: its identifier, and an integer, a float, a double and a text.
            b"\xf7\x81" + bytes(8) + b"\x02\x02\x01\x05\x03" + bytes(4) + b"\x04" + bytes(8),
            b"\x05" + text(b"module") + b"\x00",
            b"\xfe\x00\xfb\x05\x02",
            b"\xf4\x05\x03\x01",
            b"\xfc" + struct.pack("<q", EXPIRES_MS) + b"\x00" + text(b"ms") + text(b"one"),
            b"\xfd" + struct.pack("<i", 2_000_000_000) + b"\x00" + text(b"s") + text(b"two"),
            b"\xf9\x07\x00" + text(b"frequency") + text(b"three"),
            b"\xf8\x40\xff\x00" + text(b"idle") + text(b"four"),
            b"\x01" + b"\xc1\x39\x30" + b"\x02" + text(b"a") + b"\xc0\x07",  # the key 12345
            b"\xfe\x40\x0a\xfb\x01\x00",
            b"\x00" + compressed + text(b"x" * 200),
        ]
    )


def read_every_way(data: bytes) -> int:
    """Read all keys, and the values of each type as columns; return the number of intact keys.

    Damage raises SourceError, or changes a value, which may no longer be UTF-8.
    """
    keys = 0
    with suppress(SourceError):
        reader = RdbReader(BytesIO(data).read)
        while (batch := reader.batch()) is not None:
            keys += len(batch.keys)
    for kind in KINDS:
        fields = None
        if kind in ("hash", "stream"):
            fields = []
            with suppress(SourceError):
                reader = RdbReader(BytesIO(data).read, type=kind)
                fields = field_names(reader, MAX_FIELDS, streams=kind == "stream")
        with suppress(SourceError, DecodeError):
            columns = ["key", *VALUE_COLUMNS[kind], *map(str, fields or ())]
            texts = [True] + [False] * (len(columns) - 1)
            reader = RdbReader(BytesIO(data).read, type=kind)
            found = RdbColumns(
                reader, columns, texts, fields=fields, streams=kind == "stream", ttl="ttl"
            )
            while (rows := found.take()) is not None:
                assert len(rows) > 0
    return keys


@contextmanager
def saved(name: str, *options: str) -> Iterator[tuple[redis.Redis, Path]]:
    """Start a server with keys of every encoding, and SAVE; yield a client, and the file."""
    # This machine's own server is Redis 7.0.
    program = located(name, WHEEL_SERVERS) if name in WHEEL_SERVERS else None
    with LocalServer(*options, program=program) as server:
        client = redis.Redis.from_url(server.url)
        every_encoding.fill(client)
        client.save()
        yield client, server.folder / "dump.rdb"
        client.close()
