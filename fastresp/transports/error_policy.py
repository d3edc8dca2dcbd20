"""Handle error replies: count and keep them, write rejects, or stop the load."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from typing import IO, Any, Self

from ..encode.row_key import RowKeys
from ..outcome.errors import CommandError, RowLocator, TransportError
from ..outcome.messages import Hint, Message
from ..outcome.report import ERRORS_KEPT, EXAMPLE_CHARACTERS, Report
from ..resp.split import arguments
from ..server.file_io import check_unused, needed_for, write_all
from ..server.options import MaxErrors, Rejects
from .resend import is_script, remedy_for
from .window import Error, Window

__all__ = ["ErrorPolicy", "error_fields", "reject_line"]

# Maximum total memory of the arguments that errors keep.
KEPT_BYTES = 8 << 20
# Commands up to this size are always searched for passwords.
SMALL_BYTES = 1 << 16
# A maximum percentage applies only after this many replies, as in DataStax dsbulk.
PERCENT_SAMPLE = 100
# Maximum rows in doubt that a report lists.
MAX_IN_DOUBT = 1_000_000


class ErrorPolicy:
    """Decides what happens to error replies.

    Args:
        on_error: ``"stop"`` stops at the first error. ``"raise"`` continues, and ``checked()``
            raises the errors. ``"collect"`` continues, and raises nothing.
        max_errors: stop if more commands than this fail: a number, or text such as ``"1%"`` for a
            share of the received replies (after the first 100).
        rejects: the path of a JSON Lines file for failed commands, or a callable that receives
            each CommandError.
        place: a function that returns the file of a row, and the row's index in the file; None if
            the source has no files.
        keys: describes the key of a row, for messages.

    Raises:
        ValueError: an option is invalid.
        OSError: the rejects file can't be opened.
    """

    def __init__(
        self,
        on_error: str = "raise",
        max_errors: MaxErrors = None,
        rejects: Rejects = None,
        place: RowLocator | None = None,
        keys: RowKeys | None = None,
    ) -> None:
        if on_error not in ("raise", "stop", "collect"):
            raise ValueError(f"on_error must be 'raise', 'collect' or 'stop', not {on_error!r}")
        self.on_error = on_error
        self._most, self._share = _limits(max_errors)
        if on_error == "stop":
            if max_errors is not None:
                stop, limit = Hint("on_error", "stop"), Hint("max_errors")
                raise ValueError(Message(stop, " stops at the first error; leave out ", limit))
            self._most = 0
        self._rejects = rejects
        self._place = place
        self._keys = RowKeys(None) if keys is None else keys
        self._stays: Callable[[dict[str, Any]], bool] | None = None
        self._file: IO[bytes] | None = None
        self._lines: list[str] = []  # rejects still to be written
        self._kept_bytes = 0
        # If processing was interrupted within an error reply to merged commands: how many of these
        # commands were processed.
        self._taken = 0

    def resume(self, stays: Callable[[dict[str, Any]], bool] | None) -> None:
        """Append to the rejects of the load that is resumed. Call this before the ``with`` block.

        ``stays`` returns whether a reject, which is passed as a dict, stays in the file; it is None
        if no load is resumed.
        """
        self._stays = stays

    def __enter__(self) -> Self:
        if isinstance(self._rejects, (str, os.PathLike)):
            if self._stays is not None and os.path.isfile(self._rejects):
                cut_back(self._rejects, self._stays)
            self._file = _open_rejects(self._rejects, more=self._stays is not None)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def take(self, errors: list[Error], window: Window, report: Report) -> None:
        """Match error replies with their commands, add the errors to the report, write rejects.

        Args:
            errors: the errors; processed errors are removed.

        Raises:
            OSError: the rejects can't be written.
            Exception: any exception of the callable ``rejects``.
        """
        done = 0
        try:
            for error in errors:
                if len(report.errors) >= ERRORS_KEPT and self._rejects is None:
                    done, self._taken = len(errors), 0
                    break
                for number, each in enumerate(self._located(*error, window)):
                    if len(report.errors) >= ERRORS_KEPT and self._rejects is None:
                        break
                    if number >= self._taken:  # not processed before an interruption
                        self._taken = number + 1
                        self._take(each, len(report.errors) < ERRORS_KEPT, report)
                done += 1
                self._taken = 0
            if self._file is not None:
                self._write_lines()
        except Exception:
            self._give_up()
            raise
        finally:
            for index, text, nested in errors[:done]:
                message = text[:EXAMPLE_CHARACTERS].decode(errors="replace")
                report.count_error(message, len(window.failing(index, nested)))
            del errors[:done]

    def _write_lines(self) -> None:
        """Write the rejects, never a partial line, even if the disk is full.

        Raises:
            OSError: the rejects can't be written.
        """
        assert self._file is not None
        lines, self._lines = self._lines, []
        before = self._file.tell() if self._file.seekable() else None
        try:
            write_all(self._file, "".join(lines).encode("ascii"))
        except OSError as error:
            if before is not None:
                with suppress(OSError):
                    self._file.truncate(before)
            noun = "reject" if len(lines) == 1 else "rejects"
            message = f"{error.strerror}; {len(lines):,} {noun} and all later ones were not written"
            raise OSError(error.errno, message, str(self._rejects)) from error

    def _give_up(self) -> None:
        """Stop writing rejects, so that waiting for the commands in flight can't fail again."""
        self._rejects = None
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _take(self, error: CommandError, keep: bool, report: Report) -> None:
        if keep:
            report.errors.append(self._lightened(error))
        if self._file is not None:
            self._lines.append(reject_line(error))
        elif callable(self._rejects):
            self._rejects(error)

    def verdict(self, report: Report) -> str:
        """Return why the load must stop; "" if it continues."""
        failed, replies = report.failed, report.replies
        if self._most is not None and failed > self._most:
            if self._most == 0:
                return "stopped at the first error reply (commands in flight still ran)"
            noun = "reply" if self._most == 1 else "replies"
            return f"stopped after more than {self._most:,} error {noun}"
        if self._share is not None and replies >= PERCENT_SAMPLE and failed > self._share * replies:
            return f"stopped: more than {100 * self._share:g}% of the replies were errors"
        if self._most is None and self._share is None:
            remedies = ((code, remedy_for(code.encode())) for code in report.errors_by_code)
            for code, remedy in remedies:
                if remedy:
                    return Message(
                        f"stopped because of the server's state: {code} ({remedy}; ",
                        Hint("max_errors", ...),
                        " continues up to a number of errors)",
                    )
        return ""

    def doubt(self, rows: list[int], report: Report) -> None:
        """Add rows in doubt to the report; stop the load if ``on_error`` is ``"stop"``."""
        if rows:
            report.rows_in_doubt += rows[: MAX_IN_DOUBT - len(report.rows_in_doubt)]
            if self.on_error == "stop" and not report.stopped:
                report.stopped = "stopped because a connection was lost and commands are in doubt"

    def lack_data(self, message: str, report: Report) -> None:
        """Report that a server may have lost data; stop the load if ``on_error`` is ``"stop"``."""
        if message not in report.restarts:
            report.restarts.append(message)
        if self.on_error == "stop" and not report.stopped:
            report.stopped = "stopped because a server may have lost data"

    def checked(self, report: Report) -> Report:
        """Return the report of a finished load. With ``on_error="collect"``, nothing is raised.

        Raises:
            LoadErrors: the server returned errors.
            TransportError: commands are in doubt, or a server may have lost acknowledged commands.
        """
        # With several connections, errors arrive out of order.
        report.errors.sort(key=lambda error: -1 if error.index is None else error.index)
        if self.on_error != "collect":
            report.raise_for_errors()
            if report.rows_in_doubt:
                continued = "" if report.stopped else "; the load continued"
                raise TransportError(
                    Message(
                        "a connection was lost, and the commands in doubt were not resent, "
                        f"since running them twice could change the result{continued} (the rows "
                        "are in the report's rows_in_doubt; ",
                        Hint("retry", "always"),
                        " would resend them)",
                    ),
                    report,
                )
            if report.restarts:
                raise TransportError(
                    "a server was restarted or replaced during the load, so acknowledged commands "
                    "may be lost (verify() finds the lost rows; with a checkpoint, "
                    "or an append-only file, a load survives a restart)",
                    report,
                )
        return report

    def _located(
        self, index: int, text: bytes, nested: int, window: Window
    ) -> Iterator[CommandError]:
        """Yield an exception for each command that an error reply answers.

        Merged commands share a reply. Without ``rejects``, arguments of large commands are omitted
        once KEPT_BYTES is used up.
        """
        held, at = window.locate(index)
        parts = window.failing(index, nested)
        for part in parts:
            merged = len(held.chunk.parts(at)) > 1
            size = len(held.command(at, part)) if merged else held.size_of(at)
            self._kept_bytes += size
            keeps_arguments = (
                self._rejects is not None
                or self._kept_bytes <= KEPT_BYTES
                or size <= SMALL_BYTES  # the text may quote a password, which must be masked
            )
            row = held.row(part)
            file, row_in_file = (None, None) if self._place is None else self._place(row)
            words = arguments(held.command(at, part)) if keeps_arguments else None
            yield CommandError(
                text.decode(errors="backslashreplace"),
                index=held.source_index(part),
                row=row,
                file=file,
                row_in_file=row_in_file,
                arguments=words,
                nested=nested > 0
                and not (window.batched and not is_script(held.command(at, part))),
                node=window.node,
                row_key=held.row_key(part, words, self._keys),
            )

    def _lightened(self, error: CommandError) -> CommandError:
        """Return the error, without its arguments once KEPT_BYTES is used up."""
        if error.arguments is None or self._kept_bytes <= KEPT_BYTES:
            return error
        lightened = copy(error)
        lightened.arguments, lightened.redacted = None, False
        return lightened


