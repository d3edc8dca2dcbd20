"""Read CSV and TSV as columns of text; detect whether fields are quoted, and find open quotes."""

from __future__ import annotations

import csv
import io
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from ...outcome.report import counted
from .csv_text import Quotes
from .input import Input
from .reading import BLOCK_BYTES, Batches, FileOptions, Reading, first_block

__all__ = ["checked_text", "header_of", "open_delimited"]

# Common delimiters other than the comma.
OTHER_DELIMITERS = ";\t|"
HEADER = rb'[\r\n]*(?=((?:[^"\r\n]+|"[^"]*")*))\1(?:\r\n|\n|\r(?!$))'
PLAIN_HEADER = rb"[\r\n]*([^\r\n]*)(?:\r\n|\n|\r(?!$))"
WRONG_FIELDS = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
STRADDLING = "straddling object"
NOT_UTF8 = Message("convert it, for example with ", Hint("encoding", "latin-1"))
QUOTE = '"'
QUOTED = re.compile('"(?:[^"]|"")*"')
LINE_END = re.compile("\r\n|\n|\r")
# Arrow can read a row that spans two blocks, but not one that spans three.
MAX_FIELD_BYTES = 2 * BLOCK_BYTES
IF_TEXT = Message(", or use ", Hint("quote", ""), " if quotes are text in this file")


def open_delimited(data: Input, kind: str, reading: Reading) -> Batches:
    text, options = checked_text(data, kind, reading.options), reading.options
    names = header_of(text, kind, options)
    duplicate = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if duplicate is not None:
        where = "in the first line; rename one" if options.header else Hint("columns", ..., "in")
        raise SourceError(Message(f"two columns are named {duplicate!r} ", where))
    rows = DelimitedRows(text, names, reading)
    return Batches(rows.schema, rows.batches(), rows.close)


def checked_text(data: Input, kind: str, options: FileOptions) -> CheckedText:
    """Return the file's text with checked quotes, and without a byte order mark."""
    return CheckedText(data, dialect_of(first_block(data), kind, options))


# The names of the columns.


def header_of(text: CheckedText, kind: str, options: FileOptions) -> list[str]:
    """Return the names of the columns; ``column_3`` replaces a missing name of the third column.

    The names may contain duplicates.
    """
    found = _header(text, kind, options) if options.header else _unnamed_columns(text, options)
    # pandas writes its index as a column without a name, R as a column with the quoted name "".
    found = [found[0] or None, *found[1:]]
    names = [f"column_{number}" if name is None else name for number, name in enumerate(found, 1)]
    for number, (original, name) in enumerate(zip(found, names, strict=True), 1):
        if original is None and name in found:
            raise SourceError(
                f"column {number:,} has no name, and another column has its replacement name, "
                f"{name!r}; name it in the first line"
            )
    return names


def _header(text: CheckedText, kind: str, options: FileOptions) -> Sequence[str | None]:
    """Return the names in the first line; an empty name without quotes is None."""
    data, quote = text.file, re.escape(text.dialect.quote.encode())
    pattern = re.compile(HEADER.replace(b'"', quote) if quote else PLAIN_HEADER)
    head = data.read(BLOCK_BYTES)
    found = pattern.match(head)
    while not found and len(head) < BLOCK_BYTES and (piece := data.read(BLOCK_BYTES)):
        head += piece
        found = pattern.match(head)
    if not found and text.failure is not None:
        raise text.failure
    line = found[1] if found else head
    data.put_back(head[found.end() :] if found else b"")
    try:
        names = line.decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(
            Message("the first line, with the column names, is not UTF-8; ", NOT_UTF8)
        ) from error
    if not names:
        raise SourceError("it is empty; the first line must name the columns")
    fields = _fields(names, text.dialect)
    if kind == "csv" and options.delimiter is None and len(fields) == 1:
        other = next((each for each in OTHER_DELIMITERS if each in str(fields[0])), None)
        if other is not None:
            hint = Hint("format", "tsv") if other == "\t" else Hint("delimiter", other)
            message = f"the first line has no comma but {other!r}; use "
            single = Message(", or ", Hint("delimiter", ","), " if it is a single column")
            raise SourceError(Message(message, hint, single))
    return fields


