"""Other Python clients that fill a server: SETs with distinct keys and values of 129 bytes.

Each peer uses its fastest documented method, in batches of 1,000 if it needs a size: redis-py's
pipeline and ``mset`` with hiredis, the non-atomic ``Batch`` of valkey-glide (sync and asyncio) and
its ``mset``, the pipeline of coredis, ``write_strings`` of polars-redis from a DataFrame; then
``mass_insert`` from rows, through redis-cli and over a socket, and from columns. Keys, values and
frames are ready beforehand. A peer's time starts when it is connected; fastresp's includes
connecting. After each load the keys are counted, after the first all values are checked.

Tables ``peers SET`` (a unix socket), ``peers SET, TCP``, ``peers HSET, TCP`` (hashes, beside
adbc-driver-redis: see ``peers_hashes.py``), and ``peers vectors, TCP`` (embeddings into a search
index, beside RedisVL: see ``peers_vectors.py``). The version of each peer is in the metadata.
``pip install 'fastresp[peers]'`` installs the peers, except polars-redis, which may need Rust:
``pip install polars-redis``.

    python bench/peers.py -o peers.json        # about 10 minutes
    python bench/peers.py --fast --commands 10000
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import pyarrow as pa
from common import commands
from peers_hashes import ROWS, hashes, installed
from peers_vectors import VECTORS, vectors
from redis_py_client import redis_py
from results import Result
from turns import Contender, arguments, finish, show, take

import fastresp
from fastresp.cli.demo.generators import PAYLOAD
from fastresp.cli.demo.methods import Workbench

COMMANDS = 100_000
BATCH = 1_000
NOT_INSTALLED = "not installed: pip install 'fastresp[peers]'"
NEEDS_RUST = "not installed: pip install polars-redis (without a wheel it needs Rust)"
NO_RIOT = "a Java program; Maven Central has no artifact of it that runs"


class Data:
    """The data, in each form that a contender needs."""

    def __init__(self, count: int) -> None:
        self.commands = commands("SET", count)
        self.rows = [(key, value) for _, key, value in self.commands]
        self.table = pa.table(list(map(pa.array, zip(*self.rows, strict=True))), ["key", "value"])
        self.batches = [self.rows[start : start + BATCH] for start in range(0, count, BATCH)]


@dataclass(frozen=True)
class Place:
    """The address of the server."""

    socket: Path | None
    port: int

    @property
    def where(self) -> Path | int:
        return self.socket or self.port

    @property
    def url(self) -> str:
        return f"unix://{self.socket}" if self.socket else f"redis://127.0.0.1:{self.port}"


Load = Callable[[Place, Data], Contender]


def redis_py_pipeline(place: Place, data: Data) -> Contender:
    client: Any = redis_py(place.where, "HiredisParser")

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for batch in data.batches:
            for key, value in batch:
                pipeline.set(key, value)
            pipeline.execute()

    return run


def redis_py_mset(place: Place, data: Data) -> Contender:
    client: Any = redis_py(place.where, "HiredisParser")

    def run() -> None:
        for batch in data.batches:
            client.mset(dict(batch))

    return run


def _glide_settings(glide: Any, place: Place) -> Any:
    address = glide.NodeAddress("127.0.0.1", place.port)
    if place.socket:
        address = glide.NodeAddress(unix_socket_path=place.socket)
    # The default of 250 ms is too short for a busy machine.
    return glide.GlideClientConfiguration([address], request_timeout=30_000)


def glide_sync(place: Place, data: Data) -> Contender:
    glide = import_module("glide_sync")
    client = glide.GlideClient.create(_glide_settings(glide, place))

    def run() -> None:
        for rows in data.batches:
            batch = glide.Batch(is_atomic=False)
            for key, value in rows:
                batch.set(key, value)
            client.exec(batch, raise_on_error=True)

    return run


def _in_asyncio(load: Callable[[], Awaitable[float]]) -> Contender:
    """Run a load in its own event loop; it measures its time itself, without connecting."""

    async def run() -> float:
        return await load()

    return lambda: asyncio.run(run())


def glide_batch(place: Place, data: Data) -> Contender:
    glide = import_module("glide")

    async def load() -> float:
        client = await glide.GlideClient.create(_glide_settings(glide, place))
        start = perf_counter()
        for rows in data.batches:
            batch = glide.Batch(is_atomic=False)
            for key, value in rows:
                batch.set(key, value)
            await client.exec(batch, raise_on_error=True)
        taken = perf_counter() - start
        await client.close()
        return taken

    return _in_asyncio(load)


def glide_mset(place: Place, data: Data) -> Contender:
    glide = import_module("glide")

    async def load() -> float:
        client = await glide.GlideClient.create(_glide_settings(glide, place))
        start = perf_counter()
        for rows in data.batches:
            await client.mset(dict(rows))
        taken = perf_counter() - start
        await client.close()
        return taken

    return _in_asyncio(load)


def coredis_pipeline(place: Place, data: Data) -> Contender:
    coredis = import_module("coredis")
    where: dict[str, Any] = {"host": "127.0.0.1", "port": place.port}
    if place.socket:
        where = {"unix_socket_path": str(place.socket)}

    async def load() -> float:
        async with coredis.Redis(**where) as client:
            await client.ping()
            start = perf_counter()
            for rows in data.batches:
                async with client.pipeline(transaction=False) as pipeline:
                    for key, value in rows:
                        pipeline.set(key, value)
            return perf_counter() - start

    return _in_asyncio(load)


def polars_redis(place: Place, data: Data) -> Contender:
    peer, polars = import_module("polars_redis"), import_module("polars")
    frame = polars.DataFrame(data.table)
    # Rust's client has another form of URL for a unix socket.
    url = f"redis+unix://{place.socket}" if place.socket else place.url

    def run() -> None:
        peer.write_strings(frame, url, key_column="key", value_column="value")

    return run


def fastresp_rows(transport: Any) -> Load:
    def made(place: Place, data: Data) -> Contender:
        return lambda: fastresp.mass_insert(data.commands, server=place.url, transport=transport)

    return made


def fastresp_columns(place: Place, data: Data) -> Contender:
    return lambda: fastresp.mass_insert(
        data.table, "SET {key} {value}", server=place.url, transport="socket"
    )


@dataclass(frozen=True)
class Peer:
    """A row of the tables: its name, its package, and the function that makes its load, if any."""

    row: str
    package: str
    load: Load | None
    parser: str = ""
    missing: str = NOT_INSTALLED


PEERS = (
    Peer("redis-py, pipeline of 1,000", "redis", redis_py_pipeline, "hiredis"),
    Peer("redis-py, mset of 1,000", "redis", redis_py_mset, "hiredis"),
    Peer("valkey-glide, sync, batch of 1,000", "valkey-glide-sync", glide_sync),
    Peer("valkey-glide, asyncio, batch of 1,000", "valkey-glide", glide_batch),
    Peer("valkey-glide, asyncio, mset of 1,000", "valkey-glide", glide_mset),
    Peer("coredis, asyncio, pipeline of 1,000", "coredis", coredis_pipeline),
    Peer("polars-redis, write_strings", "polars-redis", polars_redis, missing=NEEDS_RUST),
    Peer("RIOT", "", None, missing=NO_RIOT),
    Peer("fastresp mass_insert, redis-cli", "fastresp", fastresp_rows("redis-cli")),
    Peer("fastresp mass_insert, socket", "fastresp", fastresp_rows("socket")),
    Peer("fastresp mass_insert, columns", "fastresp", fastresp_columns),
)


class Tournament:
    """All peers, at one place."""

    def __init__(self, table: str, place: Place, workbench: Workbench, data: Data) -> None:
        self.client: Any = workbench.client
        self.server = psutil.Process(workbench.server.process.pid)
        self.data = data
        self.entries = list(self.enter(table, place))

    def enter(self, table: str, place: Place) -> Iterator[tuple[Peer, Result, Contender]]:
        for peer in PEERS:
            result = Result(table, peer.row, peer.parser, len(self.data.rows))
            run: Contender = lambda: None  # noqa: E731
            try:
                if peer.load is None:
                    result.reason = peer.missing
                else:
                    run = peer.load(place, self.data)
            except ImportError:
                result.reason = peer.missing
            yield peer, result, run

    def run(self, keep: bool) -> None:
        for peer, result, run in self.entries:
            if result.reason:
                continue
            show(f"{result.table}: {result.row}")
            # SYNC, so that old data is not freed in a thread during the load.
            self.client.execute_command("FLUSHALL", "SYNC")
            try:
                take(result, run, self.server, keep, version=installed(peer.package))
            except fastresp.FastrespError:
                raise
            except Exception as error:  # each peer has its own exceptions
                words = str(error).splitlines() or [""]
                result.reason = f"it failed: {type(error).__name__}: {words[-1]:.200}"
                result.values.clear()
                result.details.clear()
                continue
            self.check(result.row, look=not keep)

    def check(self, row: str, look: bool) -> None:
        """End the program unless all keys exist and, with ``look``, all values are right."""
        if (held := self.client.dbsize()) != len(self.data.rows):
            sys.exit(f"{row} left {held:,} keys instead of {len(self.data.rows):,}")
        for batch in self.data.batches if look else ():
            values = self.client.mget([key for key, _ in batch])
            if values != [PAYLOAD.encode()] * len(batch):
                sys.exit(f"{row} stored other values than it was given")


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=9, fast_rounds=2)
    parser.add_argument("--commands", type=int, default=COMMANDS, help="SETs in each load")
    parser.add_argument("--rows", type=int, default=ROWS, help="hashes in each load")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="embeddings in each load")
    args = parsed()
    if min(args.commands, args.rows, args.vectors) < 1:
        parser.error("--commands, --rows and --vectors must be 1 or more")
    data = Data(args.commands)
    with Workbench.open(tcp=True) as workbench:
        port = int(workbench.url.rpartition(":")[2])
        both = [
            Tournament("peers SET", Place(workbench.server.socket, port), workbench, data),
            Tournament("peers SET, TCP", Place(None, port), workbench, data),
        ]
        for number in range(args.rounds + 1):
            for each in both:
                each.run(keep=number > 0)
    show("")
    results = [result for each in both for _, result, _ in each.entries]
    more = [*hashes(args.rows, args.rounds), *vectors(args.vectors, args.rounds)]
    finish([*results, *more], args.output)


if __name__ == "__main__":
    main()
