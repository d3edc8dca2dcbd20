"""Exit codes, and lines on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

import click

__all__ = ["MEANINGS", "CommonOptions", "Ended", "Exit", "counted", "fail", "say"]


class Exit(IntEnum):
    """The exit codes of ``fastresp``."""

    OK = 0
    ERRORS = 1
    STOPPED = 2
    LOST = 3
    INTERRUPTED = 4
    ADVICE = 5  # of fastresp doctor
    EARLIER = 6
    USAGE = 64  # EX_USAGE of sysexits.h
    TERMINATED = 143  # as a shell reports for a process that SIGTERM ended


MEANINGS = {
    Exit.OK: "success",
    Exit.ERRORS: "error replies, data that can't be read or sent, differences, or a problem found "
    "by `fastresp doctor`",
    Exit.STOPPED: "stopped by `--max-errors` or `--on-error stop`, or by a full or busy server",
    Exit.LOST: "the server can't be used, the connection was lost, or another loader is at work",
    Exit.INTERRUPTED: "interrupted, for example by Ctrl-C",
    Exit.ADVICE: "`fastresp doctor` found no problem, but has advice",
    Exit.EARLIER: "nothing was sent: the file of `--rejects`, `--bad-rows` or `--differences` "
    "still has entries from an earlier run",
    Exit.USAGE: "wrong usage: an invalid option or template, a missing file, or the checkpoint of "
    "another source",
    Exit.TERMINATED: "terminated by SIGTERM, for example when a container is stopped",
}


class CommonOptions:
    """The state that all commands share: ``--traceback``, and where messages are logged.

    Attributes:
        traceback: whether to print tracebacks.
        log: called with a message, and whether the message reports a failure. None prints to
            standard error.
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
    if sys.stderr is None:
        return
    from ..outcome.messages import visible  # not at the start: --help does not need it

    prefix = "fastresp: " if failed else ""
    with suppress(OSError):  # the disk is full, or the reader has closed stderr
        if failed and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            prefix = click.style(prefix, fg="red", bold=True)
        print(prefix + visible(text), file=sys.stderr)


def counted(count: int, thing: str) -> str:
    """Return "1 row" or "2 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def fail(message: str, code: Exit = Exit.USAGE) -> NoReturn:
    """Print an error, and end the command with this code."""
    say(message, failed=True)
    raise Ended(int(code))
