"""The calls of a list buffer, run one at a time; they open a connection if there is none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from threading import get_ident
from typing import Any, TypeVar

from ..outcome.errors import EncodeError, FastrespError, TransportError
from ..outcome.report import counted
from ..server.forks import own
from ..server.settings import Server
from ..transports.base import UNAWAITED
from ..transports.connection import LostConnection
from ..transports.driver import Asking, Blocking, Steps
from ..transports.socket import connecting
from .async_batches import AsyncBatches
from .connection import ListConnection
from .held import Held
from .push import Push, Pushed, checked_items
from .settings import Settings
from .with_acknowledgement import AtLeastOnce
from .without_acknowledgement import AtMostOnce

__all__ = ["Calls"]

T = TypeVar("T")


class Calls:
    """The calls of a ListBuffer as generators, which the blocking and the asyncio form run.

    Args:
        server: the server of the list.
        settings: of the buffer.
        in_event_loop: whether an event loop runs them; it does not wait after a cancellation.

    Attributes:
        held: items popped but not yet returned.
        items: pops items; run its generators with ``call()``.
    """

    def __init__(self, server: Server, settings: Settings, *, in_event_loop: bool) -> None:
        self.in_event_loop = in_event_loop
        safe = settings.delivery == "at-least-once"
        self.server = server
        self.settings = settings
        self.held = Held()
        # With at-least-once, held items are also in the server, and will be popped again.
        closed = self.held.forget if safe else _keep
        self.connection = ListConnection(server, settings, closed)
        self.items = (AtLeastOnce if safe else AtMostOnce)(self.connection, settings, self.held)
        self._busy = 0  # the thread that is running a call
        self._begun = False  # whether items.beginning() is done for this connection

    def check_idle(self) -> None:
        """Refuse a second call during another, from another task or thread or from the source.

        Raises:
            RuntimeError: another call is running.
        """
        if self._busy:
            raise RuntimeError(
                "this ListBuffer is already running another call; create one ListBuffer for each "
                "task or thread"
            )

    def call(self, steps: Steps[T]) -> Steps[T]:
        """Run a generator over the connection; open one if there is none.

        Raises:
            RuntimeError: another call is running.
            TransportError: the server can't be used, or the connection was lost.
        """
        self.check_idle()
        self._busy = get_ident()
        connection = self.connection
        connection.waits = False
        try:
            if not connection.is_open:
                yield from self._opening()
            return (yield from steps)
        except LostConnection:
            raise (yield from self._loss()) from None
        except BaseException as error:
            if not (self._begun and self._is_in_step(error)):
                connection.close()
            raise
        finally:
            self._busy = 0

    def _is_in_step(self, error: BaseException) -> bool:
        """Return whether replies in flight can be matched with requests after an exception."""
        if self.connection.raised(error):
            return False
        return self.connection.waits or isinstance(error, (FastrespError, ValueError))

    def _opening(self) -> Steps[None]:
        self._begun = False
        [opened], answers = yield from connecting(self.server, self.settings.timeout)
        own(self, Calls._let_go)
        self.connection.attach(opened, answers)
        self.items.attached()
        yield from self.items.beginning()
        self._begun = True

    def _loss(self) -> Steps[TransportError]:
        """Return the exception for a lost connection; trying a new one may take seconds."""
        try:
            loss: TransportError = yield Blocking(self.connection.core.loss)
            return loss
        finally:
            self.connection.close()

    def _let_go(self) -> None:
        """Reset in a forked child: the connection and the items belong to the parent process."""
        self.items.let_go()
        if self._busy != get_ident():  # else the call that forked fails with an error
            self.connection.leave()
            self._busy = 0

    # Closing

    def closing(self, after: BaseException | None = None) -> Steps[None]:
        """Put back items that were not returned, or not acknowledged, and close the connection.

        Args:
            after: the exception that ends the ``with`` block; errors are added to it as notes.

        Raises:
            RuntimeError: another call is running.
        """
        self.check_idle()
        try:
            if self._needs_ending():
                # If that needs a new connection and there is none, the lease will expire.
                lost = self.items.safe and not self.connection.is_open
                with suppress(TransportError) if lost else nullcontext():
                    yield from self.call(self.items.ending())
        except BaseException as error:
            self._note_what_is_left(error)
            if after is None or not isinstance(error, FastrespError):
                raise
            after.add_note(f"fastresp: {error}")
        finally:
            self.connection.close()

    def _needs_ending(self) -> bool:
        """Return whether there is a connection to close, or items to put back over a new one."""
        is_open = self.connection.is_open
        if not is_open:
            self.held.given = 0  # none of these have to stay in the consumer's list
        return is_open or bool(self.held or self.items.name)

    def _note_what_is_left(self, error: BaseException) -> None:
        """Add notes to an exception about items that could not be put back."""
        if self.held:
            error.add_note(
                f"fastresp: the buffer still holds {counted(len(self.held), 'item')} popped but "
                "not returned; pop() returns them, and close() retries to put them back"
            )
        doubtful, self.items.doubtful = self.items.doubtful, 0
        if doubtful:
            error.add_note(
                f"fastresp: {counted(doubtful, 'item')} in doubt: back in the list, or lost; check "
                "the list to find out"
            )

    # Pushing

    def pushing(self, items: Any, push: Push) -> Steps[Pushed]:
        """Push items; other calls may run between the batches of an async source."""
        checked_items(items)
        try:
            if isinstance(items, AsyncBatches):
                while batch := (yield Asking(items.next)):
                    yield from self.call(self._pushing(batch, push))
            else:
                yield from self.call(self._pushing(items, push))
        except BaseException as error:
            if isinstance(error, TransportError) and not push.is_of_source(error):
                error.report = push.current_report()
                raise
            yield from self._finishing_after(error, push)
            located = push.located(error) if isinstance(error, EncodeError) else error
            push.add_report_to(located)
            if located is error:
                raise
            raise located from None
        return push.outcome()

    def _pushing(self, items: Any, push: Push) -> Steps[None]:
        yield from self.items.settling()
        connection = self.connection
        core = connection.core
        try:
            yield from connection.asking(lambda: push.begin(core, items, connection.max_bulk_bytes))
            more = True
            while more:
                more = yield from connection.asking(push.fill)
                chunk = push.writer.take()
                if chunk is not None:
                    core.add(chunk)
                    yield from self._answered(push, lambda: core.has_room)
        finally:
            push.release()
        yield from self._finishing(push)

    def _finishing(self, push: Push) -> Steps[None]:
        """Send the whole commands that are encoded, and wait for their replies."""
        core = self.connection.core
        chunk = push.writer.take()
        if chunk is not None:
            core.add(chunk)
        yield from self._answered(push, lambda: core.finished)

    def _answered(self, push: Push, reached: Callable[[], bool]) -> Steps[None]:
        """Count the replies to a push until ``reached()`` returns True."""
        connection = self.connection

        def noted() -> bool:
            push.take(connection.core.take())
            return not connection.lost and reached()

        return connection.until(noted)

    def _finishing_after(self, error: BaseException, push: Push) -> Steps[None]:
        """Send the whole commands after an exception, unless it is a cancellation."""
        connection = self.connection
        if self.in_event_loop and isinstance(error, UNAWAITED):
            if not self._busy:  # else another call is using the connection
                connection.close()
        elif connection.is_open and push.begun_over(connection.core):
            with suppress(TransportError):
                yield from self.call(self._finishing(push))


def _keep() -> None:
    """Keep held items when a connection closes."""