def _fields(line: str, dialect: Dialect) -> list[str | None]:
    """Split a line as Arrow does; an empty field without quotes is None."""
    width = line.count(dialect.delimiter) + 1
    text = f"{line}\n".encode()
    table = arrow_csv.read_csv(
        io.BytesIO(text),
        read_options=arrow_csv.ReadOptions(
            use_threads=False, block_size=len(text), autogenerate_column_names=True
        ),
        parse_options=_parse_options(dialect),
        convert_options=_convert_options([f"f{number}" for number in range(width)], ()),
    )
    return [column[0].as_py() for column in table.columns]


def _unnamed_columns(text: CheckedText, options: FileOptions) -> Sequence[str | None]:
    """Return the user's column names; if not set, a None for each field of the first row."""
    head = text.file.read(BLOCK_BYTES)
    text.file.put_back(head)
    if not head:
        return list(options.columns or ["column_1"])
    csv.field_size_limit(max(csv.field_size_limit(), BLOCK_BYTES))
    row = next((row for row in text.dialect.rows(head.decode("latin-1")) if row), [""])
    if options.columns is None:
        return [None] * len(row)
    if len(row) != len(options.columns):
        names, fields = counted(len(options.columns), "name"), counted(len(row), "field")
        message = f" has {names}, but the first row has {fields}; name each field"
        raise SourceError(Message(Hint("columns", ...), message))
    return list(options.columns)


# Arrow's options; every default that guesses or changes something is overridden.


def _parse_options(
    dialect: Dialect, handle_invalid: Callable[[arrow_csv.InvalidRow], str] | None = None
) -> arrow_csv.ParseOptions:
    return arrow_csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char=dialect.quote or False,
        double_quote=True,
        escape_char=False,  # it would also change unquoted fields; see csv_text.pyx
        # Allowing line ends inside quotes costs 1% more CPU time.
        newlines_in_values=bool(dialect.quote),
        ignore_empty_lines=True,
        invalid_row_handler=handle_invalid,
    )


def _convert_options(names: Sequence[str], null_values: Sequence[str]) -> arrow_csv.ConvertOptions:
    return arrow_csv.ConvertOptions(
        # Redis accepts any bytes, so fields need not be UTF-8.
        check_utf8=False,
        column_types=dict.fromkeys(names, pa.string()),
        null_values=["", *null_values],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        auto_dict_encode=False,
    )


# The rows.


