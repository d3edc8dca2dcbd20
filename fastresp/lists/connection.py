"""The connection of a list buffer: its commands and their replies, and its requests for items."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import get_ident
from types import UnionType
from typing import Any, NoReturn, TypeAlias, TypeVar

from ..encode.row_writer import Writer
from ..outcome.errors import CommandError, LeaseError, TransportError
from ..replies.reply_columns import ReplyColumns
from ..replies.reply_core import ReplyCore
from ..resp.buffer import Chunk
from ..server.answers import Answers
from ..server.forks import own
from ..server.settings import Server
from ..transports.connection import LostConnection
from ..transports.driver import Waits
from .consumer import Consumer
from .held import Held
from .settings import Settings

__all__ = ["Calls", "Steps"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Waits, None, T]

# Requests for items in flight, so that the server has the next one while we take the items of
# this one. Their replies are bounded in bytes, too: see ReplyCore.room().
REQUESTS = 8
# How much the items of one reply may have in all, for each that was asked for, and besides.
# Fewer bytes are no help against a hostile server, for it has as many replies as it likes; and
# what is refused of an honest one is lost.
ITEM_BYTES = 1 << 20
REPLY_BYTES = 512 << 20


class Calls:
    """The connection of a ListBuffer: commands and their replies, and requests for items.

    Args:
        server: where the list is.
        settings: what the buffer was asked to be.
    """

    def __init__(self, server: Server, settings: Settings) -> None:
        self.server = server
        self.settings = settings
        self.core: ReplyCore | None = None
        self.consumer = Consumer(settings)
        self.held = Held()
        self.doubtful = 0  # items that were being put back when the connection was lost
        self._asked: deque[int] = deque()  # most items of each request in flight
        self._replies: deque[Any] = deque()  # to the requests in flight
        self._last_request: tuple[Any, list[Chunk]] = None, []  # which it was, and its bytes
        self._counted = True  # whether LPOP takes a count
        self._dry = False  # the last request found fewer items than it asked for
        self._sized = False  # the size of some items is known
        self._others = 0  # replies that are no bytes, over this connection
        self.busy = 0  # the thread that a call is under way in
        # What made the last column, and of how many items: it knows how much memory they take.
        self._columns: tuple[int, ReplyColumns] | None = None
        # Within it a Ctrl-C does not wait until what came in is noted: for what is the user's.
        self.disturbed: AbstractContextManager[None] = nullcontext()

    @property
    def safe(self) -> bool:
        """Whether items stay in the server until they are acknowledged."""
        return self.settings.delivery == "at-least-once"

    def attach(self, connection: Any, answers: Answers) -> None:
        """Take over a connected redis-py connection."""
        own(self, Calls._let_go)
        core = ReplyCore(
            self.server,
            decode=None,
            on_error="collect",
            timeout=self.settings.timeout,
            max_reply_bytes=self.most_bytes,
        )
        core.attach(connection)
        self.writer = Writer(chunk_bytes=1 << 16)
        self.writer.max_bulk_bytes = answers.max_bulk_bytes
        self._asked.clear()
        self._replies.clear()
        self._dry = self._sized = False
        self._others = 0
        self.core = core

    def detach(self) -> None:
        """Close the connection, if it is open. Items on their way to us are lost with it."""
        core, self.core = self.core, None
        if core is not None:
            core.detach()
            if self.safe:
                self.held.forget()  # these are in our list there: see _rejoining()

    def _let_go(self) -> None:
        """Begin anew, in a child of the process that has the connection and the items."""
        self.held.forget()
        self.consumer.leave()
        self.consumer.acknowledged = self.doubtful = 0
        if self.busy != get_ident():  # else the call that forked ends with an error
            self.core, self.busy = None, 0

    def check_idle(self) -> None:
        """Refuse a second call while one is under way, from another task, thread or the source.

        Raises:
            RuntimeError: there is one.
        """
        if self.busy:
            raise RuntimeError(
                "this ListBuffer is already running another call; make one for each task or thread"
            )

    def loss(self) -> TransportError:
        """The exception for a lost connection. Asks the server again: may take seconds."""
        assert self.core is not None
        error = self.core.loss()
        self.detach()
        return error

    def beginning(self) -> Steps[None]:
        """Find out what the server can, and be known there as a consumer."""
        if self.safe:
            if self.consumer.name:
                yield from self._rejoining()
            if not self.consumer.name:
                name = self.consumer.new_name()
                *_, done = yield from self.calling(*self.consumer.joining(name))
                self.expect(list, "EXEC", done)
                for reply in done:
                    if isinstance(reply, CommandError):
                        raise reply
                self.consumer.joined(name)
        else:
            [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
            # Before 6.2 it took no count.
            wrong = isinstance(reply, CommandError)
            self._counted = not (wrong and "wrong number of arguments" in reply.text)

    def _rejoining(self) -> Steps[None]:
        """After a lost connection: put back what the user does not have, and keep the rest.

        Raises:
            LeaseError: recover() put back what the user has.
        """
        if not self.consumer.given:
            yield from self._putting_back()
            return
        [reply] = yield from self.calling(self.consumer.rejoin(), errors=True)
        self._check_lease(reply)
        if not self.consumer.can_have(reply):
            self.misunderstood("a script for items in work", reply)
        self.consumer.rejoined(reply)
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back what this consumer holds in the server, and be it no longer."""
        yield from self.calling(self.consumer.put_back())
        self.held.forget()
        self.consumer.leave()

    @property
    def most_bytes(self) -> int:
        """How large a reply may be."""
        return REPLY_BYTES + self.settings.batch * ITEM_BYTES

    def misunderstood(self, question: str, reply: Any) -> NoReturn:
        """Give up the connection, for what the server says makes no sense.

        Raises:
            LostConnection: always.
        """
        assert self.core is not None
        self.core.misunderstood(question, reply)

    def expect(self, kind: type[Any] | UnionType, question: str, reply: Any) -> None:
        """Give up the connection if a reply is of another type, for others may be missing, too.

        Raises:
            LostConnection: it is.
        """
        if not isinstance(reply, kind):
            self.misunderstood(question, reply)

    def _check_items(self, items: Any, most: int) -> None:
        """Refuse what is no list of items, or of more than were asked for.

        Raises:
            LostConnection: it is none.
        """
        core = self.core
        assert core is not None
        if not isinstance(items, list):
            self.misunderstood("a pop", items)
        if len(items) > most:
            self.misunderstood(f"a pop of {most:,} items", items)
        if core.reader.others != self._others:
            # Something but bytes has come since the last time: rare, and right elsewhere.
            self._others = core.reader.others
            for item in items:
                self.expect(bytes, "an item of a pop", item)

    def _check_lease(self, reply: Any) -> None:
        """Raise an error reply, as a LeaseError where it is that."""
        if isinstance(reply, CommandError):
            raise self._lease_over() if reply.code == "LEASE" else reply
        self.expect(int, "a script for items in work", reply)

    @property
    def _fifo(self) -> bool:
        return self.settings.order == "fifo"

    @property
    def _pop(self) -> str:
        return "LPOP" if self._fifo else "RPOP"

    def _acknowledging(self, count: int) -> Steps[None]:
        [reply] = yield from self.calling(self.consumer.acknowledge(count), errors=True)
        self._check_lease(reply)
        self.consumer.acknowledging_returned(count)

    # Requests and replies

    def calling(self, *commands: tuple[Any, ...], errors: bool = False) -> Steps[list[Any]]:
        """Send commands, and give their replies.

        Raises:
            CommandError: one is an error, where errors are not to be given.
        """
        yield from self.settling()
        try:
            self._send(commands)
            replies = yield from self._receiving(len(commands))
        except (LostConnection, TransportError):
            raise
        except BaseException:
            # Interrupted: the replies still to come would be taken for those to something else.
            self.detach()
            raise
        for reply in replies:
            if isinstance(reply, CommandError) and not errors:
                raise reply
        return replies

    def _send(self, commands: Iterable[tuple[Any, ...]]) -> None:
        assert self.core is not None
        for chunk in self._encoded(commands):
            self.core.add(chunk)

    def _encoded(self, commands: Iterable[tuple[Any, ...]]) -> Iterator[Chunk]:
        source = iter(commands)
        more = True
        while more:
            more = self.writer.fill(source)
            chunk = self.writer.take()
            if chunk is not None:
                yield chunk

    def _receiving(self, count: int) -> Steps[list[Any]]:
        """Wait for this many replies; return them."""
        core = self.core
        assert core is not None
        core.touch()
        while not self._have(count):
            lost = None
            try:
                core.step()
            except LostConnection as error:
                lost = error
            if self._have(count):
                break
            if lost is not None:
                raise lost
            assert core.stream is not None
            yield [(core.stream, core.wait())]
        return [self._replies.popleft() for _ in range(count)]

    def _have(self, count: int) -> bool:
        """Take the replies that have come; return whether there are enough now."""
        assert self.core is not None
        self._replies.extend(self.core.take())
        return len(self._replies) >= count

    @property
    def _depth(self) -> int:
        """How many requests may be in flight: one, until its reply tells how large items are."""
        return REQUESTS if self._sized else 1

    def settling(self) -> Steps[None]:
        """Wait for the items on their way to us, and hold them singly."""
        while self._asked:
            yield from self._next_items()
        self._dry = False
        self.held.take_apart()

    def _ask(self, most: int) -> None:
        """Ask for items, to be held."""
        self._send_request(most)
        self._asked.append(most)

    def _send_request(self, n: int) -> None:
        """Ask for n items; as a rule in the same words as the last time."""
        assert self.core is not None
        which = n, self.consumer.name, self._counted
        if self._last_request[0] != which:
            self._last_request = which, list(self._encoded(self._request(n)))
        for chunk in self._last_request[1]:
            self.core.add(chunk)

    def _request(self, n: int) -> list[tuple[Any, ...]]:
        """The commands that take n items."""
        key = self.settings.name
        if self.safe:
            return [self.consumer.take(n)]
        if self._counted:
            return [(self._pop, key, n)]
        first, keep = ((0, n - 1), (n, -1)) if self._fifo else ((-n, -1), (0, -n - 1))
        return [("MULTI",), ("LRANGE", key, *first), ("LTRIM", key, *keep), ("EXEC",)]

    def _next_items(self) -> Steps[None]:
        """Hold the items of the oldest request in flight.

        Raises:
            CommandError: the server refused it, as where the key is no list.
            LeaseError: another consumer put back what this one had.
        """
        replies = yield from self._receiving(1 if self._counted or self.safe else 4)
        most = self._asked.popleft()
        reply = replies[-1]
        if isinstance(reply, list) and len(replies) > 1:
            reply = reply[0]
            if isinstance(reply, list) and not self._fifo:
                reply.reverse()
        if isinstance(reply, CommandError):
            # The others in flight fare alike.
            while self._asked:
                with suppress(CommandError):
                    yield from self._next_items()
            raise self._lease_over() if reply.code == "LEASE" else reply
        items: list[bytes] = [] if reply is None else reply
        self._check_items(items, most)
        self.held.add(items)
        self._dry, self._sized = len(items) < most, True

    def _lease_over(self) -> LeaseError:
        count = self.consumer.leave()
        self.held.forget()
        self.detach()
        return LeaseError(
            f"this consumer was silent for more than lease={self.settings.lease:g} s, and "
            f"recover() put back what it held, {count:,} items that it had among them: they come "
            "again, here or elsewhere; call ack() more often, or make the lease longer"
        )
