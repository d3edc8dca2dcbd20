"""The options of a public function, except data and template, in one object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Literal, Self, TypeAlias

from ..outcome.errors import CommandError
from ..outcome.messages import GROUPED, Hint, InPython, Message, above_zero, shortened
from ..outcome.report import Report
from .settings import Server, ServerLike

__all__ = [
    "ACKNOWLEDGED", "FSYNC", "SNAPSHOT", "Checkpoint", "Durable", "MaxErrors", "Merge",
    "Metrics", "Mirror", "Mode", "Nulls", "Options", "Progress", "Rate", "RateLimit",
    "ReceiptPath", "Rejects", "Replicate", "Serialize", "arguments_of", "check_timeout", "grouped",
]  # fmt: skip

RateLimit: TypeAlias = float | str | None

# A number with a unit of bytes: decimal (kB, MB) or binary (KiB, MiB).
LIMIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{0,15})?)\s*([kKmMgGtT]?)(i?)[bB](?:/s)?\s*")
# Mb and Gb usually mean bits.
BITS = re.compile(r"[KMGT]i?b")
# An address and, optionally, a port; an IPv6 address with a port is in brackets.
ANY_HOST = ("0.0.0.0", "::")
LISTEN = re.compile(r"(?:(?P<host>[^\s:\[\]]+)|\[(?P<ipv6>[^\s\[\]]+)\])(?::(?P<port>[0-9]{1,5}))?")
POWERS = ("", "k", "m", "g", "t")
PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")
# A pattern without lone surrogates, which UTF-8 can't encode.
WILDCARD = re.compile(r"[^\ud800-\udfff]*[*?\[][^\ud800-\udfff]*")
# Assumed size of a command, to convert commands per second to bytes per second.
COMMAND_BYTES = 50
# Maximum connections: each needs memory here and in the server, and more connections than the
# server has threads gain nothing.
MAX_CONNECTIONS = 64
EXISTS = ("error", "replace", "skip")
MERGE_EXISTS = ("update", "replace")
RETRIES = (None, "never", "idempotent", "always")
TRANSPORTS = ("auto", "redis-cli", "socket")
ACKNOWLEDGED, FSYNC, SNAPSHOT = DURABILITIES = ("acknowledged", "fsync", "snapshot")
SERIALIZE = Hint("mode", "serialize")
# Options that have no meaning if the server loads an RDB file.
NOT_REPLICATED = {
    "transport", "max_errors", "rejects", "rate_limit", "connections", "retry", "durable",
    "checkpoint", "import_source", "wait_index", "index_backlog", "pause_saves", "mirror",
}  # fmt: skip
Durable: TypeAlias = Literal["acknowledged", "fsync", "snapshot"] | int
MaxErrors: TypeAlias = int | str | None
Nulls: TypeAlias = Literal["auto", "skip", "empty", "error", "delete"]
Progress: TypeAlias = bool | Callable[[Report], object] | None
Metrics: TypeAlias = str | os.PathLike[str] | Callable[[str], object] | None
ReceiptPath: TypeAlias = str | os.PathLike[str] | None
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
        """Return the limit divided by a number of loads, as text for ``of()``."""
        return f"{self.per_second / parts:f}{'B' if self.in_bytes else ''}"

    def commands_in(self, seconds: float) -> int | None:
        """Return how many commands are allowed in this time, at least 1; None for a byte limit."""
        return None if self.in_bytes else max(1, int(self.per_second * seconds))

    def bytes_in(self, seconds: float) -> int:
        """Return approximately how many bytes are allowed in this time."""
        each = 1 if self.in_bytes else COMMAND_BYTES
        return int(min(self.per_second * each * seconds, 1 << 62))


def _read(text: str) -> tuple[float, bool]:
    """Parse a rate limit; return (number, whether it counts bytes instead of commands)."""
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


def _check(option: str, value: object, valid: bool, requirement: str) -> None:
    if not valid:
        raise ValueError(Message(Hint(option), f" must be {requirement}, not {value!r}"))


def _check_counts(**limits: int | None) -> None:
    for option, value in limits.items():
        _check(option, value, value is None or _is_count(value), "a whole number of 1 or more")


def _check_flags(**flags: bool) -> None:
    for option, value in flags.items():
        _check(option, value, value in (True, False), "True or False")


def _is_count(value: object) -> bool:
    """Return whether a value is an integer, of Python or NumPy, of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


