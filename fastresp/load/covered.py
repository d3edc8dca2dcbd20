"""Find the search indexes that cover the keys that a template writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..encode.template import Template
from ..resp.commands import commands_with
from ..server.indexes import Index

__all__ = ["Written", "written_by"]

# Commands that write hash fields. The names of commands for JSON documents begin with JSON.
WITH_FIELDS = {name.encode() for name in commands_with("fields")}
# Commands that may write any key.
ANY = {name.encode() for name in commands_with("script")} | {b"RESTORE"}


class Written(NamedTuple):
    """Keys that a load writes.

    Attributes:
        kind: ``"HASH"`` or ``"JSON"``; empty for either.
        beginning: common prefix of the keys.
    """

    kind: str
    beginning: bytes

    def covered_by(self, index: Index) -> bool:
        """Return whether an index may cover some of the keys."""
        begins = self.beginning
        return self.kind in ("", index.kind) and any(
            begins.startswith(prefix) or prefix.startswith(begins) for prefix in index.prefixes
        )


def written_by(template: Template | None, *, unknown: bool) -> list[Written]:
    """Return the keys that a template writes and that a search index may cover.

    Args:
        template: the load's template; None if the source contains whole commands.
        unknown: whether to include commands that may write any key.
    """
    anything = [Written("", b"")] if unknown else []
    if template is None:
        return anything
    found: list[Written] = []
    for first, *others in template.commands:
        name = _beginning(first).upper()
        if not all(isinstance(part, bytes) for part in first) or name in ANY:
            found += anything
        elif name in WITH_FIELDS:
            found += [Written("HASH", _beginning(key)) for key in others[:1]]
        elif name.startswith(b"JSON."):
            keys = others[::3] if name == b"JSON.MSET" else others[:1]
            found += [Written("JSON", _beginning(key)) for key in keys]
    return list(dict.fromkeys(found))


def _beginning(argument: Iterable[object]) -> bytes:
    """Return the constant prefix of a template's argument."""
    found = b""
    for part in argument:
        if not isinstance(part, bytes):
            break
        found += part
    return found
