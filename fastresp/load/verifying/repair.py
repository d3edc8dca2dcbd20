"""Repair differences by writing the values again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...outcome.report import Report
from ...server.options import Options
from ...server.settings import ServerLike
from ...sources.chunks import Chunks
from ...transports.driver import Steps
from ...transports.socket import SocketTransport
from ..mass_insert import loading
from .kept import Candidate

__all__ = ["independent", "repairing"]


def independent(differing: Sequence[Candidate]) -> list[Candidate]:
    """Return the differences that can be repaired and do not depend on unrepairable differences.

    If a difference can't be repaired, such as a key of the wrong type, all differences of the same
    key are omitted, and all differences of later commands of the same row.

    Args:
        differing: the differences, in the order of the source.
    """
    fixed = [each for each in differing if not _can_be_written(each)]
    keys = {each.key for each in fixed}
    rows: set[int] = set()
    found = []
    for each in differing:
        if not _can_be_written(each):
            rows.add(each.row)
        elif each.key not in keys and each.row not in rows:
            found.append(each)
    return found


def _can_be_written(each: Candidate) -> bool:
    """Return whether a difference can be repaired by a command, or needs no repair."""
    if each.group == "count":  # not a value of the source
        return True
    return each.repairing() is not None and (each.kind != "type" or each.group == "value")


def repairing(
    differing: Sequence[Candidate],
    server: ServerLike,
    timeout: float | None,
    *,
    in_event_loop: bool,
) -> Steps[Report]:
    """Send a command for each difference that can be repaired.

    Each command writes only the value of the last row that sets it. Whole rows would also write
    values that later rows overwrite.

    Raises:
        TransportError, TransportTimeout: the server can't be used, or the connection was lost.
    """
    commands = [command for each in differing if (command := each.repairing()) is not None]
    options = Options(server=server, on_error="collect", timeout=timeout)
    choose = partial(SocketTransport, in_event_loop=in_event_loop)
    return loading(Chunks(commands, None, options), choose)
