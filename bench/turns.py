"""Contenders that take turns: what the machine does besides hits them alike."""

from __future__ import annotations

import argparse
import gc
import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any, TypeAlias

import psutil
from pages.data import Results
from pages.goals import GOALS, judge
from results import Result, save
from rich.console import Console
from rich.table import Table

__all__ = [
    "Contender",
    "arguments",
    "cpu_seconds",
    "finish",
    "measure",
    "print_results",
    "server_seconds",
    "show",
    "take",
    "timed",
]

# What is timed; if it returns a float, that is the time, by its own clock.
Contender: TypeAlias = Callable[[], object]


def arguments(
    description: str, rounds: int, fast_rounds: int, *, only: bool = False
) -> tuple[argparse.ArgumentParser, Callable[[], argparse.Namespace]]:
    """The options that these scripts have in common, and what reads them in the end.

    Args:
        description: the first line of the script's docstring.
        rounds: how many by default.
        fast_rounds: how many with ``--fast``.
        only: whether there is an option that chooses contenders, by their names.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{fast_rounds} rounds, not {rounds}")
    parser.add_argument("--rounds", type=int, help="so many rounds")
    if only:
        parser.add_argument(
            "--only", type=lambda names: names.split(","), help="these contenders, by name"
        )

    def parsed() -> argparse.Namespace:
        args = parser.parse_args()
        if args.output and args.output.exists():
            parser.error(
                f"{args.output} is there already; pyperf does not overwrite results either"
            )
        args.rounds = args.rounds or (fast_rounds if args.fast else rounds)
        if args.rounds < 1:
            parser.error("--rounds is 1 or more")
        return args

    return parser, parsed


def cpu_seconds(server: psutil.Process | None) -> tuple[float, float]:
    """CPU time so far: of a server, and of this process with its children that have ended.

    The server's is as ``server_seconds()`` tells it.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    clients = sum(each.ru_utime + each.ru_stime for each in used)
    return (0.0 if server is None else server_seconds(server)), clients


def server_seconds(server: psutil.Process) -> float:
    """CPU time of a server's main thread so far, in nanoseconds where the system tells them.

    In the clock ticks of 10 ms that psutil has, 10,000 commands would be nothing or one.
    """
    try:
        return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return float(sum(server.cpu_times()[:2]))


def timed(run: Contender) -> float:
    """Seconds that something takes, by its own clock if it returns them."""
    start = perf_counter()
    taken = run()
    return taken if isinstance(taken, float) else perf_counter() - start


def take(
    result: Result,
    run: Contender,
    server: psutil.Process | None = None,
    keep: bool = True,
    **details: Any,
) -> float:
    """Time something once; note it and the CPU times in the result, with what else is known of it.

    Args:
        keep: False for what is only to be warm, and is not noted.
    """
    gc.collect()  # what another left behind
    before = cpu_seconds(server)
    taken = timed(run)
    after = cpu_seconds(server)
    if keep:
        if server is not None:
            details["server_cpu"] = after[0] - before[0]
        round_ = len(result.values) + 1
        result.add(taken, round=round_, client_cpu=after[1] - before[1], **details)
    return taken


def measure(
    contenders: Sequence[tuple[Result, Contender]],
    rounds: int,
    server: psutil.Process | None = None,
    between: Contender = lambda: None,
    after: Callable[[Result], object] = lambda result: None,
) -> None:
    """Time contenders in turn, round by round, after one untimed round; note it in the results.

    Args:
        contenders: those that can't be had, whose result has a reason, are left out.
        rounds: how many values each gets.
        server: whose CPU time is noted, too.
        between: is called before each, untimed.
        after: is called after each, untimed, with its row: to look at what it did.
    """
    for number in range(rounds + 1):
        for result, run in contenders:
            if result.reason:
                continue
            show(f"{result.table}, round {number} of {rounds}: {result.row} {result.parser}")
            between()
            take(result, run, server, keep=number > 0)
            after(result)
    show("")


def show(text: str) -> None:
    """Say what is being done, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def print_results(results: Sequence[Result]) -> None:
    """Print tables as those of the 2018 report, and what is missing."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for title in dict.fromkeys(result.table for result in results):
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("")
        table.add_column("parser")
        for column in ("worst s", "best s", "average s", "worst/s", "best/s", "average/s"):
            table.add_column(column, justify="right")
        rows = [result for result in results if result.table == title]
        for result in rows:
            if result.values:
                times = max(result.values), min(result.values), mean(result.values)
                cells = [f"{each:.4f}" for each in times]
                cells += [f"{result.operations / each:,.0f}" for each in times]
                table.add_row(result.row, result.parser, *cells)
        console.print()
        console.print(table)
        for result in rows:
            if not result.values:
                name = " ".join(filter(None, (result.row, result.parser)))
                # As it is: rich would take [peers] for markup.
                words = f"{name}: not available: {result.reason}"
                console.print(words, highlight=False, markup=False, soft_wrap=True)


def print_goals(results: Sequence[Result]) -> None:
    """Print what was measured of the report's goals, of the results that are named as a table."""
    found = Results()
    for row in results:
        found.add(row.table, row)
    for verdict in map(partial(judge, results=found), GOALS):
        if measured := verdict.measured:
            goal, sign = verdict.goal, "at most" if verdict.goal.at_most else "at least"
            wanted = "" if goal.bound is None else f", {sign} {goal.bound:g} {goal.unit} wanted"
            print(
                f"{goal.area}: {goal.what}: {measured.figure:.3f} ({measured.low:.3f} to "
                f"{measured.high:.3f}){wanted}: {verdict.word}"
            )


def finish(results: Sequence[Result], output: Path | None) -> None:
    """Print the tables and the goals, and write the results where they are wanted."""
    print_results(results)
    print_goals(results)
    if output:
        save(output, results)
