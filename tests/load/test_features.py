"""The hooks of features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loads import Insert

from fastresp.load.load import Feature, Load
from fastresp.outcome.report import Report
from fastresp.resp.buffer import Chunk
from fastresp.server.local_server import LocalServer
from fastresp.transports.driver import Steps

ROWS = [(str(number), "value") for number in range(3)]


class Recorder(Feature):
    """Records its hooks, and can raise an exception in one of them."""

    every_s = 0.0

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.called: list[str] = []
        self.report: Report | None = None
        self.error: BaseException | None = None

    def _record(self, name: str) -> None:
        if name not in self.called:
            self.called.append(name)
        if name == self.failing:
            raise ArithmeticError(name)

    def begin(self, load: Load) -> None:
        self._record("begin")

    def opening(self, load: Load) -> Steps[Report | None]:
        yield from ()
        self._record("opening")
        return None

    def connected(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("connected")

    def sending(self, load: Load, chunk: Chunk) -> Steps[None]:
        yield from ()
        self._record("sending")

    def sent(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("sent")

    def finishing(self, load: Load) -> Steps[None]:
        yield from ()
        self._record("finishing")

    def look(self, load: Load) -> Callable[[], object] | None:
        self._record("look")
        return lambda: self._record("work")

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        self.report, self.error = load.report, load.error
        self._record("ended")


def test_hooks_are_called_in_order(insert_singly: Insert, server: LocalServer) -> None:
    """The load itself does not know the feature."""
    feature: Any = Recorder()
    insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=feature)
    hooks = [name for name in feature.called if name not in ("look", "work")]
    assert hooks == ["begin", "opening", "connected", "sending", "sent", "finishing", "ended"]
    assert {"look", "work"} <= set(feature.called)
    assert feature.report.replies == 3
    assert feature.error is None


@pytest.mark.parametrize("hook", ["begin", "opening", "connected", "sending", "sent", "finishing"])
def test_an_exception_in_a_hook_ends_the_load(
    insert_singly: Insert, server: LocalServer, hook: str
) -> None:
    feature: Any = Recorder(hook)
    with pytest.raises(ArithmeticError, match=hook):
        insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=feature)
    # A feature that could not begin has nothing to release.
    assert ("ended" in feature.called) == (hook != "begin")
    if hook != "begin":
        assert isinstance(feature.error, ArithmeticError)


def test_an_exception_at_the_end_replaces_the_result(
    insert_singly: Insert, server: LocalServer
) -> None:
    feature: Any = Recorder("ended")
    with pytest.raises(ArithmeticError, match="ended"):
        insert_singly(ROWS, "SET {0} {1}", server=server.url, progress=feature)
