"""What to resend: requests, grouped into units; and what error replies say about it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..resp.buffer import Chunk
from ..resp.commands import Command, properties_of
from ..resp.slots import keys_of
from ..resp.split import CommandSplitter
from .sending import Position, Sending

__all__ = [
    "ABORTED", "ASKING", "TAKEN_OVER", "NotMarked", "NotRun", "PendingCommand", "Refused",
    "Request", "ResendUnit", "Resent", "TakenOver", "is_script", "keys_in", "may_pass",
    "may_replace_hash", "remedy_for", "replaces", "split_by_key", "transaction_at", "unit_of",
    "units_of",
]  # fmt: skip

# Error prefix of a script that ran no command: another loader has taken the checkpoint over.
TAKEN_OVER = b"TAKENOVER "
# Error prefix of a refused EXEC. Source: execCommandAbort in multi.c of Redis.
ABORTED = b"EXECABORT Transaction discarded because of: "
# Error codes about the server's state, not about a command, and what to do.
# Source: the shared replies in server.c of Redis and Valkey.
REMEDIES = {
    "OOM": "raise its maxmemory, or free memory",
    "READONLY": "it is a replica now: pass its primary",
    "MISCONF": "it can't save its data: check its log and its disk",
    "NOREPLICAS": "connect its replicas, or lower its min-replicas-to-write",
    "MASTERDOWN": "restore its link to its primary",
    "CLUSTERDOWN": "check it with redis-cli --cluster check",
    "LOADING": "wait until it has loaded its data",
    "BUSY": "wait until its script has ended",
    "NOAUTH": "check the user and the password",
}

# Lets the next command use a slot that the node is importing.
ASKING = b"*1\r\n$6\r\nASKING\r\n"


class Refused(OSError):
    """The server refused one of fastresp's own commands; a retry over a new connection may help."""


class NotRun(Exception):
    """The server refused a command or a transaction, and ran none of it; a retry won't help."""


class TakenOver(NotRun):
    """The server refused a transaction because another loader owns the checkpoint."""


class NotMarked(Exception):
    """The commands of a transaction ran, but its marker was not set."""


def remedy_for(message: bytes) -> str:
    """Return advice on an error reply; "" if its code is not one of REMEDIES."""
    code = message.removeprefix(ABORTED).partition(b" ")[0]
    return REMEDIES.get(code.decode(errors="replace"), "")


def may_pass(message: bytes) -> bool:
    """Return whether the server refused a command temporarily, and did not run it.

    NOAUTH is excluded, since only the user can resolve it.
    """
    return bool(remedy_for(message)) and not message.startswith(b"NOAUTH")


class PendingCommand(NamedTuple):
    """A command that was not acknowledged, and may be resent.

    Attributes:
        row: the row of the source.
        place: the index among the commands of the source.
        command: the bytes, as first sent.
        tries: how many times the command was sent.
    """

    row: int
    place: int
    command: bytes
    tries: int = 0


class Request(NamedTuple):
    """Bytes that get one reply: a command, merged commands, or fastresp's own command.

    Attributes:
        data: the bytes.
        commands: the user's commands in the request; empty for fastresp's own command.
    """

    data: bytes
    commands: Sequence[PendingCommand] = ()


class ResendUnit(NamedTuple):
    """Requests that are resent together: one request, or the requests of a transaction.

    Attributes:
        place: index of the unit's first command among all commands of the source.
        rows: number of source rows that the unit covers and that were not counted as sent.
        sent: number of commands that were sent and may have run.
        fence: the chunk that ends with this unit, if the source waits for the unit's reply.
        lane: the lane that the unit was routed to.
        node: the node that ASK named, which imports the slot; None for the slot's owner.
        later: whether the node refused the unit temporarily, and may accept it at any moment.
    """

    place: int
    requests: list[Request]
    rows: int = 0
    sent: int = 0
    fence: Chunk | None = None
    lane: int = -1
    node: tuple[str, int] | None = None
    later: bool = False

    @property
    def commands(self) -> Iterator[PendingCommand]:
        return (command for request in self.requests for command in request.commands)

    @property
    def command_count(self) -> int:
        return sum(len(request.commands) for request in self.requests)

    @property
    def first_row(self) -> int:
        return next(self.commands).row


class ResendChunk:
    """Requests, with the attributes of a Chunk."""

    first_command = 0
    lane = -1
    fence = False

    def __init__(self, requests: Sequence[Request]) -> None:
        chunk = CommandSplitter().feed(b"".join(request.data for request in requests))
        assert chunk is not None
        self.chunk: Chunk = chunk
        self.requests = requests
        self.ends = chunk.ends
        self.piece = chunk.piece
        self.sums = list(accumulate((len(each.commands) for each in requests), initial=0))
        self.pending = [command for each in requests for command in each.commands]
        # A request of merged commands also keeps the original commands, which may be longer.
        self.memory = chunk.memory + sum(len(each.command) for each in self.pending)
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
        return self.pending[part].command


