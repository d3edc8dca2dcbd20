"""Read the keys of a server or a cluster: find them with SCAN, read values with or without DUMP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, tee
from typing import Any

from ...encode.template import Template
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import message_of
from ...replies.cluster_core import ClusterCore
from ...replies.iter_replies import iter_replies, replying
from ...replies.key_pattern import KINDS, expiry_command, shown_key
from ...replies.reply_core import ReplyCore
from ...replies.scan import Scan, ScanPart
from ...server.answers import Answers
from ...server.options import Options
from ...server.preflight import Requirements, SampleCommand
from ...server.reply_parser import parse_info
from ...server.settings import Server, ServerLike
from ...sources.chunks import Chunks
from ...sources.source import PART_KEYS, Entries, EntryRow
from ...transports.driver import stream
from .by_value import Values, why_by_value
from .options import CopyOptions

__all__ = [
    "DUMP", "DumpReader", "LiveEntries", "ServerEntries", "Track", "databases_of", "names_of",
    "primaries_of",
]  # fmt: skip

DUMP = SampleCommand((b"DUMP", b"1"), fixed_length=True, subcommand=False)
LOOPBACK = ("127.0.0.1", "::1")
# DUMP is tried on the smallest of this number of keys.
TRIED_KEYS = 10
# When this number of keys is deferred, they are copied before more keys are read.
MAX_ASIDE = 1_000
# Number of SCAN pages in which ``open()`` looks for a key to try DUMP on. If it finds none, DUMP is
# tried on the first keys to copy.
EMPTY_PAGES = 100


def databases_of(server: Server, answers: Answers) -> frozenset[str]:
    """Return strings that identify a server's database, or the nodes of its cluster."""
    names = names_of(server, answers)
    if answers.topology is not None:
        return names
    return frozenset(f"{name}/{server.database}" for name in names)


def names_of(server: Server, answers: Answers) -> frozenset[str]:
    """Return strings that identify a server, or the nodes of its cluster.

    A single server has two strings, its run ID and its address, because the run ID is unknown if
    the user lacks permission for INFO.
    """
    if answers.topology is not None:
        return frozenset(f"{host}:{port}" for host, port in answers.topology.nodes)
    host = "localhost" if answers.host in LOOPBACK else answers.host
    names = answers.run_id, server.settings.get("path") or f"{host}:{answers.port}"
    return frozenset(name for name in names if name)


def primaries_of(server: Server, answers: Answers) -> list[Server]:
    """Return a Server for each primary of a cluster; for a single server, only that server."""
    if answers.topology is None:
        return [server.any_node()]
    return server.requiring(nodes=False).nodes_of(answers.topology.nodes, 1)


class BatchCore(ReplyCore):
    """Yields lists of replies: to yield replies one by one would take longer than to read them.

    The next commands are sent before a list is yielded. Otherwise, the server would idle while the
    caller handles the list: in a copy, for a fifth of the time.
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


class DumpReader:
    """Reads the expiries and payloads of keys with PEXPIRETIME, or a script, and DUMP."""

    def __init__(self, server: Server, timeout: float | None) -> None:
        self._server = server
        self._timeout = timeout
        self._template: Template | None = None

    def lists(self, keys: Iterator[bytes]) -> Generator[list[Any], None, None]:
        """Yield lists of replies, two for each key; they may be CommandErrors."""
        if self._template is None:
            self._template = Template(expiry_command(self._server, self._timeout), "DUMP {0}")
        with closing(_replies(self._server, self._template, keys, self._timeout)) as reading:
            rest: list[Any] = []
            for replies in reading:
                replies = rest + replies
                odd = len(replies) % 2
                # The second reply for the last key is in the next list.
                rest = replies[-1:] if odd else []
                yield replies[:-1] if odd else replies

    def pairs(self, keys: Sequence[bytes]) -> Generator[tuple[int, bytes | None], None, None]:
        """Yield the expiry and the payload of each key; without the key, -2 and None.

        Raises:
            CommandError: the server refuses a command; the error names the key.
        """
        with closing(self.lists(iter(keys))) as reading:
            replies = chain.from_iterable(reading)
            for row, (key, *found) in enumerate(zip(keys, replies, replies, strict=True)):
                for index, reply in enumerate(found, 2 * row):
                    if isinstance(reply, CommandError):
                        name = f"key {shown_key(key)}"
                        raise CommandError(reply.text, index=index, row=row, row_key=name)
                expiry, payload = found
                yield expiry, payload


def _replies(
    server: Server, template: Template, keys: Iterator[bytes], timeout: float | None
) -> Generator[list[Any], None, None]:
    """Yield lists of the replies to the commands for each key."""
    chunks = Chunks(keys, template, Options(timeout=timeout))
    core = BatchCore(server, on_error="collect", timeout=timeout)
    with closing(stream(replying(core, chunks, BatchCluster))) as reading:
        yield from reading


class Track:
    """Finds which parts of a scan remain after a number of rows were copied.

    Args:
        left: the parts to scan before any row is copied; None for the whole scan.
    """

    def __init__(self, left: list[ScanPart] | None) -> None:
        self._left = left
        self._found = self._read = self._rows = self._copied = 0
        # After each page: the number of keys found so far, and the remaining parts of the scan.
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
        """Return the parts left to scan after this number of copied rows; None for all parts.

        These are the parts after the last page whose rows were all copied.
        """
        while self._lists and self._lists[0][0] <= rows:
            _, self._copied = self._lists.popleft()
        while self._pages and self._pages[0][0] <= self._copied:
            _, self._left = self._pages.popleft()
        return self._left


class LiveEntries(Entries):
    """Base class: the keys of a server's database, as the options of a copy choose them."""

    def __init__(self, server: ServerLike, options: CopyOptions) -> None:
        super().__init__()
        needs = Requirements(reading=True, nodes=True)
        self.server = Server(server, needs).in_database(options.db)
        self.match = options.match
        self.type = options.type
        self.timeout = options.timeout

    def open(self) -> None:
        """Check that the server can be read, and count its keys."""
        try:
            self._open(self.server.ask(self.timeout))
        except (TransportError, CommandError) as error:
            raise self._failed(error) from error

    def _open(self, answers: Answers) -> None:
        self.valkey, self.databases = answers.valkey, databases_of(self.server, answers)
        if self.match is None and self.type is None and not answers.cluster:
            [count] = self._ask([("DBSIZE",)], server=self.server.any_node())
            self.rows = count if isinstance(count, int) else None

    def _ask(
        self, data: Sequence[Any], template: str | None = None, server: Server | None = None
    ) -> list[Any]:
        """Run commands; return their replies, which may be CommandErrors."""
        server = server or self.server
        replies: Any = iter_replies(
            data, template, server=server, on_error="collect", timeout=self.timeout
        )
        return [*replies]

    def _failed(self, error: TransportError | CommandError) -> SourceError:
        return SourceError(f"can't read the source at {self.server}: {message_of(error)}")


