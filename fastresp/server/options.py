"""The options of a public function, except data and template, in one object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

from ..outcome.errors import CommandError
from ..outcome.messages import Hint, InPython, Message, above_zero, shortened
from ..outcome.report import Report
from .settings import Server, ServerLike

__all__ = [
    "ACKNOWLEDGED", "FSYNC", "MaxErrors", "Metrics", "Nulls", "Options", "Progress", "Rate",
    "RateLimit", "Rejects", "check_timeout",
]  # fmt: skip

RateLimit: TypeAlias = float | str | None

# A number with a unit of bytes: decimal (kB, MB) or binary (KiB, MiB).
LIMIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{0,15})?)\s*([kKmMgGtT]?)(i?)[bB](?:/s)?\s*")
# Mb and Gb usually mean bits.
BITS = re.compile(r"[KMGT]i?b")
POWERS = ("", "k", "m", "g", "t")
# Assumed size of a command, to convert commands per second to bytes per second.
COMMAND_BYTES = 50
# Maximum connections: each needs memory here and in the server, and more connections than the
# server has threads gain nothing.
MAX_CONNECTIONS = 64
# The modes, and the options that apply only in each mode.
MODES = {
    "commands": (),
    "merge": ("merge_items", "merge_bytes"),
    "serialize": ("exists", "max_payload_bytes"),
}
EXISTS = ("error", "replace", "skip")
RETRIES = (None, "never", "idempotent", "always")
TRANSPORTS = ("auto", "redis-cli", "socket")
ACKNOWLEDGED, FSYNC = DURABILITIES = ("acknowledged", "fsync")
# A key with a larger value is created with RESTORE and continued with commands.
PAYLOAD_BYTES = 32 << 20
MaxErrors: TypeAlias = int | str | None
Nulls: TypeAlias = Literal["auto", "skip", "empty", "error", "delete"]
Progress: TypeAlias = bool | Callable[[Report], object] | None
Metrics: TypeAlias = str | os.PathLike[str] | Callable[[str], object] | None
Rejects: TypeAlias = str | os.PathLike[str] | Callable[[CommandError], object] | None


@dataclass(frozen=True)
class Rate:
    """A rate limit.

    Attributes:
        per_second: the limit.
        in_bytes: whether the limit counts bytes of RESP instead of commands.
    """

    per_second: float
    in_bytes: bool = False

    @classmethod
    def of(cls, limit: RateLimit) -> Self | None:
        """Parse a limit: commands per second, or bytes per second as a text such as "50MB".

        Raises:
            ValueError: the limit is not a finite number above 0, with or without a unit of bytes.
        """
        if limit is None:
            return None
        number, in_bytes = _read(limit) if isinstance(limit, str) else (float(limit), False)
        if not 0 < number < float("inf"):
            raise ValueError(above_zero("rate_limit", "commands or bytes per second", limit))
        return cls(number, in_bytes)

    def shared_by(self, parts: int) -> str:
        """Return each load's share if several loads share the limit, as text for ``of()``."""
        return f"{self.per_second / parts:f}{'B' if self.in_bytes else ''}"

    def commands_in(self, seconds: float) -> int | None:
        """Return how many commands are allowed in this time, at least 1; None for a byte limit."""
        return None if self.in_bytes else max(1, int(self.per_second * seconds))

    def bytes_in(self, seconds: float) -> int:
        """Return approximately how many bytes are allowed in this time."""
        each = 1 if self.in_bytes else COMMAND_BYTES
        return int(min(self.per_second * each * seconds, 1 << 62))


