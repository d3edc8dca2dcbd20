"""Pipes and files that do not block, or that take a part of a write: no byte is lost unnoticed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from command_line import PROGRAM

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer
from fastresp.sources.files.resp import RespFile

HSET = "HSET user:{id} {**}"
PIPE_BYTES = 4096
UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def _url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "client" in request.fixturenames:
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("server").url)


def slowly_read(*command: object, stream: str = "stdout", **environment: str) -> Any:
    """Run the program with a small pipe that does not block, and is read slowly at first."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(into, False)
    other = subprocess.PIPE
    with (
        open(out, "rb", buffering=0) as file,
        subprocess.Popen(
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


# What is written.


@UNBUFFERED
def test_pop(unbuffered: str, client: redis.Redis) -> None:
    items = [f"{i}:" + "x" * 90 for i in range(4000)]
    client.rpush("q", *items)
    code, data, _ = slowly_read("pop", "q", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data.decode().split("\n") == [*items, ""]
    assert client.keys("*") == []


@pytest.mark.parametrize(
    ("kind", "unbuffered"),
    [("csv", ""), ("jsonl", "1"), slow("csv", "1"), slow("jsonl", "")],
)
def test_unload(kind: str, unbuffered: str, client: redis.Redis) -> None:
    fastresp.mass_insert(({"id": i, "name": "x" * 90} for i in range(4000)), HSET)
    command = ["unload", "user:{id}", "--fields", "name", "--format", kind]
    code, data, _ = slowly_read(*command, PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    rows = pa.table(fastresp.read(io.BytesIO(data), format=kind)).to_pylist()  # type: ignore[arg-type]
    assert {row["id"] for row in rows} == {str(i) for i in range(4000)}
    assert {row["name"] for row in rows} == {"x" * 90}


@UNBUFFERED
def test_pack(unbuffered: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n" + "".join(f"{i}\n" for i in range(20_000)))
    command = ["pack", path, "SET {id} v"]
    code, data, _ = slowly_read(*command, PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data == fastresp.pack_many(("SET", str(i), "v") for i in range(20_000))


@UNBUFFERED
def test_text(unbuffered: str, tmp_path: Path) -> None:
    """What is printed, as JSON, goes the same way."""
    path = tmp_path / "x.resp"
    fastresp.dump([(f"NAME{i:04}" + "x" * 30, i) for i in range(1000)], None, path)
    code, data, _ = slowly_read("check", path, "--json", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert len(json.loads(data)["names"]) == 1000


@UNBUFFERED
def test_errors_of_a_report(unbuffered: str, client: redis.Redis) -> None:
    """Standard error has all that it should say."""
    client.rpush("q", *["x"] * 10)
    for i in range(100):
        client.set(f"text:{i}", "x" * 100)
    command = ["pop", "q" * 20_000]
    code, data, _ = slowly_read(*command, stream="stderr", PYTHONUNBUFFERED=unbuffered)
    assert code == Exit.OK
    assert data.decode() == "0 items popped, 0 left in " + "q" * 20_000 + "\n"


def test_output_that_stops_to_block_on_the_way(client: redis.Redis) -> None:
    """Any holder of a pipe can set it so, at any time."""
    client.rpush("q", *(b"%d" % i for i in range(100_000)))
    out, into = os.pipe()
    with (
        open(out, "rb", buffering=0) as file,
        subprocess.Popen([*PROGRAM, "pop", "q"], stdout=into) as process,
    ):
        data = file.read(1000)
        os.set_blocking(into, False)
        os.close(into)
        time.sleep(0.1)
        data += file.readall()
        assert process.wait(60) == Exit.OK
    assert data.split() == [b"%d" % i for i in range(100_000)]


@pytest.mark.parametrize(
    ("output", "unbuffered"),
    [
        ("/dev/full", ""),
        ("closed reader", "1"),
        slow("/dev/full", "1"),
        slow("closed reader", ""),
    ],
)
def test_output_that_fails(output: str, unbuffered: str, client: redis.Redis) -> None:
    """Items that were not written are still in the list, and the exit code says so."""
    client.rpush("q", *range(3000))
    client.hset("user:1", "name", "Ann")
    for command in ("pop q", "unload user:* --fields name", "unload user:* --fields name -o -"):
        if output == "/dev/full":
            into = os.open(output, os.O_WRONLY)
        else:
            out, into = os.pipe()
            os.close(out)
        os.set_blocking(into, False)
        done = subprocess.run(
            [*PROGRAM, *command.split()], stdout=into, stderr=subprocess.PIPE, timeout=200,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
        os.close(into)
        assert done.returncode == Exit.ERRORS, done
        assert (b"No space left" in done.stderr) == (output == "/dev/full")
        assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert client.lrange("q", 0, -1) == [b"%d" % i for i in range(3000)]


def test_pop_that_ends_while_it_waits_for_room(client: redis.Redis) -> None:
    """It does not spin, and what was not written whole goes back."""
    client.rpush("q", *("x" * 1000 for _ in range(1000)))
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(into, False)
    with (
        open(out, "rb", buffering=0) as file,
        subprocess.Popen([*PROGRAM, "pop", "q"], stdout=into, stderr=subprocess.PIPE) as process,
    ):
        os.close(into)
        while client.llen("q") == 1000:
            time.sleep(0.01)
        before = used(process.pid)
        time.sleep(1.0)
        assert used(process.pid) - before < 0.5
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == Exit.INTERRUPTED
        whole = file.readall().count(b"\n")
    assert client.llen("q") + whole >= 1000
    assert client.keys("*") == [b"q"]


def used(pid: int) -> float:
    """Seconds of CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drained(out: int, into: list[bytes]) -> threading.Thread:
    """Read a pipe slowly in a thread."""

    def read() -> None:
        while piece := os.read(out, 3000):
            into.append(piece)
            if len(into) < 20:
                time.sleep(0.005)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


@pytest.mark.parametrize("buffering", [0, -1, 100])
def test_dump_into_a_file_that_does_not_block(buffering: int) -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    pieces: list[bytes] = []
    thread = drained(out, pieces)
    rows = [(str(i), "x" * 100) for i in range(2000)]
    with open(into, "wb", buffering=buffering) as file:
        assert fastresp.dump(rows, "SET {0} {1}", file) == 2000
        os.set_blocking(into, True)
    thread.join()
    os.close(out)
    assert b"".join(pieces) == fastresp.pack_many(("SET", *row) for row in rows)


def test_dump_into_a_socket_that_does_not_block() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    pieces: list[bytes] = []
    thread = drained(theirs.fileno(), pieces)
    rows = [(str(i), "x" * 1000) for i in range(2000)]
    with ours.makefile("wb", buffering=0) as file:
        fastresp.dump(rows, "SET {0} {1}", file)
    ours.close()
    thread.join()
    theirs.close()
    assert b"".join(pieces) == fastresp.pack_many(("SET", *row) for row in rows)


class Careless(io.RawIOBase):
    """A raw file that has no room, and no descriptor to wait for."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> None:  # type: ignore[override]
        return None


def test_dump_where_nobody_can_wait() -> None:
    with pytest.raises(BlockingIOError, match="give one that blocks"):
        fastresp.dump([("PING",)], None, Careless())


@pytest.mark.parametrize("what", ["dump", "rejects", "unload"])
def test_disk_that_becomes_full(what: str, server: LocalServer, tmp_path: Path) -> None:
    """The write before the failing one is short: what fits is written whole, or not at all."""
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

    done = subprocess.run(command, preexec_fn=limited, capture_output=True, timeout=200)
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


# What is read.


class Late:
    """A pipe that does not block, and whose bytes come late and in pieces."""

    def __init__(self, data: bytes, pieces: int = 3, *, wait: float = 0.5) -> None:
        self.out, into = os.pipe()
        os.set_blocking(self.out, False)
        size = len(data) // pieces + 1
        self._thread = threading.Thread(target=self._write, args=(into, data, size, wait))
        self._thread.start()

    def _write(self, into: int, data: bytes, size: int, wait: float) -> None:
        with open(into, "wb", buffering=0) as file:
            time.sleep(wait)
            for start in range(0, len(data), size):
                file.write(data[start : start + size])
                self._wait_for_reader()
                time.sleep(0.1)

    def _wait_for_reader(self) -> None:
        """Wait until the pipe is empty: a reader that begins late would see no pause otherwise."""
        end = time.monotonic() + 20
        nothing = bytes(4)
        while fcntl.ioctl(self.out, termios.FIONREAD, nothing) != nothing:
            if time.monotonic() > end:
                return
            time.sleep(0.01)

    def __enter__(self) -> int:
        return self.out

    def __exit__(self, *error: object) -> None:
        self._thread.join()
        os.close(self.out)


def arrow(rows: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": [str(i) for i in range(rows)], "n": ["v"] * rows})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


RESP = fastresp.pack_many(("SET", i, "v") for i in range(300))
CSV = b"id,n\n" + b"".join(b"%d,v\n" % i for i in range(300))
JSONL = b"".join(b'{"id": "%d", "n": "v"}\n' % i for i in range(300))
SOURCES = {
    "csv": CSV, "jsonl": JSONL, "arrow": arrow(300), "tsv": CSV.replace(b",", b"\t"),
}  # fmt: skip


def test_send_from_a_pipe_that_does_not_block(client: redis.Redis) -> None:
    for command in ("send -", "send - --transport redis-cli", "check -"):
        client.flushall()
        with Late(RESP) as stdin:
            words = [*PROGRAM, *command.split(), "--json"]
            done = subprocess.run(words, stdin=stdin, capture_output=True, timeout=200)
        assert done.returncode == Exit.OK, done
        assert json.loads(done.stdout)["commands"] == 300
        assert client.dbsize() == (0 if command == "check -" else 300)


@pytest.mark.parametrize("kind", SOURCES)
def test_load_from_a_pipe_that_does_not_block(kind: str, client: redis.Redis) -> None:
    with Late(SOURCES[kind]) as stdin:
        command = [*PROGRAM, "load", "-", "SET {id} {n}", "--format", kind]
        done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=200)
    assert done.returncode == Exit.OK, done
    assert client.dbsize() == 300


class Raw(io.RawIOBase):
    """A raw file of somebody's, whose read() returns None when there is nothing yet."""

    def __init__(self, number: int, name: str = "theirs") -> None:
        self._number = number
        self.name = name

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def readinto(self, block: Any) -> int | None:
        try:
            data = os.read(self._number, len(block))
        except BlockingIOError:
            return None
        block[: len(data)] = data
        return len(data)


class Bare:
    """No more than a read() that returns None, and a descriptor."""

    def __init__(self, number: int) -> None:
        self._raw = Raw(number)
        self.fileno = self._raw.fileno

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes | None:
        return self._raw.read(size)


FILES: dict[str, Callable[[int], Any]] = {
    "raw": lambda number: io.FileIO(number, closefd=False),
    "buffered": lambda number: io.BufferedReader(io.FileIO(number, closefd=False)),
    "theirs": Raw,
    "buffered-theirs": lambda number: io.BufferedReader(Raw(number)),
    "bare": Bare,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", ["csv", "arrow", "resp", "gzip"])
def test_file_objects_that_do_not_block(kind: str, file: str) -> None:
    import gzip

    data = {"resp": RESP, "gzip": gzip.compress(CSV)}.get(kind) or SOURCES[kind]
    with Late(data, 2, wait=0.1) as number:
        if kind == "resp":
            source: Any = RespFile(FILES[file](number))
            template = None
        else:
            form: Any = "csv" if kind == "gzip" else kind
            source = fastresp.read(FILES[file](number), format=form)
            template = "SET {id} {n}"
        sink = io.BytesIO()
        assert fastresp.dump(source, template, sink) == 300
    assert sink.getvalue() == RESP


def test_file_object_that_nobody_can_wait_for() -> None:
    class Never:
        def seekable(self) -> bool:
            return False

        def read(self, size: int = -1) -> None:
            return None

    for source in (RespFile(Never()), fastresp.read(Never(), format="csv")):  # type: ignore[arg-type]
        with pytest.raises(BlockingIOError, match="give one that blocks"):
            fastresp.dump(
                source, None if isinstance(source, RespFile) else "SET {id} 1", io.BytesIO()
            )


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (["load", "-", "SADD s {id}", "--format", "csv"], b"id\n1\n2\n"),
        slow(["load", "-", "SADD s {id}", "--format", "jsonl"], b'{"id": 1}\n{"id": 2}\n'),
        (["load", "-", "SADD s {id}", "--sql", "FROM source"], b"id\n1\n2\n"),
        (["send", "-"], b"*3\n$4\nSADD\n$1\ns\n$1\n1\n*3\n$4\nSADD\n$1\ns\n$1\n2\n"),
    ],
)
def test_one_end_of_input_is_enough(
    command: list[str], typed: bytes, client: redis.Redis, terminal: tuple[int, int]
) -> None:
    """At a terminal a load ends with the first Ctrl-D."""
    ours, theirs = terminal
    if command[0] == "send":
        typed = typed.replace(b"\n", b"\r\n")
        mode = termios.tcgetattr(theirs)
        mode[0] &= ~termios.ICRNL
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        typed = b"".join(line + b"\n" for line in typed.split(b"\n")[:-1])
    with subprocess.Popen(
        [*PROGRAM, *command], stdin=theirs, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        os.write(ours, typed)
        os.write(ours, b"\x04")
        try:
            assert process.wait(20) == Exit.OK
        finally:
            process.kill()
    assert client.smembers("s") == {b"1", b"2"}
