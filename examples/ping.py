"""Send 10,000 PINGs, with and without a pipeline.

Shows what waiting for each reply costs:

- redis-py, one by one: each PING waits for the previous reply;
- redis-py, pipeline: sends all PINGs, then reads all replies;
- fastresp.iter_replies: reads replies while it sends PINGs, and discards them.

Run it with a server on this machine, or set REDIS_URL:

    python examples/ping.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import repeat

import redis

import fastresp

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")
PINGS = 10_000


def one_by_one(client: redis.Redis) -> int:
    return sum(client.ping() is True for _ in range(PINGS))


def in_a_pipeline(client: redis.Redis) -> int:
    pipeline = client.pipeline(transaction=False)
    for _ in range(PINGS):
        pipeline.ping()
    return pipeline.execute().count(True)


def by_iter_replies() -> int:
    pings = repeat(("PING",), PINGS)
    return sum(reply == b"PONG" for reply in fastresp.iter_replies(pings, server=URL))


def timed(name: str, ping: Callable[[], int]) -> None:
    """Print the time of the PINGs; exit if one was not answered."""
    start = time.perf_counter()
    answered = ping()
    seconds = time.perf_counter() - start
    if answered != PINGS:
        raise SystemExit(f"{name}: {answered:,} of {PINGS:,} PINGs were answered")
    print(f"{name:21} {seconds:7.3f} s {PINGS / seconds:11,.0f} PINGs/s")


def main() -> None:
    with redis.Redis.from_url(URL) as client:
        client.ping()  # connect before the measurement
        timed("redis-py, one by one", lambda: one_by_one(client))
        timed("redis-py, pipeline", lambda: in_a_pipeline(client))
    timed("fastresp.iter_replies", by_iter_replies)


if __name__ == "__main__":
    main()
