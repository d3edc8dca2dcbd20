from typing import Final, final

from typing_extensions import Buffer

from ...outcome.messages import Message

MARK: Final[bytes]
WRONG_ENCODING: Final[Message]

def mark_numbers(
    text: bytes, max_depth: int, literals: bool = False
) -> tuple[memoryview, int, int]: ...
def unmark(offsets: Buffer, text: Buffer) -> tuple[int, bytes | None, bytes | None]: ...

@final
class ArrayLines:
    def feed(self, block: bytes) -> bytes: ...
