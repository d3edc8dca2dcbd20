"""``dump(format="rdb")``: write data as an RDB file, which a server reads when it starts."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from struct import pack
from typing import TYPE_CHECKING, Any, Protocol

from ..encode.payload.duplicates import MAX_KEYS, Keys, split
from ..encode.payload.format import Format, checksum, shifted
from ..encode.payload.serializer import Serializer
from ..encode.row_key import RowKeys
from ..outcome.errors import EncodeError
from ..server.file_io import read_some, write_all
from ..sources.source import Encoder
from .new_file import NewFile, naming_file, new_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "EOF", "RDB_VERSIONS", "KeyLog", "add_records", "check_version", "header", "select",
    "write_rdb",
]  # fmt: skip

# The versions that can be written, and the first Redis version that reads each.
RDB_VERSIONS = {9: "6.2.0", 10: "7.0.0", 11: "7.2.0"}
# A larger key is refused: all commands of a key are kept in memory.
MAX_KEY_BYTES = 512 << 20
# Source: rdb.h.
AUX, RESIZE_DB, SELECT_DB, EOF = b"\xfa", b"\xfb", b"\xfe", b"\xff"
LENGTH_32 = b"\x80"
MAX_COUNT = (1 << 32) - 1
# Smaller lengths are encoded in one byte.
SMALL = 64
# Bytes per key in the log: see KeyLog.
RECORD_BYTES = 16


def check_version(rdb_version: int) -> None:
    """Refuse a version that can't be written.

    Raises:
        ValueError: the version is not 9, 10 or 11.
    """
    if rdb_version not in RDB_VERSIONS:
        raise ValueError(
            "rdb_version must be 9 (read by Redis 6.2 and later), 10 (7.0 and later, and Valkey) "
            f"or 11 (7.2 and later, and Valkey), not {rdb_version!r}"
        )


def write_rdb(
    writer: Encoder,
    source: Iterable[Any],
    path: str | os.PathLike[str],
    rdb_version: int,
    row_keys: RowKeys,
) -> None:
    """Write an RDB file with the values that the commands of a source create.

    Args:
        writer: the encoder of the source.
        source: the source.
        path: path of the file; see ``new_file()``.
        rdb_version: a key of RDB_VERSIONS.
        row_keys: finds the keys of rows, for errors.

    Raises:
        EncodeError: a command does not create a value, or rows that are not adjacent create the
            same key. A server that reads a duplicate key exits.
        OSError: the file can't be written.
        ValueError: the path is not a file.
    """
    with new_file(path) as output, KeyLog(output.place) as log:
        serializer = Serializer(
            Format(rdb_version), file=True, max_bytes=MAX_KEY_BYTES, keys=log.keys
        )
        start = header(rdb_version)
        output.add(start)
        counts = len(start) - len(NO_KEYS)
        for chunk in writer.chunks(source):
            add_records(output, serializer.serialize(chunk), row_keys.of_failing(serializer))
        add_records(output, serializer.finish(), row_keys.of_failing(serializer))
        log.check()
        output.add(EOF)
        _end(output, counts, _counts(serializer.key_count, serializer.expiring))


class Records(Protocol):
    """A destination to which the bytes of an RDB file are added."""

    def add(self, data: Buffer, /) -> None: ...


def add_records(output: Records, records: Iterable[Buffer], error: BaseException | None) -> None:
    """Add serialised keys; if ``error`` is given, raise it instead."""
    if error is not None:
        raise error
    for each in records:
        output.add(each)


def header(rdb_version: int, database: int = 0, keys: int = 0, expiring: int = 0) -> bytes:
    """Return the bytes before the first key.

    Args:
        rdb_version: a key of RDB_VERSIONS.
        database: number of the database.
        keys, expiring: about how many keys follow, and how many of them expire.
    """
    facts = {"redis-ver": RDB_VERSIONS[rdb_version], "redis-bits": "64", "ctime": int(time.time())}
    fields = [_text(text) for fact in facts.items() for text in fact]
    pairs = zip(fields[::2], fields[1::2], strict=True)
    known = b"".join(AUX + name + value for name, value in pairs)
    return b"REDIS%04d" % rdb_version + known + select(database) + _counts(keys, expiring)


def select(database: int) -> bytes:
    """Return the record that sets the database of the keys that follow."""
    number = bytes([database]) if database < SMALL else LENGTH_32 + pack(">I", database)
    return SELECT_DB + number


def _text(text: object) -> bytes:
    """Encode a text of fewer than 64 bytes as an RDB string."""
    data = str(text).encode()
    return bytes([len(data)]) + data


def _counts(keys: int, expiring: int) -> bytes:
    """Encode the numbers of keys and of expiring keys, which let a server size its tables."""
    numbers = (LENGTH_32 + pack(">I", min(count, MAX_COUNT)) for count in (keys, expiring))
    return RESIZE_DB + b"".join(numbers)


NO_KEYS = _counts(0, 0)


def _end(output: NewFile, at: int, counts: bytes) -> None:
    """Fill in the numbers of keys, and write the checksum."""
    # The CRC is linear: XOR in the checksum of the bytes that the numbers change.
    changed = bytes(a ^ b for a, b in zip(counts, NO_KEYS, strict=True))
    crc = output.crc ^ shifted(checksum(changed), output.size - at - len(counts))
    output.patch(at, counts)
    output.add(pack("<Q", crc))


class KeyLog:
    """Finds duplicate keys in bounded memory; keys that do not fit are spilled to a file.

    Args:
        place: path of the RDB file; the log is an unnamed file in the same folder.

    Attributes:
        keys: the set to which the caller adds keys.
    """

    def __init__(self, place: str) -> None:
        self.keys = Keys(MAX_KEYS, self._add)
        self._place = place
        self._file: Any = None
        self._sizes: list[list[int]] = []  # for each spill, the sizes of its parts

    def __enter__(self) -> KeyLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the log."""
        self.keys = Keys()  # break the reference cycle
        if self._file is not None:
            self._file.close()

    def check(self) -> None:
        """Check all keys for duplicates if any were spilled; if not, they were checked when added.

        Raises:
            EncodeError: two rows create the same key.
        """
        if self._file is None:
            return
        self._add(self.keys.records())
        parts = list(zip(*self._sizes, strict=True))
        keys = Keys()
        for number, sizes in enumerate(parts):
            # Keys are distributed randomly, so each step is planned for half of MAX_KEYS.
            steps = 2 * sum(sizes) // RECORD_BYTES // MAX_KEYS + 1
            for step in range(steps):
                keys.forget()
                self._check_part(keys, number, step, steps)

    def _add(self, records: bytes) -> None:
        parts = split(records)
        self._sizes.append([len(part) for part in parts])
        with naming_file(self._place):
            if self._file is None:
                folder = os.path.dirname(self._place)
                self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            for part in parts:
                write_all(self._file, part)

    def _check_part(self, keys: Keys, number: int, step: int, steps: int) -> None:
        start = 0
        for sizes in self._sizes:
            self._file.seek(start + sum(sizes[:number]))
            rows = keys.second_row(self._read(sizes[number]), step, steps)
            if rows is not None:
                raise _repeated(*rows)
            start += sum(sizes)

    def _read(self, size: int) -> bytes:
        pieces = []
        while size and (piece := read_some(self._file, size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _repeated(first: int, second: int) -> EncodeError:
    return EncodeError(
        f"row {first:,} and row {second:,} make the same key, with other keys between them; sort "
        "the rows by key",
        row=second,
    )
