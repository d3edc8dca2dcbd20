"""Keep a server and its clients on one core or two, and measure the servers' CPU times.

A client that waits for each reply needs two wake-ups per command. Waking another core takes 1 µs if
the core still polls for work, and 100 µs if it sleeps. (In a virtual machine with haltpoll, a core
polls for at most 200 µs.) So the rate of the same loop varies between 5,000 and 25,000 commands per
second. On one core, no other core must wake up, and nothing is lost, because client and server
never work at the same time. So all contenders that send one command at a time are measured on one
core. Contenders that write while the server works need two cores, and are not pinned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeAlias

import psutil
from turns import server_seconds

# The core of each process, 0 for this one; empty where the system has no such call (macOS).
Places: TypeAlias = Mapping[int, int]


def one_core(server: int) -> AbstractContextManager[Places]:
    """Keep a server, by its process ID, and this process with its later children on one core.

    Does nothing on systems that can't pin processes to cores (macOS).
    """
    core = min(_cores())
    return _kept({0: core, server: core})


def apart(*servers: int) -> AbstractContextManager[Places]:
    """Keep this process, with its later children, on the last core, and servers on the others.

    Args:
        servers: process IDs. On a machine with two cores, all servers share the first core.
    """
    cores = sorted(_cores())
    others = cores[:-1] or cores
    places = {pid: others[number % len(others)] for number, pid in enumerate(servers)}
    return _kept({0: cores[-1]} | places)


class CpuTimes:
    """The CPU times of the main threads of servers since its creation."""

    def __init__(self, pids: Sequence[int], places: Places) -> None:
        self._places = places
        processes = [psutil.Process(pid) for pid in pids]
        self._before = {process: server_seconds(process) for process in processes}

    def since(self) -> dict[str, float]:
        """Return CPU seconds: of the slowest server, of the busiest core's servers, and of all."""
        used = {each.pid: server_seconds(each) - then for each, then in self._before.items()}
        cores: dict[int, float] = {}
        for pid, seconds in used.items():
            core = self._places.get(pid, -pid)
            cores[core] = cores.get(core, 0.0) + seconds
        busiest, slowest = max(cores.values()), max(used.values())
        return {"server_cpu": busiest, "node_cpu": slowest, "all_cpu": sum(used.values())}


def _cores() -> set[int]:
    """Return the cores that this process may use; ``{0}`` on systems that do not report them."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


@contextmanager
def _kept(places: Places) -> Iterator[Places]:
    """Keep processes on cores, and release them afterwards."""
    if not hasattr(os, "sched_setaffinity"):
        yield {}
        return
    before = {pid: os.sched_getaffinity(pid) for pid in places}
    try:
        for pid, core in places.items():
            os.sched_setaffinity(pid, {core})
        yield places
    finally:
        for pid, cores in before.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, cores)
