from typing import Self

from typing_extensions import disjoint_base

@disjoint_base
class Incoming:
    def __new__(
        cls, *args: object, max_reply_bytes: int | None = None, **kwargs: object
    ) -> Self: ...
    @property
    def offset(self) -> int: ...
