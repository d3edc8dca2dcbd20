"""The most memory that a process had, for tests that run one for that."""

from __future__ import annotations

import inspect

__all__ = ["PEAK", "forget_peak", "peak"]


def peak() -> int:
    """KiB. Unlike ru_maxrss it does not begin with that of the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Let ``peak()`` count from the memory of now on."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


# To stand before the code of such a process.
PEAK = inspect.getsource(peak)
