"""Remove a truncated transaction from the append-only file of a server that has crashed.

A crash may truncate the last transaction in the file. If the file then ends within a command, the
server skips the truncated transaction at the first restart, but leaves it in the file. At the
second restart, the server runs it together with the next transaction, so its rows are loaded again.
Seen with Redis 6.2 to 8.2 and Valkey 8.1, not with Valkey 9.1. Rewriting the file removes the
truncated transaction.
"""

from __future__ import annotations

import json
import time

from ...outcome.errors import CheckpointError
from .links import Link, Links, possible_later, response_error

__all__ = ["remove_halves"]

LOOK_S = 0.05
# Ignored errors: a rewrite is in progress, the user lacks permission, the command is disabled.
HARMLESS = ("in progress", "permissions", "unknown command")
UNDER_WAY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
# The first Valkey version that itself removes a truncated transaction from the file.
VALKEY = 9, 1


def remove_halves(links: Links, clients: str) -> None:
    """Rewrite the append-only file of each server that has restarted since the previous load.

    Servers where the user lacks permission for BGREWRITEAOF are skipped.

    Args:
        links: our connections.
        clients: the previous load's connections, as JSON; see ``former.are_alive()``.

    Raises:
        CheckpointError: a server could not rewrite its append-only file.
        TransportError: a server can't be reached.
    """
    former = {run for _, run, _ in json.loads(clients or "[]")}
    for link in links.all:
        if clients and link.run and link.run not in former:
            with link.explained():
                _rewrite(link)


def _rewrite(link: Link) -> None:
    """Rewrite the append-only file, if it is enabled, and wait until the rewrite is done."""
    info = link.info()
    version = tuple(int(part) for part in info.get("valkey_version", "0.0").split(".")[:2])
    if info.get("aof_enabled") != "1" or version >= VALKEY:
        return
    try:
        link.call("BGREWRITEAOF")
    except response_error() as error:
        if not any(words in str(error) for words in HARMLESS):
            raise _failed(link, f": {error}") from error
    while "1" in map(link.info().get, UNDER_WAY):
        time.sleep(LOOK_S)
    if link.info().get("aof_last_bgrewrite_status") == "err":
        raise _failed(link)


def _failed(link: Link, words: str = "") -> CheckpointError:
    return possible_later(
        f"the server at {link.server} could not rewrite its append-only file{words}; the file may "
        "contain a truncated transaction since the server restarted: check its log and its disk, "
        "then resume the load"
    )
