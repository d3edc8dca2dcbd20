from typing import Self

NAMES: frozenset[str]

def can_be_verified(command: bytes) -> bool: ...

class ReadPlan: ...

class ExpectedItems:
    def __new__(cls, recheck: bool) -> Self: ...
