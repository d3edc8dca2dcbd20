"""The settings that decide when a server saves, and their paused values.

The paused values contain the original values: ``save "3600 1"`` becomes ``save "100000003600 1"``,
which is due in 3,170 years. So nothing else is stored, and the settings can be restored even after
a crash or an unrelated CONFIG REWRITE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ..server.known_faults import SETTINGS_OF_FAULTS

__all__ = [
    "SETTINGS", "SETTINGS_OF_WARNINGS", "Setting", "before_pause", "is_paused",
    "restoring_commands",
]  # fmt: skip

# Added to the seconds of each rule of ``save``: no server runs that long without a restart.
ADDED_S = 100_000_000_000
# Added to auto-aof-rewrite-min-size: 1 EiB.
ADDED_BYTES = 1 << 60


class Setting(NamedTuple):
    """A setting that can be paused.

    Attributes:
        name: the name for CONFIG GET.
        paused: returns the paused value for a value; a paused value is returned unchanged.
        restored: returns the original value for a paused value; other values are unchanged.
            Both raise ValueError for an invalid value.
    """

    name: str
    paused: Callable[[str], str]
    restored: Callable[[str], str]


def _save(value: str, seconds_of: Callable[[int], int]) -> str:
    """Change the seconds in the rules of ``save``, such as ``"3600 1 300 100"``."""
    numbers = [int(each) for each in value.split()]
    numbers[::2] = map(seconds_of, numbers[::2])
    return " ".join(map(str, numbers))


SETTINGS = (
    Setting(
        "save",
        lambda value: _save(value, lambda seconds: seconds % ADDED_S + ADDED_S),
        lambda value: _save(value, lambda seconds: seconds % ADDED_S),
    ),
    Setting(
        "auto-aof-rewrite-min-size",
        lambda value: str(int(value) % ADDED_BYTES + ADDED_BYTES),
        lambda value: str(int(value) % ADDED_BYTES),
    ),
)

# The settings that a load reads before it begins, since it warns of their values.
SETTINGS_OF_WARNINGS = (*SETTINGS_OF_FAULTS, *(setting.name for setting in SETTINGS))


def is_paused(setting: Setting, value: str) -> bool:
    """Return whether a value is paused."""
    return setting.restored(value) != value


def before_pause(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in ``config`` that are paused, with their original values."""
    found = {}
    for setting in SETTINGS:
        with suppress(KeyError, ValueError):  # unknown, or not as in Redis and Valkey
            if is_paused(setting, config[setting.name]):
                found[setting.name] = setting.restored(config[setting.name])
    return found


def restoring_commands(before: Mapping[str, str]) -> str:
    """Return the commands that restore the settings that ``before_pause()`` returned."""
    return "; ".join(f'CONFIG SET {name} "{value}"' for name, value in before.items())
