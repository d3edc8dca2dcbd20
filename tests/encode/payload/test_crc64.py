"""The checksum of payloads: known values, any split, and a slow reference."""

from __future__ import annotations

from random import Random

import pytest
from payload_model import crc64

from fastresp.encode.payload.format import checksum

DATA = Random(1).randbytes(100)


def test_known_value() -> None:
    """The value in crc64.c of Redis."""
    assert checksum(b"123456789") == crc64(b"123456789") == 0xE9C6D914C4B8D9CA


def test_every_length() -> None:
    """Eight bytes at a time, and the remainder one by one."""
    for start in range(9):
        for end in range(start, len(DATA)):
            assert checksum(memoryview(DATA)[start:end]) == crc64(DATA[start:end])


def test_every_split() -> None:
    whole = crc64(DATA)
    for at in range(len(DATA) + 1):
        assert checksum(DATA[at:], checksum(DATA[:at])) == whole


def test_nothing() -> None:
    assert checksum(b"") == 0
    assert checksum(b"", 7) == 7
    assert checksum(bytes(99)) == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_buffers(kind: type) -> None:
    assert checksum(kind(DATA)) == crc64(DATA)


@pytest.mark.parametrize("data", [memoryview(DATA)[::2], "123", None, memoryview(DATA).cast("I")])
def test_other_types_are_refused(data: object) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        checksum(data)  # type: ignore[arg-type]
