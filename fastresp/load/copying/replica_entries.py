"""The keys of a server at one moment, received as a replica receives them."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import suppress

from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, joined_names, message_of
from ...outcome.report import counted
from ...replies.iter_replies import iter_replies
from ...server.preflight import Requirements
from ...server.settings import Server, ServerLike
from ...sources.entries import Entries, EntryRow
from ...sources.files.rdb import TYPES, RdbReader
from ...sources.replica_stream import ReplicaStream
from .server_entries import databases_of
from .snapshot_entries import OTHER_DATABASE, warn_of_functions

__all__ = ["ReplicaEntries"]


class ReplicaEntries(Entries):
    """The keys of a server's database as they were when the server began its snapshot.

    Args:
        server: the server.
        match: the pattern of the keys; None for all keys.
        type: the type of the keys, from TYPES; None for any type.
        timeout: seconds without data after which to give up; None to wait forever.
        follow: whether the commands after the snapshot are wanted.
        db: the database; None for the server's.

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
        server_of_url = Server(server, Requirements(reading=True, follow_redirects=True))
        self.server = server_of_url.in_database(db)
        self._match = match
        self._type = type
        self._timeout = timeout
        self._follow = follow
        self.database = -1
        self.stream = ReplicaStream(self.server, timeout, follow=follow)

    def __repr__(self) -> str:
        return f"<snapshot of {self.server}>"

    def open(self) -> None:
        """Check that the server can be used, and count its keys.

        Raises:
            SourceError: the server can't be used, or is a node of a cluster.
        """
        try:
            answers = self.server.ask(self._timeout)
            self.valkey, self.databases = answers.valkey, databases_of(self.server, answers)
            if answers.cluster:
                cause = f"{self.server} is a node of a cluster; leave out "
                raise SourceError(Message(cause, Hint("from_replica"), " to copy it with SCAN"))
            if self._follow:
                self._check_info()
            if self._match is None and self._type is None:
                with suppress(CommandError):  # the user lacks permission
                    [self.rows] = iter_replies(
                        [("DBSIZE",)], server=self.server, timeout=self._timeout
                    )
        except TransportError as error:
            text = f"can't read the source at {self.server}: "
            raise SourceError(Message(text, message_of(error))) from error

    def _check_info(self) -> None:
        """Check that the user has permission for INFO, which returns the source's offset."""
        try:
            [*iter_replies([("INFO", "replication")], server=self.server, timeout=self._timeout)]
        except CommandError as error:
            advice = "to follow, allow it with ACL SETUSER ... +info"
            raise SourceError(f"{self.server}: {error.text} ({advice})") from error

    def _read(self) -> Generator[list[EntryRow], None, None]:
        self.stream.open()
        reader = RdbReader(
            self.stream.read,
            name=f"snapshot of {self.server}",
            match=self._match,
            type=self._type,
            database=int(self.server.settings.get("db") or 0),
        )
        while (batch := reader.batch()) is not None:
            yield self.restorer.stored_rows(batch.values, batch.expires, batch.keys)
        warn_of_functions(reader, self.server)
        if reader.other_databases:
            keys = counted(reader.other_databases, "key")
            text = "%s: %s of other databases not copied%s"
            logging.getLogger("fastresp").warning(text, self.server, keys, OTHER_DATABASE)
        with suppress(ValueError):
            self.database = int(reader.aux.get(b"repl-stream-db", b"-1"))

    def close(self) -> None:
        """Stop reading; close the connection, unless its commands are wanted."""
        if not self._follow:
            self.stream.close()
        super().close()
