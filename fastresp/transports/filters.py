"""Filters of a window: scripts, field sets, durability, bytes in flight, errors that end a load."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..outcome.messages import Hint, Message
from ..outcome.report import counted
from ..resp.split import arguments
from ..resp.transactions import BatchedChunk
from ..resp.values import pack
from .ledger import REFUSED
from .resend import (
    TAKEN_OVER,
    NotMarked,
    NotRun,
    PendingCommand,
    Refused,
    Request,
    Resent,
    TakenOver,
    may_pass,
    remedy_for,
)
from .sending import Position, Sending
from .window import Counts, Error, Filter, Window

if TYPE_CHECKING:
    from ..encode.script import ForgottenScripts

__all__ = [
    "Confirmation", "Durability", "FieldSetFilter", "IdempotentFilter", "NudgeFilter",
    "PipelineFilter", "ScriptFilter", "TransactionFilter", "confirmation_of",
]  # fmt: skip

# Maximum bytes to resend in one chunk.
RESENT_BYTES = 1 << 19
# The seconds of silence after which the first, second and third PING is sent.
NUDGES_S = (0.2, 1.0, 5.0)
NUDGE = Request(pack("PING"))
# Error of HIMPORT SET on a connection without its field set, for example behind a proxy.
NO_FIELD_SET = b"ERR no such fieldset"
FAILED = b"ERR wrong number of arguments for '%s' command"


class ScriptFilter(Filter):
    """Resends commands whose script the server had forgotten, over the same connection.

    Until a command is resent, it counts as unsent. It is sent after all queued commands.
    """

    def __init__(self, resending: ForgottenScripts) -> None:
        self._resending = resending

    def filter_error(self, window: Window, error: Error) -> Error | None:
        index, message, nested = error
        if nested or not self.take(window, index, message):
            return error
        window.refuse(index, commands=1)
        return None

    def take(
        self, window: Window, index: int, message: str | bytes, answered: Window | None = None
    ) -> bool:
        """Return whether a command must be resent; if so, add it to the window's ``pending``.

        ``answered`` is the window that received the reply; None if it is ``window``.
        """
        if not self._resending.refused(message):
            return False
        held, at = (answered or window).locate(index)
        part = held.chunk.parts(at)[0]  # scripts are never merged
        command, place = held.command(at, part), held.source_index(part)
        tries = held.pending[part].tries if isinstance(held, Resent) else 0
        if not self._resending.can_repeat(command, tries):
            return False
        if answered is not None or index >= window.refusals.next_reply:
            window.pending[place] = PendingCommand(held.row(part), place, command, tries + 1)
        return True

    def refill(self, window: Window) -> None:
        while window.pending and window.unsent_bytes < RESENT_BYTES:
            commands = list(window.pending.values())
            again = ((each.command, each.tries) for each in commands)
            found = self._resending.requests(again, RESENT_BYTES)
            requests = [
                Request(data, [command])
                for data, command in zip(found, commands[: len(found)], strict=True)
            ]
            places = [command.place for command in commands[: len(found)]]
            window.resend(Resent(requests, window.last), window.pending, places)


class EndingFilter(Filter):
    """Ends a connection at an error reply: this reply and later ones are not acknowledged."""

    # The index of the first reply not to acknowledge. Later errors don't count, since their
    # commands will be resent.
    _end: int | None = None
    # Number of replies received before that, whether or not the commands are confirmed as durable.
    _received = 0

    def filter_error(self, window: Window, error: Error) -> Error | None:
        index, message, _ = error
        if self._end is None:
            self.fault = self._fault(window, index, message)
            if self.fault is not None:
                self._end = index
        return error if self._end is None or index < self._end else None

    def _fault(self, window: Window, index: int, message: bytes) -> Exception | None:
        """Return why an error reply ends the connection; None if it doesn't."""
        raise NotImplementedError

    def may_acknowledge(self, window: Window, received: int) -> int:
        self._received = received if self._end is None else min(received, self._end)
        return self._received


class Declarations(Resent):
    """HIMPORT PREPARE commands."""


