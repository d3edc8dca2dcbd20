"""Loads by Spark, and the same frame back.

A DataFrame of 2,000,000 rows and 10 columns, made by Spark in ``local[2]`` with two partitions:

- written by Spark's data source to a sink that drops it, into one server on a unix socket, and into
  a cluster of three primaries with a replica each. Spark and the servers share the cores of the
  machine, so the goal is about wall time / (CPU time of all servers + the time of the dropping
  sink).
- read from the server in two partitions, by the data source; and by a redis-py pipeline of 1,000
  commands in mapPartitions, as spark-redis does it. The rows are dropped.

    python bench/engines.py -o engines.json   # about 10 minutes; needs Java 17
    python bench/engines.py --rows 100000 --rounds 1
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import redis
from pyspark.sql import DataFrame, SparkSession, datasource
from results import Result
from turns import Contender, arguments, finish, measure, show

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
    return made


def read(
    spark: SparkSession, frame: DataFrame, url: str, rounds: int, server: psutil.Process
) -> list[Result]:
    """Read the frame back, in both ways."""
    rows, schema = frame.count(), frame.schema
    reader = spark.read.format("fastresp").option("server", url).option("pattern", "user:{id}")
    back = reader.option("partitions", str(PARTITIONS)).schema(schema).load()
    check(back.exceptAll(frame).count() + frame.exceptAll(back).count(), 0, "rows that differ")
    fields = [name for name in schema.names if name != "id"]

    def fetched(keys: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
        with redis.Redis.from_url(url) as client:
            while portion := [row.id for row in islice(keys, PIPELINED)]:
                pipeline = client.pipeline(transaction=False)
                for key in portion:
                    pipeline.hmget(f"user:{key}", fields)
                for key, values in zip(portion, pipeline.execute(), strict=True):
                    yield (str(key), *(value.decode() for value in values))

    def pipelined() -> None:
        keys = spark.range(0, rows, 1, PARTITIONS).rdd
        text = ", ".join(f"{name} STRING" for name in ("id", *fields))
        found = spark.createDataFrame(keys.mapPartitions(fetched), text)
        found.write.format("noop").mode("overwrite").save()

    ours = Result("engines", "Spark reads, fastresp", "", rows)
    theirs = Result("engines", "Spark reads, redis-py in mapPartitions", "", rows)
    reading: Contender = lambda: back.write.format("noop").mode("overwrite").save()  # noqa: E731
    measure([(ours, reading), (theirs, pipelined)], rounds, server)
    return [ours, theirs]


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
