"""Detect formats, compressions and encodings from the first bytes of a file."""

from __future__ import annotations

import codecs
import re

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message

__all__ = ["PACKED_BEGINNINGS", "binary_format", "check_text"]

# Supported compressions. A Zstandard file may begin with a skippable frame (pzstd).
PACKED_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
}
PACKED_NAMES = {"gzip": "gzip", "zstd": "Zstandard", "bz2": "bzip2"}
UNREAD_COMPRESSIONS = {b"\xfd7zXZ\0": "compressed with xz", b"\x04\x22\x4d\x18": "an LZ4 file"}
# In Parquet, Thrift field 1 (an integer) follows PAR1; a CSV header may also begin with PAR1.
PARQUET = b"PAR1\x15"
OTHERS = {
    b"PK\x03\x04": "a zip archive, as Excel writes it",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"ARROW1\0\0": "Arrow IPC",
    b"SQLite format 3\0": "an SQLite database",
    b"Obj\x01": "Avro",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    PARQUET: "Parquet",
}


def binary_format(head: bytes) -> str | None:
    """Return a description of the binary format of a file, from its first bytes; None for text."""
    for name, pattern in PACKED_BEGINNINGS.items():
        if pattern.match(head):
            return f"compressed with {PACKED_NAMES[name]}"
    names = UNREAD_COMPRESSIONS | OTHERS
    return next((name for magic, name in names.items() if head.startswith(magic)), None)


def check_text(head: bytes, kind: str) -> None:
    """Refuse a text file whose first bytes show that it is not in the expected format.

    Args:
        head: the first bytes of the file, decompressed.
        kind: the format: ``"csv"``, ``"tsv"``, ``"jsonl"``, or ``"lines"``, which may be any bytes.

    Raises:
        SourceError: the file is compressed, in a binary format, or UTF-16.
    """
    if any(map(head.startswith, UNREAD_COMPRESSIONS)):
        raise SourceError(
            f"it is {binary_format(head)}, which is not supported; decompress it first"
        )
    if kind == "lines":
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", "utf-16")))
    first, second = head[:16:2], head[1:16:2]  # in UTF-16, one has only NULs if the text is ASCII
    if second and any(first) != any(second):
        name = "utf-16-le" if any(first) else "utf-16-be"
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", name)))
    found = binary_format(head)
    if found == "Parquet":
        raise SourceError(Message("it is Parquet; use ", Hint("format", "parquet")))
    if found is not None:
        raise SourceError(f"it is {found}; convert it, or pass another file")
