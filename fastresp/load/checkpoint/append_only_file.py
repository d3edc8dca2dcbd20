"""Remove half a transaction from the append-only file of a server that has crashed.

A crash may cut the last transaction in the file. The server does not run that half when it starts,
but leaves it in the file, if the cut is within a command; when it starts once more, it runs the
half together with the next transaction. So rows would run twice. Found with Redis 6.2 to 8.2 and
Valkey 8.1, not with Valkey 9.1. Writing the file anew removes the half.
"""

from __future__ import annotations

import json
import time

from ...outcome.errors import CheckpointError
from .links import Link, Links, possible_later, response_error

__all__ = ["remove_halves"]

LOOK_S = 0.05
# One is under way, and will do; or the user may not run it, or nobody may.
HARMLESS = ("in progress", "permissions", "unknown command")
UNDER_WAY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
# The first version of Valkey that cuts the file before the transaction.
VALKEY = 9, 1


def remove_halves(links: Links, clients: str) -> None:
    """Let each server that was started since the loader before write its append-only file anew.

    Without the right to BGREWRITEAOF nothing is done.

    Raises:
        CheckpointError: a server could not.
        TransportError: a server can't be reached.

    Args:
        links: our connections.
        clients: as for ``former.are_alive()``.
    """
    former = {run for _, run, _ in json.loads(clients or "[]")}
    for link in links.all:
        if clients and link.run and link.run not in former:
            with link.explained():
                _rewrite(link)


def _rewrite(link: Link) -> None:
    """Write the append-only file anew, if there is one, and wait until it is written."""
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
        f"the server at {link.server} could not write its append-only file anew{words}; half a "
        "transaction may be in it since the server was started again: look at its log and its "
        "disk, then resume the load"
    )
