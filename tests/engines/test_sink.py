"""A sink: its options, what a task accepts, and what happens while the engine makes a batch."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import redis
from local_cluster import LocalCluster
from peak import PEAK
from places import SUPPORT
from sink_attempts import Attempt, Plan, batch

import fastresp
from fastresp import (
    CheckpointError,
    EncodeError,
    FastrespError,
    LoadErrors,
    SourceError,
    TemplateError,
    TransportError,
    TransportTimeout,
)
from fastresp.server.local_server import LocalServer
from fastresp.server.rate import Rate
from fastresp.sink import Sink, Totals

SET = "SET {id} {key}"
PASSWORD = "s3cret/:@"


class Array:
    """Shows only ``__arrow_c_array__``."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.__arrow_c_array__ = rows.__arrow_c_array__


class Stream:
    """Shows only ``__arrow_c_stream__``."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.__arrow_c_stream__ = pa.Table.from_batches([rows]).__arrow_c_stream__


def until(reached: Callable[[], object]) -> None:
    """Wait until something is true; the test's timeout bounds it."""
    while not reached():
        time.sleep(0.005)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("fastresp-")]


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: not threads())


@pytest.fixture
def frozen(start_server: Callable[..., LocalServer]) -> Iterator[Callable[[], LocalServer]]:
    """A function that freezes a server of its own, and returns it; it wakes at the end."""
    server = start_server()
    frozen = []

    def freeze() -> LocalServer:
        frozen.append(os.kill(server.process.pid, signal.SIGSTOP))
        return server

    freeze.server = server  # type: ignore[attr-defined]
    yield freeze
    if frozen:
        os.kill(server.process.pid, signal.SIGCONT)


