from typing import Self

from typing_extensions import disjoint_base

from ...resp.grammar import Incoming
from .differences import Differences
from .write_command import ReadPlan

@disjoint_base
class Comparison(Incoming):
    def __new__(
        cls,
        differences: Differences,
        *,
        exact: bool = False,
        recheck: bool = False,
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
    def waiting_bytes(self) -> int: ...
    @property
    def error_reply(self) -> tuple[int, bytes] | None: ...
    @property
    def pending(self) -> bool: ...
    def accept(self, plan: ReadPlan) -> None: ...
    def feed(self, data: bytes) -> None: ...
