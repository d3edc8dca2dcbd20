"""A load as an OpenTelemetry span, with the attributes of OpenTelemetry's database conventions.

See https://opentelemetry.io/docs/specs/semconv/database/redis/, version 1.33.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..encode.template import Template
from ..outcome.errors import LoadErrors
from ..outcome.report import Report, counted
from ..server.options import Options
from ..server.preflight import Requirements
from ..server.settings import as_server
from ..transports.driver import Steps
from .commands import command_names
from .load import Feature, Load

__all__ = ["Span"]

# Codes of error replies. Source: Redis 8.2, Valkey 9.1.
CODES = frozenset((
    "ASK", "BUSY", "BUSYGROUP", "BUSYKEY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "ERR", "EXECABORT",
    "INPROG", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOGOODSLAVE", "NOGROUP",
    "NOPERM", "NOPROTO", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNBLOCKED",
    "UNKILLABLE", "WRONGPASS", "WRONGTYPE",
))  # fmt: skip
SCHEMA = "https://opentelemetry.io/schemas/1.33.0"


class Span(Feature):
    """One span for a load.

    The span has no values, error texts or URLs, which could contain data or passwords.

    Args:
        trace: the module ``opentelemetry.trace``.
        template: the load's template.
        options: the load's options.
    """

    def __init__(self, trace: Any, template: Template | None, options: Options) -> None:
        self._trace = trace
        self._template = template
        self._options = options
        self._span: Any = None

    def begin(self, load: Load) -> None:
        """Start the span, as a child of the current span."""
        with suppress(Exception):
            # Do not read a whole RESP file only for its command names.
            names = command_names(None, self._template) if self._template is not None else None
            operation = f"PIPELINE {names[0]}" if names and len(names) == 1 else "PIPELINE"
            place = _place(self._options)
            tracer = self._trace.get_tracer("fastresp", schema_url=SCHEMA)
            self._span = tracer.start_span(
                f"{operation} {place.get('db.namespace', '')}".rstrip(),
                kind=self._trace.SpanKind.CLIENT,
                attributes={"db.system.name": "redis", "db.operation.name": operation, **place},
            )

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        span = self._span
        if span is None:
            return
        with suppress(Exception):
            if span.is_recording():
                self._add_outcome(span, load)
        with suppress(Exception):
            span.end()

    def _add_outcome(self, span: Any, load: Load) -> None:
        report, transport, error = load.report, load.transport, load.error
        if transport is not None and transport.answers is not None and transport.answers.valkey:
            span.set_attribute("db.system.name", "valkey")
        span.set_attributes(_counts(report))
        if report.stopped:
            span.set_attribute("fastresp.stopped", report.stopped)
        for code, count in report.errors_by_code.items():
            row = next((each.row for each in report.errors if each.code == code), None)
            where = {} if row is None else {"fastresp.first_row": row}
            span.add_event(
                "fastresp.errors",
                {"db.response.status_code": known(code), "fastresp.count": count, **where},
            )
        words = _failure(report, error)
        if words:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, words))
            kind = known(next(iter(report.errors_by_code), ""))
            if kind:
                span.set_attribute("db.response.status_code", kind)
            if error is not None and not isinstance(error, LoadErrors):
                kind = f"{type(error).__module__}.{type(error).__qualname__}"
                span.add_event("exception", {"exception.type": kind})
            span.set_attribute("error.type", kind or "_OTHER")


def known(code: str) -> str:
    """Return an error code, or "_OTHER" for a code that a script may have built from data."""
    return code if not code or code in CODES else "_OTHER"


def _place(options: Options) -> dict[str, str | int]:
    """Return the server's address and database, without credentials."""
    settings = as_server(options.server, Requirements(nodes=True)).settings
    place: dict[str, str | int] = {}
    if settings.get("path"):
        place["server.address"] = str(settings["path"])
    elif "connection_pool" not in settings:  # Sentinel has no fixed address
        place["server.address"] = str(settings.get("host") or "localhost")
        place["server.port"] = int(settings.get("port") or 6379)
    return place | {"db.namespace": str(settings.get("db") or 0)}


def _counts(report: Report) -> dict[str, str | int]:
    """Return the counts of a report as attributes."""
    # The conventions forbid a batch size of 1.
    batch = {"db.operation.batch.size": report.commands} if report.commands > 1 else {}
    return {
        **batch,
        "fastresp.transport": report.transport,
        "fastresp.connections": report.connections,
        "fastresp.rows": report.rows,
        "fastresp.resumed_at": report.resumed_at,
        "fastresp.replies": report.replies,
        "fastresp.failed": report.failed,
        "fastresp.in_doubt": report.in_doubt,
        "fastresp.unsent": report.unsent,
        "fastresp.bytes_sent": report.bytes_sent,
    }


def _failure(report: Report, error: BaseException | None) -> str:
    """Return why the load failed or was stopped; empty if it succeeded."""
    if error is None or isinstance(error, LoadErrors):
        return counted(report.failed, "command") + " failed" if report.failed else report.stopped
    return type(error).__name__
