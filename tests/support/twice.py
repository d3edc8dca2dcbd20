"""Run a load in two modes, and compare the stored data and the reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import redis
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.encode.template import as_template
from fastresp.resp.split import arguments
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.sources.source import as_source, encoding

SERVERS = ["redis-server", *WHEEL_SERVERS]
# Fields that may differ between modes.
DIFFERENT = {"bytes_sent", "seconds", "program", "errors", "transport", "warnings"}


class Outcome(NamedTuple):
    digest: bytes
    times: dict[bytes, int]  # to live, in minutes
    report: dict[str, Any]
    errors: list[tuple[Any, ...]]
    rejects: list[dict[str, Any]]


class Account(NamedTuple):
    report: dict[str, Any]
    errors: list[tuple[Any, ...]]
    rejects: list[dict[str, Any]]


@contextmanager
def debugged(name: str, *options: str) -> Iterator[LocalServer]:
    """Start a server that answers DEBUG."""
    debug = [] if "6.2" in name else ["--enable-debug-command", "yes"]
    with LocalServer(*debug, *options, program=located(name, WHEEL_SERVERS)) as server:
        yield server


def outcome(
    server: LocalServer,
    plant: Callable[[redis.Redis], object],
    data: Any,
    template: Any,
    path: Path,
    **options: Any,
) -> Outcome:
    """Empty the server, create the planted keys, and load; return the data and the report."""
    with redis.Redis.from_url(server.url) as client:
        found = account(client, plant, data, template, path, **options)
        digest = client.execute_command("DEBUG DIGEST")
        # The tests' times to live (9,990, 99,990, 9,990,000 s) are far from a change of minute.
        times = {key: (client.ttl(key) + 15) // 60 for key in client.scan_iter()}
    return Outcome(digest, times, *found)


def account(
    client: redis.Redis,
    plant: Callable[[redis.Redis], object],
    data: Any,
    template: Any,
    path: Path,
    **options: Any,
) -> Account:
    """Empty the server of a client, create the planted keys, and load; return the report."""
    client.flushall()
    plant(client)
    path.unlink(missing_ok=True)
    url = f"unix://{client.connection_pool.connection_kwargs['path']}"
    options = {"on_error": "collect", "rejects": path, "transport": "socket", **options}
    if hasattr(data, "__aiter__"):
        report = asyncio.run(fastresp.aio.mass_insert(data, template, server=url, **options))
    else:
        report = fastresp.mass_insert(data, template, server=url, **options)
    errors = [(e.index, e.row, e.code, e.text, e.arguments, e.nested) for e in report.errors]
    fields = {k: v for k, v in asdict(report).items() if k not in DIFFERENT and k[0] != "_"}
    return Account(fields, errors, [json.loads(line) for line in path.open()])


def as_file(commands: Any, folder: Path) -> Path:
    """Write commands to a RESP file: unlike chunks of rows, its chunks don't depend on timing."""
    path = folder / "commands.resp"
    fastresp.dump(commands, None, path)
    return path


def commands_of(data: Any, template: Any, **options: Any) -> list[tuple[int, tuple[bytes, ...]]]:
    """Return the row and the arguments of each command of a load."""
    found = []
    writer, source = encoding(as_source(data, template), as_template(template), Options(**options))
    for chunk in writer.chunks(source):
        for at in range(chunk.commands):
            found.append((chunk.rows[at], arguments(chunk.command(at, at))))
    return found


def calls(client: redis.Redis, name: str) -> int:
    """Return the number of calls of a command."""
    stats = client.info("commandstats").get(f"cmdstat_{name.lower()}", {})
    count: int = stats.get("calls", 0)
    return count
