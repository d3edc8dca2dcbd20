from collections.abc import Iterable, Sequence

from typing_extensions import disjoint_base

from .fields import Field, FieldReader

@disjoint_base
class Plan(FieldReader):
    def __init__(
        self, text: str, commands: Iterable[Sequence[Sequence[bytes | Field]]]
    ) -> None: ...
    @property
    def commands(self) -> tuple[Sequence[Sequence[bytes | Field]], ...]: ...

@disjoint_base
class Op: ...

@disjoint_base
class Program: ...
