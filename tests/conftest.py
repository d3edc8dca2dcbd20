"""Real servers for the tests: started on a unix socket, ended by pid, never mocked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest
import redis

from fastresp.programs import LocalServer, find_program


def need(role: str) -> str:
    """The path of a program; a missing one skips the test here, and fails it in CI."""
    program = find_program(role, f"FASTRESP_{role.upper()}")
    if program is None:
        reason = f"no redis-{role} or valkey-{role} on this machine"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@pytest.fixture(scope="session")
def cli() -> str:
    """The command line client that the loads of this run use."""
    return need("cli")


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LocalServer]:
    """One server for all tests that leave it as it was."""
    need("server")
    with LocalServer() as server:
        yield server


@pytest.fixture
def server(shared_server: LocalServer, cli: str) -> LocalServer:
    """The shared server, emptied."""
    client = redis.Redis.from_url(shared_server.url)
    client.flushall()
    client.close()
    return shared_server


@pytest.fixture
def client(server: LocalServer) -> Iterator[redis.Redis]:
    """A redis-py client of the shared server."""
    with redis.Redis.from_url(server.url, decode_responses=False) as client:
        yield client


@pytest.fixture
def start_server(cli: str) -> Iterator[Callable[..., LocalServer]]:
    """A function that starts a server of the test's own, with options; all are ended after it."""
    need("server")
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(LocalServer(*options))


@pytest.fixture
def port() -> int:
    """A TCP port on the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """No test leaves a child behind but the servers that the fixtures hold."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [
        child.cmdline()
        for child in psutil.Process().children(recursive=True)
        if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE
    ]
    assert not [line for line in left if "--pipe" in line]
