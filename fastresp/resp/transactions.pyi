from array import array
from typing import Self

from .buffer import Chunk
from .merge import Converter
from .slots import Rules

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

class Gatherer:
    def __new__(
        cls,
        batcher: Batcher,
        rows: array[int],
        *,
        rules: Rules | None = ...,
        merger: Converter | None = ...,
        start_row: int = ...,
    ) -> Self: ...
    @property
    def full(self) -> bool: ...
    def add(self, chunk: Chunk) -> None: ...
    def flush(self) -> list[BatchedChunk]: ...
    def finished(
        self, chunk: Chunk, ends: list[int], numbers: list[int], first: bool
    ) -> BatchedChunk: ...
