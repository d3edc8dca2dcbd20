from collections.abc import Iterable, Sequence

from .fields import Field, FieldReader

class Plan(FieldReader):
    def __init__(
        self, text: str, commands: Iterable[Sequence[Sequence[bytes | Field]]]
    ) -> None: ...
    @property
    def commands(self) -> tuple[Sequence[Sequence[bytes | Field]], ...]: ...
