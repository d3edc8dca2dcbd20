"""Other Python clients that fill a server: SETs with distinct keys and values of 129 bytes.

Each peer uses its fastest documented method, in batches of 1,000 if it needs a batch size. Keys,
values and frames are created beforehand. A peer's time starts when it is connected; fastresp's time
includes connecting. After each load, the keys are counted; after the first, all values are checked.
``peers_search.py`` has two more tables.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from commands import commands
from peers_search import DOCUMENTS, PIPELINE, ROWS, Peer, by_fastresp, hashes, vectors
from results import Result
from script import run_script
from servers import Address, running
from turns import Contender, measure

from fastresp.cli.demo.methods import PAYLOAD

COMMANDS = 100_000
NEEDS_RUST = "not installed: pip install polars-redis (without a wheel it needs Rust)"
NO_RIOT = "a Java program; Maven Central has no artifact of it that runs"


class Data:
    def __init__(self, count: int) -> None:
        self.commands = commands("SET", count)
        self.rows = [(key, value) for _, key, value in self.commands]
        self.table = pa.table(list(map(pa.array, zip(*self.rows, strict=True))), ["key", "value"])
        self.batches = [self.rows[start : start + PIPELINE] for start in range(0, count, PIPELINE)]


def redis_py_pipeline(address: Address, data: Data) -> Contender:
    client = address.client()

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for batch in data.batches:
            for key, value in batch:
                pipeline.set(key, value)
            pipeline.execute()

    return run


def redis_py_mset(address: Address, data: Data) -> Contender:
    client = address.client()

    def run() -> None:
        for batch in data.batches:
            client.mset(dict(batch))

    return run


def _glide_settings(glide: Any, address: Address) -> Any:
    where = address.where
    node = (
        glide.NodeAddress(unix_socket_path=where)
        if isinstance(where, Path)
        else glide.NodeAddress("127.0.0.1", where)
    )
    # The default of 250 ms is too short for a busy machine.
    return glide.GlideClientConfiguration([node], request_timeout=30_000)


def _batch_of(glide: Any, rows: list[tuple[str, str]]) -> Any:
    batch = glide.Batch(is_atomic=False)
    for key, value in rows:
        batch.set(key, value)
    return batch


def glide_sync(address: Address, data: Data) -> Contender:
    glide = import_module("glide_sync")
    client = glide.GlideClient.create(_glide_settings(glide, address))

    def run() -> None:
        for rows in data.batches:
            client.exec(_batch_of(glide, rows), raise_on_error=True)

    return run


def glide_asyncio(send: Callable[[Any, Any, Any], Awaitable[object]]) -> Callable[..., Contender]:
    """Return a load that awaits a function for each batch, with the package and a client."""

    def made(address: Address, data: Data) -> Contender:
        glide = import_module("glide")

        async def load() -> float:
            client = await glide.GlideClient.create(_glide_settings(glide, address))
            start = perf_counter()
            for rows in data.batches:
                await send(glide, client, rows)
            taken = perf_counter() - start
            await client.close()
            return taken

        return lambda: asyncio.run(load())

    return made


def coredis_pipeline(address: Address, data: Data) -> Contender:
    coredis = import_module("coredis")
    where: dict[str, Any] = {"host": "127.0.0.1", "port": address.where}
    if isinstance(address.where, Path):
        where = {"unix_socket_path": str(address.where)}

    async def load() -> float:
        async with coredis.Redis(**where) as client:
            await client.ping()
            start = perf_counter()
            for rows in data.batches:
                async with client.pipeline(transaction=False) as pipeline:
                    for key, value in rows:
                        pipeline.set(key, value)
            return perf_counter() - start

    return lambda: asyncio.run(load())


def polars_redis(address: Address, data: Data) -> Contender:
    peer, polars = import_module("polars_redis"), import_module("polars")
    frame = polars.DataFrame(data.table)
    # The Rust client needs a different form of URL for a unix socket.
    url = address.url.replace("unix://", "redis+unix://")
    return lambda: peer.write_strings(frame, url, key_column="key", value_column="value")


def fastresp_rows(transport: str) -> Callable[[Address, Data], Contender]:
    return lambda address, data: by_fastresp(None, transport)(address, data.commands)


def fastresp_columns(address: Address, data: Data) -> Contender:
    return by_fastresp("SET {key} {value}")(address, data.table)


glide_batch = glide_asyncio(
    lambda glide, client, rows: client.exec(_batch_of(glide, rows), raise_on_error=True)
)
glide_mset = glide_asyncio(lambda glide, client, rows: client.mset(dict(rows)))
PEERS = (
    Peer("redis-py, pipeline of 1,000", redis_py_pipeline, "hiredis"),
    Peer("redis-py, mset of 1,000", redis_py_mset, "hiredis"),
    Peer("valkey-glide, sync, batch of 1,000", glide_sync),
    Peer("valkey-glide, asyncio, batch of 1,000", glide_batch),
    Peer("valkey-glide, asyncio, mset of 1,000", glide_mset),
    Peer("coredis, asyncio, pipeline of 1,000", coredis_pipeline),
    Peer("polars-redis, write_strings", polars_redis, missing=NEEDS_RUST),
    Peer("RIOT", None, missing=NO_RIOT),
    Peer("fastresp mass_insert, redis-cli", fastresp_rows("redis-cli")),
    Peer("fastresp mass_insert, socket", fastresp_rows("socket")),
    Peer("fastresp mass_insert, columns", fastresp_columns),
)


def sets(count: int, rounds: int) -> list[Result]:
    """Load SETs over a unix socket and over TCP, in turn; return a row for each peer and place."""
    data = Data(count)
    with running() as server:

        def check(result: Result) -> None:
            server.need_keys(count, result.row)
            for batch in data.batches if not result.values else ():
                values = server.client.mget([key for key, _ in batch])
                if values != [PAYLOAD.encode()] * len(batch):
                    sys.exit(f"{result.row} stored other values than it was given")

        contenders = [
            peer.entry(table, address, data, count)
            for table, address in (("peers SET", server.unix), ("peers SET, TCP", server.tcp))
            for peer in PEERS
        ]
        return measure(contenders, rounds, server.process, before=server.empty, after=check)


def compare(args: argparse.Namespace) -> list[Result]:
    return [
        *sets(args.commands, args.rounds),
        *hashes(args.rows, args.rounds),
        *vectors(args.vectors, args.rounds),
    ]


if __name__ == "__main__":
    run_script(
        __doc__,
        compare,
        9,
        2,
        commands=("SETs in each load", COMMANDS),
        rows=("hashes in each load", ROWS),
        vectors=("embeddings in each load", DOCUMENTS),
    )
