"""Metrics of a load: valid OpenMetrics text that agrees with the report, whatever happens."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from command_line import HSET, run
from loads import Insert, insert_sync
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

SET = "SET {0} {1}"
PUSH = "RPUSH list:{0} {1}"


def values(text: str) -> dict[str, float]:
    """Parse a text; return its values by name and by the value of another label, if any."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("fastresp_")
        assert family.documentation
        for sample in family.samples:
            labels = [value for name, value in sample.labels.items() if name != "load"]
            found[" ".join([sample.name.removeprefix("fastresp_"), *labels])] = sample.value
    assert text.endswith("# EOF\n")
    return found


def check(found: dict[str, float], report: fastresp.Report) -> None:
    """Compare the last metrics with the report."""
    assert found["rows_total"] == report.rows
    assert found["commands_total"] == report.commands
    assert found["replies_total"] == report.replies
    assert found["sent_bytes_total"] == report.bytes_sent
    assert found["failed_commands_total"] == report.failed
    assert found["in_flight_commands"] == report.in_doubt
    assert found["unsent_commands"] == report.unsent
    assert found["ended"] == 1
    assert found["update_time_seconds"] >= found["start_time_seconds"]


def test_file(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "load.prom"
    report = insert(((i, i) for i in range(5000)), SET, server=server.url, metrics=path)
    assert report.replies == 5000
    text = path.read_text()
    check(values(text), report)
    assert values(text)["stopped"] == 0
    assert "# TYPE fastresp_sent_bytes counter\n# UNIT fastresp_sent_bytes bytes\n" in text
    assert 'fastresp_rows_total{load="load"} 5000.0\n' in text
    assert list(tmp_path.iterdir()) == [path]


def test_redis_cli(server: LocalServer) -> None:
    texts: list[str] = []
    report = fastresp.mass_insert(
        [(1, 1)] * 10, SET, server=server.url, transport="redis-cli", metrics=texts.append
    )
    check(values(texts[-1]), report)
    assert "load=" not in texts[-1]


def test_errors_by_code(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    client.set("text", "x")
    texts: list[str] = []
    rows = [("LPUSH", "text", i) for i in range(7)] + [("INCR", "text"), ("SET", "a", "b")]
    report = insert(rows, server=server.url, on_error="collect", metrics=texts.append)
    found = values(texts[-1])
    check(found, report)
    assert (found["errors_total WRONGTYPE"], found["errors_total ERR"]) == (7, 1)
    assert found["stopped"] == 0


@pytest.mark.few(1)
def test_while_the_server_is_silent(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """The text is also written without progress, and counters never decrease."""
    texts: list[str] = []

    def source() -> Iterator[tuple[int, int]]:
        client.client_pause(2500, all=False)
        yield from [(1, 1)] * 1000

    report = insert_singly(source(), SET, server=server.url, metrics=texts.append)
    found = [values(text) for text in texts]
    assert len(found) >= 3
    assert found[0]["in_flight_commands"] == 1000
    assert [each["ended"] for each in found] == [0] * (len(found) - 1) + [1]
    for name in ("rows_total", "commands_total", "replies_total", "sent_bytes_total"):
        assert [each[name] for each in found] == sorted(each[name] for each in found)
    check(found[-1], report)


def test_while_an_async_source_pauses(server: LocalServer) -> None:
    texts: list[str] = []

    async def source() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        while len(texts) < 2:
            await asyncio.sleep(0.05)
        yield 2, 2

    loading = fastresp.aio.mass_insert(source(), SET, server=server.url, metrics=texts.append)
    assert asyncio.run(loading).replies == 2
    assert values(texts[1])["replies_total"] == 1


@pytest.mark.parametrize("at", [0, 3000])
def test_checkpoint(insert_singly: Insert, server: LocalServer, tmp_path: Path, at: int) -> None:
    path = tmp_path / "load.prom"
    rows = [(i % 10, i) for i in range(5000)]

    def failing() -> Iterator[tuple[int, int]]:
        yield from rows[:at]
        raise OSError("the source has failed")

    options = {"server": server.url, "checkpoint": "jobs", "source_id": "x", "metrics": path}
    with pytest.raises(OSError, match="the source has failed"):
        insert_singly(failing(), PUSH, **grouped(options))
    found = values(path.read_text())
    assert (found["checkpoint_row"], found["stopped"], found["ended"]) == (at, 1, 1)
    for _ in range(2):  # the second load has nothing to do
        insert_singly(iter(rows), PUSH, **grouped(options | {"resume": True}))
        found = values(path.read_text())
        assert (found["checkpoint_row"], found["stopped"], found["ended"]) == (5000, 0, 1)
    assert 'load="jobs"' in path.read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_interrupted(server: LocalServer, client: redis.Redis, error: type[BaseException]) -> None:
    """Earlier rows are sent, as without metrics."""
    texts: list[str] = []

    def source() -> Iterator[tuple[int, int]]:
        yield from ((i, i) for i in range(500))
        raise error

    with pytest.raises(error) as caught:
        insert_sync(source(), SET, server=server.url, metrics=texts.append)
    check(values(texts[-1]), caught.value.report)  # type: ignore[attr-defined]
    assert values(texts[-1])["stopped"] == 1
    assert values(texts[-1])["replies_total"] == client.dbsize() == 500


def test_no_server(tmp_path: Path) -> None:
    path = tmp_path / "load.prom"
    with pytest.raises(fastresp.TransportError):
        fastresp.mass_insert([(1, 1)], SET, server=f"unix://{tmp_path}/none", metrics=path)
    found = values(path.read_text())
    assert (found["commands_total"], found["stopped"], found["ended"]) == (0, 1, 1)


# Unwritable metrics


def test_missing_folder(insert_singly: Insert, server: LocalServer, client: redis.Redis,
                        tmp_path: Path) -> None:  # fmt: skip
    with pytest.raises(FileNotFoundError, match="no file was written"):
        insert_singly([(1, 1)], SET, server=server.url, metrics=tmp_path / "none" / "x.prom")
    with pytest.raises(ValueError, match="is not a file"):
        insert_singly([(1, 1)], SET, server=server.url, metrics=tmp_path)
    with pytest.raises(TypeError, match="metrics must be a path or a callable, not a int"):
        insert_singly([(1, 1)], SET, server=server.url, metrics=5)
    assert client.dbsize() == 0


@pytest.mark.few(3)
@pytest.mark.parametrize("becomes", ["no folder", "symbolic link", "another file", "fifo"])
def test_path_that_changes(
    insert_singly: Insert, server: LocalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    becomes: str,
) -> None:  # fmt: skip
    """The load continues, warns once, and replaces no other file."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    path, other = folder / "x.prom", tmp_path / "passwd"
    other.write_text("root:x:0:0")
    caplog.set_level(logging.WARNING)

    def source() -> Iterator[tuple[int, int]]:
        for i in range(2500):
            if i == 1:
                shutil.rmtree(folder)
                if becomes != "no folder":
                    folder.mkdir()
                if becomes == "symbolic link":
                    path.symlink_to(other)
                elif becomes == "another file":
                    path.hardlink_to(other)
                elif becomes == "fifo":
                    os.mkfifo(path)
            yield i, i

    report = insert_singly(source(), SET, server=server.url, metrics=path, rate_limit=1000)
    assert report.replies == 2500
    [record] = [each for each in caplog.records if each.name == "fastresp"]
    assert "metrics could not be written" in record.getMessage()
    assert str(path) in record.getMessage()
    assert other.read_text() == "root:x:0:0"
    assert path.is_symlink() == (becomes == "symbolic link")
    assert path.is_fifo() == (becomes == "fifo")
    assert list(tmp_path.rglob(".*")) == []


def test_name_that_is_not_utf_8(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.prom")
    fastresp.mass_insert([(1, 1)], SET, server=server.url, metrics=path)
    text = path.read_text()
    assert values(text)["rows_total"] == 1
    assert r'{load="\\xff"}' in text


@pytest.mark.few(1)
def test_callable_that_raises(
    insert_singly: Insert, server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    count = 0

    def failing(text: str) -> None:
        nonlocal count
        count += 1
        raise RuntimeError("no collector")

    report = insert_singly(
        [(1, 1)] * 1500, SET, server=server.url, metrics=failing, rate_limit=1000
    )
    assert report.replies == 1500
    assert count >= 2
    [record] = [each for each in caplog.records if each.name == "fastresp"]
    assert "RuntimeError: no collector" in record.getMessage()


def test_command_line(server: LocalServer, tmp_path: Path) -> None:
    path, source = tmp_path / "load.prom", tmp_path / "users.csv"
    source.write_text("id,name\n1,Ann\n2,Bo\n")
    done = run("load", source, HSET, "--metrics", path, "--json", REDIS_URL=server.url)
    assert json.loads(done.stdout)["commands"] == values(path.read_text())["commands_total"] == 2
    done = run("load", source, HSET, "--metrics", tmp_path / "none" / "x", REDIS_URL=server.url)
    assert done.returncode == Exit.USAGE
    assert "No such file or directory; no file was written" in done.stderr


def test_without_the_package(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.metrics_core", None)
    with pytest.raises(ImportError, match=r"metrics needs .* pip install 'fastresp\[metrics\]'"):
        fastresp.mass_insert([(1, 1)], SET, server=server.url, metrics=print)


FULL = """
import logging, resource, sys, fastresp
url, path, when = sys.argv[1:]
def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
if when == "before":
    limit()
def source():
    limit()
    yield from ((i, i) for i in range(100))
print(fastresp.mass_insert(source(), "SET {0} {1}", server=url, metrics=path).replies)
"""


@pytest.mark.parametrize("when", ["before", "later"])
def test_full_disk(server: LocalServer, client: redis.Redis, tmp_path: Path, when: str) -> None:
    """No more bytes can be written: an error before the load, a warning later."""
    path = tmp_path / "x.prom"
    done = subprocess.run(
        # -B: compiled modules would be truncated, and could not be imported later.
        [sys.executable, "-B", "-c", FULL, server.url, str(path), when],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if when == "before":
        assert done.stderr.endswith(f"File too large; no file was written: '{path}'\n")
        assert (done.stdout, client.dbsize(), list(tmp_path.iterdir())) == ("", 0, [])
    else:
        assert (done.stdout, client.dbsize()) == ("100\n", 100)
        assert done.stderr.startswith("the metrics could not be written, and the load continues")
        assert values(path.read_text())["ended"] == 0  # the old file, intact
        assert list(tmp_path.iterdir()) == [path]


def test_cancelled(server: LocalServer) -> None:
    texts: list[str] = []

    async def source() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        await asyncio.sleep(100)

    async def cancelled() -> None:
        loading = fastresp.aio.mass_insert(source(), SET, server=server.url, metrics=texts.append)
        await asyncio.wait_for(loading, 1.5)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    found = values(texts[-1])
    assert (found["commands_total"], found["stopped"], found["ended"]) == (1, 1, 1)


def test_files_that_are_not_replaced(server: LocalServer, tmp_path: Path) -> None:
    """The source, the rejects file, and files that are not metrics."""
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    other = tmp_path / "other.txt"
    other.write_text("something")
    rejects = tmp_path / "rejects.jsonl"
    for path, options in ((source, {}), (other, {}), (rejects, {"rejects": rejects})):
        with pytest.raises((ValueError, FileExistsError)):
            fastresp.mass_insert(
                source, "SET {id} 1", server=server.url, metrics=path, **grouped(options)
            )
    assert (source.read_text(), other.read_text()) == ("id\n1\n", "something")
    assert not rejects.exists()


def test_async_function(server: LocalServer) -> None:
    async def show(text: str) -> None:
        raise AssertionError(text)

    with pytest.raises(TypeError, match="not an async one"):
        fastresp.mass_insert([(1, 1)], SET, server=server.url, metrics=show)


def test_row_of_a_load_with_several_markers(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "load.prom"
    rows = [(i % 10, i) for i in range(5000)]
    fastresp.mass_insert(
        rows, PUSH, server=server.url, checkpoint="jobs", connections=3, metrics=path
    )
    assert values(path.read_text())["checkpoint_row"] == 5000


def test_a_load_with_wrong_options_writes_metrics(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "load.prom"
    with pytest.raises(fastresp.CheckpointError, match="can't be used with retry"):
        insert_sync(
            [("a", "1")], SET, server=server.url, metrics=path, checkpoint="a", retry="always"
        )
    assert values(path.read_text())["stopped"] == 1
