"""Detect the previous loader of a checkpoint, close its connections, clean up after a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping

import redis

from ...outcome.errors import CheckpointError
from ...outcome.messages import Hint, Message
from .links import Link, Links, possible_later

__all__ = ["AtWork", "check_alone", "close_all", "remove_truncated_transactions"]

# Seconds to wait for a dead loader's connections to end, if the user may not close them.
GONE_S = 10.0
LOOK_S = 0.05
# Ignored errors: a rewrite is in progress, the user lacks permission, the command is disabled.
HARMLESS = ("in progress", "permissions", "unknown command")
UNDER_WAY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
# The first Valkey version that removes a truncated transaction from the file when it restarts.
VALKEY = 9, 1


class AtWork(CheckpointError):
    """Another loader is active."""

    again = True


def check_alone(
    links: Links, name: str, found: Mapping[str, str], now: Callable[[], int], *, by_lease: bool
) -> None:
    """Refuse to start while another loader is active.

    Args:
        links: our connections.
        name: name of the checkpoint.
        found: the fields of the checkpoint's description.
        now: returns the server's time in seconds since 1970.
        by_lease: whether a loader with an expired lease counts as inactive even if it has open
            connections, since its process may be frozen.
    """
    if found.get("ended"):
        return
    leased = int(found.get("lease", 0)) > now()
    if by_lease and not leased:
        return
    alive = are_alive(links, found.get("clients", ""))
    if alive or (alive is None and leased):
        raise AtWork(
            Message(
                f"another loader is using checkpoint {name!r} ({found.get('loader')}): wait "
                "until it has ended, or take over with ",
                Hint("take_over", True),
            )
        )


def are_alive(links: Links, clients: str) -> bool | None:
    """Return whether any connection of a loader exists; None if this is unknown.

    It is unknown if our user lacks permission to list connections.

    Args:
        links: our connections.
        clients: the loader's connections, as JSON: for each server, its address, its run ID, and
            the CLIENT IDs of the connections.
    """
    known = [
        link.lives(numbers, named=not sure) for link, numbers, sure in _by_link(links, clients)
    ]
    return None if None in known else any(known)


def close_all(links: Links, clients: str, timeout: float | None) -> None:
    """Close a loader's connections; the server then drops commands that have not run yet.

    Args:
        links, clients: as for ``are_alive()``.
        timeout: if our user lacks permission to close a connection: seconds to wait until it ends;
            None, or more than 10, means 10.

    Raises:
        CheckpointError: a connection can't be closed, and does not end.
    """
    for link, numbers, sure in _by_link(links, clients):
        with link.explained():
            for number in numbers:
                # After an unnoticed restart, other clients may have the stored IDs.
                lives = link.lives([number], named=not sure)
                error = "their owner is unknown"
                try:
                    if lives or (sure and lives is None):
                        link.call("CLIENT", "KILL", "ID", number)
                        lives = False
                except redis.ResponseError as refusal:
                    error = str(refusal)
                if lives is False:
                    continue
                _wait_for_end(link, number, sure, error, min(timeout or GONE_S, GONE_S))


def _wait_for_end(link: Link, number: int, sure: bool, error: str, seconds: float) -> None:
    """Wait for the end of a connection that our user lacks permission to close.

    The connection of a dead loader ends when the server has run all commands received on it.
    """
    until = time.monotonic() + seconds
    while (lives := link.lives([number], named=not sure)) is not False:
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_S)
    if lives is not False:
        raise possible_later(
            "can't close the connections of the previous loader, which may still have commands in "
            f"flight: {error} (allow it with ACL SETUSER ... +client|kill +client|list +info, stop "
            f"that loader, or close them yourself: CLIENT KILL ID {number})"
        )


def _by_link(links: Links, clients: str) -> Iterator[tuple[Link, list[int], bool]]:
    """Yield (link, CLIENT IDs, sure) for each server to which a loader was connected.

    ``link`` is our connection to the server, the CLIENT IDs identify the loader's connections, and
    ``sure`` is whether the server has certainly not restarted since the loader connected. Servers
    that have restarted are omitted, as are unreachable nodes that are no longer primaries: writes
    to such a node are discarded, because other nodes own its slots.
    """
    for address, run, numbers in json.loads(clients or "[]"):
        for link in links.at(address, run):
            sure = bool(run and link.run)
            if not sure or run == link.run:
                yield link, numbers, sure


def remove_truncated_transactions(links: Links, clients: str) -> None:
    """Rewrite the append-only file of each server that has restarted since the previous load.

    A crash may truncate the last transaction in the file. If the file then ends within a command,
    the server skips the truncated transaction at its first restart, but leaves it in the file. At
    its second restart, the server runs the truncated transaction together with the next one, so the
    rows of the truncated transaction are loaded twice. A rewrite removes the truncated transaction.
    Seen with Redis 6.2 to 8.2 and Valkey 8.1, not with Valkey 9.1.

    Servers on which the user lacks permission for BGREWRITEAOF are skipped.

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
    except redis.ResponseError as error:
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
