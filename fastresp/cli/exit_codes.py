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
    """The exit codes."""

    OK = 0
    ERRORS = 1
    STOPPED = 2
    LOST = 3
    INTERRUPTED = 4
    ADVICE = 5  # of fastresp doctor
    EARLIER = 6
    USAGE = 64  # EX_USAGE of sysexits.h
    TERMINATED = 143  # what a shell reports for a process ended by SIGTERM


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
    """The options before the name of the command, and the log for messages.

    Attributes:
        log: called with a message, and whether it reports a failure; None for standard error.
    """

    traceback = False
    log: Callable[[str, bool], object] | None = None


class Ended(SystemExit):
    """Ends a command with a code of Exit."""

    code: int


def say(text: str, *, failed: bool = False) -> None:
    """Print a line for people, on stderr; stdout is for programs."""
    if CommonOptions.log is not None:
        CommonOptions.log(text, failed)
        return
    if sys.stderr is None:
        return
    from ..outcome.excerpts import visible  # not at the start: --help does not need it

    prefix = "fastresp: " if failed else ""
    with suppress(OSError):  # a full disk, or a reader that has gone
        if failed and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            prefix = click.style(prefix, fg="red", bold=True)
        print(prefix + visible(text), file=sys.stderr)


def counted(count: int, thing: str) -> str:
    """Return "1 row" or "2 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def fail(message: str, code: Exit = Exit.USAGE) -> NoReturn:
    """Print an error and end the command."""
    say(message, failed=True)
    raise Ended(int(code))
