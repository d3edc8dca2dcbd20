"""Too few file descriptors, little memory, a full disk: clear errors and correct reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyarrow import csv, feather, parquet

import fastresp
from fastresp.server.local_server import LocalServer

# Import everything before the child's limits are set: imports need files.
CHILD = """
import asyncio, encodings.idna, json, os, resource, sys
import redis, redis.asyncio, fastresp, fastresp.aio, concurrent.futures.thread
url = sys.argv[1]
fastresp.execute("PING", server=url)

def rows(count=200, size=1_000):
    for i in range(count):
        yield i, "x" * size

def tell(load):
    report, error = None, None
    try:
        report = load()
    except (fastresp.FastrespError, MemoryError, OSError) as failure:
        error, report = failure, getattr(failure, "report", None)
    print(json.dumps({
        "error": error and type(error).__name__,
        "words": str(error or ""),
        "acknowledged": report and report.acknowledged or 0,
        "in_doubt": report and report.in_doubt or 0,
    }))

SET = "SET key:{0} {1}"
"""

LOADS = {
    "socket": 'fastresp.mass_insert(rows(), SET, server=url, transport="socket", timeout=10)',
    "8 sockets": "fastresp.mass_insert(rows(), SET, server=url, connections=8, timeout=10)",
    "redis-cli": 'fastresp.mass_insert(rows(), SET, server=url, transport="redis-cli", timeout=10)',
    "asyncio": "loop.run_until_complete(fastresp.aio.mass_insert("
    "rows(), SET, server=url, timeout=10))",
    "rejects": 'fastresp.mass_insert(rows(), SET, server=url, transport="socket", timeout=10, '
    "rejects=sys.argv[2])",
    "iter_replies": "[None for _ in fastresp.iter_replies(rows(), SET, server=url)] and None",
    "execute": 'fastresp.execute("SET", "key:0", "x", server=url) and None',
    "ListBuffer": 'fastresp.ListBuffer("list", server=url).push(["x"]) and None',
}


# glibc's message when it aborts a process because a new thread has no memory for thread-local
# variables of a C or C++ library. The process can't prevent it; seen in about one of ten full runs.
NO_THREAD_LOCALS = "cannot allocate memory for thread-local data: ABORT"


def answers_of(code: str, *arguments: str) -> list[dict[str, Any]]:
    """Return what a child process prints; it must not crash."""
    for _ in range(3):
        done = subprocess.run(
            # -B: a limit must not cut off the files that Python writes for later processes.
            [sys.executable, "-B", "-c", CHILD + code, *arguments],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        if NO_THREAD_LOCALS not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.few(1)
@pytest.mark.parametrize("load", LOADS)
def test_descriptors(load: str, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """With any number of free descriptors, the load works or raises TransportError."""
    code = f"""
loop = asyncio.new_event_loop()
spare = max(map(int, os.listdir("/proc/self/fd")))
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for left in range(0, 14):
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + left, most))
    path = f"{{sys.argv[2]}}-{{left}}"
    sys.argv[2:] = [path]
    tell(lambda: {LOADS[load]})
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
"""
    answers = answers_of(code, server.url, str(tmp_path / "rejects"))
    assert len(answers) == 14
    errors = [each for each in answers if each["error"]]
    assert 0 < len(errors) < 14
    assert {each["error"] for each in errors} == {"TransportError"}
    assert all("ulimit -n" in each["words"] for each in errors)
    assert all(each["acknowledged"] == each["in_doubt"] == 0 for each in errors)


def test_descriptors_to_import_features(server: LocalServer, tmp_path: Path) -> None:
    code = """
options = {"pause_saves": True, "receipt": sys.argv[2], "mirror": "k*", "durable": "snapshot"}
insert = fastresp.mass_insert
spare = max(map(int, os.listdir("/proc/self/fd")))
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for name, value in options.items():
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, most))
    tell(lambda: insert(rows(), SET, server=url, **{name: value}))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
"""
    answers = answers_of(code, server.url, str(tmp_path / "receipt"))
    assert [each["error"] for each in answers] == ["TransportError"] * 4
    assert all("ulimit -n" in each["words"] for each in answers)


def test_descriptors_for_a_host_name(
    start_server: Callable[..., LocalServer], port: int, cli: str
) -> None:
    start_server("--port", str(port))
    code = """
spare = max(map(int, os.listdir("/proc/self/fd")))
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for left in range(0, 4):
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + left, most))
    tell(lambda: fastresp.mass_insert(rows(), SET, server=url, transport="socket"))
"""
    answers = answers_of(code, f"redis://localhost:{port}")
    assert answers[0]["error"] == "TransportError"
    assert {each["error"] for each in answers} <= {"TransportError", None}
    assert all("ulimit -n" in each["words"] for each in answers if each["error"])


def test_descriptors_for_a_local_server(server: LocalServer) -> None:
    code = """