def reject_line(error: CommandError) -> str:
    """Return a failed command as a line of JSON, for ``read_rejects()``.

    An argument is text, or an object such as ``{"base64": "/w=="}`` if it is not UTF-8.
    """
    return json.dumps(error_fields(error)) + "\n"


def error_fields(error: CommandError) -> dict[str, Any]:
    """Return a failed command as a dict for JSON: one line of a rejects file."""
    found = error.arguments
    fields: dict[str, Any] = {
        "command": error.index,
        "row": error.row,
        **({} if error.file is None else {"file": error.file, "row_in_file": error.row_in_file}),
        **({} if error.line is None else {"line": error.line}),
        **({"row_key": error.row_key} if error.row_key else {}),
        "arguments": found and [_for_json(each) for each in found],
        "code": error.code,
        "error": error.text,
    }
    if error.node is not None:
        fields["node"] = error.node
    if error.redacted:
        fields["redacted"] = True
    if error.nested:
        fields["nested"] = True
    return fields


def _for_json(word: bytes) -> str | dict[str, str]:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(word).decode()}


def cut_back(path: str | os.PathLike[str], stays: Callable[[dict[str, Any]], bool]) -> None:
    """Remove the rejects that a resumed load will write again, and a partial last line.

    Raises:
        OSError: the file can't be replaced.
    """
    beside = f"{os.fspath(path)}.{os.urandom(8).hex()}.tmp"
    with needed_for(f"can't truncate {os.fspath(path)!r} at the checkpoint"):
        try:
            with open(path, "rb") as old, open(beside, "xb") as new:
                new.writelines(line for line in old if _is_kept(line, stays))
                new.flush()
                os.fsync(new.fileno())
            shutil.copymode(path, beside)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise


