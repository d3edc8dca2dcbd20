from collections.abc import Callable, Iterable
from typing import Any

def pack(*args: Any, default: Callable[[Any], Any] | None = None) -> bytes: ...
def pack_pipeline(
    commands: Iterable[Iterable[Any]], encode: Callable[[str], bytes] | None = None
) -> list[bytes]: ...
