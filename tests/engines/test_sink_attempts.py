"""Attempts of a task: each row is loaded once, however the attempts end."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import redis
from places import ROOT
from sink_attempts import COUNT, ROWS, Attempt, Place, Plan, batch, hurry
from waiting import until

import fastresp.load.checkpoint.description
import fastresp.load.checkpoint.feature
import fastresp.sink.task
from fastresp import CheckpointError, FastrespError, LoadErrors
from fastresp.server.local_server import LocalServer
from fastresp.sink import Sink, Totals

# Suffixes of some keys that each job leaves.
ENDS = ("}:split", ":0}", ":1}", ":query}:epoch", ":query:7}:job", ":query:8:0}")
PUSH = "RPUSH list:{key} {id}"


@pytest.fixture
def one(server: LocalServer, client: redis.Redis) -> Place:
    return Place(server.url, client)


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> int:
    for module, name in (
        (fastresp.load.checkpoint.description, "LEASE_S"),
        (fastresp.load.checkpoint.feature, "RECORDED_S"),
        (fastresp.load.checkpoint.feature, "RENEWED_S"), (fastresp.sink.task, "RECHECK_S"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))
    hurry(2)
    return 2


def load(sink: Sink, rows: int = ROWS, task: int = 0) -> Totals:
    return sink.load((batch(500, first) for first in range(0, rows, 500)), task)


def in_background(call: Callable[[], Any]) -> Callable[[], Any]:
    """Call a function in a thread; return a function that waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return lambda: future.result(60)


@pytest.mark.parametrize("template", [COUNT, PUSH])
class TestTwice:
    @pytest.mark.few(1)
    def test_second_attempt_waits(self, place: Place, template: str) -> None:
        """The second attempt waits for the first, and then has nothing to do."""
        sink = place.sink(template)
        with Attempt(Plan(sink, ROWS, hold=2000)) as first:
            first.held()
            second = in_background(lambda: load(sink))
            until(lambda: any("-0" in each.name for each in threading.enumerate()))
            time.sleep(0.2)
            first.go_on()
            found = first.outcome()
        assert isinstance(found, Totals), found
        assert (found.rows, found.rows_before, found.commands) == (ROWS, 0, ROWS)
        totals = second()
        assert (totals.rows, totals.rows_before, totals.commands) == (ROWS, ROWS, 0)
        place.loaded()

    @pytest.mark.few(1)
    def test_killed(self, place: Place, template: str) -> None:
        """The second attempt resumes immediately, although the first lease ends in ten minutes."""
        sink = place.sink(template)
        with Attempt(Plan(sink, ROWS, hold=2000)) as first:
            first.held()
            key = "list:0" if template == PUSH else "n:0"
            while not place.client.exists(key):
                assert first.process.poll() is None
                time.sleep(0.01)
            first.signal(signal.SIGKILL)
        totals = load(sink)
        assert totals.rows == ROWS
        assert 0 < totals.commands < ROWS
        place.loaded()

    @pytest.mark.few(1)
    def test_frozen(self, place: Place, template: str, short_lease: int) -> None:
        """The second attempt takes over after the lease; the first then changes nothing."""
        sink = place.sink(template)
        with Attempt(Plan(sink, ROWS, hold=2000, lease=short_lease)) as first:
            first.held()
            first.signal(signal.SIGSTOP)
            # Two attempts: only one may take over, and the other waits for it.
            others = [in_background(lambda: load(sink)) for _ in range(2)]
            totals = [each() for each in others]
            assert sorted(each.rows_before for each in totals)[1] == ROWS
            place.loaded()
            first.go_on()
            first.signal(signal.SIGCONT)
            found = first.outcome()
        assert isinstance(found, FastrespError)
        assert "taken over" in str(found) or "lost the connection" in str(found)
        place.loaded()
        sink.finish([totals[0]])
        place.loaded()

    @pytest.mark.few(1)
    def test_finish(self, place: Place, template: str) -> None:
        """One key of a job is kept, but none while it can run again."""
        sink = place.sink(template)
        totals = sink.finish([load(sink)])
        assert totals.rows == ROWS
        assert place.own_keys() == {b"fastresp:{job}:job"}
        again = load(sink)
        assert (again.rows, again.rows_before, again.commands) == (ROWS, ROWS, 0)
        assert place.own_keys() == {b"fastresp:{job}:job"}
        place.loaded()
        sink.forget()
        assert not place.own_keys()


