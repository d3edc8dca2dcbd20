"""Files of every format as Arrow batches."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ..errors import SourceError
from .check import checked
from .input import Input, Watch

__all__ = ["Part", "open_part", "rows_about", "rows_of"]

# A row of CSV or JSON lines has to fit into a block. Flights as CSV: a process that reads them
# peaks at 126 MiB with blocks of 1 MiB, 129 MiB with 2, 155 MiB with 4; the rate is the same.
BLOCK_BYTES = 2 << 20
BATCH_ROWS = 16384
# Where lines are measured, to tell how many there are: their length may change along a file.
PLACES = 32
PLACE_BYTES = 1 << 16
# What people put between fields besides commas.
OTHER_DELIMITERS = ";\t|"
# 5,000,000 rows of 10 columns in row groups of 1,000,000, in a process that holds 62 MiB when it
# has imported pyarrow: batches of a ParquetFile read with this buffer peak at 138 MiB and come at
# 5.4 M rows/s; without it at 238 MiB, with pre_buffer at 383 MiB, mapped into memory at 385 MiB,
# and a dataset.Scanner peaks at 426 MiB (622 MiB with pre_buffer), none of them faster. jemalloc
# and the system's malloc make it 11 MiB less, so the pool stays as it is.
PARQUET_BUFFER_BYTES = 256 << 10

PACKED = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
}
NAMES = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
    "arrow": "Arrow IPC",
}
# Formats whose readers trust the lengths and offsets in a file.
UNCHECKED = ("arrow", "parquet")
IPC_FILE = b"ARROW1\0\0"
WRONG_FIELDS = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
WRONG_JSON = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row (\d+))?", re.DOTALL)
HEADER = re.compile(rb'[\r\n]*((?:[^"\r\n]++|"[^"]*+")*+)(?:\r\n|\n|\r(?!$))')


@dataclass
class Part:
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


def open_part(
    source: Any,
    kind: str | None,
    delimiter: str | None,
    schema: pa.Schema | None,
    stopped: Watch,
) -> Part:
    """Open a file.

    Args:
        source: a path or a file object.
        kind: as which it is to be read; None to tell it by the first bytes.
        delimiter: of CSV, where that is no comma.
        schema: of the files before it, for a format that has none of its own.
        stopped: set when nothing more is wanted.

    Raises:
        SourceError: it can't be read.
        OSError: it can't be opened.
    """
    if kind == "parquet" and isinstance(source, str):
        return _parquet(source, source)
    if kind == "arrow" and isinstance(source, str) and _begins(source, IPC_FILE):
        return _ipc_file(source)
    file = Input(source, stopped)
    try:
        head = file.peek()
        data = _unpacked(file, head)
        kind = kind or _guessed(data.peek())
        if kind == "parquet":
            if data is not file or not file.seekable:
                raise SourceError(
                    f"{file.name} is Parquet, which has its index at the end and can't be read "
                    "from a pipe; give the path of the file"
                )
            return _parquet(file.rewound(), file.name)
        with _told(file.name, kind):
            if kind == "csv":
                reader = _csv(data, delimiter)
            elif delimiter is not None:
                raise SourceError(f"delimiter= is for CSV, and this is read as {NAMES[kind]}")
            else:
                reader = _READERS[kind](data, schema)
    except BaseException:
        file.close()
        raise
    schema = reader.schema
    batches = _drained(reader, data, file.name, kind)
    del reader
    return Part(file.name, schema, batches, None, file, partial(_close, batches, data, file))


def _drained(
    reader: pa.RecordBatchReader, data: Input, name: str, kind: str
) -> Generator[pa.RecordBatch, None, None]:
    """The batches; at last those that Arrow reads ahead, in a thread of its own, come to an end."""
    try:
        yield from _told_batches(reader, name, kind)
    finally:
        data.stop()
        with suppress(pa.ArrowException, OSError):
            for _ in reader:
                pass
        # An exception holds on to this frame, and Arrow's thread to the file as long as the reader.
        del reader


def _close(batches: Generator[pa.RecordBatch, None, None], data: Input, file: Input) -> None:
    batches.close()
    data.close()
    file.close()


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
            from pyarrow import dataset

            return int(dataset.dataset(path, format="ipc").count_rows())
    return None


def rows_about(path: str, kind: str) -> int | None:
    """How many rows a file of lines has, from the length of some of them; None for others."""
    if kind not in ("csv", "tsv", "jsonl") or not os.path.isfile(path):
        return None
    size, read, lines = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        if any(magic.match(file.read(16)) or file.seek(0) for magic in PACKED.values()):
            return None
        for place in range(PLACES):
            file.seek(size * place // PLACES)
            block = file.read(PLACE_BYTES)
            read, lines = read + len(block), lines + block.count(b"\n")
    return round(size * lines / read) - (kind != "jsonl") if lines else None


def _begins(path: str, magic: bytes) -> bool:
    if not os.path.isfile(path):
        return False  # a pipe can be read only once
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _unpacked(file: Input, head: bytes) -> Input:
    for compression, magic in PACKED.items():
        if magic.match(head):
            stream = pa.CompressedInputStream(pa.PythonFile(file.handed(), "r"), compression)
            return Input(stream, file.stopped)
    return file


def _guessed(head: bytes) -> str:
    """The format of a file by its first bytes."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((IPC_FILE, b"\xff\xff\xff\xff")):
        return "arrow"
    return "jsonl" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else "csv"


