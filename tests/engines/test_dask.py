"""Dask DataFrames: each partition is loaded once, even if workers end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import redis
from engine_jobs import HASH, INCREMENT, check_hashes, frame, killing, total, total_of
from needed import imported

import fastresp
from fastresp.server.local_server import LocalServer

dask = imported("dask")
distributed = imported("distributed")
dd = imported("dask.dataframe")
adapter = imported("fastresp.dask")
to_redis = adapter.to_redis

ROWS = 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two processes on this machine."""
    with (
        dask.config.set({"distributed.admin.tick.limit": "1h"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def workers(cluster: Any) -> Any:
    """The cluster, with its initial number of workers."""
    cluster.wait_for_workers(2)
    return cluster


def partitions(rows: int, count: int) -> Any:
    return dd.from_pandas(frame(rows), npartitions=count)


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_load(server: LocalServer, client: redis.Redis, scheduler: str) -> None:
    found = to_redis(partitions(ROWS, 7), HASH, server.url, compute_kwargs={"scheduler": scheduler})
    assert (found.rows, found.commands, found.failed) == (ROWS, ROWS, 0)
    check_hashes(client, ROWS)


def test_empty_partitions(server: LocalServer, client: redis.Redis) -> None:
    source = partitions(1000, 4)
    load = partial(to_redis, source[source["id"] <= 10], INCREMENT, server.url, exactly_once="few")
    assert [load().rows, load().rows_before] == [10, 10]
    assert total(client) == total_of(10)


def test_processes(server: LocalServer, client: redis.Redis) -> None:
    load = partial(to_redis, partitions(1000, 3), INCREMENT, server.url, exactly_once="job")
    kwargs = {"scheduler": "processes", "num_workers": 2}
    assert load(compute_kwargs=kwargs).rows == 1000
    assert total(client) == total_of(1000)
    assert client.keys("fastresp:*") == [b"fastresp:{job}:job"]
    again = load(compute_kwargs=kwargs)
    assert (again.rows, again.rows_before, again.commands) == (1000, 1000, 0)
    assert total(client) == total_of(1000)


def set_url(url: str) -> None:
    os.environ["REDIS_URL"] = url


def test_workers(server: LocalServer, client: redis.Redis, workers: Any) -> None:
    """The URL is from the workers' environment."""
    workers.run(set_url, server.url)
    later = to_redis(partitions(ROWS, 7), HASH, compute=False)
    assert client.dbsize() == 0
    assert later.compute().rows == ROWS
    check_hashes(client, ROWS)


@pytest.mark.slow
def test_million_rows(server: LocalServer, client: redis.Redis, workers: Any) -> None:
    assert to_redis(partitions(1_000_000, 20), HASH, server.url).rows == 1_000_000
    check_hashes(client, 1_000_000)


@pytest.mark.parametrize("rows", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_killed_worker(server: LocalServer, client: redis.Redis, workers: Any, rows: int) -> None:
    """A worker is killed while it loads; its partition resumes on another one."""
    # Each partition takes half a second: two of them are loading, and are half done.
    load = partial(to_redis, partitions(rows, 4), INCREMENT, server.url, rate_limit=rows)
    with pytest.raises(fastresp.CheckpointError, match="an engine may run a task twice"):
        load()
    with killing(client, total_of(rows) // 8) as killed:
        found = load(exactly_once="killed")
    assert killed and found.rows == rows and found.rows_before > 0
    assert total(client) == total_of(rows)
    assert client.keys("fastresp:*") == [b"fastresp:{killed}:job"]


def test_retries(server: LocalServer, client: redis.Redis, workers: Any, tmp_path: Path) -> None:
    """A function of the source fails in one partition, and Dask retries it."""
    failed = tmp_path / "failed"

    def fail_once(part: pd.DataFrame) -> pd.DataFrame:
        if 1 in part["id"] and not failed.exists():
            failed.touch()
            raise RuntimeError("once")
        return part

    source = partitions(10_000, 4).map_partitions(fail_once, meta=frame(0))
    kwargs = {"retries": 1}
    found = to_redis(source, INCREMENT, server.url, exactly_once="again", compute_kwargs=kwargs)
    assert failed.exists() and found.rows == 10_000
    assert total(client) == total_of(10_000)


def stop_in_the_middle(server: LocalServer, client: redis.Redis, name: str) -> None:
    """Load half of the rows, so that a job has not ended."""
    client.set("wrong", "text")
    source = frame(1000).assign(key="total")
    source.loc[700, "key"] = "wrong"
    with pytest.raises(fastresp.LoadErrors, match="1 error"):
        to_redis(
            dd.from_pandas(source, npartitions=2), "INCRBY {key} {id}", server.url,
            exactly_once=name, on_error="stop", compute_kwargs={"scheduler": "sync"},
        )  # fmt: skip


def test_other_split(server: LocalServer, client: redis.Redis) -> None:
    """An unfinished job does not continue with other partitions, whose rows would run twice."""
    stop_in_the_middle(server, client, "job")
    before = total(client)
    with pytest.raises(fastresp.CheckpointError, match="started with 2 partitions, and this is 3"):
        to_redis(
            partitions(1000, 3), "INCRBY total {id}", server.url, exactly_once="job",
            compute_kwargs={"scheduler": "sync"},
        )  # fmt: skip
    assert total(client) == before


def test_other_rows(server: LocalServer, client: redis.Redis) -> None:
    """An attempt with another order of rows is refused."""
    load = partial(to_redis, template=INCREMENT, server=server.url, exactly_once="job")
    broken = pd.concat([frame(1000), pd.DataFrame({"id": [1 << 63]})], ignore_index=True)
    with pytest.raises(fastresp.LoadErrors):
        load(dd.from_pandas(broken.astype({"id": str}), npartitions=1))
    before = total(client)
    with pytest.raises(fastresp.CheckpointError, match="belongs to another load: source was"):
        load(dd.from_pandas(broken.astype({"id": str}).iloc[::-1], npartitions=1, sort=False))
    assert total(client) == before


def test_failed_commands_are_logged(
    server: LocalServer, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.set("user:5", "text")
    to_redis(partitions(10, 2), HASH, server.url, on_error="collect")
    to_redis(partitions(10, 2), HASH, server.url, on_error="collect", compute=False).compute(
        scheduler="sync"
    )
    found = [each.levelname for each in caplog.records if "1 x WRONGTYPE" in each.message]
    assert found == ["WARNING", "WARNING"]


def test_errors(server: LocalServer, client: redis.Redis, workers: Any, tmp_path: Path) -> None:
    """Errors of the workers reach the caller with their text and report."""
    client.set("user:500", "text")
    load = partial(to_redis, partitions(1000, 2), HASH, server.url)
    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE Operation against a key") as caught:
        load()
    assert caught.value.report.errors_by_code == {"WRONGTYPE": 1}
    assert caught.value.report.errors[0].row == 499
    found = load(on_error="collect", rejects=tmp_path)
    assert (found.rows, found.errors_by_code) == (1000, {"WRONGTYPE": 1})
    [rejects] = tmp_path.iterdir()
    assert rejects.name.startswith("0-")
    client.delete("user:500")
    assert fastresp.mass_insert(fastresp.read_rejects(rejects), server=server.url).commands == 1
    check_hashes(client, 1000)
    with pytest.raises(fastresp.TemplateError, match=r"no column \{nothing\}"):
        to_redis(partitions(10, 1), "SET {nothing} 1", server.url)


def test_password(workers: Any) -> None:
    """Dask's logs and errors do not contain the password."""
    url = "redis://user:geheim@127.0.0.1:1/0"
    later = to_redis(partitions(10, 1), HASH, url, compute=False)
    with pytest.raises(fastresp.TransportError) as caught:
        later.compute()
    logs = f"{workers.get_worker_logs()}"
    seen = f"{caught.value!r} {caught.value} {later!r} {dict(later.dask)!r} {logs}"
    assert "Connection refused" in seen and "Compute Failed" in logs
    assert "geheim" not in seen


@pytest.mark.parametrize(
    ("source", "index", "fields"),
    [
        (frame(2), True, [b"id", b"name", b"score"]),
        (frame(2).set_index("id"), True, [b"id", b"name", b"score"]),
        (frame(3).iloc[1:].rename_axis("row"), True, [b"id", b"name", b"row", b"score"]),
        (frame(2).set_index("id"), False, [b"name", b"score"]),
        (frame(2).convert_dtypes(dtype_backend="pyarrow"), True, [b"id", b"name", b"score"]),
        (frame(2).astype({"name": "category"}), True, [b"id", b"name", b"score"]),
    ],
)  # fmt: skip
def test_index(
    server: LocalServer, client: redis.Redis, source: pd.DataFrame, index: bool, fields: list[bytes]
) -> None:
    """An index is a column if it has a name."""
    to_redis(dd.from_pandas(source, npartitions=1), "HSET h {**}", server.url, index=index)
    assert sorted(client.hkeys("h")) == fields
    assert client.hget("h", "name") == source["name"].iloc[-1].encode()


LISTS = pd.DataFrame({"id": [0, 1, 2, 3], "v": [[1.0, n + 0.5] for n in range(4)]})
OBJECTS = LISTS.assign(d=[{"a": n} for n in range(4)])


@pytest.mark.parametrize(
    "template", ["SET v:{id} {v!f32}", "RPUSH v:{id} {*v}", "SET v:{id} {d.a}"]
)
@pytest.mark.parametrize("empty", [False, True])
def test_columns_of_objects(
    server: LocalServer, client: redis.Redis, template: str, empty: bool
) -> None:
    """Dask, like an empty partition, does not know that they are lists or dicts."""
    with dask.config.set({"dataframe.convert-string": False}):
        source = dd.from_pandas(OBJECTS, npartitions=2)
    if empty:
        source = source[source["id"] >= 2]
    for _ in range(2):
        found = to_redis(source, template, server.url, exactly_once="job")
        assert found.rows == (2 if empty else 4)
    vector = np.array([1.0, 3.5], "<f4").tobytes()
    found = client.lrange("v:3", 0, -1) if "*" in template else client.get("v:3")
    assert found == ([b"1.0", b"3.5"] if "*" in template else b"3" if "a" in template else vector)


def test_lists_as_text(server: LocalServer, client: redis.Redis) -> None:
    """By default, Dask converts them to text; the error says how to keep them."""
    load = partial(to_redis, template="SET v:{id} {v!f32}", server=server.url)
    with pytest.raises(fastresp.TemplateError, match="is of type string") as caught:
        load(dd.from_pandas(LISTS, npartitions=1))
    assert "{'dataframe.convert-string': False}" in "".join(caught.value.__notes__)
    with dask.config.set({"dataframe.convert-string": False}):
        with pytest.raises(fastresp.TemplateError, match="is of type string") as caught:
            load(dd.from_pandas(frame(3).astype({"name": "string"}).rename(columns={"name": "v"})))
        assert not hasattr(caught.value, "__notes__")
        with pytest.raises(fastresp.TemplateError, match=r"is of type null|is of type string"):
            load(dd.from_pandas(frame(3).rename(columns={"name": "v"}), npartitions=1))
    assert client.dbsize() == 0


def test_threads(workers: Any) -> None:
    """The rate limit is divided by the number of partitions loaded at the same time."""
    source = partitions(10, 3)
    assert adapter.threads_of(source) == 2
    assert adapter.threads_of(source, scheduler="sync") == 1
    assert adapter.threads_of(source, scheduler="threads", num_workers=5) == 5
    with dask.config.set(scheduler="processes", num_workers=6):
        assert adapter.threads_of(source) == 6
    with dask.config.set(scheduler="threads"):
        assert adapter.threads_of(source) == dask.system.CPU_COUNT


def test_refused() -> None:
    with pytest.raises(TypeError, match="the option resume is not supported for tasks"):
        to_redis(partitions(10, 1), HASH, resume=True)
    with pytest.raises(TypeError, match="server must be a URL or None"):
        to_redis(partitions(10, 1), HASH, redis.Redis())  # type: ignore[arg-type]
    for other in (frame(10), partitions(10, 1)["id"], [1]):
        with pytest.raises(TypeError, match="to_redis loads a Dask DataFrame, not a "):
            to_redis(other, HASH)
