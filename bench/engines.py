"""Loads by Spark, and the same frame back.

A DataFrame of 2,000,000 rows and 10 columns, made by Spark in ``local[2]`` with two partitions:

- written by Spark's data source to a sink that drops all rows, into one server on a unix socket,
  and into a cluster of three primaries with a replica each. Spark and the servers share the
  machine's cores, so the goal is about wall time / (CPU time of all servers + the time of the
  dropping sink).
- read from the server in two partitions, by the data source; and by redis-py pipelines of 1,000
  commands in mapPartitions. These work like spark-redis: each partition lists all keys, reads the
  keys of its slots, and converts the values to their types. For comparison, the pipelines also run
  without listing, with known keys. The rows are dropped.

    python bench/engines.py -o engines.json   # about 16 minutes; needs Java 17
    python bench/engines.py --rows 100000 --rounds 1
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import psutil
import redis
from pyspark.sql import DataFrame, SparkSession, datasource
from redis.crc import key_slot
from results import Result
from turns import arguments, finish, measure, show

import fastresp.spark
from fastresp.server.local_server import LocalServer

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from local_cluster import LocalCluster

ROWS = 2_000_000
PARTITIONS = 2
COLUMNS = (
    "id", "concat('user ', id) AS name", "concat('user', id, '@example.com') AS email",
    "CAST(id % 90 AS INT) AS age", "id % 2 = 0 AS active", "id * 0.25d AS balance",
    "timestamp_seconds(1600000000 + id) AS created", "CAST(id % 1000 AS STRING) AS city",
    "id * 7 AS visits", "concat('a text of some length, number ', id) AS note",
)  # fmt: skip
PIPELINED = 1000
SLOTS = 16384
# Up to this number of rows, the rows that redis-py reads are also compared.
SMALL = 100_000
DROPPED = "Spark to a sink that drops it"
DROPPED_AGAIN = f"{DROPPED}, beside the cluster"


class Dropping(datasource.DataSource):
    """The format ``dropping``, which reads all batches and keeps nothing."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: object, overwrite: bool) -> datasource.DataSourceArrowWriter:
        class Writer(datasource.DataSourceArrowWriter):
            def write(self, iterator: Iterator[Any]) -> datasource.WriterCommitMessage:
                for _ in iterator:
                    pass
                return datasource.WriterCommitMessage()

        return Writer()


def session(folder: str) -> SparkSession:
    """Return a session on two cores, with the formats."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")))
    )
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder, "spark.sql.warehouse.dir": folder, "spark.log.level": "ERROR",
    }  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(Dropping)
    fastresp.spark.register(spark)
    return spark


def write(frame: DataFrame, kind: str, url: str = "") -> None:
    """Write the frame."""
    writer = frame.write.format(kind).mode("append")
    if url:
        writer = writer.option("server", url).option("command", "HSET user:{id} {**}")
    writer.save()


def check(count: int, rows: int, what: str) -> None:
    """End the program if a load has lost rows."""
    if count != rows:
        raise SystemExit(f"{what}: {count:,} of {rows:,} rows")


def compare(spark: SparkSession, rows: int, rounds: int) -> list[Result]:
    """Measure all."""
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(*COLUMNS)
    drop = Result("engines", DROPPED, "", rows)
    one = Result("engines", "Spark into one server", "", rows)
    three = Result("engines", "Spark into 3+3 nodes", "", rows)
    dropping = (drop, partial(write, frame, "dropping"))
    made = [drop, one, three]
    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        process = psutil.Process(server.process.pid)
        loading = (one, partial(write, frame, "fastresp", server.url))
        measure([dropping, loading], rounds, process, between=client.flushall)
        write(frame, "fastresp", server.url)
        check(client.dbsize(), rows, "one server")
        made += read(spark, frame, server.url, rounds, process)
    with LocalCluster(3, 1) as cluster:
        processes = [psutil.Process(node.process.pid) for node in cluster.nodes]
        loading = (three, partial(write, frame, "fastresp", cluster.url))
        again = Result("engines", DROPPED_AGAIN, "", rows)
        dropping = (again, partial(write, frame, "dropping"))
        measure([dropping, loading], rounds, processes, between=cluster.empty)
        made.append(again)
        cluster.empty()
        write(frame, "fastresp", cluster.url)
        check(sum(cluster.sizes()), rows, "cluster")
        back = reader(spark, cluster.url, frame)
        check(back.exceptAll(frame).count() + frame.exceptAll(back).count(), 0, "rows that differ")
    return made


def read(
    spark: SparkSession, frame: DataFrame, url: str, rounds: int, server: psutil.Process
) -> list[Result]:
    """Read the frame back, in both ways."""
    rows, schema = frame.count(), frame.schema
    back = reader(spark, url, frame)
    check(back.exceptAll(frame).count() + frame.exceptAll(back).count(), 0, "rows that differ")
    given, found = (
        spark.createDataFrame(keys.mapPartitions(pipelined(url, schema, find)), schema)
        for keys, find in (
            (spark.range(0, rows, 1, PARTITIONS).rdd, None),
            (spark.sparkContext.parallelize(slots(PARTITIONS), PARTITIONS), keys_of),
        )
    )
    if rows <= SMALL:
        check(found.exceptAll(frame).count() + frame.exceptAll(found).count(), 0, "other rows")
    contenders = {
        "Spark reads, fastresp": back,
        "Spark reads, redis-py in mapPartitions": found,
        "Spark reads, redis-py in mapPartitions, keys known": given,
    }
    made = [(Result("engines", name, "", rows), each) for name, each in contenders.items()]
    measure([(result, partial(drop, each)) for result, each in made], rounds, server)
    return [result for result, _ in made]


def reader(spark: SparkSession, url: str, frame: DataFrame) -> DataFrame:
    """Return the frame as read by the data source."""
    options = {"server": url, "pattern": "user:{id}", "partitions": str(PARTITIONS)}
    return spark.read.format("fastresp").options(**options).schema(frame.schema).load()


def drop(frame: DataFrame) -> None:
    """Compute all rows of a frame, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def slots(parts: int) -> list[range]:
    """Divide the slots."""
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


def main() -> None:
    """Measure, print, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=5, fast_rounds=2)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the frame")
    args = parsed()
    if args.rows < PARTITIONS:
        parser.error(f"--rows must be {PARTITIONS} or more")
    with tempfile.TemporaryDirectory() as folder:
        spark = session(folder)
        made = compare(spark, args.rows, args.rounds)
        spark.stop()
    show("")
    finish(made, args.output)


if __name__ == "__main__":
    main()
