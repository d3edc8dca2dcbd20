from typing import Any

from typing_extensions import disjoint_base

from ..encode.columns.arrow import ArrowStream

@disjoint_base
class ListedStream(ArrowStream):
    def __init__(self, data: Any, most: int, max_bytes: int, sizes: list[int]) -> None: ...
