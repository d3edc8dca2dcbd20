"""Ctrl-C and SIGTERM: exit immediately before a command starts, afterwards with a report.

During imports and option parsing, libraries would swallow or replace a KeyboardInterrupt. A second
signal ends the wait for replies. A third signal, or a signal while the report is printed, ends the
process.
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
    """Exit immediately on a signal. A signal ignored at the start stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def end_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt on a signal, so that a report is printed and folders are removed."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _end]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        # Only the report is left to print, and the reader of the output may be blocked.
        for number in ours:
            signal.signal(number, _end)


def terminated() -> bool:
    """Return whether SIGTERM was received, and not only Ctrl-C."""
    return signal.SIGTERM in _received


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if len(_received) == 1:  # after a second signal, the output may be blocked
        os.write(2, b"fastresp: terminated\n" if terminated() else b"fastresp: interrupted\n")
    os._exit(TERMINATED if terminated() else INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    raise KeyboardInterrupt
