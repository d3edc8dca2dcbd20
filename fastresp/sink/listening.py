"""Totals for functions in the engine's driver, from another process of the same machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hmac import compare_digest
from multiprocessing.connection import Client, Connection, Listener
from secrets import token_bytes
from threading import ExceptHookArgs, Thread, current_thread, excepthook
from typing import Any

from .totals import Totals

__all__ = ["Address", "announce", "listen"]

# How long to wait for the functions of the driver.
TOLD_S = 60.0


@dataclass(frozen=True)
class Address:
    """Where a function is told of totals.

    Attributes:
        host, port: of a socket that only this machine reaches.
        key: which both sides must know; never shown.
        number: of the function.
    """

    host: str
    port: int
    key: bytes = field(repr=False)
    number: int

    def tell(self, totals: Totals, **names: Any) -> None:
        """Pass totals on, unless the driver has ended.

        Args:
            names: arguments for the function besides the totals.
        """
        with suppress(OSError, EOFError), Client((self.host, self.port)) as connection:
            connection.send_bytes(self.key)
            connection.send((self.number, totals, names))
            connection.poll(TOLD_S)  # it has returned


def announce(totals: Totals, address: Address | None, **names: Any) -> None:
    """Write the totals of a job to the driver's log, and pass them to its function.

    Those of a job that failed are a warning.

    Args:
        address: of the function; None if there is none.
        names: as for ``Address.tell()``.
    """
    warning = "WARNING: the job failed; its committed tasks loaded " if totals.job_failed else ""
    print(f"fastresp: {warning}{totals}", file=sys.stderr, flush=True)
    if address is not None:
        address.tell(totals, **names)


def listen(listener: Callable[..., object]) -> Address:
    """Call a function with the totals of each job that ends; return where.

    Args:
        listener: called in a thread with the Totals, and what else ``Address.tell()`` gets. What it
            raises is printed as from any thread.
    """
    driver = _driver()
    driver.functions.append(listener)
    host, port = driver.socket.address
    return Address(host, port, driver.key, len(driver.functions) - 1)


class _Driver:
    """One socket for all functions of this process."""

    def __init__(self) -> None:
        self.key = token_bytes(32)
        self.functions: list[Callable[..., object]] = []
        self.socket: Any = Listener(("127.0.0.1", 0))
        Thread(target=self._serve, name="fastresp-listener", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with suppress(ConnectionError):
                connection = self.socket.accept()
                # One that says nothing holds up nobody but itself.
                Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: Connection) -> None:
        with suppress(EOFError, OSError), connection:
            # What others send is not unpickled.
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