class TestLease:
    """The lease is renewed as long as the process runs."""

    def lease(self, place: Place) -> int:
        return int(place.client.hget("fastresp:{job:0}", "lease") or 0)

    def test_engine_pauses(self, one: Place, short_lease: int) -> None:
        sink = one.sink(PUSH)
        with sink.open(0) as task:
            task.write(batch(500))
            until(lambda: one.client.exists("list:0"))
            other = in_background(lambda: load(sink, 1000))
            time.sleep(short_lease + 1.2)
            task.write(batch(500, 500))
            assert task.commit().commands == 1000
        assert other().commands == 0
        one.loaded(1000)

    def test_replies_are_awaited(self, one: Place, short_lease: int) -> None:
        """No replica can confirm the rows, so the load waits for its timeout."""
        sink = one.sink("SET n:{id} 1", durable=1, timeout=3.5)
        with sink.open(0) as task:
            task.write(batch(500))
            while not (first := self.lease(one)):
                time.sleep(0.01)
            committing = in_background(task.commit)
            until(lambda: self.lease(one) >= first + short_lease)
            with pytest.raises(FastrespError):
                committing()

    def test_connection_is_lost(self, one: Place, short_lease: int) -> None:
        """The connection for it is reopened, and the next attempt knows the new one."""
        sink = one.sink(PUSH)
        with sink.open(0) as task:
            task.write(batch(500))
            until(lambda: one.client.exists("list:0"))
            numbers = self.connections(one)
            one.client.client_kill_filter(_id=numbers[0])
            first = self.lease(one)
            until(lambda: self.lease(one) >= first + 1)
            assert self.connections(one)[1:] == numbers[1:]
            assert self.connections(one)[0] > numbers[1]
            task.write(batch(500, 500))
            task.commit()
        one.loaded(1000)

    def connections(self, place: Place) -> list[int]:
        """Return the CLIENT IDs of the connections for the lease and for the load."""
        [(_, _, numbers)] = json.loads(place.client.hget("fastresp:{job:0}", "clients"))
        return numbers  # type: ignore[no-any-return]


@pytest.mark.few(2)
@pytest.mark.parametrize("template", [COUNT, "SET n:{id} 1"])
@pytest.mark.parametrize("connections", [1, 3])
def test_keys_of_finished_jobs(one: Place, template: str, connections: int) -> None:
    sink = one.sink(template, connections=connections)
    totals = [load(sink, 500, 0), load(sink, 1000, 1), sink.load([], 2)]
    assert sink.finish(totals).rows == 1500
    assert one.own_keys() == {b"fastresp:{job}:job"}
    assert one.client.hgetall("fastresp:{job}:job") == {
        b"0": b"500 0", b"1": b"1000 0", b"2": b"0 0", b"(template)": template.encode(),
    }  # fmt: skip


def test_truncated_input(one: Place) -> None:
    """An attempt with truncated input appears complete; the next one loads the rest."""
    sink = one.sink()
    assert load(sink, 1500).rows == 1500
    totals = load(sink)
    assert (totals.rows, totals.rows_before) == (ROWS, 1500)
    with pytest.raises(CheckpointError, match="has 1,000 rows, but 4,000 were loaded before"):
        load(sink, 1000)
    with pytest.raises(CheckpointError, match="no rows now, and 4,000 were loaded before"):
        sink.load([], 0)
    one.loaded()
    assert load(sink).commands == 0
    sink.finish([totals])
    one.loaded()


