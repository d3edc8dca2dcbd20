"""Time to load files and columns into a real server, whole, and to start the command line.

Each load uses its own server on a unix socket:

- ``parquet``: a file of 5,000,000 rows and 10 columns (integers, floats, text, times, booleans),
  made by the script, loaded by ``fastresp load`` into a hash per row. It prints wall time / server
  CPU time, and the peak memory of the command with all its child processes.
- ``embedding``: a column of vectors of 384 float32 into hashes, with ``mass_insert`` from an Arrow
  table, and with a redis-py pipeline of 1,000 and ``tobytes()``, in turn.
- ``csv``: a file of 1,000,000 SETs of 129 bytes, with ``fastresp load``; whole processes.
- ``jsonl``: a file of JSON Lines of six numbers each, all with the same keys, and files with keys
  that rotate through 50, 300 and 3,000, with ``mass_insert``, in turn. It prints the ratios of
  their rates.
- ``start``: a load of one row, ``fastresp --help`` and ``python -c pass``, in turn: whole
  processes, the median of 5.

    python bench/load.py                       # about 6 minutes
    python bench/load.py --rows 200000 --vectors 5000 --rounds 1 -o load.json
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet
from redis_py_client import redis_py
from results import Result
from turns import Contender, arguments, finish, measure, show, take

from fastresp import mass_insert, read
from fastresp.cli.demo.generators import PAYLOAD
from fastresp.server.local_server import LocalServer

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
TEMPLATE = "HSET row:{id} {**}"
# The interval of memory samples, in seconds.
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
    """Watch the peak memory of a process and its children together."""

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
                # PSS counts memory that forked processes share once.
                self.bytes = max(self.bytes, sum(p.memory_full_info().pss for p in tree))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue


def flush(server: LocalServer) -> Any:
    """Empty the server; return a client without a timeout."""
    client = redis_py(server.socket, "HiredisParser")
    # SYNC, so that old data is not freed in a thread during the load.
    client.execute_command("FLUSHALL", "SYNC")
    return client


def load_parquet(rows: int, rounds: int, transport: str) -> Result:
    """Load the file with the command, once per round."""
    result = Result("load", "parquet", "", rows)
    with tempfile.TemporaryDirectory() as folder, LocalServer() as server:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, rows)
        options = ["--server", server.url, "--transport", transport]
        command = [sys.executable, "-m", "fastresp", "load", str(path), TEMPLATE, *options]

        def load() -> None:
            program = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            peak = Peak(program.pid)
            if program.wait():
                raise SystemExit(f"fastresp load failed with exit code {program.returncode}")
            peak.stop()
            peaks.append(peak.bytes)

        process = psutil.Process(server.process.pid)
        for number in range(rounds):
            peaks: list[int] = []
            show(f"load, round {number + 1} of {rounds}: parquet")
            client = flush(server)
            take(result, load, process)
            result.details[-1]["peak_bytes"] = peaks[0]
            if (held := client.dbsize()) != rows:
                raise SystemExit(f"the server has {held:,} of {rows:,} rows")
    return result


def load_embeddings(count: int, rounds: int) -> list[Result]:
    """Load vectors with fastresp and with a redis-py pipeline, in turn."""
    matrix = np.random.default_rng(2).random((count, DIMENSIONS), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSIONS)
    table = pa.table({"key": np.arange(count), "value": vectors})
    template = "HSET doc:{key} vector {value!f32}"
    with LocalServer() as server:
        client = flush(server)

        def by_pipeline() -> None:
            pipeline = client.pipeline(transaction=False)
            for key, vector in enumerate(matrix):
                pipeline.hset(f"doc:{key}", "vector", vector.tobytes())
                if key % PIPELINE == PIPELINE - 1:
                    pipeline.execute()
            pipeline.execute()

        def check(row: Result) -> None:
            last = client.hget(f"doc:{count - 1}", "vector")
            if client.dbsize() != count or last != matrix[-1].tobytes():
                raise SystemExit(f"{row.row} did not load the vectors")

        runs: dict[str, Contender] = {
            "fastresp": lambda: mass_insert(table, template, server=server.url, transport="socket"),
            "redis-py pipeline": by_pipeline,
        }
        made = [(Result("load", f"embedding {name}", "", count), run) for name, run in runs.items()]
        process = psutil.Process(server.process.pid)
        measure(made, rounds, process, between=lambda: flush(server).close(), after=check)
    return [result for result, _ in made]


def loading(path: Path, server: LocalServer) -> list[str]:
    """Return the command line that loads a file of keys and values."""
    command = [sys.executable, "-m", "fastresp", "load", str(path), "SET {key} {value}"]
    return [*command, "--server", server.url]


def run(command: list[str]) -> None:
    """Run a process to its end."""
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def load_csv(rows: int, rounds: int) -> Result:
    """Load a CSV file with the command, once per round."""
    result = Result("load", "csv", "", rows)
    with tempfile.TemporaryDirectory() as folder, LocalServer() as server:
        path = Path(folder) / "rows.csv"
        with open(path, "w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(("key", "value"))
            lines.writerows((f"key:{number:08}", PAYLOAD) for number in range(rows))
        client = flush(server)

        def check(row: Result) -> None:
            if (held := client.dbsize()) != rows:
                raise SystemExit(f"the server has {held:,} of {rows:,} rows")

        process = psutil.Process(server.process.pid)
        made = [(result, lambda: run(loading(path, server)))]
        measure(made, rounds, process, between=lambda: flush(server).close(), after=check)
    return result


def write_json(path: Path, rows: int, keys: int) -> None:
    """Write JSON Lines with rotating keys."""
    with open(path, "w") as file:
        for row in range(rows):
            names = [f"key{(row * ROW_KEYS + i) % keys:04}" for i in range(ROW_KEYS)]
            values = {name: row * 7 + i for i, name in enumerate(names)}
            file.write(json.dumps({"id": row, **values}) + "\n")


def load_json(rows: int, rounds: int) -> list[Result]:
    """Load JSON Lines with the same keys, and with keys that drift, in turn."""
    kinds = {"jsonl": ROW_KEYS} | {f"jsonl, {keys:,} keys that drift": keys for keys in KEYS}
    with tempfile.TemporaryDirectory() as folder, LocalServer() as server:

        def loader(name: str, keys: int) -> Contender:
            path = Path(folder) / f"{keys}.jsonl"
            write_json(path, rows, keys)
            return lambda: mass_insert(read(path), TEMPLATE, server=server.url, transport="socket")

        client = flush(server)

        def check(row: Result) -> None:
            if client.dbsize() != rows or client.hlen(f"row:{rows - 1}") != ROW_KEYS:
                raise SystemExit(f"{row.row} did not load the rows")

        made = [
            (Result("load", name, "", rows), loader(name, keys)) for name, keys in kinds.items()
        ]
        process = psutil.Process(server.process.pid)
        measure(made, rounds, process, between=lambda: flush(server).close(), after=check)
    return [result for result, _ in made]


def start(rounds: int) -> list[Result]:
    """Start the command line for one row and for its help, and Python for nothing, in turn."""
    with tempfile.TemporaryDirectory() as folder, LocalServer() as server:
        path = Path(folder) / "row.csv"
        path.write_text("key,value\nk,v\n")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "fastresp --help": [sys.executable, "-m", "fastresp", "--help"],
            "fastresp load, one row": loading(path, server),
        }

        def starting(command: list[str]) -> Contender:
            def several() -> float:
                seconds = []
                for _ in range(STARTS):
                    begun = perf_counter()
                    run(command)
                    seconds.append(perf_counter() - begun)
                return median(seconds)

            return several

        made = [
            (Result("load start", f"start, {name}"), starting(command))
            for name, command in commands.items()
        ]
        measure(made, rounds)
    return [result for result, _ in made]


def main() -> None:
    """Measure, print, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=6, fast_rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the Parquet file")
    parser.add_argument("--lines", type=int, default=LINES, help="lines of CSV and JSON files")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="rows of embeddings")
    parser.add_argument("--transport", default="socket", help="transport of fastresp load")
    args = parsed()
    results = [load_parquet(args.rows, args.rounds, args.transport)]
    results += load_embeddings(args.vectors, args.rounds)
    results += [load_csv(args.lines, args.rounds)]
    regular, *drifting = load_json(args.lines, args.rounds)
    results += [regular, *drifting, *start(args.rounds)]
    finish(results, args.output)
    for keys, each in zip(KEYS, drifting, strict=True):
        ratio = median(regular.values) / median(each.values)
        print(f"JSON Lines, {keys:,} keys that drift: {ratio:.2f} of the rate of the same keys")


if __name__ == "__main__":
    main()
