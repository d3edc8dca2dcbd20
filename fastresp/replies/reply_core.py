"""A connection whose replies become objects, one by one, and in order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NoReturn

from ..outcome.errors import CommandError, DecodeError, ProtocolError
from ..outcome.excerpts import shortened, shown_reply
from ..outcome.report import Report
from ..resp.read import ReplyReader
from ..resp.split import arguments
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..transports.connection import Connection, LostConnection
from ..transports.driver import (
    Giving,
    Steps,
    Wanted,
    next_chunk,
)
from ..transports.resend import Resending, ResendingWindow
from ..transports.socket import connecting
from ..transports.stream import Stream

__all__ = ["ReplyCore"]

# Caps in-flight reply bytes, predicted from recent reply sizes: unread replies pile up in the
# server's memory.
REPLY_BYTES = 4 << 20
# How many commands are in flight before anything is known of the size of their replies: those of
# a transaction of a ListBuffer, which then takes one way there and back.
FIRST_IN_FLIGHT = 4
# How many more go for each reply that has come: 4 are in flight, then 64, then 1024.
MORE_IN_FLIGHT = 15
# And at most, for large replies may come after small ones: enough for 1 M/s over 1 ms.
MOST_IN_FLIGHT = 1024


class ReplyCore(Connection):
    """A connection whose replies become objects, one by one, as fast as they are taken.

    Args:
        decode: the encoding of replies that are text, or None for bytes.
        on_error: ``"raise"`` or ``"collect"`` error replies.
        resending: which commands are to be sent again if the server refuses them for now.
        max_reply_bytes: a larger reply ends the connection; None for 512 MiB.
        others: as for Connection.
    """

    # What is read, in a step and the wait before it, is taken before the next step.
    most_reads = 4

    def __init__(
        self,
        server: Server,
        *,
        decode: str | None,
        on_error: str,
        timeout: float | None,
        resending: Resending | None = None,
        max_reply_bytes: int | None = None,
    ) -> None:
        super().__init__(server, timeout=timeout)
        self.reader = ReplyReader(decode, max_reply_bytes=max_reply_bytes)
        self.sink = self.reader
        self.raising = on_error == "raise"
        self.resending = resending
        # From here commands go again that were refused, once all in flight are answered.
        self._again = ResendingWindow(resending)
        # The replies from that of the first refused one on, each in the place of its command.
        self._behind: list[Any] = []
        self._counted = 0  # bytes of the replies that were acknowledged
        self._average = 1.0
        self._most = FIRST_IN_FLIGHT
        # No more commands are to come.
        self.ended = False

    @property
    def received(self) -> int:
        """Bytes of replies that have come."""
        return 0 if self.stream is None else self.stream.received

    def understand(self) -> None:
        pass  # replies are taken by replies()

    def room(self) -> int | None:
        return self.window.begun if self._behind else self.window.acknowledged + self._most

    def tend(self) -> None:
        self.step()
        if self._answered + self.reader.waiting >= self.window.sent:
            self.touch()  # every reply has come, and is read after the pause
        else:
            self.wait()

    @property
    def report(self) -> Report:
        report = super().report
        report.bytes_sent += self._again.totals()[2]
        return report

    def connecting(self, chunks: Chunks) -> Steps[None]:
        """Open the connection for some chunks.

        Raises:
            TransportError: the server can't be used.
        """
        [connection], answers = yield from connecting(self.server, self.timeout)
        self.attach(connection)
        chunks.refuse_larger(answers.max_bulk_bytes)

    def exchange(self, chunks: Chunks) -> Generator[Wanted | Giving, Any, Exception | None]:
        """Send chunks, and give their replies.

        Returns:
            What ended the chunks, if it was an exception.

        Raises:
            LostConnection, TransportTimeout: as ``step()`` and ``wait()``.
        """
        failure = None
        while True:
            while not (self.ended or self.window.unsent or self._behind):
                failure = yield from self._add_next(chunks)
            lost = None
            try:
                self.step()
            except LostConnection as error:
                lost = error
            before = self._answered
            yield Giving(self.replies())
            if lost is not None:
                raise lost
            if self.ended and self.finished:
                return failure
            if self._answered == before:
                assert self.stream is not None
                yield [(self.stream, self.wait())]
            else:
                self.touch()

    @property
    def _answered(self) -> int:
        """How many replies were taken, those that are kept among them."""
        return self.window.acknowledged + len(self._behind) + self._again.acknowledged

    def _add_next(self, chunks: Chunks) -> Steps[Exception | None]:
        """Add the next chunk; or what an exception leaves, which is to be raised at the end."""
        failure = None
        try:
            chunk = yield from next_chunk(chunks, self)
            made = [] if chunk is None else [chunk]
        except Exception as error:
            if self.raised(error):  # while an async source was waited for
                raise
            failure, made = error, chunks.rest(self.window.made)
        self.ended = failure is not None or not made
        for chunk in made:
            self.window.add(chunk)
        self.touch()
        try:
            return failure
        finally:
            failure = None  # its traceback holds this frame, and so the data

    def take(self) -> list[Any]:
        """The replies that are there, errors among them, as a list.

        Raises:
            LostConnection: there is one more than commands.
        """
        if not self.reader.waiting:
            self.acknowledge(self.window.acknowledged)
            return []
        replies = self.reader.take()
        beyond = self.window.acknowledged + len(replies) - self.window.sent
        if beyond > 0:
            self.acknowledge(self.window.sent)
            self._take_last_words(replies[-beyond])
        self.acknowledge(self.window.acknowledged + len(replies))
        return replies

    def replies(self) -> Iterator[Any]:
        """The replies that are there.

        Raises:
            CommandError: one is an error, and errors are to be raised.
        """
        taken = self.window.acknowledged
        try:
            for reply in self._in_order() if self.resending else self._read():
                if taken >= self.window.sent:
                    self._take_last_words(reply)
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
        """The replies; those behind a refused command only when it has its own, too."""
        again, first = self._again, self.window.acknowledged
        window, at = self.window, first + len(self._behind)
        if self._all_behind:
            window, at = again, again.acknowledged
        sent = window.sent
        for index, reply in enumerate(self._read(), at):
            if index >= sent:
                self._take_last_words(reply)
            refused = type(reply) is CommandError and again.take(index, reply.text, window)
            if window is again:
                if not refused:
                    held, place = again.locate(index)
                    self._behind[held.source_index(place) - first] = reply
                again.acknowledge(index + 1)
                if again.acknowledged == again.made:
                    replies, self._behind = self._behind, []
                    yield from replies
            elif refused or self._behind:
                self._behind.append(reply)
            else:
                yield reply

    @property
    def _all_behind(self) -> bool:
        """Whether a command was refused, and all that went with it was answered."""
        window, behind = self.window, len(self._behind)
        return behind > 0 and window.acknowledged + behind >= window.begun

    def _send(self, stream: Stream) -> bool:
        if self._behind and self._all_behind:
            self._again.resend()
            return stream.send(self._again)
        return super()._send(stream)

    def _take_last_words(self, reply: Any) -> None:
        """Refuse what answers no whole command: a server's complaint about a part of one."""
        assert self.stream is not None
        if type(reply) is CommandError:
            self.last_words = shortened(reply.text)
        if self.stream.lost is None:
            words = f"a reply more than commands: {shown_reply(reply)}"
            self.stream.give_up(ProtocolError(words, self.received))
        raise LostConnection

    def misunderstood(self, question: str, reply: Any) -> NoReturn:
        """Give up the connection: a reply is none that the command can have.

        Raises:
            LostConnection: always.
        """
        assert self.stream is not None
        words = f"{question} is answered by {shown_reply(reply)}"
        self.stream.give_up(ProtocolError(words, self.received))
        raise LostConnection

    def _located(self, index: int, error: CommandError) -> CommandError:
        rows, command = self.window.command(index)
        return CommandError(error.text, index=index, row=rows.start, arguments=arguments(command))

    def acknowledge(self, taken: int) -> None:
        """Acknowledge what was taken, and foresee the size of what is to come."""
        count = taken - self.window.acknowledged
        if count:
            size = (self.received - self._counted) / count
            self._counted = self.received
            # The average decays slowly after large replies.
            self._average = max(size, 0.75 * self._average, 1.0)
            most = self._most + MORE_IN_FLIGHT * count
            self._most = max(min(most, int(REPLY_BYTES / self._average), MOST_IN_FLIGHT), 1)
            self.window.acknowledge(taken)
        elif self.received - self._counted > REPLY_BYTES:
            self._most = 1  # a reply that large is on its way


def undecodable(index: int, failure: UnicodeDecodeError) -> DecodeError:
    """The exception for a reply that can't be decoded."""
    return DecodeError(
        f"the reply to command {index:,} is not {failure.encoding}: byte {failure.start:,} is "
        f"0x{failure.object[failure.start]:02x}; leave out decode= for bytes, or name its encoding"
    )
