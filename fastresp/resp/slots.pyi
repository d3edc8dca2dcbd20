from collections.abc import Iterable, Mapping
from typing import Any, Final

from typing_extensions import disjoint_base

from .buffer import Chunk
from .key_positions import POSITIONS as POSITIONS

SLOTS: Final[int]
NO_KEY: Final[int]
UNKNOWN: Final[int]
SEVERAL: Final[int]
OPEN: Final[int]
WATCHED: Final[int]
BOUNDS: Final[dict[bytes, Any]]

@disjoint_base
class Rules:
    def __new__(cls, more: Mapping[bytes, tuple[int, int, int]] = ...) -> Rules: ...
    def slot(self, command: bytes, *, every: bool = ...) -> int: ...

def tags() -> list[bytes]: ...
def keys_in(keys: list[bytes], wanted: bytes) -> list[bytes]: ...
def mask_of(slots: Iterable[int]) -> bytes: ...
def keys_of(chunk: Chunk) -> list[tuple[bytes, ...]]: ...
