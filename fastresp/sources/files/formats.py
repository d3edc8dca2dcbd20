"""Files of every format as Arrow batches."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, message_of
from .damage import checked
from .delimited import header_of, open_delimited
from .input import Input
from .ipc import IPC_FILE, IpcFile, ipc_stream
from .lines import open_lines
from .reading import (
    NAMES,
    Batches,
    Converted,
    Reading,
    unfit,
)

__all__ = ["OpenFile", "columns_of", "open_file", "rows_about", "rows_of"]

BATCH_ROWS = 16384
# Where lines are measured, to tell how many there are: their length may change along a file.
PLACES = 32
PLACE_BYTES = 1 << 16
# 5,000,000 rows of 10 columns in row groups of 1,000,000, in a process that holds 62 MiB when it
# has imported pyarrow: batches of a ParquetFile read with this buffer peak at 138 MiB and come at
# 5.4 M rows/s; without it at 238 MiB, with pre_buffer at 383 MiB, mapped into memory at 385 MiB,
# and a dataset.Scanner peaks at 426 MiB (622 MiB with pre_buffer), none of them faster. jemalloc
# and the system's malloc make it 11 MiB less, so the pool stays as it is.
PARQUET_BUFFER_BYTES = 256 << 10

PACKED_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
}
# Formats whose readers trust the lengths and offsets in a file.
UNCHECKED = ("arrow", "parquet")


@dataclass
class OpenFile:
    """An open file.

    Attributes:
        name: the path, or the name of the file object.
        schema: the columns of its batches.
        batches: what it holds.
        rows: how many rows it has, where its metadata say so.
        input: its bytes, where they are read from front to end.
        close: lets go of it; called in the thread that takes the batches.
    """

    name: str
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None
    input: Input | None
    close: Callable[[], object]


def open_file(
    source: Any, kind: str | None, schema: pa.Schema | None, reading: Reading
) -> OpenFile:
    """Open a file.

    Args:
        source: a path or a file object.
        kind: as which it is to be read; None to tell it by the first bytes.
        schema: of the files before it, for a format that has none of its own.
        reading: how to read it.

    Raises:
        SourceError: it can't be read.
        OSError: it can't be opened.
    """
    if kind == "parquet" and isinstance(source, str):
        return _parquet(source, source)
    if kind == "arrow" and isinstance(source, str) and _begins(source, IPC_FILE):
        return _ipc_file(source)
    file = Input(source, reading.stopped)
    try:
        with _told(file.name, kind):
            data = _unpacked(file, file.peek())
            if kind is None and reading.options.encoding is None:
                kind = _guessed(data.peek())
            if kind == "parquet" and (data is not file or not file.seekable):
                raise SourceError(
                    "it is Parquet, which has its index at the end and can't be read from a pipe; "
                    "give the path of the file"
                )
            if kind != "parquet":
                data = _as_text(data, kind, reading)
                kind = kind or _guessed(data.peek())
                found = _opened(data, kind, schema, reading)
        if kind == "parquet":
            return _parquet(file.rewound(), file.name)
    except BaseException:
        file.close()
        raise
    batches = _told_batches(found.batches, file.name, kind)
    close = partial(_close, batches, found.close, data, file)
    return OpenFile(file.name, found.schema, batches, None, file, close)


def _opened(data: Input, kind: str, schema: pa.Schema | None, reading: Reading) -> Batches:
    if (words := unfit(kind, reading.options)) is not None:
        raise SourceError(words)
    if kind == "jsonl":
        from .json_lines import open_json  # which imports pyarrow.compute: 30 ms

        return open_json(data, reading, schema)
    if kind == "lines":
        return open_lines(data, reading)
    if kind == "arrow":
        reader = ipc_stream(data)
        return Batches(reader.schema, iter(reader))
    return open_delimited(data, kind, reading)


def _close(
    batches: Generator[pa.RecordBatch, None, None],
    close: Callable[[], object],
    data: Input,
    file: Input,
) -> None:
    batches.close()
    close()
    data.close()
    file.close()


def columns_of(path: str, kind: str, reading: Reading) -> list[str] | None:
    """The names of the columns of a file, where its beginning has them.

    Raises:
        SourceError: it can't be read.
        OSError: it can't be opened.
    """
    if kind in ("csv", "tsv"):
        file = Input(path, reading.stopped)
        try:
            with _told(path, kind):
                data = _as_text(_unpacked(file, file.peek()), kind, reading)
                return header_of(data, kind, reading.options)
        finally:
            file.close()
    if kind == "parquet" or (kind == "arrow" and _begins(path, IPC_FILE)):
        part = open_file(path, kind, None, reading)
        part.close()
        return list(part.schema.names)
    return None


def rows_of(path: str, kind: str) -> int | None:
    """How many rows a file has by its metadata; None where it has none.

    Raises:
        SourceError: it can't be read.
    """
    with _told(path, kind):
        if kind == "parquet":
            from pyarrow import parquet

            return int(parquet.read_metadata(path).num_rows)
        if kind == "arrow" and _begins(path, IPC_FILE):
            file = IpcFile(path)
            file.close()
            return file.rows
    return None


def rows_about(path: str, kind: str) -> int | None:
    """How many rows a file of lines has, from the length of some of them; None for others."""
    if kind not in ("csv", "tsv", "jsonl", "lines") or not os.path.isfile(path):
        return None
    size, read, lines = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        head = file.read(16)
        if any(magic.match(head) for magic in PACKED_BEGINNINGS.values()):
            return None
        if kind == "jsonl" and head.lstrip()[:1] == b"[":
            return None  # its lines are no rows
        for place in range(PLACES):
            file.seek(size * place // PLACES)
            block = file.read(PLACE_BYTES)
            read, lines = read + len(block), lines + block.count(b"\n")
    return round(size * lines / read) - (kind in ("csv", "tsv")) if lines else None


def _begins(path: str, magic: bytes) -> bool:
    if not os.path.isfile(path):
        return False  # a pipe can be read only once
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _unpacked(file: Input, head: bytes) -> Input:
    for compression, magic in PACKED_BEGINNINGS.items():
        if magic.match(head):
            stream = pa.CompressedInputStream(pa.PythonFile(file.handed(), "r"), compression)
            return Input(stream, file.stopped)
    return file


def _as_text(data: Input, kind: str | None, reading: Reading) -> Input:
    """A file of text as UTF-8."""
    encoding = reading.options.encoding
    if encoding is None and reading.bad.skip and kind != "jsonl":
        encoding = "utf-8"  # Arrow can't show other rows to us
    if encoding is None:
        return data
    decoder = codecs.getincrementaldecoder(encoding)()

    def decoded(block: bytes, final: bool = False) -> bytes:
        try:
            return decoder.decode(block, final).encode()
        except UnicodeError as error:
            words = f"it is not all {encoding}: {error}; give "
            raise SourceError(
                Message(words, Hint("encoding", ...), " as it is, such as 'latin-1'")
            ) from error

    return Input(Converted(data, decoded, lambda: decoded(b"", True)), data.stopped)


def _guessed(head: bytes) -> str:
    """The format of a file by its first bytes."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((IPC_FILE, b"\xff\xff\xff\xff")):
        return "arrow"
    return "jsonl" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else "csv"


