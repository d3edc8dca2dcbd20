from collections.abc import Iterable, Iterator
from typing import Any, Literal

from typing_extensions import disjoint_base

from .arrow import ArrowStream
from .buffer import Chunk
from .plan import Plan

@disjoint_base
class ColumnWriter:
    def __init__(
        self,
        plan: Plan,
        stream: ArrowStream,
        *,
        nulls: Literal["error", "skip", "empty"] = "error",
        chunk_bytes: int = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def commands(self) -> int: ...
    @property
    def max_bulk_bytes(self) -> int | None: ...
    @max_bulk_bytes.setter
    def max_bulk_bytes(self, most: int | None) -> None: ...
    def chunks(self, source: Iterable[Any]) -> Iterator[Chunk]: ...
    def take(self) -> Chunk | None: ...
    def fill(self, source: Iterator[Any]) -> bool: ...
