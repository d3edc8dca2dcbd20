"""The workflow of a post of 2012: 10,000 users created, updated, retrieved and deleted.

The post repeats each step 7 times and reports the best time. The server and all contenders share
one core (``cores.py`` says why). The result of each step is checked, untimed.
"""

from __future__ import annotations

import argparse
from typing import Any

import pyarrow as pa
from cores import one_core
from results import Result
from script import run_script
from servers import Server, running
from turns import Contender, Entry, measure, need

import fastresp

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


class RedisPy:
    """redis-py, one command at a time or with a pipeline for each step."""

    def __init__(self, server: Server, users: list[User], pipelined: bool = False) -> None:
        self.client = server.client
        self.users = users
        self.pipelined = pipelined

    def target(self) -> Any:
        return self.client.pipeline(transaction=False) if self.pipelined else self.client

    def create(self) -> None:
        target = self.target()
        for user in self.users:
            target.rpush(LIST, user["id"])
        self.end(target)

    def update(self) -> None:
        target = self.target()
        for user in self.users:
            target.hset(f"user:{user['id']}", mapping=user)
        self.end(target)

    def retrieve(self) -> Any:
        ids, target = self.client.lrange(LIST, 0, -1), self.target()
        got = [target.hgetall(f"user:{number.decode()}") for number in ids]
        return self.end(target) or got

    def cleanup(self) -> None:
        target = self.target()
        for user in self.users:
            target.delete(f"user:{user['id']}")
        target.delete(LIST)
        self.end(target)

    def end(self, target: Any) -> Any:
        return target.execute() if self.pipelined else None

    def as_users(self, got: list[dict[bytes, bytes]]) -> list[User]:
        """Return the retrieved data as the users that were written."""
        return [{name.decode(): value.decode() for name, value in user.items()} for user in got]


class Rows:
    """fastresp, a dict for each user."""

    def __init__(self, server: Server, users: list[User]) -> None:
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

    def __init__(self, server: Server, users: list[User]) -> None:
        super().__init__(server, users)
        self.data = pa.Table.from_pylist(users)

    def retrieve(self) -> Any:
        keys = [f"user:{number}" for number in self.ids()]
        return pa.table(fastresp.fetch_hashes(keys, FIELDS, server=self.url))

    def as_users(self, got: Any) -> list[User]:
        return got.to_pylist()


def is_good(server: Server, users: list[User], step: str, way: RedisPy | Rows, got: Any) -> bool:
    if step == "create":
        ids = server.client.lrange(LIST, 0, -1)
        return [each.decode() for each in ids] == [user["id"] for user in users]
    if step == "cleanup":
        return server.client.dbsize() == 0
    if step == "update":
        way = RedisPy(server, users, pipelined=True)
        got = way.retrieve()
    return way.as_users(got) == users


def compare(args: argparse.Namespace) -> list[Result]:
    users = made(args.users)
    with running() as server, one_core(server.process.pid):
        ways: dict[tuple[str, str], RedisPy | Rows] = {
            ("naive", "hiredis"): RedisPy(server, users),
            ("pipelined", "hiredis"): RedisPy(server, users, pipelined=True),
            ("fastresp rows", ""): Rows(server, users),
            ("fastresp columns", ""): Columns(server, users),
        }
        got: list[Any] = []

        def keeping(step: Contender) -> Contender:
            return lambda: got.append(step())

        def check(row: Result) -> None:
            step = row.table.removeprefix("004 ")
            good = is_good(server, users, step, ways[row.row, row.parser], got.pop())
            need(good, True, f"{step}, {row.row}, the data is as expected")

        contenders: list[Entry] = [
            (Result(f"004 {step}", *names, args.users), keeping(getattr(way, step)))
            for names, way in ways.items()
            for step in STEPS
        ]
        return measure(contenders, args.rounds, server.process, after=check)


if __name__ == "__main__":
    run_script(__doc__, compare, 9, 3, users=("users", USERS))
