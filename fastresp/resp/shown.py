"""A command in words, as redis-cli writes it, cut to what fits a line."""

from __future__ import annotations

from ..outcome.excerpts import BYTES_SHOWN, shown_argument
from ..outcome.passwords import REDACTED, hidden_arguments
from .split import beginning

__all__ = ["HEAD_BYTES", "shown_command"]

# Enough of a command to show it: its rest is cut off anyway.
HEAD_BYTES = 4096
ARGUMENTS_SHOWN = 12


def shown_command(resp: bytes) -> str:
    """Show a command, of which the first HEAD_BYTES of RESP will do, as redis-cli would.

    What comes out can be pasted into redis-cli, unless something was cut off, which is marked, or
    may be a password, which is not shown.
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
