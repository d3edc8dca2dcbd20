"""``--log json``: lines on standard error, one JSON object each, for containers."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from ..load.load import Feature, Load
from ..load.progress import fraction_done
from ..outcome.messages import shown_argument
from ..outcome.passwords import masked
from ..resp.commands import POSITIONS
from ..server.preflight import Requirements
from ..server.settings import Server
from ..sources.source import known_rows
from .exit_codes import CommonOptions

if TYPE_CHECKING:
    from ..load.verifying.report import VerifyReport
    from ..outcome.errors import CommandError
    from ..outcome.report import Report
    from ..transports.driver import Steps

__all__ = ["JsonLog", "json_log"]

LOGGER = logging.getLogger("fastresp")
# Fields of the report that are not logged. Errors are logged separately, with the key but without
# other data. Differences are data.
LEFT_OUT = ("errors", "rows_in_doubt", "differences")
# In the error about an unknown command, this text precedes arguments, which are data. Source:
# commandCheckExistence() in server.c.
ARGUMENTS = ", with args beginning with:"


class JsonLog(Feature):
    """Logs the start, progress, errors and end of a load or a verification."""

    every_s = 5.0

    def __init__(self) -> None:
        self._data: Any = None
        self._facts: dict[str, Any] = {}
        self._total: int | None = None
        self._errors = 0  # number of errors logged
        self._last = 0.0  # when the last call logged something

    def of(self, data: Any, server: str | None, **facts: Any) -> Self:
        """Set the source of the load, and the facts that the start event logs; return this log."""
        self._data = data
        self._total = known_rows(data)
        server = str(Server(server, Requirements(nodes=True)))
        self._facts = {"server": server, **facts, "source_rows": self._total}
        return self

    def begin(self, load: Load | None = None) -> None:
        from importlib.metadata import version

        log("start", version=version("fastresp"), **self._facts)

    def look(self, load: Load) -> Callable[[], object] | None:
        report = load.report
        self._log_errors(report)
        part = fraction_done(self._data, self._total, report)
        log(
            "progress",
            rows=report.rows,
            commands=report.commands,
            replies=report.replies,
            failed=report.failed,
            in_flight=report.in_doubt,
            unsent=report.unsent,
            index_waiting=report.index_waiting,
            bytes_sent=report.bytes_sent,
            seconds=round(report.seconds, 3),
            commands_per_second=round(report.commands_per_second),
            bytes_per_second=round(report.bytes_per_second),
            fraction=None if part is None else round(part, 4),
        )
        return None

    def __call__(self, report: Report) -> None:
        """Log how far a copy is behind the source that it follows."""
        if time.monotonic() >= self._last + self.every_s:
            self._last = time.monotonic()
            log(
                "following", followed=report.followed, offset=report.offset,
                lag_bytes=report.lag_bytes, lag_seconds=report.lag_seconds,
            )  # fmt: skip

    def verification_logger(self) -> Callable[[VerifyReport], object]:
        """Return a function that receives a verification's report, and logs the progress."""
        last = time.monotonic()

        def look(report: VerifyReport) -> None:
            nonlocal last
            if time.monotonic() >= last + self.every_s:
                last = time.monotonic()
                log(
                    "verification", rows=report.rows, rows_compared=report.rows_compared,
                    values=report.values, seconds=round(report.seconds, 3),
                )  # fmt: skip

        return look

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        self._log_errors(load.report)

    def log_end(self, fields: dict[str, Any], traceback: str) -> None:
        """Log the end of the command; ``fields`` has the report, the exit code and the error."""
        kept = _without_data(fields)
        if "verification" in kept:
            kept["verification"] = _without_data(kept["verification"])
        if traceback:
            kept["traceback"] = traceback
        log("end", logging.ERROR if fields["exit_code"] else logging.INFO, **kept)

    def _log_errors(self, report: Report) -> None:
        """Log the error replies in a report that were not logged before."""
        errors = report.errors[self._errors :]
        self._errors += len(errors)
        for error in errors:
            where = {} if error.file is None else {"file": error.file, "row": error.row_in_file}
            if error.line is not None:  # known only at the end
                where["line"] = error.line
            log(
                "command_error", logging.WARNING, code=error.code,
                error=error.text.partition(ARGUMENTS)[0], key=_key_of(error),
                row_key=error.row_key or None,
                **({"row": error.row} | where),
            )  # fmt: skip


def _key_of(error: CommandError) -> str | None:
    """Return the first key of the command, as redis-cli shows it; None if unknown."""
    sent = error.arguments or ()
    place = POSITIONS.get(sent[0].upper()) if sent else None
    at = 0 if place is None else place.first
    return shown_argument(sent[at]) if 0 < at < len(sent) else None


def _without_data(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in LEFT_OUT}


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    LOGGER.log(level, event, extra={"fields": fields})


@contextmanager
def json_log(wanted: bool) -> Iterator[JsonLog | None]:
    """In the block, write messages, logs and warnings of all packages to stderr as JSON lines."""
    if not wanted:
        yield None
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root, level = logging.getLogger(), LOGGER.level
    raises, logging.raiseExceptions = logging.raiseExceptions, False  # stderr may be closed
    root.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    logging.captureWarnings(True)
    CommonOptions.log = _say
    try:
        yield JsonLog()
    finally:
        CommonOptions.log = None
        logging.captureWarnings(False)
        LOGGER.setLevel(level)
        root.removeHandler(handler)
        logging.raiseExceptions = raises


def _say(text: str, failed: bool) -> None:
    log("message", logging.ERROR if failed else logging.INFO, message=text)


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON: time (RFC 3339), level, event, and fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        event = record.getMessage()
        if fields is None:
            event, fields = "message", {"logger": record.name, "message": masked(event)}
        if record.exc_info:
            fields = fields | {"traceback": masked(self.formatException(record.exc_info))}
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": when.replace("+00:00", "Z"), "level": record.levelname.lower()}
        return json.dumps(head | {"event": event} | fields, default=str)
