"""What a caller asks for besides data and template: one object, from the public call down."""

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

# Each holds memory here and in the server, and more than a server has threads gain nothing.
MOST_CONNECTIONS = 64

MaxErrors: TypeAlias = int | str | None
Nulls: TypeAlias = Literal["error", "skip", "empty"]
Progress: TypeAlias = bool | Callable[[Report], object] | None
Rejects: TypeAlias = str | os.PathLike[str] | Callable[[CommandError], object] | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a load, as ``fastresp.mass_insert`` describes them; others use some of them.

    Raises:
        ValueError: a number can't be.
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

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        check_rate(self.rate_limit)
        count = self.connections
        if not isinstance(count, int) or not 1 <= count <= MOST_CONNECTIONS:
            words = f" is a number from 1 to {MOST_CONNECTIONS}, not {count!r}"
            raise ValueError(Message(Hint("connections"), words))


def check_timeout(seconds: float | None) -> None:
    """Refuse what is no time to wait.

    Raises:
        ValueError: it is none.
    """
    if seconds is not None and not seconds > 0:
        raise ValueError(above_zero("timeout", "seconds", seconds))


def check_rate(limit: float | None) -> None:
    """Refuse what is no rate of commands.

    Raises:
        ValueError: it is none.
    """
    if limit is not None and not 0 < limit < float("inf"):
        raise ValueError(above_zero("rate_limit", "commands a second", limit))
