from collections.abc import Iterator
from typing import Any

from typing_extensions import disjoint_base

from ..encode.columns.arrow import ArrowStream

def gather(
    source: Iterator[Any], batch: list[Any], max_items: int, max_bytes: int, seconds: float
) -> bool: ...
def unchanging(item: Any) -> Any: ...
def size_of(item: Any) -> int: ...

@disjoint_base
class ListedStream(ArrowStream):
    def __init__(self, data: Any, most: int, max_bytes: int, sizes: list[int]) -> None: ...
