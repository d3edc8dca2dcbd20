"""Shared by the tests of engines: frames, their loaded rows, and tasks that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pandas as pd
import redis

# All rows of these tests add up to one number, which shows a duplicate or missing row.
INCREMENT = "INCRBY total {id}"
HASH = "HSET user:{id} {**}"


def frame(rows: int) -> pd.DataFrame:
    """Return a frame of distinct rows."""
    ids = np.arange(1, rows + 1)
    return pd.DataFrame({"id": ids, "name": [f"name {i}" for i in ids], "score": ids / 2})


def total_of(rows: int) -> int:
    """Return the sum added by ``INCREMENT``."""
    return rows * (rows + 1) // 2


def check_hashes(client: redis.Redis, rows: int) -> None:
    """Check that ``HASH`` loaded the rows of ``frame()``: their number, and some of them."""
    assert client.dbsize() == rows
    for i in {1, 2, rows // 2, rows - 1, rows, *np.random.default_rng(rows).integers(1, rows, 200)}:
        expected = {b"name": b"name %d" % i, b"score": str(i / 2).encode()}
        assert client.hgetall(f"user:{i}") == expected


def total(client: redis.Redis) -> int:
    """Return the sum so far."""
    return int(client.get("total") or 0)


def loader_of(client: redis.Redis) -> int | None:
    """Return the process of a task that has loaded a part of its rows; None if there is none.

    The task belongs to the job ``killed``, on one server.
    """
    for key in client.keys("fastresp:{killed:*}"):
        rows = int(client.get(key + b":row") or 0)
        loader, ended = client.hmget(key, "loader", "ended")
        if rows and not ended and loader is not None:
            return int(loader.rpartition(b" ")[2])
    return None


@contextmanager
def killing(
    client: redis.Redis, least: int, pid_of: Callable[[], int | None] | None = None
) -> Iterator[list[int]]:
    """Kill a process with SIGKILL when the sum has reached ``least``.

    Args:
        pid_of: returns the process, or None to wait. The default is ``loader_of()``.

    Yields:
        A list, which contains the pid once the process is killed.
    """
    killed: list[int] = []
    ended = Event()

    def wait() -> None:
        while not ended.wait(0.005):
            if total(client) < least:
                continue
            process = loader_of(client) if pid_of is None else pid_of()
            if process is not None:
                killed.append(process)
                os.kill(process, signal.SIGKILL)
                return

    thread = Thread(target=wait)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()
