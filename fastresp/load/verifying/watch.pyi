from typing import Self

from typing_extensions import disjoint_base

from .kept import Kept

@disjoint_base
class Watch:
    def __new__(cls, kept: Kept, exact: bool) -> Self: ...
