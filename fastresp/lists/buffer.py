"""A Redis list as a buffer, for code that waits: see ``async_buffer`` for asyncio."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import get_ident
from typing import Any, Self, TypeVar

from ..outcome.errors import EncodeError, FastrespError, TransportError
from ..replies.arrow_out import StringColumn
from ..server.settings import Server, ServerLike
from ..transports.base import add_report
from ..transports.connection import LostConnection
from ..transports.driver import Waits
from ..transports.signals import Undisturbed
from ..transports.stream import wait_for
from .popping import ListCore, Steps
from .push import Push, Pushed
from .settings import Delivery, Order, Settings

__all__ = ["ListBuffer"]

T = TypeVar("T")


def checked_items(items: object) -> None:
    """Refuse what is iterable but surely not an iterable of items."""
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(f"items is an iterable of items, not one {type(items).__name__}")


def checked_count(n: object) -> int:
    """A number of items, as large as there can be; refuses what is none."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n is a number of items of 0 or more, not {n!r}")
    return min(n, sys.maxsize)


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
        # What comes in is noted, and given, before a Ctrl-C raises its exception.
        self._undisturbed = Undisturbed()
        self._core.disturbed = self._undisturbed.lifted

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

        Raises:
            RuntimeError: another call is under way.
        """
        self._core.check_idle()
        try:
            if self._core.needs_ending():
                with self._core.lease_tells():
                    self._run(self._core.ending())
        except BaseException as error:
            self._core.note_loss(error)
            raise
        finally:
            self._core.detach()

    def push(self, items: Iterable[Any]) -> Pushed:
        """Push items at the right end, many with one command.

        Args:
            items: any iterable of str, bytes, int, float and what else ``fastresp.pack`` takes; or
                one column of Arrow's, such as a Series of polars, which stays as it is.

        Returns:
            The report, the length of the list afterwards, and how many items ``maxlen`` dropped.

        Raises:
            LoadErrors: the server refused some of them.
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
            told = push.located(error) if isinstance(error, EncodeError) else error
            add_report(told, push.told(), str(push.told()))
            if told is error:
                raise
            raise told from None
        return push.outcome()

    def pop(self, n: int) -> list[bytes]:
        """Pop up to n items; fewer only where the list has no more."""
        n = checked_count(n)
        self._run(self._core.popping(n))
        return self._given(n)

    def _given(self, n: int | None = None) -> list[bytes]:
        """The first n of the items that are held, or all; or none, if a Ctrl-C comes."""
        core = self._core
        items: list[bytes] = []
        try:
            with self._undisturbed:
                items = core.give(n)
            return items  # noqa: RET504
        except BaseException:
            with self._undisturbed:
                core.take_back(items)
            raise

    def pop_arrow(self, n: int) -> StringColumn:
        """Pop up to n items as an Arrow array, with no Python object for each.

        Returns:
            A binary array that pyarrow, polars, DuckDB and others take by ``__arrow_c_array__``.

        A Ctrl-C in its midst ends the connection: with at-most-once what has come is given by the
        next call, and what was on its way is lost.
        """
        n = checked_count(n)
        core, column = self._core, None
        self._run(core.popping_column(n))
        try:
            with self._undisturbed:
                column = core.give_column()
            return column  # noqa: RET504
        except BaseException:
            with self._undisturbed:
                if column is not None:
                    core.take_column_back(column)
            raise

    def consume(self, max_items: int | None = None, block: float = 0.0) -> Iterator[bytes]:
        """Pop items one after another, with more on their way meanwhile.

        Args:
            max_items: end after so many; None for no end.
            block: when the list is empty, wait up to so many seconds for an item, then end.

        An iterator that is left before its end leaves what is on its way to the next call, or
        ``close()``, which puts it back.
        """
        core = self._core
        if max_items is not None:
            checked_count(max_items)
        left = math.inf if max_items is None else max_items
        while left > 0:
            most = None if max_items is None else int(left)
            if not (self._run(core.holding(most)) or self._run(core.waiting(block))):
                return
            # Only what is given leaves what is held: other calls come in between.
            held, consumer = core.held.singly, core.consumer
            while held and left > 0:
                left -= 1
                # No call, and so no place for a Ctrl-C, from here until the caller has it.
                item = held[0]
                del held[0]
                consumer.given += 1
                yield item

    def drain(self) -> Iterator[list[bytes]]:
        """Pop all there is, in batches, with more on their way meanwhile."""
        while self._run(self._core.holding_batch(None)):
            yield self._given()

    @property
    def acknowledged(self) -> int:
        """Items that were acknowledged so far, by calls of ``ack()`` that returned."""
        return self._core.consumer.acknowledged

    def ack(self, n: int | None = None) -> int:
        """Tell the server that the first n items given, or all, are done with; it forgets them.

        The lease begins anew, as with each call that asks for items: ``ack(0)`` does only that.

        Repeat a call that raised TransportError. It may have reached the server or not, and has
        not changed ``acknowledged``; the repeat counts for the same items, and no others.

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
        core.check_idle()
        core.busy = get_ident()
        try:
            if core.core is None:
                connection, answers = core.server.open(core.settings.timeout)
                core.attach(connection, answers)
                try:
                    self._drive(core.beginning())
                except BaseException:
                    core.detach()
                    raise
            return self._drive(steps)
        finally:
            core.busy = 0

    def _drive(self, steps: Steps[T]) -> T:
        core = self._core
        try:
            while True:
                with self._undisturbed:
                    waits = self._advance(steps)
                wait_for(waits)
        except StopIteration as end:
            result: T = end.value
            return result
        except BaseException as error:
            with self._undisturbed:
                steps.close()  # what was interrupted puts its things in order now
            if isinstance(error, LostConnection):
                raise core.loss() from None
            if isinstance(error, TransportError):
                core.detach()
            raise

    def _advance(self, steps: Steps[T]) -> Waits:
        try:
            return next(steps)
        except (StopIteration, FastrespError, LostConnection, ValueError):
            raise
        except BaseException:
            if self._undisturbed.holding:
                self._core.detach()  # torn in the midst: what is on its way would be taken wrong
            raise
