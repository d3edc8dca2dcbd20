"""Columns into a file, batch by batch: CSV, JSON lines, Parquet."""

from __future__ import annotations

import json
from typing import IO, Any

import pyarrow as pa

__all__ = ["open_output"]


def open_output(file: IO[bytes], kind: str, schema: pa.Schema) -> Any:
    """What writes batches of this schema, and is closed before the file is.

    A CSV file has quotes around every value, so that an empty string is ``""`` and a null nothing.

    Args:
        kind: ``"csv"``, ``"jsonl"`` or ``"parquet"``.
    """
    if kind == "jsonl":
        return JsonLines(file)
    sink = pa.PythonFile(file, "w")
    if kind == "csv":
        from pyarrow import csv

        return csv.CSVWriter(sink, schema)
    from pyarrow import parquet

    return parquet.ParquetWriter(sink, schema)


class JsonLines:
    """An object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
        self._file.writelines(f"{line}\n".encode() for line in lines)

    def close(self) -> None:
        pass
