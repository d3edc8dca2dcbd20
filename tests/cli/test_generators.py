"""The report's corrected generators make the same bytes as ``pack``, for any text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from commands import AS_LISTED

import fastresp
from fastresp.cli.demo.methods import CHUNK_BYTES, GENERATORS, PAYLOAD, chunks

TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # UTF-8 has no lone surrogates
COMMANDS = [
    ("PING",),
    ("GET", "key"),
    ("SET", "key", "value"),
    ("LPUSH", "k", PAYLOAD),
    ("SET", "k", ""),
    ("SET", "Zoë", "日本語"),
    ("SET", "k", "😀 e\u0301"),
    ("SET", "k", "\r\n*3\r\n$5\r\n"),
    ("SET", "{} %s %d %%", "{0} {name} $"),
    ("HSET", "k", "ä", "1", "b", ""),
    ("SADD", "k", *"0123456789"),
]


def as_bytes(made: str | bytes) -> bytes:
    return made.encode() if isinstance(made, str) else made


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
@pytest.mark.parametrize("name", GENERATORS)
def test_agrees_with_pack(name, command):
    assert as_bytes(GENERATORS[name](command)) == fastresp.pack(*command)


@pytest.mark.parametrize("command", [c for c in COMMANDS if len(c) == 3], ids=repr)
@pytest.mark.parametrize("name", AS_LISTED)
def test_listed_form_agrees_with_pack(name, command):
    assert as_bytes(AS_LISTED[name](command)) == fastresp.pack(*command)


@given(st.lists(TEXT, max_size=6))
def test_any_text_agrees_with_pack(arguments):
    command = ["SET", *arguments]
    for name, generate in GENERATORS.items():
        assert as_bytes(generate(command)) == fastresp.pack(*command), name
    if len(command) == 3:
        for name, generate in AS_LISTED.items():
            assert as_bytes(generate(command)) == fastresp.pack(*command), name


def test_payload_is_the_reports():
    assert len(PAYLOAD.encode()) == 129
    assert PAYLOAD.startswith('{"origin": null, ')
    assert PAYLOAD.endswith('"size": 54, "redirect": true}')


@pytest.mark.parametrize("name", GENERATORS)
def test_chunks_contain_all_commands(name):
    commands = [("SET", f"kéy:{index}", PAYLOAD) for index in range(30_000)]
    made = list(chunks(GENERATORS[name], commands))
    assert b"".join(made) == fastresp.pack_many(commands)
    assert len(made) > 4
    assert all(0.9 * CHUNK_BYTES < len(chunk) < 1.1 * CHUNK_BYTES for chunk in made[1:-1])


def test_chunks_of_no_commands():
    assert list(chunks(GENERATORS["format"], [])) == []


def test_chunks_of_commands_larger_than_a_chunk():
    commands = [("SET", "k", "x" * CHUNK_BYTES)] * 3
    made = list(chunks(GENERATORS["format"], commands))
    assert b"".join(made) == fastresp.pack_many(commands)
