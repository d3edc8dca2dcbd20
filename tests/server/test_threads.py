"""``server.threads``: functions in new threads."""

from __future__ import annotations

import sys
import threading
import weakref

import pytest

from fastresp.server import threads
from fastresp.server.threads import in_thread


class Source:
    def thread(self) -> int:
        return threading.get_ident()

    def fail(self) -> None:
        raise ArithmeticError("no")


def test_result_and_exception() -> None:
    assert in_thread(Source().thread).result() != threading.get_ident()
    with pytest.raises(ArithmeticError, match="no"):
        in_thread(Source().fail).result()


def test_data_is_released_once_the_result_is_known() -> None:
    """The source of a lost load was sometimes kept alive for a moment."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3000):
            source = Source()
            held, task = weakref.ref(source), in_thread(source.thread)
            del source
            task.result()
            assert held() is None
    finally:
        sys.setswitchinterval(interval)


def test_thread_that_ends_before_it_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was mistaken for a thread without memory to start."""
    monkeypatch.setattr(threads, "STARTED_CHECK_S", 0)
    for _ in range(100):
        assert in_thread(int).result() == 0
