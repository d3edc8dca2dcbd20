"""End a command: with a report, an error message or JSON, and an exit code.

The library's error messages name Python arguments; these are replaced by options.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

from ..outcome.errors import (
    CheckpointError,
    CommandError,
    EncodeError,
    FastrespError,
    ProtocolError,
    TemplateError,
    TransportError,
)
from ..outcome.messages import Hint, Message, message_of
from ..outcome.passwords import masked
from ..outcome.report import LoadErrors, Report, counted
from ..server.file_io import EarlierOutput
from ..transports.error_policy import error_fields
from .exit_codes import CommonOptions, Ended, Exit, end_in_order, say, terminated

if TYPE_CHECKING:
    from ..load.verifying.report import VerifyReport
    from .json_log import JsonLog

__all__ = ["Ending", "ending", "in_options", "progress_of", "standard_output", "step_display"]

# Python arguments whose command-line option has a different name.
OPTIONS = {"header": "--no-header", "retry": "--retry-in-doubt"}
# Python arguments without a command-line option.
NO_OPTIONS = frozenset(("default",))
# Options that can be repeated.
REPEATED = frozenset(("binary",))


class Ending:
    """The output of a command at its end.

    Attributes:
        report: the report of the load; None until there is one.
        fields: the JSON fields of a command that is not a load.
        verified: the report of a verification; None until there is one.
        bad_rows: number of bad rows that were skipped; None unless ``--bad-rows`` skips them.
        json_file: the file for JSON; None for standard output.
        log: logs the end, which is then not printed; None to print it.
        traceback: the traceback of the exception that ended the command, for the log.
        resuming: the options with which the load can be resumed; empty without a checkpoint.
    """

    def __init__(self, as_json: bool, log: JsonLog | None) -> None:
        self.as_json = as_json
        self.log = log
        self.traceback = ""
        self.resuming = ""
        self.report: Report | None = None
        self.fields: dict[str, Any] | None = None
        self.verified: VerifyReport | None = None
        self.bad_rows: int | None = None
        self.json_file: IO[str] | None = None

    def add_verified(self, report: VerifyReport) -> None:
        """Set the report of a verification, and the JSON fields that include it."""
        self.verified = report
        if self.report is not None:
            self.fields = _report_fields(self.report) | {"verification": report.as_json()}
        elif self.as_json or self.log is not None:
            self.fields = report.as_json()

    def end(self, code: Exit, error: str = "") -> NoReturn:
        """Print the report and the error, and exit with this code."""
        error = in_options(error)
        if self.as_json or self.log is not None:
            fields = _report_fields(self.report) if self.fields is None else self.fields
            if self.bad_rows is not None:
                fields = fields | {"bad_rows": self.bad_rows}
            fields = fields | {"exit_code": int(code), "error": error or None}
            if self.log is not None:
                self.log.log_end(fields, self.traceback)
            if self.as_json:
                print(json.dumps(fields), file=self.json_file)
        else:
            for report in (self.report, self.verified):
                if report is not None:
                    say(in_options(report.message))
            if self.bad_rows is not None:
                say(f"{counted(self.bad_rows, 'bad row')} skipped")
            if error:
                say(error, failed=True)
        raise Ended(int(code))

    def end_well(self) -> NoReturn:
        """End the command without an exception: print the report; exit with a code based on it."""
        report = self.report
        if report is not None and report.stopped:
            self.end(Exit.STOPPED)
        differs = self.verified is not None and not self.verified.same
        failed = report is not None and (
            report.failed or report.failed_before or report.not_mirrored
        )
        if failed or differs:
            self.end(Exit.ERRORS)
        lost = report is not None and (report.restarts or report.rows_in_doubt)
        self.end(Exit.LOST if lost else Exit.OK)


@contextmanager
def ending(*, as_json: bool = False, log: JsonLog | None = None) -> Iterator[Ending]:
    """Run a command in the block. When the block ends or raises, print the outcome, and exit."""
    end = Ending(as_json, log)
    try:
        with end_in_order():
            yield end
    except (Ended, BrokenPipeError, click.exceptions.Exit):
        raise
    except LoadErrors as error:
        end.report = error.report
    except BaseException as error:
        if isinstance(error, (SystemExit, click.ClickException)):
            raise
        if CommonOptions.traceback:
            import traceback

            end.traceback = masked("".join(traceback.format_exception(error)))
            if log is None:
                print(end.traceback, end="", file=sys.stderr)
        if end.verified is None:
            end.report = getattr(error, "report", None) or end.report
        code, message = _code(error, end.verified or end.report), _message(error)
        if end.resuming and code in UNFINISHED and not isinstance(error, CheckpointError):
            message += f" (the same command with {end.resuming} resumes this load)"
        end.end(code, message)
    end.end_well()


# Errors that mean a mistake on the command line. Any other OSError is a problem of the system.
WRONG_PATH = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


# Exit codes of a load that can be resumed from its checkpoint.
UNFINISHED = (Exit.LOST, Exit.INTERRUPTED, Exit.TERMINATED)


def _code(error: BaseException, report: Report | VerifyReport | None) -> Exit:
    from ..load.stored_receipt import ChangedSource

    match error:
        case KeyboardInterrupt() | click.Abort():
            return Exit.TERMINATED if terminated() else Exit.INTERRUPTED
        case TransportError():
            return Exit.LOST
        case CheckpointError(again=True):
            return Exit.LOST
        case CheckpointError() if report is None:
            return Exit.USAGE
        case TemplateError():
            return Exit.USAGE
        case EarlierOutput() if report is None:
            return Exit.EARLIER
        case ChangedSource():
            return Exit.CHANGED
        case EncodeError() | ProtocolError() | FastrespError():
            return Exit.ERRORS
        case OSError() if not isinstance(error, WRONG_PATH):
            return Exit.ERRORS
        case OSError() | ValueError() | TypeError() | ImportError() if report is None:
            return Exit.USAGE
    return Exit.ERRORS


def _message(error: BaseException) -> str:
    match error:
        case KeyboardInterrupt() | click.Abort():
            return "terminated" if terminated() else "interrupted"
        case TransportError():
            message: str = error.args[0]  # without the report, which is printed separately
            return message
        case OSError(filename=name, strerror=problem) if name and problem:
            return f"{name}: {problem}; check the path"
        case CommandError(__notes__=notes):
            return f"{error} ({'; '.join(note.removeprefix('fastresp: ') for note in notes)})"
        case FastrespError() | OSError() | ValueError() | TypeError() | ImportError():
            return message_of(error)
    return f"{type(error).__name__}: {masked(str(error))} (fastresp --traceback ... shows where)"


def _report_fields(report: Report | None) -> dict[str, Any]:
    """Return a report's fields for JSON. If there is no report, the counts are zero."""
    report = report or Report("")
    names = [each.name for each in dataclasses.fields(report) if each.repr]
    fields = {name: getattr(report, name) for name in names}
    return fields | {
        "in_doubt": report.in_doubt,
        "commands_per_second": report.commands_per_second,
        "errors": [error_fields(error) for error in report.errors],
        "indexes": [dataclasses.asdict(index) for index in report.indexes],
        "warnings": [in_options(each) for each in report.warnings],
    }


