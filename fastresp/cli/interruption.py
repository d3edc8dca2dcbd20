"""Ctrl-C and SIGTERM: exit at once until a command starts, then with a report.

During imports and option parsing a KeyboardInterrupt would be swallowed or replaced by libraries.
A second signal ends the wait for replies, and a third, or one while the report is printed, the
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
INTERRUPTED, TERMINATED = 4, 143  # those of Exit, whose module is slow to import
# The signals that came.
_came: list[int] = []


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
        # Only the report is left to print, to a reader that may never read it.
        for number in ours:
            signal.signal(number, _end)


def terminated() -> bool:
    """Return whether SIGTERM has come, and not only Ctrl-C."""
    return signal.SIGTERM in _came


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _came.append(number)
    if len(_came) == 1:  # else the output may be blocked
        os.write(2, b"fastresp: terminated\n" if terminated() else b"fastresp: interrupted\n")
    os._exit(TERMINATED if terminated() else INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _came.append(number)
    raise KeyboardInterrupt
