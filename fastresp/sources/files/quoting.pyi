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
