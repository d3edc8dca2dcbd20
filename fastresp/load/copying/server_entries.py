"""The keys of a server or a cluster, read with SCAN and DUMP."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any

from ...encode.template import TemplateLike
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import message_of
from ...replies.expiries import expiry_command
from ...replies.iter_replies import iter_replies
from ...replies.key_pattern import KINDS
from ...replies.scan import Scan
from ...server.preflight import Requirements, SampleCommand
from ...server.settings import Server, ServerLike
from ...sources.entries import Entries, EntryRow

__all__ = ["ServerEntries"]

DUMP = SampleCommand((b"DUMP", b"1"), fixed_length=True, subcommand=False)


class ServerEntries(Entries):
    """The keys of a server that match a pattern; in a cluster, the keys of all primaries.

    A key that is created, deleted or changed meanwhile may be missing or outdated.

    Args:
        server: the server, or a node of a cluster.
        match: the pattern for SCAN; None for all keys.
        type: the type of the keys; None for any type.
        timeout: seconds to wait for each reply; None to wait forever.
    """

    def __init__(
        self,
        server: ServerLike,
        match: str | None,
        type: str | None,  # noqa: A002
        timeout: float | None,
    ) -> None:
        super().__init__()
        self.server = Server(server, Requirements(reading=True, nodes=True, commands=(DUMP,)))
        self._match = match
        self._type = KINDS[type].type if type in KINDS else type
        self._timeout = timeout
        self._template: TemplateLike = None

    def __repr__(self) -> str:
        return f"<keys of {self.server}>"

    def open(self) -> None:
        """Check that the server can be read, and count its keys.

        Raises:
            SourceError: the server can't be read.
        """
        try:
            answers = self.server.ask(self._timeout)
            self.valkey = answers.valkey
            if self._match is None and self._type is None and not answers.cluster:
                [count] = iter_replies(
                    [("DBSIZE",)], server=self.server.any_node(), timeout=self._timeout
                )
                self.rows = count
            self._template = ["DUMP {0}", expiry_command(self.server, self._timeout)]
        except (TransportError, CommandError) as error:
            raise self._failed(error) from error

    def _read(self) -> Generator[EntryRow, None, None]:
        sent: deque[bytes] = deque()

        def noted(page: list[bytes]) -> list[bytes]:
            sent.extend(page)
            return page

        with ExitStack() as stack:
            scan = Scan(self.server, self._timeout, self._match or "*", self._type)
            pages = stack.enter_context(closing(scan.pages()))
            replies: Any = iter_replies(
                chain.from_iterable(map(noted, pages)),
                self._template,
                server=self.server,
                on_error="collect",
                timeout=self._timeout,
            )
            stack.enter_context(closing(replies))
            keys = iter(sent.popleft, None)
            try:
                # map() takes a reply to DUMP, a reply to PEXPIRETIME, and then their key.
                yield from filter(None, map(self.restorer.dumped_row, replies, replies, keys))
            except (TransportError, CommandError) as error:
                raise self._failed(error) from error

    def _failed(self, error: TransportError | CommandError) -> SourceError:
        return SourceError(f"can't read the source at {self.server}: {message_of(error)}")
