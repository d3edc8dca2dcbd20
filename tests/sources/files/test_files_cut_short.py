"""Files truncated or changed during a load: an error, never a crash or a partial row."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
from changing_files import Changing
from places import SUPPORT
from pyarrow import parquet
from tables import write_ipc

import fastresp
from fastresp.sources.files import columnar
from fastresp.sources.files.paths import InitialState

TEMPLATE = "SET {id} {text}"


def write_file(path: Path) -> None:
    """Write 20 MB of rows, more than is read ahead, in the format of the file extension."""
    kind = path.suffix[1:]
    # For Parquet, some batches of 16,384 rows are read ahead.
    rows, width = (200_000, 100) if kind == "parquet" else (20_000, 1_000)
    ids = list(range(rows))
    table = pa.table({"id": ids, "text": [f"{number:0{width}}" for number in ids]})
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=10_000, compression="none")
    elif kind in ("arrow", "arrows"):
        write_ipc(path, table, max_chunksize=1_000)
    elif kind == "resp":
        fastresp.dump(table, TEMPLATE, path)
    else:
        form = '{"id": %d, "text": "%01000d"}\n' if kind == "jsonl" else "%d,%01000d\n"
        head = "id,text\n" if kind == "csv" else ""
        path.write_text(head + "".join(form % (number, number) for number in ids))


FORMS = ["arrow", "arrows", "parquet", "csv", "jsonl", "lines", "resp"]


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", FORMS)
def test_file_truncated_during_a_load(tmp_path: Path, suffix: str) -> None:
    """In a separate process: SIGBUS would kill it if the file were memory-mapped."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pathlib, fastresp\n"
        "from changing_files import Changing, cut\n"
        "path, template = pathlib.Path(sys.argv[2]), sys.argv[3] or None\n"
        "kind = 'lines' if path.suffix == '.lines' else None\n"
        "try:\n"
        "    fastresp.dump(fastresp.read(path, format=kind), template, Changing(cut(path)))\n"
        "except (fastresp.SourceError, fastresp.ProtocolError) as error:\n"
        "    print(error)"
    )
    path = tmp_path / f"x.{suffix}"
    write_file(path)
    template = {"resp": "", "lines": "RPUSH k {line}"}.get(suffix, TEMPLATE)
    done = preloaded.run(
        [sys.executable, "-c", code, str(SUPPORT), str(path), template],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(path))


@pytest.mark.parametrize("most", [1 << 16, 64 << 20])
def test_arrow_file_changed_during_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The checked bytes are sent, even if a batch is too large for memory."""
    monkeypatch.setattr(columnar, "MAX_IN_MEMORY", most)
    path = tmp_path / "x.arrow"
    table = pa.table({"id": list(range(50_000)), "text": ["whole" * 10] * 50_000})
    write_ipc(path, table)
    whole = io.BytesIO()
    fastresp.dump(table, TEMPLATE, whole)
    size = path.stat().st_size

    def overwrite() -> None:
        with open(path, "r+b") as file:
            file.write(b"junk" * (size // 4))

    changed = Changing(overwrite)
    with suppress(fastresp.SourceError):  # it was not yet read to its end
        fastresp.dump(fastresp.read(path), TEMPLATE, changed)
    assert changed.getvalue()
    assert whole.getvalue().startswith(changed.getvalue())


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes().splitlines(keepends=True)[-1])


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.few(4)
@pytest.mark.parametrize("change", [grown, replaced, os.utime])
@pytest.mark.parametrize("suffix", FORMS)
def test_file_changed_during_a_load(
    tmp_path: Path, suffix: str, change: Callable[[Path], object]
) -> None:
    """It is an error even if all rows of the original file have been read."""
    path = tmp_path / f"x.{suffix}"
    write_file(path)
    template = {"resp": None, "lines": "RPUSH k {line}"}.get(suffix, TEMPLATE)
    source = fastresp.read(path, format="lines" if suffix == "lines" else None)
    with pytest.raises(fastresp.SourceError) as caught:
        fastresp.dump(source, template, Changing(lambda: change(path)))
    assert str(caught.value).partition(": the ")[0].endswith(path.name)
    assert "while it was read; load it again once nothing writes to it" in str(caught.value)


@pytest.mark.parametrize("size", [0, 4])
def test_parquet_file_truncated_to_nothing(tmp_path: Path, size: int) -> None:
    """In most places Arrow then ends without an error, as if there were no more rows."""
    path = tmp_path / "x.parquet"
    write_file(path)
    with pytest.raises(fastresp.SourceError, match=r"it ended after|can't be read as Parquet"):
        fastresp.dump(fastresp.read(path), TEMPLATE, Changing(lambda: os.truncate(path, size)))


def test_file_changed_during_a_query(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_file(path)
    table = fastresp.read(path, sql="FROM source")
    with pytest.raises(fastresp.SourceError, match="while it was read"):
        fastresp.dump(table, TEMPLATE, Changing(lambda: os.utime(path)))


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_stream_truncated_between_batches(make: Any) -> None:
    """Arrow mistakes the end of a file for the end of the stream."""
    output = io.BytesIO()
    table = pa.table({"id": list(range(40))})
    with make(output, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    data = output.getvalue()
    whole = data.rindex(b"\xff\xff\xff\xff\0\0\0\0") + 8
    for size in range(8, whole, 8):
        source = fastresp.read(io.BytesIO(data[:size]), format="arrow")
        with pytest.raises(fastresp.SourceError):
            fastresp.dump(source, "SADD {id}", io.BytesIO())
    source = fastresp.read(io.BytesIO(data[:whole]), format="arrow")
    assert fastresp.dump(source, "SADD {id}", io.BytesIO()) == 40


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_files_of_proc_may_change() -> None:
    file = InitialState("/proc/uptime")
    time.sleep(0.01)
    file.check()


@pytest.mark.slow
def test_arrow_file_of_one_large_batch_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    table = pa.table({"id": list(range(200_000)), "text": ["x" * 500] * 200_000})
    write_ipc(path, table)
    code = (
        "import os, re, sys, fastresp, pyarrow\n"
        "def size():\n"
        "    return int(re.search(r'RssAnon:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "class Output:\n"
        "    def write(self, data):\n"
        "        global most\n"
        "        most = max(most, size())\n"
        "source = fastresp.read(sys.argv[1])\n"
        "most = before = size()\n"
        "assert source.rows == 200_000\n"
        "fastresp.dump(source, 'SET {id} {text}', Output())\n"
        "print(max((most - before) << 10, pyarrow.default_memory_pool().max_memory()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20


def test_arrow_batch_too_large_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "MAX_IN_MEMORY", 1 << 20)
    monkeypatch.setattr(columnar.tempfile, "tempdir", "/proc")
    for suffix in ("arrow", "arrows"):
        path = tmp_path / f"x.{suffix}"
        table = pa.table({"id": ["x" * 100] * 30_000})
        write_ipc(path, table)
        with pytest.raises(fastresp.SourceError, match=r"a batch of 2 MiB .* in /proc: .*TMPDIR"):
            fastresp.dump(fastresp.read(path), "SET {id} x", io.BytesIO())
