"""Read files of any format as Arrow batches."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message, message_of
from .columnar import IPC_FILE, IpcFile, ipc_stream, open_parquet, validated
from .delimited import checked_text, header_of, open_delimited
from .input import Input
from .paths import is_file
from .reading import (
    DEFAULT_OPTIONS,
    FORMAT_NAMES,
    PACKED_BEGINNINGS,
    ROW_BYTES,
    Batches,
    Reading,
    check_text,
    line_blocks,
    option_error,
)
from .remote import is_remote

__all__ = [
    "OpenFile", "columns_of", "decompressed", "detect_format", "estimated_rows",
    "open_file", "open_text", "metadata_of", "row_count",
]  # fmt: skip

BATCH_ROWS = 16384
# The total number of lines is estimated from this many samples, because the length of lines may
# change along the file.
SAMPLES = 32
SAMPLE_BYTES = 1 << 16

FEATHER_1 = b"FEA1"
# Formats whose readers trust the lengths and offsets in a file.
UNCHECKED = ("arrow", "parquet")
# For a few blocks, and for Arrow's threads: each has a stack of 8 MiB and a heap of up to 64 MiB.
# With less, Arrow may wait forever for a thread that could not start, even at process exit.
MIN_FREE_BYTES = 256 << 20


def check_address_space() -> None:
    """Check that the limit of the address space (``ulimit -v``) is large enough to read files."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    used = 0
    # macOS has no such file.
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    free = max(limit - used, 0)
    if free < MIN_FREE_BYTES:
        raise SourceError(
            f"the limit of address space, {limit >> 20:,} MiB, leaves {free >> 20:,} MiB to read "
            f"files, and Arrow's threads need {MIN_FREE_BYTES >> 20}; raise it (ulimit -v), "
            "or limit the memory with a container or cgroup instead"
        )


@dataclass
class OpenFile:
    """An open file.

    Attributes:
        schema: the columns of the batches.
        rows: number of rows from the file's metadata; None if unknown.
        input: reads the bytes of the file from start to end; None if the file is read in parts.
        close: closes the file; called in the thread that reads the batches.
        left_out: number of unwanted rows at the file's beginning that are not in the batches.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None
    input: Input | None
    close: Callable[[], object]
    left_out: int = 0


def open_file(
    source: Any, kind: str | None, schema: pa.Schema | None, reading: Reading, start_row: int = 0
) -> OpenFile:
    """Open a path or a file object.

    Args:
        kind: the format; None to detect it from the first bytes.
        schema: for JSON lines, the columns of earlier files; None for other formats.
        start_row: index in the file of the first wanted row; earlier rows may be left out.
    """
    check_address_space()
    if kind == "parquet" and isinstance(source, str):
        return _parquet(source, source, start_row)
    if kind == "arrow" and isinstance(source, str) and _starts_with(source, IPC_FILE):
        with _convert_errors(source, kind):
            ipc = IpcFile(source)
        checked = _validate_batches(ipc.batches(), source, kind, ipc.rows)
        return OpenFile(ipc.schema, checked, ipc.rows, None, ipc.close)
    file = Input(source, reading.stopped)
    try:
        with _convert_errors(file.name, kind):
            data = decompressed(file)
            if kind is None and reading.options.encoding is None:
                kind = detect_format(data.peek())
            if kind == "parquet" and (data is not file or not file.seekable):
                raise SourceError(
                    "it is Parquet, which has its index at the end and can't be read from a pipe; "
                    "pass the path of the file"
                )
            if kind != "parquet":
                data = _decode(data, kind, reading)
                kind = kind or detect_format(data.peek())
                again = partial(open_text, source, kind, reading) if is_file(source) else None
                found = _open_text(data, kind, schema, reading, again)
        if kind == "parquet":
            return _parquet(file.rewound(), file.name, start_row)
    except BaseException:
        file.close()
        raise
    batches = _validate_batches(found.batches, file.name, kind)

    def close() -> None:
        batches.close()
        found.close()
        data.close()
        file.close()

    return OpenFile(found.schema, batches, None, file, close)


def _open_text(
    data: Input,
    kind: str,
    schema: pa.Schema | None,
    reading: Reading,
    again: Callable[[], AbstractContextManager[Input]] | None,
) -> Batches:
    if (message := option_error(kind, reading.options)) is not None:
        raise SourceError(message)
    if kind == "jsonl":
        from .json_lines import open_json  # imports pyarrow.compute: 30 ms

        return open_json(data, reading, schema)
    if kind == "lines":
        return _lines(data, reading)
    if kind == "rdb":
        from .snapshots import open_rdb

        return open_rdb(data, reading, again)
    if kind == "arrow":
        if data.peek().startswith(FEATHER_1):
            raise SourceError(
                "it is Feather version 1, which has no batches; read it with "
                "pyarrow.feather.read_table() and pass that table, or write it again as version 2"
            )
        return ipc_stream(data)
    return open_delimited(data, kind, reading)


def _lines(data: Input, reading: Reading) -> Batches:
    end = (reading.options.delimiter or "\n").encode()
    schema = pa.schema([pa.field("line", pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        for block in line_blocks(data, end, ROW_BYTES):
            yield pa.record_batch([pa.array(block.removesuffix(end).split(end))], schema=schema)

    return Batches(schema, batches())


def columns_of(path: str, kind: str, reading: Reading) -> list[str] | None:
    """Return the names in the header of a CSV or TSV file; None for other formats."""
    if kind in ("csv", "tsv"):
        with _convert_errors(path, kind), open_text(path, kind, reading) as data:
            return header_of(checked_text(data, kind, reading.options), kind, reading.options)
    return None


@contextmanager
def open_text(source: Any, kind: str | None, reading: Reading) -> Iterator[Input]:
    """Open a text file, decompressed and converted to UTF-8."""
    file = Input(source, reading.stopped)
    try:
        yield _decode(decompressed(file), kind, reading)
    finally:
        file.close()


def metadata_of(path: str, kind: str) -> OpenFile | None:
    """Return a closed OpenFile with the metadata of a Parquet or Arrow file; otherwise None."""
    if kind not in (("parquet",) if is_remote(path) else UNCHECKED) or not is_file(path):
        return None
    file = open_file(path, kind, None, Reading(DEFAULT_OPTIONS))
    file.close()
    return file


def row_count(path: str, kind: str) -> int | None:
    """Return the number of rows in a file's metadata; None if the metadata lacks it."""
    file = metadata_of(path, kind)
    return None if file is None else file.rows


