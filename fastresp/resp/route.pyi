from collections.abc import Callable, Sequence

from ..outcome.errors import EncodeError
from .buffer import Chunk
from .commands import FOR_ALL as FOR_ALL
from .merge import Converter
from .slots import Rules

class LaneBuffer:
    def __new__(cls, start_capacity: int) -> LaneBuffer: ...

class Router:
    def __new__(
        cls,
        lanes: int,
        max_bytes: int,
        full_bytes: int,
        merger: Callable[[], Converter] | None = ...,
        *,
        of_slots: Sequence[int] | None = ...,
        keyless: int = ...,
        rules: Rules | None = ...,
        start_row: int = ...,
        for_all: bool = ...,
    ) -> Router: ...
    @property
    def paused(self) -> bool: ...
    @property
    def failing(self) -> tuple[Chunk, int] | None: ...
    @property
    def error(self) -> EncodeError | None: ...
    def route(self, chunk: Chunk) -> list[Chunk]: ...
    def remap(self, of_slots: Sequence[int]) -> None: ...
    def flush(self) -> list[Chunk]: ...
