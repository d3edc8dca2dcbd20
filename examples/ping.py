"""Ten thousand pings, with and without a pipeline.

Shows what waiting for each reply costs, and what is left when nobody waits:

- redis-py one by one: each ping waits for the answer to the one before it;
- redis-py's pipeline: all are sent, then all answers are read;
- fastresp.execute: answers are read while pings are still being sent, and none of them is held.

Run it with a server on this machine, or with another in REDIS_URL:

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


def by_execute() -> int:
    pings = repeat(("PING",), PINGS)
    return sum(reply == b"PONG" for reply in fastresp.iter_replies(pings, server=URL))


def timed(name: str, ping: Callable[[], int]) -> None:
    """Print how long the pings took; all of them have to be answered."""
    start = time.perf_counter()
    answered = ping()
    seconds = time.perf_counter() - start
    if answered != PINGS:
        raise SystemExit(f"{name}: {answered:,} of {PINGS:,} pings were answered")
    print(f"{name:21} {seconds:7.3f} s {PINGS / seconds:11,.0f} pings/s")


def main() -> None:
    with redis.Redis.from_url(URL) as client:
        client.ping()  # connected now
        timed("redis-py, one by one", lambda: one_by_one(client))
        timed("redis-py, pipeline", lambda: in_a_pipeline(client))
    timed("fastresp.execute", by_execute)


if __name__ == "__main__":
    main()
