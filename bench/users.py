"""Time to read 10,000 users back, an HMGET of 5 fields each, from a real server on a unix socket.

The times of fastresp include connecting; redis-py stays connected.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from results import Result
from script import run_script
from servers import Server, running
from turns import entries, measure

from fastresp import fetch_hashes, iter_replies, mass_insert

COUNT = 10_000
BASE = "redis-py"
FIELDS = ["name", "email", "city", "age", "joined"]
KEYS = [f"user:{index}" for index in range(COUNT)]


def load(url: str) -> None:
    rows = (
        {
            "id": index,
            "name": f"customer {index:08}",
            "email": f"customer{index}@example.com",
            "city": ("Oslo", "Lima", "Kyoto", "Nairobi", "Quito")[index % 5],
            "age": 18 + index % 80,
            "joined": f"2024-{index % 12 + 1:02}-{index % 28 + 1:02}T12:00:00+00:00",
        }
        for index in range(COUNT)
    )
    mass_insert(rows, "HSET user:{id} {**}", server=url, transport="socket")


def contenders(server: Server) -> dict[str, Callable[[], Any]]:
    url = server.url
    command = "HMGET {0} " + " ".join(FIELDS)

    def by_redis_py() -> list[Any]:
        pipeline = server.client.pipeline(transaction=False)
        for key in KEYS:
            pipeline.hmget(key, FIELDS)
        return pipeline.execute()

    return {
        BASE: by_redis_py,
        "iter_replies": lambda: list(iter_replies(KEYS, command, server=url)),
        "columns": lambda: pa.table(fetch_hashes(KEYS, FIELDS, server=url)),
        "pattern": lambda: pa.table(fetch_hashes("user:{id}", FIELDS, server=url)),
    }


def check(runs: dict[str, Callable[[], Any]]) -> None:
    expected = runs[BASE]()
    columns, found = runs["columns"](), runs["pattern"]()
    order = sorted(range(COUNT), key=lambda index: int(found["id"][index].as_py()))
    rows = [[value.decode() for value in row] for row in expected]
    for table in (columns, found.take(order).select(FIELDS)):
        if [list(row.values()) for row in table.to_pylist()] != rows:
            raise SystemExit("the columns differ from redis-py's results")
    if runs["iter_replies"]() != expected:
        raise SystemExit("the results of iter_replies differ from redis-py's")


def compare(args: argparse.Namespace) -> list[Result]:
    with running() as server:
        load(server.url)
        runs = contenders(server)
        check(runs)
        return measure(entries("users", runs, COUNT), args.rounds, server.process)


if __name__ == "__main__":
    run_script(__doc__, compare, 50, 10)
