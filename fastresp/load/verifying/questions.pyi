from ...resp.buffer import Chunk
from .comparison import Comparison

class Questions:
    over_keys: bool
    def __init__(
        self,
        comparison: Comparison,
        *,
        share: float = 1.0,
        seed: int = 0,
        exact: bool = False,
        again: bool = False,
        repair: bool = False,
    ) -> None: ...
    @property
    def again(self) -> bool: ...
    @property
    def rows(self) -> int: ...
    @property
    def error(self) -> Exception | None: ...
    def ask(self, chunk: Chunk) -> Chunk | None: ...
