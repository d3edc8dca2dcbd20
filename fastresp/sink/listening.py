"""Totals for a function in the engine's driver, from another process of the same machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from secrets import token_bytes
from threading import ExceptHookArgs, Thread, current_thread, excepthook
from typing import Any

from .totals import Totals

__all__ = ["Address", "announce", "listen"]


@dataclass(frozen=True)
class Address:
    """Where a listener is told of totals.

    Attributes:
        path: of its socket.
        key: which both sides must know; never shown.
    """

    path: str
    key: bytes

    def __repr__(self) -> str:
        return f"Address({self.path!r})"

    def tell(self, totals: Totals, **names: Any) -> None:
        """Pass totals on, unless the driver has ended.

        Args:
            names: arguments for the listener besides the totals.
        """
        with suppress(OSError, EOFError), Client(self.path, authkey=self.key) as connection:
            connection.send((totals, names))
            connection.recv()  # it has returned


def announce(totals: Totals, address: Address | None, **names: Any) -> None:
    """Write the totals of a job to the driver's log, and pass them to its listener.

    Args:
        address: of the listener; None if there is none.
        names: as for ``Address.tell()``.
    """
    print(f"fastresp: {totals}", file=sys.stderr, flush=True)
    if address is not None:
        address.tell(totals, **names)


def listen(listener: Callable[..., object]) -> Address:
    """Call a function with the totals of each job that ends, in a thread; return where.

    Args:
        listener: called with the Totals, and what else ``Address.tell()`` gets. What it raises is
            printed as from any thread.
    """
    key = token_bytes(32)
    server = Listener(family="AF_UNIX", authkey=key)

    def serve() -> None:
        while True:
            with suppress(OSError, EOFError, AuthenticationError), server.accept() as connection:
                totals, names = connection.recv()
                try:
                    listener(totals, **names)
                except Exception:
                    excepthook(ExceptHookArgs((*sys.exc_info(), current_thread())))
                connection.send(None)

    Thread(target=serve, name="fastresp-listener", daemon=True).start()
    return Address(str(server.address), key)
