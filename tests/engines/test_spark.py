"""Spark writes frames and streams, and reads them back."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from needed import imported

from fastresp.server.local_server import LocalServer

imported("pyspark")
pytestmark = pytest.mark.timeout(600)

ROWS = 40_000
PASSWORD = "s3cret/:@"
COLUMNS = (
    "id", "concat('näme ', id) AS name", "id % 2 = 0 AS even", "id * 0.1d AS price",
    "CAST(id AS DECIMAL(12, 2)) AS exact", "timestamp_micros(id * 1000003) AS moment",
    "timestamp_ntz '2020-01-02 03:04:05.000678' AS local", "date_add(date '2020-01-01', "
    "CAST(id % 1000 AS INT)) AS day", "unhex(lpad(hex(id), 16, '0')) AS raw",
    "if(id % 7 = 0, NULL, CAST(id AS INT)) AS gap",
)  # fmt: skip


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session that retries a failed task up to four times."""
    from pyspark.sql import SparkSession
    from spark_sessions import settings, stopped

    builder = SparkSession.builder.master("local[2,4]")
    found = settings(tmp_path_factory.mktemp("spark"))
    for name, value in found.items():
        builder = builder.config(name, value)
    with stopped(builder.getOrCreate()) as session:
        yield session


@pytest.fixture
def heard(spark: Any) -> list[tuple[int | None, Any]]:
    """The totals passed to a listener, each with its epoch."""
    import fastresp.spark

    found: list[tuple[int | None, Any]] = []
    fastresp.spark.register(spark, lambda totals, epoch: found.append((epoch, totals)))
    return found


def written(frame: Any, server: LocalServer, command: str, **options: str) -> None:
    writer = frame.write.format("fastresp").option("server", server.url)
    writer.option("command", command).options(**options).mode("append").save()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Exception, match=r".") as caught:
        call()
    return str(caught.value)


def test_write_and_read_back(
    spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis
) -> None:
    frame = spark.range(0, ROWS, 1, 3).selectExpr(*COLUMNS)
    written(frame, server, "HSET user:{id} {**}", nulls="skip")
    assert client.dbsize() == ROWS
    assert client.hgetall("user:14") == {
        b"name": "näme 14".encode(), b"even": b"1", b"price": b"1.4000000000000001",
        b"exact": b"14.00", b"moment": b"1970-01-01T00:00:14.000042+00:00",
        b"local": b"2020-01-02T03:04:05.000678", b"day": b"2020-01-15",
        b"raw": b"\0\0\0\0\0\0\0\x0e",
    }  # fmt: skip
    [(epoch, totals)] = heard
    assert (epoch, totals.rows, totals.commands, totals.failed) == (None, ROWS, ROWS, 0)
    reader = spark.read.format("fastresp").option("server", server.url)
    reader = reader.option("pattern", "user:{id}").schema(frame.schema)
    for count in (2, 3):
        back = reader.option("partitions", str(count)).load()
        assert back.rdd.getNumPartitions() == count
        assert frame.exceptAll(back).count() == back.exceptAll(frame).count() == 0
        assert back.count() == ROWS


