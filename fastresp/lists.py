"""``ListBuffer``: a Redis list as a buffer that many push to and many pop from."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from .errors import CommandError, EncodeError, FastrespError, TransportError
from .execute import ReplyCore
from .report import ERRORS_KEPT, Report
from .server import Answers, Server, ServerLike
from .template import Template
from .transports.base import add_report
from .transports.lanes import Waits
from .transports.pipeline import LostConnection
from .transports.stream import wait_for
from .wire.batches import gather
from .wire.writer import CHUNK_SECONDS, Writer

__all__ = ["Delivery", "LeaseError", "ListBuffer", "ListCore", "Order", "Pushed"]

Order: TypeAlias = Literal["fifo", "lifo"]
Delivery: TypeAlias = Literal["at-most-once", "at-least-once"]
T = TypeVar("T")
Steps: TypeAlias = Generator[Waits, None, T]

# Some servers take no command of more arguments.
MOST_ARGUMENTS = 65_536
# A variadic command ends with the item that reaches this size: a larger one is in the way of the
# server's other clients, and 1,000 items of a megabyte would have to fit into its query buffer.
BATCH_BYTES = 1 << 20
# Requests for items in flight, so that the server has the next one while we take the items of
# this one. Their replies are bounded in bytes, too: see ReplyCore.room().
REQUESTS = 8

# Moves items to a consumer's own list. KEYS: the list, the consumer's list, the consumers, the
# consumer's lease. ARGV: most items, the consumer, the lease in ms, whether from the left.
TAKE = """\
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then return redis.error_reply('LEASE is over') end
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
local n, items = tonumber(ARGV[1]), nil
if ARGV[4] == '1' then
  items = redis.call('LRANGE', KEYS[1], 0, n - 1)
  redis.call('LTRIM', KEYS[1], n, -1)
else
  local last = redis.call('LRANGE', KEYS[1], -n, -1)
  redis.call('LTRIM', KEYS[1], 0, -n - 1)
  items = {}
  for i = #last, 1, -1 do items[#items + 1] = last[i] end
