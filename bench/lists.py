"""Time to push items onto a list and to pop them off it, with several clients.

The items have 129 bytes, as in the 2018 report; the server is started for the run, on a unix
socket. A pop starts with a full list (filling it is not timed) and ends when the client has the
bytes of every item; a push ends with the last reply. The contenders are the C client hiredis
(``hiredis_c.c``, which measures its time itself, without its start), redis-py with hiredis's
parser, and fastresp. A missing contender is named and left out.

The contenders take turns within a round. A value is the wall time of one whole list; the CPU times
of the server and the clients are in the metadata ``server_cpu`` and ``client_cpu``. redis-py uses
RESP2.

    python bench/lists.py -o lists.json
    python bench/lists.py --items 20000 --rounds 1
    python bench/lists.py --only "C lrange 100,C lrange 1000,fastresp pop"
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import psutil
import pyarrow as pa
from c_client import CClient, NotAvailable, compiled
from redis_py_client import redis_py
from results import Result
from turns import Contender, arguments, finish, measure

from fastresp import FastrespError, ListBuffer, mass_insert
from fastresp.cli.demo.generators import PAYLOAD
from fastresp.server.local_server import LocalServer

ITEM = PAYLOAD.encode()
KEY = "key"
BATCH = 1_000

# By kind and name: the timed function, or why it is missing.
Contenders = dict[str, dict[str, Contender | str]]


def pop_all(pop: Callable[[int], Any], most: int = BATCH) -> int:
    """Pop up to ``most`` at a time until the list is empty; return the number of items."""
    count = 0
    while size := len(pop(most) or ()):
        count += size
    return count


def sizes(items: int) -> list[int]:
    """Return the sizes of the batches."""
    return [min(BATCH, items - first) for first in range(0, items, BATCH)]


def need_all(count: int, items: int) -> None:
    if count != items:
        raise FastrespError(f"{count:,} items were popped instead of {items:,}")


def c_contenders(stack: ExitStack, server: LocalServer, items: int) -> Contenders:
    """Return the loops in C, which count their items themselves."""
    loops = {
        "pop": {
            "C lrange 100": ("lrange", 100),
            "C lrange 1000": ("lrange", BATCH),
            "C lrange 10x1000": ("lrange-pipeline", BATCH),
            "C rpop 1000": ("rpop-many", BATCH),
            "C rpop-pipeline": ("rpop-pipeline", BATCH),
        },
        "push": {
            "C lpush-pipeline": ("lpush-pipeline", BATCH),
            "C lpush *1000": ("lpush-many", BATCH),
        },
    }
    try:
        client = CClient(stack.enter_context(compiled()), server.socket)
    except NotAvailable as error:
        return {kind: dict.fromkeys(names, str(error)) for kind, names in loops.items()}

    def running(method: str, batch: int) -> Contender:
        return lambda: client.run(method, items, batch)

    return {
        kind: {name: running(method, batch) for name, (method, batch) in names.items()}
        for kind, names in loops.items()
    }


def redis_py_contenders(client: Any, items: int) -> Contenders:
    """Return redis-py's ways, with and without batches."""

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
        need_all(pop_all(lambda count: client.rpop(KEY, count)), items)

    return {
        "pop": {"redis-py rpop 1000": pop_many},
        "push": {"redis-py pipeline": push_pipelines, "redis-py lpush *1000": push_many},
    }


def fastresp_contenders(url: str, items: int) -> Contenders:
    """Return ListBuffer's ways, and a load of LPUSHes."""
    ready = [("LPUSH", KEY, ITEM)] * items
    values = [ITEM] * items
    many = 10 * BATCH
    uses: dict[str, dict[str, Callable[[Any], object]]] = {
        "pop": {
            # One request at a time, and ten in flight.
            "pop": lambda buffer: need_all(pop_all(buffer.pop), items),
            "pop 10000": lambda buffer: need_all(pop_all(buffer.pop, many), items),
            "drain": lambda buffer: need_all(sum(map(len, buffer.drain())), items),
            "consume": lambda buffer: need_all(sum(1 for _ in buffer.consume()), items),
            "pop_arrow": lambda buffer: need_all(pop_all(as_arrow(buffer)), items),
            "pop_arrow 10000": lambda buffer: need_all(pop_all(as_arrow(buffer), many), items),
        },
        "push": {"push": lambda buffer: buffer.push(values)},
    }

    def as_arrow(buffer: ListBuffer) -> Callable[[int], Any]:
        return lambda count: pa.array(buffer.pop_arrow(count))

    def using(use: Callable[[Any], object]) -> Contender:
        def run() -> float:
            with ListBuffer(KEY, server=url, batch=BATCH) as buffer:
                len(buffer)  # connects, since the others are connected
                start = perf_counter()
                use(buffer)
                return perf_counter() - start

        return run

    made: Contenders = {
        kind: {f"fastresp {name}": using(use) for name, use in names.items()}
        for kind, names in uses.items()
    }
    made["push"]["fastresp mass_insert"] = lambda: mass_insert(
        ready, server=url, transport="socket"
    )
    return made


def compare(
    kind: str, contenders: dict[str, Contender | str], server: LocalServer, args: Any
) -> list[Result]:
    """Push or pop with each contender, in rounds."""
    client = redis_py(server.socket, "HiredisParser")
    left = args.items if kind == "push" else 0

    def fill() -> None:
        # SYNC, so that old data is not freed in a thread during the run.
        client.execute_command("FLUSHALL", "SYNC")
        if kind == "pop":
            batches = (("RPUSH", KEY, *[ITEM] * size) for size in sizes(args.items))
            mass_insert(batches, server=server.url, transport="socket")

    def check(row: Result) -> None:
        if (held := client.llen(KEY)) != left:
            raise FastrespError(f"{row.row} left {held:,} items instead of {left:,}")

    entries: list[tuple[Result, Contender]] = []
    for name, run in contenders.items():
        result = Result("lists", f"{kind} {name}", "", args.items)
        if isinstance(run, str):
            result.reason, run = run, lambda: None
        entries.append((result, run))
    process = psutil.Process(server.process.pid)
    measure(entries, args.rounds, process, between=fill, after=check)
    return [result for result, _ in entries]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=20, fast_rounds=8, only=True)
    parser.add_argument("--items", type=int, default=1_000_000, help="items in each list")
    args = parsed()
    if args.items < 1:
        parser.error("--items must be 1 or more")
    results = []
    with LocalServer() as server, ExitStack() as stack:
        groups = [
            c_contenders(stack, server, args.items),
            redis_py_contenders(redis_py(server.socket, "HiredisParser"), args.items),
            fastresp_contenders(server.url, args.items),
        ]
        for kind in ("pop", "push"):
            found = {name: run for group in groups for name, run in group[kind].items()}
            if args.only:
                found = {name: run for name, run in found.items() if name in args.only}
            results += compare(kind, found, server, args)
    finish(results, args.output)


if __name__ == "__main__":
    main()
