from array import array

from typing_extensions import disjoint_base

from .buffer import Chunk

@disjoint_base
class MergedChunk(Chunk):
    @property
    def lasts(self) -> array[int]: ...

@disjoint_base
class Merger:
    def __init__(self, most_items: int, most_bytes: int, without: frozenset[str] = ...) -> None: ...
    def merge(self, chunk: Chunk) -> Chunk: ...