def test_after_end(one: Place) -> None:
    """Other rows, tasks and templates are refused; a deleted job runs again."""
    sink = one.sink()
    sink.finish([load(sink, 1000), sink.load([], 1)])
    for rows in (500, 1500):
        with pytest.raises(CheckpointError, match=f"{rows:,} rows now, and had 1,000 when its job"):
            load(sink, rows)
    with pytest.raises(CheckpointError, match="no rows now, and 1,000 were loaded"):
        sink.load([], 0)
    assert sink.load([], 1).rows == 0
    with pytest.raises(CheckpointError, match="has ended, and none of its tasks is '2'"):
        load(sink, 500, 2)
    with pytest.raises(CheckpointError, match=r"ended with the template 'INCRBY n:\{id\} 1'"):
        load(one.sink("INCRBY n:{id} 2"), 1000)
    assert one.own_keys() == {b"fastresp:{job}:job"}
    one.loaded(1000)
    sink.forget()
    load(sink, 1000)
    assert one.client.get("n:0") == b"2"


@pytest.mark.few(1)
def test_patterns_of_keys(place: Place) -> None:
    """The patterns in the guides match all keys of a job, and none of a job with a longer name."""
    guide = (ROOT / "docs/guides/engines.md").read_text()
    patterns = re.findall(r"^\| `(fastresp:.*?)` \|", guide, re.MULTILINE)
    of_spark = (ROOT / "docs/guides/spark.md").read_text()
    for each in patterns:
        assert f"`{each.replace('NAME', 'visits-2026-11')}`" in of_spark

    def found(name: str) -> set[bytes]:
        every = [each.replace("NAME", name) for each in patterns]
        return {key for each in every for key in place.client.scan_iter(each, count=10_000)}

    keys: dict[str, set[bytes]] = {}
    for name in ("visits-2026-1", "visits-2026-11", "2026-1", "visits-2026-1.1"):
        before = place.own_keys()
        sink = place.sink(job=name, split="2 partitions")
        for task in range(2):
            load(sink, 1000, task)
        epoch = sink.epoch("query", 7)
        sink.finish_epoch("query", 7, [load(epoch, 1000, 0)])
        load(sink.epoch("query", 8), 1000, 0)
        keys[name] = place.own_keys() - before
        assert {f"fastresp:{{{name}{end}".encode() for end in ENDS} <= keys[name]
    for name, of_job in keys.items():
        assert found(name) == of_job


@pytest.mark.parametrize("job", ["job", None])
@pytest.mark.parametrize("template", ["SET k {v}", "HSET k v {v}"])
def test_key_twice(one: Place, template: str, job: str | None) -> None:
    """A second attempt ends after the older row of a key: without a job, this row remains."""
    sink = Sink(one.url, template, exactly_once=job)
    older, newer = (pa.record_batch({"v": [value]}) for value in ("old", "new"))

    def kept() -> bytes | None:
        return one.client.get("k") if template[0] == "S" else one.client.hget("k", "v")

    sink.load([older, newer], 0)
    assert kept() == b"new"
    with sink.open(0) as task:
        task.write(older)
        if job is None:
            until(lambda: kept() == b"old")
        else:
            with pytest.raises(CheckpointError, match="has 1 row"):
                task.commit()
    assert kept() == (b"old" if job is None else b"new")


def test_other_job_of_name(one: Place) -> None:
    load(one.sink(nulls="error"), 500)
    with pytest.raises(CheckpointError, match="belongs to another load: template was"):
        load(one.sink(PUSH), 500)
    load(one.sink(nulls="empty"), 500)  # the rows that ran have no nulls
    with pytest.raises(CheckpointError, match="belongs to another load: nulls was 'empty'"):
        load(one.sink(), 500)
    one.loaded(500)


