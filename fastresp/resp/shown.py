"""Show commands in messages, and explain why a cluster can't run a command."""

from __future__ import annotations

from ..outcome.errors import EncodeError
from ..outcome.messages import BYTES_SHOWN, shown_argument
from ..outcome.passwords import REDACTED, hidden_arguments
from .slots import NO_KEY, OPEN, SEVERAL, UNKNOWN, WATCHED
from .split import beginning

__all__ = ["HEAD_BYTES", "refusal", "shown_command"]

# The number of leading bytes of a command that are enough to show it.
HEAD_BYTES = 4096
ARGUMENTS_SHOWN = 12


def shown_command(resp: bytes) -> str:
    """Return a command as redis-cli would write it.

    The result can be pasted into redis-cli, unless it is shortened (it then contains "...") or
    hides a possible password.

    Args:
        resp: the command as RESP; the first HEAD_BYTES are enough.
    """
    count, found = beginning(resp, ARGUMENTS_SHOWN, BYTES_SHOWN)
    hidden = hidden_arguments([text for text, _ in found])
    words = [
        REDACTED.decode() if i in hidden else shown_argument(text, size)
        for i, (text, size) in enumerate(found)
    ]
    if found and found[0][0].isalnum() and len(found[0][0]) == found[0][1]:
        words[0] = found[0][0].decode()
    if len(words) < count:
        words.append(f"... ({count:,} arguments)")
    return " ".join(words)


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
        message = (
            f"{shown} has keys of several slots, and a node of a cluster runs a command or a "
            "transaction only on keys of one slot; use one command per key, or a hash tag such as "
            "{user7}:name"
        )
    elif why == UNKNOWN:
        message = f"it is unknown which arguments of {shown} are keys; run it with execute()"
    elif why == NO_KEY:
        message = f"{shown} has no key, so no node of the cluster owns it; send it to each node"
    elif why == OPEN:
        message = f"{shown} and its EXEC must be in one row; use a template with both"
    elif why == WATCHED:
        message = f"{shown} can't be part of a load; leave it out"
    else:
        message = f"no node of the cluster serves slot {why:,}; check CLUSTER INFO"
    return EncodeError(f"row {row:,}, command {place:,}: {message}", command=place, row=row)
