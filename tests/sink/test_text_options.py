"""Options of engines as text: those that would show a password are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from fastresp.sink import Sink
from fastresp.sink.driver import reading_options, sink_options


@pytest.mark.parametrize(
    ("options", "given"),
    [(sink_options, {"command": "SET {id} 1"}), (reading_options, {"pattern": "a:*"})],
)
@pytest.mark.parametrize(
    "shown",
    [
        {"password": "s3cret"},
        {"server": "redis://:s3cret@localhost"},
        {"url": "redis://localhost?password=s3cret"},
        {"server": "rediss://localhost?ssl_password=s3cret"},
    ],
    ids=lambda shown: next(iter(shown.values())),
)
def test_password(
    options: Callable[[dict[str, str]], object], given: dict[str, str], shown: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"spark\.fastresp\.password") as caught:
        options(given | shown)
    assert "s3cret" not in str(caught.value)


def test_mode() -> None:
    """An option as text has no classes such as Merge."""
    assert sink_options({"command": "SET {id} 1", "mode": "merge"})["mode"] == "merge"
    assert sink_options({"command": "SET {id} 1", "mode": "none"})["mode"] is None
    with pytest.raises(ValueError, match=r"'commands', 'merge' or 'serialize', not 'Merge'$"):
        sink_options({"command": "SET {id} 1", "mode": "Merge"})


def test_defaults() -> None:
    """Options override them; each run of a job has another split."""
    first, second = (sink_options({"command": "SET {id} 1"}, "s3cret", 8) for _ in range(2))
    assert first.pop("split") != second.pop("split")
    assert first == {"server": None, "password": "s3cret", "tasks": 8, "template": "SET {id} 1"}
    given = {"command": "SET {id} 1", "tasks": "2", "split": "8 partitions"}
    found = sink_options(given, None, 8)
    assert (found["tasks"], found["split"]) == (2, "8 partitions")
    for tasks, partitions in ((None, 4), (2, 2), (8, 4)):
        assert reading_options({"pattern": "a:*"}, None, tasks)["partitions"] == partitions
    assert reading_options({"pattern": "a:*", "partitions": "9"}, None, 2)["partitions"] == 9


def test_server_of_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver ends a job, so it needs the URL; a task receives a pickled sink."""
    given = {"command": "INCRBY n:{id} 1", "exactlyOnce": "job"}
    monkeypatch.setenv("REDIS_URL", "redis://localhost:1")
    sink = pickle.dumps(Sink(**sink_options(given)))
    monkeypatch.delenv("REDIS_URL")
    with pytest.raises(ValueError, match=r"so set REDIS_URL for the driver"):
        sink_options(given)
    assert pickle.loads(sink).exactly_once == "job"
    assert sink_options(given | {"server": "redis://localhost:1"})["exactly_once"] == "job"
    assert sink_options({"command": "SET n:{id} 1"})["server"] is None
