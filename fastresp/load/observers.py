"""The observers of a load: metrics, a span, and progress at intervals."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from ..sources.chunks import Chunks
from ..sources.source import files_of
from .watching import Observer

__all__ = ["observers"]


def observers(chunks: Chunks) -> list[Observer]:
    """Return the observers of a load; for most loads, the list is empty.

    Raises:
        ImportError, TypeError, ValueError: the metrics can't be written.
    """
    options = chunks.options
    found: list[Observer] = []
    if isinstance(options.progress, Observer):
        found.append(options.progress)
    if options.metrics is not None:
        from .metrics import Metrics

        found.append(Metrics(options, files_of(chunks.data)))
    # Imported by programs that configure tracing, and by redis-py if OpenTelemetry is installed.
    trace: Any = sys.modules.get("opentelemetry.trace")
    # OpenTelemetry may be misconfigured, or only partly imported.
    with suppress(Exception):
        if trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider
        ):
            from .tracing import Span

            found.append(Span(trace, chunks.template, options))
    return found
