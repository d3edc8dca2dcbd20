"""Find out which quotes a delimited text has, and whether they close at the end of a field."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .csv_text import Quotes
from .input import Input
from .reading import BLOCK_BYTES, FileOptions

__all__ = ["CheckedText", "Dialect", "dialect_of"]

QUOTE = '"'
QUOTED = re.compile('"(?:[^"]|"")*"')
LINE_END = re.compile("\r\n|\n|\r")
# Arrow can read a row that spans two blocks, but not one that spans three.
MAX_FIELD_BYTES = 2 * BLOCK_BYTES
IF_TEXT = Message(", or use ", Hint("quote", ""), " if quotes are text in this file")


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

    By default, CSV has quotes. Tab-delimited text has quotes only if the first lines prove it:
    most programs write quotes in tab-delimited text as part of the values.
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
    """Return whether the first lines of tab-delimited text can only be read with quotes.

    A header with only quoted names proves that there are quotes. So does a quoted field that
    contains a delimiter, a line end or a doubled quote, provided that no row contradicts this.
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
    """Return whether all rows have the same number of fields if fields may be quoted."""
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


def _open_quote(line: int, what: str) -> SourceError:
    return SourceError(
        Message(
            f"the quote opened in line {line:,} {what}; close it, or double it if it is part of "
            "the text",
            IF_TEXT,
        ),
        line=line,
    )
