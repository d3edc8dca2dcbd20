"""One push: encode items as variadic commands, and count the replies.

A row is a batch of items, which one command or transaction pushes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

from ..encode.template import Template
from ..encode.writer import CHUNK_SECONDS, Writer
from ..outcome.errors import CommandError, EncodeError, TransportError
from ..outcome.messages import iterator_of, with_advice
from ..outcome.report import ERRORS_KEPT, PushError, Report, as_html, counted
from ..replies.reply_core import ReplyCore
from ..replies.unresolved import SlotQueue
from ..resp.buffer import Chunk
from ..resp.split import CommandSplitter, arguments
from ..sources.source import Encoder, lines_of, release
from ..transports.base import add_report
from ..transports.driver import Pull, Steps
from .connection import SlotMoved
from .settings import BATCH_BYTES, Settings
from .variadic import ListedStream, gather

__all__ = ["Push", "Pushed", "PushedRows", "checked_items"]


class Pushed(NamedTuple):
    """The result of a push.

    Attributes:
        report: the report of the push's commands; ``report.rows`` counts the items.
        length: the length of the list after the last command.
        dropped: number of old items that ``maxlen`` removed.
    """

    report: Report
    length: int
    dropped: int

    def _repr_html_(self) -> str:
        return as_html("Pushed", "", self._asdict().items())


class PushedRows:
    """Matches replies with rows, and keeps the commands of rows that were not pushed.

    Attributes:
        refusals: how many times a cluster node refused a row.
        made: number of rows that were encoded.
        overtaken: whether a row was pushed although an earlier row was refused.
    """

    def __init__(self, per_row: int) -> None:
        self.refusals = 0
        self.overtaken = False
        self._per_row = per_row
        self.made = 0
        self._in_flight: deque[tuple[Chunk, Sequence[int]]] = deque()
        self._at = 0  # number of answered rows of the first chunk
        self._refused: SlotQueue[bytes] = SlotQueue()
        self._rejected: dict[int, bytes] = {}

    @property
    def refused(self) -> Sequence[int]:
        """The indexes of the rows to resend, in order."""
        return sorted(self._refused.commands)

    def add(self, chunk: Chunk) -> None:
        first, self.made = self.made, self.made + chunk.commands // self._per_row
        self._in_flight.append((chunk, range(first, self.made)))

    def accept(self) -> int:
        """Record that the next row was pushed; return its index."""
        index, _, _ = self._next()
        self.overtaken |= any(each < index for each in self._refused.commands)
        self._refused.served = True
        return index

    def refuse(self) -> None:
        """Record that a cluster node refused the next row, and keep the row to resend it."""
        self._refused.add(*self._next_commands())
        self.refusals += 1

    def keep_unsent(self) -> None:
        """Keep all unanswered rows for another attempt. Call this only if none was sent."""
        while self._in_flight:
            self._refused.add(*self._next_commands(), refused=False)

    def reject(self) -> int:
        """Record that the server refused the next row permanently; return its index."""
        index, commands = self._next_commands()
        self._rejected[index] = commands
        return index

    def give_up(self) -> None:
        """Treat the rows to resend, and the unsent rows, as permanently refused."""
        self._rejected |= self._refused.commands
        self._refused = SlotQueue()
        while self._in_flight:
            self.reject()

    def rejected(self) -> list[bytes]:
        """Return the items of the permanently refused rows, in order."""
        items: list[bytes] = []
        for _, commands in sorted(self._rejected.items()):
            chunk = CommandSplitter().feed(commands)
            assert chunk is not None
            push = 0 if self._per_row == 1 else 1  # the previous command is MULTI
            items += arguments(chunk.command(push, push))[2:]
        return items

    def resend_chunk(self) -> Chunk:
        """Return a chunk of the rows to resend now."""
        rows = self._refused.take()
        chunk = CommandSplitter().feed(b"".join(commands for _, commands in rows))
        assert chunk is not None
        self._in_flight.append((chunk, [index for index, _ in rows]))
        return chunk

    def _next_commands(self) -> tuple[int, bytes]:
        """Advance to the next row; return its index and its commands."""
        index, chunk, first = self._next()
        commands = (chunk.command(i, i) for i in range(first, first + self._per_row))
        return index, b"".join(commands)

    def _next(self) -> tuple[int, Chunk, int]:
        """Advance to the next row; return its index, its chunk and its first command's index."""
        chunk, indexes = self._in_flight[0]
        at, self._at = self._at, self._at + 1
        if self._at == len(indexes):
            self._in_flight.popleft()
            self._at = 0
        return indexes[at], chunk, at * self._per_row


