"""The same data makes the same keys and counts by every way to load it; ``verify`` agrees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import redis
from data_sets import DATA_SETS, DataSet, Mixed
from ways import METHODS, SOURCES, Method, Source, counts

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


# By default, a tenth of the ways loads each data set, in turn.
SHARE = 10
ALL = slice(None)
CASES = [
    pytest.param(data, slice(number % SHARE, None, SHARE), id=data.name)
    for number, data in enumerate(DATA_SETS)
] + [
    pytest.param(data, ALL, id=f"{data.name}, all ways", marks=pytest.mark.slow)
    for data in DATA_SETS
]


def source_of(way: Source | Method) -> Source:
    return way.source if isinstance(way, Method) else way


@pytest.mark.few(21)
@pytest.mark.parametrize(("data", "share"), CASES)
def test_same_keys(
    data: DataSet, share: slice, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    numbers = iter(range(1000))

    def folder() -> Path:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return path

    def load(way: Source | Method) -> Counts | None:
        made = source_of(way).make(data, folder())
        if isinstance(way, Method):
            return way.load(made, data.template, server.url, folder())
        loaded = fastresp.mass_insert(made, data.template, server=server.url)
        report = fastresp.verify(way.make(data, folder()), data.template, server=server.url)
        assert (report.rows, report.differing) == (data.table.num_rows, 0), report
        return counts(loaded)

    ways = [
        (name, way)
        for name, way in [*SOURCES.items(), *METHODS.items()]
        if source_of(way).carries(data)
    ]
    assert len(ways) > (8 if isinstance(data, Mixed) else 20), "most ways can't carry it"
    expected = data.expected()
    faults = {}
    for name, way in ways[share]:
        found = data.counts(keyed=source_of(way).keyed)
        faults[name] = fault(partial(load, way), client, expected, found)
    wrong = [f"{name}: {words[:500]}" for name, words in faults.items() if words is not None]
    assert not wrong, "\n".join(wrong)
