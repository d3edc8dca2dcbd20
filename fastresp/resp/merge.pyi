from array import array
from typing import Self

from .buffer import Chunk
from .commands import REPLACE_SCRIPT as REPLACE_SCRIPT
from .commands import REPLACE_SCRIPT_IN_CLUSTER as REPLACE_SCRIPT_IN_CLUSTER

class MergedChunk(Chunk):
    @property
    def lasts(self) -> array[int]: ...

class Converter:
    def merge(self, chunk: Chunk) -> Chunk: ...

class Merger(Converter):
    def __new__(
        cls,
        max_items: int,
        max_bytes: int,
        without: frozenset[str] = ...,
        *,
        by_slot: bool = ...,
    ) -> Self: ...

def bulk_string(text: bytes) -> bytes: ...

class Replacer(Converter):
    def __new__(
        cls, declarations: list[bytes] | None = None, *, in_cluster: bool = ...
    ) -> Self: ...
