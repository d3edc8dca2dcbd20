"""Ctrl-C and SIGTERM: exit at once until a command starts, then with a report.

During imports and option parsing a KeyboardInterrupt would be swallowed or replaced by libraries.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["end_at_once", "end_in_order"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 4  # Exit.INTERRUPTED, whose module is slow to import


def end_at_once() -> None:
    """Exit at once on a signal. A signal that was ignored at the start stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def end_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt on a signal, so that the report is printed and folders removed."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _end]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        # Only the report is left to print.
        for number in ours:
            signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"fastresp: interrupted\n")
    os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
