"""The options of ``copy()``, and the objects that they determine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ...encode.payload.format import format_of, has_short_sizes
from ...encode.payload.restorer import Restorer
from ...encode.template import Template
from ...outcome.messages import Hint, Message, shortened
from ...replies.key_pattern import KINDS
from ...server.options import (
    EXISTS,
    Checkpoint,
    Options,
    ReceiptPath,
    Serialize,
    arguments_of,
    as_checkpoint,
)
from ...sources.chunks import PAYLOAD_BYTES
from ..verifying.report import DifferenceTarget, share_of

if TYPE_CHECKING:
    from ...server.answers import Answers

__all__ = ["CopyOptions", "Delete"]

# Whether to delete keys; or a function that receives their number, and returns whether to do so.
Delete: TypeAlias = bool | Callable[[int], bool]

TYPES = ("hash", *KINDS)
SKIP, REPLACE = (Hint("exists", value, grouped=False) for value in ("skip", "replace"))
RENAME = re.compile(r"\s*([^*]*)\*\s*->\s*([^*]*)\*\s*")


@dataclass(frozen=True, kw_only=True)
class CopyOptions(Options):
    """The options of a copy; see ``copy()``. ``server`` is the target.

    Raises:
        ValueError: an option is invalid.
    """

    match: str | None = None
    type: str | None = None
    db: int | None = None
    exists: str = "error"
    rename: str | None = None
    field_ttl: Literal["keep", "drop"] = "keep"
    from_replica: bool = False
    follow: bool = False
    until_lag: int | None = None
    dry_run: bool = False
    changed: bool = False
    delete: Delete = False
    verify: bool = False
    sample: str | float | None = None
    differences: DifferenceTarget = None
    max_payload_bytes: int | None = None
    progress_kept: Checkpoint | None = None
    receipt_path: ReceiptPath = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options from the arguments of ``copy()``."""
        kept = as_checkpoint(given.get("checkpoint"))
        # The checkpoint of a load counts rows, but SCAN does not return keys in the same order.
        own = {"server": given["target"], "checkpoint": None, "progress_kept": kept}
        # The receipt of a load has no counts of what follows the load.
        receipt = {"receipt": None, "receipt_path": given.get("receipt")}
        return cls(**arguments_of(cls, {**given, **own, **receipt}))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("exists", self.exists in EXISTS, "'error', 'skip' or 'replace'")
        words = f"one of {', '.join(TYPES)}, or a module's type, which has nine characters"
        self._check("type", self.type is None or self.type in TYPES or len(self.type) == 9, words)
        valid = self.db is None or (type(self.db) is int and 0 <= self.db < 1 << 31)
        self._check("db", valid, "the number of a database")
        self._check("field_ttl", self.field_ttl in ("keep", "drop"), "'keep' or 'drop'")
        self.prefixes  # noqa: B018
        if self.changed and self.exists != "replace":
            raise ValueError(Message(Hint("changed", True), " needs ", REPLACE))
        self._check_alone("changed", "follow", "dry_run")
        self._check_alone("delete", "follow", "dry_run", "rename")
        self._check_follow()
        Serialize(max_bytes=self.max_payload_bytes)
        for option in ("sample", "differences"):
            if getattr(self, option) is not None and not self.verify:
                raise ValueError(Message(Hint(option), " needs ", Hint("verify", True)))
        self.share  # noqa: B018
        if self.progress_kept is not None:
            self._check_checkpoint()
        if self.progress_kept is not None and self.exists == "error" and not self.from_replica:
            text = " copies some keys again when it resumes, and the target has these; pass "
            raise ValueError(Message(Hint("checkpoint"), text, SKIP, " or ", REPLACE))

    def _check_follow(self) -> None:
        if self.until_lag is not None:
            self._check("until_lag", type(self.until_lag) is int and self.until_lag >= 0, "bytes")
            if not self.follow:
                raise ValueError(Message(Hint("until_lag"), " needs ", Hint("follow", True)))
        if self.follow and self.exists == "skip":
            text = " may keep other values in the target, so the copy can't be followed; use "
            raise ValueError(Message(SKIP, text, REPLACE))
        if self.follow and not self.from_replica:
            raise ValueError(Message(Hint("follow"), " needs ", Hint("from_replica", True)))
        self._check_alone("follow", "match", "type", "rename", "verify")

    def _check_alone(self, option: str, *others: str) -> None:
        for name in others:
            if getattr(self, option) and getattr(self, name):
                raise ValueError(Message(Hint(name), " can't be combined with ", Hint(option)))

    @property
    def limit(self) -> int:
        """The maximum memory, in bytes, of a key that is copied as a whole."""
        return self.max_payload_bytes or PAYLOAD_BYTES

    @property
    def share(self) -> float | None:
        """The share of keys to verify; None for all keys."""
        return share_of(self.sample)

    @property
    def skips_existing(self) -> bool:
        return self.exists == "skip"

    @property
    def prefixes(self) -> tuple[bytes, bytes]:
        """The prefix to replace, and the new prefix; both are empty if no keys are renamed."""
        if self.rename is None:
            return b"", b""
        found = RENAME.fullmatch(self.rename)
        if found is None:
            text = " must be two prefixes, such as 'old:* -> new:*', not "
            raise ValueError(Message(Hint("rename"), text, shortened(repr(self.rename))))
        return found[1].encode(), found[2].encode()

    def renamed(self, key: bytes) -> bytes:
        """Return a source key's name in the target."""
        old, new = self.prefixes
        return new + key[len(old) :] if key.startswith(old) else key

    def original(self, key: bytes) -> bytes:
        """Return a target key's name in the source."""
        old, new = self.prefixes
        return old + key[len(new) :] if key.startswith(new) else key

    def restorer(self, answers: Answers, source_valkey: bool, unique: bool = False) -> Restorer:
        """Return the Restorer for a target."""
        old, new = self.prefixes
        return Restorer(
            format_of(answers.version, {}, valkey=answers.valkey).rdb_version,
            valkey=answers.valkey,
            source_valkey=source_valkey,
            field_ttl=self.field_ttl,
            short_sizes=has_short_sizes(answers.version, valkey=answers.valkey),
            old=old,
            new=new,
            unique=unique,
        )

    def check_same_database(self) -> None:
        """Refuse a copy within one database, unless it renames keys, but never its own copies."""
        same = "the source and the target are the same database; "
        if self.rename is None:
            raise ValueError(Message(same, "pass another target, or ", Hint("rename", ...)))
        old, new = self.prefixes
        if new.startswith(old):
            text = " would rename keys that were copied; choose another prefix"
            raise ValueError(Message(same, Hint("rename"), text))

    @property
    def template(self) -> Template:
        """The command for each row of ``Entries``."""
        replace = " REPLACE" * (self.exists == "replace")
        return Template(f"RESTORE {{0}} {{1}} {{2}} ABSTTL{replace}")
