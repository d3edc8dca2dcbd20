"""The receipt of a load or a copy: a JSON file with its source, server, counts and outcome.

``docs/reference/receipt.md`` describes the fields.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ..encode.template import Template, fixed_text
from ..outcome.errors import TransportError
from ..outcome.messages import Hint, Message, message_of
from ..outcome.passwords import holds_passwords, masked
from ..outcome.report import LoadErrors, Report
from ..server.options import Options
from ..server.preflight import Requirements
from ..server.settings import Server, as_server
from ..server.threads import in_thread
from ..sources.files.paths import check_not_read, is_local_file
from ..sources.files.remote import RemotePath
from ..sources.files.resp import CommandSource
from ..sources.files.table import Table
from ..sources.source import files_of
from ..transports.base import add_report
from ..transports.driver import Blocking, Steps
from .load import Feature, Load
from .new_file import TargetPath, new_file
from .stored_receipt import (
    BEGINNING,
    BLOCK_BYTES,
    COMPLETE,
    COPY_BEGINNING,
    COPY_FORMAT,
    FORMAT,
    VERSION,
    SourceDigest,
    counts_of,
    encoded,
    url_of,
    utc,
)  # fmt: skip

if TYPE_CHECKING:
    from ..server.answers import Answers
    from .lineage import Lineage

__all__ = ["CopyReceipt", "Receipt", "source_of"]

# Counts of the report that a receipt has.
COUNTS = (
    "rows", "commands", "replies", "failed", "durable", "in_doubt", "unsent", "skipped",
    "nulls_skipped", "existing", "keys", "deleted", "deleted_fields", "resumed_at", "failed_before",
    "bytes_sent",
)  # fmt: skip
# Further counts, and options, in the receipt of a copy.
COPY_COUNTS = (
    "gone", "unchanged", "converted", "expiries_dropped", "in_parts", "followed", "offset",
    "lag_bytes",
)  # fmt: skip
COPY_OPTIONS = (
    "match", "type", "db", "exists", "rename", "field_ttl", "from_replica", "follow", "until_lag",
    "changed", "delete", "verify", "sample", "max_payload_bytes", "connections", "on_error",
    "max_errors", "rate_limit", "retry", "durable", "import_source", "pause_saves",
)  # fmt: skip
INTERRUPTED = "its computation was interrupted"
# Options that a receipt has elsewhere, or that don't change what a load does.
LEFT_OUT = {
    "checkpoint", "default", "index_backlog", "lineage", "metrics", "mirror", "mode", "progress",
    "receipt", "rejects", "server", "timeout", "wait_index",
}  # fmt: skip


class Receipt(Feature):
    """Writes the receipt of a load at its end, even after an exception, and sends it as events.

    Args:
        options: the load's options: the path of the receipt, and whether to send events.

    Raises:
        ImportError: the package that sends events is not installed.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lineage: Lineage | None = None
        if options.lineage:
            from .lineage import Lineage

            name = None if options.checkpoint is None else options.checkpoint.name
            self._lineage = Lineage(name)
        self._place: TargetPath | None = None
        self._started, self._clock = time.time(), time.monotonic()

    def begin(self, load: Load) -> None:
        """Check the path, remove the receipt of an earlier load, and start the digest.

        Raises:
            OSError: the file can't be created, or a file there is not a receipt.
            ValueError: the path is not a file, or is also used for something else.
        """
        options, data = self._options, load.chunks.data
        self._server = as_server(options.server, Requirements(nodes=True))
        if options.receipt is not None:
            self._place = _checked_place(options.receipt, options, files_of(data))
        self._source = source_of(data)
        self._digest = SourceDigest(data)
        self._digest.start(load.chunks)
        if self._lineage is not None:
            self._lineage.start(self._source, url_of(self._server), load.chunks.template)

    def ended(self, load: Load) -> Steps[None]:
        """Write the receipt, and send the last event.

        Raises:
            OSError: the load has succeeded, but the receipt can't be written.
        """
        if isinstance(load.error, GeneratorExit):  # after it, nothing can be awaited
            self._finish(load)
            return
        try:
            yield Blocking(partial(self._finish, load), partial(self._digest.stop, INTERRUPTED))
        except BaseException as error:
            add_report(error, load.report, str(load.report))
            raise

    def _finish(self, load: Load) -> None:
        digest, state, sha256 = self._digest, _state_of(load.error, load.report), None
        if state != COMPLETE:
            digest.stop()
        elif digest.over == "commands" and load.report.ended_before:
            digest.stop("an earlier load with this checkpoint has read the source")
        elif digest.over == "commands" and load.chunks.start_row:
            digest.stop("the load resumed after the first row")
        try:
            sha256 = digest.result()
        finally:  # also if the wait is interrupted
            if sha256 is None:
                digest.stop(INTERRUPTED)
            found = {"over": digest.over, "sha256": sha256, "reason": digest.reason}
            document = self._document(load) | {"source": self._source | {"digest": found}}
            try:
                if self._place is not None:
                    _write(document, self._place, load.error)
            finally:
                if self._lineage is not None:
                    self._lineage.end(document)

    def _document(self, load: Load) -> dict[str, Any]:
        options, report = self._options, load.report
        checkpoint = options.checkpoint
        return {
            **_beginning(FORMAT, load.error, report, self._started, self._clock),
            "source": self._source,
            "template": _text_of(load.chunks.template),
            "options": _options_of(options),
            "server": self._server_of(load),
            "not_mirrored": str(report.not_mirrored) or None,
            "counts": {name: getattr(report, name) for name in COUNTS},
            "errors": dict(report.errors_by_code),
            "restarts": list(report.restarts),
            "rejects": _rejects_of(options),
            "checkpoint": None if checkpoint is None else checkpoint.name,
            "verification": None,
        }

    def _server_of(self, load: Load) -> dict[str, Any]:
        answers = None if load.transport is None else load.transport.answers
        return _described(self._server, answers)


