from typing import Any, Literal

from typing_extensions import disjoint_base

@disjoint_base
class Restorer:
    def __init__(
        self,
        rdb_version: int,
        *,
        valkey: bool,
        source_valkey: bool,
        field_ttl: Literal["keep", "drop"] = "keep",
        old: bytes = b"",
        new: bytes = b"",
    ) -> None: ...
    @property
    def gone(self) -> int: ...
    @property
    def converted(self) -> int: ...
    @property
    def expiries_dropped(self) -> int: ...
    def dumped_row(
        self, payload: Any, expiry: Any, key: bytes
    ) -> tuple[bytes, int, bytes] | None: ...
    def stored_row(
        self, value: bytes, expiry: int, key: bytes
    ) -> tuple[bytes, int, bytes] | None: ...
