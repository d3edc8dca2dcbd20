from collections.abc import Callable
from typing import Any

def pack(*args: Any, default: Callable[[Any], Any] | None = None) -> bytes: ...
