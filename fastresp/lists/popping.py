"""What a list buffer does: the sync and the asyncio one share it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ..outcome.errors import CommandError, LeaseError, TransportError
from ..replies.arrow_out import StringColumn
from ..replies.reply_columns import ReplyColumns, string_column
from ..sources.source import released
from ..transports.connection import LostConnection
from .connection import Calls, Steps
from .push import BATCH_BYTES, Push
from .variadic import gather

__all__ = ["ListCore", "Steps"]

# How long the server is asked to wait for an item at once.
WAIT_S = 10.0


class ListCore(Calls):
    """What a ListBuffer does, without waiting; the sync and asyncio ones share it.

    Its generators yield what the connection waits for whenever there is nothing to do but wait.
    """

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
            columns = ReplyColumns(
                ["item"], text=False, fixed=False, max_reply_bytes=self.most_bytes
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
        if reply is None:
            return False
        self.expect(list, "a pop that waits", reply)
        self.expect(bytes, "a pop that waits", reply[1] if len(reply) == 2 else reply)
        self.held.add([reply[1]])
        return True

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

    def recovering(self) -> Steps[int]:
        """Put back what consumers hold whose lease is over; give how many items that were."""
        [consumers] = yield from self.calling(("HKEYS", self.settings.beside("consumers")))
        self.expect(list, "HKEYS", consumers)
        count = 0
        for each in consumers:
            self.expect(bytes, "HKEYS", each)
            name = each.decode(errors="surrogateescape")
            if name != self.consumer.name:
                [moved] = yield from self.calling(self.consumer.recover(name))
                self.expect(int, "a script for items in work", moved)
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
                [length] = yield from self.calling((command, self.settings.name, *back))
                self.expect(int, command, length)
            except BaseException as error:
                if isinstance(error, CommandError) or core.window.unsent:
                    held.extend(reversed(back))
                else:
                    self.doubtful += len(back)
                raise

    def measuring(self) -> Steps[int]:
        """How many items there are, those held among them."""
        [length] = yield from self.calling(("LLEN", self.settings.name))
        self.expect(int, "LLEN", length)
        return int(length) + len(self.held)

    def clearing(self) -> Steps[None]:
        """Remove all items."""
        if self.safe:
            *_, replies = yield from self.calling(*self.consumer.clear())
            self.expect(list, "EXEC", replies)
            self.expect(int | CommandError, "EXEC", replies[1] if len(replies) == 2 else replies)
            self.consumer.cleared()
            with suppress(LeaseError):  # what it had was back in the list, and is gone, too
                self._check_lease(replies[1])
        else:
            [count] = yield from self.calling(("DEL", self.settings.name))
            self.expect(int, "DEL", count)
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
