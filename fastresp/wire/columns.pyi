from collections.abc import Iterator
from typing import Final, Literal

from typing_extensions import disjoint_base

from .arrow import ArrowStream
from .buffer import Chunk
from .column_rows import Target
from .plan import Plan

CHUNK_BYTES: Final[int]

@disjoint_base
class ColumnWriter(Target):
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
    def chunks(self, source: ArrowStream) -> Iterator[Chunk]: ...
    def take(self) -> Chunk | None: ...
    def fill(self, source: ArrowStream) -> bool: ...
