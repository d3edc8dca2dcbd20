"""Show a command as redis-cli would write it, cut to fit a line."""

from __future__ import annotations

from ..outcome.messages import BYTES_SHOWN, shown_argument
from ..outcome.passwords import REDACTED, hidden_arguments
from .split import beginning

__all__ = ["HEAD_BYTES", "shown_command"]

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