@dataclass(frozen=True)
class Merge:
    """Combine adjacent commands: RPUSH commands of one key become one, SETs become an MSET.

    Commands are merged only if that changes neither the data nor the report.

    Attributes:
        exists: what HSET does with a hash that exists: ``"update"`` sets the row's fields and keeps
            all others; ``"replace"`` replaces the hash, so that it has only the row's fields and no
            time to live. Values of other types are kept, and their rows fail with WRONGTYPE. The
            commands are then not merged: HSET becomes HIMPORT SET (Redis 8.10) or a script.
        items: maximum items (elements, members, field-value pairs, keys) of a merged command; None
            for 1,000. With a rate limit, at most the number of commands allowed in 10 ms.
        bytes: maximum bytes of a merged command; None for 65,536. Other clients wait while the
            server runs a command, so larger commands delay those clients.

    Raises:
        ValueError: an argument is not a number of 1 or more, or has no effect because of
            ``exists="replace"``.
    """

    items: int | None = None
    bytes: int | None = None
    exists: Literal["update", "replace"] = "update"

    def __post_init__(self) -> None:
        _check_counts(merge_items=self.items, merge_bytes=self.bytes)
        _check("exists", self.exists, self.exists in MERGE_EXISTS, "'update' or 'replace'")
        if self.exists == "replace" and (self.items, self.bytes) != (None, None):
            limit = Hint("merge_items" if self.bytes is None else "merge_bytes")
            reason = " has no effect with exists='replace', which merges no commands"
            raise ValueError(Message(limit, reason))


@dataclass(frozen=True)
class Serialize:
    """Create whole keys: encode them in the server's storage format, and send them with RESTORE.

    Adjacent HSET, RPUSH, LPUSH, SADD or ZADD commands of one key, and its EXPIRE or PEXPIRE,
    become one value.

    Attributes:
        exists: what to do with a key that exists: ``"error"`` keeps it, and its commands fail with
            BUSYKEY; ``"skip"`` keeps the key, and counts its commands in the report's
            ``existing``; ``"replace"`` replaces the key.
        max_bytes: a key with more bytes of items than this is created with RESTORE and continued
            with merged commands; None for 33,554,432 (32 MiB). Buffering a key needs up to about
            eight times as much memory.

    Raises:
        ValueError: an argument is invalid.
    """

    exists: Literal["error", "replace", "skip"] = "error"
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        _check("exists", self.exists, self.exists in EXISTS, "'error', 'replace' or 'skip'")
        _check_counts(max_payload_bytes=self.max_bytes)


