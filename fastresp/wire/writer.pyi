from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from typing_extensions import disjoint_base

from .buffer import Chunk
from .plan import Plan

CHUNK_BYTES: Final[int]
CHUNK_SECONDS: Final[float]

@disjoint_base
class Writer:
    def __init__(
        self,
        plan: Plan | None = None,
        *,
        nulls: Literal["error", "skip", "empty"] = "error",
        default: Callable[[Any], Any] | None = None,
        chunk_bytes: int = ...,
        chunk_seconds: float = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def commands(self) -> int: ...
    @property
    def max_bulk_bytes(self) -> int | None: ...
    @max_bulk_bytes.setter
    def max_bulk_bytes(self, most: int | None) -> None: ...
    def chunks(self, rows: Iterable[Any]) -> Iterator[Chunk]: ...
    def take(self) -> Chunk | None: ...
    def fill(self, source: Iterator[Any]) -> bool: ...

def pack_many(
    commands: Iterable[Sequence[Any]], *, default: Callable[[Any], Any] | None = None
) -> bytes: ...
