from typing_extensions import disjoint_base

from ..chunk_writer import ChunkWriter

@disjoint_base
class Target(ChunkWriter): ...
