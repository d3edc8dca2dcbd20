"""Gains of ``fastresp.redis_py``: in packing a pipeline of redis-py, and in executing it.

The work is a pipeline of 10,000 SETs with distinct keys and values of 129 bytes: ``pack_commands``
alone, and ``execute()`` with a real server on a unix socket, sync and asyncio. The packers are
redis-py's in Python, redis-py's with hiredis, and fastresp's; hiredis always parses the replies.
The contenders take turns within a round; a value is the time of one call.

    python bench/redis_py.py -o redis_py.json
    python bench/redis_py.py --fast
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import redis
import redis.asyncio
from common import commands
from redis.connection import PythonRespSerializer
from results import Result
from turns import Contender, arguments, finish, measure

from fastresp.redis_py import speed_up
from fastresp.server.local_server import LocalServer

COUNT = 10_000
OURS = "fastresp"


def python_packer() -> PythonRespSerializer:
    """Return redis-py's own packer, which it uses without hiredis."""
    connection = redis.Connection()
    return PythonRespSerializer(connection._buffer_cutoff, connection.encoder.encode)


def clients(url: str) -> dict[str, Any]:
    """Return a connected client for each packer."""
    made: dict[str, Any] = {
        "redis-py, Python": redis.Redis.from_url(url, command_packer=python_packer()),
        "redis-py, hiredis": redis.Redis.from_url(url),
        OURS: speed_up(redis.Redis.from_url(url)),
    }
    for client in made.values():
        client.ping()
    return made


def packing(client: Any) -> Contender:
    ready = commands("SET", COUNT)
    connection = client.connection_pool.get_connection()
    return lambda: connection.pack_commands(ready)


def executing(client: Any, loop: asyncio.AbstractEventLoop) -> Contender:
    pipeline = client.pipeline(transaction=False)

    def run() -> float:
        # execute() empties the pipeline; refilling it is not timed.
        for _, key, value in commands("SET", COUNT):
            pipeline.set(key, value)
        start = perf_counter()
        replies = pipeline.execute()
        if not isinstance(replies, list):
            replies = loop.run_until_complete(replies)
        taken = perf_counter() - start
        assert len(replies) == COUNT
        return taken

    return run


def compare(
    part: str, make: Callable[[Any], Contender], clients: dict[str, Any], rounds: int
) -> list[Result]:
    """Time the clients in turn."""
    made = [
        (Result("redis_py", f"{part}, {name}", "", COUNT), make(client))
        for name, client in clients.items()
    ]
    measure(made, rounds)
    return [result for result, _ in made]


def main() -> None:
    """Measure, print the tables, write the results."""
    _, parsed = arguments(__doc__.splitlines()[0], rounds=50, fast_rounds=10)
    args = parsed()
    loop = asyncio.new_event_loop()

    def execute(client: Any) -> Contender:
        return executing(client, loop)

    with LocalServer() as server:
        sync = clients(server.url)
        asynchronous = {
            "redis-py, Python": redis.asyncio.Redis.from_url(server.url),
            OURS: speed_up(redis.asyncio.Redis.from_url(server.url)),
        }
        results = [
            *compare("pack_commands", packing, sync, args.rounds),
            *compare("execute", execute, sync, args.rounds),
            *compare("execute in asyncio", execute, asynchronous, args.rounds),
        ]
        for client in asynchronous.values():
            loop.run_until_complete(client.aclose())
    loop.close()
    finish(results, args.output)


if __name__ == "__main__":
    main()
