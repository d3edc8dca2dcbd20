"""The options of a call besides data and template, in one object."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..outcome.errors import CommandError
from ..outcome.messages import Hint, Message, above_zero
from ..outcome.report import Report
from .settings import Server, ServerLike

__all__ = ["MaxErrors", "Nulls", "Options", "Progress", "Rejects", "check_rate", "check_timeout"]

# Each needs memory here and in the server, and more than the server has threads gain nothing.
MOST_CONNECTIONS = 64

MODES = ("commands", "merge")

MaxErrors: TypeAlias = int | str | None
Nulls: TypeAlias = Literal["error", "skip", "empty"]
Progress: TypeAlias = bool | Callable[[Report], object] | None
Rejects: TypeAlias = str | os.PathLike[str] | Callable[[CommandError], object] | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a load, described in ``fastresp.mass_insert``; other calls use some of them.

    Raises:
        ValueError: a number is out of range.
    """

    server: ServerLike | Server = None
    transport: str = "auto"
    on_error: str = "raise"
    max_errors: MaxErrors = None
    rejects: Rejects = None
    rate_limit: float | None = None
    connections: int = 1
    nulls: Nulls = "error"
    timeout: float | None = 30.0
    progress: Progress = None
    default: Callable[[Any], Any] | None = None
    mode: str = "commands"
    merge_items: int | None = None
    merge_bytes: int | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        check_rate(self.rate_limit)
        count = self.connections
        if not isinstance(count, int) or not 1 <= count <= MOST_CONNECTIONS:
            words = f" must be a number from 1 to {MOST_CONNECTIONS}, not {count!r}"
            raise ValueError(Message(Hint("connections"), words))
        self._check_mode()

    def _check_mode(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be 'commands' or 'merge', not {self.mode!r}")
        for name in ("merge_items", "merge_bytes"):
            most = getattr(self, name)
            if most is None:
                continue
            if self.mode != "merge":
                raise ValueError(Message(Hint(name), " is for ", Hint("mode", "merge")))
            if not isinstance(most, int) or isinstance(most, bool) or most < 1:
                words = f" must be a number of 1 or more, not {most!r}"
                raise ValueError(Message(Hint(name), words))


def check_timeout(seconds: float | None) -> None:
    """Check a timeout.

    Raises:
        ValueError: it is neither a number above 0 nor None.
    """
    if seconds is not None and not seconds > 0:
        raise ValueError(above_zero("timeout", "seconds", seconds))


def check_rate(limit: float | None) -> None:
    """Check a rate limit.

    Raises:
        ValueError: it is neither a finite number above 0 nor None.
    """
    if limit is not None and not 0 < limit < float("inf"):
        raise ValueError(above_zero("rate_limit", "commands per second", limit))
