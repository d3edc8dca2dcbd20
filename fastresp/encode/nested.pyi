from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

def json_text(value: Any) -> str | None: ...

@disjoint_base
class Watched:
    def __init__(self, value: Any, default: Callable[[Any], Any]) -> None: ...
    def __call__(self, value: Any) -> Any: ...
