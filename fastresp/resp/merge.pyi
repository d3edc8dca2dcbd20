from array import array
from typing import Self

from typing_extensions import disjoint_base

from .buffer import Chunk

@disjoint_base
class MergedChunk(Chunk):
    @property
    def lasts(self) -> array[int]: ...

@disjoint_base
class Merger:
    def __new__(
        cls,
        max_items: int,
        max_bytes: int,
        without: frozenset[str] = ...,
        *,
        by_slot: bool = ...,
    ) -> Self: ...
    def merge(self, chunk: Chunk) -> Chunk: ...
