"""A source with keys of every encoding, and a target, for the tests of a module.

A module sets TARGET, the name of the target's program, and ``prepare()``, which changes the source.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from every_encoding import fill
from server_programs import WHEEL_SERVERS, located

from fastresp.server.local_server import LocalServer


@pytest.fixture(scope="module")
def shared_source(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with LocalServer(program=located("redis-8.2", WHEEL_SERVERS)) as server:
        with redis.Redis.from_url(server.url) as client:
            fill(client)
            request.module.prepare(client)
        yield server


@pytest.fixture
def source(shared_source: LocalServer) -> Iterator[redis.Redis]:
    """A client of a server whose keys no test changes."""
    with redis.Redis.from_url(shared_source.url) as client:
        yield client


@pytest.fixture(scope="module")
def shared_target(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with LocalServer(program=located(request.module.TARGET, WHEEL_SERVERS)) as server:
        yield server


@pytest.fixture
def target(shared_target: LocalServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(shared_target.url) as client:
        client.flushall()
        yield client
