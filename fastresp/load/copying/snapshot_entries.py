"""The keys of snapshots as the source of a copy: RDB files, or received as a replica does."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeGuard

from ...encode.payload.restorer import Restorer
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, joined_names
from ...outcome.report import counted
from ...replies.scan import slots_on
from ...server.answers import Answers
from ...server.cluster import Topology
from ...server.cluster_view import Address
from ...server.settings import ServerLike
from ...server.threads import in_parallel
from ...sources.files.paths import files_of, names_snapshot
from ...sources.files.rdb import TYPES, RdbReader
from ...sources.files.snapshots import opened
from ...sources.replica_stream import ReplicaStream
from ...sources.source import Entries, EntryRow
from .options import CopyOptions
from .server_entries import LiveEntries, names_of

__all__ = ["ReplicaEntries", "SnapshotEntries", "is_snapshot"]


def is_snapshot(source: object) -> TypeGuard[str]:
    """Return whether the source of a copy is the path of an RDB file, not the URL of a server."""
    return isinstance(source, str) and (names_snapshot(source) or os.path.exists(source))


def rows_of(
    reader: RdbReader, database: int, restorer: Restorer
) -> Generator[list[EntryRow], None, None]:
    """Yield the rows of a snapshot; then log what is in the snapshot but is not copied."""
    while (batch := reader.batch()) is not None:
        yield restorer.stored_rows(batch.values, batch.expires, batch.keys)
    log = logging.getLogger("fastresp")
    if reader.other_databases:
        keys = counted(reader.other_databases, "key")
        advice = "to copy another database, pass db=N (--db N)"
        text = "%s: skipped %s of databases other than %d; %s"
        log.warning(text, reader.name, keys, database, advice)
    if reader.functions:
        count = counted(len(reader.functions), "function library", "function libraries")
        log.warning("%s: %s not copied; load them with FUNCTION LOAD", reader.name, count)


def check_type(type_: str | None, *where: str | Hint) -> None:
    """Refuse a type of keys that the reader of snapshots doesn't know."""
    if type_ is not None and type_ not in TYPES:
        names = f" must be one of {joined_names(TYPES)} "
        raise ValueError(Message(Hint("type"), names, *where, f", not {type_!r}"))


class SnapshotEntries(Entries):
    """The keys of a database in RDB files.

    Args:
        path: the path or the URL of a file; or a pattern that matches several files, such as the
            files of all nodes of a cluster.
        options: the options of the copy.
    """

    def __init__(self, path: str | os.PathLike[str], options: CopyOptions) -> None:
        super().__init__()
        check_type(options.type, "for a file")
        self._path = path
        self._database = options.db or 0
        self._new_reader = partial(
            RdbReader, match=options.match, type=options.type, database=self._database
        )
        self._stack = ExitStack()
        self._files: deque[str] = deque()
        self._reader: RdbReader

    def __repr__(self) -> str:
        return f"<snapshot {self._path}>"

    def open(self) -> None:
        """Open the first file, and read its version."""
        self._files = deque(files_of(self._path))
        self._reader = self._opened(self._files.popleft())
        self.valkey = self._reader.valkey

    def _opened(self, path: str) -> RdbReader:
        self._stack.close()  # the previous file
        data = self._stack.enter_context(opened(path))
        return self._new_reader(data.read, name=data.name)

    def _read(self) -> Generator[list[EntryRow], None, None]:
        reader = self._reader
        while True:
            yield from rows_of(reader, self._database, self.restorer)
            if not self._files:
                return
            reader = self._opened(self._files.popleft())
            if reader.valkey != self.valkey:
                raise SourceError(
                    f"{reader.name} is a file of {'Valkey' if reader.valkey else 'Redis'}, but the "
                    "files before it are not; copy them one by one"
                )

    def close(self) -> None:
        """Stop reading, and close the file."""
        super().close()
        self._stack.close()


class ReplicaEntries(LiveEntries):
    """The keys of a server's database as they were when the server began its snapshot.

    In a cluster, all primaries begin their snapshots concurrently, but not at the same moment.

    Args:
        server: the server.
        options: the options of the copy; ``timeout`` is the number of seconds without data after
            which to give up. With ``follow``, the connection stays open for the commands after the
            snapshot.

    Attributes:
        database: the database of the first command after the snapshot; -1 if unknown.
        stream: the connection; the caller must close it if ``follow`` is set.
    """

    def __init__(self, server: ServerLike, options: CopyOptions) -> None:
        check_type(options.type, "with ", Hint("from_replica", True))
        super().__init__(server, options)
        self._follow = options.follow
        self.database = -1
        self.stream = ReplicaStream(self.server, self.timeout, follow=self._follow)
        self._streams = [self.stream]
        self._owners: list[Address | None] | None = None  # of each slot in a cluster
        self._new_reader = partial(
            RdbReader, match=self.match, type=self.type, database=self.server.database
        )

    def __repr__(self) -> str:
        return f"<snapshot of {self.server}>"

    def _open(self, answers: Answers) -> None:
        super()._open(answers)
        if answers.topology is not None:
            self._open_cluster(answers.topology)
        elif self._follow:
            self._check_info()

    def names(self) -> frozenset[str]:
        """Return strings that identify the server; see ``names_of()``."""
        try:
            return names_of(self.server, self.server.ask(self.timeout))
        except TransportError as error:
            raise self._failed(error) from error

    def _open_cluster(self, topology: Topology) -> None:
        if self._follow:
            cause = f"{self.server} is a node of a cluster, which can't be followed; leave out "
            advice = ", and repeat the copy with ", Hint("changed", True), " without writers"
            raise SourceError(Message(cause, Hint("follow"), *advice))
        nodes = self.server.nodes_of(topology.nodes, 1)
        self._streams = [ReplicaStream(node, self.timeout) for node in nodes]
        self._owners = owners_of(topology)

    def _check_slots(self) -> None:
        """Check that the keys of each slot are in exactly one of a cluster's snapshots."""
        nodes = [stream.server for stream in self._streams]
        try:
            topology = self.server.ask(self.timeout).topology
            with ExitStack() as stack:
                connections = self.server.open_nodes(nodes, self.timeout)
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
        [reply] = self._ask([("INFO", "replication")], server=self.server.any_node())
        if isinstance(reply, CommandError):
            advice = "to follow, allow it with ACL SETUSER ... +info"
            raise SourceError(f"{self.server}: {reply.text} ({advice})") from reply

    def _read(self) -> Generator[list[EntryRow], None, None]:
        in_parallel(self._streams, ReplicaStream.open)
        # A reader waits for the start of its snapshot, so all snapshots have begun.
        readers = [
            self._new_reader(each.read, name=f"snapshot of {each.server}") for each in self._streams
        ]
        if self._owners is not None:
            self._check_slots()
        for reader in readers:
            yield from rows_of(reader, self.server.database, self.restorer)
        with suppress(ValueError):
            self.database = int(readers[0].aux.get(b"repl-stream-db", b"-1"))

    def close(self) -> None:
        """Stop reading; close the connections, unless ``follow`` is set."""
        if not self._follow:
            for stream in self._streams:
                stream.close()
        super().close()


def owners_of(topology: Topology) -> list[Address | None]:
    """Return the owner of each slot; None if a slot has no owner."""
    return [topology.nodes[each] if each >= 0 else None for each in topology.slots]
