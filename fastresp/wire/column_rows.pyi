from typing_extensions import disjoint_base

from .chunks import ChunkWriter

@disjoint_base
class Target(ChunkWriter): ...
