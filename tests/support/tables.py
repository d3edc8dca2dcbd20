"""Files of every format with the same rows, and helpers to read them."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import feather, parquet

import fastresp

ROWS: list[dict[str, Any]] = [
    {"id": number, "name": f"user {number}", "note": None if number % 3 else "a\nb"}
    for number in range(100)
]
PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress}


def csv_bytes(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    def cell(value: Any) -> str:
        return "" if value is None else f'"{value}"' if "\n" in str(value) else str(value)

    lines = [rows[0].keys(), *([cell(value) for value in row.values()] for row in rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines).encode()


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> str:
    """Write a file in the format of its suffix."""
    table = pa.Table.from_pylist(rows)
    stem, _, packing = path.name.partition(".")[2].partition(".")
    pack = PACKERS["." + packing if packing else ""]
    if stem in ("csv", "tsv"):
        path.write_bytes(pack(csv_bytes(rows, "\t" if stem == "tsv" else ",")))
    elif stem in ("jsonl", "ndjson", "json"):
        path.write_bytes(pack("".join(json.dumps(row) + "\n" for row in rows).encode()))
    elif stem in ("parquet", "pq"):
        parquet.write_table(table, path)
    elif stem == "feather":
        feather.write_feather(table, str(path))
    else:
        write_ipc(path, table, max_chunksize=30)
    return str(path)


def write_ipc(path: Path, table: pa.Table, **options: Any) -> None:
    """Write an Arrow IPC file; a stream if its suffix is "arrows"."""
    kind = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with kind(path, table.schema) as writer:
        writer.write_table(table, **options)


def as_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: None if value is None else str(value) for name, value in row.items()} for row in rows
    ]


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, **options
    )
    assert done.returncode == 0, done.stderr
    return done


def rows_of(source: Any, **options: Any) -> list[dict[str, Any]]:
    return pa.table(fastresp.read(source, **options)).to_pylist()


def failure(source: Any, **options: Any) -> str:
    """Return the text of the SourceError that reading raises."""
    table = fastresp.read(source, **options)
    with pytest.raises((fastresp.SourceError, pa.ArrowInvalid)) as caught:
        pa.table(table)
    error = table.error or caught.value
    assert isinstance(error, fastresp.SourceError)
    return str(error)
