"""The connection of a list buffer: send commands and wait for replies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any

from ..encode.writer import Writer
from ..outcome.errors import CommandError, ProtocolError, TransportError
from ..replies.node_core import NodeWindow
from ..replies.reply_core import ReplyCore
from ..replies.unresolved import Refusal, refusal_of
from ..resp.buffer import Chunk
from ..resp.grammar import BULK_BYTES
from ..server.answers import Answers
from ..server.settings import Server
from ..transports.connection import LostConnection
from ..transports.driver import Pull, Steps, sleeping
from ..transports.ledger import MAX_S
from ..transports.socket import connecting
from .settings import Arguments, Settings

__all__ = ["ListConnection", "SlotMoved", "SlotOwner"]


class SlotMoved(CommandError):
    """A cluster node did not run a command: the slot is on another node, moving, or unserved.

    After ASK, the call waits until the slot has moved: only commands with one key could be resent
    immediately.
    """

    @property
    def refusal(self) -> Refusal:
        refusal = refusal_of(self.text)
        assert refusal is not None
        return refusal


class SlotOwner:
    """Opens connections to the server of a list, or to the owner of the list's slot.

    A ClusterView is not needed: the checks of each new connection also return the topology.

    Attributes:
        server: the server of the last connection.
        clustered: whether the server is known to be a cluster node.
    """

    clustered = False

    def __init__(self, server: Server, settings: Settings) -> None:
        self.server = server = server.requiring(slot=settings.slot)
        self._timeout = settings.timeout
        self._seed = server
        # Nodes that may know the owner of the slot. They are asked in this order until one answers.
        self._known = [server]

    def connecting(self) -> Steps[tuple[Any, Answers]]:
        """Open a connection to the owner of the slot; return it and the answers to its checks."""
        end = time.monotonic() + (self._timeout or MAX_S)
        failed: TransportError | None = None
        for server in tuple(self._known):
            try:
                [connection], answers = yield from connecting(server, self._timeout)
            except TransportError as error:
                failed = failed or error
                self.suspect()
                if time.monotonic() > end:
                    break
                continue
            self._found(answers)
            return connection, answers
        assert failed is not None
        raise failed

    def suspect(self) -> None:
        """Move the first known node to the end of the list, because it could not be used."""
        first, *others = self._known
        self._known = [*others, first]

    def _found(self, answers: Answers) -> None:
        """Remember the nodes of the cluster, the owner of the slot first."""
        topology, slot = answers.topology, self.server.requirements.slot
        if topology is None or slot is None:
            return
        self.clustered = True
        nodes = self.server.nodes_of(topology.nodes, 1)
        self.server = nodes[topology.slots[slot]]
        others = (node for node in nodes if node is not self.server)
        replicas = self.server.nodes_of(topology.replicas, 1)
        self._known = [self.server, *others, *replicas, self._seed]


# Maximum reply size per requested item, in addition to BULK_BYTES. A lower limit would lose large
# items, and would not stop a hostile server, which can send any number of replies.
ITEM_BYTES = 1 << 20


class ListConnection:
    """Send commands and receive replies over one connection, which may be closed and replaced.

    Args:
        closed: called each time after the connection is closed.

    Attributes:
        in_cluster: whether the server is a node of a cluster.
        max_bytes: the maximum size of a reply.
        max_bulk_bytes: the largest argument that the server accepts, in bytes.
        is_waiting: whether the current call waits for replies or for the source, or pauses. If so,
            after an exception, later replies can still be matched with their requests.
    """

    def __init__(self, settings: Settings, closed: Callable[[], object]) -> None:
        self.max_bytes = BULK_BYTES + settings.batch * ITEM_BYTES
        self.is_waiting = self.in_cluster = False
        self.max_bulk_bytes: int | None = None
        self._timeout = settings.timeout
        self._closed = closed
        self._core: ReplyCore | None = None
        self._writer = Writer(chunk_bytes=1 << 16)
        self._replies: deque[Any] = deque()  # received, not yet used

    @property
    def is_open(self) -> bool:
        return self._core is not None

    @property
    def core(self) -> ReplyCore:
        assert self._core is not None
        return self._core

    def raised(self, error: BaseException) -> bool:
        """Return whether an exception came from this connection, or from opening it."""
        return self._core is None or self._core.raised(error)

    @property
    def lost(self) -> bool:
        """Whether the connection is lost, so that no more replies can arrive."""
        stream = self.core.stream
        return stream is None or stream.lost is not None

    @property
    def cause(self) -> str:
        """Why the connection was lost, for messages."""
        core = self.core
        cause = None if core.stream is None else core.stream.lost
        return f"lost the connection to {core.server}: {cause}"

    def commands_in_doubt(self) -> list[bytes] | None:
        """Return the commands that were sent but not answered before the connection was lost.

        Return None if the server closed the connection because of a command, or sent invalid
        replies.
        """
        core = self.core
        window, stream = core.window, core.stream
        assert isinstance(window, NodeWindow)
        if core.last_reply or (stream is not None and isinstance(stream.lost, ProtocolError)):
            return None
        return [each.command for each in window.unanswered() if each.tries]

    def attach(self, connection: Any, answers: Answers, server: Server) -> None:
        """Use a connected redis-py connection to a server."""
        core = ReplyCore(
            server, on_error="collect", timeout=self._timeout, max_reply_bytes=self.max_bytes
        )
        core.window = NodeWindow()
        core.attach(connection)
        self._writer = Writer(chunk_bytes=1 << 16)
        self._writer.max_bulk_bytes = self.max_bulk_bytes = answers.max_bulk_bytes
        self._replies.clear()
        self.in_cluster = answers.topology is not None
        self._core = core

    def close(self) -> None:
        """Close the connection, if it is open; replies in flight are lost."""
        core = self._core
        self.leave()
        if core is not None:
            core.detach()
            self._closed()

    def leave(self) -> None:
        """Forget the connection without closing it."""
        self._core = None

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Queue complete commands; ``until()`` sends them."""
        for chunk in chunks:
            self.core.add(chunk)

    def until(self, reached: Callable[[], bool]) -> Steps[None]:
        """Send and receive until ``reached()``, which is called after each step, returns True.

        Raises:
            LostConnection: the connection was lost first.
            TransportTimeout: no progress for ``timeout`` seconds.
        """
        core = self.core
        core.restart_timeout()
        while True:
            lost = None
            try:
                core.step()
            except LostConnection as error:
                lost = error
            if reached():
                return
            if lost is not None:
                raise lost
            assert core.stream is not None
            self.is_waiting = True
            yield [(core.stream, core.wait())]
            self.is_waiting = False
            if reached():
                return  # replies arrived during the wait

    def pulling(self, function: Callable[[], Any]) -> Steps[Any]:
        """Call a function that runs the user's code; its exceptions don't close the connection."""
        self.is_waiting = True
        answer = yield Pull(function)
        self.is_waiting = False
        return answer

    def pausing(self, seconds: float) -> Steps[None]:
        self.is_waiting = True
        yield from sleeping(seconds)
        self.is_waiting = False

    def exchanging(self, *commands: Arguments, errors: bool = False) -> Steps[list[Any]]:
        """Send commands, and return their replies.

        Raises:
            CommandError: a reply is an error. If ``errors`` is True, errors are returned instead.
            SlotMoved: a reply redirects the commands; none of them was run.
        """
        try:
            self.add(self.encoded(commands))
            replies = yield from self.receiving(len(commands))
        except (LostConnection, TransportError):
            raise
        except BaseException:
            # Otherwise, replies that arrive later would be matched with later commands.
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, CommandError) and not (errors and type(reply) is CommandError):
                raise reply
        return replies

    def encoded(self, commands: Iterable[Arguments]) -> Iterator[Chunk]:
        """Yield commands as chunks, for ``add()``."""
        source = iter(commands)
        more = True
        while more:
            more = self._writer.fill(source)
            chunk = self._writer.take()
            if chunk is not None:
                yield chunk

    def receiving(self, count: int) -> Steps[list[Any]]:
        """Wait for this many replies, and return them."""
        replies = self._replies

        def reached() -> bool:
            replies.extend(self.take())
            return len(replies) >= count

        if not reached():
            yield from self.until(reached)
        return [replies.popleft() for _ in range(count)]

    def take(self) -> list[Any]:
        """Return the replies that have arrived, including errors."""
        replies = self.core.take()
        if not self.in_cluster:
            return replies
        return [self.checked(each) if type(each) is CommandError else each for each in replies]

    def checked(self, error: CommandError) -> CommandError:
        """Return an error reply, converted to a SlotMoved if it is a redirect."""
        moved = self.in_cluster and refusal_of(error.text) is not None
        return SlotMoved(error.text) if moved else error

    def expect(self, kind: type[Any] | UnionType, question: str, reply: Any) -> None:
        """Give up the connection unless a reply has the expected type."""
        if not isinstance(reply, kind):
            self.core.reject_reply(question, reply)