class Push:
    """One push: its commands and their replies.

    Attributes:
        rows: the rows in flight, and the rows to resend.
        report: the live report.
        length: the length of the list after the last answered command.
        dropped: number of items that ``maxlen`` removed.
        more: whether the source may have more items.
        source_failed: whether the source raised a TransportError, for example because it
            reads another ListBuffer.
        refusal: the last refusal by a cluster node, which ``check_refused()`` raises, or None.
        stopped: whether the push must stop, because the server has refused items.
    """

    def __init__(self, settings: Settings) -> None:
        self.report = Report("socket", "a ListBuffer uses its own connection")
        self.length = self.dropped = 0
        self.more = self.source_failed = False
        self.refusal: SlotMoved | None = None
        self._settings = settings
        self._template = _commands(settings.name, settings.maxlen)
        self._per_row = len(self._template.commands)
        self._started = 0.0
        # The connection, and the numbers of commands and bytes to subtract from its totals.
        self._base: tuple[ReplyCore, int, int] | None = None
        self._writer: Encoder | None = None
        self._source: Any = None
        self._sizes: list[int] = []  # number of items in each row
        self.rows = PushedRows(self._per_row)
        self._replies: deque[Any] = deque()
        self._not_sent = 0  # number of commands that were encoded but will not be sent
        self._pushed_later = 0  # number of items pushed after a refused item

    def uses(self, core: ReplyCore) -> bool:
        """Return whether the push was started or continued over this connection."""
        return self._base is not None and self._base[0] is core

    def resume(self, core: ReplyCore) -> None:
        """Start the push, or continue it over a new connection."""
        if self._base is None:
            self._started = time.monotonic()
        if not self.uses(core):
            _, commands, size = core.window.totals()
            before = self._totals()
            self._base = core, commands - before[0], size - before[1]

    def begin(self, items: Any, max_bulk_bytes: int | None) -> None:
        self._first_row = len(self._sizes)
        with self._reading():
            if hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__"):
                from ..encode.columns.column_writer import ColumnWriter

                source = ListedStream(items, self._settings.batch, BATCH_BYTES, self._sizes)
                self._writer, self._source = ColumnWriter(self._template, source), source
            else:
                rows = self._batches(iterator_of(items, "items", "items"))
                self._writer, self._source = Writer(self._template), rows
        self._writer.max_bulk_bytes = max_bulk_bytes
        self.more = True

    def fill(self) -> None:
        """Encode items until a chunk of commands is full, or the source ends."""
        assert self._writer is not None
        with self._reading():
            self.more = self._writer.fill(self._source)

    def pulling(self, wanted: Pull) -> Steps[Any]:
        with self._reading():
            return (yield wanted)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Set ``source_failed`` if the block raises TransportError."""
        try:
            yield
        except TransportError:
            self.source_failed = True
            raise

    def release(self) -> None:
        source, self._source = self._source, None
        release(source)

    def take_chunk(self) -> Chunk | None:
        """Return all complete commands; None if there is nothing to send."""
        chunk = None if self._writer is None else self._writer.take()
        if chunk is not None:
            self.rows.add(chunk)
        if chunk is not None and self.stopped:
            self._not_sent += chunk.commands
            return None
        return chunk

    @property
    def stopped(self) -> bool:
        return self.report.failed > 0

    def encode_rest(self) -> None:
        """Encode all remaining items of the source, so that they can be returned to the caller."""
        while self.more:
            self.fill()
            self.take_chunk()

    def _batches(self, items: Iterator[Any]) -> Iterator[tuple[list[Any]]]:
        settings = self._settings
        more = True
        while more:
            batch: list[Any] = []
            failure = None
            try:
                more = gather(items, batch, settings.batch, BATCH_BYTES, CHUNK_SECONDS)
            except BaseException as error:
                failure = error  # raise it after the earlier items are pushed
            if batch:
                self._sizes.append(len(batch))
                yield (batch,)
            if failure is not None:
                raise failure

    def process_replies(self, replies: list[Any]) -> None:
        """Process replies: count the pushed items, and record refused rows."""
        self._replies.extend(replies)
        while len(self._replies) >= self._per_row:
            row = [self._replies.popleft() for _ in range(self._per_row)]
            parts = [*row, *(row[-1] if isinstance(row[-1], list) else ())]
            error = next((reply for reply in parts if isinstance(reply, CommandError)), None)
            if isinstance(error, SlotMoved):
                self.rows.refuse()
                self.refusal = error
            elif error is not None and not self._ran(row):
                self._reject(error)
            else:
                self._count(self._sizes[self.rows.accept()], row)

    def _ran(self, row: list[Any]) -> bool:
        """After an error reply to a row, return whether the row's RPUSH ran nevertheless."""
        if self._per_row == 1:
            return False
        # RPUSH ran outside a transaction if a busy server refused MULTI.
        return isinstance(row[1], int) or (
            isinstance(row[3], list) and bool(row[3]) and isinstance(row[3][0], int)
        )

    def _reject(self, error: CommandError) -> None:
        """Count a refused row, and keep the items for the caller."""
        report, number = self.report, self.rows.reject()
        report.rows += self._sizes[number]
        report.failed += 1
        report.stopped = "stopped at the first command that the server refused"
        report.count_error(error.text)
        if len(report.errors) < ERRORS_KEPT:
            at = sum(self._sizes[:number])
            report.errors.append(CommandError(error.text, index=at, row=at))

    def _count(self, size: int, row: list[Any]) -> None:
        """Count a pushed row of ``size`` items; read the length of the list from the replies."""
        self.report.rows += size
        if self.stopped:
            self._pushed_later += size
        pushed = row[1] if self._per_row > 1 and isinstance(row[1], int) else None
        length = row[0] if self._per_row == 1 else pushed or self._executed(row[3])
        if not isinstance(length, int):
            self._core.reject_reply("RPUSH", length)
        self.length = length
        if self._settings.maxlen is not None:
            self.dropped += max(0, self.length - self._settings.maxlen)
            self.length = min(self.length, self._settings.maxlen)

    def _executed(self, reply: Any) -> Any:
        """Return the reply to RPUSH, which is in the reply to EXEC."""
        if not (isinstance(reply, list) and len(reply) == 2):
            self._core.reject_reply("EXEC", reply)
        return reply[0]

    # In a cluster

    def check_refused(self) -> None:
        """Check that a cluster node refused no commands. Call it after all commands are answered.

        Raises:
            SlotMoved: refused commands must be resent.
            TransportError: later commands have run, so resending would change the order.
        """
        if self.rows.overtaken:
            items = sum(self._sizes[number] for number in self.rows.refused)
            raise TransportError(
                "the slot of the list moved to another node and back while items were in flight; "
                f"{counted(items, 'item')} can't be pushed without overtaking later ones"
            )
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def keep_unsent(self) -> None:
        """Keep the unsent commands for another attempt. Call this only if none is in doubt."""
        self.refusal = None
        self._replies.clear()
        self.rows.keep_unsent()

    def _totals(self) -> tuple[int, int]:
        """Return the numbers of commands and bytes sent, including refused commands."""
        if self._base is None:
            return 0, 0
        core, commands, size = self._base
        _, now, sent = core.window.totals()
        return now - commands, sent - size

    def current_report(self) -> Report:
        """Update and return the report."""
        report = self.report
        if self._base is not None:
            window = self._base[0].window
            commands, report.bytes_sent = self._totals()
            report.commands = commands - self.rows.refusals * self._per_row
            report.replies = report.commands - window.in_doubt
            again = len(self.rows.refused) * self._per_row
            report.unsent = window.unsent + self._not_sent + again
            report.seconds = time.monotonic() - self._started
        return report

    @property
    def _core(self) -> ReplyCore:
        assert self._base is not None
        return self._base[0]

    def add_report_to(self, error: BaseException) -> None:
        """Add the report and the refused items to an exception that lacks this report."""
        if getattr(error, "report", None) is not self.report:
            add_report(error, self.current_report(), str(self.current_report()))
            if self.stopped:
                with suppress(AttributeError, TypeError):
                    error.items = self.rows.rejected()  # type: ignore[attr-defined]
                    error.add_note("fastresp: its attribute 'items' has the refused items")

    def give_up(self) -> None:
        """Give up refused and unsent rows. Call it after all sent commands are answered."""
        self.current_report()
        self._not_sent += len(self.rows.refused) * self._per_row
        self.rows.give_up()

    def outcome(self) -> Pushed:
        report = self.current_report()
        if report.failed:
            sizes = self._sizes[: self.rows.made]
            raise PushError(report, self.rows.rejected(), sum(sizes), self._pushed_later)
        return Pushed(report, self.length, self.dropped)

    def located(self, error: EncodeError) -> EncodeError:
        """Return the error with its row and argument replaced by the index of the item."""
        if error.argument is None or error.row is None:
            return error
        item = sum(self._sizes[: self._first_row + error.row]) + error.argument - 2
        advice = "items must be str, bytes or numbers"
        message = with_advice(error.message, advice).partition(": ")[2]
        return EncodeError(f"item {item:,}: {message}", row=item)


def checked_items(items: Any) -> Any:
    """Return the items to push; for an open file, the lines without line ends.

    Raises:
        TypeError: ``items`` is a str, bytes or a mapping, which are not iterables of items.
    """
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(
            f"items must be an iterable of items, not one {type(items).__name__}; for a single "
            "item use [item]"
        )
    return lines_of(items)


@lru_cache(maxsize=64)
def _commands(name: bytes, maxlen: int | None) -> Template:
    """Return the template of a row: RPUSH or, with ``maxlen``, a transaction.

    The template is cached, since parsing takes a fifth of the time of pushing one item.
    """
    key = '"' + "".join(f"\\x{byte:02x}" for byte in name) + '"'
    push = f"RPUSH {key} {{*0}}"
    if maxlen is None:
        return Template(push)
    return Template("MULTI", push, f"LTRIM {key} {-maxlen} -1", "EXEC")
