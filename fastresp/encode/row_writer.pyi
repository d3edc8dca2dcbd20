from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from typing_extensions import disjoint_base

from .chunk_writer import ChunkWriter
from .plan import Plan

CHUNK_BYTES: Final[int]
CHUNK_SECONDS: Final[float]

@disjoint_base
class Writer(ChunkWriter):
    def __init__(
        self,
        plan: Plan | None = None,
        *,
        nulls: Literal["auto", "skip", "empty", "error", "delete"] = "auto",
        default: Callable[[Any], Any] | None = None,
        chunk_bytes: int = ...,
        chunk_seconds: float = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    def fill(self, source: Iterator[Any]) -> bool: ...

def pack_many(
    commands: Iterable[Sequence[Any]], *, default: Callable[[Any], Any] | None = None
) -> bytes: ...
