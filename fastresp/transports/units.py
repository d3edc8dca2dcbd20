"""Units: a command, merged commands, or a transaction, which are resent together."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..resp.buffer import Chunk
from ..resp.slots import keys_of
from ..resp.split import CommandSplitter
from .window import Sending

__all__ = [
    "Piece", "PlainChunk", "Unit", "apart", "is_script", "keys_in", "replaces",
    "transaction_at", "unit_of", "units_of",
]  # fmt: skip

# Commands that replace or delete their keys.
REPLACING = (b"MSET", b"DEL", b"UNLINK")
# Commands whose reply may contain errors of other commands.
SCRIPTS = (b"EVAL", b"EVALSHA", b"FCALL")
# The names of merged commands with several keys.
OVER_KEYS = (b"MSET", b"MSETEX", b"DEL", b"UNLINK")


class Piece(NamedTuple):
    """A request that gets one reply: a command, or merged commands.

    Attributes:
        data: the bytes of the request.
        parts: row, index in the source and bytes of each command in the request.
    """

    data: bytes
    parts: Sequence[tuple[int, int, bytes]]


class Unit(NamedTuple):
    """Commands that are resent together: one piece, or the pieces of a transaction.

    Attributes:
        place: index of the unit's first command among all commands of the source.
        pieces: the pieces, each of which gets a reply.
        rows: number of source rows that the unit covers and that were not counted as sent.
        sent: number of commands that were sent and may have run.
        fence: the chunk that ends with this unit, if the source waits for the unit's reply.
        lane: the lane that the unit was routed to.
        node: the node that ASK named, which imports the slot; None for the slot's owner.
        later: whether the node refused the unit temporarily, and may accept it at any moment.
    """

    place: int
    pieces: list[Piece]
    rows: int = 0
    sent: int = 0
    fence: Chunk | None = None
    lane: int = -1
    node: tuple[str, int] | None = None
    later: bool = False

    @property
    def commands(self) -> int:
        return sum(len(piece.parts) for piece in self.pieces)


class PlainChunk:
    """A chunk of pieces, with the attributes of a Chunk.

    A piece without parts is a command that fastresp adds, such as ASKING.

    Args:
        pieces: the pieces, each of which gets a reply.
        fence: as in Unit.
    """

    first_command = 0
    lane = -1

    def __init__(self, pieces: Sequence[Piece], fence: Chunk | None = None) -> None:
        self._fence = fence
        self.fence = fence is not None
        chunk = CommandSplitter().feed(b"".join(piece.data for piece in pieces))
        assert chunk is not None
        self.chunk: Chunk = chunk
        self.all = pieces
        self.ends = chunk.ends
        self.piece = chunk.piece
        self.sums = list(accumulate((len(piece.parts) for piece in pieces), initial=0))
        self.parts_of = [part for piece in pieces for part in piece.parts]
        # A piece of merged commands also keeps the original commands, which may be longer.
        self.memory = chunk.memory + sum(len(command) for _, _, command in self.parts_of)
        self.commands: int = self.sums[-1]

    def __len__(self) -> int:
        return len(self.chunk)

    def covered(self, replies: int) -> int:
        return self.sums[replies]

    def within(self, commands: int) -> int:
        return bisect.bisect_right(self.sums, commands) - 1

    def parts(self, at: int) -> range:
        return range(self.sums[at], self.sums[at + 1])

    def command(self, at: int, part: int) -> bytes:
        return self.parts_of[part][2]

    def __setattr__(self, name: str, value: object) -> None:
        """Forward the outcome to the fence: the chunk that the source waits for."""
        if name in ("answered", "refused", "existed"):
            if self._fence is not None:
                setattr(self._fence, name, value)
        else:
            super().__setattr__(name, value)


def keys_in(held: Sending) -> list[tuple[bytes, ...]]:
    """Return the keys of each piece."""
    chunk = held.chunk
    return keys_of(chunk.chunk if isinstance(chunk, PlainChunk) else chunk)


def units_of(held: Sending, first: int, *, transactions: bool) -> Iterator[range]:
    """Yield the reply indexes of each unit of a chunk.

    Args:
        held: the chunk.
        first: the first reply index, which may be in the middle of a transaction.
        transactions: whether the chunk may contain transactions.
    """
    at, count = first, len(held.chunk.ends)
    if transactions:
        at = _begin_of(held, first)
    while at < count:
        end = at + 1
        if transactions and _is(held, at, b"MULTI"):
            while end < count and not _is(held, end - 1, b"EXEC", b"DISCARD"):
                end += 1
        yield range(at, end)
        at = end


def transaction_at(held: Sending, reply: int) -> range | None:
    """Return the reply indexes of a transaction, given one of them; None outside a transaction."""
    begin = _begin_of(held, reply)
    if not _is(held, begin, b"MULTI"):
        return None
    return next(units_of(held, begin, transactions=True))


def _begin_of(held: Sending, reply: int) -> int:
    """Return the reply index of MULTI, given a reply index in the transaction.

    Outside a transaction, return the given index.
    """
    at = reply
    while not _is(held, at, b"MULTI"):
        if at == 0 or _is(held, at - 1, b"EXEC", b"DISCARD"):
            return reply
        at -= 1
    return at


def _is(held: Sending, reply: int, *names: bytes) -> bool:
    chunk = held.chunk
    start = chunk.ends[reply - 1] if reply else 0
    if chunk.ends[reply] - start > 20:
        return False
    data = bytes(chunk.piece(start, chunk.ends[reply])).upper()
    return any(data == b"*1\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names)


def unit_of(
    held: Sending,
    replies: range,
    sent: int,
    lane: int,
    node: tuple[str, int] | None = None,
) -> Unit:
    """Return the Unit for some replies of a chunk.

    Args:
        held: the chunk.
        replies: the reply indexes of the unit.
        sent: number of the chunk's replies whose commands were sent whole; the replies may have
            been received.
        lane, node: as in Unit.
    """
    chunk = held.chunk
    pieces = [_piece(held, at) for at in replies]
    first, last = chunk.parts(replies[0]).start, chunk.parts(replies[-1]).stop
    counted = max(held.covered_rows(first), held.covered_rows(chunk.covered(sent)))
    went = chunk.covered(min(max(sent, replies[0]), replies[-1] + 1)) - first
    rows = max(held.covered_rows(last) - counted, 0)
    fence = fence_in(held, replies)
    return Unit(pieces[0].parts[0][1], pieces, rows, went, fence, lane, node)


def apart(unit: Unit) -> list[Unit]:
    """Split a unit whose commands were merged over several keys into one unit per command."""
    data, parts = unit.pieces[0]
    if len(parts) == 1 or data.split(b"\r\n", 3)[2].upper() not in OVER_KEYS:
        return [unit]
    found = [
        Unit(place, [Piece(command, [(row, place, command)])], lane=unit.lane, node=unit.node)
        for row, place, command in parts
    ]
    found[0] = found[0]._replace(rows=unit.rows)
    return found


def is_script(command: bytes) -> bool:
    """Return whether a command runs other commands."""
    return command.split(b"\r\n", 3)[2].upper() in SCRIPTS


def replaces(held: Sending, at: int) -> bool:
    """Return whether a piece replaces or deletes its keys."""
    chunk = held.chunk
    start = chunk.ends[at - 1] if at else 0
    data = bytes(chunk.piece(start, chunk.ends[at]))
    name = data.split(b"\r\n", 3)[2].upper()
    return name in REPLACING or (name == b"SET" and data.startswith(b"*3\r\n"))


def fence_in(held: Sending, replies: range) -> Chunk | None:
    """Return the value of ``Unit.fence`` for the unit with these replies."""
    chunk = held.chunk
    if not chunk.fence or replies[-1] != len(chunk.ends) - 1:
        return None
    return chunk._fence if isinstance(chunk, PlainChunk) else chunk


def _piece(held: Sending, at: int) -> Piece:
    """Return the piece of a chunk that a reply answers."""
    chunk, found = held.chunk, []
    start, end = chunk.ends[at - 1] if at else 0, chunk.ends[at]
    while start < end:
        found.append(chunk.piece(start, end))
        start += len(found[-1])
    data = b"".join(found)
    parts = []
    for part in chunk.parts(at):
        command = held.command(at, part)
        # If the piece is this one command, use one object for both.
        command = data if command == data else command
        parts.append((held.row(part), held.source_index(part), command))
    return Piece(data, parts)
