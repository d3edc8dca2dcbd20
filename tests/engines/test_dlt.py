"""dlt pipelines: each file of a load package is loaded once, even if the process ends."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_py
from engine_jobs import HASH, INCREMENT, check_hashes, frame, killing, total, total_of
from needed import imported

import fastresp
from fastresp.server.local_server import LocalServer

dlt = imported("dlt")
PipelineStepFailed = imported("dlt.pipeline.exceptions").PipelineStepFailed
adapter = imported("fastresp.dlt")
redis = adapter.redis
Pipeline = Callable[..., Any]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, server: LocalServer) -> None:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DESTINATION__REDIS__SERVER", server.url)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A function that returns a pipeline to a destination with these arguments."""

    def made(*args: Any, name: str = "p", **options: Any) -> Any:
        destination = redis(*args, **options)
        return dlt.pipeline(name, pipelines_dir=str(tmp_path / "p"), destination=destination)

    yield made
    dlt.pipeline(pipelines_dir=str(tmp_path / "p")).deactivate()


def rows(count: int, name: str = "users", **hints: Any) -> Any:
    """Return a resource of Arrow data."""
    return dlt.resource(pa.Table.from_pandas(frame(count)), name=name, **hints)


def cause_of(error: BaseException) -> str:
    """Return the text of a pipeline's error, and of all its causes."""
    texts = []
    while error is not None:
        texts.append(f"{error!r} {error}")
        error = error.__cause__
    return "\n".join(texts)


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_load(client: redis_py.Redis, pipeline: Pipeline, count: int) -> None:
    pipeline(HASH).run(rows(count))
    check_hashes(client, count)


def test_tables(client: redis_py.Redis, pipeline: Pipeline) -> None:
    """Each table has its own template; columns and tables of dlt itself are omitted."""
    users = dlt.resource([{"id": 1, "name": "Ann", "tags": ["a"]}], name="users", primary_key="id")
    places = dlt.resource([{"x": 1, "y": 2, "n": None}], name="places", primary_key=("x", "y"))
    pipeline().run([users, places])
    assert client.hgetall("users:1") == {b"name": b"Ann", b"tags": b'["a"]'}
    assert client.hgetall("places:1:2") == {}
    assert sorted(client.keys()) == [b"users:1"]
    client.flushall()
    templates = {"users": "SET name:{id} {name}", "places": fastresp.Template("SADD {x} {y}")}
    pipeline(templates, name="q").run([users, places])
    assert (client.get("name:1"), client.smembers("1")) == (b"Ann", {b"2"})
    pipeline(lambda table: f"SET {table['name']} {{id}}", name="r").run([users])
    assert client.get("users") == b"1"


def test_nested_columns(client: redis_py.Redis, pipeline: Pipeline) -> None:
    """Nested columns of Arrow tables are loaded like nested values of rows."""
    values = {"id": 1, "tags": ["a", "b"], "at": {"x": 1}}
    table = pa.Table.from_pylist([values])
    pipeline().run(dlt.resource(table, name="users", primary_key="id"))
    assert client.hgetall("users:1") == {b"tags": b'["a","b"]', b"at": b'{"x":1}'}
    client.flushall()
    row = dlt.resource([values], name="users", primary_key="id", max_table_nesting=0)
    pipeline(name="q").run(row)
    assert client.hgetall("users:1") == {b"tags": b'["a","b"]', b"at": b'{"x":1}'}


def test_merge(client: redis_py.Redis, pipeline: Pipeline) -> None:
    """Rows replace those with the same key."""
    hints = {"primary_key": "id", "write_disposition": "merge"}
    pipeline().run(rows(10, **hints))
    later = pa.table({"id": [2], "name": ["new"]})
    pipeline().run(dlt.resource(later, name="users", **hints))
    assert client.hgetall("users:2") == {b"name": b"new", b"score": b"1.0"}
    assert client.dbsize() == 10


@pytest.mark.parametrize(
    ("template", "hints", "message"),
    [
        (HASH, {"write_disposition": "replace"}, "write_disposition='replace', which"),
        (adapter.by_primary_key, {}, "table 'users' has no primary_key"),
        ({"places": HASH}, {}, "table 'users' has no template"),
        ("SET {nothing} 1", {}, "no column {nothing}"),
        ("LPUSHX {id}", {}, "wrong number of arguments"),
    ],
)  # fmt: skip
def test_refused(
    client: redis_py.Redis, pipeline: Pipeline, template: Any, hints: dict[str, Any], message: str
) -> None:
    """dlt does not retry permanent errors."""
    with pytest.raises(PipelineStepFailed) as caught:
        pipeline(template, exactly_once=True).run(rows(10, **hints))
    assert message in cause_of(caught.value)
    assert "DestinationTerminalException" in cause_of(caught.value)
    assert client.dbsize() == 0


def test_refused_immediately() -> None:
    with pytest.raises(
        fastresp.CheckpointError, match=r"run a task twice.*pass exactly_once=True$"
    ):
        redis({"users": HASH, "visits": INCREMENT})
    with pytest.raises(TypeError, match="exactly_once must be True or False here, not 'my-job'"):
        redis(INCREMENT, exactly_once="my-job")
    with pytest.raises(TypeError, match="the option resume is not supported for tasks"):
        redis(resume=True)


