"""Scenarios for test_forks.py: each forks in the midst of something, and the child leaves.

``python forking.py SCENARIO URL FOLDER`` runs one of them for each way to leave, and says what came
of it in the parent.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import selectors
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow
import redis

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

# How the child leaves; "on" goes on as if it were the parent.
WAYS = ("exception", "exit", "at once", "on")
COUNT = 20_000
# When a first chunk, of half a mebibyte, is on its way.
AFTER = 18_000
URL, FOLDER = sys.argv[2], Path(sys.argv[3])


T = TypeVar("T")


class Leaving(Exception):
    """The child's own."""


class Fork:
    """Fork once, and wait for the child, which has 20 seconds to leave."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.parent = os.getpid()
        self.done = False

    def __call__(self, *arguments: object) -> None:
        if self.done:
            return
        self.done = True
        pid = os.fork()
        if pid:
            status = os.waitpid(pid, 0)[1]
            assert not os.WIFSIGNALED(status), f"the child hung: {status}"
            # A child that goes on gets an error, unless it has things of its own.
            assert self.how != "on" or os.waitstatus_to_exitcode(status) in (0, 7), status
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        if self.how == "exception":
            raise Leaving
        if self.how == "exit":
            sys.exit()
        if self.how == "at once":
            os._exit(0)


def commands(fork: Callable[[], None], key: str = "q") -> Iterator[tuple[Any, ...]]:
    for i in range(COUNT):
        if i == AFTER:
            fork()
        yield ("RPUSH", key, i)


def items(fork: Callable[[], None]) -> Iterator[str]:
    for i in range(COUNT):
        if i == AFTER:
            fork()
        yield str(i)


def client() -> redis.Redis:
    return redis.Redis.from_url(URL)


def stored() -> bool:
    """Whether each command ran once, in order."""
    with client() as asked:
        return asked.lrange("q", 0, -1) == [b"%d" % i for i in range(COUNT)]


def fill() -> list[bytes]:
    with client() as asked:
        asked.rpush("q", *range(COUNT))
    return [b"%d" % i for i in range(COUNT)]


def exact(report: fastresp.Report) -> bool:
    return (report.commands, report.replies, report.in_doubt, report.unsent) == (
        COUNT, COUNT, 0, 0,
    )  # fmt: skip


def socket(fork: Fork) -> bool:
    report = fastresp.mass_insert(commands(fork), server=URL, transport="socket")
    return exact(report) and stored()


def lanes(fork: Fork) -> bool:
    rows = ((row[2],) for row in commands(fork))
    report = fastresp.mass_insert(rows, "RPUSH q {0}", server=URL, connections=4)
    with client() as asked:
        return exact(report) and sorted(map(int, asked.lrange("q", 0, -1))) == [*range(COUNT)]


def redis_cli(fork: Fork) -> bool:
    report = fastresp.mass_insert(commands(fork), server=URL, transport="redis-cli")
    return exact(report) and stored()


def progress(fork: Fork) -> bool:
    """In a callable that is told the progress, when something is in flight."""
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
    """In a callable for rejects, called in the midst of the replies."""
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


def in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run(), in a loop that a child can leave without harm.

    Of one with epoll the child unregisters what the parent waits for: they share it.
    """

    def make() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(selectors.PollSelector())

    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(coroutine)


def aio(fork: Fork) -> bool:
    report = in_a_loop(fastresp.aio.mass_insert(commands(fork), server=URL))
    return exact(report) and stored()


async def _async_commands(fork: Fork) -> AsyncIterator[tuple[Any, ...]]:
    for row in commands(fork):
        yield row


def aio_source(fork: Fork) -> bool:
    report = in_a_loop(fastresp.aio.mass_insert(_async_commands(fork), server=URL))
    return exact(report) and stored()


def iter_replies(fork: Fork) -> bool:
    lengths = list(fastresp.iter_replies(commands(fork), server=URL))
    return lengths == [*range(1, COUNT + 1)] and stored()


