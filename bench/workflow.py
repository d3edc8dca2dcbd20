"""The workflow of a post of 2012: 10,000 users created, updated, retrieved and deleted.

- ``004 create``: the id of each is pushed onto a list;
- ``004 update``: a hash for each is written with id, name and email;
- ``004 retrieve``: the ids are read from the list, then each hash, into Python's memory;
- ``004 cleanup``: the hashes and the list are deleted.

``naive`` is redis-py, one command at a time, ``pipelined`` one pipeline for each step, both with
hiredis. ``fastresp rows`` loads and reads dicts; ``fastresp columns`` loads and reads an Arrow
table (``fetch_hashes``). The contenders take turns, step by step; a value is the time of a step.
The server and all contenders share one core (``cores.py`` says why). The post repeats each step 7
times and reports the best; we do the same, and keep all values. After each step its result is
checked, untimed.

    python bench/workflow.py -o workflow.json        # about 1 minute
    python bench/workflow.py --fast --users 1000
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import psutil
import pyarrow as pa
from cores import one_core
from redis_py_client import redis_py
from results import Result
from turns import arguments, finish, show, take

import fastresp
from fastresp.server.local_server import LocalServer

USERS = 10_000
LIST = "users"
FIELDS = ["id", "name", "email"]
STEPS = ("create", "update", "retrieve", "cleanup")

User = dict[str, str]


def made(count: int) -> list[User]:
    return [
        {"id": str(number), "name": f"User {number}", "email": f"user{number}@example.org"}
        for number in range(count)
    ]


def decoded(users: list[dict[bytes, bytes]]) -> list[User]:
    """Decode the replies that redis-py returns."""
    return [{name.decode(): value.decode() for name, value in user.items()} for user in users]


class Naive:
    """redis-py, one command at a time."""

    def __init__(self, server: LocalServer, users: list[User]) -> None:
        self.client: Any = redis_py(server.socket, "HiredisParser")
        self.users = users

    def create(self) -> None:
        for user in self.users:
            self.client.rpush(LIST, user["id"])

    def update(self) -> None:
        for user in self.users:
            self.client.hset(f"user:{user['id']}", mapping=user)

    def retrieve(self) -> Any:
        ids = self.client.lrange(LIST, 0, -1)
        return [self.client.hgetall(f"user:{number.decode()}") for number in ids]

    def cleanup(self) -> None:
        for user in self.users:
            self.client.delete(f"user:{user['id']}")
        self.client.delete(LIST)

    def as_users(self, got: Any) -> list[User]:
        """Return the retrieved data in the form in which it was written."""
        return decoded(got)


class Pipelined(Naive):
    """redis-py, a pipeline for each step."""

    def create(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for user in self.users:
            pipeline.rpush(LIST, user["id"])
        pipeline.execute()

    def update(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for user in self.users:
            pipeline.hset(f"user:{user['id']}", mapping=user)
        pipeline.execute()

    def retrieve(self) -> Any:
        pipeline = self.client.pipeline(transaction=False)
        for number in self.client.lrange(LIST, 0, -1):
            pipeline.hgetall(f"user:{number.decode()}")
        return pipeline.execute()

    def cleanup(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for user in self.users:
            pipeline.delete(f"user:{user['id']}")
        pipeline.delete(LIST)
        pipeline.execute()


class Rows:
    """fastresp, a dict for each user."""

    def __init__(self, server: LocalServer, users: list[User]) -> None:
        self.url = server.url
        self.data: Any = users

    def insert(self, data: Any, template: str) -> None:
        fastresp.mass_insert(data, template, server=self.url, transport="socket")

    def ids(self) -> list[str]:
        return fastresp.execute("LRANGE", LIST, 0, -1, server=self.url, decode=True)

    def create(self) -> None:
        self.insert(self.data, f"RPUSH {LIST} {{id}}")

    def update(self) -> None:
        self.insert(self.data, "HSET user:{id} id {id} {**}")

    def retrieve(self) -> Any:
        replies = fastresp.iter_replies(
            self.ids(), "HGETALL user:{0}", server=self.url, decode=True
        )
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies]

    def cleanup(self) -> None:
        self.insert(self.data, "DEL user:{id}")
        self.insert([LIST], "DEL {0}")

    def as_users(self, got: Any) -> list[User]:
        return got


class Columns(Rows):
    """fastresp, a column for each field."""

    def __init__(self, server: LocalServer, users: list[User]) -> None:
        super().__init__(server, users)
        self.data = pa.Table.from_pylist(users)

    def retrieve(self) -> Any:
        keys = [f"user:{number}" for number in self.ids()]
        return pa.table(fastresp.fetch_hashes(keys, FIELDS, server=self.url))

    def as_users(self, got: Any) -> list[User]:
        return got.to_pylist()


class Check:
    """End the program unless a step did its work."""

    def __init__(self, server: LocalServer, users: list[User]) -> None:
        self.client: Any = redis_py(server.socket, "HiredisParser")
        self.users = users

    def __call__(self, step: str, way: Naive | Rows, name: str, got: Any) -> None:
        ids = [user["id"] for user in self.users]
        good = {
            "create": lambda: [each.decode() for each in self.client.lrange(LIST, 0, -1)] == ids,
            "update": lambda: self.hashes() == self.users,
            "retrieve": lambda: way.as_users(got) == self.users,
            "cleanup": lambda: self.client.dbsize() == 0,
        }[step]()
        if not good:
            sys.exit(f"{step}, {name}: the data differs from the expected data")

    def hashes(self) -> list[User]:
        pipeline = self.client.pipeline(transaction=False)
        for user in self.users:
            pipeline.hgetall(f"user:{user['id']}")
        return decoded(pipeline.execute())


def keeping(step: Callable[[], Any], got: list[Any]) -> Callable[[], None]:
    """Return a step that appends its result to a list, for checking after the timing."""
    return lambda: got.append(step())


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=9, fast_rounds=3)
    parser.add_argument("--users", type=int, default=USERS, help="number of users")
    args = parsed()
    if args.users < 1:
        parser.error("--users must be 1 or more")
    users = made(args.users)
    kinds: dict[tuple[str, str], Callable[[LocalServer, list[User]], Naive | Rows]] = {
        ("naive", "hiredis"): Naive,
        ("pipelined", "hiredis"): Pipelined,
        ("fastresp rows", ""): Rows,
        ("fastresp columns", ""): Columns,
    }
    results = {
        (step, row): Result(f"004 {step}", row[0], row[1], args.users)
        for step in STEPS
        for row in kinds
    }
    with LocalServer() as server:
        process = psutil.Process(server.process.pid)
        check = Check(server, users)
        ways = {row: kind(server, users) for row, kind in kinds.items()}
        turns = [(row, step) for row in ways for step in STEPS]
        with one_core(process.pid):
            for number, (row, step) in product(range(args.rounds + 1), turns):
                show(f"round {number} of {args.rounds}: {step}, {row[0]}")
                got: list[Any] = []
                run = keeping(getattr(ways[row], step), got)
                take(results[step, row], run, process, keep=number > 0)
                check(step, ways[row], row[0], *got)
    show("")
    finish(list(results.values()), args.output)


if __name__ == "__main__":
    main()
