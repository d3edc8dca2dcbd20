"""Ctrl-C, and a kill, at the command line: the end at once while nothing has begun, then in order.

An exception would come in the midst of imports and of the parsing of options, where libraries
turn it into others, or swallow it.
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
INTERRUPTED = 4  # Exit.INTERRUPTED, whose module takes long to import


def end_at_once() -> None:
    """End the program when it is interrupted; what it was started to ignore stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def end_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt instead, so that the report is printed, and folders cleaned up."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _end]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        # What is left to do is to say what came of it.
        for number in ours:
            signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"fastresp: interrupted\n")
    os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
