"""Time to push items onto a list and to pop them off it, the report's buffer, by several clients.

The items are those of the report, 129 bytes each; the server is started for the run, on a unix
socket. A pop begins with a full list, filled the same way for all and not timed, and ends when the
client has had the bytes of every item; a push ends with the last reply. The contenders are the
C client hiredis (``hiredis_c.c``, by its own clock, without its start), redis-py with hiredis's
parser, and fastresp. What can't be had here is named, and left out.

As in ``push.py`` the contenders take turns within a round, so that what else the machine does hits
them alike. A value is the wall time of one whole list; the CPU times that the server and the
clients took meanwhile are in the metadata ``server_cpu`` and ``client_cpu``.

    python bench/lists.py -o lists.json
    python bench/lists.py --items 20000 --rounds 1
    python bench/lists.py --only "C lrange 100,C lrange 1000,fastresp pop"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyperf
from c_client import CClient, NotAvailable, compiled
from common import as_benchmarks, spread
from results import Result, save_missing
from rich.console import Console
from rich.table import Table

from fastresp import FastrespError, ListBuffer, mass_insert
from fastresp.generators import PAYLOAD
from fastresp.stage import Comparison, Methods, Stage

ITEM = PAYLOAD.encode()
KEY = "key"
BATCH = 1_000
ROUNDS = 10
FAST_ROUNDS = 3
# Contender, by which other, and how many times its rate.
GOALS = {
    "pop": [
        ("fastresp pop", "C lrange 100", 3.0),
        ("fastresp pop", "C lrange 1000", 1.1),
        ("fastresp pop_arrow", "C lrange 1000", 1.25),
        ("fastresp pop 10,000", "C lrange 100", 3.0),
        ("fastresp pop 10,000", "C lrange 1000", 1.1),
        ("fastresp pop_arrow 10,000", "C lrange 1000", 1.25),
    ],
    "push": [("fastresp push", "C lpush-pipeline", 2.5)],
}
# Up to here by the server's own CPU time, the server is the limit.
SERVER_LIMIT = 1.05

# By kind and name: what is timed, or why it can't be had here.
Contenders = dict[str, dict[str, Callable[[], object] | str]]


def pop_all(pop: Callable[[int], Any], most: int = BATCH) -> int:
    """Pop so many until there is none; each is thrown away once it is counted."""
    count = 0
    while size := len(pop(most) or ()):
        count += size
    return count


def sizes(items: int) -> list[int]:
    """Of the batches that make so many items."""
    return [min(BATCH, items - first) for first in range(0, items, BATCH)]


def need_all(count: int, items: int) -> None:
    if count != items:
        raise FastrespError(f"{count:,} items were popped, and not {items:,}")


def c_contenders(stack: ExitStack, stage: Stage, items: int) -> Contenders:
    """The loops in C, which count their items themselves."""
    loops = {
        "pop": {
            "C lrange 100": ("lrange", 100),
            "C lrange 1000": ("lrange", 1_000),
            "C rpop-pipeline": ("rpop-pipeline", BATCH),
        },
        "push": {"C lpush-pipeline": ("lpush-pipeline", BATCH)},
    }
    try:
        client = CClient(stack.enter_context(compiled()), stage.server.socket)
    except NotAvailable as error:
        return {kind: dict.fromkeys(names, str(error)) for kind, names in loops.items()}

    def running(method: str, batch: int) -> Callable[[], float]:
        return lambda: client.run(method, items, batch)

    return {
        kind: {name: running(method, batch) for name, (method, batch) in names.items()}
        for kind, names in loops.items()
    }


def redis_py_contenders(stage: Stage, items: int) -> Contenders:
    """redis-py's ways, in batches too."""
    client = stage.client

    def push_pipelines() -> None:
        pipeline = client.pipeline(transaction=False)
        for size in sizes(items):
            for _ in range(size):
                pipeline.lpush(KEY, ITEM)
            pipeline.execute()

    def push_many() -> None:
        batch = [ITEM] * BATCH
        for size in sizes(items):
            client.lpush(KEY, *batch[:size])

    def pop_many() -> None:
        need_all(pop_all(lambda count: client.rpop(KEY, count)), items)

    return {
        "pop": {"redis-py rpop 1000": pop_many},
        "push": {"redis-py pipeline": push_pipelines, "redis-py lpush *1000": push_many},
    }


