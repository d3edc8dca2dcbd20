"""Damaged files of every format raise our errors, never crash, and never inject commands."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from damaged_files import INJECTED, KINDS
from places import SUPPORT
from pyarrow import parquet
from raw_arrays import int32
from tables import failure, write_ipc

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.sources.files import columnar
from fastresp.sources.files.columnar import IpcFile
from fastresp.sources.files.input import BorrowedObjects

# Later crashes would show nothing new; this many were never seen.
MAX_CRASHES = 5


def hostile_file(path: Path, suffix: str = "arrow", names: tuple[str, ...] = ("id",)) -> str:
    """Write a file with a string that ends before it begins, followed by a command as a string."""
    # A string of -60 bytes once made the encoder write commands with keys ending inside the third
    # string.
    texts = ["x" * 140, ("y" * 10 + "\r\n$1\r\nv" + INJECTED).ljust(60, "z"), "w" * 50]
    table = pa.table(dict.fromkeys(names, texts))
    file = path / f"hostile.{suffix}"
    write_ipc(file, table)
    data = file.read_bytes()
    assert data.count(int32(0, 140, 200, 250)) == len(names)
    file.write_bytes(data.replace(int32(0, 140, 200, 250), int32(0, 200, 140, 250)))
    return str(file)


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", ["arrow", "arrows", "feather"])
def test_hostile_file_runs_no_command(
    tmp_path: Path, server: LocalServer, client: redis.Redis, suffix: str
) -> None:
    path = hostile_file(tmp_path, suffix)
    client.set("kept", "1")
    done = preloaded.run(
        [sys.executable, "-m", "fastresp", "load", path, "SET {id} v", "--server", server.url],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert client.keys() == [b"kept"]
    assert done.returncode not in (0, 64), done.stderr
    assert f"{path}: from row 0 on, column 'id' is damaged" in done.stderr


def test_hostile_file_in_a_query(tmp_path: Path) -> None:
    path = hostile_file(tmp_path)
    assert "column 'id' is damaged" in failure(path, sql="SELECT id FROM source")


def test_hostile_file_read_by_pyarrow(tmp_path: Path) -> None:
    """If pyarrow reads it, our column encoder refuses it, with row and column."""
    with pa.memory_map(hostile_file(tmp_path, names=("other", "id"))) as file:
        table = pa.ipc.open_file(file).read_all()
        with pytest.raises(
            fastresp.EncodeError, match=r"row 1, command 1, column 'other'.*damaged"
        ):
            fastresp.dump(table, "SET {id} v", tmp_path / "out.resp")


def test_bytes_need_not_be_utf8(tmp_path: Path) -> None:
    """Not even in text columns, as in CSV: Redis accepts any bytes."""
    bad = pa.array([b"\xff", b"b"])
    nested = pa.ListArray.from_arrays([0, 1, 2], bad)
    table = pa.table({"a": bad.view(pa.string()), "b": nested.view(pa.list_(pa.string()))})
    parquet.write_table(table, tmp_path / "a.parquet")
    write_ipc(tmp_path / "a.arrow", table)
    for name in ("a.parquet", "a.arrow"):
        fastresp.dump(fastresp.read(tmp_path / name), "RPUSH {a} {*b}", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == fastresp.pack_many(
            [("RPUSH", b"\xff", b"\xff"), ("RPUSH", "b", "b")]
        )


def test_column_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"name": ["a"]})
    write_ipc(path, table)
    path.write_bytes(path.read_bytes().replace(b"name", b"na\xffe"))
    assert "a column name is not UTF-8" in failure(path)


@pytest.mark.parametrize("whole", [True, False])
def test_arrow_threads_release_a_closed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """They read its index, and would abort the process by calling Python during its exit."""
    lent: list[weakref.ref[Any]] = []

    class Noted(BorrowedObjects):
        def add(self, what: Any, returned: Any = None) -> None:
            lent.append(weakref.ref(what))
            super().add(what, returned)

    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, pa.schema({"id": pa.string()})) as writer:
        writer.write_table(pa.table({"id": ["a", "b"]}))
    if not whole:
        path.write_bytes(path.read_bytes()[:-40] + b"\xff" * 30 + path.read_bytes()[-10:])
    monkeypatch.setattr(columnar, "BorrowedObjects", Noted)
    for _ in range(300):
        with nullcontext() if whole else pytest.raises(OSError, match="Footer"):
            IpcFile(str(path)).close()
        assert [each() for each in lent] == [None] * (6 if whole else 3)
        lent.clear()


def damage(kind: str, count: int, folder: Path) -> list[str]:
    """Load damaged files in separate processes, and return what went wrong."""
    found, first, crashes = [], 0, 0
    while first < count and crashes < MAX_CRASHES:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", str(SUPPORT / "damaged_files.py"), kind,
             str(first), str(count - first)],
            capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        found += done.stdout.splitlines()
        if done.returncode == 0:
            break
        seed = int((folder / "at").read_text())
        found.append(f"{kind} {seed}: the process ended with {done.returncode}\n{done.stderr}")
        first, crashes = seed + 1, crashes + 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    assert damage(kind, 200, tmp_path) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(tmp_path: Path, kind: str) -> None:
    """Load FASTRESP_DAMAGED_FILES files of each format, by default 10,000."""
    count = int(os.environ.get("FASTRESP_DAMAGED_FILES", "10000"))
    assert damage(kind, count, tmp_path) == []


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_hostile_file_from_python(
    tmp_path: Path, server: LocalServer, client: redis.Redis, transport: Any
) -> None:
    client.set("kept", "1")
    data = fastresp.read(hostile_file(tmp_path))
    with pytest.raises(fastresp.SourceError, match="column 'id' is damaged"):
        fastresp.mass_insert(data, "SET {id} v", server=server.url, transport=transport)
    assert client.keys() == [b"kept"]
