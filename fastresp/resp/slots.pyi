from collections.abc import Iterable, Mapping
from typing import Final

from .buffer import Chunk
from .commands import COMMANDS as COMMANDS
from .commands import POSITIONS as POSITIONS
from .commands import commands_with as commands_with

SLOTS: Final[int]
NO_KEY: Final[int]
UNKNOWN: Final[int]
SEVERAL: Final[int]
OPEN: Final[int]
WATCHED: Final[int]

class Rules:
    def __new__(cls, more: Mapping[bytes, tuple[int, int, int]] = ...) -> Rules: ...
    def slot(self, command: bytes, *, every: bool = ...) -> int: ...

def tags() -> list[bytes]: ...
def keys_in(keys: list[bytes], wanted: bytes) -> list[bytes]: ...
def mask_of(slots: Iterable[int]) -> bytes: ...
def keys_of(chunk: Chunk) -> list[tuple[bytes, ...]]: ...
def size_queries(
    chunk: Chunk, first: int, stop: int
) -> tuple[Chunk | None, list[int], list[int]] | None: ...
