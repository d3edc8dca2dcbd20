"""Time to load files and columns into a real server, whole.

Two loads, each into a server started for it on a unix socket:

- ``parquet``: a file of 5,000,000 rows and 10 columns (integers, floats, text, times, booleans),
  made by the script, through the command ``fastresp load`` into a hash a row. Printed:
  wall time by the server's own CPU time for it, and the peak memory of the command with all
  processes that it starts.
- ``embedding``: a column of vectors of 384 float32 into hashes, by ``mass_insert`` from an Arrow
  table, against redis-py's pipeline in batches of 1,000 with ``tobytes()``, in turn.

    python bench/load.py
    python bench/load.py --rows 200000 --vectors 5000 --rounds 1 -o load.json

As in ``push.py`` the values are collected here, for pyperf's runner would not take turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyperf
import redis
from common import spread
from pyarrow import parquet

from fastresp import mass_insert
from fastresp.stage import Stage, Timing

ROWS = 5_000_000
VECTORS = 100_000
DIMENSIONS = 384
PIPELINE = 1_000
BATCH = 250_000
TEMPLATE = "HSET row:{id} {**}"
# How often the memory is looked at.
SAMPLE_S = 0.02


def write_parquet(path: Path, rows: int) -> None:
    """Write the file, batch by batch."""
    random = np.random.default_rng(3)
    writer: parquet.ParquetWriter | None = None
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        index = np.arange(start, start + count)
        table = pa.table(
            {
                "id": index,
                "name": [f"customer {number:08}" for number in index],
                "city": random.choice(["Oslo", "Lima", "Kyoto", "Nairobi", "Quito"], count),
                "age": random.integers(18, 99, count).astype(np.int16),
                "balance": np.round(random.normal(1_000, 300, count), 2),
                "score": random.random(count),
                "visits": random.integers(0, 5_000, count),
                "active": random.random(count) < 0.5,
                "seen": pa.array(index * 1_000_000 + 1_600_000_000_000_000, pa.timestamp("us")),
                "referrer": random.choice(["search", "mail", "friend"], count),
            }
        )
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


class Peak:
    """The most memory that a process and its children took together, while this runs."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            try:
                tree = [self._process, *self._process.children(recursive=True)]
                # What forked processes share is counted once.
                self.bytes = max(self.bytes, sum(p.memory_full_info().pss for p in tree))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue


def load_parquet(rows: int, rounds: int, transport: str) -> list[tuple[Timing, int]]:
    """Load the file by the command, so many times: how long that took, and the peak memory."""
    results = []
    with tempfile.TemporaryDirectory() as folder, Stage.open() as stage:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, rows)
        for _ in range(rounds):
            peaks: list[int] = []

            def load(peaks: list[int] = peaks) -> None:
                options = ["--server", stage.url, "--transport", transport]
                process = subprocess.Popen(
                    [sys.executable, "-m", "fastresp", "load", str(path), TEMPLATE, *options],
                    stdout=subprocess.DEVNULL,
                )
                peak = Peak(process.pid)
                if process.wait():
                    raise SystemExit(f"fastresp load failed with exit code {process.returncode}")
                peak.stop()
                peaks.append(peak.bytes)

            results.append((stage.timed(load), peaks[0]))
            held = stage.client.dbsize()
            if held != rows:
                raise SystemExit(f"the server holds {held:,} of {rows:,} rows")
    return results


def load_embeddings(count: int, rounds: int) -> dict[str, list[Timing]]:
    """Load vectors by fastresp and by a redis-py pipeline, in turn."""
    matrix = np.random.default_rng(2).random((count, DIMENSIONS), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSIONS)
    table = pa.table({"key": np.arange(count), "value": vectors})
    timings: dict[str, list[Timing]] = {"fastresp": [], "redis-py pipeline": []}
    with Stage.open() as stage:

        def by_fastresp() -> None:
            mass_insert(
                table, "HSET doc:{key} vector {value!f32}", server=stage.url, transport="socket"
            )

        def by_pipeline() -> None:
            with redis.Redis.from_url(stage.url) as client:
                pipeline = client.pipeline(transaction=False)
                for key, vector in enumerate(matrix):
                    pipeline.hset(f"doc:{key}", "vector", vector.tobytes())
                    if key % PIPELINE == PIPELINE - 1:
                        pipeline.execute()
                pipeline.execute()

        for _ in range(rounds):
            for name, load in (("fastresp", by_fastresp), ("redis-py pipeline", by_pipeline)):
                timings[name].append(stage.timed(load))
                last: Any = stage.client.hget(f"doc:{count - 1}", "vector")
                if stage.client.dbsize() != count or last != matrix[-1].tobytes():
                    raise SystemExit(f"{name} did not load the vectors")
    return timings


def benchmark(name: str, timings: list[Timing], metadata: dict[str, Any]) -> pyperf.Benchmark:
    return pyperf.Benchmark(
        [
            pyperf.Run(
                [timing.seconds],
                metadata={
                    "name": name,
                    "unit": "second",
                    "loops": 1,
                    "round": index,
                    "server_cpu": timing.server_seconds,
                    "client_cpu": timing.client_seconds,
                    **metadata,
                },
            )
            for index, timing in enumerate(timings, start=1)
        ]
    )


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the Parquet file")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="rows of embeddings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transport", default="socket", help="of fastresp load")
    args = parser.parse_args()
    loads = load_parquet(args.rows, args.rounds, args.transport)
    timings = [timing for timing, _ in loads]
    peak = max(size for _, size in loads)
    print(
        f"parquet, {args.rows:,} rows of 10 columns into hashes by fastresp load: "
        f"{median(t.seconds for t in timings):.2f} s, server CPU "
        f"{median(t.server_seconds for t in timings):.2f} s, wall/CPU "
        f"{spread([t.seconds / t.server_seconds for t in timings])}, client CPU "
        f"{median(t.client_seconds for t in timings):.2f} s, peak memory {peak / 2**20:.0f} MiB"
    )
    started = time.perf_counter()
    embeddings = load_embeddings(args.vectors, args.rounds)
    ours, theirs = embeddings["fastresp"], embeddings["redis-py pipeline"]
    print(
        f"embedding, {args.vectors:,} vectors of {DIMENSIONS} float32 into hashes: "
        f"{median(t.seconds for t in ours):.3f} s, redis-py pipeline "
        f"{median(t.seconds for t in theirs):.3f} s, ratio "
        f"{spread([t.seconds / o.seconds for o, t in zip(ours, theirs, strict=True)])} "
        f"({time.perf_counter() - started:.0f} s in all)"
    )
    if args.output:
        results = [
            benchmark("load parquet", timings, {"commands": args.rows, "peak_bytes": peak}),
            *(
                benchmark(f"load embedding {name}", values, {"commands": args.vectors})
                for name, values in embeddings.items()
            ),
        ]
        pyperf.BenchmarkSuite(results).dump(str(args.output))


if __name__ == "__main__":
    main()
