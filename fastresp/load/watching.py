"""Look at a load from time to time, also while it waits, and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..outcome.report import Report
from ..server.forks import is_own, own
from ..transports.base import Transport
from ..transports.driver import Asking, Blocking, Steps, Wanted, wrap

__all__ = ["Observer", "Watch"]


class Observer:
    """Looks at a load.

    Attributes:
        every_s: how often ``look()`` is called, in seconds, at most. A source that blocks, or
            redis-cli, may delay it.
    """

    every_s = 1.0

    def begin(self, watch: Watch) -> None:
        """Begin, before anything is sent; what it raises ends the load."""

    def look(self, watch: Watch) -> Callable[[], object] | None:
        """Look at the load; return what has to be called that may block. Must not raise."""

    def end(self, watch: Watch) -> None:
        """Look for the last time, at ``watch.error`` too. Must not raise."""


class Watch:
    """Has observers look at a load.

    Args:
        observers: what looks.

    Attributes:
        carrier: the transport, as soon as there is one.
        row: returns up to which row a load with a checkpoint has come; None if that is not known.
        error: what ended the load, at its end; None if nothing did.
        ended: whether the load has ended.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.carrier: Transport | None = None
        self.row: Callable[[], int | None] = lambda: None
        self.error: BaseException | None = None
        self.ended = False
        self._observers = observers
        self._begun: list[tuple[Observer, float]] = []  # and when each looked last
        self._report: Report | None = None
        own(self)

    @property
    def report(self) -> Report:
        """The report so far."""
        if self._report is None and self.carrier is not None:
            return self.carrier.report
        return self._report or Report("")

    def begin(self) -> None:
        """Have the observers begin; raises what they raise."""
        for observer in self._observers:
            observer.begin(self)
            self._begun.append((observer, time.monotonic()))

    def over(self, steps: Steps[Report]) -> Steps[Report]:
        """Run the steps of a load, and have it looked at before each wait, and at the end."""
        return wrap(steps, self._end, self._waiting)

    def _waiting(self, wanted: Wanted) -> Steps[Any]:
        """Have the load looked at, then wait."""
        for work in self._due():
            yield Blocking(work)
        return (yield self._meanwhile(wanted))

    def _end(self, error: BaseException | None, report: Report | None) -> Iterable[Wanted]:
        """Have the load looked at for the last time."""
        found = getattr(error, "report", report)
        if isinstance(found, Report) and (error is None or self.carrier is not None):
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
        """Have those look whose time has come; yield what they have to do that may block."""
        now = time.monotonic()
        for number, (observer, last) in enumerate(self._begun):
            if now >= last + observer.every_s and is_own(self):
                self._begun[number] = observer, now
                work = observer.look(self)
                if work is not None:
                    yield work

    def _meanwhile(self, wanted: Wanted) -> Wanted:
        """Have the load looked at while an async source pauses, too."""
        if not isinstance(wanted, Asking) or wanted.meanwhile is None:
            return wanted
        meanwhile = wanted.meanwhile

        def both() -> bool:
            for work in self._due():
                work()
            return meanwhile()

        return wanted._replace(meanwhile=both)