def test_refused(spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis) -> None:
    """Errors are found before a task starts."""
    frame = spark.range(10)
    assert "exactly_once='NAME-OF-THE-JOB'" in refusal(
        lambda: written(frame, server, "INCRBY n:{id} 1")
    )
    assert "the data has no column {name}" in refusal(
        lambda: written(frame, server, "SET {id} {name}")
    )
    assert "the option 'commands' is unknown" in refusal(
        lambda: written(frame, server, "SET {id} 1", commands="SET")
    )
    path = frame.write.format("fastresp").option("command", "SET {id} 1").mode("append")
    assert "use the option 'server'" in refusal(lambda: path.save("redis://staging/0"))
    assert "can't be read as list" in refusal(
        lambda: spark.read.format("fastresp").option("pattern", "a:*")
        .schema("key STRING, v ARRAY<INT>").load().count()
    )  # fmt: skip
    assert "the option 'command' is needed" in refusal(
        lambda: frame.write.format("fastresp").mode("append").save()
    )
    overwrite = frame.write.format("fastresp").option("command", "SET {id} 1").mode("overwrite")
    assert "use mode('append')" in refusal(overwrite.save)
    reader = spark.read.format("fastresp")
    assert "name the columns to read" in refusal(lambda: reader.option("pattern", "*").load())
    assert "needs a column 'key', which the schema lacks" in refusal(
        lambda: reader.option("pattern", "*").schema("id LONG").load().count()
    )
    client.hset("text:7", "number", 7)
    client.hset("text:1", "number", "many")
    reader = reader.option("server", server.url).option("pattern", "text:{id}")
    assert "column 'number' in the hash of '1' can't be read as int64" in refusal(
        reader.schema("id LONG, number LONG").load().count
    )
    client.hset("text:1", mapping={"number": 1, "name": "x"})
    assert "column 'name' is missing in the hash of '7'" in refusal(
        reader.schema("id LONG, number LONG, name STRING NOT NULL").load().count
    )
    assert not heard
    assert client.dbsize() == 2


def test_errors(spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis) -> None:
    """A task with failed commands ends the job; with on_error=collect they are counted."""
    client.set("taken", "text")
    frame = spark.range(0, 10, 1, 1)
    command = "HSET taken f {id}"
    assert "10 x WRONGTYPE" in refusal(lambda: written(frame, server, command))
    written(frame, server, command, onError="collect")
    assert heard[-1][1].errors_by_code == {"WRONGTYPE": 10}


