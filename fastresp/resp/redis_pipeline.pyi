from collections.abc import Callable, Iterable
from typing import Any

def pack_pipeline(
    commands: Iterable[Iterable[Any]], encode: Callable[[str], bytes] | None = None
) -> list[bytes]: ...
