"""Spark retries tasks, runs them twice in parallel, or retries a stage: each row is loaded once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from needed import imported

from fastresp.server.local_server import LocalServer

imported("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 200_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on two hosts that starts slow tasks a second time."""
    from pyspark.sql import SparkSession
    from spark_cluster import SparkCluster
    from spark_sessions import settings, stopped

    import fastresp.spark

    folder = tmp_path_factory.mktemp("spark")
    with SparkCluster(folder) as cluster:
        builder = SparkSession.builder.master(cluster.url)
        speculation = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "spark.stage.maxConsecutiveAttempts": "4",
        }
        for name, value in (settings(folder) | speculation).items():
            builder = builder.config(name, value)
        with stopped(builder.getOrCreate()) as session:
            fastresp.spark.register(session)
            yield session


def counts(client: redis.Redis, name: str) -> set[bytes | None]:
    keys = [f"{name}:{row}" for row in range(ROWS)]
    return {value for at in range(0, ROWS, 50_000) for value in client.mget(keys[at : at + 50_000])}


def load(frame: Any, server: LocalServer, name: str) -> None:
    writer = frame.write.format("fastresp").option("server", server.url)
    writer = writer.option("command", f"INCRBY {name}:{{id}} 1").option(
        "exactlyOnce", f"job-{name}"
    )
    writer.mode("append").save()


def test_speculation(spark: Any, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """A slow task is started a second time while the first runs."""
    folder = str(tmp_path)

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        number, attempt = context.partitionId(), context.attemptNumber()
        Path(folder, f"{number}-{attempt}").touch()
        for batch in batches:
            if (number, attempt) == (0, 0):
                time.sleep(0.3)
            yield batch

    frame = spark.range(0, ROWS, 1, 4)
    load(frame.mapInArrow(slowly, frame.schema), server, "speculation")
    assert (tmp_path / "0-1").exists()
    assert counts(client, "speculation") == {b"1"}
    found = client.hgetall("fastresp:{job-speculation}:job")
    assert found.pop(b"(template)") == b"INCRBY speculation:{id} 1"
    assert found == {b"%d" % number: b"%d 0" % (ROWS // 4) for number in range(4)}


def test_stage_again(spark: Any, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """An executor is killed with its shuffle data, so the previous stage runs again."""
    folder = str(tmp_path)

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        Path(folder, f"{context.stageId()}-{context.partitionId()}-{time.time()}").touch()
        yield from batches

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        killed = Path(folder, "killed")
        for number, batch in enumerate(batches):
            if number == 3 and TaskContext.get().partitionId() == 1 and not killed.exists():  # type: ignore[union-attr]
                killed.touch()
                process = os.getpid()
                while Path(f"/proc/{process}/comm").read_text().strip() != "java":
                    process = int(Path(f"/proc/{process}/stat").read_text().split()[3])
                os.kill(process, signal.SIGKILL)
            yield batch

    frame = spark.range(0, ROWS, 1, 4)
    shuffled = frame.mapInArrow(counted, frame.schema).repartition(4, "id")
    ordered = shuffled.sortWithinPartitions("id")
    load(ordered.mapInArrow(deadly, frame.schema), server, "stage")
    ran = [path.name.split("-")[1] for path in tmp_path.glob("*-*-*")]
    assert len(ran) > len(set(ran)) == 4
    assert counts(client, "stage") == {b"1"}
