"""What the tests of engines share: frames, what they load, and tasks that end in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pandas as pd
import redis

# All rows of these tests add up to one number, which shows a row that ran twice, or not at all.
INCREMENT = "INCRBY total {id}"
HASH = "HSET user:{id} {**}"


def frame(rows: int) -> pd.DataFrame:
    """Return a frame whose rows differ."""
    ids = np.arange(1, rows + 1)
    return pd.DataFrame({"id": ids, "name": [f"name {i}" for i in ids], "score": ids / 2})


def total_of(rows: int) -> int:
    """Return what ``INCREMENT`` adds up to."""
    return rows * (rows + 1) // 2


def check_hashes(client: redis.Redis, rows: int) -> None:
    """Check that the rows of ``frame()`` were loaded by ``HASH``: how many, and some of them."""
    assert client.dbsize() == rows
    for i in {1, 2, rows // 2, rows - 1, rows, *np.random.default_rng(rows).integers(1, rows, 200)}:
        expected = {b"name": b"name %d" % i, b"score": str(i / 2).encode()}
        assert client.hgetall(f"user:{i}") == expected


def total(client: redis.Redis) -> int:
    """Return what has been added up so far."""
    return int(client.get("total") or 0)


@contextmanager
def killing(client: redis.Redis, least: int, pid_of: Callable[[], int]) -> Iterator[list[int]]:
    """Kill a process with SIGKILL as soon as so much has been added up.

    Args:
        pid_of: returns the process.

    Yields:
        A list that has its pid when it is killed.
    """
    killed: list[int] = []
    ended = Event()

    def wait() -> None:
        while not ended.wait(0.005):
            if total(client) >= least:
                killed.append(pid_of())
                os.kill(killed[0], signal.SIGKILL)
                return

    thread = Thread(target=wait)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()
