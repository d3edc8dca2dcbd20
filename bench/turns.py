"""Contenders that take turns, so that other work on the machine slows all of them alike."""

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
from pages.goal import judge
from pages.goals import GOALS
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

# A timed function; if it returns a float, this is the time, which it has measured itself.
Contender: TypeAlias = Callable[[], object]
Servers: TypeAlias = psutil.Process | Sequence[psutil.Process] | None


def arguments(
    description: str, rounds: int, fast_rounds: int, *, only: bool = False
) -> tuple[argparse.ArgumentParser, Callable[[], argparse.Namespace]]:
    """Return a parser with the options of all scripts, and a function that runs it.

    Args:
        description: the first line of the script's docstring.
        rounds: the default number of rounds.
        fast_rounds: number of rounds with ``--fast``.
        only: add the option that chooses contenders by name.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{fast_rounds} rounds, not {rounds}")
    parser.add_argument("--rounds", type=int, help="number of rounds")
    if only:
        parser.add_argument(
            "--only", type=lambda names: names.split(","), help="measure only these contenders"
        )

    def parsed() -> argparse.Namespace:
        args = parser.parse_args()
        if args.output and args.output.exists():
            parser.error(f"{args.output} exists already; remove it or choose another name")
        args.rounds = args.rounds or (fast_rounds if args.fast else rounds)
        if args.rounds < 1:
            parser.error("--rounds must be 1 or more")
        return args

    return parser, parsed


def cpu_seconds(server: Servers) -> tuple[float, float]:
    """Return the CPU time so far of servers' main threads, and of this process and its children.

    Only children that have ended count.
    """
    own, children = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    used = [resource.getrusage(process) for process in (own, children)]
    clients = sum(each.ru_utime + each.ru_stime for each in used)
    servers = [server] if isinstance(server, psutil.Process) else server or ()
    return sum(map(server_seconds, servers)), clients


def server_seconds(server: psutil.Process) -> float:
    """Return the CPU time of a server's main thread so far.

    Linux has it in nanoseconds; psutil has clock ticks of 10 ms, the duration of 10,000 commands.
    """
    try:
        return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return float(sum(server.cpu_times()[:2]))


def timed(run: Contender) -> float:
    """Run a contender; return the seconds it took."""
    start = perf_counter()
    taken = run()
    return taken if isinstance(taken, float) else perf_counter() - start


def take(
    result: Result,
    run: Contender,
    server: Servers = None,
    keep: bool = True,
    **details: Any,
) -> float:
    """Time a contender once; add the time to its result, and the CPU times if a server is given.

    Args:
        keep: False for a warm-up run, which is not added.
        **details: additional details of the value.
    """
    gc.collect()  # the garbage of the previous contender
    before = cpu_seconds(server)
    taken = timed(run)
    after = cpu_seconds(server)
    if keep:
        if server is not None:
            details["server_cpu"] = after[0] - before[0]
            details["client_cpu"] = after[1] - before[1]
        result.add(taken, round=len(result.values) + 1, **details)
    return taken


def measure(
    contenders: Sequence[tuple[Result, Contender]],
    rounds: int,
    server: Servers = None,
    between: Contender = lambda: None,
    after: Callable[[Result], object] = lambda result: None,
) -> None:
    """Time contenders in turn, round by round, after one warm-up round.

    Args:
        contenders: with the results to add to; a contender is left out if its result has a reason.
        rounds: number of values for each result.
        server: the server, or the nodes of a cluster, for the CPU time.
        between: called before each contender, untimed.
        after: called after each contender with its result, untimed, to check its work.
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
    """Show the running contender, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def print_results(results: Sequence[Result]) -> None:
    """Print the worst, best and average of each row, and the reasons of missing rows."""
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
                # Without markup: rich would read [peers] as a style.
                words = f"{name}: not available: {result.reason}"
                console.print(words, highlight=False, markup=False, soft_wrap=True)


def print_goals(results: Sequence[Result]) -> None:
    """Print the goals of these results."""
    found = Results()
    for row in results:
        found.add(row.table.partition(" ")[0], row)
    for verdict in map(partial(judge, results=found), GOALS):
        if measured := verdict.measured:
            goal, sign = verdict.goal, "at most" if verdict.goal.at_most else "at least"
            wanted = "" if goal.bound is None else f", goal: {sign} {goal.bound:g} {goal.unit}"
            print(
                f"{goal.area}: {goal.what}: {measured.figure:.3f} ({measured.low:.3f} to "
                f"{measured.high:.3f}){wanted}: {verdict.word}"
            )


def finish(results: Sequence[Result], output: Path | None) -> None:
    """Settle the results, print the tables and the goals, and write the results on request."""
    for result in results:
        result.settle()
    print_results(results)
    print_goals(results)
    if output:
        save(output, results)
