"""Choose a format of values that the server accepts."""

from __future__ import annotations

import re

from ...outcome.errors import TransportError
from .format import Format

__all__ = ["format_of"]

# The RDB version that DUMP writes on each server version, newest first. Servers accept older RDB
# versions. Valkey 9 refuses versions 12 to 79, which other products use. Source: each rdb.h.
REDIS = (((7, 4), 12), ((7, 2), 11), ((7, 0), 10), ((6, 2), 9))
VALKEY = (((9, 0), 80), ((7, 2), 11))
# Before 7.0, settings have other names.
OLD, NEW = "-ziplist-", "-listpack-"


def format_of(version: str | None, limits: dict[str, int], *, valkey: bool) -> Format:
    """Return the format of values for a server.

    Args:
        version: the server's version, such as ``"7.0.15"``.
        limits: the server's settings.
        valkey: whether the server is Valkey.

    Raises:
        TransportError: the server is too old, or its version is unknown.
    """
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None:
        raise TransportError(
            "can't serialise: the server does not report its version; allow INFO, or load without "
            "serialising"
        )
    number = int(found[1]), int(found[2])
    for since, rdb_version in VALKEY if valkey else REDIS:
        if number >= since:
            known = {name.replace(OLD, NEW): value for name, value in limits.items()}
            return Format(rdb_version, known)
    raise TransportError(f"can't serialise for version {version}; the server must be 6.2 or later")
