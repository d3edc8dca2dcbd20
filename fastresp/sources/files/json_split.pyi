from collections.abc import Iterable
from typing import final

@final
class Split:
    @property
    def fault(self) -> str | None: ...
    @property
    def twice(self) -> str | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def line_ends(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    def __new__(
        cls,
        block: bytes,
        most_depth: int,
        known: list[str],
        *,
        nested: Iterable[str],
        only: bool,
        every: bool,
        fields: bool,
        documents: bool,
    ) -> Split: ...
    def seen(self) -> list[str]: ...
    def others(self, most: int) -> list[str]: ...
    def nested_lines(self) -> bytes: ...
