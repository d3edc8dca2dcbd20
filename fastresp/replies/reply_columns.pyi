from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer, disjoint_base

from ..encode.columns.arrow_out import StringBatch, StringColumn
from ..resp.grammar import Incoming

@disjoint_base
class ReplyColumns(Incoming):
    def __new__(
        cls,
        names: Sequence[str],
        *,
        text: bool | Sequence[bool] = True,
        fixed: bool = True,
        max_reply_bytes: int | None = None,
    ) -> ReplyColumns: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def replies(self) -> int: ...
    @property
    def errors(self) -> list[tuple[int, bytes]]: ...
    @property
    def absent(self) -> list[int]: ...
    @property
    def invalid(self) -> tuple[int, int] | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def pending(self) -> bool: ...
    def feed(self, data: Buffer) -> int: ...
    def take(self, most: int | None = None) -> StringBatch | None: ...

def string_column(
    values: list[Any], *, head: int = 0, tail: int = 0, text: bool = True
) -> StringColumn: ...
