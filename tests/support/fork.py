"""Sources and items that fork while they are read, and checks of the outcome."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import redis

import fastresp
import fastresp.aio

COUNT = 20_000
# When the first chunk, of 0.5 MiB, is in flight.
AFTER = 18_000
URL, FOLDER = sys.argv[2], Path(sys.argv[3])

T = TypeVar("T")


class Leaving(Exception):
    """Raised by the child to leave."""


class Fork:
    """Fork once, and wait for the child, which has 20 seconds to leave."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.parent = os.getpid()
        self.done = False

    def __call__(self, *arguments: object) -> None:
        if self.done:
            return
        self.done = True
        pid = os.fork()
        if pid:
            status = os.waitpid(pid, 0)[1]
            assert not os.WIFSIGNALED(status), f"the child hung: {status}"
            # A child that continues gets an error, unless it uses its own objects.
            assert self.how != "on" or os.waitstatus_to_exitcode(status) in (0, 7), status
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        if self.how == "exception":
            raise Leaving
        if self.how == "exit":
            sys.exit()
        if self.how == "at once":
            os._exit(0)


def commands(fork: Callable[[], None], key: str = "q") -> Iterator[tuple[Any, ...]]:
    for i in range(COUNT):
        if i == AFTER:
            fork()
        yield ("RPUSH", key, i)


def items(fork: Callable[[], None]) -> Iterator[str]:
    for i in range(COUNT):
        if i == AFTER:
            fork()
        yield str(i)


def client() -> redis.Redis:
    return redis.Redis.from_url(URL)


def stored() -> bool:
    """Return whether each command ran once, in order."""
    with client() as asked:
        return asked.lrange("q", 0, -1) == [b"%d" % i for i in range(COUNT)]


def fill() -> list[bytes]:
    with client() as asked:
        asked.rpush("q", *range(COUNT))
    return [b"%d" % i for i in range(COUNT)]


def exact(report: fastresp.Report) -> bool:
    return (report.commands, report.replies, report.in_doubt, report.unsent) == (
        COUNT, COUNT, 0, 0,
    )  # fmt: skip


def in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run like asyncio.run(), in a loop that a child can leave without harm to the parent.

    With epoll, the child would unregister the parent's descriptors, because both share the epoll.
    """

    def make() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(selectors.PollSelector())

    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(coroutine)
