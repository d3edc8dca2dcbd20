from typing import Final, Self

BULK_BYTES: Final[int]
ERROR_BYTES: Final[int]

class Incoming:
    def __new__(
        cls, *args: object, max_reply_bytes: int | None = None, **kwargs: object
    ) -> Self: ...
    @property
    def offset(self) -> int: ...
