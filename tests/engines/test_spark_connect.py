"""Spark Connect, whose sessions lack a SparkContext: frames are written and read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needed import imported
from spark_sessions import settings

from fastresp.server.local_server import LocalServer

imported("pyspark")
imported("grpc")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

# A separate process, since one with another session can't connect.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import fastresp.spark

url, options = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.remote("local[2]")
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
try:
    fastresp.spark.register(spark, print)
except ValueError as error:
    print(error)
fastresp.spark.register(spark)
frame = spark.range(0, 100, 1, 1).selectExpr("id", "id * 2 AS twice")


def write(**options):
    writer = frame.write.format("fastresp").option("server", url).options(**options)
    writer.option("command", "HSET n:{id} {**}").mode("append").save()


write()
reader = spark.read.format("fastresp").option("server", url).option("pattern", "n:{id}")
back = reader.option("partitions", "1").schema(frame.schema).load()
print(sorted(back.collect()) == sorted(frame.collect()))
try:
    write(rateLimit="1000000")
except Exception as error:
    print("how many run at the same time" in str(error))
write(rateLimit="1000000", tasks="2")
spark.stop()
"""


def test_write_and_read_back(server: LocalServer, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, json.dumps(settings(tmp_path))],
        capture_output=True, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    refused = "Spark Connect can't call a listener; the totals are in its driver's log"
    assert found.stdout.splitlines() == [refused, "True", "True"]