class Resent(Sending):
    """A chunk of requests to resend; it does not advance the position in the source.

    Args:
        requests: commands to resend, and fastresp's own commands; each gets a reply.
        last, start: as for Sending.
        rows: for each command, how many rows of this chunk, up to and including the command's row,
            had not been counted as sent; empty if all rows had been counted.
        fence: the source's chunk that ended with these requests, if the source waits for their
            replies.

    Attributes:
        pending: the commands to resend.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        last: Sending | None,
        start: Position | None = None,
        rows: Sequence[int] = (),
        fence: Chunk | None = None,
    ) -> None:
        self._covered = rows
        self.requests = requests
        chunk = ResendChunk(requests)
        self.pending = chunk.pending
        super().__init__(chunk, last, start)  # type: ignore[arg-type]
        self.fence = fence

    @classmethod
    def of_units(cls, units: Sequence[ResendUnit], last: Sending | None, start: Position) -> Resent:
        """Return a chunk of units. ASKING precedes each unit for a node that imports a slot."""
        requests, rows, covered = [], [], 0
        for unit in units:
            if unit.node is not None:
                requests.append(Request(ASKING))
            requests += unit.requests
            covered += unit.rows
            rows += [covered] * unit.command_count
        return cls(requests, last, start, rows, units[-1].fence)

    @property
    def end(self) -> Position:
        return self.start

    def row(self, index: int) -> int:
        return self.pending[index].row

    def source_index(self, index: int) -> int:
        return self.pending[index].place

    def covered_rows(self, commands: int) -> int:
        return self._covered[commands - 1] if commands and self._covered else 0


def keys_in(held: Sending) -> list[tuple[bytes, ...]]:
    """Return the keys of each request."""
    chunk = held.chunk
    return keys_of(chunk.chunk if isinstance(chunk, ResendChunk) else chunk)


def units_of(held: Sending, first: int, *, transactions: bool) -> Iterator[range]:
    """Yield the reply indexes of each unit of a chunk.

    Args:
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
    if held.size_of(reply) > 20:
        return False
    data = _data(held, reply).upper()
    return any(data == b"*1\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names)


def unit_of(
    held: Sending, replies: range, sent: int, lane: int, node: tuple[str, int] | None = None
) -> ResendUnit:
    """Return the unit of a chunk with these reply indexes.

    ``sent`` is the number of the chunk's replies whose requests were sent; ``lane`` and ``node``
    are as in ResendUnit.
    """
    chunk = held.chunk
    requests = [_request(held, at) for at in replies]
    first, last = chunk.parts(replies[0]).start, chunk.parts(replies[-1]).stop
    counted = max(held.covered_rows(first), held.covered_rows(chunk.covered(sent)))
    went = chunk.covered(min(max(sent, replies[0]), replies[-1] + 1)) - first
    rows = max(held.covered_rows(last) - counted, 0)
    fence = held.fence if replies[-1] == len(chunk.ends) - 1 else None
    return ResendUnit(requests[0].commands[0].place, requests, rows, went, fence, lane, node)


def split_by_key(unit: ResendUnit) -> list[ResendUnit]:
    """Split a merged command with several keys, such as MSET, into the commands merged in it."""
    data, commands = unit.requests[0]
    if len(commands) == 1 or "many" not in _properties(data).flags:
        return [unit]
    found = [
        ResendUnit(each.place, [Request(each.command, [each])], lane=unit.lane, node=unit.node)
        for each in commands
    ]
    found[0] = found[0]._replace(rows=unit.rows)
    return found


def is_script(command: bytes) -> bool:
    """Return whether a command runs other commands."""
    return _properties(command).effect == "script"


def may_replace_hash(command: bytes) -> bool:
    """Return whether a command may have been made from an HSET by ``Merge(exists="replace")``."""
    return _name(command) == b"HIMPORT" or is_script(command)


def replaces(held: Sending, at: int) -> bool:
    """Return whether a request replaces or deletes its keys."""
    data = _data(held, at)
    name = _name(data)
    if name == b"SET":
        return data.startswith(b"*3\r\n")  # without options
    return name != b"MSETEX" and "many" in _properties(data).flags


def _properties(command: bytes) -> Command:
    return properties_of(_name(command))


def _name(command: bytes) -> bytes:
    return command.split(b"\r\n", 3)[2].upper()


def _data(held: Sending, at: int) -> bytes:
    """Return the bytes of a request, which a chunk may store in several pieces."""
    chunk, found = held.chunk, []
    start, end = chunk.ends[at - 1] if at else 0, chunk.ends[at]
    while start < end:
        found.append(chunk.piece(start, end))
        start += len(found[-1])
    return b"".join(found)


def _request(held: Sending, at: int) -> Request:
    """Return the request of a chunk that a reply answers."""
    data, commands = _data(held, at), []
    for part in held.chunk.parts(at):
        command = held.command(at, part)
        # If the request is this one command, use one object for both.
        command = data if command == data else command
        commands.append(PendingCommand(held.row(part), held.source_index(part), command))
    return Request(data, commands)
