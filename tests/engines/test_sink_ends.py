"""The end of a job: all rows are loaded, whatever happens at the end, and never again."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from sink_attempts import COUNT, Place, batch
from waiting import until

import fastresp.load.checkpoint.job
import fastresp.sink.task
from fastresp import CheckpointError, TransportError
from fastresp.load.checkpoint.checkpoint import StoredCheckpoint
from fastresp.server.local_server import LocalServer
from fastresp.sink import Sink, Totals

ROWS = 1000


def load(sink: Sink, task: int, rows: int = ROWS) -> Totals:
    """Load the rows of a task; each task has different rows."""
    return sink.load((batch(500, task * ROWS + first) for first in range(0, rows, 500)), task)


def counts(client: Any, tasks: int) -> set[bytes | None]:
    """Return how many times the rows of all tasks were counted."""
    with client.pipeline(transaction=False) as pipeline:
        for row in range(tasks * ROWS):
            pipeline.get(f"n:{row}")
        return set(pipeline.execute())


@pytest.mark.few(2)
@pytest.mark.parametrize("later", [1, 2, 5])
def test_epoch_does_not_run_again(place: Place, later: int) -> None:
    """Not even if an attempt wakes up after later epochs have ended, and its job was deleted."""
    make, client = place.sink, place.client
    sink = make()
    for number in range(1 + later):
        totals = [load(sink.epoch("query", number), number)]
        sink.finish_epoch("query", number, totals)
    again = sink.epoch("query", 0)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"epoch 0 .* has already ended, and {later} is"):
            load(again, 0)
    assert counts(client, 1 + later) == {b"1"}
    # The last epoch finds its outcome; the next one runs.
    assert load(sink.epoch("query", later), later).commands == 0
    load(sink.epoch("query", later + 1), later + 1)
    load(sink.epoch("other", 0), later + 2)
    assert counts(client, 3 + later) == {b"1"}


@pytest.mark.few(1)
def test_epoch_ends_twice(place: Place) -> None:
    """The engine may have crashed before it knew that the epoch had ended."""
    make, client = place.sink, place.client
    for number in (0, 1, 1):
        sink = make()
        sink.finish_epoch("query", number, [load(sink.epoch("query", number), number)])
    sink.finish_epoch("query", 0, [])
    with pytest.raises(CheckpointError, match="and 1 is the last"):
        load(sink.epoch("query", 0), 0)
    assert counts(client, 2) == {b"1"}


def test_damaged_keys_of_ended_jobs(server: LocalServer, client: redis.Redis) -> None:
    sink = Sink(server.url, COUNT, exactly_once="job")
    epoch = sink.epoch("query", 1)
    epoch_key, task_key = "fastresp:{job:query}:epoch", "fastresp:{job}:job"
    for value in ("x", "", "-1"):
        client.set(epoch_key, value)
        for end in (lambda: load(epoch, 0), lambda: sink.finish_epoch("query", 1, [])):
            with pytest.raises(CheckpointError, match=f"value of .*:epoch is b'{value}'"):
                end()
    client.delete(epoch_key)
    client.rpush(epoch_key, "x")
    with pytest.raises(CheckpointError, match=r":epoch.* has another type"):
        load(epoch, 0)
    sink.finish([load(sink, 0)])
    for value in ("x 0", "5", "-1 0", "1e400 0"):
        client.hset(task_key, "0", value)
        with pytest.raises(CheckpointError, match=f"field '0' of .*:job.* is b'{value}'"):
            load(sink, 0)
    client.delete(task_key)
    client.set(task_key, "x")
    with pytest.raises(CheckpointError, match=r":job.* has another type"):
        load(sink, 0)
    assert counts(client, 1) == {b"1"}


def test_task_whose_marker_is_gone(server: LocalServer, client: redis.Redis) -> None:
    """The advice is not an option that a Sink refuses."""
    sink = Sink(server.url, COUNT, exactly_once="job")
    load(sink, 0)
    client.delete(*client.keys("fastresp:*:row*"))
    with pytest.raises(
        CheckpointError, match=r"is gone.* start over with another name of the job$"
    ):
        load(sink, 0)


@pytest.mark.few(1)
def test_rows_are_lost_before_the_end(place: Place) -> None:
    """The server was restarted without its data between two tasks."""
    make, client = place.sink, place.client
    sink = make()
    totals = [load(sink, 0), sink.load([], 2)]
    client.flushall()
    totals.append(load(sink, 1))
    with pytest.raises(
        CheckpointError, match=r"task 0 .* has loaded 1,000 rows, but .* first 0"
    ) as caught:
        sink.finish(totals)
    assert caught.value.again
    totals = [load(sink, 0), load(sink, 1), sink.load([], 2)]
    assert sink.finish(totals).rows == 2 * ROWS
    assert counts(client, 2) == {b"1"}


@pytest.mark.few(1)
@pytest.mark.parametrize("calls", range(4))
def test_interrupted_end(place: Place, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """The driver crashes while it ends the job: the job, or only its end, may run again."""
    make, client = place.sink, place.client
    sink = make()
    totals = [load(sink, task) for task in range(3)]
    left = iter([True] * calls)
    delete = StoredCheckpoint.delete

    def crashing(self: StoredCheckpoint) -> None:
        if not next(left, False):
            raise KeyboardInterrupt
        delete(self)

    monkeypatch.setattr(fastresp.load.checkpoint.job.StoredCheckpoint, "delete", crashing)
    if calls < 3:
        with pytest.raises(KeyboardInterrupt):
            sink.finish(totals)
    else:
        sink.finish(totals)
    monkeypatch.undo()
    again = [load(make(), task) for task in range(3)]
    assert [each.commands for each in again] == [0, 0, 0]
    assert sink.finish(again).rows == sink.finish(totals).rows == 3 * ROWS
    assert counts(client, 3) == {b"1"}
    own = {*client.scan_iter("*fastresp:*", count=10_000)}
    assert own == {b"fastresp:{job}:job"}


def connections_to(client: Any) -> int:
    """Return the number of connections that the server, or all cluster nodes, have received."""
    if not isinstance(client, redis.RedisCluster):
        return int(client.info("stats")["total_connections_received"])
    found = client.info("stats", target_nodes="all").values()
    return sum(each["total_connections_received"] for each in found)


@pytest.mark.few(1)
def test_connections_of_the_end(place: Place) -> None:
    """Their number does not depend on the number of tasks."""
    make, client = place.sink, place.client
    opened = []
    for number, tasks in enumerate((2, 20)):
        sink = make().part(number)
        totals = [load(sink, task, 10) for task in range(tasks)]
        before = connections_to(client)
        sink.finish(totals)
        opened.append(connections_to(client) - before)
    assert opened[0] == opened[1]
    assert {*client.scan_iter("*fastresp:*", count=10_000)} == {
        b"fastresp:{job:0}:job", b"fastresp:{job:1}:job",
    }  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ["ran", "delete"])
def test_connections_are_lost_at_the_end(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As after a failover: it reconnects once for each loss."""
    make, client = place.sink, place.client
    sink = make()
    totals = [load(sink, task) for task in range(3)]
    function = getattr(StoredCheckpoint, method)
    nodes = {"target_nodes": "all"} if isinstance(client, redis.RedisCluster) else {}
    seen = 0

    def losing(self: StoredCheckpoint) -> Any:
        nonlocal seen
        seen += 1
        if seen == 2:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", **nodes)
        return function(self)

    monkeypatch.setattr(StoredCheckpoint, method, losing)
    assert sink.finish(totals).rows == 3 * ROWS
    assert seen == 4
    assert {*client.scan_iter("*fastresp:*", count=10_000)} == {b"fastresp:{job}:job"}


