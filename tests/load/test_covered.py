"""Parsing FT.INFO, estimating the backlog, and finding the indexes that cover a template."""

from __future__ import annotations

from typing import Any

import pytest

from fastresp.encode.template import as_template
from fastresp.load.search_indexes import Index, Written, read_index, written_by


def test_parses_valkey_search() -> None:
    """It has other field names: https://valkey.io/commands/ft.info."""
    definition = [b"key_type", b"HASH", b"prefixes", [b"doc:"], b"default_score", b"1"]
    reply = [
        b"index_name", b"docs", b"index_definition", definition, b"num_docs", 7,
        b"hash_indexing_failures", 2, b"backfill_in_progress", 1, b"backfill_complete_percent",
        b"0.250000", b"mutation_queue_size", 5, b"state", b"backfill_in_progress",
    ]  # fmt: skip
    index = read_index(b"docs", reply, keys=100)
    assert index == Index(
        "docs", "HASH", (b"doc:",), 7, scanning=True, scanned=0.25, queued=5, failures=2, keys=100
    )
    assert index.waiting(100) == 75 + 5


@pytest.mark.parametrize("reply", [None, b"", [], [1, 2], [b"index_definition"], {}])
def test_other_replies_are_ignored(reply: Any) -> None:
    assert read_index(b"docs", reply) is None


@pytest.mark.parametrize(
    ("scanned", "before", "keys", "documents", "waiting"),
    [
        (0.0, 1000, 1000, 0, 1000),  # its scan has not started
        (0.5, 1000, 1000, 500, 500),
        # As many keys were written and indexed since; half of the old ones remain.
        (1.0, 1000, 2000, 1500, 500),
        (1.9, 1000, 2000, 1950, 50),
        (2.5, 1000, 2000, 2000, 1),  # at least one during a scan
        (0.1, 1000, 1000, 990, 10),  # at most the number of keys
        (0.5, 0, 0, 0, 1),
    ],
)
def test_estimates_waiting_documents(
    scanned: float, before: int, keys: int, documents: int, waiting: int
) -> None:
    index = Index("i", "HASH", (b"",), documents, scanning=True, scanned=scanned, keys=keys)
    assert index.waiting(before) == waiting


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("HSET doc:{id} {**}", [("HASH", b"doc:")]),
        ("hset doc:{id} a 1; EXPIRE doc:{id} 9", [("HASH", b"doc:")]),
        ("JSON.SET {id} $ {*!json}", [("JSON", b"")]),
        ("JSON.MSET a:{id} $ {x} b:{id} $ {y}", [("JSON", b"a:"), ("JSON", b"b:")]),
        ("SET doc:{id} 1", []),
        ("{*words}", []),
    ],
)
def test_keys_written_by_a_template(template: str, written: list[tuple[str, bytes]]) -> None:
    assert written_by(as_template(template), unknown=False) == written


def test_keys_written_by_unknown_commands() -> None:
    everything = [Written("", b"")]
    assert written_by(None, unknown=True) == everything
    assert written_by(as_template("{*words}"), unknown=True) == everything
    assert written_by(as_template("SET a {v}"), unknown=True) == []


@pytest.mark.parametrize(
    ("written", "covered"),
    [
        (Written("HASH", b"doc:"), True),
        (Written("HASH", b"doc:new:"), True),
        (Written("HASH", b"d"), True),  # perhaps
        (Written("HASH", b"user:"), False),
        (Written("JSON", b"doc:"), False),
        (Written("", b""), True),
    ],
)
def test_covered(written: Written, covered: bool) -> None:
    index = Index("i", "HASH", (b"other:", b"doc:"))
    assert written.covered_by(index) == covered
