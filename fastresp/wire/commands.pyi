from typing_extensions import Buffer, disjoint_base

from .buffer import Chunk

@disjoint_base
class CommandSplitter:
    @property
    def pending(self) -> int: ...
    def feed(self, data: Buffer) -> Chunk | None: ...