class FieldSetFilter(EndingFilter):
    """Declares field sets before the commands that need them, and waits for the replies.

    Field sets belong to a connection, so each new connection declares all of them. If a command
    were sent before its declaration succeeded, it could write the fields of an earlier declaration.
    A connection that has forgotten a field set counts as lost.

    Args:
        field_sets: the HIMPORT PREPARE commands of the load so far.
        declared: receives the indexes of the replies that must be OK, until they are acknowledged;
            other replies must be passed to ``filter_error()``.
    """

    def __init__(self, field_sets: Sequence[bytes], declared: set[int]) -> None:
        self._field_sets = field_sets
        self._replies = declared
        self._declared = 0

    def adding(self, window: Window, start: Position | None) -> None:
        missing = self._field_sets[self._declared :]
        if missing:
            requests = [Request(each) for each in missing]
            held = Declarations(requests, window.last, start)
            window.add_own(held)
            self._replies.update(range(held.first_reply, held.end_reply))
            # If an interruption precedes this, they are declared again, which changes nothing.
            self._declared += len(missing)

    def gate(self, window: Window) -> int | None:
        for held in window.held:
            if isinstance(held, Declarations) and held.end_reply > self._received:
                return held.end_reply
        return None

    def _fault(self, window: Window, index: int, message: bytes) -> Exception | None:
        text = message.decode(errors="replace")
        if isinstance(window.locate(index)[0], Declarations):
            if may_pass(message):
                remedy = remedy_for(message)
                return Refused(f"it refused HIMPORT PREPARE: {text}{remedy and f' ({remedy})'}")
            words = f"{_where(window)} refused HIMPORT PREPARE: {text} (use "
            replacing = Hint("exists", "replace", grouped=False)
            instead = (Hint("mode", "serialize"), " with ", replacing, ")")
            return NotRun(Message(words, *instead))
        if message.startswith(NO_FIELD_SET):
            return Refused(f"it forgot what HIMPORT PREPARE declared: {text}")
        return None

    def may_acknowledge(self, window: Window, received: int) -> int:
        if self._replies:
            self._replies.difference_update([each for each in self._replies if each < received])
        return super().may_acknowledge(window, received)


class Confirmation(NamedTuple):
    """A command whose reply confirms that earlier commands of the same connection are durable.

    Attributes:
        request: the command, which sets no timeout; the load's timeout applies.
        least: the reply confirms the commands only if the first number in the reply is at least
            this number. After CLIENT UNBLOCK, the first number is lower.
        likely: the likely cause of a missing reply.
        failure: the cause of an error reply.
    """

    request: Request
    least: int
    likely: str
    failure: str


def confirmation_of(durability: str | int) -> Confirmation | None:
    """Return the confirmation for ``Options.durable``; None for ``"acknowledged"``."""
    if durability == "fsync":
        return Confirmation(
            Request(pack("WAITAOF", 1, 0, 0)), 1,
            "the server has not synced its append-only file (WAITAOF; see its appendfsync), or ",
            "it can't say whether the commands are on disk",
        )  # fmt: skip
    if isinstance(durability, int):
        noun = "replica has" if durability == 1 else "replicas have"
        return Confirmation(
            Request(pack("WAIT", durability, 0)), durability,
            f"fewer than {durability} {noun} the commands (WAIT), or ",
            "it can't wait for its replicas",
        )  # fmt: skip
    return None


class Durability(Filter):
    """Delays acknowledgement until the reply to WAIT or WAITAOF confirms the commands."""

    def __init__(self, confirmation: Confirmation) -> None:
        self._confirmation = confirmation
        self._stopped = False
        # The pending confirmation: (index of its reply, number of commands that it covers). There
        # is only one, since a server that syncs once a second needs a second for each confirmation.
        self._pending: tuple[int, int] | None = None
        # The numbers of confirmed replies and commands.
        self._confirmed = 0, 0
        # The indexes of error replies after the confirmed replies. Commands that failed need no
        # confirmation.
        self._errors: set[int] = set()

    @property
    def awaited(self) -> int:
        """The index of the reply to the pending confirmation; -1 if none is pending."""
        return -1 if self._pending is None else self._pending[0]

    def take_reply(self, reply: int, number: int) -> None:
        """If ``reply`` answers the pending confirmation, record whether it confirms commands.

        ``number`` is the first number in this reply; see Confirmation.
        """
        if self._pending is None or self._pending[0] != reply:
            return
        if number < self._confirmation.least:
            self._fail(f"the reply was {number}")
        else:
            self._confirmed, self._pending = (reply + 1, self._pending[1]), None

    def stop(self) -> None:
        """Acknowledge replies without waiting for confirmation, because the load was stopped."""
        self._stopped = True

    def filter_error(self, window: Window, error: Error) -> Error | None:
        index, message, nested = error
        held, at = window.locate(index)
        if isinstance(held, Resent) and held.requests[at] is self._confirmation.request:
            self._fail(message.decode(errors="replace"))
            return None
        if not nested and held.chunk.parts(at):
            self._errors.add(index)
        return error

    def may_acknowledge(self, window: Window, received: int) -> int:
        if self._stopped:
            return received
        if self._pending is not None and self._pending[0] < received:
            self._fail("the reply was not a number")
        confirmed = min(received, self._confirmed[0])
        if self._errors:
            self._errors = {index for index in self._errors if index >= confirmed}
        return confirmed

    def is_settled(self, index: int) -> bool:
        return index in self._errors

    def counts(self, window: Window, counts: Counts) -> Counts:
        return counts._replace(in_doubt=max(counts.in_doubt, counts.sent - self._confirmed[1]))

    def added(self, window: Window) -> None:
        """Add the command that confirms earlier commands, unless a confirmation is pending."""
        last = window.last
        if self._pending is None and last is not None:
            held = Resent([self._confirmation.request], last, last.end)
            window.add_own(held)
            # If an interruption precedes this, the reply confirms nothing.
            self._pending = held.first_reply, held.first_command

    def refill(self, window: Window) -> None:
        """Once all commands are sent, add the command that confirms the last commands."""
        waiting = window.pending or window.sending is not None
        if not waiting and self.fault is None and window.acknowledged < window.made:
            self.added(window)

    def _fail(self, message: str) -> None:
        """Note why the commands since the last confirmation are not confirmed."""
        self._pending = None
        if self.fault is None:
            self.fault = OSError(f"{self._confirmation.failure}: {message}")


