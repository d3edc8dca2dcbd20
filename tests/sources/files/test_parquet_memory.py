"""``fastresp load`` of a large Parquet file loads all rows in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import redis
from pyarrow import parquet

from fastresp.server.local_server import LocalServer

# The command's own memory limit; together with its redis-cli it stays below 256 MiB.
COMMAND_KB = 240 << 10
GROUP = 250_000
# The measured process is started by a small one: a child's peak memory includes its parent's.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def write(path: Path, rows: int) -> None:
    """Write ten columns of numbers, text, times and booleans, in pyarrow's default row groups."""
    random = np.random.default_rng(1)
    writer: parquet.ParquetWriter | None = None
    for start in range(0, rows, GROUP):
        index = np.arange(start, min(start + GROUP, rows))
        count = len(index)
        table = pa.table(
            {
                "id": index,
                "name": [f"customer {number}" for number in index],
                "city": random.choice(["Oslo", "Lima", "Kyoto"], count),
                "age": random.integers(18, 99, count).astype(np.int16),
                "balance": np.round(random.normal(1_000, 300, count), 2),
                "score": random.random(count),
                "visits": random.integers(0, 5_000, count),
                "active": random.random(count) < 0.5,
                "seen": pa.array(index * 1_000_000, pa.timestamp("us")),
                "note": pa.array([None, "x"] * (count // 2) + [None] * (count % 2), pa.string()),
            }
        )
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


@pytest.mark.few(0)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
@pytest.mark.parametrize("rows", [300_000, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_memory(
    rows: int, transport: str, tmp_path: Path, server: LocalServer, client: redis.Redis
) -> None:
    path = tmp_path / "rows.parquet"
    write(path, rows)
    command = [sys.executable, "-m", "fastresp", "load", str(path), "HSET row:{id} {**}"]
    options = ["--server", server.url, "--transport", transport, "--nulls", "skip"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command, *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert client.dbsize() == rows
    last = client.hgetall(f"row:{rows - 1}")
    assert last[b"name"] == f"customer {rows - 1}".encode()
    assert last[b"note"] == b"x"
    assert len(last) == 9  # all fields except the key
    assert len(client.hgetall(f"row:{rows - 2}")) == 8  # one fewer because of a null
    assert 0 < int(done.stdout) <= COMMAND_KB