def _read(text: str) -> tuple[float, bool]:
    """Parse a text; return the number, and whether it counts bytes instead of commands."""
    with suppress(ValueError):
        return float(text), False
    found = LIMIT.fullmatch(text)
    if found is None or BITS.search(text):
        raise ValueError(
            Message(
                Hint("rate_limit"),
                f" is {shortened(repr(text))}, but must be commands per second, such as 20000, or "
                "bytes per second, such as ",
                InPython("the text "),
                "800KB, 50MB, 1.5GB or 64MiB",
            )
        )
    number, unit, binary = found.groups()
    return float(number) * (1024 if binary else 1000) ** POWERS.index(unit.lower()), True


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a load, described in ``fastresp.mass_insert``; other calls use some of them.

    Raises:
        ValueError: a number is out of range.
    """

    server: ServerLike | Server = field(default=None, repr=False)  # may contain a password
    transport: str = "auto"
    on_error: str = "raise"
    max_errors: MaxErrors = None
    rejects: Rejects = None
    rate_limit: RateLimit = None
    connections: int = 1
    nulls: Nulls = "auto"
    timeout: float | None = 30.0
    progress: Progress = None
    metrics: Metrics = None
    import_source: bool = False
    default: Callable[[Any], Any] | None = None
    mode: str = "commands"
    merge_items: int | None = None
    merge_bytes: int | None = None
    exists: str = "error"
    max_payload_bytes: int | None = None
    retry: str | None = None
    durable: str | int = ACKNOWLEDGED
    checkpoint: str | None = None
    resume: bool = False
    take_over: bool = False
    checkpoint_clear: bool = False
    source_id: str | None = None
    wait_index: bool = False
    index_backlog: int | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        Rate.of(self.rate_limit)
        count = self.connections
        valid = isinstance(count, int) and 1 <= count <= MAX_CONNECTIONS
        self._check("connections", valid, f"a number from 1 to {MAX_CONNECTIONS}")
        self._check_mode()
        self._check("retry", self.retry in RETRIES, "'never', 'idempotent' or 'always'")
        valid = self.durable in DURABILITIES or _is_count(self.durable, 1)
        self._check("durable", valid, "'acknowledged', 'fsync' or a number of replicas")
        self._check_transport()
        valid = self.index_backlog is None or _is_count(self.index_backlog, 1)
        self._check("index_backlog", valid, "a number of documents of 1 or more")

    def _check(self, option: str, valid: bool, requirement: str) -> None:
        if not valid:
            text = f" must be {requirement}, not {getattr(self, option)!r}"
            raise ValueError(Message(Hint(option), text))

    def _check_transport(self) -> None:
        if self.transport not in TRANSPORTS:
            text = f"transport must be 'auto', 'redis-cli' or 'socket', not {self.transport!r}"
            raise ValueError(text)
        feature = "" if self.transport != "redis-cli" else self._beyond_redis_cli()
        if feature:
            text = f"redis-cli --pipe can't {feature}; use "
            raise ValueError(Message(text, Hint("transport", "socket")))

    def _beyond_redis_cli(self) -> str:
        """Return a requested feature that redis-cli lacks; "" if it lacks none."""
        if self.on_error == "stop" or self.max_errors is not None or self.rejects is not None:
            return "tell which command an error belongs to"
        if self.connections > 1:
            return "open more than one connection"
        if self.retry not in (None, "never"):
            return "connect again"
        if self.durable != ACKNOWLEDGED:
            return "wait until commands are durable"
        if self.checkpoint is not None:
            return "keep a checkpoint"
        if self.import_source:
            return "mark its connection as an import source"
        if self.index_backlog is not None:
            return "pause for an index"
        return "tell which key an error belongs to" if self.mode == "serialize" else ""

    @cached_property
    def rate(self) -> Rate | None:
        """The rate limit."""
        return Rate.of(self.rate_limit)

    def _check_mode(self) -> None:
        if self.mode not in MODES:
            *others, last = map(repr, MODES)
            raise ValueError(f"mode must be {', '.join(others)} or {last}, not {self.mode!r}")
        self._check("exists", self.exists in EXISTS, "'error', 'replace' or 'skip'")
        if self.nulls == "delete" and self.mode == "serialize":
            whole = Message(Hint("mode", "serialize"), " makes whole keys; use ")
            how = Message(Hint("exists", "replace"), " instead of ", Hint("nulls", "delete"))
            raise ValueError(Message(whole, how))
        for mode, names in MODES.items():
            for name in names:
                self._check_of_mode(name, mode)

    def _check_of_mode(self, name: str, mode: str) -> None:
        """Check that an option of one mode is not used in another mode."""
        value = getattr(self, name)
        if value == getattr(type(self), name):  # its default
            return
        if self.mode != mode:
            raise ValueError(Message(Hint(name), " is for ", Hint("mode", mode)))
        self._check(name, name == "exists" or _is_count(value, 1), "a number of 1 or more")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_timeout(seconds: float | None) -> None:
    """Raise ValueError if a timeout is neither a number above 0 nor None."""
    if seconds is not None and not seconds > 0:
        raise ValueError(above_zero("timeout", "seconds", seconds))
