"""Time to load files and columns into a real server, whole, and to start the command line."""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet
from results import Result
from script import run_script
from servers import Server, running
from turns import Contender, Timed, entries, measure, need

from fastresp import mass_insert, read
from fastresp.cli.demo.methods import PAYLOAD

ROWS = 5_000_000
VECTORS = 100_000
DIMENSIONS = 384
PIPELINE = 1_000
BATCH = 250_000
LINES = 1_000_000
# The numbers of keys that JSON rows rotate through, and the number of keys in a row.
KEYS = (50, 300, 3_000)
ROW_KEYS = 5
# The number of processes whose median is one value of ``start``.
STARTS = 5
# The start of a command line.
PROGRAM = [sys.executable, "-m", "fastresp"]
TEMPLATE, SET = "HSET row:{id} {**}", "SET {key} {value}"
# The interval of memory samples, in seconds.
SAMPLE_S = 0.02


def write_parquet(path: Path, rows: int) -> None:
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
    """Watch the peak memory of a process and its children together, until it has ended."""

    def __init__(self, process: psutil.Process) -> None:
        self.bytes = 0
        self._process = process
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
                # PSS counts memory that forked processes share once.
                self.bytes = max(self.bytes, sum(p.memory_full_info().pss for p in tree))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue


def run_watched(command: list[str]) -> Timed:
    """Run a process to its end; return its time, and its peak memory with its children."""
    start = perf_counter()
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = Peak(psutil.Process(program.pid))
    code = program.wait()
    seconds = perf_counter() - start
    peak.stop()
    if code:
        raise SystemExit(f"{' '.join(command)} failed with exit code {code}")
    return Timed(seconds, {"peak_bytes": peak.bytes})


def load_command(path: Path, template: str, server: Server) -> list[str]:
    return [*PROGRAM, "load", str(path), template, "--server", server.url]


def dump_command(source: Path, target: Path) -> list[str]:
    return [*PROGRAM, "dump", str(source), TEMPLATE, "--format", "rdb", "-o", str(target)]


def load_embeddings(count: int, rounds: int) -> list[Result]:
    matrix = np.random.default_rng(2).random((count, DIMENSIONS), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSIONS)
    table = pa.table({"key": np.arange(count), "value": vectors})
    template = "HSET doc:{key} vector {value!f32}"
    with running() as server:

        def by_pipeline() -> None:
            pipeline = server.client.pipeline(transaction=False)
            for key, vector in enumerate(matrix):
                pipeline.hset(f"doc:{key}", "vector", vector.tobytes())
                if key % PIPELINE == PIPELINE - 1:
                    pipeline.execute()
            pipeline.execute()

        def check(row: Result) -> None:
            server.need_keys(count, row.row)
            vector = server.client.hget(f"doc:{count - 1}", "vector")
            need(vector, matrix[-1].tobytes(), f"{row.row}, vector of the last row")

        runs: dict[str, Contender] = {
            "fastresp": lambda: mass_insert(table, template, server=server.url, transport="socket"),
            "redis-py pipeline": by_pipeline,
        }
        contenders = entries("load", runs, count, prefix="embedding ")
        return measure(contenders, rounds, server.process, before=server.empty, after=check)


def write_csv(path: Path, rows: int) -> None:
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("key", "value"))
        lines.writerows((f"key:{number:08}", PAYLOAD) for number in range(rows))


def load_file(
    name: str, write: Callable[[Path, int], None], template: str, rows: int, rounds: int
) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder, running() as server:
        path = Path(folder) / f"rows.{name}"
        write(path, rows)
        command = load_command(path, template, server)
        return measure(
            entries("load", {name: lambda: run_watched(command)}, rows),
            rounds,
            server.process,
            before=server.empty,
            after=lambda row: server.need_keys(rows, row.row),
            warm_up=False,
        )


def write_json(path: Path, rows: int, keys: int) -> None:
    """Write JSON Lines with rotating keys."""
    with open(path, "w") as file:
        for row in range(rows):
            names = [f"key{(row * ROW_KEYS + i) % keys:04}" for i in range(ROW_KEYS)]
            values = {name: row * 7 + i for i, name in enumerate(names)}
            file.write(json.dumps({"id": row, **values}) + "\n")


def load_json(rows: int, rounds: int) -> list[Result]:
    kinds = {"jsonl": ROW_KEYS} | {f"jsonl, {keys:,} keys that drift": keys for keys in KEYS}
    with tempfile.TemporaryDirectory() as folder, running() as server:

        def loader(keys: int) -> Contender:
            path = Path(folder) / f"{keys}.jsonl"
            write_json(path, rows, keys)
            return lambda: mass_insert(read(path), TEMPLATE, server=server.url, transport="socket")

        def check(row: Result) -> None:
            server.need_keys(rows, row.row)
            fields = server.client.hlen(f"row:{rows - 1}")
            need(fields, ROW_KEYS, f"{row.row}, fields of the last row")

        contenders = entries("load", {name: loader(keys) for name, keys in kinds.items()}, rows)
        return measure(contenders, rounds, server.process, before=server.empty, after=check)


def start(rounds: int) -> list[Result]:
    """Start, in turn: the command line for one row, the command line for help, Python alone."""

    def starting(command: list[str]) -> float:
        seconds, quiet = [], subprocess.DEVNULL
        for _ in range(STARTS):
            begun = perf_counter()
            subprocess.run(command, stdout=quiet, stderr=quiet, check=True)
            seconds.append(perf_counter() - begun)
        return median(seconds)

    with tempfile.TemporaryDirectory() as folder, running() as server:
        path = Path(folder) / "row.csv"
        path.write_text("key,value\nk,v\n")
        runs: dict[str, Contender] = {
            "python -c pass": lambda: starting([sys.executable, "-c", "pass"]),
            "fastresp --help": lambda: starting([*PROGRAM, "--help"]),
            "fastresp load, one row": lambda: starting(load_command(path, SET, server)),
        }
        return measure(entries("load start", runs, prefix="start, "), rounds)


def compare(args: argparse.Namespace) -> list[Result]:
    return [
        *load_file("parquet", write_parquet, TEMPLATE, args.rows, args.rounds),
        *load_embeddings(args.vectors, args.rounds),
        *load_file("csv", write_csv, SET, args.lines, args.rounds),
        *load_json(args.lines, args.rounds),
        *start(args.rounds),
    ]


if __name__ == "__main__":
    run_script(
        __doc__,
        compare,
        6,
        3,
        rows=("rows of the Parquet file", ROWS),
        lines=("lines of CSV and JSON files", LINES),
        vectors=("rows of embeddings", VECTORS),
    )
