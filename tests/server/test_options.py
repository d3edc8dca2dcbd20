"""Options that are arguments of ``Checkpoint``, ``Merge`` and ``Serialize``."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import fastresp
from fastresp.cli import options
from fastresp.load.verifying.verify import VerifyOptions
from fastresp.outcome.messages import GROUPED, Hint
from fastresp.server.options import (
    Checkpoint,
    Merge,
    Mirror,
    Options,
    Replicate,
    Serialize,
    grouped,
)

CLASSES: tuple[type[Any], ...] = (Checkpoint, Merge, Mirror, Replicate, Serialize)


def test_every_argument_has_one_flat_name() -> None:
    named = sorted((kind, argument) for _, kind, argument in GROUPED.values())
    arguments = [(kind.__name__, each.name) for kind in CLASSES for each in fields(kind)]
    # ``exists`` is also an argument of Serialize; the others are passed directly.
    others = {("Checkpoint", "name"), ("Merge", "exists"), ("Mirror", "keys")}
    assert named == sorted({*arguments} - others)


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
        ({"mode": "replicate", "listen": "a:1"}, Options(mode=Replicate("a:1"))),
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
        (Hint("source_id", ...), "checkpoint=Checkpoint(..., source_id=)", "source_id="),
        (Hint("exists", "skip"), "mode=Serialize(exists='skip')", "exists='skip'"),
        (Hint("max_payload_bytes"), "max_bytes", "max_payload_bytes"),
        (Hint("nulls", "skip", "with"), "with nulls='skip'", "with nulls='skip'"),
    ],
)
def test_hints(hint: Hint, python: str, flat: str) -> None:
    assert (str(hint), hint.flat) == (python, flat)


def test_public_names() -> None:
    names = ["Checkpoint", "Merge", "Mirror", "Replicate", "Serialize"]
    assert [getattr(fastresp, name) for name in names] == list(CLASSES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": None}, "checkpoint must be a name, not None"),
        ({"name": 5}, "checkpoint must be a name, not 5"),
        ({"name": "a", "resume": "no"}, "resume must be True or False, not 'no'"),
        ({"name": "a", "take_over": "no"}, "take_over must be True or False, not 'no'"),
        ({"name": "a", "clear": "false"}, "clear must be True or False, not 'false'"),
        ({"name": "a", "clear": True, "resume": True}, "resume=.* keeps .*clear=.* deletes it"),
    ],
)
def test_bad_checkpoints(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Checkpoint(**arguments)


def test_only_the_name_of_a_checkpoint_is_positional() -> None:
    with pytest.raises(TypeError, match="positional"):
        Checkpoint("a", True)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["wait_index", "import_source"])
def test_flags_are_not_text(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be True or False, not 'no'"):
        Options(**{name: "no"})


def test_numbers_of_numpy() -> None:
    mode = Merge(np.int64(5), np.uint8(6))  # type: ignore[arg-type]
    assert Options(mode=mode, connections=np.int32(2)) == Options(mode=Merge(5, 6), connections=2)  # type: ignore[arg-type]


def test_a_subclass_has_the_mode_of_its_class() -> None:
    class Mine(Merge):
        pass

    assert Options(mode=Mine()).mode_name == "merge"


@pytest.mark.parametrize("function", [fastresp.mass_insert, fastresp.loader])
def test_removed_arguments_name_their_successors(function: Any) -> None:
    with pytest.raises(TypeError, match=r"; use checkpoint=Checkpoint\(..., resume=\)"):
        function([], resume=True)
    with pytest.raises(TypeError, match=r"argument 'exists'; use mode=Serialize\(exists=\)"):
        function([], exists="skip")


@pytest.mark.parametrize(
    ("function", "kind", "others"),
    [
        (fastresp.mass_insert, Options, {"data", "template"}),
        (fastresp.loader, Options, {"template"}),
        (fastresp.iter_replies, Options, {"data", "template", "decode", "max_reply_bytes"}),
        (fastresp.verify, VerifyOptions, {"data", "template", "nulls", "default"}),
    ],
)
def test_every_argument_is_an_option(function: Any, kind: type[Any], others: set[str]) -> None:
    """Arguments are passed on by name, so another name would be ignored."""
    parameters = inspect.signature(function).parameters
    options = {each.name: each.default for each in fields(kind)}
    assert parameters.keys() - options.keys() == others
    words = {"commands": None}
    for name in parameters.keys() - others - {"nulls"}:
        default = parameters[name].default
        assert words.get(default, default) == options[name], name
    if function is fastresp.mass_insert:
        assert options.keys() == parameters.keys() - others
    elif function is fastresp.loader:  # a program may close it before it has written all rows
        assert options.keys() - parameters.keys() == {"mirror"}


@pytest.mark.parametrize(
    ("arguments", "resumes"),
    [
        ({}, False),
        ({"resume": True}, True),
        ({"take_over": True}, True),
        ({"clear": True}, False),
        ({"take_over": True, "clear": True}, False),
    ],
)
def test_whether_a_checkpoint_is_resumed(arguments: dict[str, Any], resumes: bool) -> None:
    assert Checkpoint("a", **arguments).resumes is resumes
