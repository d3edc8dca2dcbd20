"""Restorer: payloads for a server of another version."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import redis

from fastresp.encode.payload.format import checksum
from fastresp.encode.payload.restorer import Restorer
from fastresp.outcome.errors import CommandError


def payload(value: bytes, version: int) -> bytes:
    labelled = value + struct.pack("<H", version)
    return labelled + struct.pack("<Q", checksum(labelled))


# A string, as its type byte, its length and its text.
VALUE = b"\x00\x05hello"


@pytest.mark.parametrize(
    ("version", "target", "valkey", "expected"),
    [
        (9, 11, True, 9),
        (11, 11, True, 11),
        (12, 11, True, 11),
        (12, 10, False, 10),
        (80, 12, False, 12),
        (12, 12, False, 12),
        (12, 80, True, 80),
        (11, 80, True, 11),
    ],
)
def test_version(version: int, target: int, valkey: bool, expected: int) -> None:
    """Only a version that the target refuses is changed."""
    restorer = Restorer(target, valkey=valkey, source_valkey=version == 80)
    rows = restorer.dumped_rows([-1, payload(VALUE, version), None], iter([b"k"]))
    assert rows == [(b"k", 0, payload(VALUE, expected))]


def test_every_damaged_byte() -> None:
    whole = payload(VALUE, 11)
    restorer = Restorer(10, valkey=False, source_valkey=False)
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        for damaged in (changed, whole[:at]):
            rows = restorer.dumped_rows([-1, whole, -1, damaged, -1, whole], iter([b"a", b"b"]))
            assert [row[0] for row in rows] == [b"a"]
            assert "key b'b': the value was damaged on its way here" in str(restorer.error)


@pytest.mark.parametrize(("value", "expiry"), [(None, -2), (payload(VALUE, 11), -2), (None, -1)])
def test_missing_keys(value: bytes | None, expiry: int) -> None:
    restorer = Restorer(10, valkey=False, source_valkey=False)
    assert restorer.dumped_rows([expiry, value], iter([b"k"])) == []
    assert restorer.gone == 1


def test_expired_keys() -> None:
    """RESTORE with REPLACE would delete such a key of the target."""
    restorer = Restorer(10, valkey=False, source_valkey=False)
    assert restorer.dumped_rows([1, payload(VALUE, 10)], iter([b"k"])) == []
    assert restorer.stored_rows([VALUE, VALUE], [0, 1], [b"a", b"b"]) == []
    assert (restorer.gone, restorer.error) == (3, None)


@pytest.mark.parametrize(
    ("value", "expiry", "words"),
    [
        (CommandError("NOPERM no"), -1, "key b'k' can't be read: NOPERM no"),
        (payload(VALUE, 11), CommandError("ERR x"), "key b'k' can't be read: ERR x"),
        (5, 5, "key b'k' can't be read: 5"),
        (payload(VALUE, 11), None, "key b'k' can't be read: None"),
    ],
)
def test_other_replies(value: Any, expiry: Any, words: str) -> None:
    restorer = Restorer(10, valkey=False, source_valkey=False)
    assert restorer.dumped_rows([expiry, value], iter([b"k"])) == []
    assert str(restorer.error) == words


def test_value_of_a_file(client: redis.Redis) -> None:
    """A value without a footer, whose key gets another prefix."""
    restorer = Restorer(10, valkey=False, source_valkey=False, old=b"old:", new=b"n:")
    rows = restorer.stored_rows(
        [VALUE, VALUE, b"", VALUE],
        [4_000_000_000_000, -1, -1, -1],
        [b"old:k", b"other", b"c", b"d"],
    )
    assert rows == [
        (b"n:k", 4_000_000_000_000, payload(VALUE, 10)),
        (b"other", 0, payload(VALUE, 10)),
    ]
    assert "key b'c': the value was damaged" in str(restorer.error)
    client.restore(*rows[1])
    assert client.get("other") == b"hello"


def test_keys_that_are_read_twice() -> None:
    restorer = Restorer(11, valkey=False, source_valkey=False, unique=True)
    read = [-1, payload(VALUE, 11)] * 3
    assert len(restorer.dumped_rows(read, iter([b"a", b"b", b"a"]))) == 2
    assert restorer.dumped_rows(read, iter([b"b", b"a", b"c"])) == [(b"c", 0, read[1])]
    assert restorer.gone == 0
