from collections.abc import Callable
from typing import NamedTuple

TYPES: tuple[str, ...]

class KeyBatch(NamedTuple):
    database: int
    keys: list[bytes]
    expires: list[int]
    types: list[int]
    sizes: list[int]
    values: list[bytes]

class RdbReader:
    def __init__(
        self,
        read: Callable[[int], bytes],
        *,
        name: str = "",
        match: str | bytes | None = None,
        type: str | None = None,  # noqa: A002
        database: int | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def valkey(self) -> bool: ...
    @property
    def database(self) -> int: ...
    @property
    def aux(self) -> dict[bytes, bytes]: ...
    @property
    def functions(self) -> list[bytes]: ...
    @property
    def keys(self) -> int: ...
    @property
    def unmatched(self) -> int: ...
    @property
    def other_types(self) -> int: ...
    @property
    def other_databases(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def other(self) -> tuple[bytes, str] | None: ...
    def batch(self, *, values: bool = True) -> KeyBatch | None: ...

def type_of(kind: int) -> str: ...
