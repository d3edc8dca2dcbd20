from collections.abc import Iterator
from typing import Any

def gather(
    source: Iterator[Any], batch: list[Any], max_items: int, max_bytes: int, seconds: float
) -> bool: ...
