"""Ask a server when what it was sent is durable: at replicas, or on its disk."""

from __future__ import annotations

from typing import NamedTuple

from ..resp.values import pack
from .units import Piece

__all__ = ["Confirmation", "confirmation_of"]


class Confirmation(NamedTuple):
    """A command that is answered when what came before it on its connection is durable.

    Attributes:
        piece: the command. Its own timeout is 0, for ever: that of the load ends it.
        least: what the first number of its reply must be at least. It can be less: CLIENT UNBLOCK
            ends the wait.
        likely: the likely cause if no reply comes.
        fault: what is wrong if the reply is an error.
    """

    piece: Piece
    least: int
    likely: str
    fault: str


def confirmation_of(durability: str | int) -> Confirmation | None:
    """Return the question for a durability (see Options); None if any reply will do."""
    if durability == "fsync":
        return Confirmation(
            Piece(pack("WAITAOF", 1, 0, 0), ()), 1,
            "the server has not synced its append-only file (WAITAOF; see its appendfsync), or ",
            "it can't say whether the commands are on disk",
        )  # fmt: skip
    if isinstance(durability, int):
        noun = "replica has" if durability == 1 else "replicas have"
        return Confirmation(
            Piece(pack("WAIT", durability, 0), ()), durability,
            f"fewer than {durability} {noun} the commands (WAIT), or ",
            "it can't wait for its replicas",
        )  # fmt: skip
    return None
