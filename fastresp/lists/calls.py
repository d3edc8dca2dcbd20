"""The calls of a list buffer. One call runs at a time, and opens a connection if necessary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from ..outcome.errors import EncodeError, FastrespError, TransportError
from ..outcome.report import counted
from ..resp.idempotent import may_resend
from ..server.cluster_view import LOOK_S
from ..server.forks import on_fork
from ..server.settings import Server
from ..transports.base import UNAWAITED
from ..transports.connection import LostConnection
from ..transports.driver import Blocking, Pull, Steps
from ..transports.ledger import MAX_S, Deadline
from .at_least_once import AtLeastOnce
from .at_most_once import AtMostOnce, PoppedItems
from .connection import ListConnection, SlotMoved, SlotOwner
from .push import Push, Pushed, checked_items
from .settings import Settings

__all__ = ["Calls"]

T = TypeVar("T")


class Calls:
    """The calls of a ListBuffer as generators, for the blocking and the asyncio form.

    If an event loop runs the calls, a cancelled call can't wait.

    Attributes:
        popped: items popped but not yet returned.
        delivery: pops items; run its generators with ``call()``.
    """

    def __init__(self, server: Server, settings: Settings, *, in_event_loop: bool) -> None:
        self.in_event_loop = in_event_loop
        safe = settings.delivery == "at-least-once"
        self.settings = settings
        self.popped = PoppedItems()
        # With at-least-once, popped items are still in the server, and are popped again later.
        closed = self.popped.forget if safe else lambda: None
        self.owner = SlotOwner(server, settings)
        self.connection = ListConnection(settings, closed)
        self.delivery = (AtLeastOnce if safe else AtMostOnce)(
            self.connection, settings, self.popped
        )
        self._busy = 0  # the thread that is running a call
        self._begun = False  # whether delivery.beginning() is done for this connection

    def check_idle(self) -> None:
        """Check that no other call is running, such as a push that reads its source."""
        if self._busy:
            raise RuntimeError(
                "this ListBuffer is already running another call; create one ListBuffer for each "
                "task or thread"
            )

    def call(
        self,
        begin: Callable[[], Steps[T]],
        push: Push | None = None,
        *,
        retries: bool = True,
        wait: bool = True,
    ) -> Steps[T]:
        """Run a generator over the connection, which is opened if necessary.

        Args:
            begin: returns the generator. In a cluster, the call is repeated over a new connection
                if the slot of the list moves, or if the node is lost and a repetition is safe.
                ``begin`` is then called again.
            push: the push that the generator belongs to; None for other calls.
            retries: whether the call may be repeated.
            wait: whether to wait if no node of the cluster can be reached.

        Raises:
            SlotMoved: the slot moved, and ``retries`` is False.
        """
        self.check_idle()
        self._busy = get_ident()
        connection = self.connection
        connection.is_waiting = False
        deadline = Deadline(self.settings.timeout or MAX_S)
        try:
            while True:
                try:
                    if not connection.is_open:
                        yield from self._opening()
                    if not self._begun:
                        yield from self.delivery.beginning()
                        self._begun = True
                    return (yield from begin())
                except SlotMoved as error:
                    if not retries:
                        raise
                    refusal = error.refusal
                    message = f"the last reply was: {error.text}"
                    first = self._check_deadline(deadline, message, push)
                    pause = refusal.pause_s
                    if refusal.moved:
                        connection.close()
                        pause = 0.0 if first and not refusal.unserved else pause
                    if refusal.unserved:
                        self.owner.suspect()
                except (LostConnection, TransportError) as error:
                    opening = not connection.is_open and self.owner.clustered and wait
                    if not (retries and (opening or self._may_go_on(error, push))):
                        raise
                    message = str(error.args[0]) if opening else connection.cause
                    if push is not None:
                        push.keep_unsent()
                    connection.close()
                    self.owner.suspect()
                    pause = 0.0 if self._check_deadline(deadline, message, push) else LOOK_S
                yield from connection.pausing(pause)
        except LostConnection:
            raise (yield from self._loss()) from None
        except BaseException as error:
            if not (self._begun and self._is_in_step(error)):
                connection.close()
            raise
        finally:
            self._busy = 0

    def _check_deadline(self, deadline: Deadline, message: str, push: Push | None) -> bool:
        """Return whether a call that must be repeated has made progress since the last check.

        Raises:
            TransportError: there was no progress for ``timeout`` seconds.
        """
        first = deadline.check((len(self.popped), push and push.report.rows))
        if deadline.exceeded:
            raise TransportError(
                f"the slot of the list {self.settings.key!r} could not be used for "
                f"{deadline.timeout:g} s; {message} (check the cluster with redis-cli --cluster "
                "check)"
            )
        return first

    def _may_go_on(self, error: Exception, push: Push | None) -> bool:
        """Return whether a call may be repeated after an exception.

        It may be repeated if a cluster node was lost, and each sent command was answered or is
        idempotent. With at-least-once, only pushes need such commands: before other calls are
        repeated, the server puts back the items that the caller does not have.
        """
        connection = self.connection
        if not (isinstance(error, LostConnection) and connection.in_cluster):
            return False
        doubtful = connection.commands_in_doubt()
        return doubtful is not None and (
            (self.delivery.safe and push is None) or all(may_resend([[each] for each in doubtful]))
        )

    def _is_in_step(self, error: BaseException) -> bool:
        """Return whether, after an exception, later replies can be matched with their requests."""
        if self.connection.raised(error):
            return False
        return self.connection.is_waiting or isinstance(error, (FastrespError, ValueError))

    def _opening(self) -> Steps[None]:
        self._begun = False
        opened, answers = yield from self.owner.connecting()
        on_fork(self, Calls._on_fork)
        self.connection.attach(opened, answers, self.owner.server)
        self.delivery.reset()

    def _loss(self) -> Steps[TransportError]:
        """Test the server, which may take seconds; return the exception for a lost connection."""
        try:
            loss: TransportError = yield Blocking(self.connection.core.loss)
            return loss
        finally:
            self.connection.close()
            self.owner.suspect()

    def _on_fork(self) -> None:
        """Reset in a forked child: the connection and the items belong to the parent process."""
        self.delivery.on_fork()
        if self._busy != get_ident():  # otherwise, the running call forked, and must raise an error
            self.connection.leave()
            self._busy = 0

    # Closing

    def closing(self, after: BaseException | None = None) -> Steps[None]:
        """Put back items that were not returned or not acknowledged, and close the connection.

        Args:
            after: the exception that ends the ``with`` block; errors are added to it as notes.
        """
        self.check_idle()
        try:
            is_open = self.connection.is_open
            if not is_open:
                self.popped.delivered = 0  # over a new connection, all items are put back
            if is_open or self.popped or self.delivery.name:
                # If no connection can be opened to put items back, the lease will expire.
                lost = self.delivery.safe and not is_open
                with suppress(TransportError) if lost else nullcontext():
                    yield from self.call(self.delivery.ending, wait=not lost)
        except BaseException as error:
            self._note_kept_items(error)
            if after is None or not isinstance(error, FastrespError):
                raise
            after.add_note(f"fastresp: {error}")
        finally:
            self.connection.close()

    def _note_kept_items(self, error: BaseException) -> None:
        """Add notes to an exception that say which items could not be put back."""
        if self.popped:
            error.add_note(
                f"fastresp: the buffer still holds {counted(len(self.popped), 'item')} popped but "
                "not returned; pop() returns them, and close() retries to put them back"
            )
        doubtful, self.delivery.in_doubt = self.delivery.in_doubt, 0
        if doubtful:
            error.add_note(
                f"fastresp: {counted(doubtful, 'item')} in doubt: back in the list, or lost; check "
                "the list to find out"
            )

    # Pushing

    def pushing(
        self, items: Any, push: Push, next_batch: Callable[[], object] | None = None
    ) -> Steps[Pushed]:
        """Push items; other calls may run between the batches of an async source.

        Args:
            next_batch: for an async source, returns an awaitable for its next list of items.
        """
        items = checked_items(items)
        try:
            if next_batch is None:
                yield from self._pushing(items, push)
            else:
                while not push.stopped and (batch := (yield from push.pulling(Pull(next_batch)))):
                    yield from self._pushing(batch, push)
                    if push.stopped:
                        push.encode_rest()
        except BaseException as error:
            if isinstance(error, TransportError) and not push.source_failed:
                error.report = push.current_report()
                raise
            yield from self._finishing_after(error, push)
            self._giving_up(push)
            located = push.located(error) if isinstance(error, EncodeError) else error
            push.add_report_to(located)
            if located is error:
                raise
            raise located from None
        self._giving_up(push)
        return push.outcome()

    def _giving_up(self, push: Push) -> None:
        """If the server refused items, keep them for the caller, and close the connection."""
        connection = self.connection
        if push.stopped and connection.is_open and push.uses(connection.core):
            if connection.core.finished:
                push.give_up()
            connection.close()

    def _pushing(self, items: Any, push: Push) -> Steps[None]:
        connection = self.connection
        begun = False

        def steps() -> Steps[None]:
            """Encode and send the items; if the call is repeated, only the remaining items."""
            nonlocal begun
            yield from self._resuming(push)
            core = connection.core
            if not begun:
                max_bytes = connection.max_bulk_bytes
                yield from connection.pulling(lambda: push.begin(items, max_bytes))
                begun = True
            while push.more and not push.stopped:
                yield from connection.pulling(push.fill)
                yield from self._sending(push, lambda: core.has_room)
            push.release()
            yield from self._sending(push, lambda: core.finished)

        try:
            yield from self.call(steps, push)
        finally:
            push.release()

    def _finishing(self, push: Push) -> Steps[None]:
        """Send all complete commands, and wait for their replies."""
        yield from self._resuming(push)
        yield from self._sending(push, lambda: self.connection.core.finished)

    def _resuming(self, push: Push) -> Steps[None]:
        """Continue a push over this connection, and resend commands that a node refused."""
        yield from self.delivery.draining()
        core = self.connection.core
        push.resume(core)
        while push.rows.refused and not push.stopped:
            core.add(push.rows.resend_chunk())
            yield from self._answered(push, lambda: core.finished)

    def _sending(self, push: Push, reached: Callable[[], bool]) -> Steps[None]:
        """Send all complete commands; count replies until ``reached()`` returns True."""
        chunk = push.take_chunk()
        if chunk is not None:
            self.connection.core.add(chunk)
        yield from self._answered(push, reached)

    def _answered(self, push: Push, reached: Callable[[], bool]) -> Steps[None]:
        """Count the replies to a push until ``reached()`` returns True.

        Raises:
            SlotMoved: a node of a cluster refused commands; all commands are answered.
            TransportError: the refused commands can't be resent in order.
        """
        connection = self.connection

        def noted() -> bool:
            push.process_replies(connection.take())
            if connection.lost:
                return False
            if push.stopped and connection.core.end is None:
                connection.core.stop()
            return connection.core.finished if push.refusal or push.stopped else reached()

        yield from connection.until(noted)
        push.check_refused()

    def _finishing_after(self, error: BaseException, push: Push) -> Steps[None]:
        """Send all complete commands after an exception, unless it is a cancellation.

        After a Ctrl-C, commands that a node of a cluster refuses are not retried.
        """
        connection = self.connection
        if self.in_event_loop and isinstance(error, UNAWAITED):
            if not self._busy:  # otherwise, another call is using the connection
                connection.close()
        elif connection.is_open and push.uses(connection.core):
            retries = isinstance(error, Exception)
            with suppress(TransportError, SlotMoved):
                yield from self.call(partial(self._finishing, push), push, retries=retries)
