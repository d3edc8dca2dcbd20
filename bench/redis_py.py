"""Gains of ``fastresp.redis_py``: in packing a pipeline of redis-py, and in executing it.

The packers are redis-py's in Python, redis-py's with hiredis, and fastresp's; hiredis always parses
the replies.
"""

from __future__ import annotations

import argparse
import asyncio
from time import perf_counter
from typing import Any

import redis
import redis.asyncio
from commands import commands
from results import Result
from script import run_script
from servers import python_packer, running
from turns import Contender, entries, measure

from fastresp.redis_py import speed_up

COUNT = 10_000
OURS = "fastresp"


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


def compare(args: argparse.Namespace) -> list[Result]:
    loop = asyncio.new_event_loop()
    with running() as server:
        url = server.url
        sync: dict[str, Any] = {
            "redis-py, Python": redis.Redis.from_url(url, command_packer=python_packer()),
            "redis-py, hiredis": redis.Redis.from_url(url),
            OURS: speed_up(redis.Redis.from_url(url)),
        }
        for client in sync.values():
            client.ping()
        in_asyncio: dict[str, Any] = {
            "redis-py, Python": redis.asyncio.Redis.from_url(url),
            OURS: speed_up(redis.asyncio.Redis.from_url(url)),
        }
        made = []
        for part, clients in (
            ("pack_commands", sync),
            ("execute", sync),
            ("execute in asyncio", in_asyncio),
        ):
            runs = {
                name: packing(client) if part == "pack_commands" else executing(client, loop)
                for name, client in clients.items()
            }
            made += measure(entries("redis_py", runs, COUNT, prefix=f"{part}, "), args.rounds)
        for client in in_asyncio.values():
            loop.run_until_complete(client.aclose())
    loop.close()
    return made


if __name__ == "__main__":
    run_script(__doc__, compare, 50, 10)
