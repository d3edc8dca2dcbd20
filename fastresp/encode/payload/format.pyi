from collections.abc import Mapping
from typing import Final

from typing_extensions import disjoint_base

DEFAULTS: Final[dict[str, int]]

@disjoint_base
class Format:
    def __init__(self, rdb_version: int = 11, limits: Mapping[str, int] | None = None) -> None: ...
    @property
    def rdb_version(self) -> int: ...