def fastresp_contenders(stage: Stage, items: int) -> Contenders:
    """A load of LPUSH, and the buffer."""
    ready = [("LPUSH", KEY, ITEM)] * items
    values = [ITEM] * items
    uses: dict[str, dict[str, Callable[[Any], object]]] = {
        "pop": {
            # Each waits for its one request, and for ten of them in flight together.
            "pop": lambda buffer: need_all(pop_all(buffer.pop), items),
            "pop 10,000": lambda buffer: need_all(pop_all(buffer.pop, 10 * BATCH), items),
            "drain": lambda buffer: need_all(sum(map(len, buffer.drain())), items),
            "consume": lambda buffer: need_all(sum(1 for _ in buffer.consume()), items),
            "pop_arrow": lambda buffer: need_all(
                pop_all(lambda count: pa.array(buffer.pop_arrow(count))), items
            ),
            "pop_arrow 10,000": lambda buffer: need_all(
                pop_all(lambda count: pa.array(buffer.pop_arrow(count)), 10 * BATCH), items
            ),
        },
        "push": {"push": lambda buffer: buffer.push(values)},
    }

    def using(method: str, use: Callable[[Any], object]) -> Callable[[], object] | str:
        def run() -> float:
            with ListBuffer(KEY, server=stage.url, batch=BATCH) as buffer:
                len(buffer)  # it is connected now, as the others are
                start = perf_counter()
                use(buffer)
                return perf_counter() - start

        return run

    loads: Contenders = {
        "pop": {},
        "push": {"fastresp mass_insert": lambda: mass_insert(ready, server=stage.url)},
    }
    return {
        kind: loads[kind] | {f"fastresp {name}": using(name, use) for name, use in names.items()}
        for kind, names in uses.items()
    }


def measure(kind: str, stage: Stage, methods: Methods, args: argparse.Namespace) -> Comparison:
    """Push or pop by each method, in rounds."""
    items: int = args.items
    left = items if kind == "push" else 0

    def fill() -> None:
        if kind == "pop":
            batches = (("RPUSH", KEY, *[ITEM] * size) for size in sizes(items))
            mass_insert(batches, server=stage.url)

    def check(method: str) -> None:
        held = stage.client.llen(KEY)
        if held != left:
            raise FastrespError(f"{kind} by {method} left {held:,} items, and not {left:,}")

    def show(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{kind}: {text}", end="", file=sys.stderr, flush=True)

    return stage.compare(methods, items, args.rounds, before=fill, check=check, show=show)


def print_table(kind: str, comparison: Comparison, missing: dict[str, str]) -> None:
    """Print medians, and what is missing."""
    table = Table(
        title=f"{kind}, {comparison.commands:,} items over a unix socket, {comparison.server}, "
        f"medians of {comparison.rounds} rounds",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column(kind)
    for column in ("seconds", "items/s", "server CPU s", "wall/CPU", "client CPU s"):
        table.add_column(column, justify="right")
    for method, timings in comparison.timings.items():
        seconds = comparison.seconds(method)
        table.add_row(
            method,
            f"{seconds:.3f}",
            f"{comparison.commands / seconds:,.0f}",
            f"{comparison.server_seconds(method):.3f}",
            f"{median(t.seconds / t.server_seconds for t in timings):.3f}",
            f"{comparison.client_seconds(method):.3f}",
        )
    console = Console(width=120 if not sys.stdout.isatty() else None)
    console.print()
    console.print(table)
    for method, reason in missing.items():
        console.print(f"{method}: not available: {reason}", highlight=False)


def print_goals(kind: str, comparison: Comparison) -> None:
    """Print the rate of each contender that has a goal by that of its rival, round by round."""
    for ours, rival, goal in GOALS[kind]:
        if not {ours, rival} <= comparison.timings.keys():
            continue
        ratios = comparison.ratios(ours, rival)
        verdict = "reached" if median(ratios) >= goal else "missed"
        busy = median(t.seconds / t.server_seconds for t in comparison.timings[ours])
        if verdict == "missed" and busy <= SERVER_LIMIT:
            verdict += ", but the server's CPU time is the limit"
        print(f"{ours} by {rival}: {spread(ratios)}, goal {goal}x: {verdict}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_ROUNDS} rounds, not {ROUNDS}")
    parser.add_argument("--rounds", type=int, help="so many rounds")
    parser.add_argument(
        "--only", type=lambda names: names.split(","), help="these contenders, by name"
    )
    parser.add_argument("--items", type=int, default=1_000_000, help="items in each list")
    args = parser.parse_args()
    if args.output and args.output.exists():
        parser.error(f"{args.output} is there already; pyperf does not overwrite results either")
    args.rounds = args.rounds or (FAST_ROUNDS if args.fast else ROUNDS)
    if args.rounds < 1 or args.items < 1:
        parser.error("--rounds and --items are 1 or more")
    return args


def main() -> None:
    """Measure, print the tables, write the results."""
    args = arguments()
    benchmarks = []
    left_out = []
    with Stage.open() as stage, ExitStack() as stack:
        groups = [
            c_contenders(stack, stage, args.items),
            redis_py_contenders(stage, args.items),
            fastresp_contenders(stage, args.items),
        ]
        for kind in GOALS:
            found = {name: run for group in groups for name, run in group[kind].items()}
            if args.only:
                found = {name: run for name, run in found.items() if name in args.only}
            missing = {name: reason for name, reason in found.items() if isinstance(reason, str)}
            methods = {name: run for name, run in found.items() if not isinstance(run, str)}
            if methods:
                comparison = measure(kind, stage, methods, args)
                print_table(kind, comparison, missing)
                print_goals(kind, comparison)
                benchmarks += as_benchmarks(kind, comparison)
            for name, reason in missing.items():
                left_out.append(Result("lists", f"{kind} {name}", reason=reason))
    if args.output:
        save_missing(args.output, left_out)
        pyperf.BenchmarkSuite(benchmarks).dump(str(args.output))


if __name__ == "__main__":
    main()
