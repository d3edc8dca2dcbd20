"""What ``fastresp.redis_py`` gains: redis-py's packing of a pipeline, and the pipeline as a whole.

The work is a pipeline of 10,000 SETs with distinct keys and values of 129 bytes: ``pack_commands``
alone, and ``execute()`` with a real server on a unix socket, sync and asyncio, by redis-py's packer
in Python, by the one with hiredis, and by ours. Replies are parsed by hiredis throughout. The
contenders take turns within a round; a value is the time of one call.

    python bench/redis_py.py -o redis_py.json
    python bench/redis_py.py --fast
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyperf
import redis
import redis.asyncio
from common import commands, spread
from redis.connection import PythonRespSerializer
from rich.console import Console
from rich.table import Table

from fastresp.programs import LocalServer
from fastresp.redis_py import speed_up

COUNT = 10_000
ROUNDS = 50
FAST_ROUNDS = 10
OURS = "fastresp"

Run = Callable[[], object]


def python_packer() -> PythonRespSerializer:
    """redis-py's own packer, which it uses where hiredis is missing."""
    connection = redis.Connection()
    return PythonRespSerializer(connection._buffer_cutoff, connection.encoder.encode)


def clients(url: str) -> dict[str, Any]:
    """A client for each packer, connected."""
    made: dict[str, Any] = {
        "redis-py, Python": redis.Redis.from_url(url, command_packer=python_packer()),
        "redis-py, hiredis": redis.Redis.from_url(url),
        OURS: speed_up(redis.Redis.from_url(url)),
    }
    for client in made.values():
        client.ping()
    return made


def packing(client: Any) -> Run:
    ready = commands("SET", COUNT)
    connection = client.connection_pool.get_connection()
    return lambda: connection.pack_commands(ready)


def executing(client: Any, loop: asyncio.AbstractEventLoop) -> Run:
    pipeline = client.pipeline(transaction=False)

    def run() -> None:
        replies = pipeline.execute()
        if not isinstance(replies, list):
            replies = loop.run_until_complete(replies)
        assert len(replies) == COUNT

    def fill() -> None:
        # execute() empties the pipeline; filling it again is not timed.
        for _, key, value in commands("SET", COUNT):
            pipeline.set(key, value)

    run.before = fill  # type: ignore[attr-defined]
    return run


def measure(contenders: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Time the contenders in turn, after one untimed round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds + 1):
        for name, run in contenders.items():
            getattr(run, "before", lambda: None)()
            start = time.perf_counter()
            run()
            if index:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def print_table(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians, and how many times as long as ours each took, round by round."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("packer")
    for column in ("us a command", "by ours (min to max)"):
        table.add_column(column, justify="right")
    for name, values in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(values, seconds[OURS], strict=True)]
        ratio = "" if name == OURS else spread(ratios)
        table.add_row(name, f"{median(values) / COUNT * 1e6:.3f}", ratio)
    console = Console()
    console.print()
    console.print(table)


def as_benchmarks(title: str, seconds: dict[str, list[float]]) -> list[pyperf.Benchmark]:
    about = {"unit": "second", "loops": 1, "commands": COUNT}
    return [
        pyperf.Benchmark(
            [
                pyperf.Run([value], metadata=about | {"name": f"{title}, {name}", "round": index})
                for index, value in enumerate(values, start=1)
            ]
        )
        for name, values in seconds.items()
    ]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_ROUNDS} rounds, not {ROUNDS}")
    parser.add_argument("--debug-single-value", action="store_true", help="a single round")
    args = parser.parse_args()
    if args.output and args.output.exists():
        sys.exit(f"{args.output} is there already; pyperf does not overwrite results either")
    rounds = 1 if args.debug_single_value else FAST_ROUNDS if args.fast else ROUNDS
    loop = asyncio.new_event_loop()
    with LocalServer() as server:
        sync = clients(server.url)
        asynchronous = {
            "redis-py, Python": redis.asyncio.Redis.from_url(server.url),
            OURS: speed_up(redis.asyncio.Redis.from_url(server.url)),
        }
        benchmarks = {
            "pack_commands": {name: packing(client) for name, client in sync.items()},
            "execute": {name: executing(client, loop) for name, client in sync.items()},
            "execute in asyncio": {
                name: executing(client, loop) for name, client in asynchronous.items()
            },
        }
        results = []
        for title, contenders in benchmarks.items():
            seconds = measure(contenders, rounds)
            print_table(f"{title}, a pipeline of {COUNT:,} SETs", seconds)
            results += as_benchmarks(title, seconds)
        for client in asynchronous.values():
            loop.run_until_complete(client.aclose())
    loop.close()
    if args.output:
        pyperf.BenchmarkSuite(results).dump(str(args.output))


if __name__ == "__main__":
    main()