def iter_replies_taken(fork: Fork) -> bool:
    """While replies are taken."""
    lengths = []
    for length in fastresp.iter_replies(commands(lambda: None), server=URL):
        lengths.append(length)
        if len(lengths) == COUNT // 2:
            fork()
    return lengths == [*range(1, COUNT + 1)] and stored()


def aio_iter_replies(fork: Fork) -> bool:
    async def main() -> list[int]:
        lengths = []
        async for length in fastresp.aio.iter_replies(commands(lambda: None), server=URL):
            lengths.append(length)
            if len(lengths) == COUNT // 2:
                fork()
        return lengths

    return in_a_loop(main()) == [*range(1, COUNT + 1)] and stored()


def fetch_hashes(fork: Fork) -> bool:
    rows = [(i, f"name {i}") for i in range(COUNT)]
    fastresp.mass_insert(rows, "HSET user:{0} name {1}", server=URL, transport="socket")
    found = []
    for row in fastresp.fetch_hashes("user:{id}", ["name"], server=URL, batch_rows=1000):
        found.append((int(row["id"]), row["name"]))
        if len(found) == COUNT // 2:
            fork()
    return sorted(found) == rows


def aio_fetch_hashes(fork: Fork) -> bool:
    rows = [(i, f"name {i}") for i in range(COUNT)]
    fastresp.mass_insert(rows, "HSET user:{0} name {1}", server=URL, transport="socket")

    async def main() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        hashes = fastresp.aio.fetch_hashes("user:{id}", ["name"], server=URL, batch_rows=1000)
        async for row in hashes:
            found.append((int(row["id"]), row["name"]))
            if len(found) == COUNT // 2:
                fork()
        return found

    return sorted(in_a_loop(main())) == rows


def aio_fetch_hashes_slowly(fork: Fork) -> bool:
    """The source of keys pauses, and the rows of earlier keys arrive meanwhile."""
    rows = [(i, f"name {i}") for i in range(COUNT)]
    fastresp.mass_insert(rows, "HSET user:{0} name {1}", server=URL, transport="socket")
    paused = False

    async def keys() -> AsyncIterator[str]:
        nonlocal paused
        for i in range(COUNT):
            if i == COUNT // 2:
                await asyncio.sleep(0.3)
                paused = True
            yield f"user:{i}"

    async def main() -> list[str]:
        found: list[str] = []
        async for row in fastresp.aio.fetch_hashes(keys(), ["name"], server=URL, batch_rows=100):
            found.append(row["name"])
            if paused:
                fork()
        return found

    return in_a_loop(main()) == [name for _, name in rows]


def pop(fork: Fork, delivery: Any = "at-most-once") -> bool:
    """With items that are held, and on their way."""
    expected = fill()
    safe = delivery == "at-least-once"
    with fastresp.ListBuffer("q", server=URL, batch=100, delivery=delivery) as buffer:
        got = buffer.pop(10)
        for item in buffer.consume():
            got.append(item)
            if len(got) == 250:
                break
        fork()
        if os.getpid() != fork.parent:
            # It has its own connection from here on, and nothing of the parent's.
            assert buffer.acknowledged == 0 and not buffer._core.held
            assert len(buffer) <= COUNT - 250
            return True
        got += buffer.pop(1000)
        if safe:
            assert buffer.ack() == 0
        for batch in buffer.drain():
            got += batch
            if len(got) > COUNT // 2:
                break
        left = len(buffer)
        if safe:
            assert buffer.ack() == 0
            assert buffer.acknowledged == len(got)
    with client() as asked:
        back = asked.lrange("q", 0, -1)
        return len(back) == left and got + back == expected and asked.keys("*") == [b"q"]


def pop_safely(fork: Fork) -> bool:
    return pop(fork, "at-least-once")


