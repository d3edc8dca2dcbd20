"""Time to load commands into a real server: ``mass_insert`` against plain ``redis-cli --pipe``.

The methods are those of the report's push table: each of its generators piped into redis-cli in
chunks of 1 MiB, a file made beforehand (``redis-cli --pipe < file``), and ``mass_insert`` by its
transports: redis-cli, the socket, and the socket in asyncio. All start from the same ready list
of tuples, SET with distinct keys or LPUSH with one key, and a value of 129 bytes. The server is
started for the run, on a unix socket or with ``--tcp`` on the loopback, and emptied before each.

The methods take turns within a round, so that what else the machine does hits them alike; pyperf's
runner would run one after the other, so the values are collected here. A value is the wall time of
one whole load. The CPU times that the server and the clients took meanwhile are in the metadata
``server_cpu`` and ``client_cpu``.

    python bench/push.py -o push.json
    python bench/push.py --tcp --only "no generation,fastresp socket"
    python bench/push.py --fast --commands 100000
    python -m pyperf compare_to before.json after.json
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from statistics import median

import pyperf
from common import KINDS, as_benchmarks, commands, spread
from rich.console import Console
from rich.table import Table

from fastresp import FastrespError, aio, dump, mass_insert
from fastresp.stage import FASTRESP, READY_FILE, Comparison, Stage

ROUNDS = 10
FAST_ROUNDS = 3


def measure(kind: str, args: argparse.Namespace) -> Comparison:
    """Load by each method, in rounds."""
    count = args.commands
    ready = commands(kind, count)
    with Stage.open(tcp=args.tcp) as stage:
        dump(ready, None, stage.ready_file)
        url = stage.url
        methods = stage.plain_methods(lambda: ready) | {
            f"{FASTRESP} redis-cli": lambda: mass_insert(ready, server=url, transport="redis-cli"),
            f"{FASTRESP} socket": lambda: mass_insert(ready, server=url, transport="socket"),
            f"{FASTRESP} asyncio": lambda: asyncio.run(aio.mass_insert(ready, server=url)),
        }
        if args.only:
            methods = {name: methods[name] for name in methods if name in args.only}

        def check(method: str) -> None:
            held = stage.client.dbsize() if kind == "SET" else stage.client.llen("key")
            if held != count:
                raise FastrespError(f"{kind} {method}: the server holds {held:,} of {count:,}")

        def show(text: str) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{kind}: {text}", end="", file=sys.stderr, flush=True)

        return stage.compare(methods, count, args.rounds, check=check, show=show)


def print_table(kind: str, where: str, comparison: Comparison) -> None:
    """Print medians, and the ratios round by round."""
    table = Table(
        title=f"{kind} over {where}, {comparison.commands:,} commands, {comparison.server}, "
        f"medians of {comparison.rounds} rounds",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("method")
    columns = ("seconds", "commands/s", "server CPU s", "wall/CPU", "client CPU s")
    for column in (*columns, "ratio (min to max)"):
        table.add_column(column, justify="right")
    for method in comparison.timings:
        seconds = comparison.seconds(method)
        table.add_row(
            method,
            f"{seconds:.3f}",
            f"{comparison.commands / seconds:,.0f}",
            f"{comparison.server_seconds(method):.3f}",
            f"{median(t.seconds / t.server_seconds for t in comparison.timings[method]):.3f}",
            f"{comparison.client_seconds(method):.3f}",
            spread(comparison.ratios(method)) if method != READY_FILE else "",
        )
    console = Console(width=120 if not sys.stdout.isatty() else None)
    console.print()
    console.print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_ROUNDS} rounds, not {ROUNDS}")
    parser.add_argument("--rounds", type=int, help="so many rounds")
    parser.add_argument("--tcp", action="store_true", help="over TCP, not over a unix socket")
    parser.add_argument(
        "--only", type=lambda names: [*names.split(","), READY_FILE], help="these methods, by name"
    )
    parser.add_argument("--commands", type=int, default=1_000_000, help="commands in each load")
    args = parser.parse_args()
    if args.output and args.output.exists():
        parser.error(f"{args.output} is there already; pyperf does not overwrite results either")
    args.rounds = args.rounds or (FAST_ROUNDS if args.fast else ROUNDS)
    if args.rounds < 1 or args.commands < 1:
        parser.error("--rounds and --commands are 1 or more")
    return args


def main() -> None:
    """Measure, print the tables, write the results."""
    args = arguments()
    benchmarks = []
    for kind in KINDS:
        comparison = measure(kind, args)
        print_table(kind, "TCP" if args.tcp else "a unix socket", comparison)
        benchmarks += as_benchmarks(f"push {kind}", comparison)
    if args.output:
        pyperf.BenchmarkSuite(benchmarks).dump(str(args.output))


if __name__ == "__main__":
    main()
