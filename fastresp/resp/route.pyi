from collections.abc import Callable, Iterable, Sequence

from typing_extensions import disjoint_base

from .buffer import Chunk
from .merge import Merger

@disjoint_base
class Share:
    def __new__(cls, start_capacity: int) -> Share: ...

@disjoint_base
class Router:
    def __new__(
        cls,
        lanes: int,
        most_bytes: int,
        full_bytes: int,
        merger: Callable[[], Merger] | None = ...,
        *,
        of_slots: Sequence[int] | None = ...,
        transactions: bool = ...,
    ) -> Router: ...
    @property
    def error(self) -> BaseException | None: ...
    def route(self, chunk: Chunk) -> list[Chunk]: ...
    def remap(self, of_slots: Sequence[int]) -> None: ...
    def again(self, commands: Iterable[tuple[int, int, bytes]]) -> list[Chunk]: ...
    def flush(self) -> list[Chunk]: ...