class NudgeFilter(Filter):
    """Sends a PING when a server is silent; drops its error reply, and does not count its bytes.

    Valkey 8.0 to 9.0 with several I/O threads may hold replies back until it receives more bytes
    (https://github.com/valkey-io/valkey/issues/3198; known_faults.py has the versions). For a busy
    server, a PING is harmless. Since replies are in order, the reply to PING follows all replies of
    the load.
    """

    _refused = False
    # PINGs since the last progress, and the number of replies before them. Their own replies are no
    # progress: a server that loses replies, but answers PING, must not delay the timeout forever.
    _sent = 0, 0
    # The last PING, and the size of all PINGs.
    _added: tuple[Sending | None, int] = None, 0

    def is_due(self, window: Window, received: int, silence: float) -> bool:
        """Return whether to send a PING after ``silence`` seconds without traffic."""
        count, before = self._sent
        if received - before > count:
            count, before = self._sent = 0, received
        unanswered = sum(
            isinstance(held, Resent) and held.requests[0] is NUDGE and held.end_reply > received
            for held in window.held
        )
        count = max(count, unanswered)
        return not self._refused and count < len(NUDGES_S) and silence >= NUDGES_S[count]

    def add(self, window: Window) -> None:
        """Add a PING behind all commands; all of them must have been sent."""
        last, (count, before) = window.last, self._sent
        assert last is not None
        self._sent = count + 1, before
        ping = Resent([NUDGE], last, last.end)
        self._added = ping, self._added[1] + ping.size
        window.add_own(ping)

    def counts(self, window: Window, counts: Counts) -> Counts:
        last, size = self._added
        unsent = 0 if last is None else last.size - last.at
        return counts._replace(size=counts.size - size + unsent)

    def filter_error(self, window: Window, error: Error) -> Error | None:
        held, at = window.locate(error[0])
        if not isinstance(held, Resent) or held.requests[at] is not NUDGE:
            return error
        if error[1].startswith(b"NOPERM"):  # the server logs each of them
            self._refused = True
        return None


class IdempotentFilter(EndingFilter):
    """Ends a checkpointed load of idempotent commands at OOM, READONLY and similar errors.

    The checkpoint stays before the row of the refused command, so a resumed load resends the
    refused command and all later ones. Until then, the later ones are in doubt.
    """

    def _fault(self, window: Window, index: int, message: bytes) -> Exception | None:
        remedy = remedy_for(message)
        if not remedy:
            return None
        held, at = window.locate(index)
        row, text = held.row(held.chunk.parts(at)[0]), message.decode(errors="replace")
        return NotRun(
            f"{_where(window)} refused row {row:,}: {text} ({remedy}, then resume the load)"
        )


