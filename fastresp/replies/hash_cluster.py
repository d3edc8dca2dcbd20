"""Fetch fields of hashes from all nodes of a cluster, as rows in the order of the keys."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ..outcome.errors import CommandError, ProtocolError
from ..resp.read import RawReplies
from ..resp.split import arguments
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..transports.driver import Emit, Step
from .cluster_core import ClusterCore
from .hash_fields import HashFields, advising
from .node_core import NodeCore
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore

__all__ = ["HashCluster"]


class HashCluster(ClusterCore):
    """Collects the HMGET replies of all nodes as columns.

    Replies are put in order as bytes, and then parsed.

    Args:
        core, others: as for ClusterCore.
        wanted: the fields to read.
        columns: collects the replies.
    """

    keeps_commands = True

    def __init__(
        self,
        core: ReplyCore,
        *others: Any,
        wanted: HashFields,
        columns: ReplyColumns,
        follows: bool,
    ) -> None:
        self._wanted = wanted
        self._columns = columns
        self._nothing = b"*%d\r\n%b" % (len(wanted.names), b"$-1\r\n" * len(wanted.names))
        super().__init__(core, *others, follows=follows)
        self._raising = False  # giving() raises errors

    def _node(self, kind: type[NodeCore], server: Server, address: tuple[str, int] | None) -> Any:
        node = super()._node(kind, server, address)
        node.reader = node.sink = RawReplies(max_reply_bytes=self._settings["max_reply_bytes"])
        return node

    def reading(self, chunks: Chunks) -> Generator[Step | Emit, Any, None]:
        """Send the keys, and yield batches of rows.

        Raises:
            LostConnection, TransportTimeout: as ``exchange()``.
            Exception: the source's exception, after the rows of earlier keys.
        """
        failure = yield from self.exchange(chunks)
        if failure is not None:
            with advising():
                raise failure
        for batch in self._wanted.taken(self._columns, rest=True):
            yield Emit([batch])

    def giving(self) -> Iterator[Emit]:
        replies = []
        for reply in self.replies():
            if type(reply) is CommandError:
                assert reply.arguments is not None
                assert reply.index is not None
                if not self._wanted.ignores(reply.text):
                    raise self._wanted.error(reply.text, reply.arguments[1], reply.index)
                reply = self._nothing
            replies.append(reply)
        first = self.next - len(replies)
        columns = self._columns
        try:
            columns.feed(b"".join(replies))
        except ProtocolError:
            # The number of parsed replies is the source index of the invalid reply.
            node, _ = self.sender(columns.replies)
            self._lose(node)
            node.misunderstood("HMGET", replies[columns.replies - first])
        if columns.invalid is not None:
            row, column = columns.invalid
            raise self._wanted.not_text(arguments(self.sender(row)[1])[1], column)
        for batch in self._wanted.taken(columns):
            yield Emit([batch])
            # The time until the caller asks for more does not count towards the timeout.
            self.restart_timeout()