def test_errors(client: redis_py.Redis, pipeline: Pipeline, tmp_path: Path) -> None:
    """The text of errors reaches the caller; each file has its own rejects file."""
    client.set("user:500", "text")
    with pytest.raises(PipelineStepFailed, match="1 x WRONGTYPE Operation"):
        pipeline(HASH).run(rows(1000))
    collecting = pipeline(HASH, on_error="collect", rejects=tmp_path / "rejects", name="q")
    collecting.run([rows(1000), rows(10, "others")])
    [rejects] = (tmp_path / "rejects").iterdir()
    client.delete("user:500")
    found = fastresp.read_rejects(rejects)
    assert fastresp.mass_insert(found, server=os.environ["DESTINATION__REDIS__SERVER"]).rows == 1
    check_hashes(client, 1000)


def test_failed_commands_are_logged(
    client: redis_py.Redis, pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """As a warning, which Python shows by default; dlt only says that no jobs failed."""
    caplog.set_level("INFO", "fastresp.sink")
    client.set("user:5", "text")
    pipeline(HASH, on_error="collect").run([rows(10), rows(4, "others")])
    [failed] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "table users, file " in failed.message and "10 commands" in failed.message
    assert "1 error\n1 x WRONGTYPE" in failed.message
    loaded = [each for each in caplog.records if each.levelname == "INFO"]
    assert any("table others, file " in each.message for each in loaded)


def test_retried(
    client: redis_py.Redis, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is loaded again if the server had lost rows by its end."""
    finish = adapter.SinkOfNamedJob.finish
    lost = []

    def losing(self: Any, totals: Any) -> Any:
        if not lost:
            lost.append(client.flushall())
        return finish(self, totals)

    monkeypatch.setattr(adapter.SinkOfNamedJob, "finish", losing)
    pipeline(INCREMENT, exactly_once=True).run(rows(1000))
    assert lost and total(client) == total_of(1000)


def test_next_run_after_errors(
    server: LocalServer, client: redis_py.Redis, pipeline: Pipeline, tmp_path: Path
) -> None:
    """The package's files wait for it; commands that failed with exactly_once do not run again."""
    client.set("user:5", "text")
    with pytest.raises(PipelineStepFailed, match="1 x WRONGTYPE"):
        pipeline(HASH).run(rows(10))
    client.delete("user:5")
    pipeline(HASH).run([])
    check_hashes(client, 10)

    wrong = pa.table({"id": [1, 2, 4], "key": ["total", "wrong", "total"]})
    client.set("wrong", "text")
    once = partial(pipeline, "INCRBY {key} {id}", exactly_once=True, rejects=tmp_path / "rejects")
    with pytest.raises(PipelineStepFailed, match="1 x ERR value is not an integer"):
        once(name="q").run(dlt.resource(wrong, name="wrong"))
    client.set("wrong", 0)
    with pytest.raises(PipelineStepFailed, match=r"3 rows were loaded before \(1 error\)"):
        once(name="q").run([])
    once(name="q", on_error="collect").run([])
    assert (total(client), client.get("wrong")) == (5, b"0")
    [rejects] = (tmp_path / "rejects").iterdir()
    fastresp.mass_insert(fastresp.read_rejects(rejects), server=server.url)
    assert (total(client), client.get("wrong")) == (5, b"2")


@pytest.mark.parametrize("secrets", [True, False])
def test_password(
    pipeline: Pipeline,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    secrets: bool,
) -> None:
    """dlt's logs, errors and files do not contain the password."""
    monkeypatch.setenv("LOAD__RAISE_ON_MAX_RETRIES", "1")
    url = "redis://user:geheim@127.0.0.1:1/0"
    monkeypatch.setenv("DESTINATION__REDIS__SERVER", url if secrets else "redis://")
    made = pipeline(HASH, None if secrets else url)
    with pytest.raises(PipelineStepFailed) as caught:
        made.run(rows(10))
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    shown = f"{made!r} {made.last_trace!r} {made.destination!r} {capfd.readouterr()}"
    seen = f"{cause_of(caught.value)} {shown}"
    assert "Connection refused" in seen and "geheim" not in seen
    assert files and not any(b"geheim" in file for file in files)
    assert b"geheim" not in pickle.dumps(made.last_trace)


PROGRAM = """
import sys, dlt, pyarrow.parquet as pq
from fastresp.dlt import redis
url, folder, file, rate = sys.argv[1:]
destination = redis("INCRBY total {id}", url, exactly_once=True, rate_limit=int(rate) or None)
pipeline = dlt.pipeline("p", pipelines_dir=folder, destination=destination)
pipeline.run([] if not file else dlt.resource(pq.read_table(file), name="numbers"))
"""


@pytest.mark.parametrize("count", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_killed(server: LocalServer, client: redis_py.Redis, tmp_path: Path, count: int) -> None:
    """The process is killed while it loads a file; the next one resumes."""
    pq.write_table(pa.Table.from_pandas(frame(count)), tmp_path / "x.parquet")
    start = [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "p")]
    with (
        subprocess.Popen([*start, str(tmp_path / "x.parquet"), str(4 * count)]) as loader,
        killing(client, total_of(count) // 4, lambda: loader.pid),
    ):
        assert loader.wait(100) == -9
    assert 0 < total(client) < total_of(count)
    subprocess.run([*start, "", "0"], check=True, timeout=100)
    assert total(client) == total_of(count)
    [left] = client.keys("fastresp:*")
    assert left.startswith(b"fastresp:{dlt:") and left.endswith(b"}:job")
