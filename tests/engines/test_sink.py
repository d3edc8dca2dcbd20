"""A sink: its options, the data that a task accepts, and loading while the engine computes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import redis
from local_cluster import LocalCluster
from sink_attempts import Attempt, Plan, batch
from waiting import until

import fastresp
from fastresp import (
    CheckpointError,
    EncodeError,
    FastrespError,
    LoadErrors,
    SourceError,
    TemplateError,
    TransportError,
)
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Rate
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


pytestmark = pytest.mark.usefixtures("no_thread_left")


class TestOptions:
    def test_sink_can_be_pickled(self, server: LocalServer, client: redis.Redis) -> None:
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
            ({"exactlyonce": "job"}, TypeError, "option exactlyonce is unknown; the options are "),
            ({"transport": "redis-cli"}, TypeError, "transport is not supported for tasks; the"),
            ({"progress": True}, TypeError, "progress is not supported for tasks"),
            ({"rate_limit": 5}, ValueError, "pass with tasks= how many"),
            ({"tasks": 0}, ValueError, "tasks must be a number of 1 or more"),
            ({"timeout": -1}, ValueError, "timeout must be a number of seconds above 0, or None"),
            ({"connections": 0}, ValueError, "connections must be a whole number from 1 to 64"),
            ({"mode": "serialize"}, CheckpointError, "pass exists='replace'"),
            (
                {"mode": "serialize", "exactly_once": "job"}, CheckpointError,
                "mode='serialize'; leave it out: with exists='replace' a repeated",
            ),
            (
                {"retry": "always", "exactly_once": "job"}, CheckpointError,
                "exactly_once can't be used with retry",
            ),
            ({"rejects": "nothing://x"}, ValueError, "nothing"),
            ({"template": "INCR a", "exactly_once": True}, TypeError, "the name of the job"),
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

    @pytest.mark.parametrize(("tasks", "share"), [(None, 100), (3, 33), (1000, 1)])
    def test_index_backlog_is_shared(
        self, server: LocalServer, tasks: int | None, share: int
    ) -> None:
        sink = Sink(server.url, SET, index_backlog=100, tasks=tasks)
        assert sink._options.index_backlog == share

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
        """Not all rows were loaded, so the task fails, even if errors are only collected."""
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
            with pytest.raises(EncodeError, match=r"row 2 \(id=2\), command 2, column 'key'"):
                task.commit()

    def test_missing_permission(self, start_server: Callable[..., LocalServer]) -> None:
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
        """A cluster node dies, and its replica is promoted: commands are resent."""
        with LocalCluster(3, 1) as cluster:
            sink = Sink(cluster.url, SET, retry="idempotent", timeout=30.0)
            with sink.open(0) as task:
                for number in range(40):
                    task.write(batch(1000, 1000 * number))
                    if number == 20:
                        cluster.nodes[1].process.kill()
                assert task.commit().rows == 40_000
            with redis.RedisCluster.from_url(cluster.url) as client:
                nodes = [client.get_redis_connection(each) for each in client.get_primaries()]
                assert sum(node.dbsize() for node in nodes) == 40_000


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
            (rows.select(["id"]), "batch 3 has the columns id, but the first one has id, key"),
            (
                rows.set_column(1, "key", pa.array([0.5] * 3)),
                "'key' is int64 in the first batch and double in batch 3; cast it to one type",
            ),
        ):
            client.flushall()
            with Sink(server.url, SET).open(0) as task:
                task.write(rows)
                task.write(rows)
                until(client.dbsize)  # a pause is not a batch
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
        """An error of a stream, which is read later, reaches the next call."""

        def rows() -> Iterator[pa.RecordBatch]:
            yield batch(3)
            raise RuntimeError("the stream has failed")

        reader = pa.RecordBatchReader.from_batches(batch(1).schema, rows())
        with Sink(server.url, SET).open(0) as task:
            task.write(reader)
            with pytest.raises(Exception, match="the stream has failed"):
                task.commit()
