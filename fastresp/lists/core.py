"""What a list buffer says and hears: the sync and the asyncio one share it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import get_ident
from typing import Any, TypeAlias, TypeVar

from ..errors import CommandError, LeaseError, ProtocolError, TransportError
from ..forks import own
from ..replies import ReplyCore
from ..server import Answers, Server
from ..source import released
from ..transports.lanes import Waits
from ..transports.pipeline import LostConnection
from ..wire.arrow_out import StringColumn
from ..wire.batches import gather
from ..wire.buffer import Chunk
from ..wire.reply_columns import ReplyColumns, string_column
from ..wire.writer import Writer
from .consumer import Consumer
from .held import Held
from .push import BATCH_BYTES, Push
from .settings import Settings

__all__ = ["ListCore", "Steps"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Waits, None, T]

# Requests for items in flight, so that the server has the next one while we take the items of
# this one. Their replies are bounded in bytes, too: see ReplyCore.room().
REQUESTS = 8
# How long the server is asked to wait for an item at once.
WAIT_S = 10.0


class ListCore:
    """What a ListBuffer says and hears over its connection; the sync and asyncio ones share it.

    Its generators yield what the connection waits for whenever there is nothing to do but wait.

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
        own(self, ListCore._let_go)
        core = ReplyCore(
            self.server, decode=None, on_error="collect", timeout=self.settings.timeout
        )
        core.attach(connection)
        self.writer = Writer(chunk_bytes=1 << 16)
        self.writer.max_bulk_bytes = answers.max_bulk_bytes
        self._asked.clear()
        self._replies.clear()
        self._dry = self._sized = False
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
                "this ListBuffer is in the midst of another call; make one for each task or thread"
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
                yield from self.calling(*self.consumer.joining(name))
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
        self.consumer.rejoined(reply)
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back what this consumer holds in the server, and be it no longer."""
        yield from self.calling(self.consumer.put_back())
        self.held.forget()
        self.consumer.leave()

    def _check_lease(self, reply: Any) -> None:
        """Raise an error reply, as a LeaseError where it is that."""
        if isinstance(reply, CommandError):
            raise self._lease_over() if reply.code == "LEASE" else reply

    @property
    def _fifo(self) -> bool:
        return self.settings.order == "fifo"

    @property
    def _pop(self) -> str:
        return "LPOP" if self._fifo else "RPOP"

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
        """Wait for so many replies; give them."""
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
        """Take the replies that have come; return whether there are so many now."""
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
        if not isinstance(reply, list | None):
            assert self.core is not None
            offset = self.core.reader.offset
            self.detach()
            raise ProtocolError(f"the server's reply to a pop is no list: {reply!r:.40}", offset)
        items: list[bytes] = reply or []
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

    # What users ask for

    def give(self, n: int | None = None) -> list[bytes]:
        """The first n of the items that are held, or all: from here on the user has them."""
        items = self.held.take(n)
        self.consumer.given += len(items)
        return items

    def take_back(self, items: list[bytes]) -> None:
        """Hold what the user did not get after all."""
        self.held.take_back(items)
        self.consumer.given -= len(items)

    def give_column(self) -> StringColumn:
        """The column that is held: from here on the user has it."""
        column, self.held.column = self.held.column, None
        assert column is not None
        self.consumer.given += len(column)
        return column

    def take_column_back(self, column: StringColumn) -> None:
        """Hold what the user did not get after all."""
        assert self.held.column is None
        self.held.column = column
        self.consumer.given -= len(column)

    def popping(self, n: int) -> Steps[None]:
        """Hold n items, or as many as there are."""
        yield from self.settling()
        while True:
            wanted = n - len(self.held) - sum(self._asked)
            while wanted > 0 and len(self._asked) < self._depth and not self._dry:
                self._ask(min(wanted, self.settings.batch))
                wanted -= self._asked[-1]
            if not self._asked:
                break
            yield from self._next_items()
        self._dry = False

    def popping_column(self, n: int) -> Steps[None]:
        """Hold up to n items as an Arrow array, for ``give_column()``."""
        yield from self.settling()
        if self.held or not (self._counted or self.safe):
            yield from self.popping(n)
            self.held.column = string_column(self.held.take(n), text=False)
            return
        core = self.core
        assert core is not None
        asked, columns = self._columns or (0, None)
        self._columns = None
        if columns is None or asked != n:
            columns = ReplyColumns(["item"], text=False, fixed=False)
        stream = core.stream
        assert stream is not None
        stream.sink = columns
        try:
            yield from self._filling(columns, n)
        except BaseException as failure:
            if not self.safe:
                self._keep(columns)
            if not isinstance(failure, LostConnection | TransportError):
                self.detach()  # replies are on their way that nobody would know what to do with
            raise
        finally:
            stream.sink = core.reader
        self._keep(columns)
        if columns.errors:
            error = CommandError(columns.errors[0][1].decode(errors="replace"))
            raise self._lease_over() if error.code == "LEASE" else error
        columns.absent.clear()
        self._columns = n, columns

    def _keep(self, columns: ReplyColumns) -> None:
        """Hold what has come as a column."""
        batch = columns.take(columns.rows) if columns.rows else None
        self.held.column = string_column([], text=False) if batch is None else batch.columns[0]

    def _filling(self, columns: ReplyColumns, n: int) -> Steps[None]:
        """Let items come into columns, until there are n, or the list has no more."""
        core, batch = self.core, self.settings.batch
        assert core is not None
        first = requests = columns.replies
        before, asked = core.window.acknowledged - first, 0
        core.touch()
        while True:
            core.acknowledge(before + columns.replies)
            self._sized = self._sized or columns.replies > first
            # Fewer than were asked for: there are no more.
            dry = columns.rows < min(n, (columns.replies - first) * batch) or columns.errors
            while asked < n and requests - columns.replies < self._depth and not dry:
                self._send_request(min(batch, n - asked))
                asked, requests = min(n, asked + batch), requests + 1
            if columns.replies == requests:
                return
            replies = columns.replies
            core.step()
            if columns.replies == replies:
                assert core.stream is not None
                yield [(core.stream, core.wait())]

    def holding(self, most: int | None) -> Steps[bool]:
        """Hold some items singly, while more are on their way; False where the list is empty."""
        found = yield from self.holding_batch(most)
        self.held.take_apart()
        return found

    def holding_batch(self, most: int | None) -> Steps[bool]:
        """Hold some items, as they came; False where the list is empty."""
        while not self.held:
            left = math.inf if most is None else most - sum(self._asked)
            while left > 0 and len(self._asked) < self._depth and not self._dry:
                self._ask(int(min(left, self.settings.batch)))
                left -= self._asked[-1]
            if not self._asked:
                self._dry = False
                return False
            yield from self._next_items()
        return True

    def waiting(self, seconds: float) -> Steps[bool]:
        """Wait for an item to hold; False when so many seconds are over."""
        yield from self.settling()
        core = self.core
        assert core is not None
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            # In parts: a consumer that waits is alive, and says so.
            part = min(left, self.settings.lease / 3 if self.safe else WAIT_S)
            core.timeout = None if self.settings.timeout is None else self.settings.timeout + part
            try:
                found = yield from self._waiting_safely(part) if self.safe else self._waiting(part)
            finally:
                core.timeout = self.settings.timeout
            if found:
                return True
        return False

    def _waiting(self, seconds: float) -> Steps[bool]:
        # Before 6.0 only whole seconds.
        seconds = seconds if self._counted else math.ceil(seconds)
        [reply] = yield from self.calling(("B" + self._pop, self.settings.name, seconds))
        if reply is not None:
            self.held.add([reply[1]])
        return reply is not None

    def _waiting_safely(self, seconds: float) -> Steps[bool]:
        # From one end to the same end: nothing moves, but it waits. To take the item is left to the
        # script, which sees whether we were taken for dead meanwhile.
        side = "LEFT" if self._fifo else "RIGHT"
        name = self.settings.name
        [reply] = yield from self.calling(("BLMOVE", name, name, side, side, seconds))
        if reply is None:
            yield from self._acknowledging(0)
            return False
        found = yield from self.holding(1)  # unless another consumer was first
        return found

    def acknowledging(self, n: int | None) -> Steps[int]:
        """Let the server forget the first n items given; give how many it still keeps.

        Raises:
            ValueError: there are not so many.
            LeaseError: they were put back already.
        """
        if not self.safe:
            raise ValueError("ack() is for delivery='at-least-once': nothing else waits for it")
        given = self.consumer.given
        count = given if n is None else n
        if not 0 <= count <= given:
            raise ValueError(f"{count:,} items can't be acknowledged: {given:,} were given")
        yield from self.settling()
        yield from self._acknowledging(count)
        return self.consumer.given

    def _acknowledging(self, count: int) -> Steps[None]:
        [reply] = yield from self.calling(self.consumer.acknowledge(count), errors=True)
        self._check_lease(reply)
        self.consumer.acknowledging_returned(count)

    def recovering(self) -> Steps[int]:
        """Put back what consumers hold whose lease is over; give how many items that were."""
        [consumers] = yield from self.calling(("HKEYS", self.settings.beside("consumers")))
        count = 0
        for each in consumers:
            name = each.decode()
            if name != self.consumer.name:
                [moved] = yield from self.calling(self.consumer.recover(name))
                count += moved
        return count

    def needs_ending(self) -> bool:
        """Whether there is a connection to end, or something to put back over a new one."""
        if self.core is None:
            self.consumer.given = 0  # nothing of it has to stay there
        return self.core is not None or bool(self.held or self.consumer.name)

    def lease_tells(self) -> AbstractContextManager[None]:
        """Where the end needs a new connection that can't be had, the lease does what is left."""
        lost = self.safe and self.core is None
        return suppress(TransportError) if lost else nullcontext()

    def note_loss(self, error: BaseException) -> None:
        """Say in an exception of the end what could not be put back."""
        if self.held:
            error.add_note(
                f"fastresp: {len(self.held):,} items that were popped and not given are still "
                "held; pop() gives them, and close() tries again to put them back"
            )
        doubtful, self.doubtful = self.doubtful, 0
        if doubtful:
            error.add_note(
                f"fastresp: {doubtful:,} items were on their way back into the list, and are there "
                "or lost; look at the list to find out"
            )

    def ending(self) -> Steps[None]:
        """Put back what was taken and not given, or not acknowledged."""
        with suppress(CommandError):  # what is held goes back all the same
            yield from self.settling()
        self.held.take_apart()
        if self.safe and self.consumer.name:
            yield from self._putting_back()
        else:
            yield from self._returning(self.held.singly)

    def _returning(self, held: deque[bytes]) -> Steps[None]:
        """Push what is held at the end where it came from.

        At most once: what may have arrived when the connection is lost is not pushed again.
        """
        command = "LPUSH" if self._fifo else "RPUSH"
        while held:
            # The last ones first, and few that are large: see push.BATCH_BYTES.
            back: list[bytes] = []
            gather(reversed(held), back, self.settings.batch, BATCH_BYTES, math.inf)
            for _ in back:
                held.pop()
            core = self.core
            assert core is not None
            try:
                yield from self.calling((command, self.settings.name, *back))
            except BaseException as error:
                if isinstance(error, CommandError) or core.window.unsent:
                    held.extend(reversed(back))
                else:
                    self.doubtful += len(back)
                raise

    def measuring(self) -> Steps[int]:
        """How many items there are, those held among them."""
        [length] = yield from self.calling(("LLEN", self.settings.name))
        return int(length) + len(self.held)

    def clearing(self) -> Steps[None]:
        """Remove all items."""
        if self.safe:
            *_, replies = yield from self.calling(*self.consumer.clear())
            self.consumer.cleared()
            with suppress(LeaseError):  # what it had was back in the list, and is gone, too
                self._check_lease(replies[1])
        else:
            yield from self.calling(("DEL", self.settings.name))
            self.consumer.given = 0
        self.held.forget()

    # Pushing

    def pushing(self, items: Iterable[Any], push: Push) -> Steps[None]:
        """Push items; what becomes of them is noted in ``push``."""
        yield from self.settling()
        core = self.core
        assert core is not None
        with self.disturbed:
            source = push.begin(core, items, self.writer.max_bulk_bytes)
        with released(source):
            chunks = push.writer.chunks(source)
            while True:
                with self.disturbed:
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                core.add(chunk)
                yield from self._until(push, lambda: core.has_room)
        yield from self.finishing(push)

    def finishing(self, push: Push) -> Steps[None]:
        """Send the whole commands that were made, and wait for their replies."""
        core = self.core
        if core is None or not push.begun_over(core):
            return  # nothing has gone, or the connection is lost
        chunk = push.writer.take()
        if chunk is not None:
            core.add(chunk)
        yield from self._until(push, lambda: core.finished)

    def _until(self, push: Push, reached: Callable[[], bool]) -> Steps[None]:
        """Move bytes both ways until something is reached."""
        core = self.core
        assert core is not None
        core.touch()
        while True:
            lost = None
            try:
                core.step()
            except LostConnection as error:
                lost = error
            push.take(core.take())
            if lost is not None:
                raise lost
            if reached():
                return
            assert core.stream is not None
            yield [(core.stream, core.wait())]
