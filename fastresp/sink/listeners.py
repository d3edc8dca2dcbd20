"""Announce the totals of a job: call functions (listeners) in the engine's driver.

The job may end in another process of the driver's machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hmac import compare_digest
from multiprocessing.connection import Client, Connection, Listener
from secrets import token_bytes
from threading import ExceptHookArgs, Thread, current_thread, excepthook
from typing import Any

from .sink import Sink
from .totals import Totals

__all__ = ["Address", "announce", "end_job", "give_up_job", "listen"]

# Maximum seconds to wait for a listener to return.
TOLD_S = 60.0


@dataclass(frozen=True)
class Address:
    """The address of a listener function.

    Attributes:
        host: host of a socket that only this machine can reach.
        port: port of the socket.
        key: secret that both sides know; never shown.
        number: index of the function among the listeners of the driver.
    """

    host: str
    port: int
    key: bytes = field(repr=False)
    number: int

    def tell(self, totals: Totals, **names: Any) -> None:
        """Call the listener with totals, unless the driver has ended.

        Args:
            totals: the totals.
            names: keyword arguments for the listener.
        """
        with suppress(OSError, EOFError), Client((self.host, self.port)) as connection:
            connection.send_bytes(self.key)
            connection.send((self.number, totals, names))
            connection.poll(TOLD_S)  # until the function has returned


def announce(totals: Totals, address: Address | None, **names: Any) -> None:
    """Write the totals of a job to the driver's log, and pass them to the listener.

    If the job failed, the log entry is a warning.

    Args:
        totals: the totals.
        address: address of the listener; None if there is no listener.
        names: as for ``Address.tell()``.
    """
    warning = "WARNING: the job failed; its committed tasks loaded " if totals.job_failed else ""
    print(f"fastresp: {warning}{totals}", file=sys.stderr, flush=True)
    if address is not None:
        address.tell(totals, **names)


def listen(listener: Callable[..., object]) -> Address:
    """Register a listener, which is called with the totals of each ended job.

    Args:
        listener: called in a thread with the Totals and the keyword arguments of
            ``Address.tell()``. Exceptions are printed, as in any thread.

    Returns:
        The address of the listener.
    """
    driver = _driver()
    driver.functions.append(listener)
    host, port = driver.socket.address
    return Address(host, port, driver.key, len(driver.functions) - 1)


class _Driver:
    """The socket for all listeners of this process."""

    def __init__(self) -> None:
        self.key = token_bytes(32)
        self.functions: list[Callable[..., object]] = []
        self.socket: Any = Listener(("127.0.0.1", 0))
        Thread(target=self._serve, name="fastresp-listener", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with suppress(ConnectionError):
                connection = self.socket.accept()
                # Each client gets a thread, so that a silent client does not block other clients.
                Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: Connection) -> None:
        with suppress(EOFError, OSError), connection:
            # Unpickle only data of clients that know the key.
            if not compare_digest(connection.recv_bytes(len(self.key)), self.key):
                return
            number, totals, names = connection.recv()
            try:
                self.functions[number](totals, **names)
            except BaseException:
                excepthook(ExceptHookArgs((*sys.exc_info(), current_thread())))
            connection.send(None)


@cache
def _driver() -> _Driver:
    return _Driver()


def end_job(
    sink: Sink,
    totals: Sequence[Totals],
    address: Address | None,
    query: str | None = None,
    epoch: int | None = None,
) -> None:
    """End a job, or an epoch of a stream, after all tasks have committed; announce the totals.

    Args:
        sink: the sink.
        totals: the Totals of each task.
        address: address of the listener; None if there is no listener.
        query: the ID of the stream, for an epoch.
        epoch: number of the epoch; None for a job that is not part of a stream.

    Raises:
        CheckpointError, TransportError: as in ``Sink.finish()``.
    """
    if epoch is None:
        sink.finish(totals)
    elif totals:
        sink.finish_epoch(str(query), epoch, totals)
    announce(Totals.sum(totals), address, epoch=epoch)


def give_up_job(
    totals: Sequence[Totals], address: Address | None, epoch: int | None = None
) -> None:
    """Announce the totals of a failed job.

    Args:
        totals: the Totals of each committed task.
        address, epoch: as for ``end_job()``.
    """
    announce(Totals.sum(totals, job_failed=True), address, epoch=epoch)
