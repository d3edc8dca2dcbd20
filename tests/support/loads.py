"""Loads in their own process, which are interrupted, killed or lose the server, and their keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import preloaded
import pytest
import redis

import fastresp
import fastresp.aio
from fastresp.testing import Connection, HangUp

VALUE = "x" * 100

Insert: TypeAlias = Callable[..., fastresp.Report]


def lost_at(name: bytes, count: int) -> Callable[[Connection, list[bytes], bytes], bytes]:
    """Return a misbehaviour that closes the connection at this occurrence of a command."""
    seen = 0

    def reply_or_hang_up(connection: Connection, command: list[bytes], reply: bytes) -> bytes:
        nonlocal seen
        seen += command[0] == name
        if seen >= count:
            raise HangUp
        return reply

    return reply_or_hang_up


def insert_sync(data: Any, command: Any = None, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(data, command, transport="socket", **options)


def insert_asyncio(data: Any, command: Any = None, **options: Any) -> fastresp.Report:
    return asyncio.run(fastresp.aio.mass_insert(data, command, transport="socket", **options))


def insert_redis_cli(data: Any, command: Any = None, **options: Any) -> fastresp.Report:
    return fastresp.mass_insert(data, command, transport="redis-cli", **options)


CHILD_CODE = """
import sys, fastresp
def source():
    i = 0
    while True:
        if sys.argv[3] == "serialize":
            yield "RPUSH", f"key:{i // 5}", "x" * 100
        else:
            yield "SET", f"key:{i}", "x" * 100
        i += 1
try:
    fastresp.mass_insert(
        source(), server=sys.argv[1], transport=sys.argv[2], mode=sys.argv[3],
        progress=lambda report: print(report.commands, flush=True),
    )
except KeyboardInterrupt as error:
    print("interrupted:", error.report.acknowledged, error.report.in_doubt, flush=True)
"""


def running_load(
    url: str, transport: str, wait_for: int, mode: str = "commands"
) -> subprocess.Popen[str]:
    """Start a process with an endless load; return it once it has sent ``wait_for`` commands."""
    child = preloaded.Popen(
        [sys.executable, "-c", CHILD_CODE, url, transport, mode],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert child.stdout is not None
    while int(child.stdout.readline()) < wait_for:
        pass
    return child


def interrupted(child: subprocess.Popen[str]) -> tuple[int, int]:
    """Return the final output: commands acknowledged, and in doubt."""
    output, _ = child.communicate(timeout=30)
    acknowledged, doubt = output.splitlines()[-1].removeprefix("interrupted: ").split()
    return int(acknowledged), int(doubt)


def whole_prefix(client: redis.Redis) -> int:
    """Return the number of stored keys; check that they are the first keys, with whole values."""
    count = client.dbsize()
    for start in range(0, count, 10_000):
        keys = [f"key:{i}" for i in range(start, min(start + 10_000, count))]
        assert set(client.mget(keys)) == {VALUE.encode()}
    return count


def commands(
    count: int, at: int | None = None, happening: Callable[[], object] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield SETs of distinct keys; call ``happening`` before number ``at``."""
    for i in range(count):
        if i == at and happening is not None:
            happening()
        yield "SET", f"key:{i}", VALUE


def lost(insert: Insert, server: str, data: object, **options: Any) -> fastresp.TransportError:
    """Return the error of a load that loses the server."""
    with pytest.raises(fastresp.TransportError) as caught:
        insert(data, server=server, **options)
    assert caught.value.report is not None
    return caught.value


def in_the_background(action: Callable[[], object], delay_s: float = 0.0) -> Callable[[], None]:
    """Return a function that runs ``action`` in a thread after a delay."""

    def start() -> None:
        threading.Timer(delay_s, action).start()

    return start
