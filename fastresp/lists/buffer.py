"""A Redis list as a buffer, for code that waits; ``async_buffer`` has the one for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Self, TypeVar

from ..replies.arrow_out import StringColumn
from ..transports.driver import Steps, run
from ..transports.signals import Undisturbed
from .base import BaseBuffer
from .consuming import Consuming
from .push import Push, Pushed
from .settings import checked_count

__all__ = ["ListBuffer"]

T = TypeVar("T")
Given = TypeVar("Given", list[bytes], StringColumn)


class ListBuffer(BaseBuffer):
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
        maxlen: keep only this many of the newest items, cut with each push in one transaction.
        lease: with at-least-once, how many seconds this consumer may be silent before ``recover()``
            of another takes it for dead.
        timeout: seconds without any progress after which to give up; None for never.

    Raises:
        TypeError, ValueError: an argument can't be.

    Every method may raise TransportError (the server can't be used, or was lost),
    TransportTimeout, CommandError (the server's error reply, such as WRONGTYPE) and, with
    at-least-once, LeaseError.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._run(self._calls.closing(after=error))

    def close(self) -> None:
        """Put back what was taken from the list and not given, and end the connection.

        With at-least-once also what was given and not acknowledged.

        Raises:
            RuntimeError: another call is under way.
        """
        self._run(self._calls.closing())

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
        push = Push(self._calls.settings)
        try:
            return self._run(self._calls.pushing(items, push))
        except BaseException as error:
            push.tell(error)  # of a Ctrl-C as the last step has ended
            raise

    def pop(self, n: int) -> list[bytes]:
        """Pop up to n items; fewer only where the list has no more."""
        n = checked_count(n)
        self._call(self._calls.items.popping(n))
        return self._given(self._calls.held.give, n)

    def pop_arrow(self, n: int) -> StringColumn:
        """Pop up to n items as an Arrow array, with no Python object for each.

        Returns:
            A binary array that pyarrow, polars, DuckDB and others take by ``__arrow_c_array__``.

        A Ctrl-C in its midst ends the connection: with at-most-once what has come is given by the
        next call, and what was on its way is lost.
        """
        self._call(self._calls.items.popping_column(checked_count(n)))
        return self._given(self._calls.held.give_column)

    def consume(self, max_items: int | None = None, block: float = 0.0) -> Iterator[bytes]:
        """Pop items one after another, with more on their way meanwhile.

        Args:
            max_items: stop after this many items; None for no limit.
            block: seconds to wait for an item when the list is empty, before it stops.

        An iterator that is left before its end leaves what is on its way to the next call, or
        ``close()``, which puts it back.
        """
        items = Consuming(self._calls, max_items, block)
        while self._run(items.more()):
            yield from items

    def drain(self) -> Iterator[list[bytes]]:
        """Pop all there is, in batches, with more on their way meanwhile."""
        while self._call(self._calls.items.holding(None)):
            yield self._given(self._calls.held.give)

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
        return self._call(self._calls.items.acknowledging(n))

    def recover(self) -> int:
        """Put back, at the end where it came from, what consumers hold that died.

        That is those whose lease is over. Returns how many items it was.
        """
        return self._call(self._calls.items.recovering())

    def __len__(self) -> int:
        """Items in the list, and those taken from it and not given."""
        return self._call(self._calls.items.measuring())

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Remove all items."""
        self._call(self._calls.items.clearing())

    @cached_property
    def _undisturbed(self) -> Undisturbed:
        """What comes in is noted, and given, before a Ctrl-C raises its exception."""
        return Undisturbed()

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, around=self._undisturbed)

    def _call(self, steps: Steps[T]) -> T:
        return run(self._calls.call(steps), around=self._undisturbed)

    def _given(self, give: Callable[..., Given], *count: int) -> Given:
        """What is given of the items that are held; they are held again if a Ctrl-C comes."""
        items: Given | None = None
        try:
            with self._undisturbed:
                items = give(*count)
            return items  # noqa: RET504
        except BaseException:
            with self._undisturbed:
                if items is not None:
                    self._calls.held.take_back(items)
            raise
