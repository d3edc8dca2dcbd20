"""Identify a load by its source, template and options, so that only the same load can resume."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...encode.template import Template
from ...outcome.errors import CheckpointError, EncodeError
from ...outcome.messages import Hint, Message
from ...server.options import Nulls, Options
from ...sources.files.remote import RemotePath
from ...sources.files.table import Table
from ...sources.several_tables import Frames
from ...sources.source import encoding, released

__all__ = ["check_same", "identity"]

# Number of bytes read from the start and from the end of a file.
SAMPLE_BYTES = 1 << 20
# Number of rows read from the start and from the end of a sequence or table.
SAMPLE_ROWS = 100
NULLS: tuple[Nulls, ...] = ("skip", "empty")


def identity(data: Any, template: Template | None, options: Options) -> dict[str, str]:
    """Return the properties of a load, by name, that must be unchanged when it is resumed.

    Raises:
        CheckpointError: the source can be read only once.
        OSError: a file can't be read.
    """
    found = {
        "template": "" if template is None else template.text,
        "mode": options.mode_name,
        "nulls": options.nulls,
    }
    if _source_id(options) is None and isinstance(data, Table):
        return found | data.description(file_of)
    return found | {"source": source_of(data, template, options)}


def check_same(checkpoint: str, identity: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse to resume with another source, template or options.

    ``nulls`` may change from "error" to any other value, since the loaded rows had no nulls. It may
    also change from "auto" to "skip", since both omit the same fields.

    Args:
        checkpoint: name of the checkpoint.
        identity: properties of this load, as returned by ``identity()``.
        found: properties stored in the checkpoint.
    """
    for name, value in identity.items():
        before = found.get(name)
        same_so_far = name == "nulls" and (before == "error" or (before, value) == ("auto", "skip"))
        if before != value and not same_so_far:
            raise CheckpointError(
                f"checkpoint {checkpoint!r} belongs to another load: {name} was {before!r} and is "
                f"now {value!r} (resume as before, or use another checkpoint name)"
            )


def source_of(data: Any, template: Template | None, options: Options) -> str:
    """Return a string that identifies a source."""
    if (source_id := _source_id(options)) is not None:
        return f"source_id {source_id}"
    if hasattr(data, "__arrow_c_stream__"):
        length, samples = samples_of(data)
    elif isinstance(data, Sequence):
        length, samples = len(data), [data[:SAMPLE_ROWS], data[-SAMPLE_ROWS:]]
    else:
        words = (
            f"a load from a {type(data).__name__} can't resume, because it can be read only once: "
            "pass a file, a query, a table or a list, or identify it with "
        )
        raise CheckpointError(Message(words, Hint("source_id", ...)))
    # The resumed load may handle nulls differently, but the same values must be null.
    commands = (
        commands_of(sample, template, Options(nulls=nulls, default=options.default))
        for sample in samples
        for nulls in NULLS
    )
    return f"{length} rows, {digest(commands)}"


def _source_id(options: Options) -> str | None:
    return None if options.checkpoint is None else options.checkpoint.source_id


def commands_of(sample: Any, template: Template | None, options: Options) -> bytes:
    """Return the commands of sample rows, up to the first row that can't be encoded.

    A repr would not identify the rows: it may contain a memory address, or depend on the width of
    the terminal.
    """
    made: list[bytes] = []
    encoder, source = encoding(sample, template, options)
    with released(source):
        try:
            made.extend(bytes(chunk.piece(0, len(chunk))) for chunk in encoder.chunks(source))
        except EncodeError as error:
            made.append(f"row {error.row}".encode())
    return b"".join(made)


def file_of(path: str) -> str:
    """Return a string that identifies a file: its size, mtime, and a digest of its start and end.

    For a remote file, return its URL, size and version.
    """
    if isinstance(path, RemotePath):
        return f"{path.identity}, {path.state.size} bytes, {path.state.version}"
    found = os.stat(path)
    with Path(path).open("rb") as file:
        parts = [file.read(SAMPLE_BYTES)]
        if found.st_size > SAMPLE_BYTES:
            file.seek(max(SAMPLE_BYTES, found.st_size - SAMPLE_BYTES))
            parts.append(file.read(SAMPLE_BYTES))
    return f"{found.st_size} bytes, {found.st_mtime_ns} ns, {digest(parts)}"


def samples_of(data: Any) -> tuple[int, list[Any]]:
    """Return the number of rows of a table, and two samples: its first and its last rows.

    Raises:
        CheckpointError: the columns are a stream, which can be read only once.
    """
    kind = type(data)  # not the data itself: the name of a column may be "slice" or "iloc"
    if not (hasattr(kind, "slice") or hasattr(kind, "iloc")):
        what = "stream of tables" if isinstance(data, Frames) else type(data).__name__
        words = f"a {what} can be read only once, so its load can't resume: "
        raise CheckpointError(
            Message(words, "pass a table, or identify it with ", Hint("source_id", ...))
        )
    length = data.num_rows if hasattr(kind, "num_rows") else len(data)
    if hasattr(kind, "slice"):
        last = max(0, length - SAMPLE_ROWS)
        return length, [data.slice(0, SAMPLE_ROWS), data.slice(last, SAMPLE_ROWS)]
    return length, [data.iloc[:SAMPLE_ROWS], data.iloc[-SAMPLE_ROWS:]]


def digest(parts: Iterable[bytes]) -> str:
    """Return a digest of byte strings, as 32 hexadecimal digits."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()
