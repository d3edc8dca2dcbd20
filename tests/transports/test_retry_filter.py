"""Steps of a window that are repeated after an interruption."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import pytest

from fastresp import Script
from fastresp.encode.script import ForgottenScripts
from fastresp.resp.buffer import Chunk
from fastresp.resp.merge import Merger
from fastresp.resp.split import CommandSplitter
from fastresp.resp.values import pack
from fastresp.server.cluster import redirect_of
from fastresp.transports.filters import Durability, ScriptFilter, confirmation_of
from fastresp.transports.ledger import Ledger, RetryFilter
from fastresp.transports.sending import Position
from fastresp.transports.window import Error, Filter, Window

# The steps are interrupted at each bytecode, in as many cases.
CASES = 8
MOVED = b"MOVED 1 h:1"
ASK = b"ASK 1 h:1"
EXECABORT = b"EXECABORT Transaction discarded because of previous errors."
FORGOTTEN = b"NOSCRIPT No matching script. Please use EVAL."
SCRIPT = Script("return 1")


class Lane:
    """A window with filters and all that happened to it, without a connection."""

    def __init__(self, number: int = 0, *filters: Filter, ledger: Ledger | None = None) -> None:
        if ledger is None:
            ledger = Ledger(30.0, "idempotent", transactions=True, cluster=True)
        self.ledger = ledger
        self.retry = RetryFilter(self.ledger, number, partial(redirect_of, host=""))
        self.window = Window(filters=[*filters, self.retry])
        self.reported: dict[int, bytes] = {}
        self.overtaken: bool | None = None

    def send(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self.window.add(chunk)
        self.send_all()

    def send_all(self) -> None:
        while (sending := self.window.sending) is not None:
            sending.written.append(sending.size - sending.at)

    def process(self, errors: list[Error], received: int) -> None:
        """Process replies as a connection does. ``errors`` is the scanner's list."""
        self.window.filter_errors(errors)
        self.reported |= {index: message for index, message, _ in errors}
        errors.clear()
        self.window.acknowledge(received)
        self.window.refill()

    def check_order(self) -> None:
        self.overtaken = self.retry.overtaken(self.window)

    def state(self) -> tuple[Any, ...]:
        window = self.window
        held = [bytes(each.chunk.piece(0, each.size)) for each in window.held]
        return (
            self.ledger.entries, window.counts(), window.pending, held, window.acknowledged,
            window.refusals, self.reported, self.overtaken,
        )  # fmt: skip


Step: TypeAlias = Callable[[], object]
Story: TypeAlias = tuple[list[Step], Callable[[], object]]  # steps, and the state after them


def chunk_of(*commands: tuple[object, ...], merged: bool = False) -> Chunk:
    chunk = CommandSplitter().feed(b"".join(pack(*each) for each in commands))
    assert chunk is not None
    return Merger(1000, 1 << 16).merge(chunk) if merged else chunk


def split_command() -> Story:
    """The keys of a merged command are on two nodes, and a later command replaces two of them."""
    lane = Lane()
    merged = chunk_of(*(("SET", "{x}" + name, 1) for name in "abc"), merged=True)
    lane.send(merged, chunk_of(("SET", "{x}b", 2)), chunk_of(("SET", "{x}c", 2)))
    errors: list[Error] = [(0, b"TRYAGAIN Multiple keys request during rehashing of slot", 0)]
    return [lambda: lane.process(errors, 3), lane.check_order], lane.state


def overtaken_command() -> Story:
    lane = Lane()
    lane.send(chunk_of(("RPUSH", "a", 1)), chunk_of(("RPUSH", "a", 2)))
    errors: list[Error] = [(0, MOVED, 0)]
    return [lambda: lane.process(errors, 2), lane.check_order], lane.state


def refused_transaction() -> Story:
    lane = Lane()
    commands = [("MULTI",), ("SET", "a", 1), ("SET", "a", 2), ("EXEC",), ("SET", "b", 1)]
    lane.send(chunk_of(*commands))
    first: list[Error] = [(1, ASK, 0)]
    second: list[Error] = [(2, ASK, 0), (3, EXECABORT, 0), (4, b"ERR no", 0)]
    steps: list[Step] = [lambda: lane.process(first, 2), lambda: lane.process(second, 5)]
    return [*steps, lane.check_order], lane.state


def forgotten_script() -> Story:
    scripts = ScriptFilter(ForgottenScripts(SCRIPT.command("{0}").scripts))
    lane = Lane(0, scripts)
    lane.send(chunk_of(*(("EVALSHA", SCRIPT.sha1, 1, f"key:{i}") for i in range(5))))
    first: list[Error] = [(0, FORGOTTEN, 0), (1, MOVED, 0), (3, FORGOTTEN, 0)]
    second: list[Error] = [(5, FORGOTTEN, 0)]
    steps: list[Step] = [lambda: lane.process(first, 5), lane.send_all]
    return [*steps, lambda: lane.process(second, 6)], lane.state


def lost_connection() -> Story:
    """One command has failed, and the others were not confirmed to be durable."""
    confirmation = confirmation_of(1)
    assert confirmation is not None
    lane = Lane(0, Durability(confirmation))
    other = Lane(1, ledger=lane.ledger)
    lane.send(chunk_of(("SET", "a", 1), ("SET", "b", 1)), chunk_of(("SET", "c", 1)))
    errors: list[Error] = [(1, b"ERR no", 0)]

    def lose() -> None:
        lane.retry.lose(lane.window)
        lane.retry.release(lane.window)

    def resend() -> None:
        units = [(key, unit) for _, key, unit in lane.ledger.ready(lambda _: 1)]
        if units:  # otherwise, the interrupted step has done this
            other.retry.resend(other.window, units, Position())

    steps: list[Step] = [lambda: lane.process(errors, 4), lose, resend]
    return steps, lambda: (lane.state(), other.state())


def bytecodes_of(step: Step, interrupted_at: int = 0) -> int:
    """Run a step; return how many bytecodes of transports ran. Interrupt it at one of them."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if "/fastresp/transports/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == interrupted_at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "scenario",
    [split_command, overtaken_command, refused_transaction, forgotten_script, lost_connection],
)
@pytest.mark.parametrize("case", range(CASES))
def test_interruption_at_any_bytecode(scenario: Callable[[], Story], case: int) -> None:
    """A repeated step has the outcome of one that was not interrupted."""
    steps, state = scenario()
    counts = [bytecodes_of(step) for step in steps]
    expected = repr(state())
    for number, count in enumerate(counts):
        for at in range(case + 1, count, CASES):
            steps, state = scenario()
            for each in steps[:number]:
                each()
            with pytest.raises(KeyboardInterrupt):
                bytecodes_of(steps[number], interrupted_at=at)
            for each in steps[number:]:
                each()
            assert repr(state()) == expected, (number, at)
