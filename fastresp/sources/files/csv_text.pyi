from typing import final

@final
class Quotes:
    lines: int
    opened: int
    size: int
    fault: int
    backslash: bool
    def __new__(
        cls, delimiter: bytes, quote: bytes, escape: bytes, returns: bool = False
    ) -> Quotes: ...
    def feed(self, block: bytes) -> bytes: ...
    def finish(self) -> bytes: ...

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