def estimated_rows(path: str, kind: str) -> int | None:
    """Estimate the number of rows of a text file from parts of the file; None if unknown."""
    if kind not in ("csv", "tsv", "jsonl", "lines") or not os.path.isfile(path):
        return None
    size, read, lines = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        head = file.read(16)
        if any(magic.match(head) for magic in PACKED_BEGINNINGS.values()):
            return None
        if kind == "jsonl" and head.lstrip()[:1] == b"[":
            return None  # its lines are not rows
        for sample in range(SAMPLES):
            file.seek(size * sample // SAMPLES)
            block = file.read(SAMPLE_BYTES)
            read, lines = read + len(block), lines + block.count(b"\n")
    return round(size * lines / read) - (kind in ("csv", "tsv")) if lines else None


def _starts_with(path: str, magic: bytes) -> bool:
    if not os.path.isfile(path):
        return False  # a pipe can be read only once
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def decompressed(file: Input) -> Input:
    """Return the file, or an input that decompresses it."""
    head = file.peek()
    for compression, magic in PACKED_BEGINNINGS.items():
        if magic.match(head):
            stream = pa.CompressedInputStream(pa.PythonFile(file.arrow_file(), "r"), compression)
            return Input(stream, file.stopped)
    return file


def _decode(data: Input, kind: str | None, reading: Reading) -> Input:
    encoding = reading.options.encoding
    if encoding is None and reading.bad.skip and kind != "jsonl":
        encoding = "utf-8"  # Arrow can't return bad rows that are not UTF-8
    if reading.options.encoding is None:
        head = data.peek()
        kind = kind or detect_format(head)
        if kind not in ("arrow", "rdb"):
            check_text(head, kind)
    if encoding is None:
        return data
    decoder = codecs.getincrementaldecoder(encoding)()

    def decoded(block: bytes) -> bytes:
        try:
            return decoder.decode(block, final=not block).encode()
        except UnicodeError as error:
            message = f"it is not valid {encoding}: {error}; set "
            raise SourceError(
                Message(message, Hint("encoding", ...), " to its encoding, such as 'latin-1'")
            ) from error

    return data.converted(decoded)


def detect_format(head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((IPC_FILE, FEATHER_1, b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith((b"REDIS0", b"VALKEY0")):
        return "rdb"
    return "jsonl" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else "csv"


def _parquet(source: Any, name: str, start_row: int) -> OpenFile:
    with _convert_errors(name, "parquet"):
        file = open_parquet(source)
    counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    left_out, first = 0, 0
    while first < len(counts) and left_out + counts[first] <= start_row:
        left_out += counts[first]
        first += 1
    # Without Arrow's threads: the thread that encodes the batches needs the CPU time.
    batches = file.iter_batches(
        batch_size=BATCH_ROWS, use_threads=False, row_groups=range(first, len(counts))
    )
    return OpenFile(
        file.schema_arrow,
        _validate_batches(batches, name, "parquet", file.metadata.num_rows - left_out),
        file.metadata.num_rows,
        None,
        file.close,
        left_out,
    )


def _validate_batches(
    batches: Iterable[pa.RecordBatch], name: str, kind: str, count: int | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches; check them if Arrow does not, and convert errors.

    Args:
        count: number of rows that the batches must have; None if unknown. If a file is truncated
            while it is read, Arrow may return fewer rows without an error.
    """
    rows = 0
    batches = iter(batches)
    try:
        while True:
            with _convert_errors(name, kind, rows):
                batch = next(batches, None)
                if batch is None:
                    if count not in (None, rows):
                        raise SourceError(
                            f"it ended after {rows:,} of {count:,} rows: it was changed while it "
                            "was read, or it is damaged; load it again once it is complete"
                        )
                    return
                if kind in UNCHECKED:
                    validated(batch, rows)
            rows += batch.num_rows
            yield batch
    finally:
        del batches


@contextmanager
def _convert_errors(name: str, kind: str | None, rows: int = 0) -> Iterator[None]:
    """Turn an Arrow error into a SourceError that names the file and the row, with advice."""
    try:
        yield
    except SourceError as error:
        named = Message(f"{name}: ", message_of(error))
        row, line = error.row_in_file, error.line
        # If the error has a row index, SeveralFiles sets the file.
        file = name if row is None and line is not None else None
        raise SourceError(named, row_in_file=row, line=line, file=file) from error.__cause__
    except pa.ArrowMemoryError as error:
        message = f"{name} can't be read: out of memory ({error}); raise the limit of this process"
        raise SourceError(message) from error
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # from the system, not from Arrow
            raise
        where = f", from row {rows:,} on," if rows else ""
        form = f" as {FORMAT_NAMES[kind]}" if kind else ""
        raise SourceError(
            f"{name}{where} can't be read{form}: {str(error).splitlines()[0]}; check that the "
            "file is complete and in this format"
        ) from error