def _is_kept(line: bytes, stays: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether to keep a line of a rejects file. Unknown lines are kept."""
    if not line.endswith(b"\n"):
        return False
    try:
        fields = json.loads(line)
        return not isinstance(fields, dict) or stays(fields)
    except (ValueError, LookupError, TypeError, RecursionError):
        return True


def _open_rejects(path: str | os.PathLike[str], *, more: bool) -> IO[bytes]:
    name = os.fspath(path)
    if not more:
        step = f"load them again (fastresp load {name} --from-rejects, or read_rejects({name!r}))"
        check_unused(path, "the rejects of an earlier load", step)
    with needed_for(f"can't open {name!r} for the rejects"):
        return open(path, "ab" if more else "wb", buffering=0)


def _limits(max_errors: MaxErrors) -> tuple[int | None, float | None]:
    """Return the maximum number of errors, and their maximum share; None for no maximum."""
    if max_errors is None:
        return None, None
    try:
        if isinstance(max_errors, str) and max_errors.strip().endswith("%"):
            share = float(max_errors.strip()[:-1]) / 100
            if 0 <= share < 1:
                return None, share
        elif not isinstance(max_errors, bool) and int(max_errors) == float(max_errors) >= 0:
            return int(max_errors), None
    except (TypeError, ValueError, OverflowError):
        pass
    message = f" must be a number of 0 or more, or a percentage such as '1%', not {max_errors!r}"
    raise ValueError(Message(Hint("max_errors"), message))
