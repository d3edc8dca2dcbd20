"""A script that adds numbers, rows for it, and a client that flushes the server's scripts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from fastresp import Script
from fastresp.server.local_server import LocalServer

ADD = Script("return redis.call('HINCRBY', KEYS[1], 'n', ARGV[1])")
ROWS = 200_000
KEYS = 20_000


@contextmanager
def flushing(server: LocalServer, pause: float = 0.01) -> Iterator[list[int]]:
    """Run a second client that flushes all scripts repeatedly; yield the count of flushes."""
    done = threading.Event()
    count = [0]

    def flush() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not done.wait(pause):
                client.script_flush()
                count[0] += 1

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield count
    finally:
        done.set()
        thread.join()


def sums(client: redis.Redis) -> list[int]:
    """Return the sum in each key."""
    pipeline = client.pipeline(transaction=False)
    for i in range(KEYS):
        pipeline.hget(f"u:{i}", "n")
    return [int(n) for n in pipeline.execute()]


def expected(rows: int = ROWS) -> list[int]:
    found = [0] * KEYS
    for i in range(rows):
        found[i % KEYS] += 1 + i
    return found


def data(rows: int = ROWS) -> Iterator[dict[str, int]]:
    """Yield rows that each add a different number."""
    return ({"id": i % KEYS, "n": 1 + i} for i in range(rows))
