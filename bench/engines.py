"""Loads by Spark, and reads of the same frame.

Spark and the servers share the machine's cores, so the goal is about wall time / (CPU time of all
servers + the time of a sink that drops all rows).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import redis
from redis.crc import key_slot
from results import Result
from script import run_script
from servers import LocalCluster, Server, processes, running
from turns import NotAvailable, entries, measure, need

from fastresp.resp.slots import SLOTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
PARTITIONS = 2
COLUMNS = (
    "id", "concat('user ', id) AS name", "concat('user', id, '@example.com') AS email",
    "CAST(id % 90 AS INT) AS age", "id % 2 = 0 AS active", "id * 0.25d AS balance",
    "timestamp_seconds(1600000000 + id) AS created", "CAST(id % 1000 AS STRING) AS city",
    "id * 7 AS visits", "concat('a text of some length, number ', id) AS note",
)  # fmt: skip
PIPELINED = 1000
# Up to this number of rows, the rows that redis-py reads are also compared.
SMALL = 100_000
DROPPED = "Spark to a sink that drops it"


def session(folder: str) -> SparkSession:
    """Return a session on two cores, with the formats ``fastresp`` and ``dropping``.

    Raises:
        NotAvailable: Spark or Java is not installed.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession, datasource

        import fastresp.spark
    except ImportError as error:
        message = f"Spark can't be imported ({error}): pip install 'fastresp[engines]'"
        raise NotAvailable(message) from error

    class Writer(datasource.DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> datasource.WriterCommitMessage:
            for _ in iterator:
                pass
            return datasource.WriterCommitMessage()

    class Dropping(datasource.DataSource):
        """The format ``dropping``, which reads all batches and stores nothing."""

        @classmethod
        def name(cls) -> str:
            return "dropping"

        def writer(self, schema: object, overwrite: bool) -> datasource.DataSourceArrowWriter:
            return Writer()

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder, "spark.sql.warehouse.dir": folder, "spark.log.level": "ERROR",
    }  # fmt: skip
    try:
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    except PySparkRuntimeError as error:
        raise NotAvailable(f"Spark does not start; it needs Java 17: {error}") from error
    spark.dataSource.register(Dropping)
    fastresp.spark.register(spark)
    return spark


def write(frame: DataFrame, kind: str, url: str = "") -> None:
    writer = frame.write.format(kind).mode("append")
    if url:
        writer = writer.option("server", url).option("command", "HSET user:{id} {**}")
    writer.save()


def need_same(found: DataFrame, frame: DataFrame) -> None:
    need(found.exceptAll(frame).count() + frame.exceptAll(found).count(), 0, "rows that differ")


def compare(spark: SparkSession, rows: int, rounds: int) -> list[Result]:
    """Write a frame to a server, a cluster and a dropping sink, in turn; read it back."""
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(*COLUMNS)
    dropping = partial(write, frame, "dropping")
    with running() as server:
        runs = {
            DROPPED: dropping,
            "Spark into one server": partial(write, frame, "fastresp", server.url),
        }
        contenders = entries("engines", runs, rows)
        drop, one = measure(contenders, rounds, server.process, before=server.empty)
        write(frame, "fastresp", server.url)
        server.need_keys(rows, "one server")
        back = read(spark, frame, server, rounds)
    with LocalCluster(3, 1) as cluster:
        runs = {
            f"{DROPPED}, beside the cluster": dropping,
            "Spark into 3+3 nodes": partial(write, frame, "fastresp", cluster.url),
        }
        contenders = entries("engines", runs, rows)
        nodes = processes(cluster)
        again, three = measure(contenders, rounds, nodes, before=lambda _: cluster.empty())
        cluster.empty()
        write(frame, "fastresp", cluster.url)
        need(sum(cluster.sizes()), rows, "keys of the cluster")
        need_same(reader(spark, cluster.url, frame), frame)
    return [drop, one, three, *back, again]


def read(spark: SparkSession, frame: DataFrame, server: Server, rounds: int) -> list[Result]:
    rows, schema, url = frame.count(), frame.schema, server.url
    back = reader(spark, url, frame)
    need_same(back, frame)
    given, found = (
        spark.createDataFrame(keys.mapPartitions(pipelined(url, schema, find)), schema)
        for keys, find in (
            (spark.range(0, rows, 1, PARTITIONS).rdd, None),
            (spark.sparkContext.parallelize(slots(PARTITIONS), PARTITIONS), keys_of),
        )
    )
    if rows <= SMALL:
        need_same(found, frame)
    runs = {
        "Spark reads, fastresp": partial(drop, back),
        "Spark reads, redis-py in mapPartitions": partial(drop, found),
        "Spark reads, redis-py in mapPartitions, keys known": partial(drop, given),
    }
    return measure(entries("engines", runs, rows), rounds, server.process)


def reader(spark: SparkSession, url: str, frame: DataFrame) -> DataFrame:
    options = {"server": url, "pattern": "user:{id}", "partitions": str(PARTITIONS)}
    return spark.read.format("fastresp").options(**options).schema(frame.schema).load()


def drop(frame: DataFrame) -> None:
    """Compute all rows of a frame, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def slots(parts: int) -> list[range]:
    ends = [SLOTS * number // parts for number in range(parts + 1)]
    return [range(*each) for each in pairwise(ends)]


def keys_of(client: redis.Redis, partition: Iterator[range]) -> Iterator[bytes]:
    """Yield the keys of the slots, found as by spark-redis: each partition lists all keys."""
    for part in partition:
        for key in client.scan_iter("user:*", count=1000, _type="hash"):
            if key_slot(key) in part:
                yield key


def pipelined(
    url: str, schema: Any, find: Callable[..., Iterator[bytes]] | None
) -> Callable[[Iterator[Any]], Iterator[tuple[Any, ...]]]:
    """Return a reader of a partition with pipelines, which converts the values to their types."""
    kinds = {
        "string": bytes.decode, "bigint": int, "int": int, "double": float,
        "boolean": b"1".__eq__, "timestamp": lambda text: datetime.fromisoformat(text.decode()),
    }  # fmt: skip
    fields = [each.name for each in schema if each.name != "id"]
    converts = [kinds[each.dataType.simpleString()] for each in schema if each.name != "id"]

    def fetched(partition: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
        with redis.Redis.from_url(url) as client:
            rows = (f"user:{row.id}".encode() for row in partition)
            keys = rows if find is None else find(client, partition)
            while portion := [*islice(keys, PIPELINED)]:
                pipeline = client.pipeline(transaction=False)
                for key in portion:
                    pipeline.hmget(key, fields)
                for key, values in zip(portion, pipeline.execute(), strict=True):
                    pairs = zip(converts, values, strict=True)
                    yield (int(key[5:]), *(convert(value) for convert, value in pairs))

    return fetched


def in_session(args: argparse.Namespace) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        spark = session(folder)
        made = compare(spark, args.rows, args.rounds)
        spark.stop()
    return made


if __name__ == "__main__":
    run_script(__doc__, in_session, 5, 2, rows=("rows of the frame", ROWS))
