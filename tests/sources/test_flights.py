"""A table loaded from files, frames and queries is stored exactly as redis-py stores it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer

TEMPLATE = "HSET flight:{row} {**}"
ROWS = 10_000


@pytest.fixture(scope="module", params=[ROWS, pytest.param(336_776, marks=pytest.mark.long)])
def frame(request: pytest.FixtureRequest, flights_csv: bytes) -> pd.DataFrame:
    """Return the flights with numbers, nulls and text, and a number for each row."""
    frame = pd.read_csv(io.BytesIO(flights_csv), nrows=request.param)
    assert len(frame) == request.param
    assert frame.isna().any().any()
    frame.insert(0, "row", np.arange(len(frame)))
    return frame


@pytest.fixture(scope="module")
def files(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flights")
    frame.to_csv(folder / "flights.csv", index=False)
    frame.to_parquet(folder / "flights.parquet", index=False)
    return folder


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "CSV": lambda frame, files: fastresp.read(files / "flights.csv"),
    "Parquet": lambda frame, files: fastresp.read(files / "flights.parquet"),
    "pandas": lambda frame, files: frame,
    "polars": lambda frame, files: pl.from_pandas(frame),
    "DuckDB": lambda frame, files: duckdb.sql(f"SELECT * FROM '{files}/flights.parquet'"),
    "a query": lambda frame, files: fastresp.read(f"SELECT * FROM '{files}/flights.parquet'"),
}


@pytest.fixture(scope="module")
def expected(frame: pd.DataFrame, shared_server: LocalServer) -> dict[bytes, dict[bytes, bytes]]:
    """Return what redis-py stores for the frame."""
    with redis.Redis.from_url(shared_server.url) as client:
        client.flushall()
        for start in range(0, len(frame), 5_000):
            pipeline = client.pipeline(transaction=False)
            for row in frame.iloc[start : start + 5_000].to_dict("records"):
                number = row.pop("row")
                held = {name: value for name, value in row.items() if not pd.isna(value)}
                pipeline.hset(f"flight:{number}", mapping=held)
            pipeline.execute()
        return everything(client)


def everything(client: redis.Redis) -> dict[bytes, dict[bytes, bytes]]:
    """Return all hashes of a server."""
    keys = list(client.scan_iter(count=10_000))
    found = fastresp.iter_replies(keys, "HGETALL {0}", server=client)
    return {
        key: dict(zip(flat[::2], flat[1::2], strict=True))
        for key, flat in zip(keys, found, strict=True)
    }


@pytest.mark.few(1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", SOURCES)
def test_same_data(
    source: str,
    frame: pd.DataFrame,
    files: Path,
    expected: dict[bytes, dict[bytes, bytes]],
    server: LocalServer,
    client: redis.Redis,
) -> None:
    data = SOURCES[source](frame, files)
    report = fastresp.mass_insert(data, TEMPLATE, server=server.url, nulls="skip")
    assert (report.rows, report.replies, report.failed) == (len(frame), len(frame), 0)
    stored = everything(client)
    assert len(stored) == len(frame)
    assert stored == expected
