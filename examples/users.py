"""Write 10,000 users (a list of ids, and a hash per user), read them back, and delete them.

Shows the same four steps with a redis-py pipeline, with fastresp from rows (dicts), and with
fastresp from columns (an Arrow table), with the time of each step. The data read back is compared
with the data written. The keys begin with "example:", and are deleted at the end.

It needs pyarrow. Run it with a server on this machine, or set REDIS_URL:

    pip install 'fastresp[files]'
    python examples/users.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import redis

import fastresp

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")
USERS = [
    {"id": str(number), "name": f"User {number}", "email": f"user{number}@example.org"}
    for number in range(10_000)
]


class Way(Protocol):
    """One way to do the four steps."""

    def create(self) -> object: ...
    def update(self) -> object: ...
    def retrieve(self) -> Any: ...
    def delete(self) -> object: ...


class Pipeline:
    """redis-py: one pipeline per step."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.pipeline = client.pipeline(transaction=False)

    def create(self) -> None:
        for user in USERS:
            self.pipeline.rpush("example:users", user["id"])
        self.pipeline.execute()

    def update(self) -> None:
        for user in USERS:
            self.pipeline.hset(f"example:user:{user['id']}", mapping=user)
        self.pipeline.execute()

    def retrieve(self) -> list[dict[str, str]]:
        for number in self.client.lrange("example:users", 0, -1):
            self.pipeline.hgetall(f"example:user:{number}")
        return self.pipeline.execute()

    def delete(self) -> None:
        for user in USERS:
            self.pipeline.unlink(f"example:user:{user['id']}")
        self.pipeline.unlink("example:users")
        self.pipeline.execute()


class Rows:
    """fastresp with rows: a dict per user."""

    data: Any = USERS

    def insert(self, data: Any, template: str) -> None:
        fastresp.mass_insert(data, template, server=URL, transport="socket")

    def ids(self) -> list[str]:
        return fastresp.execute("LRANGE", "example:users", 0, -1, server=URL, decode=True)

    def create(self) -> None:
        self.insert(self.data, "RPUSH example:users {id}")

    def update(self) -> None:
        self.insert(self.data, "HSET example:user:{id} id {id} {**}")

    def retrieve(self) -> Any:
        replies = fastresp.iter_replies(
            self.ids(), "HGETALL example:user:{0}", server=URL, decode=True
        )
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies]

    def delete(self) -> None:
        self.insert(self.data, "UNLINK example:user:{id}")
        self.insert(["example:users"], "UNLINK {0}")


class Columns(Rows):
    """fastresp with columns: the same code, but Arrow data in and out."""

    data = pa.Table.from_pylist(USERS)

    def retrieve(self) -> pa.Table:
        keys = [f"example:user:{number}" for number in self.ids()]
        return pa.table(fastresp.fetch_hashes(keys, self.data.column_names, server=URL))


def timed(way: Way) -> Iterator[float]:
    """Yield the time of each step, in seconds."""
    way.delete()  # remove the keys of an aborted run
    for step in (way.create, way.update, way.retrieve, way.delete):
        start = time.perf_counter()
        result = step()
        yield time.perf_counter() - start
        if step == way.retrieve:
            users = result.to_pylist() if isinstance(result, pa.Table) else result
            if users != USERS:
                raise SystemExit(f"{type(way).__name__}: the users read back are different")


def main() -> None:
    print(f"{len(USERS):,} users, seconds:")
    print(f"{'':18}" + "".join(f"{step:>9}" for step in ("create", "update", "retrieve", "delete")))
    with redis.Redis.from_url(URL, decode_responses=True) as client:
        ways: dict[str, Way] = {
            "redis-py, pipeline": Pipeline(client),
            "fastresp, rows": Rows(),
            "fastresp, columns": Columns(),
        }
        for name, way in ways.items():
            print(f"{name:18}" + "".join(f"{seconds:9.3f}" for seconds in timed(way)))
        print(f"Keys left: {client.exists('example:users', 'example:user:0')}")


if __name__ == "__main__":
    main()
