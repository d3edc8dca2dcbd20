"""The exceptions: base classes, texts and attributes, which survive pickle and copy."""

from __future__ import annotations

import copy
import importlib.metadata
import inspect
import pickle
from typing import Any

import pytest
import redis

import fastresp
from fastresp import (
    CheckpointError,
    CommandError,
    DecodeError,
    EncodeError,
    FastrespError,
    LeaseError,
    LoadErrors,
    ProtocolError,
    PushError,
    Report,
    SourceError,
    TemplateError,
    TransportError,
    TransportTimeout,
)
from fastresp.outcome import errors, report

REPORT = Report("redis-cli", rows=3, commands=3, replies=2, failed=1, bytes_sent=99, seconds=0.5)

# One exception of each class, with its attributes and text.
EXAMPLES = [
    (FastrespError("words"), {}, "words"),
    (
        EncodeError("words", command=1, row=2, argument=3),
        {"command": 1, "row": 2, "argument": 3},
        "words",
    ),
    (LeaseError("words"), {}, "words"),
    (DecodeError("words", key=b"k", column="c"), {"key": b"k", "column": "c"}, "words"),
    (EncodeError("words"), {"command": None, "row": None, "argument": None}, "words"),
    (
        TemplateError("words", "SET {a", 4),
        {"template": "SET {a", "position": 4, "row": None},
        "words\n    SET {a\n        ^",
    ),
    (
        TemplateError("words", "GET x\nSET\t{a}", 10, row=1234),
        {"template": "GET x\nSET\t{a}", "position": 10, "row": 1234},
        "row 1,234: words\n    SET {a}\n        ^",
    ),
    (SourceError("words"), {}, "words"),
    (CheckpointError("words"), {}, "words"),
    (ProtocolError("words", 12345), {"offset": 12345}, "words (at byte 12,345)"),
    (
        CommandError("WRONGTYPE Operation against a key", index=4321),
        {"text": "WRONGTYPE Operation against a key", "code": "WRONGTYPE", "index": 4321},
        "command 4,321: WRONGTYPE Operation against a key",
    ),
    (
        CommandError("ERR", index=9, row=13, file="b.csv", row_in_file=3),
        {"row": 13, "file": "b.csv", "row_in_file": 3},
        "row 3 of b.csv, command 9: ERR",
    ),
    (CommandError("ERR"), {"text": "ERR", "code": "ERR", "index": None}, "ERR"),
    (
        LoadErrors(REPORT),
        {"report": REPORT},
        f"{REPORT}\n(on_error='collect' returns this report instead of raising)",
    ),
    (
        PushError(REPORT, [b"a", b"b"], 1234, 5),
        {"report": REPORT, "items": [b"a", b"b"], "taken": 1234, "later": 5},
        f"{REPORT}\n2 items of the 1,234 read from the source are not in the list, but 5 after the "
        "first of these (once the server accepts items, push the exception's 'items', then the "
        "rest of the source)",
    ),
    (TransportError("words"), {"report": None}, "words"),
    (TransportError("words", REPORT), {"report": REPORT}, f"words\n{REPORT}"),
    (TransportTimeout("words", REPORT), {"report": REPORT}, f"words\n{REPORT}"),
    (TransportTimeout("words"), {"report": None}, "words"),
]

IDS = [type(error).__name__ for error, _, _ in EXAMPLES]


def test_examples_are_complete() -> None:
    found = {
        cls for each in (errors, report) for _, cls in inspect.getmembers(each, inspect.isclass)
    }
    classes = {cls for cls in found if issubclass(cls, FastrespError)}
    assert classes == {type(error) for error, _, _ in EXAMPLES}
    names = {cls.__name__ for cls in classes}
    assert names <= {*errors.__all__, *report.__all__} & set(fastresp.__all__)


@pytest.mark.parametrize(("error", "attributes", "text"), EXAMPLES, ids=IDS)
def test_attributes_and_text(error: Any, attributes: dict[str, Any], text: str) -> None:
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert str(error) == text


