"""A connection that yields replies as Python objects, in order.

The source index of a command is its index among all commands of the source.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..encode.row_key import RowKeys
from ..outcome.errors import CommandError, DecodeError, ProtocolError
from ..outcome.messages import shortened, shown_reply
from ..resp.read import ReplyReader
from ..resp.slots import size_queries
from ..resp.split import arguments
from ..transports.connection import Connection, LostConnection
from ..transports.driver import ChunkSender, Emit, Step, Steps, next_chunk
from ..transports.filters import ScriptFilter
from ..transports.window import Window

if TYPE_CHECKING:
    from ..encode.script import ForgottenScripts
    from ..outcome.report import Report
    from ..server.settings import Server
    from ..sources.chunks import Chunks
    from ..transports.stream import ReplySink, Stream

__all__ = ["ReplyCore", "add_next", "source_index", "undecodable"]

# The limit for bytes of replies in flight, predicted from recent replies: unread replies accumulate
# in the server's memory.
REPLY_BYTES = 4 << 20
# The maximum number of commands in flight before the size of replies is known. It is 4, so that a
# ListBuffer's transaction of four commands needs only one round trip.
FIRST_IN_FLIGHT = 4
# Each received reply allows this many more commands in flight: first 4, then 64, then 1024.
MORE_IN_FLIGHT = 15
# The maximum number of commands in flight, since large replies may follow small replies. It allows
# a million commands per second at a round trip of 1 ms.
MAX_IN_FLIGHT = 1024
# The number of commands in one batch of queries; the first batch is small, since the server may
# refuse queries.
FIRST_COMMANDS = 64
MAX_COMMANDS = 8192
# The maximum number of commands in flight if the sizes of their replies are unknown.
UNKNOWN_IN_FLIGHT = 16


class ReplyCore(Connection):
    """A connection that yields replies as Python objects, and reads only as fast as they are used.

    Args:
        decode: the encoding of replies, or None for bytes.
        on_error: ``"raise"`` to raise error replies, ``"collect"`` to yield them.
        resending: resends commands whose script the server has forgotten; None without scripts.
        max_reply_bytes: a larger reply closes the connection; None for 512 MiB.
        keys: finds the keys of rows, for errors.

    Attributes:
        cluster: the ClusterCore used in place of this connection; None for a single server.
        ended: whether there are no more commands.
    """

    cluster: Any = None
    # Few reads per step: the caller takes the received replies between steps.
    max_reads = 4
    # The limit for the predicted bytes of replies in flight.
    reply_bytes = REPLY_BYTES

    def __init__(
        self,
        server: Server,
        *,
        decode: str | None = None,
        on_error: str = "raise",
        timeout: float | None,
        resending: ForgottenScripts | None = None,
        max_reply_bytes: int | None = None,
        keys: RowKeys | None = None,
    ) -> None:
        super().__init__(server, timeout=timeout)
        self.settings: dict[str, Any] = {
            "decode": decode,
            "on_error": on_error,
            "timeout": timeout,
            "resending": resending,
            "max_reply_bytes": max_reply_bytes,
            "keys": keys,
        }
        self.reader = ReplyReader(decode, max_reply_bytes=max_reply_bytes)
        self.sink = self.reader
        self.raising = on_error == "raise"
        self.resending = resending
        self.keys = RowKeys(None) if keys is None else keys
        # The refused commands, which are resent once all commands in flight are answered.
        self._scripts = None if resending is None else ScriptFilter(resending)
        self._resend_window = Window(filters=() if self._scripts is None else [self._scripts])
        # The replies from the first refused command onwards, in order: they wait for the refused
        # commands.
        self._blocked: list[Any] = []
        # By source index of each refused command: the index of its reply in _blocked.
        self._gaps: dict[int, int] = {}
        self._received = 0  # number of bytes received over earlier connections
        self._counted = 0  # number of bytes of acknowledged replies
        self._average = 1.0
        self._limit = FIRST_IN_FLIGHT
        self._sizes: ReplySizes | None = None
        self.ended = False

    @property
    def received(self) -> int:
        """The number of bytes received in replies to the source's commands."""
        asked = 0 if self._sizes is None else self._sizes.received
        return self._received - asked + (0 if self.stream is None else self.stream.received)

    def detach(self) -> None:
        stream = self.stream
        super().detach()
        if stream is not None:
            self._received += stream.received
            if self._sizes is not None:
                self._received -= self._sizes.received
                self._sizes.restart()

    def ask_for_sizes(self) -> None:
        """Query the sizes of replies before sending commands; see ReplySizes."""
        self._sizes = ReplySizes(self.reply_bytes)

    def process_replies(self) -> None:
        pass  # replies() and take() read the replies

    def room(self) -> int:
        return self.window.begun if self._blocked else self.window.acknowledged + self._limit

    def pump(self) -> None:
        """Send and receive without waiting, while the core waits for a source.

        Raises as ``step()`` and ``wait()`` do.
        """
        self.step()
        if self._answered + self.reader.waiting >= self.window.sent:
            self.restart_timeout()  # all replies have arrived; the caller will take them
        else:
            self.wait()

    @property
    def report(self) -> Report:
        report = super().report
        report.bytes_sent += self._own_bytes
        return report

    @property
    def _own_bytes(self) -> int:
        """The number of bytes sent in addition to the source's commands."""
        asked = 0 if self._sizes is None else self._sizes.sent_bytes
        return self._resend_window.totals()[2] + asked

    def exchange(self, chunks: Chunks) -> Generator[Step | Emit, Any, Exception | None]:
        """Send chunks, and yield their replies.

        Returns:
            The source's exception; None if the source raised no exception.

        Raises:
            LostConnection, TransportTimeout: as in ``step()`` and ``wait()``.
        """
        failure = None
        while True:
            while self._wants_more:
                failure = yield from add_next(self, chunks)
                self.restart_timeout()
            lost = None
            before = self._answered
            try:
                self.step()
            except LostConnection as error:
                lost = error
            yield Emit(self.replies())
            if lost is not None:
                raise lost
            if self.ended and self.finished:
                return failure
            if self._answered == before:
                assert self.stream is not None
                yield [(self.stream, self.wait())]
            else:
                self.restart_timeout()

    @property
    def _wants_more(self) -> bool:
        return not (self.ended or self.window.unsent or self._blocked)

    @property
    def made(self) -> int:
        return self.window.made

    @property
    def _answered(self) -> int:
        """The number of replies taken, including replies that wait for refused commands."""
        return self.window.acknowledged + len(self._blocked) + self._resend_window.acknowledged

    def take(self) -> list[Any]:
        """Return the received replies, including errors, as a list."""
        if not self.reader.waiting:
            self.acknowledge(self.window.acknowledged)
            return []
        replies = self.reader.take()
        beyond = self.window.acknowledged + len(replies) - self.window.sent
        if beyond > 0:
            self.acknowledge(self.window.sent)
            self._take_last_reply(replies[-beyond])
        self.acknowledge(self.window.acknowledged + len(replies))
        return replies

    def replies(self) -> Iterator[Any]:
        taken, sent = self.window.acknowledged, self.window.sent
        try:
            for reply in self._in_order() if self.resending else self._read():
                if taken >= sent:
                    self._take_last_reply(reply)
                if type(reply) is CommandError:
                    self._report.failed += 1
                    reply = self._located(taken, reply)
                    if self.raising:
                        raise reply
                taken += 1
                yield reply
            if self.reader.failure is not None:
                raise undecodable(taken, self.reader.failure) from None
        finally:
            self.acknowledge(taken)

    def _read(self) -> Iterator[Any]:
        return iter(self.reader.take())

    def _in_order(self) -> Iterator[Any]:
        """Yield replies in order.

        If a command is refused, later replies wait until the command is resent and answered.
        """
        again, scripts = self._resend_window, self._scripts
        assert scripts is not None
        window: Window = self.window
        first = window.acknowledged + len(self._blocked)
        if self._all_blocked:
            window, first = again, again.acknowledged
        sent = window.sent
        for index, reply in enumerate(self._read(), first):
            if index >= sent:
                self._take_last_reply(reply)
            refused = type(reply) is CommandError and scripts.take(again, index, reply.text, window)
            if window is again:
                if not refused:
                    self._blocked[self._gaps.pop(source_index(again, index))] = reply
                again.acknowledge(index + 1)
                if again.acknowledged == again.made:
                    replies, self._blocked = self._blocked, []
                    yield from replies
            elif refused or self._blocked:
                if refused:
                    self._gaps[source_index(window, index)] = len(self._blocked)
                self._blocked.append(reply)
            else:
                yield reply

    @property
    def _all_blocked(self) -> bool:
        """Whether a command was refused, and all sent commands have replies."""
        window, behind = self.window, len(self._blocked)
        return behind > 0 and window.acknowledged + behind >= window.begun

    def _send(self, stream: Stream) -> bool:
        if self._blocked and self._all_blocked:
            self._resend_window.refill()
            return stream.send(self._resend_window)
        if self._sizes is None:
            return super()._send(stream)
        asked = self._sizes.step(self.window, stream, self.sink)
        if stream.lost is not None or self._sizes.asking:
            return asked
        room = self._sizes.room(self.window.acknowledged)
        return stream.send(self.window, min(self.room(), room)) or asked

    def _take_last_reply(self, reply: Any) -> NoReturn:
        """Give up the connection, since there are more replies than commands.

        The extra reply may be an error about a command that arrived only in part.
        """
        if type(reply) is CommandError:
            self.last_reply = shortened(reply.text)
        assert self.stream is not None
        if self.stream.lost is None:
            self._give_up(f"more replies than commands: {shown_reply(reply)}")
        raise LostConnection

    def reject_reply(self, question: str, reply: Any) -> NoReturn:
        """Give up the connection, since a reply has an unexpected form."""
        self._give_up(f"unexpected reply to {question}: {shown_reply(reply)}")

    def _give_up(self, fault: str) -> NoReturn:
        assert self.stream is not None
        self.stream.give_up(ProtocolError(fault, self.received))
        raise LostConnection

    def _located(self, index: int, error: CommandError) -> CommandError:
        row, command = self.window.command(index)
        held, at = self.window.locate(index)
        args = arguments(command)
        key = held.row_key(at, args, self.keys)
        place = held.source_index(at)
        return CommandError(error.text, index=place, row=row, arguments=args, row_key=key)

    def acknowledge(self, taken: int) -> None:
        """Acknowledge the ``taken`` first replies, and predict the size of the next replies."""
        count = taken - self.window.acknowledged
        if count:
            size = (self.received - self._counted) / count
            self._counted = self.received
            # The average decays slowly after large replies.
            self._average = max(size, 0.75 * self._average, 1.0)
            most = self._limit + MORE_IN_FLIGHT * count
            self._limit = max(min(most, int(self.reply_bytes / self._average), MAX_IN_FLIGHT), 1)
            self.window.acknowledge(taken)
        elif self.received - self._counted > self.reply_bytes:
            self._limit = 1  # a large reply is arriving