class CopyReceipt:
    """Writes the receipt of a copy at its end, even after an exception.

    Threads ask both servers for their versions; without an answer, these are unknown.

    Args:
        path: the path of the receipt.
        source: the server to read from; None for files.
        files: the files to read from.
        options: the CopyOptions; their server is the target.

    Raises:
        OSError, ValueError: as ``Receipt.begin()`` does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        source: Any,
        files: Sequence[str],
        options: Options,
        checkpoint: str | None,
    ) -> None:
        self._options, self._checkpoint = options, checkpoint
        servers = [options.server] if files else [options.server, source]
        self._asked = [in_thread(partial(_asked, each, options.timeout)) for each in servers]
        self._files = list(map(_file_of, files))
        self._place = _checked_place(path, options, [*files])
        self._started, self._clock = time.time(), time.monotonic()

    def ending(self, error: BaseException | None, report: Report | None) -> Steps[None]:
        """Write the receipt."""
        found = report or getattr(error, "report", None)
        write = partial(self._finish, error, found if isinstance(found, Report) else Report(""))
        if isinstance(error, GeneratorExit):  # after it, nothing can be awaited
            write()
        else:
            yield Blocking(write)

    def _finish(self, error: BaseException | None, report: Report) -> None:
        target, *source = [each.result() for each in self._asked]
        options = {name: getattr(self._options, name) for name in COPY_OPTIONS}
        verified = report.verification
        document = {
            **_beginning(COPY_FORMAT, error, report, self._started, self._clock),
            **self._omitted(error),
            "source": {"files": self._files, "server": source[0] if source else None},
            "target": target,
            "options": options | {"delete": bool(options["delete"])},
            "counts": {name: getattr(report, name) for name in COUNTS + COPY_COUNTS},
            "by_value": str(report.by_value) or None,
            "errors": dict(report.errors_by_code),
            "restarts": list(report.restarts),
            "rejects": _rejects_of(self._options),
            "checkpoint": self._checkpoint,
            "verification": None if verified is None else counts_of(verified.as_json()),
        }
        try:
            _write(document, self._place, error)
        except OSError as failed:
            add_report(failed, report, str(report))
            raise

    def _omitted(self, error: BaseException | None) -> dict[str, Any]:
        """Return the outcome of a copy that errors ended before its last step; empty if none did.

        A load runs to its end if the server refuses commands, but a copy does not.
        """
        options: Any = self._options
        if not isinstance(error, LoadErrors) or not (options.follow or options.verify):
            return {}
        words = "followed to its end" if options.follow else "verified"
        return {"state": "stopped", "stopped": f"keys or commands failed, so it was not {words}"}


def _asked(given: Any, timeout: float | None) -> dict[str, Any]:
    """Ask a server for its version; the copy itself explains why a server can't be used."""
    server = as_server(given, Requirements(nodes=True))
    with suppress(Exception):
        return _described(server, server.ask(timeout))
    return _described(server, None)