def progress_of(as_json: bool, logged: Any) -> Any:
    """Return the argument ``progress=`` of a load: a logger, or whether to show a bar."""
    return (sys.stderr.isatty() and not as_json) if logged is None else logged


@contextmanager
def step_display() -> Iterator[Callable[[str], object]]:
    """Yield a function that shows the current step on stderr, if stderr is a terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.markup import escape
    from rich.spinner import Spinner

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda text: live.update(Spinner("dots", escape(text)), refresh=True)


def standard_output() -> IO[bytes]:
    """Return standard output as a file for bytes.

    Raises:
        OSError: standard output was closed before the program started.
    """
    if sys.stdout is None:
        raise OSError("standard output is closed; redirect it to a file")
    return sys.stdout.buffer


def in_options(text: str) -> str:
    """Replace Python arguments in a message by options: nulls='skip' becomes --nulls skip."""
    return text.worded(_option) if isinstance(text, Message) else text


def _option(hint: Hint) -> str:
    """Return an option with its value, as typed in a shell."""
    if hint.option in NO_OPTIONS:
        return str(hint)
    option = OPTIONS.get(hint.option) or f"--{hint.option.replace('_', '-')}"
    if isinstance(hint.value, str):
        # Quoted, because a shell would interpret characters such as a semicolon.
        option += f" {hint.value if hint.value.isalpha() else repr(hint.value)}"
    preposition = "after" if hint.option in REPEATED and hint.preposition else hint.preposition
    return f"{preposition} {option}".lstrip()
