"""Scenarios for test_forks.py: reading replies, and lists as buffers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from fork import COUNT, URL, Fork, client, commands, fill, in_a_loop, items, stored

import fastresp
import fastresp.aio


def iter_replies(fork: Fork) -> bool:
    lengths = list(fastresp.iter_replies(commands(fork), server=URL))
    return lengths == [*range(1, COUNT + 1)] and stored()


def iter_replies_taken(fork: Fork) -> bool:
    """Fork while replies are read."""
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
    """Pause the source of keys while rows of earlier keys arrive."""
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
    """Fork with items leased and in flight."""
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
            # From here on, the child has its own connection, and none of the parent's items.
            assert buffer.acknowledged == 0 and not buffer._calls.popped
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
    """Start multiprocessing processes within a ``with``; each uses the parent's buffer."""
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
