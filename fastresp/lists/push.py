"""One push: encode items as variadic commands, and count the replies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..encode.row_writer import CHUNK_SECONDS, Writer
from ..encode.template import Template
from ..outcome.errors import (
    CommandError,
    EncodeError,
    LoadErrors,
)
from ..outcome.messages import with_advice
from ..outcome.report import ERRORS_KEPT, Report
from ..replies.reply_core import ReplyCore
from ..sources.source import Encoder, release
from ..transports.base import add_report
from .settings import BATCH_BYTES, Settings
from .variadic import gather
from .variadic_columns import ListedStream

__all__ = ["Push", "Pushed", "checked_items"]


class Pushed(NamedTuple):
    """The result of a push.

    Attributes:
        report: of its commands; ``report.rows`` counts the items.
        length: the length of the list after the last command.
        dropped: the oldest items, which ``maxlen`` removed.
    """

    report: Report
    length: int
    dropped: int


class Push:
    """One push: its commands and their replies.

    Attributes:
        report: so far.
        length: the length of the list after the last command that was answered.
        dropped: items that maxlen removed.
        writer: encodes the items.
    """

    def __init__(self, settings: Settings) -> None:
        self.report = Report("socket", "a ListBuffer uses its own connection")
        self.length = self.dropped = 0
        self._settings = settings
        self._sizes: list[int] = []  # items of each row
        self._answered = 0  # rows
        self._replies: deque[Any] = deque()
        self._core: ReplyCore | None = None
        self._source: Any = None
        self.writer: Encoder

    def begun_over(self, core: ReplyCore) -> bool:
        """Return whether it has sent something over this connection."""
        return self._core is core

    def begin(self, core: ReplyCore, items: Any, max_bulk_bytes: int | None) -> None:
        """Begin to push items over this connection, or continue; each row is a list of items."""
        template = _commands(self._settings.name, self._settings.maxlen)
        self._per_row = len(template.commands)
        self._first_row = len(self._sizes)
        if hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__"):
            from ..encode.columns.column_writer import ColumnWriter

            self._source = ListedStream(items, self._settings.batch, BATCH_BYTES, self._sizes)
            self.writer = ColumnWriter(template, self._source)
        else:
            self._source = self._rows(iter(items))
            self.writer = Writer(template)
        self.writer.max_bulk_bytes = max_bulk_bytes
        if self._core is None:
            self._started = time.monotonic()
            self._before = core.window.totals()
            self._core = core  # set last, since an interruption may come before

    def fill(self) -> bool:
        """Encode items until a chunk of commands is full; return False if there are no more."""
        return self.writer.fill(self._source)

    def release(self) -> None:
        """Release the source of the items."""
        source, self._source = self._source, None
        release(source)

    def _rows(self, items: Iterator[Any]) -> Iterator[tuple[list[Any]]]:
        """Yield a row for each batch."""
        settings = self._settings
        more = True
        while more:
            batch: list[Any] = []
            failure = None
            try:
                more = gather(items, batch, settings.batch, BATCH_BYTES, CHUNK_SECONDS)
            except BaseException as error:
                failure = error  # raised after the items before it are pushed
            if batch:
                self._sizes.append(len(batch))
                yield (batch,)
            if failure is not None:
                raise failure

    def take(self, replies: list[Any]) -> None:
        """Count the replies."""
        report = self.report
        self._replies.extend(replies)
        while len(self._replies) >= self._per_row:
            row = [self._replies.popleft() for _ in range(self._per_row)]
            size = self._sizes[self._answered]
            self._answered += 1
            report.rows += size
            parts = [*row, *(row[-1] if isinstance(row[-1], list) else ())]
            error = next((reply for reply in parts if isinstance(reply, CommandError)), None)
            if error is not None:
                report.failed += 1
                if len(report.errors) < ERRORS_KEPT:
                    report.errors.append(
                        CommandError(error.text, index=report.rows - size, row=report.rows - size)
                    )
                continue
            length = row[0] if self._per_row == 1 else self._executed(row[3])
            if not isinstance(length, int):
                assert self._core is not None
                self._core.misunderstood("RPUSH", length)
            self.length = length
            if self._settings.maxlen is not None:
                self.dropped += max(0, self.length - self._settings.maxlen)
                self.length = min(self.length, self._settings.maxlen)

    def _executed(self, reply: Any) -> Any:
        """Return the reply to RPUSH inside EXEC's."""
        if not (isinstance(reply, list) and len(reply) == 2):
            assert self._core is not None
            self._core.misunderstood("EXEC", reply)
        return reply[0]

    def is_of_source(self, error: BaseException) -> bool:
        """Return whether the source of the items raised an exception, such as another buffer's."""
        return self._core is not None and not self._core.raised(error)

    def current_report(self) -> Report:
        """Update and return the report."""
        report, core = self.report, self._core
        if core is not None:
            _, commands, size = core.window.totals()
            report.commands = commands - self._before[1]
            report.replies = report.commands - core.window.in_doubt
            report.bytes_sent = size - self._before[2]
            report.unsent = core.window.unsent
            report.seconds = time.monotonic() - self._started
        return report

    def add_report_to(self, error: BaseException) -> None:
        """Add this report to an exception that lacks it; a source's may have another report."""
        if getattr(error, "report", None) is not self.report:
            add_report(error, self.current_report(), str(self.current_report()))

    def outcome(self) -> Pushed:
        """Return the result.

        Raises:
            LoadErrors: the server refused some items.
        """
        report = self.current_report()
        if report.failed:
            raise LoadErrors(report, hint="")
        return Pushed(report, self.length, self.dropped)

    def located(self, error: EncodeError) -> EncodeError:
        """Return the error with the position of its item instead of a row and argument."""
        if error.argument is None or error.row is None:
            return error
        item = sum(self._sizes[: self._first_row + error.row]) + error.argument - 2
        advice = "items must be str, bytes or numbers"
        words = with_advice(error.message, advice).partition(": ")[2]
        return EncodeError(f"item {item:,}: {words}", row=item)


def checked_items(items: object) -> None:
    """Refuse a str, bytes or a mapping: iterable, but certainly not an iterable of items."""
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(
            f"items must be an iterable of items, not one {type(items).__name__}; for a single "
            "item use [item]"
        )


@lru_cache(maxsize=64)
def _commands(name: bytes, maxlen: int | None) -> Template:
    """Return the commands of a batch, in one row: all are sent or none, so no MULTI lacks its EXEC.

    Cached, since parsing the template takes a fifth of the time of a push of one item.
    """
    key = '"' + "".join(f"\\x{byte:02x}" for byte in name) + '"'
    push = f"RPUSH {key} {{*0}}"
    if maxlen is None:
        return Template(push)
    return Template("MULTI", push, f"LTRIM {key} {-maxlen} -1", "EXEC")
