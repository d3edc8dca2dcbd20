"""The connection of a list buffer: commands and their replies, and every wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any, NoReturn, TypeAlias

from ..encode.row_writer import Writer
from ..outcome.errors import CommandError, TransportError
from ..replies.reply_core import ReplyCore
from ..resp.buffer import Chunk
from ..resp.grammar import BULK_BYTES
from ..server.answers import Answers
from ..server.settings import Server
from ..transports.connection import LostConnection
from ..transports.driver import Asking, Steps
from .settings import Settings

__all__ = ["Command", "ListConnection"]

Command: TypeAlias = tuple[Any, ...]

# How much the items of one reply may have in all, for each that was asked for, besides BULK_BYTES.
# Fewer bytes are no help against a hostile server, for it has as many replies as it likes; and
# what is refused of an honest one is lost.
ITEM_BYTES = 1 << 20


class ListConnection:
    """Commands and their replies over one connection, which may be closed and replaced.

    Args:
        server: where the list is.
        settings: what the buffer was asked to be.
        closed: called whenever the connection was closed.

    Attributes:
        is_open: whether there is a connection.
        most_bytes: how large a reply may be.
        waits: whether a core waits; an exception raised then interrupts no step.
    """

    def __init__(self, server: Server, settings: Settings, closed: Callable[[], object]) -> None:
        self.most_bytes = BULK_BYTES + settings.batch * ITEM_BYTES
        self.is_open = self.waits = False
        self._server = server
        self._timeout = settings.timeout
        self._closed = closed
        self._core: ReplyCore | None = None
        self._writer = Writer(chunk_bytes=1 << 16)
        self._replies: deque[Any] = deque()  # that nobody has taken yet

    @property
    def core(self) -> ReplyCore:
        """What moves the bytes of the open connection."""
        assert self._core is not None
        return self._core

    def raised(self, error: BaseException) -> bool:
        """Whether an exception is this connection's, as one that could not be opened raises it."""
        return self._core is None or self._core.raised(error)

    @property
    def lost(self) -> bool:
        """Whether nothing more can come over it."""
        stream = self.core.stream
        return stream is None or stream.lost is not None

    @property
    def max_bulk_bytes(self) -> int | None:
        """How large an argument the server takes."""
        return self._writer.max_bulk_bytes

    def attach(self, connection: Any, answers: Answers) -> None:
        """Take over a connected redis-py connection."""
        core = ReplyCore(
            self._server,
            decode=None,
            on_error="collect",
            timeout=self._timeout,
            max_reply_bytes=self.most_bytes,
        )
        core.attach(connection)
        self._writer = Writer(chunk_bytes=1 << 16)
        self._writer.max_bulk_bytes = answers.max_bulk_bytes
        self._replies.clear()
        self._core = core
        self.is_open = True

    def close(self) -> None:
        """Close the connection, if it is open. What is on its way to us is lost with it."""
        core = self._core
        self.leave()
        if core is not None:
            core.detach()
            self._closed()

    def leave(self) -> None:
        """Leave the connection as it is: it is another process's."""
        self._core = None
        self.is_open = False

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Send whole commands, with the next move of bytes."""
        assert self._core is not None
        for chunk in chunks:
            self._core.add(chunk)

    def until(self, reached: Callable[[], bool]) -> Steps[None]:
        """Move bytes both ways until ``reached()``, which also takes the replies that have come.

        Raises:
            LostConnection: it was not reached before the connection was lost.
            TransportTimeout: nothing moved for too long.
        """
        core = self._core
        assert core is not None
        core.touch()
        while True:
            lost = None
            try:
                core.step()
            except LostConnection as error:
                lost = error
            if reached():
                return
            if lost is not None:
                raise lost
            assert core.stream is not None
            self.waits = True
            yield [(core.stream, core.wait())]
            self.waits = False
            if reached():
                return  # the wait took in what came

    def asking(self, function: Callable[[], Any]) -> Steps[Any]:
        """Call what runs the user's code; what that raises leaves the connection as it is."""
        self.waits = True
        answer = yield Asking(function)
        self.waits = False
        return answer

    def exchanging(self, *commands: Command, errors: bool = False) -> Steps[list[Any]]:
        """Send commands, and return their replies.

        Raises:
            CommandError: one is an error, where errors are not to be returned.
        """
        try:
            self.add(self.encoded(commands))
            replies = yield from self.receiving(len(commands))
        except (LostConnection, TransportError):
            raise
        except BaseException:
            # Interrupted: the replies still to come would be taken for those to something else.
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, CommandError) and not errors:
                raise reply
        return replies

    def encoded(self, commands: Iterable[Command]) -> Iterator[Chunk]:
        """Yield commands as chunks, to be added."""
        source = iter(commands)
        more = True
        while more:
            more = self._writer.fill(source)
            chunk = self._writer.take()
            if chunk is not None:
                yield chunk

    def receiving(self, count: int) -> Steps[list[Any]]:
        """Wait for this many replies, and return them."""
        core, replies = self._core, self._replies
        assert core is not None

        def reached() -> bool:
            replies.extend(core.take())
            return len(replies) >= count

        if not reached():
            yield from self.until(reached)
        return [replies.popleft() for _ in range(count)]

    def misunderstood(self, question: str, reply: Any) -> NoReturn:
        """Give up the connection, for what the server says makes no sense.

        Raises:
            LostConnection: always.
        """
        self.core.misunderstood(question, reply)

    def expect(self, kind: type[Any] | UnionType, question: str, reply: Any) -> None:
        """Give up the connection if a reply is of another type, for others may be missing, too.

        Raises:
            LostConnection: it is.
        """
        if not isinstance(reply, kind):
            self.misunderstood(question, reply)
