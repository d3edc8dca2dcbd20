from typing import Literal

from typing_extensions import Buffer

class Converter:
    def __new__(
        cls,
        version: int,
        *,
        valkey: bool,
        source_valkey: bool,
        field_ttl: Literal["keep", "drop"] = "keep",
        short_sizes: bool | None = None,
    ) -> Converter: ...
    @property
    def dropped(self) -> int: ...
    @property
    def expired(self) -> int: ...
    def converted(
        self, kind: int, data: Buffer, *, check: bool = False
    ) -> tuple[int, bytes] | None: ...