import tempfile
from fastresp.server.local_server import LocalServer
from fastresp.cli.demo.methods import Workbench
# A separate folder: without descriptors the servers can't remove theirs, and other tests check.
tempfile.tempdir = tempfile.mkdtemp(prefix="limits-")

def begin_and_end(server):
    with server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # its folder is removed

spare = max(map(int, os.listdir("/proc/self/fd")))
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for left in range(0, 6):
    for open_one in (LocalServer, Workbench.open):
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + left, most))
        tell(lambda: begin_and_end(open_one()))
"""
    answers = answers_of(code, server.url)
    assert answers
    assert {each["error"] for each in answers} <= {"TransportError", None}


def limited(load: str, megabytes: int, server: LocalServer, client: redis.Redis) -> str | None:
    """Return the error of a load with little memory left; check that acknowledged keys exist."""
    code = f"""
loop = asyncio.new_event_loop()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[2]) << 20), -1))
tell(lambda: {LOADS[load].replace("rows()", "rows(3, 60_000_000)")})
"""
    client.flushall()
    [answer] = answers_of(code, server.url, str(megabytes))
    stored = client.dbsize()
    if load != "iter_replies":
        assert answer["acknowledged"] <= stored, answer
        assert stored <= answer["acknowledged"] + answer["in_doubt"], answer
    if answer["error"] is None:
        assert stored == 3
    error: str | None = answer["error"]
    return error


MEMORY_LOADS = ["socket", "8 sockets", "redis-cli", "asyncio", "iter_replies"]
MEMORY_ERRORS = {None, "MemoryError", "TransportError", "TransportTimeout"}


@pytest.mark.few(1)
@pytest.mark.parametrize("load", MEMORY_LOADS)
@pytest.mark.parametrize("megabytes", [0, 25])
def test_memory(megabytes: int, load: str, server: LocalServer, client: redis.Redis) -> None:
    assert limited(load, megabytes, server, client) in MEMORY_ERRORS - {None}


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_memory_for_a_file(suffix: str, server: LocalServer, tmp_path: Path) -> None:
    """Arrow may wait forever for a thread that can't start for lack of memory."""
    path = tmp_path / f"rows.{suffix}"
    table = pa.table({"id": list(range(1000)), "text": ["x" * 1000] * 1000})
    if suffix == "csv":
        csv.write_csv(table, path)
    elif suffix == "parquet":
        parquet.write_table(table, path)
    elif suffix == "arrow":
        feather.write_feather(table, str(path), "uncompressed")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    code = """
path = sys.argv[2]
LOAD = lambda: fastresp.mass_insert(path, "SET key:{id} {text}", server=url)
LOAD()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
for megabytes in (0, 9, 200):
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), -1))
    tell(LOAD)
"""
    answers = answers_of(code, server.url, str(path))
    assert len(answers) == 3
    assert {each["error"] for each in answers[1:]} == {"SourceError"}
    assert answers[0]["error"] in MEMORY_ERRORS | {"SourceError"}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("load", MEMORY_LOADS)
def test_each_amount_of_memory(load: str, server: LocalServer, client: redis.Redis) -> None:
    for megabytes in range(0, 160, 4):
        assert limited(load, megabytes, server, client) in MEMORY_ERRORS


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", [0, 1, 100, 5_000, 50_000])
def test_file_size(limit: int, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """On a full disk, dump() leaves whole commands and rejects= whole lines."""
    code = """
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), -1))
tell(lambda: fastresp.dump(rows(100), SET, sys.argv[2] + "/dumped") and None)
tell(lambda: fastresp.mass_insert(
    [("LPUSH", f"key:{i}", i) for i in range(1000)], server=url, rejects=sys.argv[2] + "/rejects",
    on_error="collect"))
"""
    client.mset({f"key:{i}": "text" for i in range(1000)})
    dumped, load = answers_of(code, server.url, str(tmp_path), str(limit))
    assert dumped["error"] == "OSError"
    file = (tmp_path / "dumped").read_bytes()
    assert len(file) <= limit
    whole = fastresp.pack_many(("SET", f"key:{i}", "x" * 1000) for i in range(limit // 1000 + 1))
    assert whole.startswith(file)
    assert file.count(b"SET") == len(file) // len(fastresp.pack("SET", "key:1", "x" * 1000))
    assert load["error"] == "OSError"
    assert load["acknowledged"] + load["in_doubt"] == 1000
    lines = (tmp_path / "rejects").read_bytes().splitlines(keepends=True)
    assert all(json.loads(line)["code"] == "WRONGTYPE" and line.endswith(b"\n") for line in lines)
