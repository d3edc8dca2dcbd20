"""Pop items, each at most once: prefetch them, and store them until the caller gets them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from ..encode.columns.arrow_out import StringColumn
from ..outcome.errors import CommandError, LeaseError, TransportError
from ..replies.reply_columns import ReplyColumns, string_column
from ..resp.buffer import Chunk
from ..transports.connection import LostConnection
from ..transports.driver import Steps
from .connection import ListConnection, SlotMoved
from .settings import BATCH_BYTES, Arguments, Settings, recover
from .variadic import gather

__all__ = ["AtMostOnce", "PoppedItems"]

# Maximum requests in flight: the server runs the next requests while we read a reply.
# ReplyCore.room() also limits the bytes of the replies.
REQUESTS = 8
# Maximum wait of a blocking command.
WAIT_S = 10.0


class PoppedItems:
    """Items in list order, in the form in which they arrived.

    Attributes:
        column: the first items, as an Arrow column, or None.
        items: the items after the column.
        batch: the items after ``items``, in the list that a reply returned. They are moved to
            ``items`` only if necessary, since moving 1,000 items takes 20 us.
        delivered: number of items that were returned to the caller and are not yet acknowledged.
    """

    def __init__(self) -> None:
        self.column: StringColumn | None = None
        self.items: deque[bytes] = deque()
        self.batch: list[bytes] = []
        self.delivered = 0

    def __len__(self) -> int:
        count = len(self.items) + len(self.batch)
        return count if self.column is None else count + len(self.column)

    def forget(self) -> None:
        self.column = None
        self.items.clear()
        self.batch = []

    def add(self, items: list[bytes]) -> None:
        if self.items:
            self.items.extend(items)
        elif self.batch:
            self.batch.extend(items)
        else:
            self.batch = items

    def split_all(self) -> None:
        """Move all items to ``items``."""
        if self.column is not None:
            column, self.column = self.column, None
            first = column.to_bytes()
            first.reverse()
            self.items.extendleft(item for item in first if item is not None)
        batch, self.batch = self.batch, []
        self.items.extend(batch)

    def take(self, n: int | None) -> list[bytes]:
        """Remove and return the first n items, or all items if n is None."""
        in_a_batch = self.column is None and not self.items
        if in_a_batch and (n is None or n >= len(self.batch)):
            items, self.batch = self.batch, []
            return items
        self.split_all()
        items = list(islice(self.items, n))
        if len(items) == len(self.items):
            self.items.clear()
        else:
            for _ in items:
                self.items.popleft()
        return items

    def deliver(self, n: int | None = None) -> list[bytes]:
        """Remove and return the first n items, or all; add the number to ``delivered``."""
        items = self.take(n)
        self.delivered += len(items)
        return items

    def deliver_column(self) -> StringColumn:
        """Remove and return the column; add the number of its items to ``delivered``."""
        column, self.column = self.column, None
        assert column is not None
        self.delivered += len(column)
        return column

    def take_back(self, items: list[bytes] | StringColumn) -> None:
        """Put items back at the front, because the caller did not get them."""
        self.delivered -= len(items)
        if isinstance(items, StringColumn):
            assert self.column is None
            self.column = items
            return
        if self.column is not None:
            self.split_all()
        self.items.extendleft(reversed(items))


class AtMostOnce:
    """Pops items with LPOP or RPOP, which remove them from the server.

    The methods are generators, or return generator functions, and run over the open connection.
    Popped items are stored in ``popped``.

    Attributes:
        safe: whether items stay in the server until they are acknowledged.
        in_doubt: number of items that were put back or lost: it is unknown which, since the
            connection was lost.
        name: the name of this consumer in the server; empty if it is not registered.
        acknowledged: number of items acknowledged by calls that returned, under all names.
    """

    safe = False
    in_doubt = acknowledged = 0
    name = ""
    # Whether LPOP and RPOP accept a count; if not, each request is a transaction.
    _accepts_count = True

    def __init__(self, connection: ListConnection, settings: Settings, popped: PoppedItems) -> None:
        self.connection = connection
        self.settings = settings
        self.popped = popped
        self._requests: deque[int] = deque()  # number of items requested by each request in flight
        self._last_request: tuple[int, list[Chunk]] = -1, []  # number of items, and the commands
        self._exhausted = False  # the last reply had fewer items than requested
        self._size_known = False  # the size of some items is known
        self._others = 0  # number of values other than bytes received over this connection
        # For the last column: the number of requested items, and the parser. The parser is reused,
        # since it knows how much memory to allocate.
        self._columns: tuple[int, ReplyColumns] | None = None

    # Methods that AtLeastOnce overrides

    def beginning(self) -> Steps[None]:
        """Prepare a new connection."""
        [reply] = yield from self.calling((self._pop, self.settings.name, 0), errors=True)
        # Servers before 6.2 refuse the count.
        wrong = isinstance(reply, CommandError)
        self._accepts_count = not (wrong and "wrong number of arguments" in reply.text)

    def acknowledging(self, n: int | None) -> Callable[[], Steps[int]]:
        """Return a generator function for ``ListBuffer.ack()``."""
        raise ValueError("ack() needs delivery='at-least-once'; at-most-once has nothing to ack")

    def _request(self, n: int) -> Sequence[Arguments]:
        """Return the commands of one request, which pops n items."""
        key = self.settings.name
        if self._accepts_count:
            return [(self._pop, key, n)]
        first, keep = ((0, n - 1), (n, -1)) if self._fifo else ((-n, -1), (0, -n - 1))
        return [("MULTI",), ("LRANGE", key, *first), ("LTRIM", key, *keep), ("EXEC",)]

    def _wait_for_item(self, seconds: float) -> Steps[bool]:
        """Wait for an item with a blocking command, and store it; return False if none arrived."""
        # Servers before 6.0 accept only whole seconds.
        seconds = seconds if self._accepts_count else math.ceil(seconds)
        [reply] = yield from self.calling(("B" + self._pop, self.settings.name, seconds))
        if reply is None:
            return False
        expect = self.connection.expect
        expect(list, "a blocking pop", reply)
        expect(bytes, "a blocking pop", reply[1] if len(reply) == 2 else reply)
        self.popped.add([reply[1]])
        return True

    def ending(self) -> Steps[None]:
        """Put back items that were not returned or, with at-least-once, not acknowledged."""
        with suppress(CommandError):  # popped items are still put back
            yield from self.draining()
        self.popped.split_all()
        yield from self._returning(self.popped.items)

    def _returning(self, items: deque[bytes]) -> Steps[None]:
        """Push popped items back to the end of the list that they were popped from.

        If the connection is lost, items that may be in the list are not pushed a second time.
        """
        command = "LPUSH" if self._fifo else "RPUSH"
        while items:
            # Push the last items first, and fewer at a time if they are large.
            back: list[bytes] = []
            gather(reversed(items), back, self.settings.batch, BATCH_BYTES, math.inf)
            for _ in back:
                items.pop()
            window = self.connection.core.window
            try:
                [length] = yield from self.calling((command, self.settings.name, *back))
                self.connection.expect(int, command, length)
            except BaseException as error:
                if isinstance(error, CommandError) or window.unsent:
                    items.extend(reversed(back))
                else:
                    self.in_doubt += len(back)
                raise

    def clearing(self) -> Steps[None]:
        [count] = yield from self.calling(("DEL", self.settings.name))
        self.connection.expect(int, "DEL", count)
        self.popped.delivered = 0
        self.popped.forget()

    def _refused(self, error: CommandError) -> CommandError | LeaseError:
        """Return the exception for an error reply: a LeaseError if the lease has expired."""
        return error

    @property
    def _longest_wait(self) -> float:
        """The maximum wait of a blocking command, in seconds."""
        return WAIT_S

    # Methods of both deliveries

    @property
    def _fifo(self) -> bool:
        return self.settings.order == "fifo"

    @property
    def _pop(self) -> str:
        return "LPOP" if self._fifo else "RPOP"

    def reset(self) -> None:
        self._requests.clear()
        self._last_request = -1, []
        self._exhausted = self._size_known = False
        self._others = 0

    def on_fork(self) -> None:
        """In a forked child, forget all items, because they belong to the parent process."""
        self.popped.forget()
        self.popped.delivered = self.in_doubt = self.acknowledged = 0
        self.name = ""

    def popping(self, n: int) -> Steps[None]:
        """Pop until n items are stored, or the list is empty."""
        yield from self.draining()
        wanted: float = n - len(self.popped)
        while True:
            wanted = self._add_requests(wanted)
            if not self._requests:
                break
            wanted += yield from self._next_items()
        self._exhausted = False

    def popping_some(self, most: int | None) -> Steps[bool]:
        """Pop until some items are stored; return False if the list is empty.

        Args:
            most: maximum number of items to request; None also prefetches items for later calls.
        """
        while not self.popped:
            self._add_requests(math.inf if most is None else most - sum(self._requests))
            if not self._requests:
                self._exhausted = False
                return False
            yield from self._next_items()
        return True

    def finding(self, most: int | None, seconds: float) -> Callable[[], Steps[bool]]:
        """Return a generator function that pops items, or waits for an item if the list is empty.

        The generator returns False if no item arrived within ``seconds``. If the call is repeated,
        it waits for the remaining time.
        """
        end: float | None = None

        def steps() -> Steps[bool]:
            nonlocal end
            found = yield from self.popping_some(most)
            if not found:
                end = end or time.monotonic() + seconds
                found = yield from self.waiting_until(end)
            self.popped.split_all()
            return found

        return steps

    def waiting_until(self, end: float) -> Steps[bool]:
        """Wait for an item, at most until ``end``, and store it; return False if none arrived."""
        yield from self.draining()
        core, timeout = self.connection.core, self.settings.timeout
        while (left := end - time.monotonic()) > 0:
            part = min(left, self._longest_wait)
            core.timeout = None if timeout is None else timeout + part
            try:
                found = yield from self._wait_for_item(part)
            finally:
                core.timeout = timeout
            if found:
                return True
        return False

    def measuring(self) -> Steps[int]:
        """Return the length of the list, including the popped items."""
        [length] = yield from self.calling(("LLEN", self.settings.name))
        self.connection.expect(int, "LLEN", length)
        return int(length) + len(self.popped)

    def recovering(self) -> Callable[[], Steps[int]]:
        """Return a generator function that puts back the items of consumers with an expired lease.

        The generator returns the number of items put back, in all attempts of the call.
        """
        count = 0

        def steps() -> Steps[int]:
            nonlocal count
            self.check_records()
            expect = self.connection.expect
            [consumers] = yield from self.calling(("HKEYS", self.settings.key_for("consumers")))
            expect(list, "HKEYS", consumers)
            for each in consumers:
                expect(bytes, "HKEYS", each)
                name = each.decode(errors="surrogateescape")
                if name != self.name:
                    [moved] = yield from self.calling(recover(self.settings, name))
                    expect(int, "a script for unacknowledged items", moved)
                    count += moved
            return count

        return steps

    def check_records(self) -> None:
        """In a cluster, check that the list and its records are in one slot."""
        if self.connection.in_cluster:
            self.settings.check_records()

    def calling(self, *commands: Arguments, errors: bool = False) -> Steps[list[Any]]:
        """Wait for the items in flight, send commands, and return their replies."""
        yield from self.draining()
        return (yield from self.connection.exchanging(*commands, errors=errors))

    # Requests in flight

    @property
    def _depth(self) -> int:
        """Maximum requests in flight: 1 until the first reply shows the size of items."""
        return REQUESTS if self._size_known else 1

    def draining(self) -> Steps[None]:
        """Wait for all requests in flight, and move all items to ``PoppedItems.items``."""
        while self._requests:
            yield from self._next_items()
        self._exhausted = False
        self.popped.split_all()

    def _add_requests(self, wanted: float) -> float:
        """Request items until enough requests are in flight; return how many remain to request."""
        while wanted > 0 and not self._exhausted and len(self._requests) < self._depth:
            n = int(min(wanted, self.settings.batch))
            self._send_request(n)
            self._requests.append(n)
            wanted -= n
        return wanted

    def _send_request(self, n: int) -> None:
        """Request n items; if the last request was also for n items, reuse its encoded commands."""
        if self._last_request[0] != n:
            self._last_request = n, list(self.connection.encoded(self._request(n)))
        self.connection.add(self._last_request[1])

    def _next_items(self) -> Steps[int]:
        """Wait for the reply to the oldest request in flight, and store its items.

        Returns:
            The number of requested items that the reply lacks.

        Raises:
            CommandError, LeaseError: the reply is an error. No requests are in flight then.
        """
        replies = yield from self.connection.receiving(1 if self._accepts_count else 4)
        most = self._requests.popleft()
        found = replies[0] if self._accepts_count else self._executed(replies)
        if isinstance(found, CommandError):
            # Later requests in flight fail in the same way.
            while self._requests:
                with suppress(CommandError):
                    yield from self._next_items()
            raise self._refused(found)
        items: list[bytes] = [] if found is None else found
        self._check_items(items, most)
        self.popped.add(items)
        fewer = most - len(items)
        self._exhausted, self._size_known = fewer > 0, True
        return fewer

    def _executed(self, replies: list[Any]) -> Any:
        """Return the items in the reply to EXEC, or the error that refused the transaction."""
        reply = next((each for each in replies if isinstance(each, SlotMoved)), replies[-1])
        if not (isinstance(reply, list) and reply):
            return reply
        items = reply[0]
        if isinstance(items, list) and not self._fifo:
            items.reverse()
        return items

    def _check_items(self, items: Any, most: int) -> None:
        """Check that a reply is a list of at most ``most`` bytes objects."""
        connection = self.connection
        connection.expect(list, "a pop", items)
        if len(items) > most:
            connection.core.reject_reply(f"a pop of {most:,} items", items)
        others = connection.core.reader.others
        if others != self._others:
            # Values other than bytes have arrived since the last check, perhaps in replies to other
            # commands. So check each item, which is rarely necessary.
            self._others = others
            for item in items:
                connection.expect(bytes, "an item of a pop", item)

    # As a column

    def popping_column(self, n: int) -> Steps[None]:
        """Pop n items, or fewer, as an Arrow array, for ``PoppedItems.deliver_column()``."""
        yield from self.draining()
        if self.popped or not self._accepts_count:
            yield from self.popping(n)
            self.popped.column = string_column(self.popped.take(n), text=False)
            return
        connection = self.connection
        core = connection.core
        requested, columns = self._columns or (0, None)
        self._columns = None
        if columns is None or requested != n:
            columns = ReplyColumns(
                ["item"], text=False, fixed=False, max_reply_bytes=connection.max_bytes
            )
        stream = core.stream
        assert stream is not None
        stream.feed(columns)
        try:
            yield from self._filling(columns, n)
        except BaseException as failure:
            if not self.safe:
                self._keep(columns)
            if not isinstance(failure, LostConnection | TransportError):
                connection.close()  # later replies could not be matched with their requests
            raise
        finally:
            stream.feed(core.reader)
        self._keep(columns)
        if columns.errors:
            error = CommandError(columns.errors[0][1].decode(errors="replace"))
            raise self._refused(connection.checked(error))
        columns.absent.clear()
        self._columns = n, columns

    def _keep(self, columns: ReplyColumns) -> None:
        batch = columns.take(columns.rows) if columns.rows else None
        self.popped.column = string_column([], text=False) if batch is None else batch.columns[0]

    def _filling(self, columns: ReplyColumns, n: int) -> Steps[None]:
        """Receive items into columns until there are n items, or the list is empty."""
        connection, batch = self.connection, self.settings.batch
        core = connection.core
        first = requests = columns.replies
        before, requested = core.window.acknowledged - first, 0
        while True:
            # The replies have fewer items than requested, so the list is empty.
            exhausted = columns.rows < min(n, (columns.replies - first) * batch) or columns.errors
            while requested < n and requests - columns.replies < self._depth and not exhausted:
                self._send_request(min(batch, n - requested))
                requested, requests = min(n, requested + batch), requests + 1
            if columns.replies > requests or columns.rows > requested:
                core.reject_reply(f"a pop of {requested:,} items", columns.rows)
            replies = columns.replies
            if replies == requests:
                return
            yield from connection.until(lambda: columns.replies > replies and not connection.lost)  # noqa: B023
            core.acknowledge(before + columns.replies)
            self._size_known = True
