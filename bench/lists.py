"""Time to push items to a list and to pop them from it, with several clients.

A pop starts with a full list and ends when the client has the bytes of every item; a push ends with
the last reply. The contenders are the C client (``hiredis_c.c``, which measures its own time,
without its start), redis-py with hiredis's parser, and fastresp.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import pyarrow as pa
from c_programs import CClient, compiled_client
from results import Result
from script import run_script
from servers import Server, running
from turns import Contender, entries, measure, need

from fastresp import ListBuffer, mass_insert
from fastresp.cli.demo.methods import PAYLOAD

ITEM = PAYLOAD.encode()
KEY = "key"
BATCH = 1_000
ITEMS = "items pushed or popped"

# By the names of their rows.
Contenders = dict[str, Contender]


def pop_all(pop: Callable[[int], Any], most: int = BATCH) -> int:
    """Pop up to ``most`` at a time until the list is empty; return the number of items."""
    count = 0
    while size := len(pop(most) or ()):
        count += size
    return count


def sizes(items: int) -> list[int]:
    return [min(BATCH, items - first) for first in range(0, items, BATCH)]


def c_contenders(client: CClient, items: int) -> Contenders:
    def running(method: str, batch: int = BATCH) -> Contender:
        return lambda: client.run(method, items, batch)

    return {
        "pop C lrange 100": running("lrange", 100),
        "pop C lrange 1000": running("lrange"),
        "pop C lrange 10x1000": running("lrange-pipeline"),
        "pop C rpop 1000": running("rpop-many"),
        "pop C rpop-pipeline": running("rpop-pipeline"),
        "push C lpush-pipeline": running("lpush-pipeline"),
        "push C lpush *1000": running("lpush-many"),
    }


def redis_py_contenders(client: Any, items: int) -> Contenders:
    def push_pipelines() -> None:
        pipeline = client.pipeline(transaction=False)
        for size in sizes(items):
            for _ in range(size):
                pipeline.lpush(KEY, ITEM)
            pipeline.execute()

    def push_many() -> None:
        batch = [ITEM] * BATCH
        for size in sizes(items):
            client.lpush(KEY, *batch[:size])

    def pop_many() -> None:
        need(pop_all(lambda count: client.rpop(KEY, count)), items, ITEMS)

    return {
        "pop redis-py rpop 1000": pop_many,
        "push redis-py pipeline": push_pipelines,
        "push redis-py lpush *1000": push_many,
    }


def fastresp_contenders(url: str, items: int) -> Contenders:
    ready = [("LPUSH", KEY, ITEM)] * items
    values = [ITEM] * items
    many = 10 * BATCH
    # Each returns the number of items.
    uses: dict[str, Callable[[Any], int]] = {
        # One request at a time, and ten in flight.
        "pop fastresp pop": lambda buffer: pop_all(buffer.pop),
        "pop fastresp pop 10000": lambda buffer: pop_all(buffer.pop, many),
        "pop fastresp drain": lambda buffer: sum(map(len, buffer.drain())),
        "pop fastresp consume": lambda buffer: sum(1 for _ in buffer.consume()),
        "pop fastresp pop_arrow": lambda buffer: pop_all(as_arrow(buffer)),
        "pop fastresp pop_arrow 10000": lambda buffer: pop_all(as_arrow(buffer), many),
        "push fastresp push": lambda buffer: buffer.push(values).length,
    }

    def as_arrow(buffer: ListBuffer) -> Callable[[int], Any]:
        return lambda count: pa.array(buffer.pop_arrow(count))

    def using(use: Callable[[Any], int]) -> Contender:
        def run() -> float:
            with ListBuffer(KEY, server=url, batch=BATCH) as buffer:
                len(buffer)  # connects; the other contenders are already connected
                start = perf_counter()
                need(use(buffer), items, ITEMS)
                return perf_counter() - start

        return run

    made = {name: using(use) for name, use in uses.items()}
    load = partial(mass_insert, ready, server=url, transport="socket")
    return made | {"push fastresp mass_insert": load}


def compare(kind: str, runs: Contenders, server: Server, args: argparse.Namespace) -> list[Result]:
    """Push or pop with each contender, in turn."""
    left = args.items if kind == "push" else 0

    def fill(row: Result) -> None:
        server.empty()
        if kind == "pop":
            batches = (("RPUSH", KEY, *[ITEM] * size) for size in sizes(args.items))
            mass_insert(batches, server=server.url, transport="socket")

    def check(row: Result) -> None:
        need(server.client.llen(KEY), left, f"{row.row}, items left")

    chosen = {
        name: run
        for name, run in runs.items()
        if name.startswith(kind) and (not args.only or name.removeprefix(f"{kind} ") in args.only)
    }
    contenders = entries("lists", chosen, args.items)
    return measure(contenders, args.rounds, server.process, before=fill, after=check)


def both(args: argparse.Namespace) -> list[Result]:
    with running() as server, compiled_client() as program:
        runs = {
            **c_contenders(CClient(program, server.unix.where), args.items),
            **redis_py_contenders(server.client, args.items),
            **fastresp_contenders(server.url, args.items),
        }
        return [row for kind in ("pop", "push") for row in compare(kind, runs, server, args)]


if __name__ == "__main__":
    run_script(__doc__, both, 20, 8, only=True, items=("items in each list", 1_000_000))
