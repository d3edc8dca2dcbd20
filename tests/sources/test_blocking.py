"""Non-blocking sources: late data is not mistaken for the end."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from command_line import PROGRAM

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.sources.files.resp import RespFile


@pytest.fixture(autouse=True)
def _url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "client" in request.fixturenames:
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("server").url)


class Late:
    """A non-blocking pipe whose bytes arrive late and in pieces."""

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
        """Wait until the pipe is empty: otherwise a reader that starts late would see no pause."""
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


@pytest.mark.slow
def test_send_from_a_non_blocking_pipe(client: redis.Redis) -> None:
    for command in ("send -", "send - --transport redis-cli", "check -"):
        client.flushall()
        with Late(RESP) as stdin:
            words = [*PROGRAM, *command.split(), "--json"]
            done = preloaded.run(words, stdin=stdin, capture_output=True, timeout=200)
        assert done.returncode == Exit.OK, done
        assert json.loads(done.stdout)["commands"] == 300
        assert client.dbsize() == (0 if command == "check -" else 300)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", SOURCES)
def test_load_from_a_non_blocking_pipe(kind: str, client: redis.Redis) -> None:
    with Late(SOURCES[kind]) as stdin:
        command = [*PROGRAM, "load", "-", "SET {id} {n}", "--format", kind]
        done = preloaded.run(command, stdin=stdin, capture_output=True, timeout=200)
    assert done.returncode == Exit.OK, done
    assert client.dbsize() == 300


class Raw(io.RawIOBase):
    """A user's raw file: read() returns None if no data is available."""

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
    """A file object with only a read() that returns None, and a file descriptor."""

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


@pytest.mark.few(4)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", ["csv", "arrow", "resp", "gzip"])
def test_non_blocking_file_objects(kind: str, file: str) -> None:
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


def test_non_blocking_file_object_that_cannot_be_polled() -> None:
    class Never:
        def seekable(self) -> bool:
            return False

        def read(self, size: int = -1) -> None:
            return None

    for source in (RespFile(Never()), fastresp.read(Never(), format="csv")):  # type: ignore[arg-type]
        with pytest.raises(BlockingIOError, match="pass a blocking one"):
            fastresp.dump(
                source, None if isinstance(source, RespFile) else "SET {id} 1", io.BytesIO()
            )


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (["load", "-", "SADD s {id}", "--format", "csv"], b"id\n1\n2\n"),
        pytest.param(
            ["load", "-", "SADD s {id}", "--format", "jsonl"],
            b'{"id": 1}\n{"id": 2}\n',
            marks=pytest.mark.long,
        ),
        (["load", "-", "SADD s {id}", "--sql", "FROM source"], b"id\n1\n2\n"),
        (["send", "-"], b"*3\n$4\nSADD\n$1\ns\n$1\n1\n*3\n$4\nSADD\n$1\ns\n$1\n2\n"),
    ],
)
def test_one_ctrl_d_is_enough(
    command: list[str], typed: bytes, client: redis.Redis, terminal: tuple[int, int]
) -> None:
    """On a terminal, the first Ctrl-D ends a load."""
    ours, theirs = terminal
    if command[0] == "send":
        typed = typed.replace(b"\n", b"\r\n")
        mode = termios.tcgetattr(theirs)
        mode[0] &= ~termios.ICRNL
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        typed = b"".join(line + b"\n" for line in typed.split(b"\n")[:-1])
    with preloaded.Popen(
        [*PROGRAM, *command], stdin=theirs, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        os.write(ours, typed)
        os.write(ours, b"\x04")
        try:
            assert process.wait(20) == Exit.OK
        finally:
            process.kill()
    assert client.smembers("s") == {b"1", b"2"}