class ServerEntries(LiveEntries):
    """The keys of a server that match a pattern; in a cluster, the keys of all primaries.

    A key that is created, deleted or changed meanwhile may be missing or outdated. If a key is
    replaced between PEXPIRETIME and DUMP, its new value is copied with its old expiry. This is
    rare: a server runs other clients' commands only after each 16 KB of this client's commands, or
    about 230 keys. In the reverse order, the old value could be copied without an expiry, and would
    stay forever. A copy with ``changed`` corrects outdated keys and wrong expiries. MULTI would
    prevent wrong expiries, but needs two more commands for each key.

    Keys that can't be read as a whole, such as large keys, have no rows: they are deferred, and
    ``InParts`` copies them.

    Attributes:
        aside: the deferred keys; the caller must remove the keys that it reads.
        dumps: reads the expiries and payloads of keys.
        by_value: why values are read without DUMP; empty if DUMP is used. Set when DUMP is tried.
    """

    by_value = ""

    def __init__(self, server: ServerLike, options: CopyOptions) -> None:
        super().__init__(server, options)
        if self.type in KINDS:
            self.type = KINDS[self.type].type
        self.limit = options.limit
        self.aside: deque[bytes] = deque()
        self._values = Values(self.server, self.timeout, self.limit)
        self.dumps = DumpReader(self.server, self.timeout)
        self._sizes = ""
        self._untried: Answers | None = None  # the server's answers, until DUMP was tried
        self._track: Track | None = None
        self._resumed: list[ScanPart] | None = None
        self._wanted: Callable[[bytes], bool] | None = None
        self._when_full: Callable[[], object] | None = None
        self._failure: TransportError | None = None

    def __repr__(self) -> str:
        return f"<keys of {self.server}>"

    def _open(self, answers: Answers) -> None:
        """Count the keys, and try DUMP on a key."""
        super()._open(answers)
        self._untried = answers
        self._try_dump(self._first_keys())

    def _try_dump(self, keys: list[bytes]) -> None:
        """Choose how to read values and how to find large keys; do nothing if there are no keys."""
        answers = self._untried
        if answers is None or not keys:
            return
        keys, self._untried = keys[:TRIED_KEYS], None
        sizes = self._ask(keys, "MEMORY USAGE {0}")
        known = [each for each in zip(sizes, keys, strict=True) if isinstance(each[0], int)]
        key = min(known)[1] if known else keys[0]
        self.by_value = why_by_value(self._ask([key], "DUMP {0}")[0])
        if self.by_value or self._is_small(answers):
            return
        refused = any(isinstance(each, CommandError) for each in sizes)
        self._sizes = "by length" if refused else "MEMORY USAGE {0}"

    def _first_keys(self) -> list[bytes]:
        """Return the first page of SCAN that has keys; empty if EMPTY_PAGES pages have none."""
        scan = Scan(self.server, self.timeout, self.match or "*", self.type)
        with closing(scan.pages()) as pages:
            return next(filter(None, islice(pages, EMPTY_PAGES)), [])

    def _is_small(self, answers: Answers) -> bool:
        """Return whether each node's used memory is at most ``limit``: then no key is larger."""
        for server in primaries_of(self.server, answers):
            [reply] = self._ask([("INFO", "memory")], server=server)
            if isinstance(reply, CommandError):
                return False
            used = parse_info(reply.decode(errors="replace")).get("used_memory", "")
            if not used.isdecimal() or int(used) > self.limit:
                return False
        return True

    def choose(self, wanted: Callable[[bytes], bool]) -> None:
        """Read only the keys for which ``wanted`` returns True."""
        self._wanted = wanted

    def when_full(self, empty: Callable[[], object]) -> None:
        """Call ``empty`` when MAX_ASIDE keys are deferred, to copy and remove them."""
        self._when_full = empty

    def _set_aside(self, key: bytes) -> None:
        self.aside.append(key)
        if len(self.aside) >= MAX_ASIDE and self._when_full is not None:
            try:
                self._when_full()
            except TransportError as error:  # of the target
                self._failure = error
                raise

    def track(self, left: list[ScanPart] | None) -> Track:
        """Scan only the parts in ``left`` (None: all); return a Track of the remaining parts."""
        self._track, self._resumed = Track(left), left
        return self._track

    def rows_of(self, keys: list[bytes]) -> list[EntryRow]:
        """Read keys without DUMP; return rows of existing keys, except for deferred keys."""
        return [*chain.from_iterable(self._values.rows(keys, self.restorer, self._set_aside))]

    def _read(self) -> Generator[list[EntryRow], None, None]:
        track = self._track

        def noted(page: list[bytes]) -> list[bytes]:
            if self._wanted is not None:
                page = list(filter(self._wanted, page))
            if track is not None:
                track.note_page(len(page), scan.left())
            return page

        scan = Scan(
            self.server, self.timeout, self.match or "*", self.type,
            tracked=track is not None, resumed=self._resumed,
        )  # fmt: skip
        with closing(scan.pages()) as scanned:
            try:
                pages = map(noted, scanned)
                first = next(filter(None, pages), [])
                self._try_dump(first)
                keys = chain(first, chain.from_iterable(pages))
                reading = self._read_by_value(keys) if self.by_value else self._read_dumped(keys)
                with closing(reading):
                    yield from reading
            except (TransportError, CommandError) as error:
                raise self._failure or self._failed(error) from error

    def _read_by_value(self, keys: Iterator[bytes]) -> Generator[list[EntryRow], None, None]:
        while block := list(islice(keys, PART_KEYS)):
            count = 0
            with closing(self._values.rows(block, self.restorer, self._set_aside)) as parts:
                for rows in parts:
                    count += len(rows)
                    yield rows
            if self._track is not None:
                self._track.note_rows(len(block), count)

    def _read_dumped(self, keys: Iterator[bytes]) -> Generator[list[EntryRow], None, None]:
        sent: deque[bytes | None] = deque()  # None for a deferred key

        def small() -> Iterator[bytes]:
            for key in self._small(keys) if self._sizes else keys:
                sent.append(key)
                if key is not None:
                    yield key

        with closing(self.dumps.lists(small())) as values:
            sent_keys = (key for key in iter(sent.popleft, ...) if key is not None)
            for replies in chain(values, [[]]):  # at the end, only deferred keys are left
                before = len(sent)
                rows = self.restorer.dumped_rows(replies, sent_keys)
                while sent and sent[0] is None:
                    sent.popleft()
                if self._track is not None:
                    self._track.note_rows(before - len(sent), len(rows))
                yield rows

    def _small(self, keys: Iterator[bytes]) -> Iterator[bytes | None]:
        """Yield the small keys; defer each large key, and yield None instead."""
        if self._sizes == "by length":
            while block := list(islice(keys, PART_KEYS)):
                found = self._values.large(block)
                yield from self._kept(block, [key in found for key in block])
            return
        keys, sent = tee(keys)
        limit, template = self.limit, Template(self._sizes)
        with closing(_replies(self.server, template, keys, self.timeout)) as reading:
            for sizes in reading:
                block = list(islice(sent, len(sizes)))
                large = [type(size) is int and size > limit for size in sizes]
                yield from block if True not in large else self._kept(block, large)

    def _kept(self, keys: list[bytes], large: list[bool]) -> Iterator[bytes | None]:
        for key, is_large in zip(keys, large, strict=True):
            if is_large:
                self._set_aside(key)
            yield None if is_large else key
