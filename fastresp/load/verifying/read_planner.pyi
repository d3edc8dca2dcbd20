from typing import Self

from ...resp.buffer import Chunk
from .comparison import Comparison

# The names, in capitals, of the commands that can be verified; and a summary for messages.
NAMES: frozenset[str]
KNOWN: str

def can_be_verified(command: bytes) -> bool: ...

class ReadPlanner:
    over_keys: bool
    def __new__(
        cls,
        comparison: Comparison,
        *,
        share: float = 1.0,
        seed: int = 0,
        exact: bool = False,
        recheck: bool = False,
        repair: bool = False,
        replaces: bool = False,
    ) -> Self: ...
    @property
    def recheck(self) -> bool: ...
    @property
    def error(self) -> Exception | None: ...
    def plan_reads(self, chunk: Chunk) -> Chunk | None: ...
