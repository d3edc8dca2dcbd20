"""What looks at a load: its metrics, and a progress display that is not called for each chunk."""

from __future__ import annotations

from ..sources.chunks import Chunks
from .watching import Observer

__all__ = ["observers"]


def observers(chunks: Chunks) -> list[Observer]:
    """Return what looks at the load of a source; most loads have nothing.

    Raises:
        ImportError, TypeError: the metrics can't be written.
    """
    options = chunks.options
    found: list[Observer] = []
    if isinstance(options.progress, Observer):
        found.append(options.progress)
    if options.metrics is not None:
        from .metrics import Metrics

        found.append(Metrics(options))
    return found