def _described(server: Server, answers: Answers | None) -> dict[str, Any]:
    found: dict[str, Any] = {"url": url_of(server)}
    if answers is None:
        return found | dict.fromkeys(("product", "version", "run_id", "mode"))
    return found | {
        "product": "valkey" if answers.valkey else "redis",
        "version": answers.version,
        "run_id": answers.run_id or None,
        "mode": "cluster" if answers.cluster else "standalone",
    }


def _beginning(
    what: str, error: BaseException | None, report: Report, started: float, clock: float
) -> dict[str, Any]:
    """Return the first fields of a receipt: the outcome and the times.

    Args:
        started, clock: the results of ``time.time()`` and ``time.monotonic()`` at the start.
    """
    return {
        "format": what,
        "version": VERSION,
        "fastresp": version("fastresp"),
        "state": _state_of(error, report),
        "error": _error_of(error),
        "stopped": str(report.stopped) or None,
        "started": utc(started),
        "ended": utc(time.time()),
        "seconds": round(time.monotonic() - clock, 3),
    }


def _write(document: dict[str, Any], place: TargetPath, error: BaseException | None) -> None:
    """Write a receipt; after an exception, a failure is only logged."""
    try:
        with new_file(place) as file:
            file.add(encoded(document))
    except OSError as failed:
        if error is None:
            raise
        logging.getLogger("fastresp").warning("the receipt could not be written: %s", failed)


def _checked_place(path: str | os.PathLike[str], options: Options, files: list[str]) -> TargetPath:
    """Check the path of the receipt, and remove an earlier receipt."""
    place = TargetPath(path, (BEGINNING, COPY_BEGINNING), "receipt")
    check_not_read(place.path, files)
    for other in (options.rejects, options.metrics, getattr(options, "differences", None)):
        if isinstance(other, str | os.PathLike) and os.path.realpath(other) == place.path:
            text = f"{os.fspath(other)} is also the file of another option; use another one for "
            raise ValueError(Message(text, Hint("receipt", ...)))
    folder = os.path.dirname(place.path)
    os.stat(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place.path)
    with suppress(FileNotFoundError):
        os.unlink(place.path)
    return place


def _state_of(error: BaseException | None, report: Report) -> str:
    if error is not None and not isinstance(error, LoadErrors):
        return "failed" if isinstance(error, Exception) else "interrupted"
    return "stopped" if report.stopped else COMPLETE


def _error_of(error: BaseException | None) -> dict[str, str] | None:
    if error is None or isinstance(error, LoadErrors):
        return None
    # The text of a TransportError has the report.
    text = error.args[0] if isinstance(error, TransportError) else message_of(error)
    return {"type": type(error).__name__, "message": masked(str(text))}


def _text_of(template: Template | None) -> str | None:
    """Return the text of a template; None for no template, or if it may have a password."""
    if template is None or any(holds_passwords(fixed_text(each[0])) for each in template.commands):
        return None
    return template.text


def source_of(data: Any) -> dict[str, Any]:
    """Return the identity of a source: its type, its files, and how to read it again."""
    kind = type(data)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
    again = isinstance(data, Table | CommandSource)
    return {
        "type": "loader" if data is None else module + kind.__qualname__,
        "query": data.query if isinstance(data, Table) else None,
        "files": list(map(_file_of, files_of(data))),
        "read": data.arguments() if again else None,
    }


def _file_of(path: str) -> dict[str, Any]:
    if isinstance(path, RemotePath):
        return {"path": str(path), "size": path.state.size, "version": path.state.version}
    if not is_local_file(path):
        return {"path": masked(path)}
    found = os.stat(path)
    return {"path": os.path.abspath(path), "size": found.st_size, "mtime": utc(found.st_mtime)}


def _options_of(options: Options) -> dict[str, Any]:
    mode = {} if options.mode is None else asdict(options.mode)
    found = {
        each.name: getattr(options, each.name)
        for each in fields(options)
        if each.name not in LEFT_OUT
    }
    return found | {
        "mode": options.mode_name,
        **{name: value for name, value in mode.items() if value is not None},
        "mirror": None if options.mirror is None else asdict(options.mirror),
        "default": options.default is not None,
    }


def _rejects_of(options: Options) -> dict[str, Any] | None:
    """Return the number of lines of the rejects file, and its digest; None if it can't be read."""
    path = options.rejects
    if not isinstance(path, str | os.PathLike) or not os.path.isfile(path):
        return None
    found: dict[str, Any] = {"path": os.path.abspath(path), "count": None, "sha256": None}
    count, made = 0, hashlib.sha256()
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            made.update(block)
            count += block.count(b"\n")
        found |= {"count": count, "sha256": made.hexdigest()}
    return found
