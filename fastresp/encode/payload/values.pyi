from typing_extensions import disjoint_base

from .format import Format

@disjoint_base
class ValueWriter:
    def __new__(cls, format: Format) -> ValueWriter: ...  # noqa: A002
