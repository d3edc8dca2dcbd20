"""Keep a server and its clients on one core or two, and note the state of the machine.

A client that waits for each reply needs two wake-ups per command. Waking another core takes a
microsecond if it still polls for work, and 100 if it sleeps (under Linux's haltpoll, in a virtual
machine, it polls for at most 200 µs): the same loop does 5,000 commands per second, or 25,000 for
a while. On one core there is nothing to wake up, and since client and server never work at the same
time, nothing is lost. So all contenders that send one command at a time are measured on one core.
Those that write while the server works need two, and are left alone.
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
        server: its process id, which is that of its main thread.

    It does nothing on systems without such a call (macOS).
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
    """Do the same as ``turns.take()``, and note the state of the machine.

    That is how often the server gave up its core to wait (``voluntary``), how often it lost it
    (``involuntary``), and the machine's load over one minute.
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
