from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from typing_extensions import Buffer

from ...outcome.errors import SourceError

_Row: TypeAlias = tuple[bytes, int, bytes]

class Restorer:
    def __init__(
        self,
        version: int,
        *,
        valkey: bool,
        source_valkey: bool,
        field_ttl: Literal["keep", "drop"] = "keep",
        short_sizes: bool | None = None,
        old: bytes = b"",
        new: bytes = b"",
        unique: bool = False,
    ) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def gone(self) -> int: ...
    @property
    def converted(self) -> int: ...
    @property
    def expiries_dropped(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def error(self) -> SourceError | None: ...
    def dumped_rows(self, replies: list[Any], keys: Iterator[bytes]) -> list[_Row]: ...
    def stored_rows(
        self, values: list[bytes], expiries: list[int], keys: list[bytes]
    ) -> list[_Row]: ...
    def renamed(self, key: bytes) -> bytes: ...
    def to_target(
        self, kind: int, data: Buffer, *, check: bool = False
    ) -> tuple[int, bytes] | None: ...
