"""The same data makes the same keys by every way to load it, and ``verify`` agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from data_sets import DATA_SETS, DataSet
from ways import METHODS, SOURCES

import fastresp
from fastresp.server.local_server import LocalServer

Hashes = dict[bytes, dict[bytes, bytes]]


def stored(client: redis.Redis) -> Hashes:
    """Return all hashes of the server, without the keys of checkpoints."""
    keys = client.keys("k:*")
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hgetall(key)
        return dict(zip(keys, pipeline.execute(), strict=True))


def fault(load: Callable[[], None], client: redis.Redis, expected: Hashes) -> str | None:
    """Load into the empty server; return what is wrong, if anything."""
    client.flushall()
    try:
        load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = stored(client)
    differing = [key for key in found | expected if found.get(key) != expected.get(key)]
    if differing:
        key = differing[0]
        return f"{len(differing)} keys; {key!r}: {found.get(key)}, not {expected.get(key)}"
    return None


@pytest.mark.parametrize("data", DATA_SETS, ids=lambda data: data.name)
def test_same_keys(data: DataSet, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    numbers = iter(range(1000))

    def folder() -> Path:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return path

    def load_and_verify() -> None:
        fastresp.mass_insert(source.make(data, folder()), data.template, server=server.url)
        report = fastresp.verify(source.make(data, folder()), data.template, server=server.url)
        assert (report.rows, report.differing) == (data.table.num_rows, 0), report

    def load() -> None:
        method.load(method.source.make(data, folder()), data.template, server.url, folder())

    expected = data.expected()
    faults = {}
    for name, source in SOURCES.items():
        if source.carries(data):
            faults[name] = fault(load_and_verify, client, expected)
    for name, method in METHODS.items():
        if method.source.carries(data):
            faults[name] = fault(load, client, expected)
    assert len(faults) > 20, "most ways were not tried"
    wrong = [f"{name}: {words[:500]}" for name, words in faults.items() if words is not None]
    assert not wrong, "\n".join(wrong)