def source_index(window: Window, index: int) -> int:
    held, at = window.locate(index)
    return held.source_index(at)


def undecodable(index: int, failure: UnicodeDecodeError) -> DecodeError:
    return DecodeError(
        f"the reply to command {index:,} is not {failure.encoding}: byte {failure.start:,} is "
        f"0x{failure.object[failure.start]:02x}; omit decode= to get bytes, or pass its encoding"
    )


class ChunkTarget(ChunkSender, Protocol):
    """A ReplyCore or a ClusterCore."""

    ended: bool

    @property
    def made(self) -> int: ...
    def raised(self, error: BaseException) -> bool: ...


def add_next(
    core: ChunkTarget, chunks: Chunks, *, ready: bool = False, routed: bool = False
) -> Steps[Exception | None]:
    """Add the next chunks; if the source raises an exception, add all rows read before it.

    Args:
        ready: whether to add only finished chunks.
        routed: whether rows can have chunks for several nodes. All chunks of a row are added
            together, since a node's replies may wait for the reply to an earlier command of another
            node.

    Returns:
        The source's exception; None if the source raised no exception.
    """
    failure = None
    try:
        chunk = None if ready else (yield from next_chunk(chunks, core))
        core.ended = chunk is None and not ready
        if chunk is not None:
            core.add(chunk)
        gathered = chunks.ready() if routed else None
        while gathered:
            core.add(gathered.popleft())
    except Exception as error:
        if core.raised(error):  # a connection failed during a wait for an async source
            raise
        failure, core.ended = error, True
        for chunk in chunks.unsent(core.made):
            core.add(chunk)
    try:
        return failure
    finally:
        failure = None  # its traceback refers to this frame, and thus to the data


