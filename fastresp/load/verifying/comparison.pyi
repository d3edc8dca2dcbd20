from typing import Self

from typing_extensions import disjoint_base

from ...resp.grammar import Incoming
from .asks import Asks
from .kept import Kept

@disjoint_base
class Comparison(Incoming):
    def __new__(
        cls,
        kept: Kept,
        *,
        exact: bool = False,
        again: bool = False,
        since: float = -1,
        max_reply_bytes: int | None = None,
    ) -> Self: ...
    @property
    def full(self) -> bool: ...
    @property
    def replies(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def refused(self) -> tuple[int, bytes] | None: ...
    @property
    def pending(self) -> bool: ...
    def feed(self, data: bytes) -> None: ...
    def accept(self, asks: Asks) -> int: ...