def _parquet(source: Any, name: str) -> OpenFile:
    from pyarrow import parquet

    with _told(name, "parquet"):
        file = parquet.ParquetFile(source, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
    # Not with Arrow's threads: the other core is the consumer's.
    batches = file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
    return OpenFile(
        name,
        file.schema_arrow,
        _told_batches(batches, name, "parquet"),
        file.metadata.num_rows,
        None,
        file.close,
    )


def _ipc_file(path: str) -> OpenFile:
    with _told(path, "arrow"):
        file = IpcFile(path)
    batches = _told_batches(file.batches(), path, "arrow")
    return OpenFile(path, file.schema, batches, file.rows, None, file.close)


def _told_batches(
    batches: Iterable[pa.RecordBatch], name: str, kind: str
) -> Generator[pa.RecordBatch, None, None]:
    """The batches, with errors in our words."""
    rows = 0
    batches = iter(batches)
    try:
        while True:
            with _told(name, kind, rows):
                batch = next(batches, None)
                if batch is None:
                    return
                if kind in UNCHECKED:
                    checked(batch, rows)
            rows += batch.num_rows
            yield batch
    finally:
        del batches


@contextmanager
def _told(name: str, kind: str | None, rows: int = 0) -> Iterator[None]:
    """Turn an error of Arrow's into one that says where it is and what to do.

    Args:
        name: of the file.
        rows: that were read before.
    """
    try:
        yield
    except SourceError as error:
        raise SourceError(Message(f"{name}: ", message_of(error))) from error.__cause__
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(_sentence(str(error), name, kind, rows)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise SourceError(_sentence(str(error), name, kind, rows)) from error


def _sentence(text: str, name: str, kind: str | None, rows: int) -> str:
    where = f", from row {rows:,} on," if rows else ""
    named = f" as {NAMES[kind]}" if kind else ""
    return (
        f"{name}{where} can't be read{named}: {text.splitlines()[0]}; is it whole, and of this "
        "format?"
    )