def _parquet(source: Any, name: str) -> Part:
    from pyarrow import parquet

    with _told(name, "parquet"):
        file = parquet.ParquetFile(source, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
    # Not with Arrow's threads: the other core is the consumer's.
    batches = file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
    return Part(
        name,
        file.schema_arrow,
        _told_batches(batches, name, "parquet"),
        file.metadata.num_rows,
        None,
        file.close,
    )


def _ipc_file(path: str) -> Part:
    with _told(path, "arrow"):
        mapped = pa.memory_map(path)
        file = pa.ipc.open_file(mapped)
    batches = (file.get_batch(index) for index in range(file.num_record_batches))
    return Part(
        path,
        file.schema,
        _told_batches(batches, path, "arrow"),
        rows_of(path, "arrow"),
        None,
        mapped.close,
    )


def _ipc_stream(data: Input, schema: pa.Schema | None) -> pa.RecordBatchReader:
    # A file of IPC is a stream between a magic number and an index.
    if data.peek().startswith(IPC_FILE):
        data.read(len(IPC_FILE))
    return pa.ipc.open_stream(pa.PythonFile(data.handed(), "r"))


def _csv(data: Input, delimiter: str | None) -> pa.RecordBatchReader:
    names = _header(data, delimiter or ",")
    if delimiter is None and len(names) == 1:
        other = next((each for each in OTHER_DELIMITERS if each in names[0]), None)
        if other is not None:
            give = "format='tsv'" if other == "\t" else f"delimiter={other!r}"
            raise SourceError(
                f"its first line has no comma, but {other!r}: give {give}; or delimiter=',' if it "
                "is a single column"
            )
    return _delimited(data, names, delimiter or ",")


def _delimited(data: Input, names: list[str], delimiter: str) -> pa.RecordBatchReader:
    from pyarrow import csv as arrow_csv

    # A line of ours in the place of the header: Arrow refuses to read no line at all.
    data.put_back(b"header\n")
    return arrow_csv.open_csv(
        pa.PythonFile(data.handed(ahead=True), "r"),
        read_options=arrow_csv.ReadOptions(
            # Without threads an error has the number of its row; the rate is the same.
            use_threads=False,
            block_size=BLOCK_BYTES,
            column_names=names,
            skip_rows=1,
        ),
        # Line ends within quotes cost 1% more of CPU time.
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            # Redis takes any bytes: those that are not UTF-8 pass.
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _header(data: Input, delimiter: str) -> list[str]:
    """Take the line with the names of the columns.

    Raises:
        SourceError: there is none, or it names two columns alike.
    """
    head = b""
    while not (found := HEADER.match(head)) and len(head) < BLOCK_BYTES:
        piece = data.read(BLOCK_BYTES)
        if not piece:
            break
        head += piece
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError("it is UTF-16; convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8")
    line = found[1] if found else head
    data.put_back(head[found.end() :] if found else b"")
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(
            "its first line, with the names of the columns, is not UTF-8; convert it, as with "
            "iconv -f LATIN1 -t UTF-8"
        ) from error
    if not text:
        raise SourceError("it is empty: the first line has to name the columns")
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        raise SourceError(f"two columns are named {twice!r} in the first line; rename one")
    # pandas writes its index without a name.
    return [name or f"column_{place}" for place, name in enumerate(names, 1)]


def _json(data: Input, schema: pa.Schema | None) -> pa.RecordBatchReader:
    from pyarrow import json

    head = _first_lines(data)
    data.put_back(head)
    if not head.strip():
        return pa.RecordBatchReader.from_batches(schema or pa.schema([]), [])
    if head.lstrip()[:1] == b"[":
        raise SourceError(
            "it is one JSON array, and JSON lines are read, an object a line, as jq -c '.[]' "
            'makes them; or read it with sql="SELECT * FROM source"'
        )
    if schema is None:
        whole = json.ReadOptions(block_size=len(head) + 1)
        inferred = json.open_json(pa.BufferReader(head), read_options=whole).schema
        schema = pa.schema([pa.field(field.name, _as_text(field.type)) for field in inferred])
    return json.open_json(
        pa.PythonFile(data.handed(ahead=True), "r"),
        read_options=json.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _first_lines(data: Input) -> bytes:
    """Take whole lines, a block of them where there are so many."""
    pieces: list[bytes] = []
    size = 0
    while size < BLOCK_BYTES and (piece := data.read(BLOCK_BYTES - size)):
        pieces.append(piece)
        size += len(piece)
    head = b"".join(pieces)
    if size < BLOCK_BYTES:
        return head
    cut = head.rfind(b"\n") + 1
    if cut == 0:
        raise SourceError(
            f"its first row is larger than {BLOCK_BYTES >> 20} MiB, the most that is read; load "
            "the rows from Python, one json.loads(line) each"
        )
    data.put_back(head[cut:])
    return head[:cut]


def _as_text(kind: pa.DataType) -> pa.DataType:
    """A type as inferred from JSON, with what was a string in the file as a string.

    Arrow takes strings that look like a time for one. A field that was null all along is likely
    to be a string where it is not.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_temporal(kind) or pa.types.is_null(kind):
        return pa.string()
    return kind


_READERS: dict[str, Callable[[Input, pa.Schema | None], pa.RecordBatchReader]] = {
    "tsv": lambda data, schema: _delimited(data, _header(data, "\t"), "\t"),
    "jsonl": _json,
    "arrow": _ipc_stream,
}


def _told_batches(
    batches: Iterable[pa.RecordBatch], name: str, kind: str
) -> Iterator[pa.RecordBatch]:
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
def _told(name: str, kind: str, rows: int = 0) -> Iterator[None]:
    """Turn an error of Arrow's into one that says where it is and what to do.

    Args:
        name: of the file.
        rows: that were read before.
    """
    try:
        yield
    except SourceError as error:
        raise SourceError(f"{name}: {error}") from error.__cause__
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(_sentence(str(error), name, kind, rows)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise SourceError(_sentence(str(error), name, kind, rows)) from error


def _sentence(text: str, name: str, kind: str, rows: int) -> str:
    if wrong := WRONG_FIELDS.search(text):
        row, expected, got, line = wrong.groups()
        # Arrow counts from 1, and the line in the place of the header as the first.
        return (
            f"{name}, row {int(row) - 2:,}: {got} fields, and the first line names {expected}: "
            f"{line[:80]!r}; mend it, or quote what holds a delimiter"
        )
    if "straddling object" in text:
        return (
            f"{name}, from row {rows:,} on: a row is larger than {BLOCK_BYTES >> 20} MiB, or a "
            "quote is not closed; mend it, or load the rows from Python, as with csv.DictReader"
        )
    if kind == "jsonl" and (wrong := WRONG_JSON.fullmatch(text)):
        what, row = wrong.groups()
        where = f"row {rows + int(row):,}" if row else f"from row {rows:,} on"
        what = what.rstrip(".")
        if not what.startswith(("Column(/", "unexpected field", "Failed to convert")):
            return f"{name}, {where}: {what}; mend it: a line is one JSON object"
        return (
            f"{name}, {where}: {what}; the first {BLOCK_BYTES >> 20} MiB show the columns and "
            'their types, and sql="SELECT * FROM source" looks at more than that'
        )
    where = f", from row {rows:,} on," if rows else ""
    return (
        f"{name}{where} can't be read as {NAMES[kind]}: {text.splitlines()[0]}; is it whole, and "
        "of this format?"
    )
