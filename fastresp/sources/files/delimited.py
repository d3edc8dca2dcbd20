"""Read CSV and TSV as columns of text."""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from ...outcome.report import counted
from .input import Input
from .reading import (
    BLOCK_BYTES,
    Batches,
    Converted,
    FileOptions,
    Reading,
)

__all__ = ["OTHER_DELIMITERS", "header_of", "open_delimited"]

# Other common delimiters.
OTHER_DELIMITERS = ";\t|"
HEADER = re.compile(rb'[\r\n]*(?=((?:[^"\r\n]+|"[^"]*")*))\1(?:\r\n|\n|\r(?!$))')
WRONG_FIELDS = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
NOT_UTF8 = Message("convert it, for example with ", Hint("encoding", "latin-1"))


def open_delimited(data: Input, kind: str, reading: Reading) -> Batches:
    """Open a CSV or TSV file.

    Raises:
        SourceError: the first line can't be read.
    """
    delimiter = _delimiter(kind, reading.options)
    names, lines = _names(data, kind, reading.options)
    rows = _Rows(data, names, delimiter, lines, reading)
    return Batches(rows.schema, rows.batches(), rows.close)


def header_of(data: Input, kind: str, options: FileOptions) -> list[str]:
    """Return the names of the columns, which may contain duplicates."""
    return _taken(data, kind, options)[0]


def _delimiter(kind: str, options: FileOptions) -> str:
    return options.delimiter or ("\t" if kind == "tsv" else ",")


# The names of the columns.


def _names(data: Input, kind: str, options: FileOptions) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of lines they took.

    Raises:
        SourceError: there are no names, or two columns have the same name.
    """
    names, lines = _taken(data, kind, options)
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        where = "in the first line; rename one" if options.header else Hint("columns", ..., "in")
        raise SourceError(Message(f"two columns are named {twice!r} ", where))
    return names, lines


def _taken(data: Input, kind: str, options: FileOptions) -> tuple[list[str], int]:
    if options.header:
        names, lines = _header(data, kind, options)
    else:
        names, lines = _numbered(data, kind, options), 0
    # pandas writes its index as a column without a name.
    return [name or f"column_{place}" for place, name in enumerate(names, 1)], lines


def _header(data: Input, kind: str, options: FileOptions) -> tuple[list[str], int]:
    """Read the line with the names of the columns."""
    head = _head(data)
    found = HEADER.match(head)
    while not found and len(head) < BLOCK_BYTES and (piece := data.read(BLOCK_BYTES)):
        head += piece
        found = HEADER.match(head)
    line = found[1] if found else head
    data.put_back(head[found.end() :] if found else b"")
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(
            Message("the first line, with the column names, is not UTF-8; ", NOT_UTF8)
        ) from error
    if not text:
        raise SourceError("it is empty; the first line must name the columns")
    if not found and line.count(b'"') % 2:
        raise SourceError(
            "the quote opened in line 1, with the column names, is never closed; close it"
        )
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(kind, options)))
    if kind == "csv" and options.delimiter is None and len(names) == 1:
        other = next((each for each in OTHER_DELIMITERS if each in names[0]), None)
        if other is not None:
            give = Hint("format", "tsv") if other == "\t" else Hint("delimiter", other)
            words, comma = (
                f"the first line has no comma but {other!r}; use ",
                Hint("delimiter", ","),
            )
            raise SourceError(Message(words, give, ", or ", comma, " if it is a single column"))
    return names, head.count(b"\n", 0, found.end()) if found else 0


def _numbered(data: Input, kind: str, options: FileOptions) -> list[str]:
    """Return the user's column names, or an empty name for each field of the first row."""
    head = _head(data).removeprefix(codecs.BOM_UTF8)
    data.put_back(head)
    if not head:
        return list(options.columns or ["column_1"])
    text = io.StringIO(head.decode("latin-1"), newline="")
    csv.field_size_limit(max(csv.field_size_limit(), BLOCK_BYTES))
    row = next((row for row in csv.reader(text, delimiter=_delimiter(kind, options)) if row), [""])
    if options.columns is None:
        return [""] * len(row)
    if len(row) != len(options.columns):
        names, fields = counted(len(options.columns), "name"), counted(len(row), "field")
        words = f" has {names}, but the first row has {fields}; name each field"
        raise SourceError(Message(Hint("columns", ...), words))
    return list(options.columns)


def _head(data: Input) -> bytes:
    head = data.read(BLOCK_BYTES)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(Message("it is UTF-16; use ", Hint("encoding", "utf-16")))
    return head


# The rows.


