from array import array
from typing import Self

from typing_extensions import disjoint_base

from .batches import BatchedChunk, Batcher
from .buffer import Chunk
from .merge import Merger
from .slots import Rules

@disjoint_base
class Gatherer:
    def __new__(
        cls,
        batcher: Batcher,
        rows: array[int],
        *,
        rules: Rules | None = ...,
        merger: Merger | None = ...,
        start_row: int = ...,
    ) -> Self: ...
    @property
    def full(self) -> bool: ...
    def add(self, chunk: Chunk) -> None: ...
    def flush(self) -> list[BatchedChunk]: ...
    def finished(
        self, chunk: Chunk, ends: list[int], numbers: list[int], first: bool
    ) -> BatchedChunk: ...
