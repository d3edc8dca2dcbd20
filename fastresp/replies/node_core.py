"""Connections to cluster nodes, whose replies are put in order with replies of other nodes.

The index of a command is its index among all commands of the source. A window contains the
commands of one connection that are not acknowledged yet.
"""

from __future__ import annotations

import bisect
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ..outcome.errors import CommandError, ProtocolError, TransportError
from ..outcome.report import Report
from ..resp.idempotent import may_ask_again
from ..resp.split import arguments
from ..resp.values import pack
from ..server.failure import asking_refused
from ..server.settings import Server
from ..transports.connection import LostConnection
from ..transports.resend import PendingCommand, Request, Resent
from ..transports.sending import Sending
from ..transports.stream import Wait
from ..transports.window import Window
from .reply_core import FIRST_IN_FLIGHT, ReplyCore, source_index, undecodable
from .unresolved import Unresolved

__all__ = ["NodeCore", "NodeWindow", "RedirectCore", "waits_of"]

# Allows the next command to use a slot that the node is importing.
ASKING = PendingCommand(-1, -1, pack("ASKING"), 0)


class Cluster(Protocol):
    """The attributes and methods of ClusterCore that a NodeCore uses."""

    next: int
    waiting: dict[int, Any]
    keeps_commands: bool
    unresolved: Unresolved[RedirectCore]

    @property
    def report(self) -> Report: ...
    def redirect(self, node: NodeCore, command: PendingCommand, message: str) -> bool: ...
    def new_reader(self) -> Any: ...


class Arrived(NamedTuple):
    """Received replies that wait for earlier replies of other nodes.

    Attributes:
        last: the index of the last reply's command.
        number: the number of replies.
        size: the size of the replies in bytes.
        chunks: the chunks that contain the replies' commands; empty if commands are not kept.
    """

    last: int
    number: int
    size: int
    chunks: Sequence[Sending]


class NodeWindow(Window):
    """A window whose commands can be resent over another connection.

    Attributes:
        unwritten: the number of bytes that are counted as sent, but were not sent.
    """

    unwritten = 0

    def unanswered(self) -> Iterator[PendingCommand]:
        """Yield the unanswered commands; a command that was never sent has 0 ``tries``."""
        for held in self.held:
            sent = held.whole
            first = max(self.acknowledged - held.first_reply, 0)
            for at in range(first, len(held.chunk.ends)):
                index = held.source_index(at)
                if index >= 0:
                    again = isinstance(held, Resent) and held.pending[at].tries
                    tries = int(at < sent or again)
                    yield PendingCommand(held.row(at), index, held.command(at, at), tries)

    def abandon(self) -> None:
        """Count all commands as sent and answered: other connections will resend these commands."""
        for held in self.held:
            rest = held.size - held.at
            self.unwritten += rest
            held.written.append(rest)
        self.acknowledge(self.made)

    @property
    def resent_unsent(self) -> int:
        """The number of commands to resend that were not sent over any connection."""
        chunks = (each for each in self.held if isinstance(each, Resent))
        return sum(is_new(command) for each in chunks for command in each.pending[each.whole :])

    def before(self, index: int) -> int:
        """Return how many commands of this window come before the command with this index."""
        for held in self.held:
            indexes = indexes_of(held, 0, len(held.chunk.ends))
            if indexes[-1] >= index:
                return held.first_reply + bisect.bisect_left(indexes, index)
        return self.made


