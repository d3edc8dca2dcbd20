"""A reader and a writer of stored values in slow Python, to compare with the compiled code.

Sources: rdb.c, listpack.c and crc64.c of Redis 7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

PLAIN_LIST, PLAIN_SET, PLAIN_HASH, BINARY_SORTED_SET = PLAIN = 1, 2, 4, 5
HASH_LISTPACK, SORTED_SET_LISTPACK = 16, 17
# Two bytes of the version, and eight of the checksum.
FOOTER_BYTES = 10
# The largest sizes of an entry that are written in 1, 2, 3 and 4 bytes. All but the first are one
# less than possible; newer servers, such as Valkey 9.1, use the full range. Source:
# lpEncodeBacklen().
BACK_LENGTH_LIMITS = (127, 16382, 2097150, 268435454)
# Sizes of strings whose entries, 5 bytes longer, some servers end with a size that others refuse.
DISPUTED = (16378, 2097146, 268435450)


def _table() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = _table()


def crc64(data: bytes, crc: int = 0) -> int:
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def as_integer(text: bytes) -> int | None:
    """Return the 64-bit integer that servers store for a string; None for "-0", "007", " 1"."""
    try:
        value = int(text) if len(text) <= 20 else None
    except ValueError:
        return None
    if value is None or b"%d" % value != text or not -(2**63) <= value < 2**63:
        return None
    return value


def back_length(size: int) -> bytes:
    """Return an entry's size as servers write it after the entry, to be read backwards."""
    width = 1 + sum(size > limit for limit in BACK_LENGTH_LIMITS)
    groups = [size >> 7 * at & 127 for at in reversed(range(width))]
    return bytes([groups[0], *(group | 128 for group in groups[1:])])


def entry(text: bytes) -> bytes:
    """Return an entry of a listpack."""
    value, size = as_integer(text), len(text)
    if value is None:
        if size < 64:
            data = bytes([0x80 | size]) + text
        elif size < 4096:
            data = bytes([0xE0 | size >> 8, size & 255]) + text
        else:
            data = b"\xf0" + struct.pack("<I", size) + text
    elif 0 <= value <= 127:
        data = bytes([value])
    elif -4096 <= value <= 4095:
        data = bytes([0xC0 | (value & 0x1FFF) >> 8, value & 255])
    elif -(2**15) <= value < 2**15:
        data = b"\xf1" + struct.pack("<h", value)
    elif -(2**23) <= value < 2**23:
        data = b"\xf2" + struct.pack("<i", value)[:3]
    elif -(2**31) <= value < 2**31:
        data = b"\xf3" + struct.pack("<i", value)
    else:
        data = b"\xf4" + struct.pack("<q", value)
    return data + back_length(len(data))


def listpack(texts: Sequence[bytes]) -> bytes:
    body = b"".join(map(entry, texts))
    return struct.pack("<IH", 7 + len(body), min(len(texts), 65535)) + body + b"\xff"


def length(size: int) -> bytes:
    """Return a length in the format of an RDB file."""
    if size < 1 << 6:
        return bytes([size])
    if size < 1 << 14:
        return bytes([0x40 | size >> 8, size & 255])
    return b"\x80" + struct.pack(">I", size)


def string(text: bytes) -> bytes:
    """Return a string in the format of an RDB file, in which short integers are binary."""
    value = as_integer(text) if len(text) <= 11 else None
    if value is not None:
        for kind, (form, bits) in enumerate((("<b", 7), ("<h", 15), ("<i", 31))):
            if -(1 << bits) <= value < 1 << bits:
                return bytes([0xC0 | kind]) + struct.pack(form, value)
    return length(len(text)) + text


def hash_payload(
    pairs: Sequence[tuple[bytes, bytes]],
    rdb_version: int,
    max_entries: int = 512,
    max_value: int = 64,
) -> bytes:
    """Return the DUMP of a hash made by one HSET per pair."""
    fields = dict(pairs)
    texts = [text for pair in fields.items() for text in pair]
    sizes = {len(text) for pair in pairs for text in pair}
    small = len(fields) <= max_entries and max(sizes) <= max_value
    if rdb_version >= 10 and small and sizes.isdisjoint(DISPUTED):
        packed = listpack(texts)
        data = bytes([HASH_LISTPACK]) + length(len(packed)) + packed
    else:
        data = bytes([PLAIN_HASH]) + length(len(fields)) + b"".join(map(string, texts))
    data += struct.pack("<H", rdb_version)
    return data + struct.pack("<Q", crc64(data))


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length and the offset after it."""
    first = data[at]
    if first < 0x40:
        return first, at + 1
    if first < 0x80:
        return (first & 0x3F) << 8 | data[at + 1], at + 2
    assert first in (0x80, 0x81)
    end = at + 1 + (4 if first == 0x80 else 8)
    return int.from_bytes(data[at + 1 : end], "big"), end


def encoded_strings(data: bytes, at: int) -> Iterator[bytes]:
    """Yield the encoded strings of a payload, starting at an offset."""
    while at < len(data) - FOOTER_BYTES:
        if data[at] >= 0xC0:
            end = at + 1 + (1 << (data[at] & 3))
        else:
            size, end = read_length(data, at)
            end += size
        yield data[at:end]
        at = end


def unordered(payload: bytes) -> tuple[int, list[bytes | tuple[bytes, bytes]]]:
    """Return the type of a hash table and its encoded items, sorted."""
    count, at = read_length(payload, 1)
    strings = list(encoded_strings(payload, at))
    items: list[bytes | tuple[bytes, bytes]] = [*strings]
    if payload[0] == PLAIN_HASH:
        items = list(zip(strings[::2], strings[1::2], strict=True))
    assert len(items) == len(set(items)) == count
    return payload[0], sorted(items)


def listpack_entries(payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a payload that is one listpack: encoded, and as text."""
    size, start = read_length(payload, 1)
    at, end = start + 6, start + size - 1
    while at < end:
        begin, first = at, payload[at]
        if first < 0x80:
            text, at = b"%d" % first, at + 1
        elif first < 0xC0:
            text, at = payload[at + 1 : at + 1 + (first & 63)], at + 1 + (first & 63)
        elif first < 0xE0:
            value = (first & 31) << 8 | payload[at + 1]
            text, at = b"%d" % (value - 0x2000 if value > 0xFFF else value), at + 2
        elif first < 0xF0:
            count = (first & 15) << 8 | payload[at + 1]
            text, at = payload[at + 2 : at + 2 + count], at + 2 + count
        elif first == 0xF0:
            count = int.from_bytes(payload[at + 1 : at + 5], "little")
            text, at = payload[at + 5 : at + 5 + count], at + 5 + count
        else:
            width = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}[first]
            number = int.from_bytes(payload[at + 1 : at + 1 + width], "little", signed=True)
            text, at = b"%d" % number, at + 1 + width
        back = back_length(at - begin)
        assert payload[at : at + len(back)] == back
        at += len(back)
        yield payload[begin:at], text
