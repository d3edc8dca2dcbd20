"""Read-ahead: how much of a file is read before its rows are used."""

from __future__ import annotations

import gc
import io
import time
from pathlib import Path

import pyarrow as pa
import pytest

import fastresp

# Blocks being parsed by Arrow, waiting batches, and batches in use.
MAX_BYTES = 16 << 20
LINES = {"csv": b"x" * 99 + b"\n", "jsonl": b'{"a": "' + b"x" * 90 + b'"}\n'}


class Endless(io.RawIOBase):
    """A file of 200 MB that counts the bytes read."""

    def __init__(self, kind: str) -> None:
        self.line = LINES[kind]
        self.left = 200_000_000
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left)
        start = self.taken % len(self.line)
        self.taken += size
        self.left -= size
        return (self.line * (size // len(self.line) + 2))[start : start + size]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", LINES)
def test_reading_ahead_is_bounded(kind: str) -> None:
    source = Endless(kind)
    with fastresp.read(source, format=kind) as table:  # type: ignore[arg-type]
        reader = pa.RecordBatchReader.from_stream(table)
        rows = 0
        for _ in range(3):
            rows += reader.read_next_batch().num_rows
            before = -1
            while source.taken != before:  # until reading pauses
                before = source.taken
                time.sleep(0.3)
            assert source.taken - rows * len(source.line) < MAX_BYTES


@pytest.mark.parametrize("kind", LINES)
def test_blocks_without_a_whole_row_are_read(tmp_path: Path, kind: str) -> None:
    """Rows of nearly a block each: most begin in one block and end in the next."""
    path = tmp_path / f"large.{kind}"
    text = b"x" * 1_900_000
    row = b'"' + text + b'"\n' if kind == "csv" else b'{"name": "' + text + b'"}\n'
    path.write_bytes((b"name\n" if kind == "csv" else b"") + row * 20)
    assert pa.table(fastresp.read(path)).num_rows == 20


def test_a_second_ctrl_c_while_reading_stops_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the first, the table is dropped, and a finalizer waits for the thread that reads."""
    waits: list[object] = []
    printed: list[object] = []

    def interrupted(*arguments: object) -> None:
        waits.append(arguments)
        raise KeyboardInterrupt

    with fastresp.read(Endless("csv"), format="csv") as table:  # type: ignore[arg-type]
        reader = pa.RecordBatchReader.from_stream(table)
        reader.read_next_batch()
        with monkeypatch.context() as patches:
            patches.setattr("fastresp.sources.files.read_ahead.wait", interrupted)
            patches.setattr("sys.unraisablehook", printed.append)
            del reader
            gc.collect()
    assert waits
    assert not printed
