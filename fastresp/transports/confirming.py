"""Ask a server to confirm that commands are durable: on replicas, or on its disk."""

from __future__ import annotations

from typing import NamedTuple

from ..resp.values import pack
from .units import Piece

__all__ = ["Confirmation", "confirmation_of"]


class Confirmation(NamedTuple):
    """A command whose reply confirms that earlier commands of the same connection are durable.

    Attributes:
        piece: the command, which sets no timeout; the load's timeout applies.
        least: the reply confirms the commands only if the first number in the reply is at least
            this number. After CLIENT UNBLOCK, the first number is lower.
        likely: the likely cause of a missing reply.
        fault: the cause of an error reply.
    """

    piece: Piece
    least: int
    likely: str
    fault: str


def confirmation_of(durability: str | int) -> Confirmation | None:
    """Return the command that a durability needs (see Options); None if none is needed."""
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