end
for i = 1, #items, 5000 do
  redis.call('RPUSH', KEYS[2], unpack(items, i, math.min(i + 4999, #items)))
end
return items"""
# Lets go of the first ARGV[1] items of a consumer's list.
ACK = """\
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 0 then return redis.error_reply('LEASE is over') end
redis.call('SET', KEYS[4], 1, 'PX', ARGV[3])
redis.call('LTRIM', KEYS[2], ARGV[1], -1)
return redis.call('LLEN', KEYS[2])"""
# Puts a consumer's list back where its items came from, if its lease is over, or it is ours.
PUT_BACK = """\
if ARGV[3] == '0' and redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
local count = 0
while true do
  local items = redis.call('LRANGE', KEYS[2], -1000, -1)
  if #items == 0 then break end
  local back = {}
  for i = #items, 1, -1 do back[#back + 1] = items[i] end
  redis.call(ARGV[4] == '1' and 'LPUSH' or 'RPUSH', KEYS[1], unpack(back))
  redis.call('LTRIM', KEYS[2], 0, -#items - 1)
  count = count + #items
end
redis.call('SREM', KEYS[3], ARGV[2])
redis.call('DEL', KEYS[4])
return count"""


class LeaseError(FastrespError):
    """A consumer was silent for longer than its lease, and its items were put back by another."""


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


@dataclass(frozen=True)
class Settings:
    """What a buffer was asked to be; see ListBuffer."""

    key: str | bytes
    batch: int = 1000
    order: Order = "fifo"
    delivery: Delivery = "at-most-once"
    maxlen: int | None = None
    lease: float = 30.0
    timeout: float | None = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.key, (str, bytes)):
            raise TypeError(f"key is a str or bytes, not {self.key!r}")
        # Besides the items there are the name of the command and the key.
        if not isinstance(self.batch, int) or not 1 <= self.batch <= MOST_ARGUMENTS - 2:
            raise ValueError(f"batch is a number from 1 to 65,534, not {self.batch!r}")
        if self.order not in ("fifo", "lifo"):
            raise ValueError(f"order is 'fifo' or 'lifo', not {self.order!r}")
        if self.delivery not in ("at-most-once", "at-least-once"):
            raise ValueError(
                f"delivery is 'at-most-once' or 'at-least-once', not {self.delivery!r}"
            )
        if self.maxlen is not None and not (isinstance(self.maxlen, int) and self.maxlen > 0):
            raise ValueError(f"maxlen is a number above 0, or None, not {self.maxlen!r}")
        if not 0.1 <= self.lease < math.inf:
            raise ValueError(f"lease is a number of seconds of 0.1 or more, not {self.lease!r}")

    @property
    def name(self) -> bytes:
        """The key as bytes."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def beside(self, what: str) -> bytes:
        """The key of what belongs to the list, in the same slot of a cluster."""
        key = self.name
        start = key.find(b"{")
        tagged = start >= 0 and key.find(b"}", start + 2) > 0
        return (key if tagged else b"{" + key + b"}") + b":" + what.encode()


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
        self.held: deque[bytes] = deque()  # taken out of the list, and not given yet
        self._asked: deque[int] = deque()  # most items of each request in flight
        self._replies: deque[Any] = deque()  # to the requests in flight
        self._counted = True  # whether LPOP takes a count
        self._dry = False  # the last request found fewer items than it asked for

    @property
    def safe(self) -> bool:
        """Whether items stay in the server until they are acknowledged."""
        return self.settings.delivery == "at-least-once"

    def attach(self, connection: Any, answers: Answers) -> None:
        """Take over a connected redis-py connection."""
        core = ReplyCore(self.server, decode=None, on_error="return", timeout=self.settings.timeout)
        core.attach(connection)
        self.writer = Writer(chunk_bytes=1 << 16)
        self.writer.max_bulk_bytes = answers.max_bulk_bytes
        self._asked.clear()
        self._replies.clear()
        self._dry = False
        self.core = core

    def detach(self) -> None:
        """Close the connection, if it is open. Items on their way to us are lost with it."""
        core, self.core = self.core, None
        if core is not None:
            core.detach()
            self.given = 0
            if self.safe:
                self.held.clear()  # they are in our list there, which nobody holds any more

    def loss(self) -> TransportError:
        """The exception for a lost connection. Asks the server again: may take seconds."""
        assert self.core is not None
        error = self.core.loss()
        self.detach()
        return error

    def beginning(self) -> Steps[None]:
        """Find out what the server can, and be known there as a consumer."""
        if self.safe:
            self.consumer = uuid.uuid4().hex
            lease = math.ceil(1000 * self.settings.lease)
            keys = self._keys()
            yield from self.calling(
                ("MULTI",), ("SADD", keys[2], self.consumer), ("SET", keys[3], 1, "PX", lease),
                ("EXEC",),
            )  # fmt: skip
        else:
            [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
            # Before 6.2 it took no count.
            wrong = isinstance(reply, CommandError)
            self._counted = not (wrong and "wrong number of arguments" in reply.text)

    @property
    def _pop(self) -> str:
        return "LPOP" if self.settings.order == "fifo" else "RPOP"

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
        source = iter(commands)
        more = True
        while more:
            more = self.writer.fill(source)
            chunk = self.writer.take()
            if chunk is not None:
                self.core.add(chunk)

    def _receiving(self, count: int) -> Steps[list[Any]]:
        """Wait for so many replies; give them."""
        core = self.core
        assert core is not None
        core.touch()
        while len(self._replies) < count:
            lost = None
            try:
                core.step()
            except LostConnection as error:
                lost = error
            self._replies.extend(core.take())
            if len(self._replies) >= count:
                break
            if lost is not None:
                raise lost
            assert core.stream is not None
            yield [(core.stream, core.wait())]
        return [self._replies.popleft() for _ in range(count)]

    def settling(self) -> Steps[None]:
        """Wait for the items on their way to us, and hold them."""
        while self._asked:
            items = yield from self._next_items()
            self.held.extend(items)
        self._dry = False

    def _ask(self, most: int) -> None:
        """Ask for items."""
        key, n = self.settings.name, most
        commands: list[tuple[Any, ...]]
        if self.safe:
            lease = math.ceil(1000 * self.settings.lease)
            commands = [self._script(TAKE, n, self.consumer, lease, self._from_left)]
        elif self._counted:
            commands = [(self._pop, key, n)]
        else:
            first, keep = ((0, n - 1), (n, -1)) if self._from_left else ((-n, -1), (0, -n - 1))
            commands = [("MULTI",), ("LRANGE", key, *first), ("LTRIM", key, *keep), ("EXEC",)]
        self._send(commands)
        self._asked.append(n)

    def _next_items(self) -> Steps[list[bytes]]:
        """The items of the oldest request in flight.

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
                    self.held.extend((yield from self._next_items()))
            raise self._lease_over() if reply.code == "LEASE" else reply
        items: list[bytes] = reply or []
        self._dry = len(items) < most
        return items

    def _lease_over(self) -> LeaseError:
        count, self.given = self.given, 0
        self.held.clear()
        self.consumer = ""
        self.detach()
        return LeaseError(
            f"this consumer was silent for more than lease={self.settings.lease:g} s, and "
            f"recover() put back what it held, {count:,} items that it had among them: they come "
            "again, here or elsewhere; call ack() more often, or make the lease longer"
        )

    # What users ask for

    def popping(self, n: int) -> Steps[list[bytes]]:
        """Take up to n items."""
        yield from self.settling()
        items = [self.held.popleft() for _ in range(min(n, len(self.held)))]
        try:
            while True:
                wanted = n - len(items) - sum(self._asked)
                while wanted > 0 and len(self._asked) < REQUESTS and not self._dry:
                    self._ask(min(wanted, self.settings.batch))
                    wanted -= self._asked[-1]
                if not self._asked:
                    break
                got = yield from self._next_items()
                items = items or got
                if items is not got:
                    items += got
        except BaseException:
            self.held.extendleft(reversed(items))
            raise
        self._dry = False
        self.given += len(items)
        return items

    def taking(self, most: int | None) -> Steps[list[bytes]]:
        """The next items, while more are already on their way; none where the list is empty.

        They count as held until they are given to the user: whoever does adds them to ``given``.
        """
        if self.held:
            items = list(itertools.islice(self.held, most))
            for _ in items:
                self.held.popleft()
            return items
        while True:
            left = math.inf if most is None else most - sum(self._asked)
            while left > 0 and len(self._asked) < REQUESTS and not self._dry:
                self._ask(int(min(left, self.settings.batch)))
                left -= self._asked[-1]
            if not self._asked:
                self._dry = False
                return []
            items = yield from self._next_items()
            if items:
                return items

    def waiting(self, seconds: float) -> Steps[list[bytes]]:
        """Wait for an item until there is one, or so many seconds are over."""
        yield from self.settling()
        core = self.core
        assert core is not None
        left = seconds
        while left > 0:
            # A consumer that waits is alive, and says so.
            part = min(left, self.settings.lease / 3) if self.safe else left
            left -= part
            core.timeout = None if self.settings.timeout is None else self.settings.timeout + part
            try:
                if self.safe:
                    keys, side = self._keys(), "LEFT" if self._from_left else "RIGHT"
                    move = ("BLMOVE", keys[0], keys[1], side, "RIGHT", part)
                    [reply] = yield from self.calling(move)
                    if reply is not None:
                        return [reply]
                    yield from self._acknowledging(0)
                else:
                    # Before 6.0 only whole seconds.
                    part = part if self._counted else math.ceil(part)
                    pop = ("B" + self._pop, self.settings.name, part)
                    [reply] = yield from self.calling(pop)
                    if reply is not None:
                        return [reply[1]]
            finally:
                core.timeout = self.settings.timeout
        return []

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
        if count:
            yield from self.settling()
            yield from self._acknowledging(count)
            self.given -= count
        return self.given

    def _acknowledging(self, count: int) -> Steps[None]:
        lease = math.ceil(1000 * self.settings.lease)
        ack = self._script(ACK, count, self.consumer, lease)
        [reply] = yield from self.calling(ack, errors=True)
        if isinstance(reply, CommandError):
            raise self._lease_over() if reply.code == "LEASE" else reply

    def recovering(self) -> Steps[int]:
        """Put back what consumers hold whose lease is over; give how many items that were."""
        [consumers] = yield from self.calling(("SMEMBERS", self.settings.beside("consumers")))
        count = 0
        for each in consumers:
            name = each.decode()
            if name != self.consumer:
                put_back = self._script(PUT_BACK, "", name, 0, self._from_left, consumer=name)
                [moved] = yield from self.calling(put_back)
                count += moved
        return count

    def ending(self) -> Steps[None]:
        """Put back what was taken and not given, or not acknowledged."""
        yield from self.settling()
        if self.safe and self.consumer:
            yield from self.calling(self._script(PUT_BACK, "", self.consumer, 1, self._from_left))
            self.held.clear()
            self.given, self.consumer = 0, ""
        elif self.held:
            command = "LPUSH" if self._from_left else "RPUSH"
            items = [self.held.popleft() for _ in range(len(self.held))]
            for i in reversed(range(0, len(items), self.settings.batch)):
                back = reversed(items[i : i + self.settings.batch])
                yield from self.calling((command, self.settings.name, *back))

    def measuring(self) -> Steps[int]:
        """How many items there are, those held among them."""
        [length] = yield from self.calling(("LLEN", self.settings.name))
        return int(length) + len(self.held)

    def clearing(self) -> Steps[None]:
        """Remove all items."""
        yield from self.calling(("DEL", self.settings.name))
        if not self.safe:
            self.held.clear()

    # Pushing

    def pushing(self, items: Iterable[Any], push: Push) -> Steps[None]:
        """Push items; what becomes of them is noted in ``push``."""
        yield from self.settling()
        core = self.core
        assert core is not None
        push.begin(core, self.writer.max_bulk_bytes)
        for chunk in push.writer.chunks(push.rows(iter(items))):
            core.add(chunk)
            yield from self._until(push, lambda: core.has_room)
        yield from self.finishing(push)

    def finishing(self, push: Push) -> Steps[None]:
        """Send the whole commands that were made, and wait for their replies."""
        core = self.core
        if core is None or not push.begun:
            return
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


def checked_items(items: object) -> None:
    """Refuse what is iterable but surely not an iterable of items."""
    if isinstance(items, (str, bytes, bytearray)):
        raise TypeError(f"items is an iterable of items, not one {type(items).__name__}")


def checked_count(n: object) -> None:
    """Refuse what is no number of items."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n is a number of items of 0 or more, not {n!r}")


class ListBuffer:
    """A Redis list as a buffer: many push to it, many pop from it, in bulk.

    Used in a ``with`` statement, or closed with ``close()``. It connects with the first call, and
    again after a connection was lost. One thread at a time may use one.

        with fastresp.ListBuffer("queue", server="redis://localhost:6379/0") as buffer:
            buffer.push(lines)
            for item in buffer.consume(block=5.0):
                ...

    Args:
        key: of the list.
        server: a URL, a ``redis.Redis`` client, or None for ``REDIS_URL``, else localhost.
        batch: items that one command pushes or pops at most, from 1 to 65,534.
        order: ``"fifo"`` pops the oldest items first, ``"lifo"`` the newest. Items are always
            pushed at the right end (RPUSH).
        delivery: ``"at-most-once"``: an item that is popped is gone from the server; it is lost
            if this process dies with it, or the connection while it is on its way.
            ``"at-least-once"``: it stays in the server, in a list of this consumer's, until
            ``ack()``; after a death ``recover()`` puts it back, and somebody gets it again. No
            server has a command that moves many items, so a script does, in one step.
        maxlen: the list is cut to the newest so many items with each push, in one transaction.
        lease: with at-least-once, how many seconds this consumer may be silent before ``recover()``
            of another takes it for dead.
        timeout: give up when nothing moves for so many seconds; None for never.

    Raises:
        TypeError, ValueError: an argument can't be.

    Every method may raise TransportError (the server can't be used, or was lost),
    TransportTimeout, CommandError (the server's error reply, such as WRONGTYPE) and, with
    at-least-once, LeaseError.
    """

    def __init__(
        self,
        key: str | bytes,
        *,
        server: ServerLike = None,
        batch: int = 1000,
        order: Order = "fifo",
        delivery: Delivery = "at-most-once",
        maxlen: int | None = None,
        lease: float = 30.0,
        timeout: float | None = 30.0,
    ) -> None:
        settings = Settings(key, batch, order, delivery, maxlen, lease, timeout)
        self._core = ListCore(Server(server), settings)

    def __repr__(self) -> str:
        settings = self._core.settings
        return f"<ListBuffer {settings.key!r}, {settings.order}, {settings.delivery}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except FastrespError as second:
            if error is None:
                raise
            error.add_note(f"fastresp: {second}")

    def close(self) -> None:
        """Put back what was taken from the list and not given, and end the connection.

        With at-least-once also what was given and not acknowledged.
        """
        try:
            if self._core.core is not None:
                self._run(self._core.ending())
        finally:
            self._core.detach()

    def push(self, items: Iterable[Any]) -> Pushed:
        """Push items at the right end, many with one command.

        Args:
            items: any iterable of str, bytes, int, float and what else ``fastresp.pack`` takes.

        Returns:
            The report, the length of the list afterwards, and how many items ``maxlen`` dropped.

        Raises:
            CommandErrors: the server refused some of them.
            EncodeError: an item has no RESP form; those before it were pushed, but for those of
                its batch.
        """
        checked_items(items)
        push = Push(self._core.settings)
        try:
            self._run(self._core.pushing(items, push))
        except TransportError as error:
            error.report = push.told()
            raise
        except BaseException as error:
            with suppress(TransportError):
                self._run(self._core.finishing(push))
            add_report(error, push.told(), str(push.told()))
            if isinstance(error, EncodeError):
                raise push.located(error) from None
            raise
        report = push.told()
        report.raise_for_errors()
        return Pushed(report, push.length, push.dropped)

    def pop(self, n: int) -> list[bytes]:
        """Pop up to n items; fewer only where the list has no more."""
        checked_count(n)
        return self._run(self._core.popping(n))

    def consume(self, max_items: int | None = None, block: float = 0.0) -> Iterator[bytes]:
        """Pop items one after another, with more on their way meanwhile.

        Args:
            max_items: end after so many; None for no end.
            block: when the list is empty, wait up to so many seconds for an item, then end.

        An iterator that is left before its end leaves what is on its way to the next call, or
        ``close()``, which puts it back.
        """
        core = self._core
        left = math.inf if max_items is None else max_items
        while left > 0:
            most = None if max_items is None else int(left)
            items = self._run(core.taking(most)) or self._run(core.waiting(block))
            if not items:
                return
            left -= len(items)
            yield from self._given(items)

    def drain(self) -> Iterator[list[bytes]]:
        """Pop all there is, in batches, with more on their way meanwhile."""
        core = self._core
        while items := self._run(core.taking(None)):
            core.given += len(items)
            yield items

    def _given(self, items: list[bytes]) -> Iterator[bytes]:
        """Give items one by one; hold those that were not asked for."""
        core, at = self._core, 0
        try:
            for at, item in enumerate(items, 1):  # noqa: B007
                core.given += 1
                yield item
        finally:
            core.held.extendleft(reversed(items[at:]))

    def ack(self, n: int | None = None) -> int:
        """Tell the server that the first n items given, or all, are done with; it forgets them.

        Returns:
            How many were given and are not acknowledged.

        Raises:
            ValueError: there are not so many, or delivery is not ``"at-least-once"``.
        """
        return self._run(self._core.acknowledging(n))

    def recover(self) -> int:
        """Put back, at the end where it came from, what consumers hold that died.

        That is those whose lease is over. Returns how many items it was.
        """
        return self._run(self._core.recovering())

    def __len__(self) -> int:
        """Items in the list, and those taken from it and not given."""
        return self._run(self._core.measuring())

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Remove all items."""
        self._run(self._core.clearing())

    def _run(self, steps: Steps[T]) -> T:
        """Run some steps, waiting with poll()."""
        core = self._core
        if core.core is None:
            connection, answers = core.server.open(core.settings.timeout)
            core.attach(connection, answers)
            self._run(core.beginning())
        try:
            while True:
                wait_for(next(steps))
        except StopIteration as end:
            result: T = end.value
            return result
        except LostConnection:
            raise core.loss() from None
        except TransportError:
            core.detach()
            raise
        finally:
            steps.close()  # what was interrupted puts its things in order now
