"""The driver and signals: an exception of a handler is raised in the core, or closes it."""

from __future__ import annotations

import dis
import sys
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest

from fastresp.transports.driver import Blocking, run

# Bytecodes at which Python checks for signals, under the names of all versions.
LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME", "PRECALL")


def looks() -> list[int]:
    """The offsets in ``run`` at which a signal handler can raise."""
    return [each.offset for each in dis.get_instructions(run) if each.opname in LOOKS]


@pytest.mark.parametrize("place", looks())
@pytest.mark.parametrize("time", [0, 1, 2])
def test_interruption_between_two_steps(place: int, time: int) -> None:
    """Wherever it is raised, a started core receives it, and no core is left open."""
    caught: list[BaseException] = []
    begun = False
    times = 0

    def core() -> Generator[Blocking, Any, None]:
        nonlocal begun
        begun = True
        try:
            for _ in range(3):
                yield Blocking(lambda: None)
        except BaseException as error:
            caught.append(error)
            raise

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal times
        if frame.f_code is not run.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti == place:
            times += 1
            if times == time + 1:
                raise KeyboardInterrupt
        return trace

    steps = core()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(steps)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(before)
    ended = steps.gi_frame is None
    assert ended or not begun
    assert not caught or (interrupted and isinstance(caught[0], KeyboardInterrupt))
