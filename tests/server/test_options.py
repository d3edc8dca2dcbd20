"""Options that are arguments of ``Checkpoint``, ``Merge`` and ``Serialize``."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest

import fastresp
from fastresp.cli import options
from fastresp.outcome.messages import GROUPED, Hint
from fastresp.server.options import Checkpoint, Merge, Options, Serialize, grouped

CLASSES: tuple[type[Any], ...] = (Checkpoint, Merge, Serialize)


def test_every_argument_has_one_flat_name() -> None:
    named = sorted((kind, argument) for _, kind, argument in GROUPED.values())
    arguments = [(kind.__name__, each.name) for kind in CLASSES for each in fields(kind)]
    assert named == sorted(each for each in arguments if each != ("Checkpoint", "name"))


def test_the_command_line_has_the_flat_names() -> None:
    """But no ``--source-id``: standard input must be written to a file."""
    assert [name for name in GROUPED if not hasattr(options, name)] == ["source_id"]


@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ({}, Options()),
        ({"mode": "commands", "merge_items": None, "exists": "error", "resume": False}, Options()),
        ({"mode": "merge"}, Options(mode=Merge())),
        ({"mode": "merge", "merge_items": 5, "merge_bytes": 6}, Options(mode=Merge(5, 6))),
        ({"mode": "serialize", "exists": "skip"}, Options(mode=Serialize("skip"))),
        ({"mode": "serialize", "max_payload_bytes": 7}, Options(mode=Serialize(max_bytes=7))),
        ({"mode": Merge(5), "merge_bytes": 6}, Options(mode=Merge(5, 6))),
        ({"checkpoint": "a"}, Options(checkpoint=Checkpoint("a"))),
        (
            {"checkpoint": "a", "resume": True, "source_id": "b"},
            Options(checkpoint=Checkpoint("a", resume=True, source_id="b")),
        ),
        (
            {"checkpoint": Checkpoint("a", take_over=True), "checkpoint_clear": True},
            Options(checkpoint=Checkpoint("a", take_over=True, clear=True)),
        ),
    ],
)
def test_flat_options(flat: dict[str, Any], expected: Options) -> None:
    found = Options(**grouped(flat))
    assert found == expected
    assert pickle.loads(pickle.dumps(found)) == expected


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"resume": True}, "resume needs checkpoint="),
        ({"checkpoint": None, "source_id": "a"}, "source_id needs checkpoint="),
        ({"mode": "serialize", "merge_bytes": 5}, "bytes is for mode='merge'"),
    ],
)
def test_flat_options_without_their_owner(flat: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        grouped(flat)


@pytest.mark.parametrize(
    ("hint", "python", "flat"),
    [
        (Hint("resume", True), "checkpoint=Checkpoint(..., resume=True)", "resume=True"),
        (
            Hint("source_id", ...),
            "checkpoint=Checkpoint(..., source_id=)",
            "source_id=",
        ),
        (Hint("exists", "skip"), "mode=Serialize(exists='skip')", "exists='skip'"),
        (Hint("max_payload_bytes"), "max_bytes", "max_payload_bytes"),
        (Hint("nulls", "skip", "with"), "with nulls='skip'", "with nulls='skip'"),
    ],
)
def test_hints(hint: Hint, python: str, flat: str) -> None:
    assert (str(hint), hint.flat) == (python, flat)


def test_public_names() -> None:
    assert [fastresp.Checkpoint, fastresp.Merge, fastresp.Serialize] == list(CLASSES)
