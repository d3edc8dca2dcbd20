from typing import final

@final
class Quotes:
    lines: int
    opened: int
    size: int
    fault: int
    backslash: bool
    def __init__(self, delimiter: bytes, quote: bytes, escape: bytes) -> None: ...
    def feed(self, block: bytes) -> bytes: ...
    def finish(self) -> bytes: ...