class NodeCore(ReplyCore):
    """A connection to a cluster node; replies are yielded in the order of the source.

    Received replies that wait for earlier replies of other nodes count as in flight. If many
    replies wait, no more commands are sent; if large replies wait, no more replies are read.

    Attributes:
        address: the node's address in the cluster's topology; None if unknown.
        failed: whether reading has ended: the connection is lost, or a reply can't be decoded.
        waiting_bytes: the number of bytes of received replies that are not yielded yet.
    """

    window: NodeWindow
    address: tuple[str, int] | None = None

    def __init__(self, cluster: Cluster, server: Server, **settings: Any) -> None:
        super().__init__(server, **settings)
        self.window = NodeWindow()
        self._cluster = cluster
        self.reader = self.sink = cluster.new_reader()
        self.failed = False
        self._doubtful: PendingCommand | None = None
        self.waiting_bytes = 0
        self._waiting = 0  # number of received replies that are not yielded yet
        self._arrived: deque[Arrived] = deque()

    @property
    def report(self) -> Report:
        return self._cluster.report

    @property
    def sent_bytes(self) -> int:
        window = self.window
        return window.totals()[2] - window.unwritten + self._own_bytes

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send or receive."""
        return self.failed or self.finished

    @property
    def expects(self) -> bool:
        """Whether this node is waiting for a reply, or for room in the socket's send buffer."""
        assert self.stream is not None
        window = self.window
        if self._all_blocked or self.stream.full or (self._sizes and self._sizes.asking):
            return True
        return window.acknowledged + len(self._blocked) + self.reader.waiting < window.begun

    @property
    def is_full(self) -> bool:
        """Whether replies that wait for earlier replies exceed the limit, so that reading stops."""
        return self.waiting_bytes > self.reply_bytes

    def room(self) -> int:
        window, first = self.window, self._cluster.unresolved.first
        if self._blocked:
            return window.begun
        room = window.acknowledged + max(self._limit - self._waiting, 0)
        if first is not None:
            # A command must not overtake a waiting command.
            room = max(min(room, window.before(first)), window.begun)
        return room

    @property
    def may_send(self) -> bool:
        """Whether there are commands that an open connection could send now."""
        return self.room() > self.window.sent

    def unanswered(self) -> list[PendingCommand]:
        return [*self.window.unanswered()]

    def lost_for_good(self) -> bool:
        """Return whether the unanswered commands can't be resent.

        The reasons: invalid replies, a final error reply, refused commands that wait on this
        connection, or a command that may have run and is not idempotent.
        """
        cause = None if self.stream is None else self.stream.lost
        if isinstance(cause, ProtocolError) or self.last_reply or self._blocked:
            return True
        doubtful = [each for each in self.unanswered() if each.tries]
        allowed = may_ask_again([each.command for each in doubtful])
        if all(allowed):
            return False
        self._doubtful = doubtful[allowed.index(False)]
        return True

    def renew(self) -> None:
        """Close the connection, and forget the commands, so that the caller can connect again."""
        self.detach()
        self.window.abandon()
        self.reader = self.sink = self._cluster.new_reader()
        self.failed = False
        self._limit, self._average = FIRST_IN_FLIGHT, 1.0

    def loss(self) -> TransportError:
        error, doubtful = super().loss(), self._doubtful
        if doubtful is None:
            return error
        name = arguments(doubtful.command)[0].decode(errors="replace")
        return TransportError(
            f"{error.args[0]}; the {name} of row {doubtful.row:,} is not resent, since it or a "
            "later command with the same key may have run",
            error.report,
        )

    def is_next(self, index: int) -> bool:
        """Return whether the first unanswered command has this index."""
        window = self.window
        return window.acknowledged < window.made and self._next_index == index

    @property
    def _next_index(self) -> int:
        return source_index(self.window, self.window.acknowledged)

    def collect(self) -> bool:
        """Store the received replies by index; return whether there were any replies."""
        first, size = self.window.acknowledged, self.received - self._counted
        replies: list[Any] = []
        lost = None
        try:
            replies.extend(self._in_order() if self.resending else self._read())
        except LostConnection as error:
            lost = error
        end = max(self.window.sent - first, 0)
        beyond = replies[end:]
        del replies[end:]
        if replies:
            self._store(first, replies, size)
        self.acknowledge(first + len(replies))
        if beyond:
            self._take_last_reply(beyond[0])
        if lost is not None:
            raise lost
        if self.reader.failure is not None and not self.failed:
            self.failed = True
            index = self._next_index
            self._cluster.waiting[index] = undecodable(index, self.reader.failure)
        return bool(replies)

    def _store(self, first: int, replies: list[Any], size: int) -> None:
        """Store replies by index; ``first`` is the number of earlier replies of the connection."""
        at, last, chunks = 0, -1, []
        while at < len(replies):
            held, start = self.window.locate(first + at)
            stop = min(start + len(replies) - at, len(held.chunk.ends))
            indexes = indexes_of(held, start, stop)
            some = replies[at : at + stop - start]
            if self._cluster.unresolved.first is not None or CommandError in set(map(type, some)):
                self._store_with_errors(first + at, indexes, some)
            else:
                self._cluster.waiting.update(zip(indexes, some, strict=True))
            at += len(some)
            last = indexes[-1]
            if self._cluster.keeps_commands:
                chunks.append(held)
        self.keep(Arrived(last, len(replies), size, chunks))

    def keep(self, arrived: Arrived) -> None:
        """Count replies as in flight until all of them are yielded."""
        self._arrived.append(arrived)
        self._waiting += arrived.number
        self.waiting_bytes += arrived.size

    def command_at(self, index: int) -> bytes | None:
        """Return the command at an index, if this node keeps the command; otherwise None."""
        for arrived in self._arrived:
            for held in arrived.chunks:
                for at, found in enumerate(indexes_of(held, 0, len(held.chunk.ends))):
                    if found == index:
                        return held.command(at, at)
        return None

    def _store_with_errors(self, first: int, indexes: Sequence[int], replies: list[Any]) -> None:
        for number, (index, reply) in enumerate(zip(indexes, replies, strict=True), first):
            if type(reply) is CommandError:
                row, command = self.window.command(number)
                refused = PendingCommand(row, index, command, 0)
                if self._cluster.redirect(self, refused, reply.text):
                    continue
                reply = self._located(number, reply)
            elif (waiting := self._cluster.unresolved.first) is not None and index > waiting:
                row, command = self.window.command(number)
                self._cluster.unresolved.note_run(PendingCommand(row, index, command, 1))
            self._cluster.waiting[index] = reply

    def release(self, index: int) -> None:
        """No longer count the replies before an index as in flight: they have been yielded."""
        arrived = self._arrived
        while arrived and arrived[0].last < index:
            gone = arrived.popleft()
            self._waiting -= gone.number
            self.waiting_bytes -= gone.size


