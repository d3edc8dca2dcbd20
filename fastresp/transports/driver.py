"""The driver: run cores, and wait for what they need.

A core is a generator that never blocks: it yields what it waits for, and the driver sends back the
result. ``run()`` and ``stream()`` wait with poll(); the functions of the same names in ``aio`` wait
with an event loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ..outcome.report import Report
from ..resp.buffer import Chunk
from .stream import Stream, Wait, wait_for

__all__ = [
    "Pull", "Blocking", "ChunkSender", "Emit", "Source", "Steps", "Waits", "Step", "ignore",
    "next_chunk", "nothing", "open_source", "run", "send_gathered", "sleeping", "stream", "wrap",
]  # fmt: skip

T = TypeVar("T")

# Connections, and what each connection waits for. The wait ends when any connection is ready.
Waits: TypeAlias = Sequence[tuple[Stream, Wait]]


class Blocking(NamedTuple):
    """Yielded by a core to call a blocking function; asyncio runs the function in a thread.

    If the wait is cancelled, the function still runs to the end before the cancellation
    propagates, unless ``late`` is set.

    Attributes:
        function: called without arguments; the core gets the result or the exception.
        interrupt: called when the wait is cancelled, to make the function end soon.
        late: if set, a cancellation propagates immediately. When the function ends, ``late`` is
            called with its future.
    """

    function: Callable[[], Any]
    interrupt: Callable[[], object] | None = None
    late: Callable[[Future[Any]], object] | None = None


class Pull(NamedTuple):
    """Yielded by a core to read a source; under asyncio the function may return an awaitable.

    Attributes:
        function: called without arguments; the core gets the result or the exception.
        blocks: whether the function may block for any length of time. If so, asyncio runs it in a
            thread. A cancellation does not wait for this thread; only ``asyncio.run()`` does, when
            it ends.
        meanwhile: called periodically while the function's result is awaited. If ``meanwhile``
            returns False, the await is cancelled, and the core gets None. If ``meanwhile`` raises
            an exception, the core gets the exception.
    """

    function: Callable[[], Any]
    blocks: bool = False
    meanwhile: Callable[[], bool] | None = None


class Emit(NamedTuple):
    """Yielded by a core to ``stream()``: items for the reader."""

    items: Iterable[Any]


Step: TypeAlias = Waits | Blocking | Pull
Steps: TypeAlias = Generator[Step, Any, T]


class Source(Protocol):
    """A source of chunks. If ``blocks`` is True, its methods may block for any length of time."""

    @property
    def blocks(self) -> bool: ...
    def open(self) -> object: ...
    def next(self) -> Any: ...
    def ready(self) -> deque[Chunk]: ...


class ChunkSender(Protocol):
    """Connections that send chunks; ``pump()`` sends and receives what it can without waiting."""

    @property
    def has_room(self) -> bool: ...
    @property
    def report(self) -> Report: ...
    def add(self, chunk: Chunk, /) -> object: ...
    def pump(self) -> None: ...


def run(
    steps: Steps[T],
    around: AbstractContextManager[Any] | None = None,
    waiting: Callable[[], object] = int,
) -> T:
    """Run a core to the end, and return its result; the arguments are as for ``stream()``."""
    loop = stream(steps, around, waiting)
    try:
        while True:
            next(loop)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def stream(
    steps: Generator[Step | Emit, Any, T],
    around: AbstractContextManager[Any] | None = None,
    waiting: Callable[[], object] = int,
    failing: Callable[[BaseException], object] | None = None,
) -> Generator[Any, None, T]:
    """Run a core, yield its items, and return its result.

    An exception during a wait, such as KeyboardInterrupt, is raised in the core at this point.
    Closing this generator closes the core.

    Args:
        around: a context manager; it is entered whenever the core runs, and left at each wait.
        waiting: called before each wait for connections; such a wait is short. If ``waiting``
            raises, the exception is raised in the core.
        failing: called with the exception that ends the core, before it is raised.
    """
    around = around or nullcontext()
    answer: Any = None
    error: BaseException | None = None
    step: Step | Emit | None = None
    try:
        while True:
            try:
                # Python also checks for signals when a loop repeats, so the loop is in the try.
                while True:
                    with around:
                        step = steps.send(answer) if error is None else steps.throw(error)
                    answer = error = None
                    if isinstance(step, Emit):
                        yield from step.items
                    else:
                        answer = _answer(step, waiting)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return caught.value  # type: ignore[no-any-return]
                    if failing is not None:
                        failing(caught)
                    raise
                if isinstance(caught, GeneratorExit) and isinstance(step, Emit):
                    raise  # the reader has closed this generator
                answer, error = None, caught
    finally:
        error = None  # its traceback would keep this frame, and so the data, alive
        steps.close()


def wrap(
    steps: Steps[T],
    ending: Callable[[BaseException | None, T | None], Iterable[Step]],
    waiting: Callable[[Step], Steps[Any]] | None = None,
) -> Steps[T]:
    """Run the steps of a core, with additional steps at each wait and at the end.

    If a source raises GeneratorExit, ``yield from`` would close the steps. But the steps must
    still wait for the replies to earlier commands, so GeneratorExit is raised in them like any
    other exception. Callers of this generator must not use ``yield from`` either.

    Args:
        ending: called at the end with the exception and the result of the steps; returns additional
            steps.
        waiting: called with each step; yields the step, and returns the driver's answer.
    """
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                while True:  # in the try, as in stream()
                    step = steps.send(answer) if error is None else steps.throw(error)
                    answer = error = None
                    answer = (yield step) if waiting is None else (yield from waiting(step))
            except BaseException as caught:
                if getgeneratorstate(steps) != GEN_CLOSED:
                    answer, error = None, caught
                elif isinstance(caught, StopIteration):
                    yield from ending(None, caught.value)
                    return caught.value  # type: ignore[no-any-return]
                else:
                    yield from ending(caught, None)
                    raise
    finally:
        error = None  # its traceback would keep this frame, and so the data, alive
        steps.close()


def nothing() -> Steps[None]:
    yield from ()


def sleeping(seconds: float) -> Steps[None]:
    """Wait, if ``seconds`` is positive. A cancellation ends the wait."""
    if seconds > 0:
        yield Blocking(partial(time.sleep, seconds), late=ignore)


def ignore(_: Future[Any]) -> None:
    """Ignore a result that arrives after a cancellation."""


def open_source(source: Source) -> Steps[None]:
    yield Pull(source.open, source.blocks)


def next_chunk(source: Source, transport: ChunkSender | None) -> Steps[Chunk | None]:
    """Return the next chunk of a source; None at the end of the source.

    While an async source pauses, the transport sends earlier rows and reads replies.
    """
    meanwhile = None if transport is None else partial(send_gathered, source, transport)
    chunk: Chunk | None = yield Pull(source.next, source.blocks, meanwhile)
    return chunk


def send_gathered(source: Source, transport: ChunkSender) -> bool:
    """While the source pauses, send the rows read so far; return False if the load has stopped."""
    gathered = source.ready()
    while gathered and transport.has_room:
        transport.add(gathered.popleft())
    transport.pump()
    return not transport.report.stopped


def _answer(step: Step, waiting: Callable[[], object]) -> Any:
    if isinstance(step, Blocking | Pull):
        return step.function()
    waiting()
    wait_for(step)
    return None