@dataclass(frozen=True)
class Replicate:
    """Load an empty server as its primary: the server becomes a replica of this process.

    The server reads all keys at once, as an RDB file, and is a primary again at the end. It is
    loaded completely or stays empty. The commands must be as for ``dump(format="rdb")``.

    Attributes:
        listen: the address on which this process listens for the server, such as
            ``"10.0.0.5"`` or ``"10.0.0.5:7000"``; None for the local address of this
            machine's connection to the server. Without a port, the system chooses one.
        announce: the address that the server connects to, if it differs from ``listen``, for
            example because a container publishes the port. ``listen`` may then be
            ``"0.0.0.0:7000"``. The default port is the port of ``listen``.

    Raises:
        ValueError: ``listen`` or ``announce`` is not an address.
    """

    listen: str | None = None
    announce: str | None = None

    def __post_init__(self) -> None:
        reached = "an address that the server can connect to, such as '10.0.0.5:7000'"
        listens_everywhere = _address(self.listen)[0] in ANY_HOST
        valid = _is_address(self.listen) and not (listens_everywhere and self.announce is None)
        _check("listen", self.listen, valid, reached)
        valid = _is_address(self.announce) and _address(self.announce)[0] not in ANY_HOST
        _check("announce", self.announce, valid, reached)

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) to listen on; "" and 0 if not set."""
        return _address(self.listen)

    @property
    def announced(self) -> tuple[str, int]:
        """(host, port) that the server connects to; "" and 0 mean the listening address."""
        return _address(self.announce)


def _is_address(address: object) -> bool:
    if address is None:
        return True
    host, port = _address(address)
    return bool(host) and port < 1 << 16


def _address(address: object) -> tuple[str, int]:
    """Return (host, port) of an address; "" and 0 if missing or invalid."""
    found = LISTEN.fullmatch(address) if isinstance(address, str) else None
    if found is None:
        return "", 0
    return found["host"] or found["ipv6"], int(found["port"] or 0)


Mode: TypeAlias = (
    Literal["commands", "merge", "serialize", "replicate"] | Merge | Serialize | Replicate
)
MODES: dict[str, Merge | Serialize | Replicate | None] = {
    "commands": None,
    "merge": Merge(),
    "serialize": Serialize(),
    "replicate": Replicate(),
}


@dataclass(frozen=True)
class Checkpoint:
    """Store the progress of a load in the server, so that the load can resume after any failure.

    No row is lost or applied twice. Idempotent commands such as SET or HSET may be resent; all
    others are sent in transactions. Needs a template, and a source that can be read again or a
    ``source_id``.

    Attributes:
        name: the name under which the server stores the progress.
        resume: resume at the checkpoint; if none exists, start the load. By default, an existing
            checkpoint is an error.
        take_over: resume even if another loader is active; that loader can no longer write.
        clear: delete the checkpoint and start with the first row.
        source_id: an ID, such as a date, for a source that can be read only once. If you pass the
            ID of an earlier load, you assert that its source had the same rows in the same order.

    Raises:
        ValueError: an argument is invalid, or both ``resume`` and ``clear`` are True.
    """

    name: str
    _: KW_ONLY
    resume: bool = False
    take_over: bool = False
    clear: bool = False
    source_id: str | None = None

    def __post_init__(self) -> None:
        _check("checkpoint", self.name, isinstance(self.name, str), "a name")
        _check_flags(resume=self.resume, take_over=self.take_over, checkpoint_clear=self.clear)
        if self.clear and self.resume:
            either = Message(Hint("resume", True), " keeps the progress and ")
            raise ValueError(
                Message(either, Hint("checkpoint_clear", True), " deletes it; use one")
            )

    @property
    def resumes(self) -> bool:
        """Whether an existing checkpoint is resumed."""
        return (self.resume or self.take_over) and not self.clear


@dataclass(frozen=True)
class Mirror:
    """After a load without errors, delete what the source does not name.

    This deletes keys that match a pattern, existed before the load, and are in no command of the
    source. In hashes that ``HSET key {**}`` writes, it deletes fields that existed before and that
    no row of the key has. Keys of fastresp's checkpoints are never deleted.

    Attributes:
        keys: the pattern, as for SCAN, such as ``"user:*"``. All keys that match it must come from
            this source.
        limit: the maximum number of keys that are deleted or lose fields, or a percentage of the
            keys that match. If more would be, nothing is deleted, and SourceError is raised.

    Raises:
        ValueError: an argument is invalid.
    """

    keys: str
    limit: int | str = "10%"

    def __post_init__(self) -> None:
        valid = isinstance(self.keys, str) and WILDCARD.fullmatch(self.keys) is not None
        _check("mirror", self.keys, valid, "a pattern of keys with a wildcard, such as 'user:*'")
        valid = self._number is not None or self._share is not None
        _check("mirror_limit", self.limit, valid, "a number, or a percentage such as '10%'")

    @property
    def _number(self) -> int | None:
        text = str(self.limit)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

    @property
    def _share(self) -> tuple[int, int] | None:
        """Numerator and denominator: as a float, 29% of 100 keys would be 28 keys."""
        found = PERCENTAGE.fullmatch(str(self.limit))
        if found is None:
            return None
        whole, _, decimals = found[1].partition(".")
        numerator, denominator = int(whole + decimals), 10 ** (2 + len(decimals))
        return (numerator, denominator) if numerator <= denominator else None

    def most(self, keys: int) -> int:
        """Return the limit as a number, for this number of matching keys."""
        if self._share is not None:
            numerator, denominator = self._share
            return keys * numerator // denominator
        return self._number or 0


def grouped(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert flat options, such as ``merge_bytes``, to arguments of ``mass_insert``.

    Args:
        given: options by name. ``checkpoint`` and ``mode`` may be str.

    Raises:
        ValueError: an option is for another mode, or needs a checkpoint.
    """
    found = {name: value for name, value in given.items() if name not in GROUPED}
    if "checkpoint" in given:
        found["checkpoint"] = as_checkpoint(given["checkpoint"])
    if "mirror" in given:
        found["mirror"] = as_mirror(given["mirror"])
    if given.get("mirror_limit") is not None and found.get("mirror") is None:
        raise ValueError(Message(Hint("mirror_limit"), " needs ", Hint("mirror", ...)))
    if "mode" in given:
        found["mode"] = as_mode(given["mode"])
    for name, (option, kind, argument) in GROUPED.items():
        value = given.get(name)
        unset = (None, False) if kind == "Checkpoint" else (None,)
        if any(value is each for each in unset) or (name, value) == ("exists", "error"):
            continue
        if not hasattr(found.get(option), argument):
            if option == "checkpoint":
                raise ValueError(Message(Hint(name), " needs ", Hint(option, ...)))
            raise ValueError(Message(Hint(name), " is for ", Hint(option, kind.lower())))
        found[option] = replace(found[option], **{argument: value})
    return found


