"""Ctrl-C and SIGTERM: exit immediately before a command starts, afterwards with a report.

Before a command starts, libraries would swallow or replace a KeyboardInterrupt. While it runs, the
first signal stops it in order, and a second signal ends the wait for replies. A third signal, or
any signal while the report is printed, ends the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["end_at_once", "end_in_order", "terminated"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED, TERMINATED = 4, 143  # as in Exit, whose module is slow to import
# The signals received.
_received: list[int] = []


def end_at_once() -> None:
    """From now on, exit immediately on a signal, except on signals that are already ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def end_in_order() -> Iterator[None]:
    """In the block, raise KeyboardInterrupt on a signal; after the block, exit immediately."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _end]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        # Now only the report must be printed, and a blocked reader could delay this forever.
        for number in ours:
            signal.signal(number, _end)


def terminated() -> bool:
    """Return whether SIGTERM was received."""
    return signal.SIGTERM in _received


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if len(_received) == 1:  # if there are more signals, writing to stderr may block
        os.write(2, b"fastresp: terminated\n" if terminated() else b"fastresp: interrupted\n")
    os._exit(TERMINATED if terminated() else INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    raise KeyboardInterrupt