def aio_pop(fork: Fork) -> bool:
    expected = fill()

    async def main() -> bool:
        async with fastresp.aio.ListBuffer("q", server=URL, batch=100) as buffer:
            got = await buffer.pop(10)
            async for item in buffer.consume():
                got.append(item)
                if len(got) == 250:
                    break
            fork()
            if os.getpid() != fork.parent:
                return True
            got += await buffer.pop(1000)
            await buffer.close()
        with client() as asked:
            return got + asked.lrange("q", 0, -1) == expected

    return in_a_loop(main())


def push(fork: Fork) -> bool:
    with fastresp.ListBuffer("q", server=URL, batch=100) as buffer:
        pushed = buffer.push(items(fork))
    return pushed.length == COUNT == pushed.report.rows and stored()


def aio_push(fork: Fork) -> bool:
    async def main() -> bool:
        async with fastresp.aio.ListBuffer("q", server=URL, batch=100) as buffer:
            pushed = await buffer.push(items(fork))
        return pushed.length == COUNT == pushed.report.rows

    return in_a_loop(main()) and stored()


def processes(fork: Fork) -> bool:
    """Of multiprocessing, started within a ``with``; they use the parent's buffer as their own."""
    expected = fill()
    context = multiprocessing.get_context("fork")

    def work(buffer: fastresp.ListBuffer, out: Any) -> None:
        out.put(buffer.pop(10))
        buffer.close()
        if fork.how == "exit":
            sys.exit()
        if fork.how == "at once":
            out.close()
            out.join_thread()
            os._exit(0)

    out = context.Queue()
    with fastresp.ListBuffer("q", server=URL, batch=100) as buffer:
        got = buffer.pop(5)
        got.append(next(buffer.consume()))
        children = [context.Process(target=work, args=(buffer, out)) for _ in range(3)]
        for child in children:
            child.start()
        theirs = [item for _ in children for item in out.get(timeout=20)]
        for child in children:
            child.join(20)
            assert child.exitcode == 0
        got += buffer.pop(COUNT)
    fork.done = True
    assert len(theirs) == 30
    with client() as asked:
        return asked.llen("q") == 0 and sorted(got + theirs, key=int) == expected


def table(fork: Fork, sql: str | None = None) -> bool:
    """A file that a thread reads ahead."""
    path = FOLDER / "q.csv"
    # Enough that it is not read to its end when the first of it has gone.
    path.write_text("id,text\n" + "".join(f"{i},{'x' * 1000}\n" for i in range(COUNT)))
    data = fastresp.read(path) if sql is None else fastresp.read(path, sql=sql)
    report = fastresp.mass_insert(
        data, "RPUSH q {id}", server=URL, transport="socket", progress=fork
    )
    return exact(report) and stored()


def aio_table(fork: Fork) -> bool:
    """Columns, which are encoded in another thread."""
    table = pyarrow.table({"id": range(COUNT), "text": ["x" * 1000] * COUNT})
    load = fastresp.aio.mass_insert(table, "RPUSH q {id}", server=URL, progress=fork)
    return exact(in_a_loop(load)) and stored()


def query(fork: Fork) -> bool:
    """One whose rows DuckDB keeps in a folder of its own."""
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
    """Its keys are removed once, by the process that wrote them."""

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


def main() -> None:
    scenario = globals()[sys.argv[1]]
    for how in WAYS:
        with client() as asked:
            asked.flushall()
        fork = Fork(how)
        try:
            right = scenario(fork)
        except Leaving:
            sys.exit(3)
        except Exception as error:
            if os.getpid() == fork.parent:
                raise
            words = str(error)
            sys.exit(7 if "forked from" in words else f"{type(error).__name__}: {words}")
        if os.getpid() != fork.parent:
            sys.exit(0)
        assert fork.done, "nothing was forked"
        print(how, "right" if right else "WRONG", flush=True)


if __name__ == "__main__":
    main()