class _Rows:
    """The rows of a file as batches of columns.

    A last row with a random text is added to the file. If the last row read is not that one, an
    unclosed quote has swallowed it.

    Args:
        data: the file, without the line of names.
        names: the names of the columns.
        delimiter: the character between fields.
        lines: number of lines before the rows.
        reading: how to read.
    """

    def __init__(
        self, data: Input, names: list[str], delimiter: str, lines: int, reading: Reading
    ) -> None:
        self._names = names
        self._delimiter = delimiter
        self._lines = lines
        self._bad = reading.bad
        self._last = secrets.token_hex(16)
        self._end = pa.scalar(self._last)
        row = delimiter.join([self._last, *[""] * (len(names) - 1)])
        self._last_row = f"\n{row}".encode()
        self._whole = False  # whether the whole file has been passed to Arrow
        self._file = Input(Converted(data, self._counted, self._ended), data.stopped)
        # Add a header line, which Arrow skips: it refuses to read a file without lines.
        self._file.put_back(b"header\n")
        self._reader: pa.RecordBatchReader | None = None
        try:
            self._reader = self._opened(reading.options)
        except BaseException:
            self.close()
            raise
        self.schema = self._reader.schema

    def _opened(self, options: FileOptions) -> pa.RecordBatchReader:
        with self._errors_located(0):
            return arrow_csv.open_csv(
                pa.PythonFile(self._file.handed(ahead=True), "r"),
                read_options=arrow_csv.ReadOptions(
                    # Without threads an error has the number of its row; throughput is the same.
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    column_names=self._names,
                    skip_rows=1,
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter,
                    # Allowing line ends inside quotes costs 1% more CPU time.
                    newlines_in_values=True,
                    invalid_row_handler=self._judged if self._bad.skip else None,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    # Redis accepts any bytes, so they need not be UTF-8.
                    check_utf8=False,
                    column_types=dict.fromkeys(self._names, pa.string()),
                    null_values=["", *options.null_values],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )

    def _counted(self, block: bytes) -> bytes:
        self._lines += block.count(b"\n")
        return block

    def _ended(self) -> bytes:
        self._whole = True
        return self._last_row

    def _judged(self, row: arrow_csv.InvalidRow) -> str:
        """Skip a bad row, unless it swallowed the last row (an unclosed quote)."""
        if row.text.encode().endswith(self._last_row[1:]):
            return "error"
        self._bad.add(row.text.encode())
        return "skip"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches.

        Raises:
            SourceError: a row has too many or too few fields, or a quote is not closed.
        """
        rows = 0
        last = None  # a batch that may end with a field that swallowed the last row
        ended = False
        while True:
            try:
                batch = self._next(rows)
            except SourceError:
                if last is not None:
                    yield last  # the bad row comes after it
                raise
            if batch is None:
                break
            rows += batch.num_rows
            if last is not None:
                yield last
                last = None
            if batch.num_rows and batch.column(0)[-1].equals(self._end):
                batch, ended = batch.slice(0, batch.num_rows - 1), True
            if self._whole and not ended:
                last = batch
            else:
                yield batch
        if not ended and not self._file.stopped.is_set():
            assert last is not None
            texts = [column[-1].cast(pa.binary()).as_py() or b"" for column in last.columns]
            raise self._unclosed(next(text for text in texts if self._last.encode() in text))

    def _next(self, rows: int) -> pa.RecordBatch | None:
        assert self._reader is not None
        with self._errors_located(rows):
            return next(self._reader, None)

    @contextmanager
    def _errors_located(self, rows: int) -> Iterator[None]:
        """Turn an Arrow error into one that says where it is and what to do."""
        try:
            yield
        except pa.ArrowException as error:
            text = str(error)
            if wrong := WRONG_FIELDS.search(text):
                raise self._wrong(*wrong.groups()) from error
            if "straddling object" in text:
                raise SourceError(
                    f"from row {rows:,} on: a row is larger than {BLOCK_BYTES >> 20} MiB, or a "
                    "quote is not closed; fix it, or load the rows from Python, for example with "
                    "csv.DictReader"
                ) from error
            raise

    def _wrong(self, row: str, expected: str, fields: str, text: str) -> SourceError:
        """Return the error for a row whose beginning is in Arrow's message."""
        if self._last[:8] in text:
            *_, (*_, field) = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
            return self._unclosed(field.encode())
        # Arrow counts from 1, including the header line that we added.
        return SourceError(
            Message(
                f"row {int(row) - 2:,} has {counted(int(fields), 'field')} for "
                f"{counted(int(expected), 'column')}: {text[:80]!r}; quote fields that contain a "
                "delimiter, and close each quote, or use ",
                Hint("bad_rows", "skip"),
            )
        )

    def _unclosed(self, field: bytes) -> SourceError:
        """Return the error for a field that runs to the end of the file."""
        within = field.count(b"\n") - 1
        return SourceError(
            f"the quote opened in line {self._lines - within + 1:,} is never closed, so its field "
            "runs to the end of the file; close it, or double it if it is part of the text"
        )

    def close(self) -> None:
        """Close the file once Arrow has released it."""
        self._file.stop()
        if self._reader is not None:
            with suppress(pa.ArrowException, OSError, SourceError):
                for _ in self._reader:
                    pass
        self._reader = None
        self._file.close()
