from collections.abc import Iterator
from typing import Any

def gather(
    source: Iterator[Any], batch: list[Any], most_items: int, most_bytes: int, seconds: float
) -> bool: ...
