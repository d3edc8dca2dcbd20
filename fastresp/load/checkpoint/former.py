"""The connections of the loader that had a checkpoint before: whether they live, and their end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping

from ...outcome.errors import CheckpointError
from ...outcome.messages import Hint, Message
from .links import Link, Links, possible_later, response_error

__all__ = ["AtWork", "check_alone", "close_all"]

# How long the connections of a dead loader may stay, if we may not close them.
GONE_S = 10.0
LOOK_S = 0.05


class AtWork(CheckpointError):
    """Another loader is at work."""

    again = True


def check_alone(
    links: Links, name: str, found: Mapping[str, str], now: Callable[[], int], *, by_lease: bool
) -> None:
    """Refuse to begin while another loader is at work.

    Args:
        links: our connections.
        name: of the checkpoint.
        found: its description.
        now: returns the server's time in seconds since 1970.
        by_lease: whether a loader that does not renew its lease is not at work, although it has
            connections: its process may be frozen.

    Raises:
        AtWork: one is.
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
                f"another loader is at work on checkpoint {name!r} ({found.get('loader')}): wait "
                "until it has ended, or cut it off with ",
                Hint("take_over", True),
            )
        )


def are_alive(links: Links, clients: str) -> bool | None:
    """Return whether one of the connections exists; None if the user may not know.

    Args:
        links: our connections.
        clients: JSON: for each server its address, its run ID, and the CLIENT IDs.
    """
    known = [
        link.lives(numbers, named=not sure) for link, numbers, sure in _by_link(links, clients)
    ]
    return None if None in known else any(known)


def close_all(links: Links, clients: str, timeout: float | None) -> None:
    """Close the connections; what came over them and was not run is lost.

    Args:
        links, clients: as for ``are_alive()``.
        timeout: seconds to wait for the end of one that we may not close; at most 10.

    Raises:
        CheckpointError: one that we may not close does not end.
    """
    for link, numbers, sure in _by_link(links, clients):
        with link.explained():
            for number in numbers:
                # After a restart that we may not know of, others have these numbers.
                lives = link.lives([number], named=not sure)
                error = "it is unknown whose they are"
                try:
                    if lives or (sure and lives is None):
                        link.call("CLIENT", "KILL", "ID", number)
                        lives = False
                except response_error() as refusal:
                    error = str(refusal)
                if lives is False:
                    continue
                _wait_for_end(link, number, sure, error, min(timeout or GONE_S, GONE_S))


def _wait_for_end(link: Link, number: int, sure: bool, error: str, seconds: float) -> None:
    """Wait until a connection that we may not close has ended.

    That of a loader that has died does, after the server has run all that came over it.
    """
    until = time.monotonic() + seconds
    while (lives := link.lives([number], named=not sure)) is not False:
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_S)
    if lives is not False:
        raise possible_later(
            "can't close the connections of the loader before, which may still have commands "
            f"under way: {error} (allow it with ACL SETUSER ... +client|kill +client|list +info, "
            f"end that loader, or end them: CLIENT KILL ID {number})"
        )


def _by_link(links: Links, clients: str) -> Iterator[tuple[Link, list[int], bool]]:
    """Yield the connections by server, and whether it is surely still the same process.

    Those of a server that was started since are left out. So are those of a node that is no primary
    and can't be reached: what it may still run is not kept, as another one has its slots.
    """
    for address, run, numbers in json.loads(clients or "[]"):
        for link in links.at(address, run):
            sure = bool(run and link.run)
            if not sure or run == link.run:
                yield link, numbers, sure
