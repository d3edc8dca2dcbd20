"""Output that does not block, or accepts part of a write: no byte is lost silently."""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from command_line import PROGRAM
from waiting import until

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer
from fastresp.sources.files.resp import RespFile

HSET = "HSET user:{id} {**}"
PIPE_BYTES = 4096
pytestmark = pytest.mark.usefixtures("url_in_environment")
UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


def slowly_read(*command: object, stream: str = "stdout", **environment: str) -> Any:
    """Run the program with a small non-blocking pipe that is read slowly at first."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(into, False)
    other = subprocess.PIPE
    with (
        open(out, "rb", buffering=0) as file,
        preloaded.Popen(
            [*PROGRAM, *map(str, command)],
            env=os.environ | environment,
            **{"stdout": other, "stderr": other} | {stream: into},
        ) as process,
    ):
        os.close(into)
        data, reads = b"", 0
        while piece := file.read(1000 if reads < 20 else 1 << 20):
            data, reads = data + piece, reads + 1
            if reads < 20:
                time.sleep(0.01)
        rest = process.stderr if stream == "stdout" else process.stdout
        assert rest is not None
        words = rest.read()
        return process.wait(60), data, words


@pytest.mark.few(1)
@UNBUFFERED
def test_pop(unbuffered: str, client: redis.Redis) -> None:
    items = [f"{i}:" + "x" * 90 for i in range(4000)]
    client.rpush("q", *items)
    code, data, _ = slowly_read("pop", "q", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data.decode().split("\n") == [*items, ""]
    assert client.keys("*") == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "unbuffered"), [("csv", ""), ("jsonl", "1"), slow("csv", "1"), slow("jsonl", "")]
)
def test_unload(kind: str, unbuffered: str, client: redis.Redis) -> None:
    fastresp.mass_insert(({"id": i, "name": "x" * 90} for i in range(4000)), HSET)
    command = ["unload", "user:{id}", "--fields", "name", "--format", kind]
    code, data, _ = slowly_read(*command, PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    rows = pa.table(fastresp.read(io.BytesIO(data), format=kind)).to_pylist()  # type: ignore[arg-type]
    assert {row["id"] for row in rows} == {str(i) for i in range(4000)}
    assert {row["name"] for row in rows} == {"x" * 90}


@pytest.mark.few(1)
@UNBUFFERED
def test_dump(unbuffered: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n" + "".join(f"{i}\n" for i in range(20_000)))
    command = ["dump", path, "SET {id} v"]
    code, data, _ = slowly_read(*command, PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data == fastresp.pack_many(("SET", str(i), "v") for i in range(20_000))


@pytest.mark.few(1)
@UNBUFFERED
def test_text(unbuffered: str, tmp_path: Path) -> None:
    """Text such as JSON is written the same way."""
    path = tmp_path / "x.resp"
    fastresp.dump([(f"NAME{i:04}" + "x" * 30, i) for i in range(1000)], None, path)
    code, data, _ = slowly_read("check", path, "--json", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert len(json.loads(data)["names"]) == 1000


@pytest.mark.few(1)
@UNBUFFERED
def test_errors_of_a_report(unbuffered: str, client: redis.Redis) -> None:
    """Standard error is complete."""
    client.rpush("q", *["x"] * 10)
    for i in range(100):
        client.set(f"text:{i}", "x" * 100)
    command = ["pop", "q" * 20_000]
    code, data, _ = slowly_read(*command, stream="stderr", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data.decode() == "0 items popped, 0 left in " + "q" * 20_000 + "\n"


def test_output_that_becomes_non_blocking(client: redis.Redis) -> None:
    """Any process that shares a pipe can make it non-blocking, at any time."""
    client.rpush("q", *(b"%d" % i for i in range(100_000)))
    out, into = os.pipe()
    with (
        open(out, "rb", buffering=0) as file,
        preloaded.Popen([*PROGRAM, "pop", "q"], stdout=into) as process,
    ):
        data = file.read(1000)
        os.set_blocking(into, False)
        os.close(into)
        time.sleep(0.1)
        data += file.readall()
        assert process.wait(60) == Exit.OK
    assert data.split() == [b"%d" % i for i in range(100_000)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("output", "unbuffered"),
    [("/dev/full", ""), ("closed reader", "1"), slow("/dev/full", "1"), slow("closed reader", "")],
)
def test_output_that_fails(output: str, unbuffered: str, client: redis.Redis) -> None:
    """Items that were not written are still in the list, and the exit code is not 0."""
    client.rpush("q", *range(3000))
    client.hset("user:1", "name", "Ann")
    for command in ("pop q", "unload user:* --fields name", "unload user:* --fields name -o -"):
        if output == "/dev/full":
            into = os.open(output, os.O_WRONLY)
        else:
            out, into = os.pipe()
            os.close(out)
        os.set_blocking(into, False)
        done = preloaded.run(
            [*PROGRAM, *command.split()], stdout=into, stderr=subprocess.PIPE, timeout=200,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
        os.close(into)
        assert done.returncode == Exit.ERRORS, done
        assert (b"No space left" in done.stderr) == (output == "/dev/full")
        assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert client.lrange("q", 0, -1) == [b"%d" % i for i in range(3000)]


def test_pop_interrupted_while_output_is_blocked(client: redis.Redis) -> None:
    """It doesn't spin, and incompletely written items return to the list."""
    client.rpush("q", *("x" * 1000 for _ in range(1000)))
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(into, False)
    with (
        open(out, "rb", buffering=0) as file,
        preloaded.Popen([*PROGRAM, "pop", "q"], stdout=into, stderr=subprocess.PIPE) as process,
    ):
        os.close(into)
        until(lambda: client.llen("q") != 1000)
        before = used(process.pid)
        time.sleep(1.0)
        assert used(process.pid) - before < 0.5
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == Exit.TERMINATED
        whole = file.readall().count(b"\n")
    assert client.llen("q") + whole >= 1000
    assert client.keys("*") == [b"q"]


def used(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.few(2)
@pytest.mark.parametrize("what", ["dump", "rejects", "unload"])
def test_full_disk(what: str, server: LocalServer, tmp_path: Path) -> None:
    """The write before the failing one is short: a command is written completely or not at all."""
    path = tmp_path / "out"
    code = f"""
import sys, fastresp
rows = [("LPUSH", "text", "x" * 90, i) for i in range(10_000)]
if {what!r} == "dump":
    fastresp.dump(rows, None, {str(path)!r})
else:
    fastresp.mass_insert([("SET", "text", 1)], server={server.url!r})
    fastresp.mass_insert(rows, server={server.url!r}, rejects={str(path)!r}, transport="socket")
"""
    command = [sys.executable, "-c", code]
    if what == "unload":
        rows = ({"id": i, "name": "x" * 90} for i in range(10_000))
        fastresp.mass_insert(rows, HSET, server=server.url)
        command = [*PROGRAM, "unload", "user:*", "--fields", "name", "-o", str(path)]
        command += ["--format", "csv", "--server", server.url]
    limit = 100_001

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    # Under the limit, Python would write truncated files of its own for all later processes.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, preexec_fn=limited, env=env, capture_output=True, timeout=200)
    assert done.returncode == 1, done
    assert b"File too large" in done.stderr
    if what == "unload":
        assert not path.exists()
        return
    data = path.read_bytes()
    if what == "dump":
        assert RespFile(path).summary().fault is None
    else:
        assert all(json.loads(line)["error"] for line in data.splitlines())
