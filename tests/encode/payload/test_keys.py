"""The table of keys finds a duplicate key and its first row, in bounded memory."""

from __future__ import annotations

import pytest

from fastresp.encode.payload.duplicates import MAX_KEYS, Keys, split
from fastresp.encode.payload.format import Format
from fastresp.encode.payload.serializer import Serializer
from fastresp.encode.writer import Writer

# Bytes per key in the records.
RECORD_BYTES = 16
PARTS = 64


def serialized(keys: list[bytes]) -> Serializer:
    """Serialise one row for each key."""
    serializer = Serializer(Format(11), max_bytes=1 << 30)
    for chunk in Writer().chunks([b"SADD", key, b"x"] for key in keys):
        serializer.serialize(chunk)
    serializer.finish()
    return serializer


def records(keys: list[bytes]) -> bytes:
    """Return the records of distinct keys; the row of a key is its index."""
    serializer = serialized(keys)
    assert serializer.error is None
    assert serializer.key_count == serializer.keys.count == len(keys)
    found = serializer.keys.records()
    assert len(found) == RECORD_BYTES * len(keys)
    assert serializer.keys.count == 0
    return found


def second_rows(keys: Keys, found: bytes) -> list[tuple[int, int] | None]:
    """Add each record alone; return the rows if its key is a duplicate."""
    starts = range(0, len(found), RECORD_BYTES)
    return [keys.second_row(found[at : at + RECORD_BYTES], 0, 1) for at in starts]


@pytest.mark.parametrize("first", [0, 1, 511, 512, 1023, 4999])
def test_first_row(first: int) -> None:
    """A duplicate key is found, even if the table has grown since the first one."""
    keys = [b"key:%d" % i for i in range(5000)]
    error = serialized([*keys, b"another", keys[first]]).error
    assert f"row {first:,} and row 5,001 make the same key" in str(error)


def test_adjacent_commands_are_one_key() -> None:
    assert serialized([b"a", b"a", b"", b"", b"b"]).error is None
    assert "row 0 and row 3" in str(serialized([b"", b"", b"b", b""]).error)


def test_similar_keys() -> None:
    keys = [b"\0" * size for size in range(100)] + [b"a" * size for size in range(1, 100)]
    keys += [b"%d" % i for i in range(100_000)]
    records(keys)


def test_records_have_the_rows() -> None:
    """A record that is added again is a duplicate, with the row of the first."""
    found = records([b"%d" % i for i in range(1500)])
    keys = Keys()
    assert keys.second_row(found, 0, 1) is None
    assert keys.count == 1500
    assert {*second_rows(keys, found)} == {(row, row) for row in range(1500)}


@pytest.mark.parametrize("most", [0, 1, 10, 511, 512, 513, 700])
def test_bound(most: int) -> None:
    found = records([b"%d" % i for i in range(1500)])
    keys = Keys(most)
    assert not keys.full or most == 0
    assert keys.second_row(found, 0, 1) is None
    assert keys.full
    assert keys.count == most


@pytest.mark.parametrize("most", [1, 512, 700])
def test_keys_are_found_in_a_full_table(most: int) -> None:
    found = records([b"%d" % i for i in range(1500)])
    keys = Keys(most)
    assert keys.second_row(found, 0, 1) is None
    size = most * RECORD_BYTES
    assert all(rows and rows[0] == rows[1] for rows in second_rows(keys, found[:size]))
    assert keys.second_row(found[size:], 0, 1) is None


def test_default_bound() -> None:
    assert MAX_KEYS == 1 << 20
    assert not Keys().full


def test_split() -> None:
    """Equal keys are in the same part."""
    a, b = (records([b"%d" % i for i in range(start, 3000)]) for start in (0, 1000))
    parts, others = split(a), split(b)
    assert len(parts) == len(others) == PARTS
    assert sum(map(len, parts)) == len(a)
    assert all(parts)

    def fingerprints(part: bytes) -> set[bytes]:
        """Return the hash of each key, without its row."""
        return {part[at : at + 8] for at in range(0, len(part), RECORD_BYTES)}

    for part, other in zip(parts, others, strict=True):
        assert fingerprints(other) <= fingerprints(part)
    assert split(b"") == [b""] * PARTS


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_repeated_key_across_batches(steps: int) -> None:
    """Each step checks a share of the keys of a part; exactly one step finds the duplicate key."""
    a = records([b"%d" % i for i in range(2000)])
    b = records([b"b%d" % i for i in range(1234)] + [b"77"] + [b"c%d" % i for i in range(99)])
    found, seen = [], 0
    for part, other in zip(split(a), split(b), strict=True):
        for step in range(steps):
            keys = Keys()
            assert keys.second_row(part, step, steps) is None
            found.append(keys.second_row(other, step, steps))
            seen += keys.count
    assert [each for each in found if each] == [(77, 1234)]
    # Keys after the repeated one were not checked; a part has 3,334 / 64 keys on average.
    assert 3000 < seen <= 3333
