"""What a list buffer says and hears: the sync and the asyncio one share it."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from types import UnionType
from typing import Any, TypeAlias, TypeVar

from ..errors import CommandError, LeaseError, TransportError
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
from .push import BATCH_BYTES, Push
from .settings import ACK, PUT_BACK, TAKE, Settings

__all__ = ["ListCore", "Steps"]

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
        self.consumer = ""
        self.given = 0  # items that the user has, and has not acknowledged
        self._acknowledged = 0  # and that this consumer has acknowledged, as far as we know
        self.held: deque[bytes] = deque()  # taken out of the list, and not given yet
        self._asked: deque[int] = deque()  # most items of each request in flight
        self._replies: deque[Any] = deque()  # to the requests in flight
        self._last_request: tuple[Any, list[Chunk]] = None, []  # which it was, and its bytes
        self._counted = True  # whether LPOP takes a count
        self._dry = False  # the last request found fewer items than it asked for
        self._sized = False  # the size of some items is known
        self._others = 0  # replies that are no bytes, over this connection
        self.busy = False  # a call is under way
        # And what came as a whole, likewise: the list of a reply, or a column. One of the three.
        self._batch: list[bytes] = []
        self._column: StringColumn | None = None
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
        core = ReplyCore(
            self.server,
            decode=None,
            on_error="collect",
            timeout=self.settings.timeout,
            max_reply_bytes=self._most_bytes,
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
                self._forget()  # these are in our list there: see _rejoining()

    def _forget(self) -> None:
        """Hold nothing any more."""
        self.held.clear()
        self._batch = []
        self._column = None

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
            if self.consumer:
                yield from self._rejoining()
            if not self.consumer:
                yield from self._joining()
        else:
            [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
            # Before 6.2 it took no count.
            wrong = isinstance(reply, CommandError)
            self._counted = not (wrong and "wrong number of arguments" in reply.text)

    def _joining(self) -> Steps[None]:
        # recover() puts its items back at the end that they came from.
        consumer = f"{self.settings.order}-{uuid.uuid4().hex}"
        keys = self._keys(consumer)
        *_, done = yield from self.calling(
            ("MULTI",), ("HSET", keys[2], consumer, 0), ("SET", keys[3], 1, "PX", self._lease_ms),
            ("EXEC",),
        )  # fmt: skip
        self._expect(list, "EXEC", done)
        for reply in done:
            if isinstance(reply, CommandError):
                raise reply
        self.consumer, self._acknowledged = consumer, 0

    def _rejoining(self) -> Steps[None]:
        """After a lost connection: put back what the user does not have, and keep the rest.

        Raises:
            LeaseError: recover() put back what the user has.
        """
        if not self.given:
            yield from self._putting_back()
            return
        given = self._acknowledged + self.given
        script = self._script(PUT_BACK, "", self.consumer, 1, self._from_left, given)
        [reply] = yield from self.calling(script, errors=True)
        self._check_lease(reply)
        if not 0 <= reply <= given:
            assert self.core is not None
            self.core.misunderstood("a script for items in work", reply)
        # The last acknowledgement may have arrived, or not: now we know.
        self._acknowledged, self.given = reply, given - reply
        yield from self._acknowledging(0)

    def _putting_back(self) -> Steps[None]:
        """Put back what this consumer holds in the server, and be it no longer."""
        yield from self.calling(
            self._script(PUT_BACK, "", self.consumer, 1, self._from_left, ""),
        )
        self._forget()
        self.given, self.consumer = 0, ""

    @property
    def _most_bytes(self) -> int:
        """How large a reply may be."""
        return REPLY_BYTES + self.settings.batch * ITEM_BYTES

    def _expect(self, kind: type[Any] | UnionType, question: str, reply: Any) -> None:
        """Give up the connection if a reply is of another type, for others may be missing, too.

        Raises:
            LostConnection: it is.
        """
        if not isinstance(reply, kind):
            assert self.core is not None
            self.core.misunderstood(question, reply)

    def _check_lease(self, reply: Any) -> None:
        """Raise an error reply, as a LeaseError where it is that."""
        if isinstance(reply, CommandError):
            raise self._lease_over() if reply.code == "LEASE" else reply
        self._expect(int, "a script for items in work", reply)

    @property
    def _pop(self) -> str:
        return "LPOP" if self.settings.order == "fifo" else "RPOP"

    @property
    def _lease_ms(self) -> int:
        return math.ceil(1000 * self.settings.lease)

    @property
    def _from_left(self) -> int:
        return int(self.settings.order == "fifo")

    def _keys(self, consumer: str = "") -> list[bytes]:
        """The list, a consumer's list, the consumers, the consumer's lease."""
        consumer = consumer or self.consumer
        names = (f"processing:{consumer}", "consumers", f"lease:{consumer}")
        return [self.settings.name, *map(self.settings.beside, names)]

    def _script(self, script: str, *arguments: object, consumer: str = "") -> tuple[Any, ...]:
        # The whole text each time: nothing beside the items, and no server forgets it.
        return ("EVAL", script, 4, *self._keys(consumer), *arguments)

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
        self._hold_singly()

    def _ask(self, most: int) -> None:
        """Ask for items, to be held."""
        self._send_request(most)
        self._asked.append(most)

    def _send_request(self, n: int) -> None:
        """Ask for n items; as a rule in the same words as the last time."""
        assert self.core is not None
        which = n, self.consumer, self._counted
        if self._last_request[0] != which:
            self._last_request = which, list(self._encoded(self._request(n)))
        for chunk in self._last_request[1]:
            self.core.add(chunk)

    def _request(self, n: int) -> list[tuple[Any, ...]]:
        """The commands that take n items."""
        key = self.settings.name
        if self.safe:
            return [self._script(TAKE, n, self.consumer, self._lease_ms, self._from_left)]
        if self._counted:
            return [(self._pop, key, n)]
        first, keep = ((0, n - 1), (n, -1)) if self._from_left else ((-n, -1), (0, -n - 1))
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
            if isinstance(reply, list) and not self._from_left:
                reply.reverse()
        if isinstance(reply, CommandError):
            # The others in flight fare alike.
            while self._asked:
                with suppress(CommandError):
                    yield from self._next_items()
            raise self._lease_over() if reply.code == "LEASE" else reply
        items: list[bytes] = [] if reply is None else reply
        self._check_items(items, most)
        if self.held:
            self.held.extend(items)
        elif self._batch:
            self._batch.extend(items)
        else:
            self._batch = items  # to hold and give 1,000 singly takes 20 us
        self._dry, self._sized = len(items) < most, True

    def _check_items(self, items: Any, most: int) -> None:
        """Refuse what is no list of items, or of more than were asked for.

        Raises:
            LostConnection: it is none.
        """
        core = self.core
        assert core is not None
        self._expect(list, "a pop", items)
        if len(items) > most:
            core.misunderstood(f"a pop of {most:,} items", items)
        if core.reader.others != self._others:
            # Something but bytes has come since the last time: rare, and right elsewhere.
            self._others = core.reader.others
            for item in items:
                self._expect(bytes, "an item of a pop", item)

    def _lease_over(self) -> LeaseError:
        count, self.given = self.given, 0
        self._forget()
        self.consumer = ""
        self.detach()
        return LeaseError(
            f"this consumer was silent for more than lease={self.settings.lease:g} s, and "
            f"recover() put back what it held, {count:,} items that it had among them: they come "
            "again, here or elsewhere; call ack() more often, or make the lease longer"
        )

    # What users ask for

    def give(self, n: int | None = None) -> list[bytes]:
        """The first n of the items that are held, or all: from here on the user has them."""
        if n is not None and len(self._batch) > n:
            self._hold_singly()
        items, self._batch = self._batch, []
        if self.held:
            items = list(itertools.islice(self.held, n))
            if len(items) == len(self.held):
                self.held.clear()
            else:
                for _ in items:
                    self.held.popleft()
        self.given += len(items)
        return items

    def take_back(self, items: list[bytes]) -> None:
        """Hold what the user did not get after all."""
        self.held.extendleft(reversed(items))
        self.given -= len(items)

    def give_column(self) -> StringColumn:
        """The column that is held: from here on the user has it."""
        column, self._column = self._column, None
        assert column is not None
        self.given += len(column)
        return column

    def take_column_back(self, column: StringColumn) -> None:
        """Hold what the user did not get after all."""
        self._column = column
        self.given -= len(column)

    def _hold_singly(self) -> None:
        """Hold item by item what came as a whole."""
        batch, self._batch = self._batch, []
        self.held.extend(batch)
        column, self._column = self._column, None
        if column is not None:
            self.held.extend(item for item in column.to_bytes() if item is not None)

    def popping(self, n: int) -> Steps[None]:
        """Hold n items, or as many as there are."""
        yield from self.settling()
        while True:
            wanted = n - len(self.held) - len(self._batch) - sum(self._asked)
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
            items = self.give(n)
            self.given -= len(items)
            self._column = string_column(items, text=False)
            return
        core = self.core
        assert core is not None
        asked, columns = self._columns or (0, None)
        self._columns = None
        if columns is None or asked != n:
            columns = ReplyColumns(
                ["item"], text=False, fixed=False, max_reply_bytes=self._most_bytes
            )
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
        self._column = string_column([], text=False) if batch is None else batch.columns[0]

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
            if columns.replies > requests or columns.rows > asked:
                core.misunderstood(f"a pop of {asked:,} items", columns.rows)
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
        self._hold_singly()
        return found

    def holding_batch(self, most: int | None) -> Steps[bool]:
        """Hold some items, as they came; False where the list is empty."""
        while not (self.held or self._batch):
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
        if reply is None:
            return False
        self._expect(list, "a pop that waits", reply)
        self._expect(bytes, "a pop that waits", reply[1] if len(reply) == 2 else reply)
        self.held.append(reply[1])
        return True

    def _waiting_safely(self, seconds: float) -> Steps[bool]:
        # From one end to the same end: nothing moves, but it waits. To take the item is left to the
        # script, which sees whether we were taken for dead meanwhile.
        side = "LEFT" if self._from_left else "RIGHT"
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
        count = self.given if n is None else n
        if not 0 <= count <= self.given:
            raise ValueError(f"{count:,} items can't be acknowledged: {self.given:,} were given")
        yield from self.settling()
        yield from self._acknowledging(count)
        return self.given

    def _acknowledging(self, count: int) -> Steps[None]:
        done = self._acknowledged + count
        [reply] = yield from self.calling(
            self._script(ACK, done, self.consumer, self._lease_ms), errors=True
        )
        self._check_lease(reply)
        self._acknowledged, self.given = done, self.given - count

    def recovering(self) -> Steps[int]:
        """Put back what consumers hold whose lease is over; give how many items that were."""
        [consumers] = yield from self.calling(("HKEYS", self.settings.beside("consumers")))
        self._expect(list, "HKEYS", consumers)
        count = 0
        for each in consumers:
            if not isinstance(each, bytes):
                assert self.core is not None
                self.core.misunderstood("HKEYS", consumers)
            name = each.decode(errors="surrogateescape")
            if name != self.consumer:
                left = int(name.startswith("fifo"))
                put_back = self._script(PUT_BACK, "", name, 0, left, "", consumer=name)
                [moved] = yield from self.calling(put_back)
                self._expect(int, "a script for items in work", moved)
                count += moved
        return count

    def needs_ending(self) -> bool:
        """Whether there is a connection to end, or something to put back over a new one."""
        if self.core is None:
            self.given = 0  # nothing of it has to stay there
        holds = self.held or self._batch or self._column
        return self.core is not None or bool(holds or self.consumer)

    def lease_tells(self) -> AbstractContextManager[None]:
        """Where the end needs a new connection that can't be had, the lease does what is left."""
        lost = self.safe and self.core is None
        return suppress(TransportError) if lost else nullcontext()

    def note_loss(self, error: BaseException) -> None:
        """Say in an exception of the end what could not be put back."""
        count = len(self.held) + len(self._batch) + len(self._column or ())
        if count:
            error.add_note(
                f"fastresp: {count:,} items that were popped and not given are still "
                "held; pop() gives them, and close() tries again to put them back"
            )

    def ending(self) -> Steps[None]:
        """Put back what was taken and not given, or not acknowledged."""
        with suppress(CommandError):  # what is held goes back all the same
            yield from self.settling()
        self._hold_singly()
        if self.safe and self.consumer:
            yield from self._putting_back()
        elif self.held:
            command = "LPUSH" if self._from_left else "RPUSH"
            while self.held:
                # The last ones first, and few that are large: see push.BATCH_BYTES.
                back: list[bytes] = []
                gather(reversed(self.held), back, self.settings.batch, BATCH_BYTES, math.inf)
                [length] = yield from self.calling((command, self.settings.name, *back))
                self._expect(int, command, length)
                for _ in back:
                    self.held.pop()

    def measuring(self) -> Steps[int]:
        """How many items there are, those held among them."""
        [length] = yield from self.calling(("LLEN", self.settings.name))
        self._expect(int, "LLEN", length)
        return int(length) + len(self.held)

    def clearing(self) -> Steps[None]:
        """Remove all items."""
        keys = self._keys()[:2] if self.safe else [self.settings.name]
        [count] = yield from self.calling(("DEL", *keys))
        self._expect(int, "DEL", count)
        self._forget()
        self.given = 0

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
        if core is None or not push.begun:
            return  # nothing has gone
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
