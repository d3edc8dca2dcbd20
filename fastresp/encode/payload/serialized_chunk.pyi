from typing_extensions import disjoint_base

from ...resp.merge import MergedChunk

@disjoint_base
class SerializedChunk(MergedChunk):
    @property
    def memory(self) -> int: ...
