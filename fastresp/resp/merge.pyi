from array import array
from typing import Self

from typing_extensions import disjoint_base

from .buffer import Chunk
from .commands import REPLACE_SCRIPT as REPLACE_SCRIPT

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

def bulk_string(text: bytes) -> bytes: ...

@disjoint_base
class ReplacedChunk(Chunk): ...

@disjoint_base
class Replacer:
    def __new__(cls, declarations: list[bytes] | None = None) -> Self: ...
    def merge(self, chunk: Chunk) -> Chunk: ...
