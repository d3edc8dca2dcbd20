"""A lane: one connection of a load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..outcome.errors import ProtocolError
from ..outcome.messages import shortened
from ..resp.scan import ReplyScanner
from .connection import Connection
from .filters import (
    Durability,
    FieldSetFilter,
    IdempotentFilter,
    NudgeFilter,
    PipelineFilter,
    ScriptFilter,
    TransactionFilter,
    confirmation_of,
)
from .ledger import RetryFilter
from .window import Filter, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..encode.script import ForgottenScripts
    from ..outcome.report import Report
    from ..server.options import Options
    from ..server.settings import Server
    from .error_policy import ErrorPolicy
    from .ledger import Ledger
    from .sending import Pace, Position

__all__ = ["Lane"]

# Maximum number of error replies that are shown, if they answer no whole command.
LAST_ERRORS = 5


class LaneOwner(Protocol):
    """What a lane needs from its load; see Lanes."""

    policy: ErrorPolicy
    live_report: Report
    pace: Pace | None
    ledger: Ledger | None
    resending: ForgottenScripts | None
    field_sets: Sequence[bytes] | None
    batched: bool
    resumable: bool
    nudges: bool
    pipeline_bytes: int | None
    lanes: list[Lane]

    @property
    def sent(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def report(self) -> Report: ...
    def judge(self) -> None: ...


class ErrorCounts(NamedTuple):
    """Counts of a lane's errors. Immutable: one assignment replaces them all; see Refusals.

    Attributes:
        last: the last error that was counted: the index of its reply, and the number of the reply's
            element that is or contains the error.
        failed: number of commands that failed.
        existing: number of commands for keys that existed, with ``Serialize(exists="skip")``.
    """

    last: tuple[int, int] = (-1, 0)
    failed: int = 0
    existing: int = 0


class Lane(Connection):
    """One connection of a load. Counts its replies, and matches errors with commands.

    Attributes:
        retry: adds commands to the load's ledger; None if the load has no ledger.
        replacement: the lane that replaces this lane after an idle disconnect.
        lost_at: when the connection was lost, if its commands wait to be resent; otherwise None.
        cause: why the connection was lost.
    """

    replacement: Lane | None = None
    lost_at: float | None = None
    cause = ""

    def __init__(
        self, load: LaneOwner, server: Server, options: Options, number: int, max_bytes: int
    ) -> None:
        ledger, confirmation = load.ledger, confirmation_of(options.durable)
        self._durability = confirmation and Durability(confirmation)
        self.retry = None if ledger is None else RetryFilter(ledger, number, server.redirect)
        self._scanner = ReplyScanner()
        declared = self._scanner.declared
        self._transactions = TransactionFilter() if load.batched else None
        filters: list[Filter | None] = [
            None if load.field_sets is None else FieldSetFilter(load.field_sets, declared),
            self._transactions,
            self._durability,
            self.retry,
            None if load.resending is None else ScriptFilter(load.resending),
            IdempotentFilter() if load.resumable and not load.batched else None,
            None if load.pipeline_bytes is None else PipelineFilter(load.pipeline_bytes),
        ]
        named = (ledger is not None and ledger.cluster) or server.announced
        window = Window(
            max_bytes,
            filters=[each for each in filters if each is not None],
            node=str(server) if named else None,
            batched=load.batched,
        )
        super().__init__(server, timeout=options.timeout, rate=options.rate, window=window)
        self._load = load
        self.counts = ErrorCounts()
        self._skips = options.skips_existing
        self._nudges: NudgeFilter | None = None  # added at the first PING, to cost nothing before
        if confirmation is not None:
            self.likely = confirmation.likely
        self.sink = self._scanner

    @property
    def report(self) -> Report:
        """The live report of all connections."""
        return self._load.report

    def stop(self) -> None:
        if self._durability is not None:
            self._durability.stop()
        super().stop()

    def lose(self, cause: object) -> None:
        """Close the connection, and keep unanswered commands for a new connection."""
        self.cause = self.last_reply or str(cause)
        self.lost_at = time.monotonic()
        self.detach()

    @property
    def load(self) -> tuple[int, int, Position]:
        """How busy the lane is: unsent bytes, missing replies, and position of the latest chunk.

        The least busy lane sorts first; among idle lanes, the lane that has been idle longest.
        """
        window = self.window
        return window.unsent_bytes, window.made - window.acknowledged, window.position

    def room(self) -> int | None:
        paced, gate = self._paced(), self.window.gate()
        return paced if gate is None else min(gate, gate if paced is None else paced)

    def _paced(self) -> int | None:
        """Return how far the rate limit lets ``window.sent`` rise now, in replies.

        Return None if the rate limit counts bytes, or does not apply.
        """
        load = self._load
        # Refused commands wait in the ledger. Until they are resent, send without a rate limit: if
        # the node accepted a later command meanwhile, it would overtake the refused commands.
        if load.pace is None or load.pace.in_bytes or load.ledger:
            return None
        sent, window = load.sent, self.window
        allowed = load.pace.allowed(sent) - sent
        if allowed <= 0:
            return window.sent
        # At least one more reply, even if it answers more merged commands than the rate allows.
        return max(window.within(window.sent_commands + allowed), window.sent + 1)

    def room_bytes(self) -> int | None:
        load = self._load
        if load.pace is None or not load.pace.in_bytes or load.ledger:
            return None
        sent = load.sent_bytes
        return max(0, load.pace.allowed(sent) - sent)

    def nudge(self, silence: float) -> None:
        """Send a PING, if needed, after ``silence`` seconds without traffic; see NudgeFilter.

        In a transaction whose EXEC waits for a reply, the SET of the marker is sent instead. No
        PING is sent inside a command or transaction, if the socket is full, or while the server
        runs WAIT or WAITAOF. Neither restarts the timeout.
        """
        window, stream, received = self.window, self.stream, self._scanner.replies
        if stream is None or stream.full or stream.lost is not None or not stream.sure:
            return
        if received >= window.sent:
            return
        if self._transactions is not None and self._transactions.release(window):
            self._send(stream)
        if not self._load.nudges or window.sending is not None or window.pending:
            return
        if self._durability is not None and self._durability.awaited == received:
            return
        if self._nudges is None:
            self._nudges = NudgeFilter()
            window.add_first(self._nudges)
        if self._nudges.is_due(window, received, silence):
            self._nudges.add(window)
            stream.send(window)

    def overdue(self) -> float | None:
        """Return the timeout in seconds if there was no progress for this time; otherwise None.

        While other lanes make progress, this lane's timeout is multiplied by the number of
        unfinished lanes, since a server serves its connections in turn.
        """
        timeout = super().overdue()
        lanes = self._load.lanes
        if timeout is None or time.monotonic() - max(lane.moved for lane in lanes) > timeout:
            return timeout
        timeout *= sum(not lane.finished for lane in lanes)
        return timeout if time.monotonic() - self.since > timeout else None

    def process_replies(self) -> None:
        scanner, window = self._scanner, self.window
        sent = window.sent
        if scanner.replies > sent:
            self._take_last_reply(scanner.replies - sent)
        if scanner.errors:
            window.filter_errors(scanner.errors)
        if self._durability is not None and scanner.answer is not None:
            self._durability.take_reply(*scanner.answer)
        if window.fault is not None and self.stream is not None and self.stream.lost is None:
            self.stream.give_up(window.fault)
        if scanner.errors:
            self._count()
            if self._skips:
                scanner.errors[:] = [each for each in scanner.errors if not is_of_existing(each[1])]
            # Before ``acknowledge()``, which releases the commands: after an exception, the next
            # step processes the remaining errors.
            self._load.policy.take(scanner.errors, window, self._load.live_report)
        window.acknowledge(min(scanner.replies, sent))
        if self.end is None:
            window.refill()
        if self._durability is not None:
            # The scanner must report this reply. Nothing is sent before the next call.
            scanner.asked = self._durability.awaited
        if self.counts.failed:
            self._load.judge()

    def _count(self) -> None:
        last, failed, existing = self.counts
        window = self.window
        for index, text, nested in self._scanner.errors:
            # Several errors nested in the reply to a command count once.
            error = index, nested if window.batched else 0
            commands = len(window.failing(index, nested)) if error > last else 0
            if commands:
                last, existed = error, is_of_existing(text)
                if self._skips and existed:
                    existing += commands
                else:
                    failed += commands
                window.note_error(index, existed=existed)
        self.counts = ErrorCounts(last, failed, existing)

    def _take_last_reply(self, count: int) -> None:
        """Give up the connection after receiving ``count`` replies that answer no whole command.

        Error texts of these replies are moved to ``last_reply``: a server that refuses the start of
        a command sends an error and closes the connection.
        """
        assert self.stream is not None
        errors, sent = self._scanner.errors, self.window.sent
        late = [error for error in errors if error[0] >= sent]
        errors[:] = [error for error in errors if error[0] < sent]
        texts = [text.decode(errors="replace") for _, text, _ in late[:LAST_ERRORS]]
        self.last_reply = shortened("; ".join(filter(None, [self.last_reply, *texts])))
        sending = self.window.sending
        if texts and sending is not None and sending.underway:
            parts = sending.chunk.parts(sending.whole)
            if parts:
                self.last_reply += f" (to row {sending.row(parts[0]):,}, which was sent in part)"
            if self.stream.lost is None and len(texts) == count:
                self.stream.give_up(OSError("the server refused a command before its end"))
        if self.stream.lost is None:
            noun = "reply" if count == 1 else "replies"
            fault = f"{count:,} more {noun} than commands: {self.last_reply}"
            self.stream.give_up(ProtocolError(fault, self._scanner.offset))


def is_of_existing(reply: bytes) -> bool:
    """Return whether RESTORE was refused because its key exists."""
    return reply.startswith(b"BUSYKEY")
