"""Helpers for the doctor's tests: load a server, and read the doctor's findings."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis
from places import SUPPORT
from server_programs import WHEEL_SERVERS

import fastresp
from fastresp.doctor import Diagnosis, Verdict, watch

CARELESS = SUPPORT / "careless.py"
SERVERS = pytest.mark.parametrize("program", ["redis-server", *WHEEL_SERVERS])
WATCH_S = 0.8
# Runs for about 1 ms per thousand of its count.
COUNT = "local i = 0 while i < tonumber(ARGV[1]) * 1000 do i = i + 1 end"


@contextmanager
def client_at_work(manner: str, url: str) -> Iterator[None]:
    """Run a careless client in its own process, and wait until it has started."""
    with redis.Redis.from_url(url) as client:
        before = client.info("stats")["total_commands_processed"]
        with subprocess.Popen([sys.executable, str(CARELESS), manner, url]) as process:
            try:
                deadline = time.monotonic() + 20
                while client.info("stats")["total_commands_processed"] < before + 100:
                    assert process.poll() is None and time.monotonic() < deadline
                    if manner in ("slow", "greedy", "pieces") and client.dbsize() >= 0:
                        time.sleep(0.5)
                        break
                    time.sleep(0.02)
                client.close()
                yield
            finally:
                process.kill()


def watched(url: str, right: Callable[[Diagnosis], bool], seconds: float = WATCH_S) -> Diagnosis:
    """Watch until the result is right, longer each time: on a busy machine, clients are slow."""
    found = watch(url, seconds)
    for times in (1, 3, 10):
        if right(found):
            break
        found = watch(url, seconds * times)
    return found


def changes(found: Diagnosis) -> set[str]:
    for each in found.verdicts:
        assert re.fullmatch(r"[^:]+(: https://[\w.-]+/[\w./#-]+)?", each.source), each.source
    return {verdict.code for verdict in found.verdicts if verdict.grade != "note"}


def verdict(found: Diagnosis, code: str) -> Verdict:
    named = [each for each in found.verdicts if each.code == code]
    assert named, found.verdicts
    assert all((named[0].title, named[0].figure, named[0].advice, named[0].source))
    return named[0]


def fill(url: str, keys: int, size: int = 1000) -> None:
    """Write ``keys`` keys; ignore refused ones."""
    rows = ((i, "x" * size) for i in range(keys))
    fastresp.mass_insert(
        rows, "SET full:{0} {1}", server=url, transport="socket", on_error="collect"
    )