class TestOptions:
    def test_pickled(self, server: LocalServer, client: redis.Redis) -> None:
        """A spawned process loads with it."""
        sink = Sink(server.url, [SET, "SADD ids {id}"], nulls="empty", mode="merge", tasks=2)
        with Attempt(Plan(sink, 1000, task=3)) as attempt:
            found = attempt.outcome()
        assert isinstance(found, Totals), found
        assert (found.task, found.rows, found.commands, found.failed) == ("3", 1000, 2000, 0)
        assert client.scard("ids") == 1000

    def test_pickled_script(self, server: LocalServer, client: redis.Redis) -> None:
        script = fastresp.Script("return redis.call('INCR', KEYS[1])")
        sink = Sink(server.url, script.command("n:{id}"), exactly_once="job")
        sink = pickle.loads(pickle.dumps(sink))
        for _ in range(2):
            sink.load([batch(100)], 0)
        assert client.get("n:99") == b"1"

    def test_password_is_not_shown(
        self, start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = start_server("--requirepass", PASSWORD)
        quoted = "s3cret%2F%3A%40"
        url = server.url.replace("unix://", f"unix://:{quoted}@")
        monkeypatch.setenv("REDIS_URL", url)
        sinks = [Sink(url, SET), Sink(server.url, SET, password=PASSWORD), Sink(None, SET)]
        for sink in sinks:
            assert sink.load([batch(3)], 0).rows == 3
            task = sink.open(0)
            shown = [*map(repr, (sink, task, task._load, task._load._options)), str(sink)]
            assert not [each for each in shown if "s3cret" in each]
        assert repr(sinks[2]) == "<fastresp.sink.Sink of 'SET {id} {key}' to REDIS_URL>"
        wrong = Sink(server.url, SET, password="s3cret-no")
        for call in (
            lambda: wrong.load([batch(3)], 0),
            lambda: Sink(url, SET, password="s3cret-no"),
            lambda: Sink("redis://:s3cret/@localhost", SET),
            lambda: Sink("redis://:s3cret/@localhost", SET, password="s3cret"),
        ):
            with pytest.raises((TransportError, ValueError)) as caught:
                call()
            assert "s3cret" not in f"{caught.value!r} {caught.value}"

    def test_refused(self, server: LocalServer, client: redis.Redis) -> None:
        for wrong, error, words in (
            ({"server": client}, TypeError, "server must be a URL or None"),
            ({"template": None}, TypeError, "a sink needs a template"),
            ({"template": "SET {id"}, TemplateError, "{"),
            ({"template": "INCRBY {id} 1"}, CheckpointError, "pass exactly_once='NAME"),
            ({"template": "INCRBY {id} 1", "mode": "merge"}, CheckpointError, "exactly_once="),
            ({"tempalte": SET}, TypeError, "the option tempalte is unknown; there are "),
            ({"transport": "redis-cli"}, TypeError, "transport is not for tasks; there are "),
            ({"progress": True}, TypeError, "progress is not for tasks"),
            ({"rate_limit": 5}, ValueError, "pass with tasks= how many"),
            ({"tasks": 0}, ValueError, "tasks must be a number of 1 or more"),
            ({"connections": 0}, ValueError, "connections must be a number from 1 to 64"),
            ({"mode": "serialize"}, CheckpointError, "pass exists='replace'"),
            (
                {"mode": "serialize", "exactly_once": "job"}, CheckpointError,
                "exactly_once is not for mode='serialize'",
            ),
            (
                {"retry": "always", "exactly_once": "job"}, CheckpointError,
                "exactly_once is not for retry",
            ),
            ({"rejects": "nothing://x"}, ValueError, "nothing"),
        ):  # fmt: skip
            arguments: dict[str, Any] = {"server": server.url, "template": SET} | wrong
            with pytest.raises(error, match=words.replace("{", r"\{")):
                Sink(**arguments)

    @pytest.mark.parametrize(("limit", "share"), [(900, 300), ("3MB", "1MB")])
    def test_rate_limit_is_shared(
        self, server: LocalServer, limit: int | str, share: int | str
    ) -> None:
        sink = Sink(server.url, SET, rate_limit=limit, tasks=3)
        assert sink._options.rate == Rate.of(share)
        assert sink.load([batch(10)], 0).rows == 10

    def test_modes(self, server: LocalServer, client: redis.Redis) -> None:
        rows = [batch(1000), batch(1000, 1000)]
        totals = Sink(server.url, "SADD s:{key} {id}", mode="merge").load(rows, 0)
        assert (totals.rows, totals.commands) == (2000, 2000)
        assert sum(client.scard(f"s:{key}") for key in range(20)) == 2000
        serialized = Sink(server.url, "HSET h:{id} key {key}", mode="serialize", exists="replace")
        for _ in range(2):
            assert serialized.load(rows, 0).rows == 2000
        assert client.hget("h:1999", "key") == b"19"

    def test_nulls(self, server: LocalServer, client: redis.Redis) -> None:
        rows = pa.table({"id": [1, 2, 3], "key": ["a", None, "c"]})
        with pytest.raises(EncodeError, match="row 1"):
            Sink(server.url, SET).load([rows], 0)
        totals = Sink(server.url, SET, nulls="skip").load([rows], 0)
        assert (totals.rows, totals.commands, totals.skipped) == (3, 2, 1)
        Sink(server.url, SET, nulls="empty").load([rows], 0)
        assert client.mget(1, 2, 3) == [b"a", b"", b"c"]

    def test_tls(self, tls: Callable[..., str]) -> None:
        sink = pickle.loads(pickle.dumps(Sink(tls(), "INCRBY {id} 1", exactly_once="job")))
        assert sink.load([batch(1000)], 0).commands == 1000

    def test_several_connections(self, server: LocalServer, client: redis.Redis) -> None:
        totals = Sink(server.url, SET, connections=3).load([batch(1000), batch(1000, 1000)], 0)
        assert totals.rows == client.dbsize() == 2000


class TestErrors:
    @pytest.fixture
    def failing(self, client: redis.Redis) -> str:
        client.set("taken", "text")
        return "HSET taken {id} {key}"

    def test_collected(self, server: LocalServer, failing: str) -> None:
        totals = Sink(server.url, failing, on_error="collect").load([batch(10)], 0)
        assert (totals.rows, totals.failed, totals.errors_by_code) == (10, 10, {"WRONGTYPE": 10})
        assert pickle.loads(pickle.dumps(totals)) == totals

    def test_raised_at_the_end(self, server: LocalServer, failing: str) -> None:
        with Sink(server.url, failing).open(0) as task:
            for number in range(5):
                task.write(batch(10, number))
            with pytest.raises(LoadErrors, match="50 x WRONGTYPE") as caught:
                task.commit()
            assert pickle.loads(pickle.dumps(caught.value)).report.failed == 50
            with pytest.raises(ValueError, match="this task has ended; open another one"):
                task.commit()

    @pytest.mark.parametrize(
        "options",
        [{"on_error": "stop"}, {"max_errors": 5}, {"max_errors": 5, "on_error": "collect"}],
    )
    def test_stopped(self, server: LocalServer, failing: str, options: Any) -> None:
        """Not all rows were loaded, so the task has failed, also if errors are only collected."""
        with Sink(server.url, failing, **options).open(0) as task:
            with pytest.raises(LoadErrors, match="stopped"):
                for number in range(10_000):
                    task.write(batch(10, number))
            with pytest.raises(LoadErrors, match="stopped"):
                task.write(batch(10))
            with pytest.raises(LoadErrors, match="stopped"):
                task.commit()

    def test_row(self, server: LocalServer) -> None:
        rows = pa.table({"id": [1, 2], "key": [1.0, None]})
        with Sink(server.url, SET).open(0) as task:
            task.write(pa.table({"id": [0], "key": [0.5]}))
            task.write(rows)
            with pytest.raises(EncodeError, match=r"row 2, command 2, column 'key'"):
                task.commit()

    def test_rights(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--user", "app", "on", ">x", "~*", "&*", "+@all", "-set")
        url = server.url.replace("unix://", "unix://app:x@")
        with pytest.raises(TransportError, match="set"):
            Sink(url, SET).load([batch(3)], 0)

    def test_full(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "1")
        with pytest.raises(FastrespError, match=r"OOM|memory"):
            Sink(server.url, SET).load([batch(3)], 0)
        with pytest.raises(FastrespError, match=r"OOM|memory"):
            Sink(server.url, "INCRBY {id} 1", exactly_once="job").load([batch(3)], 0)

    def test_replica(self, start_server: Callable[..., LocalServer], port: int) -> None:
        server = start_server("--replicaof", "127.0.0.1", str(port))
        with pytest.raises(FastrespError, match=r"(?i)read.?only|replica"):
            Sink(server.url, SET).load([batch(3)], 0)

    @pytest.mark.parametrize("how", ["server", "connection"])
    def test_lost(self, start_server: Callable[..., LocalServer], how: str) -> None:
        server = start_server()
        with Sink(server.url, SET).open(0) as task:
            task.write(batch(10))
            with redis.Redis.from_url(server.url) as client:
                until(client.dbsize)
                client.client_kill_filter(_type="normal", skipme=True)
            if how == "server":
                server.stop()
            with pytest.raises(TransportError, match="lost the connection"):
                for number in range(10_000):
                    task.write(batch(10, number))

    @pytest.mark.slow
    def test_lost_node(self) -> None:
        """A node of a cluster ends, and its replica takes over: commands are sent again."""
        with LocalCluster(3, 1) as cluster:
            sink = Sink(cluster.url, SET, retry="idempotent", timeout=30.0)
            with sink.open(0) as task:
                for number in range(40):
                    task.write(batch(1000, 1000 * number))
                    if number == 20:
                        cluster.nodes[1].process.kill()
                assert task.commit().rows == 40_000
            with redis.RedisCluster.from_url(cluster.url) as client:
                assert sum(client.dbsize(target_nodes="primaries").values()) == 40_000


class TestBatches:
    @pytest.mark.parametrize(
        "make",
        [
            lambda rows: rows, lambda rows: pa.Table.from_batches([rows]), Array, Stream,
            pl.from_arrow, pa.RecordBatch.to_pandas,
        ],
        ids=["batch", "table", "array", "stream", "polars", "pandas"],
    )  # fmt: skip
    def test_kinds(
        self, server: LocalServer, client: redis.Redis, make: Callable[[Any], Any]
    ) -> None:
        with Sink(server.url, SET).open(0) as task:
            task.write(make(batch(10)))
            task.write(make(batch(0)))
            task.write(make(batch(10, 10)))
            assert task.commit().rows == 20
        assert client.dbsize() == 20

    @pytest.mark.parametrize("job", [None, "job"])
    def test_empty(self, server: LocalServer, client: redis.Redis, job: str | None) -> None:
        sink = Sink(server.url, SET, exactly_once=job)
        totals = sink.load([batch(0), batch(0)], 1)
        assert totals == Totals("1", seconds=totals.seconds)
        assert sink.load([], 2) == Totals("2")
        sink.finish([totals, Totals("2")])
        assert sink.load([], 2) == Totals("2")
        assert client.dbsize() == (job is not None)

    def test_order_of_columns(self, server: LocalServer, client: redis.Redis) -> None:
        first = batch(3)
        Sink(server.url, SET).load([first, batch(3, 3).select(["key", "id"])], 0)
        assert client.get("5") == b"5"

    def test_other_columns(self, server: LocalServer, client: redis.Redis) -> None:
        rows = batch(3)
        for wrong, words in (
            (rows.select(["id"]), "batch 3 has the columns id, and the first one has id, key"),
            (
                rows.set_column(1, "key", pa.array([0.5] * 3)),
                "'key' is int64 in the first batch and double in batch 3; cast it to one type",
            ),
        ):
            client.flushall()
            with Sink(server.url, SET).open(0) as task:
                task.write(rows)
                task.write(rows)
                until(client.dbsize)  # a pause is no batch
                task.write(wrong)
                with pytest.raises(SourceError, match=words):
                    task.commit()

    def test_no_batch(self, server: LocalServer) -> None:
        with Sink(server.url, SET).open(0) as task:
            for wrong in ([{"id": 1, "key": 2}], {"id": [1]}, None, "id", batch):
                with pytest.raises(TypeError, match="a batch must be Arrow data"):
                    task.write(wrong)
            task.write(batch(3))
            assert task.commit().rows == 3

    def test_after_the_end(self, server: LocalServer) -> None:
        sink = Sink(server.url, SET)
        with sink.open(0) as task:
            task.write(batch(3))
            task.commit()
            task.abort()
            for call in (lambda: task.write(batch(3)), task.commit):
                with pytest.raises(ValueError, match="open another one"):
                    call()
        task = sink.open(0)
        task.abort()
        task.abort()
        with pytest.raises(ValueError, match="open another one"):
            task.write(batch(3))

    def test_failing_source(self, server: LocalServer) -> None:
        """An error of a stream that is read later reaches the next call."""

        def rows() -> Iterator[pa.RecordBatch]:
            yield batch(3)
            raise RuntimeError("the stream has failed")

        reader = pa.RecordBatchReader.from_batches(batch(1).schema, rows())
        with Sink(server.url, SET).open(0) as task:
            task.write(reader)
            with pytest.raises(Exception, match="the stream has failed"):
                task.commit()


class TestDuplex:
    @pytest.mark.parametrize("options", [{}, {"connections": 2}, {"exactly_once": "job"}])
    def test_pause(self, server: LocalServer, client: redis.Redis, options: Any) -> None:
        """What was written is loaded while the engine makes the next batch."""
        with Sink(server.url, SET, **options).open(0) as task:
            for number in range(3):
                task.write(batch(10, 10 * number))
            until(lambda: client.exists(*range(30)) == 30)
            task.write(batch(10, 30))
            until(lambda: client.exists("39"))
            assert task.commit().rows == 40

    def test_long_pause(self, server: LocalServer, client: redis.Redis) -> None:
        """The time of the engine is not that of the server, and costs no CPU time."""
        with Sink(server.url, SET, timeout=0.3).open(0) as task:
            task.write(batch(10))
            until(client.dbsize)
            before = time.process_time()
            time.sleep(1)
            assert time.process_time() - before < 0.2
            task.write(batch(10, 10))
            assert task.commit().rows == 20

    def test_frozen_server(self, frozen: Any) -> None:
        sink = Sink(frozen.server.url, SET, timeout=0.5)
        rows = batch(300_000)
        with sink.open(0) as task:
            task.write(batch(1))
            with redis.Redis.from_url(frozen.server.url) as client:
                until(client.dbsize)
            frozen()
            with pytest.raises(TransportTimeout, match=r"no progress for 0\.5 s"):
                for _ in range(100):
                    task.write(rows)
            with pytest.raises(TransportTimeout):
                task.commit()

    @pytest.mark.parametrize("committing", [False, True])
    def test_abort_with_frozen_server(self, frozen: Any, committing: bool) -> None:
        """It does not wait for replies, whatever the timeout is."""
        task = Sink(frozen.server.url, SET, timeout=None).open(0)
        task.write(batch(1))
        with redis.Redis.from_url(frozen.server.url) as client:
            until(client.dbsize)
        frozen()
        for _ in range(2):
            task.write(batch(300_000))
        if committing:
            main = threading.main_thread().ident
            threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                task.commit()
        task.abort()
        until(lambda: not threads())

    def test_abort_with_rate_limit(self, server: LocalServer, client: redis.Redis) -> None:
        task = Sink(server.url, SET, rate_limit=100, tasks=1).open(0)
        task.write(batch(100_000))
        until(client.dbsize)
        task.abort()
        until(lambda: not threads())

    @pytest.mark.parametrize("how", ["commit", pytest.param("write", marks=pytest.mark.slow)])
    def test_interrupted(self, frozen: Any, how: str) -> None:
        """KeyboardInterrupt ends a wait for the server, in a process of its own."""
        with subprocess.Popen(
            [sys.executable, "-c", BEGUN + INTERRUPTED, frozen.server.url, how], cwd=SUPPORT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            frozen()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "written\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT, errors
        assert errors.rstrip().endswith("KeyboardInterrupt")

    def test_memory(self, start_server: Callable[..., LocalServer]) -> None:
        """Batches wait while the server does not read."""
        server = start_server()
        found = subprocess.run(
            [sys.executable, "-c", PEAK + MEMORY, server.url],
            capture_output=True, text=True, check=True, timeout=60, cwd=SUPPORT,
        )  # fmt: skip
        rows, more = map(int, found.stdout.split())
        assert rows == 1_600_000
        assert more < 150 << 10  # KiB; all batches have 400 MiB


BEGUN = f"""
import sys, time
import redis
from sink_attempts import batch
from fastresp.sink import Sink
client = redis.Redis.from_url(sys.argv[1])
task = Sink(sys.argv[1], {SET!r}, timeout=None).open(0)
task.write(batch(1))
while not client.dbsize():
    time.sleep(0.01)
print("begun", flush=True)
sys.stdin.readline()
task.write(batch(300_000))
print("written", flush=True)
"""
INTERRUPTED = """
with task:
    for _ in range(1 if sys.argv[2] == "commit" else 100):
        task.write(batch(300_000))
    task.commit()
"""
MEMORY = """
import sys, time
import pyarrow as pa, redis
from fastresp.sink import Sink
client = redis.Redis.from_url(sys.argv[1])
with Sink(sys.argv[1], "SET {id} {text}").open(0) as task:
    make = lambda: pa.table({"id": pa.repeat(1, 40_000), "text": pa.repeat("x" * 250, 40_000)})
    task.write(make())
    before = peak()
    client.execute_command("CLIENT", "PAUSE", 1000)
    for number in range(39):
        task.write(make())
    print(task.commit().rows, peak() - before)
"""


class TestEnds:
    def test_abort(self, server: LocalServer, client: redis.Redis) -> None:
        """The connections are closed, and the thread ends."""
        with Sink(server.url, SET).open(0) as task:
            task.write(batch(10))
            until(client.dbsize)
            assert len(client.client_list()) == 2
            task.abort()
            until(lambda: not threads())
            until(lambda: len(client.client_list()) == 1)

    def test_exception(self, server: LocalServer, client: redis.Redis) -> None:
        with pytest.raises(ZeroDivisionError), Sink(server.url, SET).open(0) as task:
            task.write(batch(10))
            raise ZeroDivisionError
        until(lambda: not threads())

    @pytest.mark.parametrize("cycle", [False, True])
    def test_dropped(self, server: LocalServer, client: redis.Redis, cycle: bool) -> None:
        task: Any = Sink(server.url, SET).open(0)
        task.write(batch(10))
        until(client.dbsize)
        if cycle:
            task.cycle = task
        del task
        gc.collect()
        until(lambda: not threads())
        until(lambda: len(client.client_list()) == 1)

    @pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.slow)])
    def test_exit(self, server: LocalServer, count: int) -> None:
        """A program ends although tasks are open, in all moments of a load."""
        for number in range(count):
            program = f"""
import time
from sink_attempts import batch
from fastresp.sink import Sink
tasks = [Sink({server.url!r}, {SET!r}).open(number) for number in range(2)]
for task in tasks:
    for _ in range({2 - number % 3}):
        task.write(batch(100_000))
time.sleep({number % 7 / 50})
"""
            found = subprocess.run(
                [sys.executable, "-c", program], cwd=SUPPORT, timeout=60, check=False,
                capture_output=True, text=True,
            )  # fmt: skip
            assert (found.returncode, found.stderr) == (0, ""), found.stderr

    def test_exit_with_frozen_server(self, frozen: Any) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", BEGUN, frozen.server.url], cwd=SUPPORT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            frozen()
            found = process.communicate("\n", timeout=30)
        assert (process.returncode, found) == (0, ("written\n", ""))

    @pytest.mark.parametrize("exits", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_fork(self, server: LocalServer, client: redis.Redis, exits: bool) -> None:
        """A child can't use its parent's task, and leaves it as it is."""
        program = FORK.replace("EXITS", str(exits))
        found = subprocess.run(
            [sys.executable, "-c", program, server.url], cwd=SUPPORT, timeout=60, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        assert found.stdout.split() == ["0", "1000"]
        assert {*client.mget([f"n:{row}" for row in range(1000)])} == {b"1"}

    def test_many_at_once(self, server: LocalServer, client: redis.Redis) -> None:
        sink = Sink(server.url, SET)
        tasks = [sink.open(number) for number in range(20)]
        for first in range(3):
            for number, task in enumerate(tasks):
                task.write(batch(100, 1000 * number + 100 * first))
        totals = [task.commit() for task in tasks]
        assert sink.finish(totals).rows == client.dbsize() == 6000


FORK = """
import gc, os, signal, sys
from sink_attempts import batch
from fastresp import TransportError
from fastresp.sink import Sink
with Sink(sys.argv[1], "INCRBY n:{id} 1", exactly_once="job").open(0) as task:
    task.write(batch(500))
    child = os.fork()
    if not child:
        signal.alarm(20)
        for call in (lambda: task.write(batch(5)), task.commit):
            try:
                call()
            except TransportError as error:
                assert "belongs to the parent process" in str(error)
            else:
                os._exit(1)
        task.abort()
        if EXITS:
            sys.exit()
        del task
        gc.collect()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    task.write(batch(500, 500))
    print(task.commit().rows)
"""


class TestRejects:
    @pytest.fixture
    def sink(self, server: LocalServer, client: redis.Redis) -> Callable[..., Sink]:
        client.set("taken", "text")
        template = "HSET taken {id} {key}"
        return lambda rejects, **options: Sink(
            server.url, template, rejects=rejects, **{"on_error": "collect"} | options
        )

    @pytest.mark.parametrize("url", [False, True])
    def test_files(
        self, sink: Callable[..., Sink], client: redis.Redis, tmp_path: Path, url: bool
    ) -> None:
        """Each attempt with errors has a file, and none is lost."""
        folder = tmp_path / "deep" / "rejects"
        writes = sink(f"file://{folder}" if url else folder)
        for number, attempt in ((0, 0), (0, 1), ("a/../b", 0), (0, 0)):
            assert writes.load([batch(3), batch(2, 3)], number, attempt).failed == 5
        client.delete("taken")
        writes.load([batch(1)], 7)
        assert {each.name for each in folder.iterdir()} == {
            "0-0.jsonl", "0-1.jsonl", "0-0-2.jsonl", "a%2F..%2Fb-0.jsonl",
        }  # fmt: skip
        for path in folder.iterdir():
            client.delete("taken")
            again = fastresp.mass_insert(fastresp.read_rejects(path), server=writes._server)
            assert (again.commands, client.hlen("taken")) == (5, 5)

    def test_in_memory(self, sink: Callable[..., Sink]) -> None:
        fsspec = pytest.importorskip("fsspec")
        sink("memory://rejects/sink").load([batch(2)], "one", 4)
        lines = fsspec.filesystem("memory").cat("/rejects/sink/one-4.jsonl").splitlines()
        assert [json.loads(line)["row"] for line in lines] == [0, 1]

    def test_written_at_once(self, sink: Callable[..., Sink], tmp_path: Path) -> None:
        """They are not lost with the process."""
        with sink(tmp_path).open(0) as task:
            task.write(batch(3))
            until(lambda: [*tmp_path.glob("*")])
            until(lambda: (tmp_path / "0-0.jsonl").read_text().count("\n") == 3)

    def test_folder_is_no_folder(self, sink: Callable[..., Sink], tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file" / "below", f"file://{tmp_path}/file/below"):
            with pytest.raises(OSError, match="file"):
                sink(folder).load([batch(3)], 0)

    @pytest.mark.parametrize("collects", [False, True])
    def test_disk_is_full(self, sink: Callable[..., Sink], tmp_path: Path, collects: bool) -> None:
        """The task fails, since its rejects are lost."""
        if not Path("/dev/full").exists():
            pytest.skip("there is no /dev/full")
        task = sink(tmp_path, on_error="collect" if collects else "raise").open(0)
        rejects = task._load._rejects
        assert rejects is not None
        full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
        rejects._file = rejects._open_files.enter_context(full)
        with task:
            task.write(batch(3))
            with pytest.raises(OSError, match="No space left"):
                task.commit()