class RedirectCore(NodeCore):
    """A separate connection to a node, so that redirected commands don't wait for other commands.

    Attributes:
        expected: the slots of unanswered commands, by index.
    """

    def __init__(self, cluster: Cluster, server: Server, **settings: Any) -> None:
        super().__init__(cluster, server, **settings)
        self.expected: dict[int, int] = {}
        self._queue: list[PendingCommand] = []

    @property
    def waiting(self) -> int:
        """The number of commands not sent over any connection yet."""
        return self.window.resent_unsent + sum(map(is_new, self._queue))

    @property
    def is_full(self) -> bool:
        return super().is_full and self._cluster.next not in self.expected

    def is_next(self, index: int) -> bool:
        return index in self.expected

    def room(self) -> int:
        return self.window.begun if self._blocked else self.window.acknowledged + self._limit

    def put(self, command: PendingCommand, slot: int, *, asking: bool) -> None:
        """Queue a command until ``flush()`` is called."""
        self._queue += [ASKING, command] if asking else [command]
        self.expected[command.place] = slot

    def unanswered(self) -> list[PendingCommand]:
        return super().unanswered() + [each for each in self._queue if each.place >= 0]

    def renew(self) -> None:
        super().renew()
        self.expected, self._queue = {}, []

    def flush(self) -> None:
        """Let the next ``step()`` send the queued commands."""
        queue, self._queue = self._queue, []
        if queue:
            if self.finished:
                self.restart_timeout()
            requests = [Request(each.command, [each]) for each in queue]
            self.window.add_own(Resent(requests, self.window.last))

    def _store(self, first: int, replies: list[Any], size: int) -> None:
        last, chunks = -1, []
        for index, reply in enumerate(replies, first):
            held, at = self.window.locate(index)
            assert isinstance(held, Resent)
            command = held.pending[at]
            if command.place < 0:
                if type(reply) is CommandError:
                    raise TransportError(asking_refused(reply.text), self._cluster.report)
                continue  # the reply to ASKING
            slot = self.expected.pop(command.place)
            if type(reply) is CommandError:
                if self._cluster.redirect(self, command, reply.text):
                    continue
                reply = self._located(index, reply)
            else:
                self._cluster.unresolved.note_run(command)
            self._cluster.unresolved.resolve(command.place, slot)
            self._cluster.waiting[command.place] = reply
            last = max(last, command.place)
            if self._cluster.keeps_commands and held not in chunks:
                chunks.append(held)
        self.keep(Arrived(last, len(replies), size, chunks))


def is_new(command: PendingCommand) -> bool:
    """Return whether a command was never sent, and is not ASKING."""
    return command.place >= 0 and not command.tries


def indexes_of(held: Sending, start: int, stop: int) -> Sequence[int]:
    """Return the indexes of the commands ``start`` to ``stop - 1`` of a chunk."""
    if isinstance(held, Resent):
        return [each.place for each in held.pending[start:stop]]
    indexes: array[int] | None = held.chunk.places
    if indexes is None:
        first = held.source_index(start)
        return range(first, first + stop - start)
    return indexes[start:stop]


def waits_of(nodes: Iterable[NodeCore]) -> dict[NodeCore, Wait]:
    """Return what each waiting node waits for; restart the timeout of the other nodes."""
    waits = {}
    for node in nodes:
        if node.stream is None or node.idle or node.is_full or not node.expects:
            node.restart_timeout()
        else:
            waits[node] = node.wait()
    return waits
