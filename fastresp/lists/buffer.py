"""``ListBuffer``, the blocking form; the asyncio form is in ``async_buffer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import repeat
from operator import length_hint
from typing import Any, Self, TypeVar

from ..encode.columns.arrow_out import StringColumn
from ..outcome.tracebacks import public, shorten
from ..server.preflight import Requirements
from ..server.settings import Server, ServerLike
from ..transports.driver import Steps, run
from ..transports.signals import Undisturbed
from .calls import Calls
from .push import Push, Pushed
from .settings import Delivery, Order, Settings, checked_count

__all__ = ["BaseBuffer", "ItemIterator", "ListBuffer"]


@public
class BaseBuffer:
    """The base class of both forms of ``ListBuffer``, which run its calls."""

    _in_event_loop = False

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
        where = Server(server, Requirements(nodes=True))
        self._calls = Calls(where, settings, in_event_loop=self._in_event_loop)

    def __repr__(self) -> str:
        settings = self._calls.settings
        form = ", asyncio" if self._in_event_loop else ""
        return f"<ListBuffer {settings.key!r}, {settings.order}, {settings.delivery}{form}>"

    @property
    def acknowledged(self) -> int:
        """Number of items acknowledged by calls of ``ack()`` that have returned."""
        return self._calls.delivery.acknowledged


class ItemIterator:
    """Yields items one at a time; ``more()`` fetches the items that the next iteration yields."""

    def __init__(self, calls: Calls, max_items: int | None, block: float) -> None:
        self._calls = calls
        self._block = block
        self._bounded = max_items is not None
        # One element per item that may still be yielded. This is cheaper than a counter.
        self._remaining = (
            repeat(None) if max_items is None else repeat(None, checked_count(max_items))
        )

    def more(self) -> Steps[bool]:
        """Fetch some items; return False at the end of the iteration."""
        most = length_hint(self._remaining) if self._bounded else None
        if most == 0:
            return False
        calls = self._calls
        return (yield from calls.call(calls.delivery.finding(most, self._block)))

    def __iter__(self) -> Iterator[bytes]:
        popped = self._calls.popped
        items = popped.items
        # Remove an item only when it is yielded, since the caller may make other calls.
        for _ in self._remaining:
            # Without a function call, no Ctrl-C can lose the item before the caller has it.
            item = items[0]
            del items[0]
            popped.delivered += 1
            yield item
            if not items:
                return


T = TypeVar("T")
Given = TypeVar("Given", list[bytes], StringColumn)


class ListBuffer(BaseBuffer):
    """Use a Redis list as a queue: push and pop items in bulk, from any number of processes.

    Use it in a ``with`` statement, or call ``close()``. The first call connects, as does the first
    call after a lost connection. Only one thread at a time may use a ListBuffer.

        with fastresp.ListBuffer("queue", server="redis://localhost:6379/0") as buffer:
            buffer.push(lines)
            for item in buffer.consume(block=5.0):
                ...

    Args:
        key: the key of the list.
        server: a URL, a client of redis-py or valkey-py, or None for ``REDIS_URL`` (default:
            localhost). In a cluster, any node or a cluster client: calls are routed to the owner of
            the list's slot, through resharding and failover.
        batch: maximum items per command, 1 to 65,534.
        order: ``"fifo"`` pops the oldest items first, ``"lifo"`` the newest. Items are always
            pushed at the right end (RPUSH).
        delivery: ``"at-most-once"``: popping an item removes it from the server; the item is lost
            if this process dies, or if the connection is lost while the item is in flight.
            ``"at-least-once"``: the item stays in the server, in this consumer's own list, until
            ``ack()``; if this consumer dies, ``recover()`` puts the item back, and it is popped
            again. A script moves items between the lists atomically.
        maxlen: keep only this many of the newest items; each push also trims the list, in one
            transaction.
        lease: with at-least-once, how many seconds this consumer may be silent before other
            consumers' ``recover()`` puts its items back.
        timeout: give up after this many seconds without progress; None to wait forever.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Every method may raise TransportError (the server can't be used, or the connection was lost),
    TransportTimeout, CommandError (an error reply, such as WRONGTYPE) and, with at-least-once,
    LeaseError (the lease has expired).
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._run(self._calls.closing(after=error))

    def close(self) -> None:
        """Put items back, and close the connection.

        Popped items are put back if they were not returned to the caller or, with at-least-once,
        not acknowledged.

        Raises:
            RuntimeError: another call is running.
        """
        self._run(self._calls.closing())

    def push(self, items: Iterable[Any]) -> Pushed:
        """Push items at the right end, many per command.

        Args:
            items: an iterable of str, bytes, int, float and other values that ``fastresp.pack``
                accepts; one Arrow column, such as a polars Series, which is read without creating
                Python objects; or an open file, whose items are its lines without line ends.

        Returns:
            The report, the new length of the list, and the number of items that ``maxlen`` dropped.

        Raises:
            PushError: the server refused items, for example because its memory is full. The push
                stops, and the exception's ``items`` are not in the list.
            EncodeError: an item can't be encoded; earlier batches were pushed.
        """
        push = Push(self._calls.settings)
        try:
            return self._run(self._calls.pushing(items, push))
        except BaseException as error:
            push.add_report_to(error)  # for a Ctrl-C just after the last step
            raise

    def pop(self, n: int) -> list[bytes]:
        """Pop n items, or all items if the list has fewer.

        Raises:
            ValueError: n is not an integer of 0 or more.
        """
        n = checked_count(n)
        self._call(partial(self._calls.delivery.popping, n))
        return self._hand_out(self._calls.popped.deliver, n)

    def pop_arrow(self, n: int) -> StringColumn:
        """Pop n items, or all items if the list has fewer, as an Arrow array.

        This creates no Python object for each item.

        A Ctrl-C during this call closes the connection. With at-most-once, the next call returns
        the items that had arrived, and items in flight are lost.

        Returns:
            A binary array that pyarrow, polars, DuckDB and others read with ``__arrow_c_array__``.

        Raises:
            ValueError: n is not an integer of 0 or more.
        """
        self._call(partial(self._calls.delivery.popping_column, checked_count(n)))
        return self._hand_out(self._calls.popped.deliver_column)

    def consume(self, max_items: int | None = None, block: float = 0.0) -> Iterator[bytes]:
        """Yield items one at a time, and prefetch further items.

        If you stop iterating early, the next call returns the prefetched items, or ``close()`` puts
        them back.

        Args:
            max_items: stop after this many items; None for no limit.
            block: seconds to wait for an item when the list is empty, before the iteration ends.
        """
        items = ItemIterator(self._calls, max_items, block)
        while self._run(items.more()):
            yield from items

    def drain(self) -> Iterator[list[bytes]]:
        """Yield batches of items until the list is empty, and prefetch further batches."""
        while self._call(partial(self._calls.delivery.popping_some, None)):
            yield self._hand_out(self._calls.popped.deliver)

    def ack(self, n: int | None = None) -> int:
        """Acknowledge the first n popped items, so that the server deletes them.

        Renews the lease, as does each call that pops items; ``ack(0)`` only renews the lease.

        After a TransportError, retry the call. The failed call may or may not have reached the
        server, and has not changed ``acknowledged``; the retry is idempotent.

        Args:
            n: number of items; None for all.

        Returns:
            The number of popped items that are still unacknowledged.

        Raises:
            ValueError: n is out of range, or delivery is not ``"at-least-once"``.
        """
        return self._call(self._calls.delivery.acknowledging(n))

    def recover(self) -> int:
        """Put items of consumers with an expired lease back to the end they were popped from.

        Returns:
            The number of items put back.
        """
        return self._call(self._calls.delivery.recovering())

    def __len__(self) -> int:
        """Return the length of the list, including items popped but not yet returned."""
        return self._call(self._calls.delivery.measuring)

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Remove all items from the list, including items popped but not yet returned."""
        self._call(self._calls.delivery.clearing)

    @cached_property
    def _undisturbed(self) -> Undisturbed:
        """A context manager that delays KeyboardInterrupt, so that no received item is lost."""
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
        """Return popped items to the caller; after a Ctrl-C, keep them for the next call."""
        items: Given | None = None
        try:
            with self._undisturbed:
                items = give(*count)
            return items  # noqa: RET504
        except BaseException:
            with self._undisturbed:
                if items is not None:
                    self._calls.popped.take_back(items)
            raise