class ReplySizes:
    """Limits the bytes of replies in flight, by querying reply sizes first.

    Unread replies count towards ``maxmemory``, and a server runs all received commands before it
    sends the first reply. So large replies could make a server evict keys. While queries are in
    flight, no commands are in flight, and this object's own reader receives the replies to queries.

    Args:
        max_bytes: the maximum number of bytes of replies in flight; a command with a larger reply
            is sent alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._window = Window()
        self._reader = ReplyReader()
        self._answers: list[Any] = []
        # For each queried command, the number of queries, below 0 if the size is unknown.
        self._counts: list[int] = []
        # For each queried command, the number of bytes that earlier commands write to its keys.
        self._written: list[int] = []
        # The index of the first queried command.
        self._first = 0
        # The cumulative sizes of the queried commands' replies.
        self._ends: list[int] = []
        self._max_commands = FIRST_COMMANDS
        self._refused = False

    @property
    def received(self) -> int:
        """The number of bytes of replies to queries, received over this connection."""
        return self._reader.offset

    @property
    def sent_bytes(self) -> int:
        return self._window.totals()[2]

    @property
    def asking(self) -> bool:
        """Whether a query is not answered yet."""
        return self._window.acknowledged < self._window.made

    def restart(self) -> None:
        """Forget the queries of a closed connection, so that a new connection can be used."""
        self._window.acknowledge(self._window.made)
        self._reader, self._answers = ReplyReader(), []
        self._ends = []

    def room(self, acknowledged: int) -> int:
        """Return how many commands may be sent in total once ``acknowledged`` replies arrived."""
        if self._refused:
            return acknowledged + UNKNOWN_IN_FLIGHT
        at, ends = acknowledged - self._first, self._ends
        if at >= len(ends):
            return acknowledged
        before = ends[at - 1] if at else 0
        return self._first + max(bisect_right(ends, before + self._max_bytes), at + 1)

    def step(self, window: Window, stream: Stream, sink: ReplySink) -> bool:
        """Send queries if needed, or read replies to queries; return whether bytes were sent."""
        if self.asking:
            self._read(stream, sink)
        elif not self._refused and self._is_next(window):
            self._ask(window, stream)
        return self.asking and stream.send(self._window)

    def _is_next(self, window: Window) -> bool:
        """Return whether the next reply's size must be queried, and no commands are in flight."""
        answered = window.acknowledged
        return window.begun <= answered < window.made and answered >= self._first + len(self._ends)

    def _ask(self, window: Window, stream: Stream) -> None:
        """Create queries about the replies to the next commands."""
        self._first, self._ends = window.acknowledged, []
        held, at = window.locate(self._first)
        count = min(len(held.chunk.ends) - at, self._max_commands)
        found = size_queries(held.chunk, at, at + count)
        if found is None:
            self._refused = True
            return
        questions, self._counts, self._written = found
        if count == 1:  # the command is sent alone, so its reply may have any size
            self._ends = [0]
        elif questions is None:
            self._use([])
        else:
            self._window.add(questions)
            stream.feed(self._reader)

    def _read(self, stream: Stream, sink: ReplySink) -> None:
        """Read replies to queries; use the replies when all have arrived."""
        self._answers += self._reader.take()
        window, count = self._window, len(self._answers)
        due = window.made - window.acknowledged
        if count > due:
            stream.give_up(ProtocolError("more replies than commands", self.received))
        if count != due:
            return
        answers, self._answers = self._answers, []
        window.acknowledge(window.made)
        stream.feed(sink)
        if all(type(each) is CommandError for each in answers):
            # Without the permission or the command, the server will refuse all such queries.
            self._refused = any(
                each.text.startswith("NOPERM") or "unknown" in each.text.lower() for each in answers
            )
        self._use(answers)

    def _use(self, answers: list[Any]) -> None:
        unknown = self._max_bytes // UNKNOWN_IN_FLIGHT
        # The answer is None if the key does not exist.
        sizes = iter(
            [each if type(each) is int else unknown if each is not None else 0 for each in answers]
        )
        of_each = (
            unknown if count < 0 else sum(islice(sizes, count)) + written
            for count, written in zip(self._counts, self._written, strict=True)
        )
        self._ends = [*accumulate(of_each)]
        self._max_commands = MAX_COMMANDS
