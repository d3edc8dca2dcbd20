"""Hashes as listpacks and as plain values, byte for byte as a slow reference writes them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_model import (
    BACK_LENGTH_LIMITS,
    DISPUTED,
    back_length,
    entry,
    hash_payload,
    listpack_entries,
)
from random_values import INTEGERS, LONG, NEARLY_INTEGERS, SHORT, restores, text

from fastresp.encode.payload.format import Format

TEXTS = [*INTEGERS, *NEARLY_INTEGERS, *(b"x" * size for size in (*SHORT, *LONG))]
LISTPACKS = Format(10)
# Limits that allow any hash as a listpack.
WIDE = {"hash-max-listpack-entries": 1 << 40, "hash-max-listpack-value": 1 << 40}


def written(pairs: list[tuple[bytes, bytes]], encodings: Format) -> bytes:
    """Return the payload of a hash made by one command per pair."""
    [command] = restores(([b"HSET", b"k", *pair] for pair in pairs), encodings)
    assert command[:3] == [b"RESTORE", b"k", b"0"] and len(command) == 4
    return command[3]


@given(st.lists(st.tuples(st.binary(max_size=70), st.binary(max_size=70)), min_size=1))
def test_any_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    assert written(pairs, LISTPACKS) == hash_payload(pairs, 10)


@given(st.lists(st.tuples(st.integers(-(2**65), 2**65), st.sampled_from(TEXTS)), min_size=1))
def test_integers(pairs: list[tuple[int, bytes]]) -> None:
    texts = [(b"%d" % number, text) for number, text in pairs]
    for version in (9, 11):
        assert written(texts, Format(version, WIDE)) == hash_payload(
            texts, version, 1 << 40, 1 << 40
        )


@pytest.mark.parametrize("version", [9, 10, 11, 12, 80])
def test_each_text(version: int) -> None:
    """As a field and as a value, at every limit of an encoding."""
    for each in TEXTS:
        for pair in ((each, b"v"), (b"f", each)):
            assert written([pair], Format(version, WIDE)) == hash_payload(
                [pair], version, 1 << 40, 1 << 40
            )
            assert written([pair], Format(version)) == hash_payload([pair], version)


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(20))
def test_random_hashes(seed: int) -> None:
    source = Random(seed)
    for _ in range(10):
        names = [text(source) for _ in range(source.choice((1, 3, 100, 700)))]
        pairs = [(source.choice(names), text(source)) for _ in names]
        entries, size = source.choice((1, 90, 512)), source.choice((0, 64, 30_000))
        limits = {"hash-max-listpack-entries": entries, "hash-max-listpack-value": size}
        assert written(pairs, Format(10, limits)) == hash_payload(pairs, 10, entries, size)


@pytest.mark.parametrize("fields", [8191, 8192, 8193])
def test_wide_limits(fields: int) -> None:
    """A server's limits apply up to half of the size at which it stops making listpacks."""
    pairs = [(b"%d" % i, b"") for i in range(fields)]
    assert written(pairs, Format(10, WIDE)) == hash_payload(pairs, 10, fields)
    for size in (32_767, 32_768, 2_097_145):
        pair = (b"f", b"x" * size)
        assert written([pair], Format(10, WIDE)) == hash_payload([pair], 10, 1, size)


def test_back_lengths() -> None:
    """Check the model's own limits, since few payloads are that large."""
    for width, limit in enumerate(BACK_LENGTH_LIMITS, 1):
        assert len(back_length(limit)) == width
        assert len(back_length(limit + 1)) == width + 1
    for size in (1, 127, 128, 16382, 16383, 2097150, 2097151, 268435454, 268435455):
        assert sum((b & 127) << 7 * at for at, b in enumerate(reversed(back_length(size)))) == size


@pytest.mark.parametrize("limit", BACK_LENGTH_LIMITS[:2])
def test_entries_at_the_limits_of_the_back_length(limit: int) -> None:
    for size in range(limit - 6, limit + 3):
        pair = (b"f", b"x" * size)
        payload = written([pair], Format(10, WIDE))
        if size in DISPUTED:
            assert payload == hash_payload([pair], 10, 0)
            continue
        _, (found, value) = listpack_entries(payload)
        assert found == entry(value) and len(value) == size


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), min_size=1))
def test_reader_of_the_tests(pairs: list[tuple[bytes, bytes]]) -> None:
    """The reader that other tests compare with reads back what the model writes."""
    pairs = [pair for pair in pairs if not {*map(len, pair)} & {*DISPUTED}] or [(b"f", b"v")]
    fields = dict(pairs)
    found = list(listpack_entries(hash_payload(pairs, 10, 1 << 40, 1 << 40)))
    assert [text for _, text in found] == [text for pair in fields.items() for text in pair]
    assert [data for data, text in found] == [entry(text) for _, text in found]
