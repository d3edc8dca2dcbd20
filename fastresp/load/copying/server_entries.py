"""The keys of a server or a cluster, read with SCAN and DUMP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any

from ...encode.template import Template
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import message_of
from ...replies.cluster_core import ClusterCore
from ...replies.expiries import expiry_command
from ...replies.iter_replies import iter_replies, replying
from ...replies.key_pattern import KINDS
from ...replies.reply_core import ReplyCore
from ...replies.scan import Scan, ScanPart
from ...server.answers import Answers
from ...server.options import Options
from ...server.preflight import Requirements, SampleCommand
from ...server.settings import Server, ServerLike
from ...sources.chunks import Chunks
from ...sources.entries import Entries, EntryRow
from ...transports.driver import stream

__all__ = ["DUMP", "ServerEntries", "databases_of", "read_values"]

DUMP = SampleCommand((b"DUMP", b"1"), fixed_length=True, subcommand=False)
LOOPBACK = ("127.0.0.1", "::1")


def databases_of(server: Server, answers: Answers) -> frozenset[str]:
    """Return texts that identify a server's database, or the nodes of its cluster.

    A single server has two texts, with its run ID and its address, since the run ID is unknown if
    INFO is refused.
    """
    if answers.topology is not None:
        return frozenset(f"{host}:{port}" for host, port in answers.topology.nodes)
    host = "localhost" if answers.host in LOOPBACK else answers.host
    names = answers.run_id, server.settings.get("path") or f"{host}:{answers.port}"
    return frozenset(f"{name}/{server.settings.get('db') or 0}" for name in names if name)


class BatchCore(ReplyCore):
    """Yields lists of replies: a step for each reply would take longer than reading it.

    The next commands are sent before a list is yielded. Otherwise, the server would have nothing to
    do while the caller handles the list: it idled for a fifth of the time of a copy.
    """

    def replies(self) -> Iterator[list[Any]]:
        replies = self.take()
        if replies:
            if self.stream is not None and self.stream.lost is None:
                self._send(self.stream)
            yield replies


class BatchCluster(ClusterCore):
    """Yields lists of replies, like BatchCore."""

    def results(self) -> Iterator[list[Any]]:
        replies = list(self.replies())
        if replies:
            yield replies


def read_values(
    server: Server, template: Template, keys: Iterator[bytes], timeout: float | None
) -> Generator[list[Any], None, None]:
    """Run two commands for each key, such as PEXPIRETIME and DUMP; yield lists of their replies."""
    chunks = Chunks(keys, template, Options(timeout=timeout))
    core = BatchCore(server, on_error="collect", timeout=timeout)
    with closing(stream(replying(core, chunks, BatchCluster))) as reading:
        rest: list[Any] = []
        for replies in reading:
            replies = rest + replies
            odd = len(replies) % 2
            # The other reply for the last key comes next.
            rest = replies[-1:] if odd else []
            yield replies[:-1] if odd else replies


class Track:
    """Finds what is left to scan after a number of rows.

    Args:
        left: what is left to scan before the first row; None for everything.
    """

    def __init__(self, left: list[ScanPart] | None) -> None:
        self._left = left
        self._found = self._read = self._rows = self._copied = 0
        # After each page: the number of keys found so far, and what is left to scan.
        self._pages: deque[tuple[int, list[ScanPart]]] = deque()
        # After each list of rows: the numbers of rows and of keys so far.
        self._lists: deque[tuple[int, int]] = deque()

    def note_page(self, keys: int, left: list[ScanPart]) -> None:
        self._found += keys
        self._pages.append((self._found, left))

    def note_rows(self, keys: int, rows: int) -> None:
        self._read += keys
        self._rows += rows
        self._lists.append((self._rows, self._read))

    def left_after(self, rows: int) -> list[ScanPart] | None:
        """Return what is left to scan after the last page whose rows are in the first ``rows``."""
        while self._lists and self._lists[0][0] <= rows:
            _, self._copied = self._lists.popleft()
        while self._pages and self._pages[0][0] <= self._copied:
            _, self._left = self._pages.popleft()
        return self._left


class ServerEntries(Entries):
    """The keys of a server that match a pattern; in a cluster, the keys of all primaries.

    A key that is created, deleted or changed meanwhile may be missing or outdated. A key that is
    replaced between PEXPIRETIME and DUMP has its new value with its old expiry. This is rare: a
    server runs other clients' commands only after each 16 KB of this client's commands, or about
    230 keys. In the reverse order, the copy could have the old value without an expiry, and keep
    it forever. A copy with ``changed`` corrects both. MULTI would exclude both, but needs two more
    commands for each key.

    Args:
        server: the server, or a node of a cluster.
        match: the pattern for SCAN; None for all keys.
        type: the type of the keys; None for any type.
        timeout: seconds to wait for each reply; None to wait forever.
        db: the database; None for the server's.
    """

    def __init__(
        self,
        server: ServerLike,
        match: str | None,
        type: str | None,  # noqa: A002
        timeout: float | None,
        db: int | None = None,
    ) -> None:
        super().__init__()
        server_of_url = Server(server, Requirements(reading=True, nodes=True, commands=(DUMP,)))
        self.server = server_of_url.in_database(db)
        self.match = match
        self.type = KINDS[type].type if type in KINDS else type
        self.timeout = timeout
        self._template = Template("DUMP {0}")
        self._track: Track | None = None
        self._resumed: list[ScanPart] | None = None
        self._wanted: Callable[[bytes], bool] | None = None

    def __repr__(self) -> str:
        return f"<keys of {self.server}>"

    def open(self) -> None:
        """Check that the server can be read, and count its keys.

        Raises:
            SourceError: the server can't be read.
        """
        try:
            answers = self.server.ask(self.timeout)
            self.valkey, self.databases = answers.valkey, databases_of(self.server, answers)
            if self.match is None and self.type is None and not answers.cluster:
                [count] = iter_replies(
                    [("DBSIZE",)], server=self.server.any_node(), timeout=self.timeout
                )
                self.rows = count
            expiry = expiry_command(self.server, self.timeout)
            self._template = Template(expiry, "DUMP {0}")
        except (TransportError, CommandError) as error:
            raise self._failed(error) from error

    def choose(self, wanted: Callable[[bytes], bool]) -> None:
        """Read only the keys for which a function returns True."""
        self._wanted = wanted

    def track(self, left: list[ScanPart] | None) -> None:
        """Scan only what is left, or everything for None; enables ``left_after()``."""
        self._track, self._resumed = Track(left), left

    def left_after(self, rows: int) -> list[ScanPart] | None:
        """Return what is left to scan once this number of rows was copied; None for everything."""
        assert self._track is not None
        return self._track.left_after(rows)

    def _read(self) -> Generator[list[EntryRow], None, None]:
        sent: deque[bytes] = deque()
        track = self._track

        def noted(page: list[bytes]) -> list[bytes]:
            if self._wanted is not None:
                page = list(filter(self._wanted, page))
            sent.extend(page)
            if track is not None:
                track.note_page(len(page), scan.left())
            return page

        with ExitStack() as stack:
            scan = Scan(
                self.server, self.timeout, self.match or "*", self.type,
                tracked=track is not None, resumed=self._resumed,
            )  # fmt: skip
            pages = stack.enter_context(closing(scan.pages()))
            keys = chain.from_iterable(map(noted, pages))
            values = read_values(self.server, self._template, keys, self.timeout)
            stack.enter_context(closing(values))
            sent_keys = iter(sent.popleft, None)
            try:
                for replies in values:
                    rows = self.restorer.dumped_rows(replies, sent_keys)
                    if track is not None:
                        track.note_rows(len(replies) // 2, len(rows))
                    yield rows
            except (TransportError, CommandError) as error:
                raise self._failed(error) from error

    def _failed(self, error: TransportError | CommandError) -> SourceError:
        return SourceError(f"can't read the source at {self.server}: {message_of(error)}")
