"""examples/feast: Feast reads what the example has written; needs pip install "feast[redis]"."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from local_cluster import LocalCluster
from needed import imported
from places import ROOT

from fastresp.server.local_server import LocalServer

pytestmark = pytest.mark.feast

EXAMPLE = ROOT / "examples" / "feast"
OURS, FEAST = "fast_redis.FastRedisOnlineStore", "redis"
COUNT = 3_000
DAY = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    imported("feast")
    monkeypatch.syspath_prepend(str(EXAMPLE))


def rows(days: dict[int, int]) -> list[dict[str, Any]]:
    """Return a row for each user and day; the values say which day it was."""
    return [
        {
            "user": user, "name": f"näme {user} {day}", "score": user / 4 + day,
            "seen": DAY + datetime.timedelta(days=user), "good": user % 2 == 0,
            "embedding": [float(user), float(day)], "ts": DAY + datetime.timedelta(days=day),
        }
        for user in range(COUNT)
        for day in (days[user % len(days)], 0)
    ]  # fmt: skip


def opened(folder: Path, kind: str, **options: Any) -> Any:
    """Return a FeatureStore with a view of users, for rows stored in the folder."""
    from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
    from feast.types import Array, Bool, Float32, Int64, String, UnixTimestamp

    registry = folder / f"{kind}.db"
    config = RepoConfig(
        project="clicks", provider="local", registry=str(registry),
        entity_key_serialization_version=3, online_store={"type": kind} | options,
    )  # fmt: skip
    store = FeatureStore(config=config)
    user = Entity(name="user", join_keys=["user"], value_type=ValueType.INT64)
    types = {
        "name": String, "score": Float32, "seen": UnixTimestamp, "good": Bool,
        "embedding": Array(Float32),
    }  # fmt: skip
    view = FeatureView(
        name="users", entities=[user], source=FileSource(path=str(folder / "x.parquet"),
        timestamp_field="ts"), schema=[Field(name="user", dtype=Int64),
        *(Field(name=name, dtype=kind) for name, kind in types.items())],
    )  # fmt: skip
    store.apply([user, view])
    return store


def written(store: Any, days: dict[int, int]) -> None:
    """Write rows through Feast's own online store."""
    import pandas as pd

    store.write_to_online_store("users", pd.DataFrame(rows(days)))


def read(store: Any) -> Any:
    names = ["users:name", "users:score", "users:seen", "users:good", "users:embedding"]
    users = [{"user": user} for user in (0, 1, 2, COUNT - 1, COUNT)]
    return store.get_online_features(features=names, entity_rows=users).to_dict()


def keys_of(client: redis.Redis) -> dict[bytes, dict[bytes, bytes]]:
    return {key: client.hgetall(key) for key in client.scan_iter(count=1000)}


@pytest.mark.parametrize("skip_dedup", [False, True])
def test_server(
    skip_dedup: bool, start_server: Callable[..., LocalServer], port: int, tmp_path: Path
) -> None:
    """Every hash equals Feast's, even if some rows are older than the stored ones."""
    start_server("--port", str(port))
    stored, found = [], []
    for number, kind in enumerate((FEAST, OURS)):
        where = f"127.0.0.1:{port},db={number}"
        options = {"skip_dedup": skip_dedup, "key_ttl_seconds": 3600}
        store = opened(tmp_path, kind, connection_string=where, **options)
        for days in ({0: 2, 1: 3}, {0: 1, 1: 4}):
            written(store, days)
        client = redis.Redis(port=port, db=number)
        assert all(0 < client.ttl(key) <= 3600 for key in client.scan_iter())
        stored.append(keys_of(client))
        found.append(read(store))
    assert len(stored[0]) == COUNT
    assert stored[0] == stored[1]
    assert found[0] == found[1]
    name = "näme 0 0" if skip_dedup else "näme 0 2"
    assert found[1]["name"] == [name, *found[0]["name"][1:4], None]


def test_cluster(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        where = ",".join(f"127.0.0.1:{port}" for port in cluster.ports)
        options = {"connection_string": where, "redis_type": "redis_cluster"}
        written(opened(tmp_path, OURS, **options), {0: 1})
        assert min(cluster.sizes()) > COUNT // 4
        found = read(opened(tmp_path, FEAST, **options))
    assert found["score"] == [1.0, 1.25, 1.5, (COUNT - 1) / 4 + 1, None]


def test_command_line(start_server: Callable[..., LocalServer], port: int, tmp_path: Path) -> None:
    """Feast's own program materialises with the store named in feature_store.yaml."""
    import pandas as pd

    start_server("--port", str(port))
    pd.DataFrame(rows({0: 1})).to_parquet(tmp_path / "x.parquet")
    where = f"127.0.0.1:{port}"
    opened(tmp_path, OURS, connection_string=where)
    (tmp_path / "feature_store.yaml").write_text(
        f"project: clicks\nregistry: {OURS}.db\nprovider: local\n"
        f"entity_key_serialization_version: 3\nonline_store:\n  type: {OURS}\n"
        f"  connection_string: {where}\n"
    )
    program = Path(sys.executable).with_name("feast")
    done = subprocess.run(
        [program, "materialize", "2024-04-01T00:00:00", "2024-06-01T00:00:00"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, "PYTHONPATH": f"{EXAMPLE}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert read(opened(tmp_path, FEAST, connection_string=where))["name"][1] == "näme 1 1"