class DelimitedRows:
    """The rows of a file as batches of columns.

    If ``CheckedText`` has ended the text after a faulty field, surplus fields are added to the last
    row, so that Arrow reports that row as an error, after it has read all earlier rows.

    Args:
        text: the file, after the line of column names.
    """

    def __init__(self, text: CheckedText, names: list[str], reading: Reading) -> None:
        self.schema = pa.schema([(name, pa.string()) for name in names])
        self._text = text
        self._bad = reading.bad
        self._mark = text.dialect.delimiter * len(names) + secrets.token_hex(16)
        self._failed = False
        self._file = text.file.converted(self._marked)
        self._reader: pa.RecordBatchReader | None = None
        try:
            if self._file.peek():  # Arrow refuses to read a file without lines
                self._reader = self._open_reader(text.dialect, reading.options)
        except BaseException:
            self.close()
            raise

    def _open_reader(self, dialect: Dialect, options: FileOptions) -> pa.RecordBatchReader:
        with self._convert_errors(0):
            return arrow_csv.open_csv(
                pa.PythonFile(self._file.arrow_file(ahead=True), "r"),
                read_options=arrow_csv.ReadOptions(
                    # Without threads an error has the number of its row; throughput is the same.
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    column_names=self.schema.names,
                ),
                parse_options=_parse_options(dialect, self._handle_invalid),
                convert_options=_convert_options(self.schema.names, options.null_values),
            )

    def _marked(self, block: bytes) -> bytes:
        """Return a block; at the end of a faulty text, return the surplus fields."""
        return block if block or self._text.failure is None else self._mark.encode()

    def _handle_invalid(self, row: arrow_csv.InvalidRow) -> str:
        self._failed = row.text.endswith(self._mark)
        if self._failed or not self._bad.skip:
            return "error"
        self._bad.add(row.text.encode())
        return "skip"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches; raise SourceError for a row of another width or an unclosed quote."""
        rows = 0
        while self._reader is not None:
            with self._convert_errors(rows):
                batch = next(self._reader, None)
            if batch is None:
                return
            rows += batch.num_rows
            yield batch

    @contextmanager
    def _convert_errors(self, rows: int) -> Iterator[None]:
        try:
            yield
        except pa.ArrowException as error:
            text = str(error)
            failure = self._text.failure
            if failure is not None and (self._failed or STRADDLING in text):
                raise failure from None
            if wrong := WRONG_FIELDS.search(text):
                raise _width_error(*wrong.groups()) from error
            if STRADDLING in text:
                raise SourceError(
                    f"from row {rows:,} on: a row is larger than {BLOCK_BYTES >> 20} MiB; load the "
                    "rows from Python, for example with csv.DictReader"
                ) from error
            raise

    def close(self) -> None:
        """Close the file once Arrow has released it."""
        self._file.stop()
        if self._reader is not None:
            with suppress(pa.ArrowException, OSError, SourceError):
                for _ in self._reader:
                    pass
        self._reader = None
        self._file.close()


def _width_error(row: str, expected: str, fields: str, text: str) -> SourceError:
    """Return the error for a row with the wrong number of fields, from Arrow's message."""
    if int(fields) > int(expected):
        fix = "quote fields that contain a delimiter, and close each quote"
    else:
        fix = "add the missing fields, or quote a field that contains a line end"
    index = int(row) - 1  # Arrow counts from 1
    return SourceError(
        Message(
            f"row {index:,} has {counted(int(fields), 'field')} for "
            f"{counted(int(expected), 'column')}: {text[:80]!r}; {fix}, or use ",
            Hint("bad_rows", "skip"),
        ),
        row_in_file=index,
    )


@dataclass(frozen=True)
class Dialect:
    """The characters that divide a text into fields.

    Attributes:
        delimiter: the character between fields.
        quote: the character that opens and closes a field that contains delimiters or line ends; ""
            if there are no quotes.
        escape: the character before a quote that is text; "" if such a quote is doubled.
        returns: whether a carriage return without a newline ends a line, as on an old Mac.
    """

    delimiter: str
    quote: str = QUOTE
    escape: str = ""
    returns: bool = False

    def rows(self, text: str, *, strict: bool = False) -> Iterator[list[str]]:
        """Yield the fields of each row; ``text`` must have doubled, not escaped, quotes."""
        return csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            strict=strict,
        )


def dialect_of(head: bytes, kind: str, options: FileOptions) -> Dialect:
    """Return the dialect of a text from its format, its options and its first bytes.

    By default, fields of CSV may be quoted. In tab-delimited text, quotes are part of the values,
    as most programs write them, unless the first lines prove that fields are quoted.
    """
    delimiter = options.delimiter_of(kind)
    quote = options.quote
    if quote is None:
        may_be_text = delimiter == "\t" and not options.escape
        quote = "" if may_be_text and not _needs_quotes(head, options.header) else QUOTE
    return Dialect(delimiter, quote, options.escape or "", _has_returns(head, quote.encode()))


def _has_returns(head: bytes, quote: bytes) -> bool:
    """Return whether the first line end outside of quotes is a carriage return."""
    quoted = b"%b[^%b]*%b?|" % (3 * (re.escape(quote),)) if quote else b""
    ends = (found[1] for found in re.finditer(quoted + b"(\r\n|\n|\r)", head))
    return next(filter(None, ends), b"") == b"\r"


