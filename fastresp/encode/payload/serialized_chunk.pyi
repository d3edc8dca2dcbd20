from collections.abc import Sequence

from ...resp.buffer import Chunk
from ...resp.merge import MergedChunk
from .serializer import Serializer

class SerializedChunk(MergedChunk):
    @property
    def memory(self) -> int: ...

class LaneSplitter:
    def __new__(cls, of_slots: Sequence[int], serializer: Serializer) -> LaneSplitter: ...
    def remap(self, of_slots: Sequence[int]) -> None: ...
    def split(self, chunk: Chunk) -> list[Chunk]: ...
