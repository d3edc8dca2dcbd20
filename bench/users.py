"""Time to retrieve 10,000 users, an HMGET of 5 fields each, from a real server on a unix socket.

- ``redis-py``: a pipeline with hiredis, lists of bytes;
- ``execute``: ``fastresp.execute``, the same lists;
- ``columns``: ``fastresp.fetch_hashes``, Arrow columns of text, by the keys;
- ``pattern``: the same, the keys found by ``user:{id}``, which are a column, too.

The contenders take turns within a round, after an untimed one; a value is the time of one
retrieval, the connection's opening included for all but redis-py, which keeps its own. What they
got is compared once. The server's own CPU time for a retrieval is the least that any can take.

    python bench/users.py -o users.json
    python bench/users.py --fast
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow as pa
import pyperf
import redis
from common import spread
from rich.console import Console
from rich.table import Table

from fastresp import execute, fetch_hashes, mass_insert
from fastresp.programs import LocalServer

COUNT = 10_000
ROUNDS = 50
FAST_ROUNDS = 10
BASE = "redis-py"
FIELDS = ["name", "email", "city", "age", "joined"]
KEYS = [f"user:{index}" for index in range(COUNT)]

Run = Callable[[], Any]


def load(url: str) -> None:
    """Store the users."""
    rows = (
        {
            "id": index,
            "name": f"customer {index:08}",
            "email": f"customer{index}@example.com",
            "city": ("Oslo", "Lima", "Kyoto", "Nairobi", "Quito")[index % 5],
            "age": 18 + index % 80,
            "joined": f"2024-{index % 12 + 1:02}-{index % 28 + 1:02}T12:00:00+00:00",
        }
        for index in range(COUNT)
    )
    mass_insert(rows, "HSET user:{id} {**}", server=url, transport="socket")


def contenders(url: str) -> dict[str, Run]:
    client = redis.Redis.from_url(url)
    command = "HMGET {0} " + " ".join(FIELDS)

    def by_redis_py() -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for key in KEYS:
            pipeline.hmget(key, FIELDS)
        return pipeline.execute()

    return {
        BASE: by_redis_py,
        "execute": lambda: list(execute(KEYS, command, server=url)),
        "columns": lambda: pa.table(fetch_hashes(KEYS, FIELDS, server=url)),
        "pattern": lambda: pa.table(fetch_hashes("user:{id}", FIELDS, server=url)),
    }


def check(runs: dict[str, Run]) -> None:
    """End the program unless all of them get the same."""
    expected = runs[BASE]()
    columns, found = runs["columns"](), runs["pattern"]()
    order = sorted(range(COUNT), key=lambda index: int(found["id"][index].as_py()))
    rows = [[value.decode() for value in row] for row in expected]
    for table in (columns, found.take(order).select(FIELDS)):
        if [list(row.values()) for row in table.to_pylist()] != rows:
            raise SystemExit("the columns are not what redis-py gets")
    if runs["execute"]() != expected:
        raise SystemExit("execute does not give what redis-py gets")


def measure(
    runs: dict[str, Run], rounds: int, server: psutil.Process
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Time the contenders in turn: wall time, and the server's CPU time."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    of_server: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 1):
        for name, run in runs.items():
            used = sum(server.cpu_times()[:2])
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            if index:
                seconds[name].append(taken)
                of_server[name].append(sum(server.cpu_times()[:2]) - used)
    return seconds, of_server


def print_table(seconds: dict[str, list[float]], of_server: dict[str, list[float]]) -> None:
    """Print medians, and how many times as long as each redis-py took, round by round."""
    title = f"{COUNT:,} users of {len(FIELDS)} fields"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("contender")
    for column in ("ms", "server CPU ms (mean)", "times as fast (min to max)"):
        table.add_column(column, justify="right")
    for name, values in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(seconds[BASE], values, strict=True)]
        server = sum(of_server[name]) / len(of_server[name])
        ratio = "" if name == BASE else spread(ratios)
        table.add_row(name, f"{median(values) * 1e3:.1f}", f"{server * 1e3:.1f}", ratio)
    console = Console()
    console.print()
    console.print(table)


def as_benchmarks(
    seconds: dict[str, list[float]], of_server: dict[str, list[float]]
) -> list[pyperf.Benchmark]:
    """The timings as pyperf keeps them: a run for each value."""
    about = {"unit": "second", "loops": 1, "commands": COUNT}
    return [
        pyperf.Benchmark(
            [
                pyperf.Run(
                    [value],
                    metadata=about | {"name": name, "round": index, "server_cpu": cpu},
                )
                for index, (value, cpu) in enumerate(
                    zip(values, of_server[name], strict=True), start=1
                )
            ]
        )
        for name, values in seconds.items()
    ]


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_ROUNDS} rounds, not {ROUNDS}")
    parser.add_argument("--debug-single-value", action="store_true", help="a single round")
    args = parser.parse_args()
    if args.output and args.output.exists():
        sys.exit(f"{args.output} is there already; pyperf does not overwrite results either")
    rounds = 1 if args.debug_single_value else FAST_ROUNDS if args.fast else ROUNDS
    with LocalServer() as server:
        load(server.url)
        runs = contenders(server.url)
        check(runs)
        seconds, of_server = measure(runs, rounds, psutil.Process(server.process.pid))
    print_table(seconds, of_server)
    if args.output:
        benchmarks = as_benchmarks(seconds, of_server)
        pyperf.BenchmarkSuite(benchmarks).dump(str(args.output))


if __name__ == "__main__":
    main()
