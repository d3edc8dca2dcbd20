"""Call observers periodically during a load, even while the load waits, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..outcome.report import Report
from ..server.forks import is_own, on_fork
from ..transports.base import Transport
from ..transports.driver import Blocking, Pull, Step, Steps, wrap

__all__ = ["Observer", "Watch"]


class Observer:
    """Observes a load.

    Attributes:
        every_s: minimum seconds between calls of ``look()``. A source that blocks, or redis-cli,
            may delay the calls.
    """

    every_s = 1.0

    def begin(self, watch: Watch) -> None:
        """Start, before anything is sent; an exception ends the load."""

    def look(self, watch: Watch) -> Callable[[], object] | None:
        """Observe the load; return a callable for work that may block, or None. Must not raise."""

    def end(self, watch: Watch) -> None:
        """Observe the ended load and ``watch.error``. Must not raise."""


class Watch:
    """Calls the observers of a load.

    Args:
        observers: the observers.

    Attributes:
        transport: the transport; None before it is chosen.
        row: function that returns how many leading rows have run, for a load with a checkpoint;
            it returns None if unknown.
        error: the exception that ended the load; set only while observers handle the end.
        ended: whether the load has ended.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.transport: Transport | None = None
        self.row: Callable[[], int | None] = lambda: None
        self.error: BaseException | None = None
        self.ended = False
        self._observers = observers
        self._begun: list[tuple[Observer, float]] = []  # each with the time of its last look()
        self._report: Report | None = None
        on_fork(self)

    @property
    def report(self) -> Report:
        """The live report; at the end, the final report."""
        if self._report is None and self.transport is not None:
            return self.transport.report
        return self._report or Report("")

    def begin(self) -> None:
        """Start the observers; their exceptions propagate."""
        for observer in self._observers:
            observer.begin(self)
            self._begun.append((observer, time.monotonic()))

    def over(self, steps: Steps[Report]) -> Steps[Report]:
        """Run the steps of a load, and call the observers before each wait and at the end."""
        return wrap(steps, self._end, self._waiting)

    def _waiting(self, step: Step) -> Steps[Any]:
        """Call the observers whose interval has passed, then wait."""
        for work in self._due():
            yield Blocking(work)
        return (yield self._meanwhile(step))

    def _end(self, error: BaseException | None, report: Report | None) -> Iterable[Step]:
        """Call the observers for the last time."""
        found = getattr(error, "report", report)
        if isinstance(found, Report) and (error is None or self.transport is not None):
            self._report = found
        self.error = error
        self.ended = True
        try:
            for observer, _ in self._begun:
                if is_own(self):
                    observer.end(self)
        finally:
            self.error = None
        return ()

    def _due(self) -> Iterator[Callable[[], object]]:
        """Call the observers whose interval has passed; yield their work that may block."""
        now = time.monotonic()
        for number, (observer, last) in enumerate(self._begun):
            if now >= last + observer.every_s and is_own(self):
                self._begun[number] = observer, now
                work = observer.look(self)
                if work is not None:
                    yield work

    def _meanwhile(self, step: Step) -> Step:
        """Return ``step``, changed to also call the observers while an async source pauses."""
        if not isinstance(step, Pull) or step.meanwhile is None:
            return step
        meanwhile = step.meanwhile

        def both() -> bool:
            for work in self._due():
                work()
            return meanwhile()

        return step._replace(meanwhile=both)
