"""Check that there is enough address space for Arrow's threads."""

from __future__ import annotations

import os
from contextlib import suppress

from ...outcome.errors import SourceError

__all__ = ["check_address_space"]

# For the stacks and heaps of Arrow's threads (8 MiB each, and up to 64 MiB) and a few blocks. With
# less, Arrow may wait forever for a thread that could not start, even at process exit.
MIN_FREE_BYTES = 256 << 20


def check_address_space() -> None:
    """Check that the limit of the address space (``ulimit -v``) is large enough to read files.

    Raises:
        SourceError: the limit is too small.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    used = 0
    # macOS has no such file.
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    free = max(limit - used, 0)
    if free < MIN_FREE_BYTES:
        raise SourceError(
            f"the limit of address space, {limit >> 20:,} MiB, leaves {free >> 20:,} MiB to read "
            f"files, and Arrow's threads need {MIN_FREE_BYTES >> 20}; raise it (ulimit -v), "
            "or limit the memory with a container or cgroup instead"
        )
