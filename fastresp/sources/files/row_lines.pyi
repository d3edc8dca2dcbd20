from typing_extensions import disjoint_base

@disjoint_base
class RowLines:
    @property
    def found(self) -> list[int]: ...
    def __new__(
        cls,
        delimiter: bytes,
        quote: bytes,
        rows: list[int],
        same_width: bool = False,
        returns: bool = False,
    ) -> RowLines: ...
    def feed(self, block: bytes) -> bool: ...
    def finish(self) -> None: ...
