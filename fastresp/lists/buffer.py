"""``ListBuffer``, the blocking form; the asyncio form is in ``async_buffer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Self, TypeVar

from ..outcome.tracebacks import shorten
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
    """Use a Redis list as a queue: push and pop items in bulk, from any number of processes.

    Use it in a ``with`` statement, or call ``close()``. The first call connects, and so does the
    first call after a lost connection. Only one thread at a time may use a ListBuffer.

        with fastresp.ListBuffer("queue", server="redis://localhost:6379/0") as buffer:
            buffer.push(lines)
            for item in buffer.consume(block=5.0):
                ...

    Args:
        key: the key of the list.
        server: a URL, a client of redis-py or valkey-py, or None for ``REDIS_URL``, else localhost.
            Of a cluster, any node or a cluster client: calls go to the node of the list, and follow
            its slot when that moves.
        batch: push or pop at most this many items per command, from 1 to 65,534.
        order: ``"fifo"`` pops the oldest items first, ``"lifo"`` the newest. Items are always
            pushed at the right end (RPUSH).
        delivery: ``"at-most-once"``: popping an item removes it from the server; it is lost if this
            process dies, or if the connection is lost while the item is in flight.
            ``"at-least-once"``: the item stays in the server, in this consumer's own list, until
            ``ack()``; if this consumer dies, ``recover()`` puts it back, and it is popped again.
            No command moves many items between lists, so a script does, atomically.
        maxlen: keep only this many of the newest items; each push trims the list in one
            transaction.
        lease: with at-least-once, how many seconds this consumer may be silent before another
            consumer's ``recover()`` puts its items back.
        timeout: give up after this many seconds without progress; None to wait forever.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Every method may raise TransportError (the server can't be used, or the connection was lost),
    TransportTimeout, CommandError (an error reply, such as WRONGTYPE) and, with at-least-once,
    LeaseError.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._run(self._calls.closing(after=error))

    def close(self) -> None:
        """Put unused items back, and close the connection.

        Unused items were popped but not returned to the caller; with at-least-once also those not
        acknowledged.

        Raises:
            RuntimeError: another call is under way.
        """
        self._run(self._calls.closing())

    def push(self, items: Iterable[Any]) -> Pushed:
        """Push items at the right end, many per command.

        Args:
            items: an iterable of str, bytes, int, float and other values that ``fastresp.pack``
                accepts; or one Arrow column, such as a polars Series, which is read without making
                Python objects. Of an open file, the items are its lines, without line ends.

        Returns:
            The report, the length of the list afterwards, and how many items ``maxlen`` dropped.

        Raises:
            PushError: the server refused items, for example because its memory is full. The push
                stops there, and ``items`` has what is not in the list.
            EncodeError: an item can't be encoded; the batches before its batch were pushed.
        """
        push = Push(self._calls.settings)
        try:
            return self._run(self._calls.pushing(items, push))
        except BaseException as error:
            push.add_report_to(error)  # for a Ctrl-C just after the last step
            raise

    def pop(self, n: int) -> list[bytes]:
        """Pop up to n items; fewer only if the list has no more."""
        n = checked_count(n)
        self._call(partial(self._calls.items.popping, n))
        return self._hand_out(self._calls.held.give, n)

    def pop_arrow(self, n: int) -> StringColumn:
        """Pop up to n items as an Arrow array, without a Python object for each.

        Returns:
            A binary array that pyarrow, polars, DuckDB and others read with ``__arrow_c_array__``.

        A Ctrl-C during this call closes the connection. With at-most-once, the next call returns
        the items that had arrived, and those in flight are lost.
        """
        self._call(partial(self._calls.items.popping_column, checked_count(n)))
        return self._hand_out(self._calls.held.give_column)

    def consume(self, max_items: int | None = None, block: float = 0.0) -> Iterator[bytes]:
        """Yield items one at a time, while more are in flight.

        Args:
            max_items: stop after this many items; None for no limit.
            block: seconds to wait for an item when the list is empty, before the iteration ends.

        If you stop iterating early, the next call uses the items in flight, or ``close()`` puts
        them back.
        """
        items = Consuming(self._calls, max_items, block)
        while self._run(items.more()):
            yield from items

    def drain(self) -> Iterator[list[bytes]]:
        """Yield all items in batches, while more are in flight."""
        while self._call(partial(self._calls.items.holding, None)):
            yield self._hand_out(self._calls.held.give)

    def ack(self, n: int | None = None) -> int:
        """Acknowledge the first n popped items, or all; the server deletes them.

        Renews the lease, as does each call that pops items; ``ack(0)`` only renews it.

        Retry a call that raised TransportError. It may or may not have reached the server, and has
        not changed ``acknowledged``; the retry applies to the same items, and no others.

        Returns:
            How many popped items are still unacknowledged.

        Raises:
            ValueError: n is out of range, or delivery is not ``"at-least-once"``.
        """
        return self._call(self._calls.items.acknowledging(n))

    def recover(self) -> int:
        """Put back the items of consumers whose lease has expired, at the end they came from.

        Returns:
            How many items were put back.
        """
        return self._call(self._calls.items.recovering())

    def __len__(self) -> int:
        """Return the length of the list, plus the items popped but not yet returned."""
        return self._call(self._calls.items.measuring)

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Remove all items."""
        self._call(self._calls.items.clearing)

    @cached_property
    def _undisturbed(self) -> Undisturbed:
        """Delays KeyboardInterrupt until items that have arrived are safely held or returned."""
        return Undisturbed()

    def _run(self, steps: Steps[T]) -> T:
        try:
            return run(steps, around=self._undisturbed)
        except BaseException as error:
            shorten(error)
            raise

    def _call(self, begin: Callable[[], Steps[T]]) -> T:
        return self._run(self._calls.call(begin))

    def _hand_out(self, give: Callable[..., Given], *count: int) -> Given:
        """Return held items to the caller; hold them again if a Ctrl-C comes."""
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
