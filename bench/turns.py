"""Contenders that take turns, so that other work on the machine slows them equally."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import psutil
from results import Result

# The minimum duration of a turn: a fast contender repeats its work.
TURN_S = 0.1


class NotAvailable(Exception):
    """A contender, or a program that it needs, is not available here; the message says why."""


class Timed(NamedTuple):
    """A time or another value that a contender has measured itself, with its details."""

    value: float
    details: dict[str, Any]


# A timed function. If it returns a float or ``Timed``, this is its own measurement.
Contender: TypeAlias = Callable[[], object]
# A row, with its contender or the reason why the row can't be measured.
Entry: TypeAlias = tuple[Result, Contender | str]
Servers: TypeAlias = psutil.Process | Sequence[psutil.Process] | None


def entries(
    table: str, runs: Mapping[str, Contender | str], operations: int = 1, *, prefix: str = ""
) -> list[Entry]:
    """Return the rows of a table, named with a prefix, each with its contender."""
    return [
        (Result(table, f"{prefix}{name}", operations=operations), run) for name, run in runs.items()
    ]


def cpu_seconds(server: Servers) -> tuple[float, float]:
    """Return the CPU time so far of servers' main threads, and of this process and its children.

    Only children that have ended are included.
    """
    own, children = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    used = [resource.getrusage(process) for process in (own, children)]
    clients = sum(each.ru_utime + each.ru_stime for each in used)
    servers = [server] if isinstance(server, psutil.Process) else server or ()
    return sum(map(server_seconds, servers)), clients


def server_seconds(server: psutil.Process) -> float:
    """Return the CPU time of a server's main thread so far.

    Linux reports nanoseconds; psutil has clock ticks of 10 ms, the duration of 10,000 commands.
    """
    try:
        return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return float(sum(server.cpu_times()[:2]))


def time_once(run: Contender, server: Servers = None) -> Timed:
    """Time a contender once; return the time, with the CPU times if a server is given."""
    gc.collect()  # the garbage of the previous contender
    before = cpu_seconds(server)
    start = perf_counter()
    taken = run()
    seconds = perf_counter() - start
    after = cpu_seconds(server)
    details: dict[str, Any] = {}
    if server is not None:
        details = {"server_cpu": after[0] - before[0], "client_cpu": after[1] - before[1]}
    if isinstance(taken, Timed):
        return Timed(taken.value, details | taken.details)
    return Timed(taken if isinstance(taken, float) else seconds, details)


def measure(
    contenders: Iterable[Entry],
    rounds: int,
    server: Servers = None,
    *,
    before: Callable[[Result], object] = lambda result: None,
    after: Callable[[Result], object] = lambda result: None,
    warm_up: bool = True,
) -> list[Result]:
    """Time contenders in turn, round by round, after a warm-up round; return their rows.

    A contender that raises ``NotAvailable`` is left out from then on.

    Args:
        contenders: with the rows to add to.
        rounds: number of values for each row.
        server: the server, or the nodes of a cluster, for the CPU time.
        before: called before each contender with its row, untimed.
        after: called after each contender with its row, untimed, to check its work.
        warm_up: whether there is a warm-up round.
    """
    contenders = [*contenders]
    for number in range(0 if warm_up else 1, rounds + 1):
        for result, run in contenders:
            if isinstance(run, str):
                result.reason = run
            if result.reason:
                continue
            show(f"{result.table}, round {number} of {rounds}: {result.row} {result.parser}")
            before(result)
            try:
                value, details = time_once(run, server)
            except NotAvailable as error:
                result.leave_out(str(error))
            else:
                if number:
                    result.add(value, **{"round": number} | details)
                after(result)
    show("")
    return [result for result, _ in contenders]


def repeated(work: Callable[[], object], operations: int) -> Callable[[], float]:
    """Return a contender that repeats its work for ``TURN_S`` and returns the time per operation.

    Args:
        work: the timed function.
        operations: number of operations in one call of ``work``.
    """
    loops = 0

    def run() -> float:
        nonlocal loops
        if not loops:
            work()  # fills the caches
            start = perf_counter()
            work()
            loops = ceil(TURN_S / (perf_counter() - start))
        start = perf_counter()
        for _ in range(loops):
            work()
        return (perf_counter() - start) / loops / operations

    return run


def need(found: object, expected: object, what: str) -> None:
    """End the program unless two values are equal."""
    if found != expected:
        sys.exit(f"{what}: {found!r:.200} instead of {expected!r:.200}")


def show(text: str) -> None:
    """Show the running contender, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)