def test_password(spark: Any, start_server: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The password is a Spark setting, and is never shown."""
    import fastresp.spark

    server = start_server("--requirepass", PASSWORD)
    spark.conf.set("spark.fastresp.password", PASSWORD)
    fastresp.spark.register(spark)
    spark.conf.unset("spark.fastresp.password")
    frame = spark.range(10)
    written(frame, server, "SET k:{id} 1")
    path = server.url.removeprefix("unix://")
    with redis.Redis(unix_socket_path=path, password=PASSWORD) as client:
        assert client.dbsize() == 10
        client.hset("h:1", "v", "2")
    reader = spark.read.format("fastresp").option("server", server.url).schema("key STRING, v LONG")
    hashes = reader.option("pattern", "h:*").load()
    assert hashes.collect() == [("h:1", 2)]
    hashes.explain(extended=True)
    assert PASSWORD not in capfd.readouterr().out
    with_password = f"redis://:{'x' * 8}@localhost"
    message = refusal(
        lambda: frame.write.format("fastresp")
        .option("server", with_password).option("command", "SET {id} 1").mode("append").save()
    )  # fmt: skip
    assert "spark.fastresp.password" in message
    assert "x" * 8 not in message


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["process", "connection"])
def test_killed(
    spark: Any, heard: list[Any], start_server: Callable[..., LocalServer], tmp_path: Path, how: str
) -> None:
    """A task is killed in the middle, and the next attempt resumes.

    The test has its own server, since some tasks of the refused job continue for a while.
    """
    folder, server = str(tmp_path), start_server()
    client = redis.Redis.from_url(server.url)

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        for number, batch in enumerate(batches):
            if (number, context.partitionId(), context.attemptNumber()) == (25, 1, 0):
                while not Path(folder, "now").exists():
                    time.sleep(0.01)
                if how == "process":
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def kill() -> None:
        while not client.exists("n:100000"):
            time.sleep(0.01)
        if how == "connection":
            client.client_kill_filter(_type="normal", skipme=True)
        (tmp_path / "now").touch()

    threading.Thread(target=kill, daemon=True).start()
    frame = spark.range(0, 200_000, 1, 2)
    written(
        frame.mapInArrow(deadly, frame.schema), server, "INCRBY n:{id} 1", exactlyOnce="incremented"
    )
    assert set(client.mget([f"n:{row}" for row in range(200_000)])) == {b"1"}
    [(_, totals)] = heard
    assert totals.rows == 200_000
    assert 0 < totals.rows_before < 100_000
    assert client.keys("fastresp:*") == [b"fastresp:{incremented}:job"]
    written(frame, server, "INCRBY n:{id} 1", exactlyOnce="incremented")
    assert heard[-1][1].rows_before == 200_000
    assert "use another name for another job" in refusal(
        lambda: written(frame.repartition(3), server, "INCRBY n:{id} 1", exactlyOnce="incremented")
    )
    assert set(client.mget([f"n:{row}" for row in range(200_000)])) == {b"1"}


def failing(server: LocalServer) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that fails in partition 1 once partition 0's 100 rows are loaded."""
    url = server.url

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        if context.partitionId() == 1:
            with redis.Redis.from_url(url) as client:
                while client.dbsize() < 100:
                    time.sleep(0.01)
                while context.attemptNumber() == 3 and not client.exists("committed"):
                    time.sleep(0.01)
            raise RuntimeError("no such rows")
        yield from batches

    return fail


@contextmanager
def telling(spark: Any, client: redis.Redis) -> Iterator[None]:
    """Meanwhile, set a key for the tasks when one of the two has committed."""
    tracker, over = spark.sparkContext.statusTracker(), threading.Event()

    def tell() -> None:
        while not over.wait(0.05):
            stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
            if any(stage and stage.numCompletedTasks == 1 for stage in stages):
                client.set("committed", 1)

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_failed_job(spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis) -> None:
    """The listener receives the totals of the committed tasks."""
    frame = spark.range(0, 200, 1, 2)
    frame = frame.mapInArrow(failing(server), frame.schema)
    with telling(spark, client):
        assert "no such rows" in refusal(lambda: written(frame, server, "SET n:{id} 1"))
    [(epoch, totals)] = heard
    assert (epoch, totals.rows, totals.commands, totals.job_failed) == (None, 100, 100, True)


def test_failed_stream(
    spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    stream = stream_of(spark, spark.range(0, 200, 1, 2), tmp_path)
    stream = stream.mapInArrow(failing(server), stream.schema).writeStream.format("fastresp")
    stream = stream.option("server", server.url).option("command", "SET n:{id} 1")
    stream = stream.option("checkpointLocation", str(tmp_path / "state"))
    run = stream.trigger(availableNow=True).start().awaitTermination
    with telling(spark, client):
        assert "no such rows" in refusal(run)
    [(epoch, totals)] = heard
    assert (epoch, totals.rows, totals.job_failed) == (0, 100, True)


def stream_of(spark: Any, frame: Any, folder: Path) -> Any:
    """Return a stream with the rows and partitions of a frame."""
    from pyspark.sql import datasource

    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("streams need Spark 4.1")
    frame.write.mode("append").parquet(str(folder / "source"))
    return spark.readStream.schema(frame.schema).parquet(str(folder / "source"))


def test_complete_mode(
    spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """Each batch has all groups again, which suits SET, but not commands that add up."""
    frame = spark.range(0, 100, 1, 1)

    def run(command: str, mode: str = "complete", **options: str) -> None:
        stream = stream_of(spark, frame, tmp_path).selectExpr("id % 3 AS id").groupBy("id").count()
        writer = stream.writeStream.format("fastresp").option("server", server.url)
        writer = writer.option("checkpointLocation", str(tmp_path / "state")).options(**options)
        writer = writer.option("command", command).outputMode(mode)
        writer.trigger(availableNow=True).start().awaitTermination()

    for total in (100, 200):
        run("SET n:{id} {count}")
        assert sum(int(client.get(f"n:{group}") or 0) for group in range(3)) == total
    assert [epoch for epoch, _ in heard] == [0, 1]
    assert "does not support Update mode" in refusal(lambda: run("SET n:{id} {count}", "update"))
    message = refusal(lambda: run("INCRBY n:{id} {count}", exactlyOnce="complete"))
    assert "outputMode('complete')" in message
    assert "use a command such as SET or HSET" in message
    assert client.get("n:0") == b"68"


def test_stream(
    spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """Each epoch counts once, even if Spark does not know that it is complete."""
    from pyspark.sql import datasource

    source, state = tmp_path / "source", tmp_path / "state"
    for number in range(3):
        frame = spark.range(number * 1000, number * 1000 + 1000, 1, 2)
        frame.write.mode("append").parquet(str(source))

    def run() -> None:
        stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "2")
        writer = stream.parquet(str(source)).writeStream.format("fastresp")
        writer = writer.option("server", server.url).option("command", "INCRBY n:{id} 1")
        writer = writer.option("exactlyOnce", "stream").option("checkpointLocation", str(state))
        writer.trigger(availableNow=True).start().awaitTermination()

    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        assert "streams need Spark 4.1" in refusal(run)
        return
    run()
    assert [epoch for epoch, _ in heard] == [0, 1, 2]
    assert sum(totals.rows for _, totals in heard) == 3000
    query = json.loads((state / "metadata").read_text())["id"]
    assert {*client.keys("fastresp:*")} == {
        f"fastresp:{{stream:{query}:2}}:job".encode(),
        f"fastresp:{{stream:{query}}}:epoch".encode(),
    }
    for path in (state / "commits").glob("*2*"):
        path.unlink()  # as if the driver had died before it stored that
    run()
    assert [epoch for epoch, _ in heard] == [0, 1, 2, 2]
    assert heard[-1][1].rows_before == heard[-1][1].rows > 0
    assert set(client.mget([f"n:{row}" for row in range(3000)])) == {b"1"}


@pytest.mark.few(1)
@pytest.mark.parametrize("split", [None, "3 partitions"])
def test_a_second_run(
    spark: Any, heard: list[Any], start_server: Callable[..., LocalServer], split: str | None
) -> None:
    """With other partitions, rows would be lost or doubled: a run only resumes on request."""
    server = start_server()  # some tasks of the failed job continue for a while
    client = redis.Redis.from_url(server.url)

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 2:  # type: ignore[union-attr]
            raise RuntimeError("no such rows")
        yield from batches

    def load(frame: Any) -> None:
        options = {"exactlyOnce": "again"} | ({} if split is None else {"split": split})
        written(frame, server, "INCRBY n:{id} 1", **options)

    frame = spark.range(0, 300, 1, 3)
    assert "no such rows" in refusal(lambda: load(frame.mapInArrow(failing, frame.schema)))
    assert client.dbsize() > 0
    if split is None:
        message = refusal(lambda: load(spark.range(0, 300, 1, 2)))
        assert "may have other rows now" in message
    else:
        load(frame)
        assert set(client.mget([f"n:{row}" for row in range(300)])) == {b"1"}
        assert heard[-1][1].rows_before > 0


def test_other_times(spark: Any, heard: list[Any], server: LocalServer) -> None:
    """Before time zones, New York was 4:56:02 behind."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(
            "SELECT 1L AS id, timestamp '0001-01-01 00:00:00' AS t UNION ALL "
            "SELECT 2L, timestamp '1883-01-01 00:00:00' UNION ALL "
            "SELECT 3L, timestamp '2020-07-01 12:00:00.000001'"
        )
        written(frame, server, "HSET t:{id} {**}")
        reader = spark.read.format("fastresp").option("server", server.url)
        back = reader.option("pattern", "t:{id}").schema("id LONG, t TIMESTAMP").load()
        assert back.exceptAll(frame).count() == frame.exceptAll(back).count() == 0
        assert back.count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_for_each_batch(
    spark: Any, heard: list[Any], server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """A frame of foreachBatch is an ordinary frame, whose job has the given name."""
    spark.range(100).write.parquet(str(tmp_path / "source"))

    def load(frame: Any, epoch: int) -> None:
        written(frame, server, "INCRBY n:{id} 1", exactlyOnce=f"each-{epoch}")

    stream = spark.readStream.schema("id LONG").parquet(str(tmp_path / "source")).writeStream
    stream = stream.foreachBatch(load).option("checkpointLocation", str(tmp_path / "state"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert client.keys("fastresp:*") == [b"fastresp:{each-0}:job"]
    assert set(client.mget([f"n:{row}" for row in range(100)])) == {b"1"}
