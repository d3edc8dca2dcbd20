"""Metrics of a load as OpenMetrics text, and a load as an OpenTelemetry span.

The span has the attributes of OpenTelemetry's conventions for databases, version 1.33: see
https://opentelemetry.io/docs/specs/semconv/database/redis/.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from ..encode.template import Template
from ..outcome.messages import Hint, Message
from ..outcome.report import LoadErrors, Report, counted
from ..server.options import Options
from ..server.preflight import Requirements
from ..server.settings import as_server
from ..sources.files.paths import check_not_read
from ..transports.driver import Steps
from .commands import command_names
from .load import Feature, Load
from .new_file import TargetPath, new_file

__all__ = ["Metrics", "Span"]

# The package that formats the text, and the extra that installs the package.
PACKAGE, EXTRA = "prometheus_client", "fastresp[metrics]"
# An existing file is replaced only if it is empty or starts with one of these texts.
BEGINNINGS = (b"# HELP fastresp_", b"# TYPE fastresp_")
# Codes of error replies. Source: Redis 8.2, Valkey 9.1.
CODES = frozenset((
    "ASK", "BUSY", "BUSYGROUP", "BUSYKEY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "ERR", "EXECABORT",
    "INPROG", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOGOODSLAVE", "NOGROUP",
    "NOPERM", "NOPROTO", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNBLOCKED",
    "UNKILLABLE", "WRONGPASS", "WRONGTYPE",
))  # fmt: skip
SCHEMA = "https://opentelemetry.io/schemas/1.33.0"


class Metrics(Feature):
    """Writes counters and gauges of a load once a second, and when the load ends.

    A write that fails after the start does not stop the load: the logger ``fastresp`` logs one
    warning.

    Args:
        options: the load's options, with the target and the name of the checkpoint.
        sources: paths of the source files.

    Raises:
        ImportError: the package that formats the metrics is not installed.
        TypeError: the target is neither a path nor a plain function.
        ValueError: the file is also the source.
    """

    every_s = 1.0

    def __init__(self, options: Options, sources: Sequence[str] = ()) -> None:
        target = options.metrics
        self._sources, self._rejects = sources, options.rejects
        self._file: str | os.PathLike[str] | None = None
        self._place: TargetPath | None = None
        self._function: Callable[[str], object] | None = None
        name = None if options.checkpoint is None else options.checkpoint.name
        if isinstance(target, str | os.PathLike):
            self._file = target
            stem = os.fsencode(Path(os.fsdecode(target)).stem)
            name = name or stem.decode(errors="backslashreplace")
            check_not_read(target, sources)
        elif callable(target) and not iscoroutinefunction(target):
            self._function = target
        else:
            words = f" must be a path or a callable, not a {type(target).__name__}"
            if callable(target):
                words = " must be a path or a plain function, not an async one"
            raise TypeError(Message(Hint("metrics"), words))
        try:
            self._families: Any = import_module(f"{PACKAGE}.metrics_core")
            self._generate: Any = import_module(f"{PACKAGE}.openmetrics.exposition").generate_latest
        except ImportError as error:
            words = f" needs {PACKAGE}, which is not installed: pip install '{EXTRA}'"
            raise ImportError(Message(Hint("metrics"), words)) from error
        # A collector that reads the files of two loads needs different labels in the two files.
        self._labels = {} if name is None else {"load": name}
        self._began = time.time()
        self._warned = False
        # Highest values so far: resent commands must not decrease counters.
        self._most: dict[tuple[str, str], float] = {}

    def begin(self, load: Load) -> None:
        """Write the file for the first time.

        Raises:
            OSError: writing failed, for example because the folder is missing or the disk is full.
            ValueError: the path is not a file.
        """
        if self._file is not None:
            rejects = self._rejects
            place = TargetPath(self._file, BEGINNINGS, "metrics")
            if isinstance(rejects, str | os.PathLike) and os.path.realpath(rejects) == place.path:
                raise FileExistsError(f"{rejects!r} is the rejects file; name another for metrics")
            self._place = place
            self._replace(self._text(load))

    def look(self, load: Load) -> Callable[[], object] | None:
        with self._warning():
            text = self._text(load)
            if self._function is None:
                return partial(self._replace_or_warn, text)
            self._function(text)
        return None

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        with self._warning():
            (self._function or self._replace)(self._text(load))

    def _replace_or_warn(self, text: str) -> None:
        with self._warning():
            self._replace(text)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Suppress exceptions, and log only the first exception."""
        try:
            yield
        except Exception as error:
            if not self._warned:
                self._warned = True
                import logging

                words = "the metrics could not be written, and the load continues: %s: %s"
                logging.getLogger("fastresp").warning(words, type(error).__name__, error)

    def _replace(self, text: str) -> None:
        assert self._place is not None
        with new_file(self._place, durable=False) as file:
            file.add(text.encode(errors="replace"))

    def _text(self, load: Load) -> str:
        # prometheus_client formats a whole registry, so this one has only the load's metrics.
        registry = _Registry([*self._counters(load.report), *self._gauges(load)])
        text: str = self._generate(registry).decode()
        return text

    def _counters(self, report: Report) -> Iterator[Any]:
        counter = self._counter
        yield counter("rows", "Source rows whose commands were sent.", report.rows)
        yield counter("commands", "Commands sent.", report.commands)
        yield counter("replies", "Commands that the server has answered.", report.replies)
        yield counter("sent_bytes", "Bytes of RESP sent.", report.bytes_sent, unit="bytes")
        yield counter("failed_commands", "Commands answered with an error.", report.failed)
        codes = dict(report.errors_by_code)
        yield counter("errors", "Errors in replies, by their first word.", codes, by="code")
        if report.waited_for:
            yield counter(
                "node_waited_seconds", "Time that the load waited for a node of a cluster.",
                dict(report.waited_for), by="node", unit="seconds",
            )  # fmt: skip

    def _gauges(self, load: Load) -> Iterator[Any]:
        report, gauge = load.report, self._gauge
        yield gauge("in_flight_commands", "Commands sent without a known reply.", report.in_doubt)
        yield gauge("unsent_commands", "Commands encoded but not sent yet.", report.unsent)
        yield gauge("connections", "Connections of the load.", report.connections)
        waiting = {index.name: index.waiting for index in report.indexes}
        if waiting:
            words = "Estimated documents that a search index has not indexed yet."
            yield gauge("index_waiting_documents", words, waiting, by="index")
            words = "Writes since the start of the load that a search index could not index."
            failures = {index.name: index.failures for index in report.indexes}
            yield gauge("index_failures", words, failures, by="index")
        nodes = _in_flight_by_node(load)
        if nodes:
            words = "Commands sent to a node of a cluster without a known reply."
            yield gauge("node_in_flight_commands", words, nodes, by="node")
        row = load.row()
        if row is not None:
            yield gauge("checkpoint_row", "Rows up to which all commands were answered.", row)
        start, now = self._began, time.time()
        yield gauge("start_time_seconds", "When the load started.", start, unit="seconds")
        yield gauge("update_time_seconds", "When these metrics were written.", now, unit="seconds")
        failed = load.error is not None and not isinstance(load.error, LoadErrors)
        yield gauge("ended", "1 if the load has ended.", int(load.over))
        stopped = int(bool(report.stopped) or failed)
        yield gauge("stopped", "1 if the load has ended without loading the whole source.", stopped)

    def _counter(self, name: str, words: str, value: Any, *, by: str = "", unit: str = "") -> Any:
        values = value if by else {"": value}
        for each, now in values.items():
            self._most[name, each] = max(now, self._most.get((name, each), 0))
            values[each] = self._most[name, each]
        return self._family("CounterMetricFamily", name, words, values, by, unit)

    def _gauge(self, name: str, words: str, value: Any, *, by: str = "", unit: str = "") -> Any:
        values = value if by else {"": value}
        return self._family("GaugeMetricFamily", name, words, values, by, unit)

    def _family(
        self, kind: str, name: str, words: str, values: dict[str, float], by: str, unit: str
    ) -> Any:
        labels = [*self._labels, *([by] if by else [])]
        family = getattr(self._families, kind)(f"fastresp_{name}", words, labels=labels, unit=unit)
        for each, value in values.items():
            family.add_metric([*self._labels.values(), *([each] if by else [])], value)
        return family


class _Registry:
    """A registry for prometheus_client, whose default registry is global."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _in_flight_by_node(load: Load) -> dict[str, int]:
    """Return the number of unanswered commands by cluster node; empty for a single server."""
    found: dict[str, int] = {}
    lanes = load.transport.lanes if load.transport is not None else None
    for lane in () if lanes is None else lanes.lanes:
        if lane.window.node is not None:
            node = str(lane.window.node)
            found[node] = found.get(node, 0) + lane.window.in_doubt
    return found


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