def test_names(one: Place) -> None:
    for name in ("", "a b", "a{b}", "ä", "x" * 201):
        with pytest.raises(CheckpointError, match=r"exactly_once must be 1 to 200 letters"):
            one.sink(job=name)
    sink = one.sink(job="x" * 190)
    for number in ("a/b", "x" * 20):
        with pytest.raises(CheckpointError, match="task_id must be"):
            sink.open(number)
    assert one.sink().part("query", 3).exactly_once == "job:query:3"


def test_earlier_errors(one: Place) -> None:
    """Errors of an earlier attempt are errors of the task, even after the end of the job."""
    one.client.set("n:3", "text")
    with pytest.raises(LoadErrors, match="not an integer"):
        load(one.sink(), 1000)
    with pytest.raises(LoadErrors, match="1 error"):
        load(one.sink(), 1000)
    sink = one.sink(on_error="collect")
    totals = load(sink, 1000)
    assert (totals.rows, totals.failed, totals.errors_by_code) == (1000, 1, {})
    sink.finish([totals])
    assert load(sink, 1000).failed == 1
    with pytest.raises(LoadErrors, match="1 error"):
        load(one.sink(), 1000)
    assert one.client.get("n:2") == b"1"


def test_simultaneous_starts(one: Place) -> None:
    """Several attempts of several tasks start at the same moment, and none fails."""
    sink = one.sink("INCRBY n:{task}:{id} 1")
    go = threading.Barrier(12)

    def attempt(number: int) -> Totals:
        rows = batch(100).append_column("task", pa.array([number % 4] * 100))
        go.wait()
        return sink.load([rows], number % 4)

    with ThreadPoolExecutor(12) as pool:
        found = [*pool.map(attempt, range(12))]
    assert sorted(each.commands for each in found) == [0] * 8 + [100] * 4
    keys = [f"n:{task}:{row}" for task in range(4) for row in range(100)]
    assert {*one.client.mget(keys)} == {b"1"}
    assert sink.finish(found[:4]).rows == 400


def test_abort_releases_lease(one: Place) -> None:
    sink = one.sink()
    with sink.open(0) as task:
        task.write(batch(500))
        until(lambda: one.client.exists("fastresp:{job:0}"))
    assert one.client.hget("fastresp:{job:0}", "lease") in (b"0", None)
    load(sink)
    one.loaded()


def test_sum() -> None:
    first = Totals("1", 10, 2, 8, 3, {"OOM": 2, "ERR": 1}, 1, 7, 0, 100, 1.5)
    second = Totals("2", 5, 0, 5, 1, {"OOM": 1}, 0, 0, 2, 50, 0.5)
    found = Totals.sum([first, second])
    assert found == Totals("", 15, 2, 13, 4, {"OOM": 3, "ERR": 1}, 1, 7, 2, 150, 2.0)
    assert str(found) == (
        "15 rows (2 of them before), 13 commands (150 bytes), 4 errors, 2 commands in doubt, "
        "1 command skipped: a null, or nothing to send, 7 nulls left out\n3 x OOM\n1 x ERR"
    )
    assert Totals.sum([]) == Totals()


@pytest.mark.few(0)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [4, 20, pytest.param(60, marks=pytest.mark.long)])
def test_random_kills(place: Place, kills: int) -> None:
    """Attempts of four tasks are killed at random moments, until all have committed."""
    chance = random.Random(kills)
    sink, rows = place.sink(), 10_000
    tasks = [number % 4 for number in range(kills)]
    for task in tasks:
        with Attempt(Plan(sink, rows, task, hold=0, pause=0.005)) as attempt:
            attempt.held()
            attempt.go_on()
            time.sleep(chance.random() * 0.4)
            attempt.signal(signal.SIGKILL)
    found = sink.finish([Plan(sink, rows, task).run() for task in range(4)])
    assert (found.rows, found.failed, found.in_doubt) == (4 * rows, 0, 0)
    place.loaded(4 * rows)
    assert place.own_keys() == {b"fastresp:{job}:job"}
