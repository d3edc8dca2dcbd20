"""Exit codes, lines on stderr, and signals: Ctrl-C and SIGTERM.

Before a command starts, a signal ends the process immediately, since libraries would swallow or
replace a KeyboardInterrupt. While a command runs, the first signal stops it in order, and a second
signal ends the wait for replies. A third signal, or any signal while the report is printed, ends
the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from types import FrameType
from typing import NoReturn

__all__ = [
    "MEANINGS", "CommonOptions", "Ended", "Exit", "end_at_once", "end_in_order", "fail", "say",
    "terminated",
]  # fmt: skip

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The signals received.
_received: list[int] = []


class Exit(IntEnum):
    """The exit codes of ``fastresp``."""

    OK = 0
    ERRORS = 1
    STOPPED = 2
    LOST = 3
    INTERRUPTED = 4
    ADVICE = 5  # of fastresp doctor
    EARLIER = 6
    CHANGED = 7
    USAGE = 64  # EX_USAGE of sysexits.h
    TERMINATED = 143  # as a shell reports for a process that SIGTERM ended


MEANINGS = {
    Exit.OK: "success",
    Exit.ERRORS: "error replies, data that can't be read or sent, differences, "
    "keys that `--mirror` did not delete, or a problem found by `fastresp doctor`",
    Exit.STOPPED: "stopped by `--max-errors` or `--on-error stop`, or by a full or busy server",
    Exit.LOST: "the server can't be used, the connection was lost, or another loader is running",
    Exit.INTERRUPTED: "interrupted, for example by Ctrl-C",
    Exit.ADVICE: "`fastresp doctor` found no problem, but has advice",
    Exit.EARLIER: "nothing was sent: the file of `--rejects`, `--bad-rows` or `--differences` "
    "still has entries from an earlier run",
    Exit.CHANGED: "`fastresp verify --receipt`: the source has changed since the load",
    Exit.USAGE: "wrong usage: an invalid option or template, a missing file, or the checkpoint of "
    "another source",
    Exit.TERMINATED: "terminated by SIGTERM, for example when a container is stopped",
}


class CommonOptions:
    """The state that all commands share: ``--traceback``, and where messages are logged.

    Attributes:
        traceback: whether to print tracebacks.
        log: called with a message, and whether the message reports a failure. None to print
            messages to standard error.
    """

    traceback = False
    log: Callable[[str, bool], object] | None = None


class Ended(SystemExit):
    """Ends a command; ``code`` is an Exit."""

    code: int


def say(text: str, *, failed: bool = False) -> None:
    """Print a line for people on stderr, or log it. Standard output is for programs."""
    if CommonOptions.log is not None:
        CommonOptions.log(text, failed)
        return
    from ..outcome.messages import visible  # not at the start: --help does not need it

    prefix = "fastresp: " if failed else ""
    with suppress(OSError):  # the disk is full, or the reader has closed stderr
        if failed and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            import click  # not at the start, as above

            prefix = click.style(prefix, fg="red", bold=True)
        print(prefix + visible(text), file=sys.stderr)


def fail(message: str, code: Exit = Exit.USAGE) -> NoReturn:
    """Print an error, and end the command with this code."""
    say(message, failed=True)
    raise Ended(int(code))


def end_at_once() -> None:
    """From now on, exit immediately on a signal, except on signals that are already ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def end_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt for signals in the block; exit immediately for signals after it."""
    ours = [number for number in SIGNALS if signal.getsignal(number) is _end]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        # From now on, only the report is printed, which a blocked reader could delay forever.
        for number in ours:
            signal.signal(number, _end)


def terminated() -> bool:
    """Return whether SIGTERM was received."""
    return signal.SIGTERM in _received


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if len(_received) == 1:  # if there are more signals, writing to stderr may block
        os.write(2, b"fastresp: terminated\n" if terminated() else b"fastresp: interrupted\n")
    os._exit(Exit.TERMINATED if terminated() else Exit.INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    raise KeyboardInterrupt
