from collections.abc import Callable, Iterable, Sequence
from typing import Any

from typing_extensions import disjoint_base

from .fields import Field, Rows

@disjoint_base
class Plan(Rows):
    def __init__(
        self, text: str, commands: Iterable[Sequence[Sequence[bytes | Field]]]
    ) -> None: ...
    @property
    def commands(self) -> tuple[Sequence[Sequence[bytes | Field]], ...]: ...

def json_text(value: Any) -> str: ...

@disjoint_base
class Watched:
    def __init__(self, value: Any, default: Callable[[Any], Any]) -> None: ...
    def __call__(self, value: Any) -> Any: ...

@disjoint_base
class Op: ...

@disjoint_base
class Program: ...
