"""What a source, a template and options are, so that a load goes on only with the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...encode.template import Template
from ...outcome.errors import CheckpointError
from ...outcome.messages import Hint, Message
from ...server.options import Options
from ...sources.files import Table
from ...sources.several_tables import Frames

__all__ = ["identity"]

# How much of the beginning and of the end of a file is read.
SAMPLE_BYTES = 1 << 20
# How many rows of the beginning and of the end of a sequence, or of columns.
SAMPLE_ROWS = 100


def identity(data: Any, template: Template | None, options: Options) -> dict[str, str]:
    """Return what must be the same when a load goes on, by name.

    Raises:
        CheckpointError: the source can't be read a second time.
        OSError: a file can't be read.
    """
    return {
        "source": source_of(data, options.source_id),
        "template": "" if template is None else template.text,
        "mode": options.mode,
        "nulls": options.nulls,
    }


def source_of(data: Any, source_id: str | None) -> str:
    """Return what identifies a source."""
    if source_id is not None:
        return f"source_id {source_id}"
    if isinstance(data, Table):
        return data.description(file_of)
    if hasattr(data, "__arrow_c_stream__"):
        return columns_of(data)
    if isinstance(data, Sequence):
        rows = [*data[:SAMPLE_ROWS], *data[-SAMPLE_ROWS:]]
        return f"{len(data)} rows, {digest([repr(row).encode() for row in rows])}"
    words = (
        f"a load from a {type(data).__name__} can't go on where it stopped, because it can be read "
        "only once: pass a file, a query, a table or a list, or say with "
    )
    raise CheckpointError(Message(words, Hint("source_id", ...), " what it is"))


def file_of(path: str) -> str:
    """Return the size, the time, and a digest of the beginning and the end of a file."""
    found = os.stat(path)
    with Path(path).open("rb") as file:
        parts = [file.read(SAMPLE_BYTES)]
        if found.st_size > SAMPLE_BYTES:
            file.seek(max(SAMPLE_BYTES, found.st_size - SAMPLE_BYTES))
            parts.append(file.read(SAMPLE_BYTES))
    return f"{found.st_size} bytes, {found.st_mtime_ns} ns, {digest(parts)}"


def columns_of(data: Any) -> str:
    """Return the number of rows, the names of the columns, and a digest of some rows.

    Raises:
        CheckpointError: it is a stream, which can be read only once.
    """
    length = getattr(data, "num_rows", None)
    if length is None and hasattr(data, "__len__"):
        length = len(data)
    cut = getattr(data, "slice", None) or getattr(data, "iloc", None)
    if length is None or cut is None:
        what = "stream of tables" if isinstance(data, Frames) else type(data).__name__
        words = f"a {what} can be read only once, so a load of it can't go on: "
        raise CheckpointError(
            Message(words, "pass a table, or say with ", Hint("source_id", ...), " what it is")
        )
    if callable(cut) and hasattr(data, "slice"):
        parts = [data.slice(0, SAMPLE_ROWS), data.slice(max(0, length - SAMPLE_ROWS), SAMPLE_ROWS)]
    else:
        parts = [data.iloc[:SAMPLE_ROWS], data.iloc[-SAMPLE_ROWS:]]
    return f"{length} rows, {digest([str(part).encode() for part in parts])}"


def digest(parts: Iterable[bytes]) -> str:
    """Return a short digest."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()
