"""Forks at any time: the child ends in any way, and the parent's report stays correct.

The scenarios are in forking_loads.py and forking_replies.py. They run in a separate process: a
child that ends by an exception would unwind pytest itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import SUPPORT

from fastresp.server.forks import is_own, on_fork
from fastresp.server.local_server import LocalServer

SCENARIOS = (
    "socket", "loader", "lanes", "checkpoint", "redis_cli", "progress", "bar", "rejects",
    "rejects_file", "dump", "aio", "aio_source", "aio_loader", "iter_replies",
    "iter_replies_taken", "aio_iter_replies", "fetch_hashes", "aio_fetch_hashes",
    "aio_fetch_hashes_slowly", "pop", "pop_safely", "aio_pop", "push", "aio_push", "processes",
    "table", "aio_table", "resp_file", "local_server",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("doctor", "query")),
)  # fmt: skip
ALL_RIGHT = "exception right\nexit right\nat once right\non right\n"


def run(scenario: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = str(SUPPORT / "forking.py")
    command = [sys.executable, "-W", "error", script, scenario, url, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@pytest.mark.few(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_fork(server: LocalServer, tmp_path: Path, scenario: str) -> None:
    done = run(scenario, server.url, tmp_path)
    assert (done.stdout, done.returncode) == (ALL_RIGHT, 0), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["socket", "pop_safely", "aio"])
def test_fork_with_tls(tls: Callable[..., str], tmp_path: Path, scenario: str) -> None:
    done = run(scenario, tls(), tmp_path)
    assert (done.stdout, done.returncode) == (ALL_RIGHT, 0), done.stderr


def test_objects_are_freed_without_running_python() -> None:
    """An exception of a signal handler would be lost there."""

    class Thing:
        pass

    thing = Thing()
    on_fork(thing)
    assert is_own(thing)
    called: list[str] = []
    sys.setprofile(lambda frame, event, argument: called.append(event))
    try:
        del thing
    finally:
        sys.setprofile(None)
    assert "call" not in called
    assert not is_own(Thing())
