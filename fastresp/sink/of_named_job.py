"""A sink for engines that name their jobs."""

from __future__ import annotations

from typing import Any

from ..encode.template import TemplateLike
from .sink import Sink

__all__ = ["SinkOfNamedJob"]


class SinkOfNamedJob(Sink):
    """A sink for a job that the engine has named, in which ``exactly_once`` is a bool.

    Args:
        job: name of the job.
        exactly_once: whether each row is loaded exactly once, even if the engine reruns a task.
        server, template, options: as for ``Sink``.

    Raises:
        TypeError: ``exactly_once`` is neither True nor False.
        others: as in ``Sink``.
    """

    how_once = "exactly_once=True"

    def __init__(
        self,
        server: str | None,
        template: TemplateLike,
        job: str,
        exactly_once: bool,
        **options: Any,
    ) -> None:
        if not isinstance(exactly_once, bool):
            raise TypeError(
                f"exactly_once must be True or False here, not {exactly_once!r}: the engine names "
                "the job"
            )
        name = job if exactly_once else None
        super().__init__(server, template, exactly_once=name, **options)
