"""All exceptions can be pickled, as engines pass them from a task to its caller."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import fastresp
from fastresp.lists.connection import SlotMoved
from fastresp.load.checkpoint.previous_loader import AtWork
from fastresp.outcome import errors, report
from fastresp.outcome.messages import Hint, Message
from fastresp.sink.task import Aborted

MESSAGE = Message("the field is null; leave it out: ", Hint("nulls", "skip"))
ERROR = fastresp.CommandError(
    "WRONGTYPE Operation", index=7, row=3, file="x.csv", row_in_file=1, arguments=(b"GET", b"k"),
    nested=True, node="127.0.0.1:7000",
)  # fmt: skip
REPORT = fastresp.Report("socket", failed=1, errors=[ERROR], errors_by_code={"WRONGTYPE": 1})


def in_file(error: fastresp.EncodeError) -> fastresp.EncodeError:
    error.file, error.row_in_file = "x.csv", 1
    return error


ALL = [
    ERROR,
    fastresp.CommandError("ERR no", arguments=(b"AUTH", b"secret")),
    fastresp.LoadErrors(REPORT, hint="(look)"),
    fastresp.PushError(REPORT, [b"a"], 3, 1),
    in_file(fastresp.EncodeError(MESSAGE, command=1, row=2, argument=3)),
    fastresp.TemplateError("no field", "SET {a} {b}", 4, row=9),
    fastresp.SourceError("no"),
    fastresp.DecodeError("no", key=b"k", column="c"),
    fastresp.CheckpointError(MESSAGE),
    AtWork(MESSAGE, 12),
    fastresp.ProtocolError("no", 12, "one command before"),
    fastresp.TransportError("lost", REPORT),
    fastresp.TransportTimeout("no progress", REPORT),
    errors.LeaseError("late"),
    SlotMoved("MOVED 1 127.0.0.1:7000", index=1),
    Aborted("aborted"),
]


def test_all_exceptions_are_tested() -> None:
    found = [*vars(errors).values(), *vars(report).values()]
    kinds = {
        kind for kind in found if isinstance(kind, type) and issubclass(kind, errors.FastrespError)
    }
    assert {type(error) for error in ALL} >= kinds - {errors.FastrespError}


@pytest.mark.parametrize("changed", [False, True], ids=["", "with more args"])
@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_pickle_keeps_everything(error: fastresp.FastrespError, changed: bool) -> None:
    """Text, hints, notes and attributes are unchanged, whatever was added to ``args``."""
    error.add_note("a note")
    before = error.args
    if changed:
        error.args = (*before, "what Ray adds")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), repr(found), found.hints) == (str(error), repr(error), error.hints)
    assert repr(sorted(vars(found).items())) == repr(sorted(vars(error).items()))
    error.args = before
    del error.__notes__


def test_pickle_keeps_raised_errors(tmp_path: Path) -> None:
    for row, kind in (({"a": None}, fastresp.EncodeError), ({"b": 1}, fastresp.TemplateError)):
        with pytest.raises(kind) as caught:
            fastresp.dump([row], "SET {a} 1", tmp_path / "x")
        found, error = pickle.loads(pickle.dumps(caught.value)), caught.value
        assert (str(found), vars(found), found.hints) == (str(error), vars(error), error.hints)


def test_repr_is_the_text() -> None:
    """Engines log the repr: the text, not a hundred errors."""
    assert repr(ALL[2]) == f"LoadErrors({str(ALL[2])!r})"
