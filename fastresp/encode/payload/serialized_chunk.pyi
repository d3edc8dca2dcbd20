from collections.abc import Sequence

from typing_extensions import disjoint_base

from ...resp.buffer import Chunk
from ...resp.merge import MergedChunk
from .serializer import Serializer

@disjoint_base
class SerializedChunk(MergedChunk):
    @property
    def memory(self) -> int: ...

@disjoint_base
class LaneSplitter:
    def __new__(cls, of_slots: Sequence[int], serializer: Serializer) -> LaneSplitter: ...
    def remap(self, of_slots: Sequence[int]) -> None: ...
    def split(self, chunk: Chunk) -> list[Chunk]: ...
