"""read("redis+psync://..."): a server's snapshot as columns."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer


@pytest.fixture
def url(start_server: Callable[..., LocalServer]) -> str:
    source = start_server("--repl-diskless-sync-delay", "0")
    with redis.Redis.from_url(source.url) as client:
        for number in range(1000):
            client.hset(f"user:{number}", mapping={"name": f"name {number}", "text": "x" * 1000})
        client.set("other", 1)
    return source.url.replace("unix://", "unix+psync://")


def test_columns(url: str) -> None:
    table = pa.table(fastresp.read(url, match="user:{id}", fields=["name"]))
    assert sorted(table["id"].to_pylist()) == sorted(map(str, range(1000)))
    assert set(table["name"].to_pylist()) == {f"name {number}" for number in range(1000)}


def test_load(url: str, client: redis.Redis) -> None:
    users = fastresp.read(url, match="user:{id}", fields=["name"])
    report = fastresp.mass_insert(users, "SET name:{id} {name}", client)
    assert (report.rows, client.get("name:7")) == (1000, b"name 7")


def test_a_source_that_is_left(url: str) -> None:
    """The source is no longer replicated when reading ends early."""
    source = url.replace("+psync", "")
    with redis.Redis.from_url(source) as client:
        with fastresp.read(url, match="user:{id}", fields=["name"]) as table:
            next(iter(pa.RecordBatchReader.from_stream(table)))
        end = time.monotonic() + 5
        while client.info("replication")["connected_slaves"]:
            assert time.monotonic() < end


def test_errors(url: str, start_server: Callable[..., LocalServer]) -> None:
    with pytest.raises(fastresp.SourceError, match=r"can be read only once.*name the fields"):
        pa.table(fastresp.read(url, match="user:{id}"))
    with pytest.raises(ValueError, match="choose one with db=, not in the URL"):
        fastresp.read(f"{url}?db=3", match="user:{id}")
    with pytest.raises(fastresp.SourceError, match=r"nowhere\.invalid:6379"):
        pa.table(fastresp.read("redis+psync://nowhere.invalid", fields=["a"]))
    refusing = start_server("--rename-command", "PSYNC", "")
    with pytest.raises(fastresp.SourceError, match=r"no.* replication.*use fastresp.unload\(\)"):
        pa.table(fastresp.read(refusing.url.replace("://", "+psync://"), fields=["a"]))
