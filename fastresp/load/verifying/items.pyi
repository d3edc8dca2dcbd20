from typing import Self

from typing_extensions import disjoint_base

@disjoint_base
class Items:
    def __new__(cls, again: bool) -> Self: ...
