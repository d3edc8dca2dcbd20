"""The driver: it runs cores, and waits for what they wait for.

A core is a generator that does no I/O that blocks: it yields what it waits for, and is given what
came of it. ``run()`` and ``stream()`` wait with poll(); those of ``aio`` with an event loop.
"""

from __future__ import annotations

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
    "Asking", "Blocking", "Carrier", "Giving", "Source", "Steps", "Waits", "Wanted",
    "next_chunk", "open_source", "run", "stream",
]  # fmt: skip

T = TypeVar("T")

# Of some connections, what each waits for: the first that has it ends the wait.
Waits: TypeAlias = Sequence[tuple[Stream, Wait]]


class Blocking(NamedTuple):
    """What a core yields to have a function called that blocks: in asyncio, in a thread.

    Where that is cancelled, the function is waited for all the same, but for ``late``.

    Attributes:
        function: takes nothing; the core gets what it returns or raises.
        interrupt: called when the wait is cancelled, so that the function ends soon.
        late: called when the wait is cancelled, and takes what comes of it; nobody waits then.
    """

    function: Callable[[], Any]
    interrupt: Callable[[], object] | None = None
    late: Callable[[Future[Any]], object] | None = None


class Asking(NamedTuple):
    """What a core yields to ask a source: in asyncio it may answer with what is to be awaited.

    Attributes:
        function: takes nothing; the core gets what it returns or raises.
        blocks: whether it may wait as long as it takes: in asyncio it runs in a thread, which
            nobody waits for after a cancellation until the event loop ends.
        meanwhile: called from time to time while what is awaited has not come. Where it returns
            False, it is wanted no more: the core gets None. What it raises, the core gets.
    """

    function: Callable[[], Any]
    blocks: bool = False
    meanwhile: Callable[[], bool] | None = None


class Giving(NamedTuple):
    """What a core yields to ``stream()``: items for whoever reads it."""

    items: Iterable[Any]


Wanted: TypeAlias = Waits | Blocking | Asking
Steps: TypeAlias = Generator[Wanted, Any, T]


class Source(Protocol):
    """Where chunks come from; ``blocks`` says that its methods may wait as long as it takes."""

    @property
    def blocks(self) -> bool: ...
    def open(self) -> object: ...
    def next(self) -> Any: ...
    def gathered(self) -> deque[Chunk]: ...


class Carrier(Protocol):
    """Connections that chunks go over: ``tend()`` moves what can be moved, without waiting."""

    @property
    def has_room(self) -> bool: ...
    @property
    def report(self) -> Report: ...
    def add(self, chunk: Chunk, /) -> None: ...
    def tend(self) -> None: ...


def run(steps: Steps[T], around: AbstractContextManager[Any] | None = None) -> T:
    """Run a core to its end, and return what it returns; ``around`` as for ``stream()``."""
    loop = stream(steps, around)
    try:
        while True:
            next(loop)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def stream(
    steps: Generator[Wanted | Giving, Any, T], around: AbstractContextManager[Any] | None = None
) -> Generator[Any, None, T]:
    """Run a core, yield the items that it gives, and return what it returns.

    What comes up while it waits, as from a Ctrl-C, is raised in the core, where it waits. When
    this is closed, so is the core.

    Args:
        around: is entered whenever the core runs, and left while it waits.
    """
    around = around or nullcontext()
    answer: Any = None
    error: BaseException | None = None
    wanted: Wanted | Giving | None = None
    try:
        while True:
            try:
                # Signals are also looked for where a loop begins again: so this one is in here.
                while True:
                    with around:
                        wanted = steps.send(answer) if error is None else steps.throw(error)
                    answer = error = None
                    if isinstance(wanted, Giving):
                        yield from wanted.items
                    else:
                        answer = _answer(wanted)
            except BaseException as caught:
                if getgeneratorstate(steps) == GEN_CLOSED:
                    if isinstance(caught, StopIteration):
                        return caught.value  # type: ignore[no-any-return]
                    raise
                if isinstance(caught, GeneratorExit) and isinstance(wanted, Giving):
                    raise  # whoever took the items has closed this
                answer, error = None, caught
    finally:
        error = None  # it holds this frame, and so the data
        steps.close()


def open_source(source: Source) -> Steps[None]:
    """Open a source of chunks."""
    yield Asking(source.open, source.blocks)


def next_chunk(source: Source, carrier: Carrier | None = None) -> Steps[Chunk | None]:
    """The next chunk of a source; None where there is none.

    Args:
        carrier: what sends the chunks. While an async source pauses, what has come before goes
            over it, and replies are read.
    """
    meanwhile = None if carrier is None else partial(_send_gathered, source, carrier)
    chunk: Chunk | None = yield Asking(source.next, source.blocks, meanwhile)
    return chunk


def _send_gathered(source: Source, carrier: Carrier) -> bool:
    """Send what came before a pause of the source; False if nothing more is wanted."""
    gathered = source.gathered()
    while gathered and carrier.has_room:
        carrier.add(gathered.popleft())
    carrier.tend()
    return not carrier.report.stopped


def _answer(wanted: Wanted) -> Any:
    if isinstance(wanted, Blocking | Asking):
        return wanted.function()
    wait_for(wanted)
    return None
