"""Scenarios for test_forks.py: loads, their input and output, a server, the doctor."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow
import redis
from fork import COUNT, FOLDER, URL, Fork, client, commands, exact, in_a_loop, stored

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint


def socket(fork: Fork) -> bool:
    report = fastresp.mass_insert(commands(fork), server=URL, transport="socket")
    return exact(report) and stored()


def loader(fork: Fork) -> bool:
    with fastresp.loader(server=URL) as load:
        for row in commands(fork):
            load.write(row)
    return exact(load.report) and stored()


def aio_loader(fork: Fork) -> bool:
    async def main() -> fastresp.Report:
        async with fastresp.aio.loader(server=URL) as load:
            for row in commands(fork):
                await load.write(row)
        return load.report

    return exact(in_a_loop(main())) and stored()


def lanes(fork: Fork) -> bool:
    rows = ((row[2],) for row in commands(fork))
    report = fastresp.mass_insert(rows, "RPUSH q {0}", server=URL, connections=4)
    with client() as asked:
        return exact(report) and sorted(map(int, asked.lrange("q", 0, -1))) == [*range(COUNT)]


def checkpoint(fork: Fork) -> bool:
    """Check that the child does not release the lease."""
    leases: list[bytes | None] = []

    def forking() -> None:
        fork()
        if os.getpid() == fork.parent:
            with client() as asked:
                leases.append(asked.hget("fastresp:{jobs}", "lease"))

    rows = ((row[2],) for row in commands(forking))
    report = fastresp.mass_insert(
        rows, "RPUSH q {0}", server=URL, checkpoint=Checkpoint("jobs", source_id="numbers")
    )
    return exact(report) and stored() and leases not in ([None], [b"0"])


def redis_cli(fork: Fork) -> bool:
    report = fastresp.mass_insert(commands(fork), server=URL, transport="redis-cli")
    return exact(report) and stored()


def progress(fork: Fork) -> bool:
    """Fork in the progress callable, while commands are in flight."""
    rows = commands(lambda: None)
    report = fastresp.mass_insert(rows, server=URL, transport="socket", progress=fork)
    return exact(report) and stored()


def bar(fork: Fork) -> bool:
    report = fastresp.mass_insert(commands(fork), server=URL, transport="socket", progress=True)
    return exact(report) and stored()


def with_errors(fork: Callable[[], None]) -> Iterator[tuple[Any, ...]]:
    for i, row in enumerate(commands(fork)):
        yield ("INCR", "list") if i % 100 == 5 else row


def stored_but_errors() -> bool:
    with client() as asked:
        expected = [b"%d" % i for i in range(COUNT) if i % 100 != 5]
        return asked.lrange("q", 0, -1) == expected


def rejects(fork: Fork) -> bool:
    """Fork in the callable for rejects, while replies are read."""
    with client() as asked:
        asked.rpush("list", "x")
    report = fastresp.mass_insert(
        with_errors(lambda: None), server=URL, transport="socket", on_error="collect", rejects=fork
    )
    return exact(report) and report.failed == COUNT // 100 and stored_but_errors()


def rejects_file(fork: Fork) -> bool:
    with client() as asked:
        asked.rpush("list", "x")
    path = FOLDER / f"rejects {fork.how}"
    report = fastresp.mass_insert(
        with_errors(fork), server=URL, transport="socket", on_error="collect", rejects=path
    )
    rows = [json.loads(line)["row"] for line in path.read_text().splitlines()]
    return rows == [*range(5, COUNT, 100)] and exact(report) and stored_but_errors()


def dump(fork: Fork) -> bool:
    path = FOLDER / "q.resp"
    written = fastresp.dump(commands(fork), None, path)
    values = path.read_bytes().split(b"\r\n")[6::7]
    return written == COUNT and values == [b"%d" % i for i in range(COUNT)]


def aio(fork: Fork) -> bool:
    report = in_a_loop(fastresp.aio.mass_insert(commands(fork), server=URL))
    return exact(report) and stored()


async def _async_commands(fork: Fork) -> AsyncIterator[tuple[Any, ...]]:
    for row in commands(fork):
        yield row


def aio_source(fork: Fork) -> bool:
    report = in_a_loop(fastresp.aio.mass_insert(_async_commands(fork), server=URL))
    return exact(report) and stored()


def table(fork: Fork, sql: str | None = None) -> bool:
    """Load a file that a thread reads ahead."""
    path = FOLDER / "q.csv"
    # Too large to be read completely before the first chunk is sent.
    path.write_text("id,text\n" + "".join(f"{i},{'x' * 1000}\n" for i in range(COUNT)))
    data = fastresp.read(path) if sql is None else fastresp.read(path, sql=sql)
    report = fastresp.mass_insert(
        data, "RPUSH q {id}", server=URL, transport="socket", progress=fork
    )
    return exact(report) and stored()


def aio_table(fork: Fork) -> bool:
    """Load columns, which are encoded in another thread."""
    table = pyarrow.table({"id": range(COUNT), "text": ["x" * 1000] * COUNT})
    load = fastresp.aio.mass_insert(table, "RPUSH q {id}", server=URL, progress=fork)
    return exact(in_a_loop(load)) and stored()


def query(fork: Fork) -> bool:
    """Load a query; DuckDB keeps its rows in its own folder."""
    return table(fork, "SELECT id, text, repeat(text, 4) AS long FROM source ORDER BY id")


def resp_file(fork: Fork) -> bool:
    path = FOLDER / "q.resp"
    fastresp.dump(commands(lambda: None), None, path)
    report = fastresp.mass_insert(
        fastresp.read(path), server=URL, transport="socket", progress=fork, rate_limit=100_000
    )
    return exact(report) and stored()


def local_server(fork: Fork) -> bool:
    with LocalServer() as server:
        with redis.Redis.from_url(server.url) as asked:
            asked.set("a", 1)
        fork()
        if os.getpid() != fork.parent:
            return True
        with redis.Redis.from_url(server.url) as asked:
            right = asked.get("a") == b"1"
        folder = server.folder
    return right and not folder.exists()


def doctor(fork: Fork) -> bool:
    """Check that the doctor's keys are removed once, by the process that wrote them."""

    def show(what: str) -> None:
        if what == "mass_insert()":
            fork()
            if os.getpid() == fork.parent:
                with client() as asked:
                    found.extend(asked.keys("*"))

    from fastresp.doctor import doctor as measured

    found: list[bytes] = []
    diagnosis = measured(URL, show)
    assert diagnosis.measured is not None
    with client() as asked:
        return len(found) >= 1 and diagnosis.measured.load is not None and not asked.keys("*")
