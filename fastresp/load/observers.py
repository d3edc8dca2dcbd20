"""What looks at a load: metrics, a span, and progress that is not called for each chunk."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from ..sources.chunks import Chunks
from ..sources.source import files_of
from .watching import Observer

__all__ = ["observers"]


def observers(chunks: Chunks) -> list[Observer]:
    """Return what looks at the load of a source; most loads have nothing.

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
    # A program that has configured spans has imported this; so has redis-py, if it is installed.
    trace: Any = sys.modules.get("opentelemetry.trace")
    # It may be configured wrongly, or be imported at this moment.
    with suppress(Exception):
        if trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider
        ):
            from .tracing import Span

            found.append(Span(trace, chunks.template, options))
    return found
