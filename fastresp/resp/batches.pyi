from array import array
from typing import Self

from typing_extensions import disjoint_base

from .buffer import Chunk

@disjoint_base
class BatchedChunk(Chunk):
    @property
    def inner(self) -> Chunk: ...
    @property
    def execs(self) -> array[int]: ...
    @property
    def waits(self) -> array[int]: ...
    @property
    def firsts(self) -> array[int]: ...
    @property
    def opening(self) -> int: ...
    @property
    def lacking(self) -> dict[bytes, int]: ...
    def elements(self, at: int) -> range: ...

@disjoint_base
class Batcher:
    reached: array[int] | None
    def __new__(
        cls,
        markers: list[bytes],
        prefix: bytes,
        max_commands: int,
        max_bytes: int,
        start_bytes: int,
        lacking: dict[bytes, int] | None = ...,
        opening: list[bytes] | None = ...,
        most_of_source: int | None = ...,
        script: bytes | None = ...,
        reached: array[int] | None = ...,
    ) -> Self: ...
    def batch(
        self,
        inner: Chunk,
        ends: list[int] | None = ...,
        numbers: list[int] | None = ...,
        first: bool = ...,
    ) -> BatchedChunk: ...
