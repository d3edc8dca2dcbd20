"""The error for a command that can't be sent to a cluster."""

from __future__ import annotations

from ..outcome.errors import EncodeError
from ..outcome.messages import shown_argument
from .slots import NO_KEY, OPEN, SEVERAL, UNKNOWN, WATCHED

__all__ = ["refusal"]


def refusal(row: int, place: int, name: bytes, size: int, why: int) -> EncodeError:
    """Return the error for a command that can't be routed in a cluster.

    Args:
        row: the index of the command's source row.
        place: the command's index in the source.
        name: the first bytes of the command's name.
        size: the size of the name in bytes.
        why: the slot, if no node owns it; otherwise a constant of ``slots``.
    """
    shown = shown_argument(name, size)
    if why == SEVERAL:
        words = (
            f"{shown} has keys of several slots, and a node of a cluster runs a command or a "
            "transaction only on keys of one slot; use one command per key, or a hash tag such as "
            "{user7}:name"
        )
    elif why == UNKNOWN:
        words = f"it is not known where {shown} has its keys; send it with execute()"
    elif why == NO_KEY:
        words = f"{shown} has no key, so it has no node in the cluster; send it to each node alone"
    elif why == OPEN:
        words = f"{shown} and its EXEC must be in one row; use a template with both"
    elif why == WATCHED:
        words = f"{shown} can't be part of a load; leave it out"
    else:
        words = f"no node of the cluster serves slot {why:,}; check CLUSTER INFO"
    return EncodeError(f"row {row:,}, command {place:,}: {words}", command=place, row=row)
