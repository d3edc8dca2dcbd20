from collections.abc import Iterable, Sequence

from ...encode.columns.arrow_out import StringBatch
from .rdb import RdbReader

class FieldNames:
    def __init__(self, names: Iterable[bytes] = ()) -> None: ...
    @property
    def names(self) -> list[bytes]: ...

class RdbColumns:
    def __new__(
        cls,
        reader: RdbReader,
        names: Sequence[str],
        text: Sequence[bool],
        *,
        fields: Iterable[bytes] | None = None,
        streams: bool = False,
        head: int = 0,
        tail: int = 0,
        ttl: str | None = None,
    ) -> RdbColumns: ...
    def take(self) -> StringBatch | None: ...

def field_names(reader: RdbReader, most: int, *, streams: bool) -> list[bytes]: ...
