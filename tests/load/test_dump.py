"""dump() writes whole commands to files of every kind, including non-blocking ones."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fastresp
from fastresp import EncodeError, TemplateError, pack_many

ROWS = [{"id": i, "name": f"näme {i}", "v": "v" * (i % 300)} for i in range(20_000)]
TEMPLATE = "HSET user:{id} {**}; SADD users {id}"
EXPECTED = pack_many(
    command
    for row in ROWS
    for command in (
        ("HSET", f"user:{row['id']}", "name", row["name"], "v", row["v"]),
        ("SADD", "users", row["id"]),
    )
)


class PartialFile(io.RawIOBase):
    """A raw file that accepts at most 1,000 bytes per write."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data[:1000])
        return min(len(data), 1000)


class SilentFile:
    """A file-like object whose write returns nothing."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: Any) -> None:
        self.data += data


@pytest.mark.parametrize("kind", [str, Path])
def test_path(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "dump.resp"
    path.write_bytes(b"x" * 10_000_000)
    assert fastresp.dump(ROWS, TEMPLATE, kind(path)) == 40_000
    assert path.read_bytes() == EXPECTED
    assert len(EXPECTED) > 4_000_000


def test_bytesio() -> None:
    file = io.BytesIO(b"before")
    file.seek(6)
    assert fastresp.dump(iter(ROWS), TEMPLATE, file) == 40_000
    assert file.getvalue() == b"before" + EXPECTED


def test_gzip(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "dump.gz", "wb", compresslevel=1) as file:
        fastresp.dump(ROWS, TEMPLATE, file)
    assert gzip.decompress((tmp_path / "dump.gz").read_bytes()) == EXPECTED


def test_buffered_and_unbuffered_files(tmp_path: Path) -> None:
    for buffering in (0, -1):
        with open(tmp_path / "dump", "wb", buffering=buffering) as file:
            fastresp.dump(ROWS, TEMPLATE, file)
            assert not file.closed
        assert (tmp_path / "dump").read_bytes() == EXPECTED


@pytest.mark.parametrize("kind", [PartialFile, SilentFile])
def test_partial_and_silent_writes(kind: Any) -> None:
    file = kind()
    fastresp.dump(ROWS, TEMPLATE, file)
    assert file.data == EXPECTED


@pytest.mark.parametrize("file", [io.StringIO(), io.TextIOWrapper(io.BytesIO())])
def test_text_file(file: Any) -> None:
    with pytest.raises(TypeError, match="open the file with mode 'wb'"):
        fastresp.dump(ROWS, TEMPLATE, file)


def test_commands_nulls_default(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    commands = [("SET", "a", 1), ["SET", "b", None], ("SET", "c", 1j)]
    assert fastresp.dump(commands, None, path, nulls="skip", default=str) == 2
    assert path.read_bytes() == pack_many([("SET", "a", 1), ("SET", "c", "1j")])
    assert fastresp.dump(commands, None, path, nulls="empty", default=str) == 3
    assert path.read_bytes() == pack_many([("SET", "a", 1), ("SET", "b", ""), ("SET", "c", "1j")])
    assert fastresp.dump([], None, path) == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "data", [b"SET a b", bytearray(b"x"), {"a": 1}], ids=lambda data: type(data).__name__
)
def test_not_an_iterable_of_rows(tmp_path: Path, data: Any) -> None:
    with pytest.raises(TypeError, match="data must be an iterable of rows"):
        fastresp.dump(data, None, tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize("before", [0, 1, 19_999])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [({"id": None}, EncodeError), ({"name": 1}, TemplateError), (KeyError("mine"), KeyError)],
)
def test_error_leaves_whole_commands(
    tmp_path: Path, before: int, bad: Any, kind: type[Exception]
) -> None:
    def source() -> Iterator[Any]:
        yield from ROWS[:before]
        if isinstance(bad, Exception):
            raise bad
        yield bad

    path = tmp_path / "dump"
    with pytest.raises(kind):
        fastresp.dump(source(), TEMPLATE, path)
    written = path.read_bytes()
    assert EXPECTED.startswith(written)
    if before == 19_999:
        assert len(written) > 1 << 20
    splitter = fastresp.resp.split.CommandSplitter()
    splitter.feed(written)
    assert splitter.pending == 0


def test_bad_template_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"precious")
    with pytest.raises(TemplateError):
        fastresp.dump(ROWS, "SET {a", path)
    assert path.read_bytes() == b"precious"


def test_full_disk() -> None:
    with pytest.raises(OSError):  # noqa: PT011
        fastresp.dump(ROWS, TEMPLATE, "/dev/full")
    with (
        open("/dev/full", "wb", buffering=0) as file,
        pytest.raises(OSError, match="No space left"),
    ):
        fastresp.dump(ROWS, TEMPLATE, file)


# The limit on file sizes is per process, so this runs in a separate process.
LIMITED = """
import resource, sys
import fastresp
resource.setrlimit(resource.RLIMIT_FSIZE, (2_500_000, 2_500_000))
try:
    fastresp.dump((("SET", i, "v" * 100) for i in range(100_000)), None, sys.argv[1])
except OSError as error:
    print(error.strerror)
"""


def test_file_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    done = subprocess.run(
        # -B: see test_full_disk of RDB files.
        [sys.executable, "-B", "-c", LIMITED, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "File too large\n"
    written = path.read_bytes()
    assert 1 << 20 < len(written) < 2_500_000
    splitter = fastresp.resp.split.CommandSplitter()
    chunk = splitter.feed(written)
    assert splitter.pending == 0
    assert chunk is not None
    assert written == pack_many(("SET", i, "v" * 100) for i in range(len(chunk.ends)))


@pytest.mark.parametrize("kind", ["path", "pattern", "several", "query", "RESP", "file object"])
def test_source_is_not_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(fastresp.pack("SET", "a", "1") if kind == "RESP" else b"a\n1\n")
    (tmp_path / "y.csv").write_text("a\n2\n")
    template = None if kind == "RESP" else "SET {a} v"
    content = path.read_bytes()
    with path.open("rb") as file:
        sources: dict[str, Callable[[], Any]] = {
            "path": lambda: path,
            "pattern": lambda: fastresp.read(str(tmp_path / "?.csv")),
            "several": lambda: [tmp_path / "y.csv", path],
            "query": lambda: fastresp.read(str(path), sql="SELECT a FROM source"),
            "RESP": lambda: fastresp.read(path, format="resp"),
            "file object": lambda: fastresp.read(file, format="csv"),
        }
        with pytest.raises(ValueError, match=r"x\.csv is also the source; write to another file"):
            fastresp.dump(sources[kind](), template, path)
    assert path.read_bytes() == content


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
def test_dump_to_a_non_blocking_file(buffering: int) -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
    pieces: list[bytes] = []
    thread = drained(out, pieces)
    rows = [(str(i), "x" * 100) for i in range(2000)]
    with open(into, "wb", buffering=buffering) as file:
        assert fastresp.dump(rows, "SET {0} {1}", file) == 2000
        os.set_blocking(into, True)
    thread.join()
    os.close(out)
    assert b"".join(pieces) == fastresp.pack_many(("SET", *row) for row in rows)


def test_dump_to_a_non_blocking_socket() -> None:
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
    """A raw file that has no room and no file descriptor to poll."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> None:  # type: ignore[override]
        return None


def test_dump_to_a_non_blocking_file_that_cannot_be_polled() -> None:
    with pytest.raises(BlockingIOError, match="pass a blocking one"):
        fastresp.dump([("PING",)], None, Careless())
