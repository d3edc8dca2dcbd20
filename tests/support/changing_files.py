"""Files that change while they are loaded."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Changing(io.BytesIO):
    """Output that calls a function at the first write."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__()
        self._change: Callable[[], object] | None = change

    def write(self, data: Any) -> int:
        if self._change is not None:
            self._change()
            self._change = None
        return super().write(data)


def cut(path: Path) -> Callable[[], None]:
    """Return a function that truncates a file to at most three quarters, after a whole row."""
    data = path.read_bytes()
    size = data.rindex(b"\n", 0, len(data) * 3 // 4) + 1
    if path.suffix == ".resp":
        size = data.rindex(b"*3\r\n", 0, size)
    return lambda: os.truncate(path, size)
