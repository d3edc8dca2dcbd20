from typing import Self

from typing_extensions import disjoint_base

NAMES: frozenset[str]

def can_be_verified(command: bytes) -> bool: ...

@disjoint_base
class ReadPlan: ...

@disjoint_base
class ExpectedItems:
    def __new__(cls, recheck: bool) -> Self: ...