def _needs_quotes(head: bytes, header: bool) -> bool:
    """Return whether the first lines of tab-delimited text prove that fields are quoted.

    A header with only quoted names is a proof. So is a quoted field that contains a delimiter, a
    line end or a doubled quote, provided that no row contradicts this.
    """
    if b'"' not in head:
        return False
    text = head.decode("latin-1")
    lines = LINE_END.split(text)
    if len(head) >= BLOCK_BYTES:  # the last line is incomplete
        lines.pop()
    rows = [line.split("\t") for line in lines if line]
    if not rows:
        return False
    if header and all(QUOTED.fullmatch(name) for name in rows[0] if name):
        return True
    if any(len(row) != len(rows[0]) for row in rows):
        return _fits(text, complete=len(head) < BLOCK_BYTES)
    fields = [field for row in rows for field in row if field.startswith(QUOTE)]
    return all(map(QUOTED.fullmatch, fields)) and any(QUOTE * 2 in each[1:-1] for each in fields)


def _fits(text: str, *, complete: bool) -> bool:
    """Return whether all rows have the same number of fields when read with quoted fields."""
    widths: list[int] = []
    try:
        widths += (len(row) for row in Dialect("\t").rows(text, strict=complete) if row)
    except csv.Error:
        return False
    return len(set(widths if complete else widths[:-1])) == 1


class CheckedText:
    """A delimited text with doubled instead of escaped quotes; it ends after a faulty field.

    A field with text after its closing quote is faulty if it has line ends: a stray quote may have
    opened it, and Arrow's parser would lose the rows up to the next quote. It is also faulty if a
    backslash precedes the closing quote, unless ``dialect`` has an escape. Other fields may have
    text after the closing quote, as in Python's csv module. A field that is never closed, or has
    more than ``MAX_FIELD_BYTES``, is also faulty.

    The text ends without an exception, so that all rows before the faulty field are read first.

    Args:
        data: the original text.
        dialect: the characters that divide the text into fields.

    Attributes:
        dialect: as passed.
        file: the text to read.
        failure: the error of the faulty field; None if no field is faulty.
    """

    def __init__(self, data: Input, dialect: Dialect) -> None:
        self.dialect = dialect
        self.file = data
        self.failure: SourceError | None = None
        if dialect.quote:
            self._data = data
            self._quotes = Quotes(
                dialect.delimiter.encode(), dialect.quote.encode(), dialect.escape.encode(),
                dialect.returns,
            )  # fmt: skip
            self.file = data.converted(self._check)

    def _check(self, block: bytes) -> bytes:
        quotes = self._quotes
        if not block:
            return self._finish()
        block = quotes.feed(block)
        if quotes.fault and quotes.backslash:
            self.failure = SourceError(
                Message(
                    f"a quoted field in line {quotes.fault:,} has a backslash before a quote; use ",
                    Hint("escape", "\\"),
                    ", or double the quote if the backslash is text",
                ),
                line=quotes.fault,
            )
        elif quotes.fault:
            self.failure = _open_quote(
                quotes.fault,
                "closes in a later line, where text follows it, so rows between them may be lost",
            )
        elif quotes.opened and quotes.size > MAX_FIELD_BYTES:
            size = f"{MAX_FIELD_BYTES >> 20} MiB"
            self.failure = _open_quote(quotes.opened, f"is not closed within {size}, the maximum")
        if self.failure is not None:
            self._data.stop()
        return block

    def _finish(self) -> bytes:
        rest = self._quotes.finish()
        if self._quotes.opened:
            rest += self.dialect.quote.encode()
            self.failure = self.failure or _open_quote(
                self._quotes.opened, "is never closed, so its field runs to the end of the file"
            )
        return rest


def _open_quote(line: int, fault: str) -> SourceError:
    return SourceError(
        Message(
            f"the quote opened in line {line:,} {fault}; close it, or double it if it is part of "
            "the text",
            IF_TEXT,
        ),
        line=line,
    )
