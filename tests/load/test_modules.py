"""Loads into the modules Search, JSON and Bloom, and into vector sets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer

COUNT = 40
SMALLEST, LARGEST = 384, 1536  # common sizes of embeddings


@pytest.fixture
def client(module_server: LocalServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(module_server.url, protocol=2) as client:
        yield client


@pytest.fixture(autouse=True)
def _url(module_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", module_server.url)


def vectors(size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(size).random((COUNT, size), dtype=np.float32)


def as_rows(found: np.ndarray[Any, Any], *, lists: bool) -> Iterator[dict[str, Any]]:
    for number, vector in enumerate(found):
        yield {"id": number, "embedding": vector.tolist() if lists else vector}


def as_columns(found: np.ndarray[Any, Any]) -> pa.Table:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), found.shape[1])
    return pa.table({"id": range(COUNT), "embedding": embedding})


def nearest(client: redis.Redis, vector: bytes) -> bytes:
    """Return the key of the document nearest to a vector."""
    reply: Any = client.execute_command(
        "FT.SEARCH", "docs", "*=>[KNN 1 @embedding $v]", "PARAMS", "2", "v", vector, "NOCONTENT",
        "DIALECT", "2",
    )  # fmt: skip
    return bytes(reply[1])


@pytest.mark.parametrize("kind", ["HASH", "JSON"])
@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("size", [SMALLEST, 768, LARGEST])
def test_vectors(kind: str, form: str, size: int, client: redis.Redis) -> None:
    """Each vector is nearest to itself, so it was stored and indexed unchanged."""
    field = "embedding" if kind == "HASH" else "$.embedding AS embedding"
    client.execute_command(
        *f"FT.CREATE docs ON {kind} PREFIX 1 doc: SCHEMA {field} VECTOR FLAT 6 TYPE FLOAT32 "
        f"DIM {size} DISTANCE_METRIC L2".split()
    )
    found = vectors(size)
    data = as_columns(found) if form == "columns" else as_rows(found, lists=kind == "JSON")
    template = {
        "HASH": "HSET doc:{id} embedding {embedding!f32}",
        "JSON": "JSON.SET doc:{id} $ {*!json}",
    }[kind]
    [index] = fastresp.mass_insert(data, template, transport="socket").indexes
    assert (index.documents, index.failures) == (COUNT, 0)
    for number in (0, COUNT // 2, COUNT - 1):
        assert nearest(client, found[number].tobytes()) == f"doc:{number}".encode()


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_vector_set(form: str, client: redis.Redis) -> None:
    """Redis 8 has vector sets. Valkey lacks them, so nothing is sent."""
    found = vectors(SMALLEST)
    data = as_columns(found) if form == "columns" else as_rows(found, lists=False)
    [known] = fastresp.execute("COMMAND", "INFO", "VADD")
    template = "VADD docs FP32 {embedding!f32} {id}"
    if "valkey_version" in client.info("server"):
        assert known is None
        with pytest.raises(fastresp.CommandError, match="unknown command 'VADD'"):
            fastresp.mass_insert(data, template)
        return
    assert fastresp.mass_insert(data, template).failed == 0
    assert fastresp.execute("VCARD", "docs") == COUNT
    assert fastresp.execute("VSIM", "docs", "FP32", found[7].tobytes(), "COUNT", 1) == [b"7"]


def test_json_mset(client: redis.Redis) -> None:
    """Two documents of a row in one command, which a server runs atomically."""
    data = [
        {"id": number, "user": {"name": f"n{number}"}, "cart": [number, None]}
        for number in range(COUNT)
    ]
    template = "JSON.MSET user:{id} $ {user!json} cart:{id} $ {cart!json}"
    columns = pa.Table.from_pylist(data)
    for source in (data, columns):
        client.flushall()
        report = fastresp.mass_insert(source, template)
        assert (report.commands, report.failed, client.dbsize()) == (COUNT, 0, 2 * COUNT)
        assert client.execute_command("JSON.GET", "cart:7") == b"[7,null]"
        assert client.execute_command("JSON.GET", "user:7") == b'{"name":"n7"}'


def test_bloom_filter(client: redis.Redis) -> None:
    data = [{"page": "a", "users": ["x", "y"]}, {"page": "b", "users": ["z"]}]
    for source in (data, pa.Table.from_pylist(data)):
        client.flushall()
        assert fastresp.mass_insert(source, "BF.MADD seen:{page} {*users}").failed == 0
        assert fastresp.execute("BF.MEXISTS", "seen:a", "x", "y", "z") == [1, 1, 0]


def test_time_series_are_refused_before_anything_is_sent(client: redis.Redis) -> None:
    """Their module needs libssl 1.1, so the test server lacks it."""
    with pytest.raises(fastresp.CommandError, match=r"unknown command 'TS\.MADD'"):
        fastresp.mass_insert([(1, 2.5)], "TS.MADD temperature {0} {1}")
    assert client.dbsize() == 0


def test_vector_of_another_length(client: redis.Redis) -> None:
    """The server stores it and does not index it; the report says so."""
    client.execute_command(
        *f"FT.CREATE docs ON HASH PREFIX 1 doc: SCHEMA embedding VECTOR FLAT 6 TYPE FLOAT32 "
        f"DIM {SMALLEST} DISTANCE_METRIC L2".split()
    )
    data = [
        {"id": number, "embedding": os.urandom(4 * SMALLEST - number % 2)} for number in range(9)
    ]
    report = fastresp.mass_insert(data, "HSET doc:{id} {**}")
    [index] = report.indexes
    assert (report.failed, index.documents, index.failures, client.dbsize()) == (0, 5, 4, 9)
    assert "Could not add vector with blob size 1535 (expected size 1536)" in str(report)
