from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Field:
    def __init__(
        self,
        key: str | int,
        *,
        head: Field | None = None,
        path: Iterable[str] = (),
        convert: str | None = None,
        at: int = 0,
    ) -> None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def position(self) -> int: ...
    @property
    def convert(self) -> str | None: ...
    @property
    def at(self) -> int: ...
    @property
    def head(self) -> Field | None: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def key(self) -> str | int: ...

class Items(Field): ...

@disjoint_base
class Pairs(Field):
    def __init__(
        self, key: str, *, left_out: Iterable[Field] = (), convert: str | None = None, at: int = 0
    ) -> None: ...
    @property
    def left_out(self) -> tuple[Field, ...]: ...

class Absent(Pairs):
    def __init__(self, pairs: Pairs, named: Iterable[Field]) -> None: ...

class Row(Field): ...

@disjoint_base
class FieldReader:
    @property
    def text(self) -> str: ...

def json_text(value: Any) -> str | None: ...

@disjoint_base
class SizeGuard:
    def __init__(self, value: Any, default: Callable[[Any], Any]) -> None: ...
    def __call__(self, value: Any) -> Any: ...

NOT_A_TIME: str
