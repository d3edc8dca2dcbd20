"""Peak memory of a process, for tests that start one to measure it."""

from __future__ import annotations

import inspect

__all__ = ["PEAK", "forget_peak", "peak"]


def peak() -> int:
    """Return the peak in KiB. Unlike ru_maxrss, it does not include the parent process's peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Reset ``peak()`` to the current memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


# A prefix for the code of such a process.
PEAK = inspect.getsource(peak)
