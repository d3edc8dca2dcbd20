"""Ray datasets: each write task loads its rows once, even if its process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import redis
from engine_jobs import HASH, INCREMENT, check_hashes, frame, killing, total, total_of
from needed import imported

import fastresp
from fastresp.server.local_server import LocalServer

ray = imported("ray")
RedisDatasink = imported("fastresp.ray").RedisDatasink

# Number of write tasks that run at the same time.
CPUS = 2


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[Path]:
    """A Ray node on this machine; the folder with its logs."""
    # Paths of its sockets must be short. Its processes end a moment after shutdown().
    with tempfile.TemporaryDirectory("", "ray", "/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            num_cpus=CPUS, include_dashboard=False, log_to_driver=False, _temp_dir=folder,
            object_store_memory=200_000_000, logging_level="error",
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(["tests/support"])}},
        )  # fmt: skip
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield Path(folder)
        ray.shutdown()


def blocks(rows: int, count: int) -> Any:
    ends = np.linspace(0, rows, count + 1).astype(int)
    whole = frame(rows)
    return ray.data.from_pandas([whole[a:b] for a, b in pairwise(ends)])


def load(dataset: Any, *args: Any, **options: Any) -> fastresp.sink.Totals:
    sink = RedisDatasink(*args, **options)
    dataset.write_datasink(sink)
    assert sink.totals is not None
    return sink.totals


def test_load(server: LocalServer, client: redis.Redis) -> None:
    found = load(blocks(100_000, 5), server.url, HASH)
    assert (found.rows, found.commands, found.failed) == (100_000, 100_000, 0)
    check_hashes(client, 100_000)


@pytest.mark.slow
def test_million_rows(server: LocalServer, client: redis.Redis) -> None:
    assert load(blocks(1_000_000, 20), server.url, HASH).rows == 1_000_000
    check_hashes(client, 1_000_000)


@pytest.mark.parametrize("rows", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_killed_task(server: LocalServer, client: redis.Redis, rows: int) -> None:
    """A process is killed while it loads; its task resumes in another one."""
    with pytest.raises(fastresp.CheckpointError, match="an engine may run a task twice"):
        RedisDatasink(server.url, INCREMENT)

    # Each task takes half a second: two of them are loading, and are half done.
    with killing(client, total_of(rows) // 8) as killed:
        found = load(blocks(rows, 4), server.url, INCREMENT, exactly_once="killed", rate_limit=rows)
    assert killed and found.rows == rows and found.rows_before > 0
    assert total(client) == total_of(rows)
    assert client.keys("fastresp:*") == [b"fastresp:{killed}:job"]


def test_second_run(server: LocalServer, client: redis.Redis) -> None:
    """An ended run does nothing the second time; an unfinished one is refused."""
    again = partial(load, blocks(1000, 3), server.url, INCREMENT, exactly_once="job")
    assert again().rows == 1000
    assert (again().rows_before, total(client)) == (1000, total_of(1000))

    # One task: with several, others continue for a moment after the first error.
    wrong = blocks(1000, 1).add_column(
        "key", lambda part: np.where(part["id"] > 800, "no", "total")
    )
    client.set("no", "text")
    other = partial(load, wrong, server.url, "INCRBY {key} {id}", exactly_once="other")
    with pytest.raises(fastresp.LoadErrors):
        other()
    before = total(client)
    assert before > total_of(1000)
    with pytest.raises(fastresp.CheckpointError, match=r"'other' was started with run .* of Ray"):
        other()
    assert total(client) == before


def test_task_without_rows(server: LocalServer) -> None:
    """An attempt without rows is refused if an earlier attempt had some."""
    sink = RedisDatasink(server.url, INCREMENT, exactly_once="job")
    task = SimpleNamespace(task_idx=0)
    assert sink.write([pa.table({})], task).rows == 0
    assert sink.write([pa.table({"id": [1, 2]})], task).rows == 2
    for blocks_of_task in ([], [pa.table({})]):
        with pytest.raises(fastresp.CheckpointError, match="no rows now, and 2 were loaded"):
            sink.write(blocks_of_task, task)


def test_errors(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """Errors of the tasks reach the caller with their text and report."""
    client.set("user:500", "text")
    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE Operation against a key") as caught:
        load(blocks(1000, 2), server.url, HASH)
    assert caught.value.report.errors_by_code == {"WRONGTYPE": 1}
    found = load(blocks(1000, 2), server.url, HASH, on_error="collect", rejects=tmp_path)
    assert (found.rows, found.errors_by_code) == (1000, {"WRONGTYPE": 1})
    [rejects] = tmp_path.iterdir()
    client.delete("user:500")
    assert fastresp.mass_insert(fastresp.read_rejects(rejects), server=server.url).commands == 1
    check_hashes(client, 1000)
    with pytest.raises(fastresp.TemplateError, match=r"no column \{nothing\}"):
        load(blocks(10, 1), server.url, "SET {nothing} 1")


def test_blocks(server: LocalServer, client: redis.Redis) -> None:
    """Blocks of a task may differ in types, or have no rows; tensors are vectors."""
    several = ray.data.from_pandas([frame(2), frame(2).assign(name=None, id=[3, 4]), frame(0)])
    assert load(several, server.url, HASH, nulls="skip", min_rows_per_write=100).rows == 4
    assert client.hget("user:2", "name") == b"name 2"
    assert client.hkeys("user:4") == [b"score"]
    assert load(ray.data.from_pandas(frame(0)), server.url, HASH).rows == 0
    vectors = ray.data.from_numpy(np.arange(8, dtype=np.float32).reshape(2, 4))
    load(vectors, server.url, "SET vector {data!f32}")
    assert client.get("vector") == np.arange(4, 8, dtype=np.float32).tobytes()


def written(server: LocalServer, template: str, *several: pa.Table) -> fastresp.sink.Totals:
    """Load blocks in one task."""
    sink = RedisDatasink(server.url, template, nulls="skip")
    return sink.write(several, SimpleNamespace(task_idx=0))


def test_blocks_of_other_types(server: LocalServer, client: redis.Redis) -> None:
    """Blocks must have the same types, so that values do not depend on how blocks are joined."""
    integers, floats = pa.table({"ref": [5, 7]}), pa.table({"ref": [8.0, None]})
    words = r"'ref' is int64 in the first block and double in block 2; cast it .* map_batches"
    for several in ((integers, floats), (pa.table({"ref": [1 << 60]}), floats)):
        with pytest.raises(fastresp.SourceError, match=words):
            written(server, "SET r:{ref} {ref}", *several)
    with pytest.raises(fastresp.SourceError, match="block 2 has the columns other"):
        written(server, "SET r:{ref} {ref}", integers, pa.table({"other": [1]}))
    assert client.dbsize() == 0
    with pytest.raises(fastresp.SourceError, match="map_batches"):
        frames = [pd.DataFrame({"ref": [5, 7]}), pd.DataFrame({"ref": [8, None]})]
        load(ray.data.from_pandas(frames), server.url, "SET r:{ref} {ref}", min_rows_per_write=100)
    assert client.dbsize() == 0
    fixed = ray.data.from_pandas(frames).map_batches(
        lambda part: part.astype({"ref": "Int64"}), batch_format="pandas"
    )
    load(fixed, server.url, "SET r:{ref} {ref}", nulls="skip", min_rows_per_write=100)
    assert sorted(client.keys()) == [b"r:5", b"r:7", b"r:8"]


def test_blocks_of_nulls(server: LocalServer, client: redis.Redis) -> None:
    """A column of nulls or empty lists may have any type, even in the first block."""
    tables = [
        pa.table({"id": [0], "v": pa.nulls(1), "w": pa.nulls(1)}),
        pa.table({"id": [], "v": pa.array([], pa.string()), "w": []}),
        pa.table({"w": pa.array(["a"], pa.large_string()), "id": [1], "v": [[]]}),
        pa.table({"id": [2], "v": [[4, 5]], "w": pa.array(["b"], pa.string())}),
        pa.table({"id": [3], "v": pa.nulls(1), "w": pa.nulls(1)}),
        pa.table({"id": [4], "v": [[]], "w": ["c"]}),
    ]
    assert written(server, "HSET h:{id} v {v!json} w {w}", *tables).rows == 5
    assert client.hgetall("h:1") == {b"v": b"[]", b"w": b"a"}
    assert client.hgetall("h:2") == {b"v": b"[4,5]", b"w": b"b"}
    assert client.hgetall("h:4") == {b"v": b"[]", b"w": b"c"}
    assert client.dbsize() == 3


def test_password(session: Path) -> None:
    """Ray's logs and errors do not contain the password."""
    sink = RedisDatasink("redis://user:geheim@127.0.0.1:1/0", HASH)
    with pytest.raises(fastresp.TransportError, match="Connection refused") as caught:
        blocks(10, 1).write_datasink(sink)
    logs = [path.read_bytes() for path in session.rglob("*") if path.is_file()]
    assert any(b"Connection refused" in log for log in logs)
    assert "geheim" not in f"{caught.value!r} {caught.value} {sink!r} {vars(sink)}"
    assert not any(b"geheim" in log for log in logs)


def test_rate(server: LocalServer) -> None:
    """The rate limit is divided by the CPUs, each of which runs one task."""
    shared = RedisDatasink(server.url, HASH, rate_limit=1000)
    assert float(vars(shared)["_sink"]._options.rate_limit) == 1000 / CPUS
    assert load(blocks(10, 2), server.url, HASH, rate_limit=1000).rows == 10


def test_refused() -> None:
    with pytest.raises(TypeError, match="the option resume is not supported for tasks"):
        RedisDatasink(None, HASH, resume=True)
    with pytest.raises(TypeError, match="server must be a URL or None"):
        RedisDatasink(redis.Redis(), HASH)  # type: ignore[arg-type]
