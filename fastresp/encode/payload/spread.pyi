from collections.abc import Sequence

from typing_extensions import disjoint_base

from ...resp.buffer import Chunk
from .serializer import Serializer

@disjoint_base
class Spreader:
    def __new__(cls, of_slots: Sequence[int], serializer: Serializer) -> Spreader: ...
    def remap(self, of_slots: Sequence[int]) -> None: ...
    def spread(self, chunk: Chunk) -> list[Chunk]: ...