class TransactionFilter(EndingFilter):
    """Ends a load with a checkpoint when one of its transactions is refused.

    A marker is a key that stores how many rows have run. Each transaction may run only after its
    predecessor: the previous transaction with the same marker. So an EXEC is sent only after the
    reply to the predecessor's EXEC. The rest of the transaction need not wait: the server queues
    it. A transaction run by a script is sent immediately: the script checks the marker.
    """

    # The index of the EXEC whose transaction release() has sent up to the EXEC.
    _released = -1

    def gate(self, window: Window) -> int | None:
        waiting = self._waiting(window)
        return waiting if waiting in (None, self._released) else waiting - 1

    def release(self, window: Window) -> bool:
        """Let the SET that precedes a waiting EXEC be sent; return False if it already was.

        This SET of the marker is kept for a silent server: it is only queued there, but its bytes
        may make the server send the reply for which EXEC waits; see NudgeFilter.
        """
        waiting = self._waiting(window)
        if waiting is None or waiting == self._released:
            return False
        self._released = waiting
        return True

    def _waiting(self, window: Window) -> int | None:
        """Return the index of the first EXEC that waits for its predecessor; None if none does."""
        unanswered = False  # whether an earlier EXEC has no reply yet
        for held in window.held:
            chunk = held.chunk
            if not isinstance(chunk, BatchedChunk):
                continue
            first = 0
            if not unanswered:
                at = bisect.bisect_left(chunk.execs, self._received - held.first_reply)
                if at == len(chunk.execs):
                    continue
                unanswered = True
                first = bisect.bisect_right(chunk.waits, chunk.execs[at])
            if first < len(chunk.waits):
                return held.first_reply + chunk.waits[first]
        return None

    def filter_error(self, window: Window, error: Error) -> Error | None:
        index, message, nested = error
        if self._ends_load(window, index, message, nested):
            return None
        return self._named(window, index, message, nested)

    def _named(self, window: Window, index: int, message: bytes, nested: int) -> Error:
        """Return the error; if an HSET sent in place of a command failed, name that command."""
        parts = window.failing(index, nested) if nested and message == FAILED % b"hset" else ()
        for part in parts[:1]:
            held, at = window.locate(index)
            assert isinstance(held.chunk, BatchedChunk)
            command = arguments(held.command(at, part))
            if len(command) <= held.chunk.lacking.get(command[0].upper(), 0):
                message = FAILED % command[0].lower()
        return index, message, nested

    def _ends_load(self, window: Window, index: int, message: bytes, nested: int) -> bool:
        """Return whether an error ends the load; keep the first such error as ``fault``."""
        held, at = window.locate(index)
        chunk = held.chunk
        if not isinstance(chunk, BatchedChunk):
            return False
        number = bisect.bisect_left(chunk.execs, at)
        text = message.decode(errors="replace")
        advice = remedy_for(message) or "fix the cause"
        if REFUSED.match(message):
            advice = "wait until the slots have moved"
        if nested - chunk.opening > len(chunk.elements(at)):
            fault: Exception = NotMarked(
                f"{_rows(held, chunk, number)} ran, but the checkpoint could not be written: "
                f"{text} (a resume would run them again, unless you run {_marking(chunk, at)})"
            )
            end = held.first_reply + at + 1
        elif not nested:
            kind = TakenOver if message.startswith(TAKEN_OVER) else NotRun
            fault = kind(
                f"{_where(window)} refused {_rows(held, chunk, number)}, and ran none of them: "
                f"{text} ({advice}, then resume the load)"
            )
            end = held.first_reply + (chunk.execs[number - 1] + 1 if number else 0)
        else:
            return False
        if self._end is None:
            self.fault, self._end = fault, end
        return True

    def counts(self, window: Window, counts: Counts) -> Counts:
        """Count only the commands before the refused transaction."""
        if self._end is None:
            return counts
        held = next((each for each in window.held if self._end < each.end_reply), None)
        last = window.last
        if held is not None:
            done = held.chunk.covered(max(0, self._end - held.first_reply))
            rows, commands = held.rows_up_to(done), held.first_command + done
        elif last is not None:
            rows, commands = last.rows_up_to(last.chunk.commands), last.end_command
        else:
            rows = commands = 0
        answered = counts.sent - counts.in_doubt
        return counts._replace(
            rows=rows,
            commands=commands,
            sent=commands,
            in_doubt=commands - answered,
            unsent=counts.unsent + counts.sent - commands,
        )


def _where(window: Window) -> str:
    return "the server" if window.node is None else f"the node at {window.node}"


def _marking(chunk: BatchedChunk, at: int) -> str:
    """Return the command that sets the marker in a transaction, as text for messages."""
    command = arguments(bytes(chunk.piece(chunk.ends[at - 2], chunk.ends[at - 1])))
    return b" ".join(command).decode(errors="replace")


def _rows(held: Sending, chunk: BatchedChunk, number: int) -> str:
    """Return the rows of a transaction, for messages."""
    parts = chunk.parts(chunk.execs[number])
    first, last = held.row(parts[0]), held.row(parts[-1])
    text = f"rows {first:,} to {last:,}"
    if chunk.lane >= 0:  # other connections have the rows between these rows
        text = f"{counted(len(parts), 'command')} of {text}"
    return text


class PipelineFilter(Filter):
    """Limits the bytes in flight, for servers that stall above a limit.

    A larger command is sent alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._received = 0

    def may_acknowledge(self, window: Window, received: int) -> int:
        self._received = received
        return received

    def gate(self, window: Window) -> int | None:
        first, end = self._received, 0
        for held in window.held:
            if held.end_reply <= first:
                continue
            if held.first_reply <= first:  # this chunk has the first unanswered command
                before = first - held.first_reply
                start = held.chunk.ends[before - 1] if before else 0
                end = held.first_byte + start + self._max_bytes
            fitting = bisect.bisect_right(held.chunk.ends, end - held.first_byte)
            if fitting < len(held.chunk.ends):
                return max(held.first_reply + fitting, first + 1)
        return None
