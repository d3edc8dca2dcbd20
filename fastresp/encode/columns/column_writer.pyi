from typing import Final, Literal

from ..plan import Plan
from ..writer import ChunkWriter
from .arrow import ArrowStream

CHUNK_BYTES: Final[int]
NO_TIME: Final[str]

class ColumnWriter(ChunkWriter):
    def __init__(
        self,
        plan: Plan,
        stream: ArrowStream,
        *,
        nulls: Literal["auto", "skip", "empty", "error", "delete"] = "auto",
        chunk_bytes: int = ...,
        of_files: bool = False,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    def start_at(self, row: int, first_row: int = ...) -> None: ...
    def fill(self, source: ArrowStream) -> bool: ...
