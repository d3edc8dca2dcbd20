"""One push: items in variadic commands, and what the server said to them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import CommandError, EncodeError
from ..execute import ReplyCore
from ..report import ERRORS_KEPT, Report
from ..template import Template
from ..wire.batches import gather
from ..wire.writer import CHUNK_SECONDS, Writer
from .settings import Settings

__all__ = ["Push", "Pushed"]

# A variadic command ends with the item that reaches this size: a larger one is in the way of the
# server's other clients, and 1,000 items of a megabyte would have to fit into its query buffer.
BATCH_BYTES = 1 << 20


class Pushed(NamedTuple):
    """What became of a push.

    Attributes:
        report: of its commands; ``report.rows`` are the items.
        length: of the list, after the last of them.
        dropped: items at the old end that ``maxlen`` took away.
    """

    report: Report
    length: int
    dropped: int


class Push:
    """One push: its commands, and what the server said to them.

    Attributes:
        report: so far.
        length: of the list, after the last command that was answered.
        dropped: items that maxlen took away.
    """

    def __init__(self, settings: Settings) -> None:
        self.report = Report("socket", "a buffer has a connection of its own")
        self.length = self.dropped = 0
        self._settings = settings
        self._sizes: deque[int] = deque()  # items of each row that was not answered
        self._made = self._last = 0  # items that are in rows, and in the last of them
        self._replies: deque[Any] = deque()
        self._core: ReplyCore | None = None

    @property
    def begun(self) -> bool:
        return self._core is not None

    def begin(self, core: ReplyCore, max_bulk_bytes: int | None) -> None:
        """Count from here."""
        if self._core is core:
            return
        # A row is a batch, whole or not at all: no MULTI is sent without its EXEC.
        plain, trimmed = ["RPUSH {0} {*1}"], ["MULTI", "RPUSH {0} {*1}", "LTRIM {0} {2} -1", "EXEC"]
        texts = plain if self._settings.maxlen is None else trimmed
        self._per_row = len(texts)
        self.writer = Writer(Template(*texts))
        self.writer.max_bulk_bytes = max_bulk_bytes
        self._core, self._started = core, time.monotonic()
        self._before = core.window.totals()

    def rows(self, items: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
        """A row for each batch."""
        settings = self._settings
        keep = -(settings.maxlen or 0)
        more = True
        while more:
            batch: list[Any] = []
            failure = None
            try:
                more = gather(items, batch, settings.batch, BATCH_BYTES, CHUNK_SECONDS)
            except BaseException as error:
                failure = error  # what came before it is pushed, too
            if batch:
                self._last = len(batch)
                self._made += self._last
                self._sizes.append(self._last)
                yield settings.name, batch, keep
            if failure is not None:
                raise failure

    def take(self, replies: list[Any]) -> None:
        """Note what the server said."""
        report = self.report
        self._replies.extend(replies)
        while len(self._replies) >= self._per_row:
            row = [self._replies.popleft() for _ in range(self._per_row)]
            size = self._sizes.popleft()
            report.rows += size
            error = next((reply for reply in row if isinstance(reply, CommandError)), None)
            if error is not None:
                report.failed += 1
                if len(report.errors) < ERRORS_KEPT:
                    report.errors.append(CommandError(error.text, row=report.rows - size))
                continue
            self.length = row[0] if self._per_row == 1 else row[3][0]
            if self._settings.maxlen is not None:
                self.dropped += max(0, self.length - self._settings.maxlen)
                self.length = min(self.length, self._settings.maxlen)

    def told(self) -> Report:
        """The report, complete as far as it can be."""
        report, core = self.report, self._core
        if core is not None:
            _, commands, size = core.window.totals()
            report.commands = commands - self._before[1]
            report.replies = report.commands - core.window.in_doubt
            report.bytes_sent = size - self._before[2]
            report.unsent = core.window.unsent
            report.seconds = time.monotonic() - self._started
        return report

    def located(self, error: EncodeError) -> EncodeError:
        """The error with the place of its item."""
        if error.argument is None:
            return error
        item = self._made - self._last + error.argument - 2
        words = str(error).partition(": ")[2]
        return EncodeError(f"item {item:,}: {words}", row=item)