@pytest.mark.few(1)
def test_fewer_rows_than_a_marker(place: Place) -> None:
    """A later attempt has fewer rows, or none, and some rows of the first have run."""
    make, client = place.sink, place.client
    sink = make(rate_limit=20_000, tasks=1)
    with sink.open(0) as task:
        for first in range(0, ROWS, 50):
            task.write(batch(50, first))
        until(lambda: any(each for each in counts(client, 1)))
        task.abort()
    with pytest.raises(CheckpointError, match="no rows now, and"):
        sink.load([], 0)
    assert load(make(), 0).rows == ROWS
    assert counts(client, 1) == {b"1"}


def test_errors_unknown_are_summed() -> None:
    totals = Totals.sum([Totals("0", errors_unknown=2), Totals("1", errors_unknown=3)])
    assert totals.errors_unknown == 5
    assert "5 rows whose errors are unknown" in str(totals)


@pytest.mark.parametrize("name", ["failed", "in_doubt", "errors_unknown", "skipped"])
def test_log(caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Possible failures are logged as a warning, which Python shows by default."""
    caplog.set_level("INFO")
    Totals(**{name: 1}).log("Ray")
    [record] = caplog.records
    assert record.levelname == ("INFO" if name == "skipped" else "WARNING")
    assert record.message.startswith("Ray: 0 rows, 0 commands")


def test_no_thread(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task and each later call fail immediately, instead of waiting."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    task = Sink(server.url, "SET n:{id} 1").open(0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(4):
        with pytest.raises(TransportError, match="task 0 can't start its load: can't start"):
            task.write(batch(500))
    with pytest.raises(TransportError, match="too many threads"):
        task.commit()
    assert not fastresp.sink.task.running


def test_needed_permissions(server: LocalServer, client: redis.Redis) -> None:
    """A job needs the same commands as a checkpoint, which the guide lists."""
    guide = (Path(__file__).parents[2] / "docs/guides/resume.md").read_text()
    found = re.search(r"The user needs `([^`]+)`, and the keys `fastresp:\*`", guide)
    assert found is not None
    rights = [*found[1].split(), "+incrby", "~n:*", "~fastresp:*"]
    client.execute_command("ACL", "SETUSER", "loader", "reset", "on", ">secret", *rights)
    url = f"{server.url}?username=loader&password=secret"
    try:
        sink = Sink(url, COUNT, exactly_once="job")
        for epoch in (sink, sink.epoch("query", 0)):
            for _ in range(2):
                totals = [load(epoch, task) for task in range(2)]
                epoch.finish([*totals, epoch.load([], 2)])
        sink.finish_epoch("query", 1, [load(sink.epoch("query", 1), 0)])
        assert {client.get(f"n:{row}") for row in (0, 999)} == {b"3"}
    finally:
        client.acl_deluser("loader")


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_pause_with_an_unused_column(server: LocalServer, client: redis.Redis, kind: str) -> None:
    """Such as a union, which has no values in Python: a pause is an empty batch."""
    types, children = pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array([*"abc"])]
    if kind == "dense":
        union = pa.UnionArray.from_dense(types, pa.array([0, 0, 1], pa.int32()), children)
    else:
        union = pa.UnionArray.from_sparse(types, children)
    with Sink(server.url, "SET n:{id} 1").open(0) as task:
        for first in range(0, 9, 3):
            task.write(pa.record_batch({"id": [*range(first, first + 3)], "more": union}))
            until(lambda first=first: client.exists(f"n:{first + 2}"))
        assert task.commit().rows == 9