def as_mode(mode: Mode | None) -> Merge | Serialize | Replicate | None:
    """Return the options of a mode; None if commands are sent unchanged."""
    if mode is None or isinstance(mode, Merge | Serialize | Replicate):
        return mode
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(
            "mode must be 'commands', 'merge', 'serialize', 'replicate', a Merge, a Serialize or a "
            f"Replicate, not {mode!r}"
        )
    return MODES[mode]


def as_checkpoint(checkpoint: str | Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint for its name."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    return Checkpoint(checkpoint)


def as_mirror(mirror: str | Mirror | None) -> Mirror | None:
    """Return a Mirror for its pattern."""
    return mirror if mirror is None or isinstance(mirror, Mirror) else Mirror(mirror)


def arguments_of(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of ``given`` that are fields of a dataclass."""
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a load, described in ``fastresp.mass_insert``; other calls use some of them.

    Raises:
        ValueError: a value is invalid, or can't be combined with another option.
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
    receipt: ReceiptPath = None
    lineage: bool = False
    import_source: bool = False
    default: Callable[[Any], Any] | None = None
    mode: Merge | Serialize | Replicate | None = None
    retry: str | None = None
    durable: str | int = ACKNOWLEDGED
    checkpoint: Checkpoint | None = None
    wait_index: bool = False
    index_backlog: int | None = None
    pause_saves: bool = False
    mirror: Mirror | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options among the arguments of a public function."""
        return cls(**grouped(arguments_of(cls, given)))

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        Rate.of(self.rate_limit)
        count = self.connections
        valid = _is_count(count) and count <= MAX_CONNECTIONS
        self._check("connections", valid, f"a whole number from 1 to {MAX_CONNECTIONS}")
        self._check("retry", self.retry in RETRIES, "'never', 'idempotent' or 'always'")
        valid = self.durable in DURABILITIES or _is_count(self.durable)
        self._check("durable", valid, "'acknowledged', 'fsync', 'snapshot' or a number of replicas")
        valid = self.transport in TRANSPORTS
        self._check("transport", valid, "'auto', 'redis-cli' or 'socket'")
        feature = self.transport == "redis-cli" and self._beyond_redis_cli()
        if feature:
            text = f"redis-cli --pipe can't {feature}; use "
            raise ValueError(Message(text, Hint("transport", "socket")))
        valid = self.index_backlog is None or _is_count(self.index_backlog)
        self._check("index_backlog", valid, "a whole number of documents of 1 or more")
        _check_flags(
            wait_index=self.wait_index,
            import_source=self.import_source,
            lineage=self.lineage,
            pause_saves=self.pause_saves,
        )
        valid = self.receipt is None or isinstance(self.receipt, str | os.PathLike)
        self._check("receipt", valid, "the path of a file")
        if isinstance(self.mode, Replicate):
            self._check_replicate()
        if self.checkpoint is not None:
            self._check_checkpoint()
        if self.nulls == "delete" and self.replaces:
            words = " replaces whole hashes; leave out "
            raise ValueError(Message(f"exists='replace'{words}", Hint("nulls", "delete")))
        if self.nulls == "delete" and isinstance(self.mode, Serialize):
            whole = Message(Hint("mode", "serialize"), " makes whole keys; use ")
            how = Message(Hint("exists", "replace"), " instead of ", Hint("nulls", "delete"))
            raise ValueError(Message(whole, how))
        if self.mirror is not None and self.skips_existing:
            keeps = Message(Hint("exists", "skip"), " keeps the old values of keys, so ")
            raise ValueError(Message(keeps, Hint("mirror"), " needs ", Hint("exists", "replace")))

    def _check(self, option: str, valid: bool, requirement: str) -> None:
        _check(option, getattr(self, option), valid, requirement)

    def _check_checkpoint(self) -> None:
        if self.durable == SNAPSHOT:
            why = ", which covers only durable rows: a snapshot is taken at the end; use "
            words = Message(Hint("durable", SNAPSHOT), " can't be used with ", Hint("checkpoint"))
            raise ValueError(Message(words, why, Hint("durable", FSYNC)))

    def _check_replicate(self) -> None:
        """Refuse options about commands and replies: this mode sends an RDB file instead."""
        for each in fields(self):
            value = getattr(self, each.name)
            used = each.name in NOT_REPLICATED and value not in (each.default, "socket", "never")
            if used or value == "delete":
                advice = ", which sends no commands; leave it out, or use "
                mode = Hint("mode", self.mode_name, "with")
                raise ValueError(
                    Message(Hint(each.name), " can't be used ", mode, advice, SERIALIZE)
                )

    def _beyond_redis_cli(self) -> str:
        """Return a requested feature that redis-cli lacks; "" if it lacks none."""
        if self.on_error == "stop" or self.max_errors is not None or self.rejects is not None:
            return "tell which command an error belongs to"
        if self.mirror is not None:
            return "prove that no command failed"
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
        if self.replaces:
            return "wait for the reply to HIMPORT PREPARE"
        return "tell which key an error belongs to" if isinstance(self.mode, Serialize) else ""

    @cached_property
    def rate(self) -> Rate | None:
        """The rate limit."""
        return Rate.of(self.rate_limit)

    @property
    def confirms(self) -> bool:
        """Whether each connection sends commands that confirm earlier commands."""
        return self.durable not in (ACKNOWLEDGED, SNAPSHOT)

    @property
    def replaces(self) -> bool:
        """Whether HSET replaces its hash, instead of updating it."""
        return isinstance(self.mode, Merge) and self.mode.exists == "replace"

    @property
    def skips_existing(self) -> bool:
        """Whether keys that exist are kept without an error."""
        return isinstance(self.mode, Serialize) and self.mode.exists == "skip"

    @property
    def mode_name(self) -> str:
        """The name of the mode."""
        kinds = ((name, type(mode)) for name, mode in MODES.items() if mode is not None)
        found = (name for name, kind in kinds if isinstance(self.mode, kind))
        return next(found, "commands")


def check_timeout(seconds: float | None) -> None:
    """Raise ValueError if a timeout is neither a number above 0 nor None."""
    if seconds is not None and not seconds > 0:
        raise ValueError(above_zero("timeout", "seconds", seconds))
