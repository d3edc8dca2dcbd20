"""One core for a server and its clients, or two; and what tells of the state of a value.

A command that is waited for takes two wake-ups. From one core to another a wake-up takes a
microsecond if that core still polls for work, and 100 if it sleeps (under Linux's haltpoll, in a
virtual machine, it polls for 200 µs at most): the same loop does 5,000 commands a second, or 25,000
for a while. On one core nothing has to be woken, and one command after another is all there is to
do anyway: what is left is the work of both. So all contenders that go one by one are measured on
one core. Those that write while the server works need two, and are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeAlias

import psutil
from results import Result
from turns import Contender, take

__all__ = ["one_core", "take_noted", "two_cores"]

Choose: TypeAlias = Callable[[set[int]], int]


def one_core(server: int) -> AbstractContextManager[None]:
    """Keep a server and this process, with what it starts meanwhile, on one core.

    Args:
        server: its process id; the thread of that number is what works in it.

    Where a system has no such call (macOS), nothing is done.
    """
    return _kept(server, min, min)


def two_cores(server: int) -> AbstractContextManager[None]:
    """Keep a server on one core, and this process, with what it starts, on another."""
    return _kept(server, min, max)


@contextmanager
def _kept(server: int, its: Choose, ours: Choose) -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = {pid: os.sched_getaffinity(pid) for pid in (0, server)}
    try:
        os.sched_setaffinity(0, {ours(before[0])})
        os.sched_setaffinity(server, {its(before[0])})
        yield
    finally:
        for pid, cores in before.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, cores)


def take_noted(
    result: Result, run: Contender, server: psutil.Process, keep: bool = True, **details: Any
) -> float:
    """Do as ``turns.take()``, and note what tells of the state.

    That is how often the server gave its core away by itself (``voluntary``: it waited), how often
    it was taken from it (``involuntary``), and the load of the machine, of one minute.
    """
    before = _switches(server)
    taken = take(result, run, server, keep, **details)
    if keep:
        named = zip(("voluntary", "involuntary"), before, _switches(server), strict=True)
        result.details[-1] |= {name: after - first for name, first, after in named}
        result.details[-1]["load"] = os.getloadavg()[0]
    return taken


def _switches(server: psutil.Process) -> tuple[int, int]:
    switches = server.num_ctx_switches()
    return switches.voluntary, switches.involuntary
