"""Receive the keys of a server, or of a cluster's nodes, as a replica does."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, suppress

from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, joined_names, message_of
from ...replies.iter_replies import iter_replies
from ...replies.scan import slots_on
from ...server.cluster import Topology
from ...server.cluster_view import Address
from ...server.preflight import Requirements
from ...server.settings import Server, ServerLike
from ...server.threads import in_parallel
from ...sources.entries import Entries, EntryRow
from ...sources.files.rdb import TYPES, RdbReader
from ...sources.replica_stream import ReplicaStream
from .server_entries import databases_of, names_of
from .snapshot_entries import rows_of

__all__ = ["ReplicaEntries"]


class ReplicaEntries(Entries):
    """The keys of a server's database as they were when the server began its snapshot.

    In a cluster, all primaries begin their snapshots concurrently, but not at the same moment.

    Args:
        server: the server.
        match: the pattern of the keys; None for all keys.
        type: the type of the keys, from TYPES; None for any type.
        timeout: seconds without data after which to give up; None to wait forever.
        follow: whether to keep the connection open for the commands after the snapshot.
        db: the database; None for the database of the server's URL.

    Attributes:
        database: the database of the first command after the snapshot; -1 if unknown.
        stream: the connection; the caller must close it if ``follow`` is set.

    Raises:
        ValueError: the type is unknown.
    """

    def __init__(
        self,
        server: ServerLike,
        match: str | None,
        type: str | None,  # noqa: A002
        timeout: float | None,
        follow: bool = False,
        db: int | None = None,
    ) -> None:
        super().__init__()
        if type is not None and type not in TYPES:
            options = Hint("type"), " must be one of ", joined_names(TYPES), " with "
            raise ValueError(Message(*options, Hint("from_replica", True), f", not {type!r}"))
        self.server = Server(server, Requirements(reading=True, nodes=True)).in_database(db)
        self._match = match
        self._type = type
        self._timeout = timeout
        self._follow = follow
        self.database = -1
        self.stream = ReplicaStream(self.server, timeout, follow=follow)
        self._streams = [self.stream]
        self._owners: list[Address | None] | None = None  # of each slot in a cluster

    def __repr__(self) -> str:
        return f"<snapshot of {self.server}>"

    def open(self) -> None:
        """Check that the server can be used, and count its keys.

        Raises:
            SourceError: the server can't be used; or ``follow`` is set, and it is a cluster.
        """
        try:
            answers = self.server.ask(self._timeout)
            self.valkey, self.databases = answers.valkey, databases_of(self.server, answers)
            if answers.topology is not None:
                self._open_cluster(answers.topology)
            elif self._follow:
                self._check_info()
            if self._match is None and self._type is None and not answers.cluster:
                with suppress(CommandError):  # the user lacks permission
                    [self.rows] = iter_replies(
                        [("DBSIZE",)], server=self.server.any_node(), timeout=self._timeout
                    )
        except TransportError as error:
            raise self._failed(error) from error

    def names(self) -> frozenset[str]:
        """Return strings that identify the server; see ``names_of()``.

        Raises:
            SourceError: the server can't be used.
        """
        try:
            return names_of(self.server, self.server.ask(self._timeout))
        except TransportError as error:
            raise self._failed(error) from error

    def _open_cluster(self, topology: Topology) -> None:
        if self._follow:
            cause = f"{self.server} is a node of a cluster, which can't be followed; leave out "
            advice = ", and repeat the copy with ", Hint("changed", True), " without writers"
            raise SourceError(Message(cause, Hint("follow"), *advice))
        nodes = self.server.nodes_of(topology.nodes, 1)
        self._streams = [ReplicaStream(node, self._timeout) for node in nodes]
        self._owners = owners_of(topology)

    def _check_slots(self) -> None:
        """Check that the keys of each slot are in exactly one of a cluster's snapshots.

        Raises:
            SourceError: slots have moved since ``open()``, or are moving.
        """
        nodes = [stream.server for stream in self._streams]
        try:
            topology = self.server.ask(self._timeout).topology
            with ExitStack() as stack:
                connections = self.server.open_nodes(nodes, self._timeout)
                for connection in connections:
                    stack.callback(connection.disconnect)
                held = [slots_on(*each) for each in zip(nodes, connections, strict=True)]
        except TransportError as error:
            raise self._failed(error) from error
        moving = any(each is not None and (each.importing or each.migrating) for each in held)
        if moving or topology is None or owners_of(topology) != self._owners:
            text = f"slots of the cluster at {self.server} moved while its nodes began their "
            advice = "snapshots, so keys may be missing; copy again when it is stable, or omit "
            raise SourceError(Message(text, advice, Hint("from_replica")))

    def _check_info(self) -> None:
        """Check that the user has permission for INFO, which returns the source's offset."""
        try:
            server = self.server.any_node()
            [*iter_replies([("INFO", "replication")], server=server, timeout=self._timeout)]
        except CommandError as error:
            advice = "to follow, allow it with ACL SETUSER ... +info"
            raise SourceError(f"{self.server}: {error.text} ({advice})") from error

    def _read(self) -> Generator[list[EntryRow], None, None]:
        in_parallel(self._streams, ReplicaStream.open)
        # A reader waits for the start of its snapshot, so all snapshots have begun.
        readers = [self._reader(stream) for stream in self._streams]
        if self._owners is not None:
            self._check_slots()
        for reader in readers:
            yield from rows_of(reader, self.server.database, self.restorer)
        with suppress(ValueError):
            self.database = int(readers[0].aux.get(b"repl-stream-db", b"-1"))

    def _reader(self, stream: ReplicaStream) -> RdbReader:
        return RdbReader(
            stream.read,
            name=f"snapshot of {stream.server}",
            match=self._match,
            type=self._type,
            database=self.server.database,
        )

    def _failed(self, error: TransportError) -> SourceError:
        return SourceError(f"can't read the source at {self.server}: {message_of(error)}")

    def close(self) -> None:
        """Stop reading; close the connections, unless ``follow`` is set."""
        if not self._follow:
            for stream in self._streams:
                stream.close()
        super().close()


def owners_of(topology: Topology) -> list[Address | None]:
    """Return the owner of each slot; None if a slot has no owner."""
    return [topology.nodes[each] if each >= 0 else None for each in topology.slots]
