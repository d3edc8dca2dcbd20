from typing_extensions import disjoint_base

from ...resp.buffer import Chunk
from ...resp.merge import Merger
from .duplicates import Keys
from .format import Format

@disjoint_base
class Serializer:
    def __new__(
        cls,
        format: Format,  # noqa: A002
        *,
        exists: str = ...,
        max_bytes: int,
        max_argument: int | None = ...,
        merger: Merger | None = ...,
        several: bool = ...,
        file: bool = ...,
        keys: Keys | None = ...,
    ) -> Serializer: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def failing(self) -> tuple[Chunk, int] | None: ...
    @property
    def key_count(self) -> int: ...
    @property
    def expiring(self) -> int: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def blocked(self) -> bool: ...
    def serialize(self, chunk: Chunk | None) -> list[Chunk]: ...
    def wait_for(self, fence: Chunk) -> None: ...
    def finish(self) -> list[Chunk]: ...