@pytest.mark.parametrize(("error", "attributes", "text"), EXAMPLES, ids=IDS)
def test_pickle_and_copy(error: Any, attributes: dict[str, Any], text: str) -> None:
    copies = [pickle.loads(pickle.dumps(error, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in [*copies, copy.copy(error), copy.deepcopy(error)]:
        assert other is not error
        assert type(other) is type(error)
        assert {name: getattr(other, name) for name in attributes} == attributes
        assert str(other) == text
        assert other.args == error.args


@pytest.mark.parametrize(
    ("cls", "bases"),
    [
        (EncodeError, (TypeError, ValueError)),
        (TemplateError, (ValueError,)),
        (ProtocolError, (ValueError,)),
        (CommandError, (Exception,)),
        (LoadErrors, (Exception,)),
        (PushError, (LoadErrors,)),
        (TransportError, (ConnectionError, OSError)),
        (TransportTimeout, (TransportError, TimeoutError, ConnectionError)),
    ],
)
def test_hierarchy(cls: type[Exception], bases: tuple[type[Exception], ...]) -> None:
    for base in (FastrespError, *bases):
        assert issubclass(cls, base)
    assert not issubclass(cls, RuntimeError)
    assert issubclass(cls, TransportError) == issubclass(cls, OSError)


def test_empty_report() -> None:
    report = Report("redis-cli")
    assert (report.in_doubt, report.commands_per_second, report.bytes_per_second) == (0, 0.0, 0.0)
    assert (report.errors, report.program) == ([], "")
    report.raise_for_errors()
    assert str(report) == (
        "0 commands (0 bytes, 0 rows) in 0.00 s over redis-cli: 0 commands/s, 0 bytes/s\n"
        "0 replies, 0 errors"
    )


def test_report_rates() -> None:
    report = Report(
        "redis-cli", rows=1000, commands=2000, replies=2000, bytes_sent=3_000_000, seconds=0.25
    )
    assert report.in_doubt == 0
    assert report.commands_per_second == 8000.0
    assert report.bytes_per_second == 12_000_000.0
    assert str(report) == (
        "2,000 commands (3.0 MB, 1,000 rows) in 0.25 s over redis-cli: 8,000 commands/s, "
        "12.0 MB/s\n2,000 replies, 0 errors"
    )


def test_report_in_doubt() -> None:
    report = Report("redis-cli", commands=5000, replies=1200)
    assert report.in_doubt == 3800
    assert "1,200 replies, 0 errors; 3,800 commands in doubt" in str(report)


def test_report_shows_the_most_common_errors() -> None:
    texts = ["ERR a"] * 3 + ["OOM b"] * 5 + [f"ERR {i}" for i in range(9)]
    report = Report("redis-cli", commands=50, replies=50, failed=17)
    report.errors = [CommandError(text) for text in texts]
    for text in texts:
        report.count_error(text)
    lines = str(report).splitlines()
    assert lines[1:4] == ["50 replies, 17 errors", "    12 x ERR, such as: ERR a", "     5 x OOM b"]
    assert len(lines) == 5
    assert lines[-1].endswith("transport='socket' can")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2e9, "2.0 GB")],
)
def test_report_sizes(count: int, text: str) -> None:
    assert f"({text}, 0 rows)" in str(Report("redis-cli", bytes_sent=int(count)))


def test_raise_for_errors() -> None:
    report = Report("redis-cli", commands=2, replies=2, failed=1, errors=[CommandError("ERR no")])
    with pytest.raises(LoadErrors, match="1 x ERR no") as caught:
        report.raise_for_errors()
    assert caught.value.report is report


def test_caught_as_redis_py_users_catch_them() -> None:
    assert issubclass(CommandError, redis.ResponseError)
    assert issubclass(TransportError, redis.ConnectionError)
    assert issubclass(TransportError, ConnectionError)
    assert issubclass(TransportTimeout, redis.TimeoutError)
    assert issubclass(TransportTimeout, TimeoutError)
    assert repr(CommandError("ERR no")) == "CommandError('ERR no')"


def test_version() -> None:
    assert fastresp.__version__ == importlib.metadata.version("fastresp")
    with pytest.raises(AttributeError, match="no_such_name"):
        fastresp.no_such_name  # noqa: B018
