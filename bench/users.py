"""Time to read 10,000 users back, an HMGET of 5 fields each, from a real server on a unix socket.

- ``redis-py``: a pipeline with hiredis, RESP2, lists of bytes;
- ``iter_replies``: ``fastresp.iter_replies``, the same lists;
- ``columns``: ``fastresp.fetch_hashes`` with a list of keys, Arrow columns of text;
- ``pattern``: the same with the pattern ``user:{id}``, which adds a column of ids.

The contenders take turns within a round, after a warm-up round. A value is the time to read all
users. It includes connecting, except for redis-py, which stays connected. The results are compared
once. The server's CPU time is a lower bound for all contenders.

    python bench/users.py -o users.json
    python bench/users.py --fast
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pyarrow as pa
from redis_py_client import redis_py
from results import Result
from turns import arguments, finish, measure

from fastresp import fetch_hashes, iter_replies, mass_insert
from fastresp.server.local_server import LocalServer

COUNT = 10_000
BASE = "redis-py"
FIELDS = ["name", "email", "city", "age", "joined"]
KEYS = [f"user:{index}" for index in range(COUNT)]

Run = Callable[[], Any]


def load(url: str) -> None:
    """Store the users."""
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


def contenders(server: LocalServer) -> dict[str, Run]:
    client, url = redis_py(server.socket, "HiredisParser"), server.url
    command = "HMGET {0} " + " ".join(FIELDS)

    def by_redis_py() -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for key in KEYS:
            pipeline.hmget(key, FIELDS)
        return pipeline.execute()

    return {
        BASE: by_redis_py,
        "iter_replies": lambda: list(iter_replies(KEYS, command, server=url)),
        "columns": lambda: pa.table(fetch_hashes(KEYS, FIELDS, server=url)),
        "pattern": lambda: pa.table(fetch_hashes("user:{id}", FIELDS, server=url)),
    }


def check(runs: dict[str, Run]) -> None:
    """End the program unless all contenders read the same."""
    expected = runs[BASE]()
    columns, found = runs["columns"](), runs["pattern"]()
    order = sorted(range(COUNT), key=lambda index: int(found["id"][index].as_py()))
    rows = [[value.decode() for value in row] for row in expected]
    for table in (columns, found.take(order).select(FIELDS)):
        if [list(row.values()) for row in table.to_pylist()] != rows:
            raise SystemExit("the columns differ from redis-py's results")
    if runs["iter_replies"]() != expected:
        raise SystemExit("the results of iter_replies differ from redis-py's")


def main() -> None:
    """Measure, print the table, write the results."""
    _, parsed = arguments(__doc__.splitlines()[0], rounds=50, fast_rounds=10)
    args = parsed()
    with LocalServer() as server:
        load(server.url)
        runs = contenders(server)
        check(runs)
        made = [(Result("users", name, "", COUNT), run) for name, run in runs.items()]
        measure(made, args.rounds, psutil.Process(server.process.pid))
    finish([result for result, _ in made], args.output)


if __name__ == "__main__":
    main()
