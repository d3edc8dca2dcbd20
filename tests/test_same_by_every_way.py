"""The same data makes the same keys and counts by every way to load it; ``verify`` agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from data_sets import DATA_SETS, DataSet, Mixed
from ways import METHODS, SOURCES, counts

import fastresp
from fastresp.server.local_server import LocalServer

Hashes = dict[bytes, dict[bytes, bytes]]
Counts = tuple[int, int, int]


def stored(client: redis.Redis) -> Hashes:
    """Return all hashes of the server, without the keys of checkpoints."""
    keys = client.keys("k:*")
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hgetall(key)
        return dict(zip(keys, pipeline.execute(), strict=True))


def fault(
    load: Callable[[], Counts | None], client: redis.Redis, expected: Hashes, counts: Counts
) -> str | None:
    """Load into the empty server; return what is wrong, if anything."""
    client.flushall()
    try:
        reported = load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = stored(client)
    differing = [key for key in found | expected if found.get(key) != expected.get(key)]
    if differing:
        key = differing[0]
        return f"{len(differing)} keys; {key!r}: {found.get(key)}, not {expected.get(key)}"
    if reported is not None and reported != counts:
        return f"rows, skipped commands and nulls: {reported}, not {counts}"
    return None


@pytest.mark.parametrize("data", DATA_SETS, ids=lambda data: data.name)
def test_same_keys(data: DataSet, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    numbers = iter(range(1000))

    def folder() -> Path:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return path

    def load_and_verify() -> Counts:
        loaded = fastresp.mass_insert(source.make(data, folder()), data.template, server=server.url)
        report = fastresp.verify(source.make(data, folder()), data.template, server=server.url)
        assert (report.rows, report.differing) == (data.table.num_rows, 0), report
        return counts(loaded)

    def load() -> Counts | None:
        return method.load(method.source.make(data, folder()), data.template, server.url, folder())

    expected = data.expected()
    faults = {}
    for name, source in SOURCES.items():
        if source.carries(data):
            found = data.counts(keyed=source.keyed)
            faults[name] = fault(load_and_verify, client, expected, found)
    for name, method in METHODS.items():
        if method.source.carries(data):
            found = data.counts(keyed=method.source.keyed)
            faults[name] = fault(load, client, expected, found)
    assert len(faults) > (8 if isinstance(data, Mixed) else 20), "most ways were not tried"
    wrong = [f"{name}: {words[:500]}" for name, words in faults.items() if words is not None]
    assert not wrong, "\n".join(wrong)
