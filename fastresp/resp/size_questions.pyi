from .buffer import Chunk
from .repeatable import READS as READS

def size_questions(
    chunk: Chunk, first: int, stop: int
) -> tuple[Chunk | None, list[int], list[int]] | None: ...
