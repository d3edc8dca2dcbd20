"""Fetch fields of hashes as columns: one HMGET per key, without Python objects for values."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any, NamedTuple

from ..encode.columns.arrow_out import Column, StringBatch
from ..encode.key_columns import Pattern
from ..encode.template import Template
from ..outcome.errors import (
    CommandError,
    DecodeError,
    EncodeError,
    ProtocolError,
    SourceError,
    TransportError,
)
from ..outcome.messages import shortened, with_advice
from ..resp.split import arguments
from ..server.options import Options
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..transports.driver import Emit, Step, open_source
from .cluster_core import RawCluster
from .iter_replies import exchange_core
from .key_pattern import Expiries, column_of, not_text, shown_key
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore
from .scan import Scan

__all__ = ["FetchOptions", "HashCluster", "HashCore", "KeyFinder", "single"]

# A batch also ends at this size.
BATCH_BYTES = 32 << 20


class HashCluster(RawCluster):
    """Collects the HMGET replies of all nodes as columns."""

    keeps_commands = True

    def __init__(self, core: HashCore, *others: Any, follows: bool) -> None:
        self._core = core
        super().__init__(core, *others, follows=follows)

    def check_error(self, error: CommandError) -> None:
        assert error.arguments is not None
        assert error.index is not None
        self._core.check_error(error.text, error.arguments[1], error.index)

    def results(self) -> Iterator[Any]:
        core, columns = self._core, self._core.columns
        replies = self.raw_replies()
        first = self.next - len(replies)
        try:
            columns.feed(b"".join(replies))
        except ProtocolError:
            # The number of parsed replies is the source index of the invalid reply.
            node, _ = self.sender(columns.replies)
            self._lose(node)
            node.reject_reply("HMGET", replies[columns.replies - first])
        columns.errors.clear()  # raw_replies() has checked the errors
        if columns.invalid is not None:
            row, column = columns.invalid
            raise core.not_text(self.sender(row)[1], column)
        yield from core.replies()


# Types of rows; a row of several values is refused as a key.
ROWS = (tuple, list)


class FetchOptions(NamedTuple):
    """The options of a ``Hashes``."""

    server: Server
    timeout: float | None
    batch_rows: int
    max_reply_bytes: int | None
    slots: range | None
    # The name of the column with the time of expiry, for the keys of a pattern.
    ttl: str | None = None


class KeyFinder:
    """Finds the keys of a pattern, and makes the columns of keys and of expiry times.

    Attributes:
        kept: the found keys whose rows are not returned yet.
    """

    def __init__(self, pattern: Pattern, options: FetchOptions, *, text: bool) -> None:
        self.kept: list[bytes] = []
        self._pattern = pattern
        self._text = text
        self._server = options.server
        self._scan = Scan(options.server, options.timeout, pattern.glob, "hash", options.slots)
        self._ttl = options.ttl
        self._expiries = Expiries(options.server, options.timeout)

    def pages(self) -> Generator[list[bytes], None, None]:
        """Yield the keys in pages; the next page is always requested in advance."""
        with ExitStack() as stack:
            pages: Iterator[list[bytes]] = stack.enter_context(closing(self._found()))
            if self._ttl is not None:
                keys = self._expiries.keys(chain.from_iterable(pages))
                pages = ([key] for key in stack.enter_context(closing(keys)))
            for page in pages:
                self.kept += page
                yield page

    def _found(self) -> Generator[list[bytes], None, None]:
        if self._pattern.single:
            yield [self._pattern.glob.encode()]
            return
        with closing(self._scan.pages()) as found:
            for page in found:
                self._check(page)
                yield page

    def _check(self, keys: list[bytes]) -> None:
        """Refuse keys that are too short for the pattern."""
        for key in keys:
            if len(key) < self._pattern.head + self._pattern.tail:
                raise TransportError(
                    f"can't read from the server at {self._server}: SCAN returned "
                    f"{shown_key(key)}, which does not match the pattern"
                )

    def disconnect(self) -> None:
        self._scan.disconnect()

    def with_keys(self, batch: StringBatch) -> StringBatch:
        """Return the batch with a first column of keys, and if wanted, a last column of times."""
        keys, self.kept = self.kept[: len(batch)], self.kept[len(batch) :]
        pattern = self._pattern
        column = column_of(keys, keys, pattern.column, text=self._text, pattern=pattern)
        names = [pattern.column, *batch.names]
        columns: list[Column] = [column, *batch.columns]
        if self._ttl is not None:
            names.append(self._ttl)
            columns.append(self._expiries.column(len(batch)))
        return StringBatch(names, columns)


class HashCore(ReplyCore):
    """A connection that sends HMGET commands and collects the replies as columns.

    Args:
        options: the options.
        fields: the fields to read from each hash.
        text: for each field, whether its values must be UTF-8.
        finder: finds the keys of a pattern; None if the keys are given.
    """

    def __init__(
        self,
        options: FetchOptions,
        fields: list[str],
        text: list[bool],
        finder: KeyFinder | None = None,
    ) -> None:
        super().__init__(
            options.server, timeout=options.timeout, max_reply_bytes=options.max_reply_bytes
        )
        self._fields = fields
        self._batch_rows = options.batch_rows
        self.finder = finder
        self.columns = ReplyColumns(fields, text=text, max_reply_bytes=options.max_reply_bytes)
        self.sink = self.columns

    @property
    def received(self) -> int:
        return super().received if self.cluster is None else self.cluster.received

    def check_error(self, text: str, key: bytes, index: int) -> None:
        """Raise an error reply, unless a key changed its type after SCAN found the key."""
        if not (self.finder and text.startswith("WRONGTYPE ")):
            raise CommandError(f"{text} (key {shown_key(key)})", index=index)

    def not_text(self, command: bytes, column: int) -> DecodeError:
        """Return the exception for a value that is not UTF-8."""
        key, field = arguments(command)[1], self._fields[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)

    def process_replies(self) -> None:
        columns, sent = self.columns, self.window.sent
        stream = self.stream
        assert stream is not None
        for index, message in columns.errors:
            text = message.decode(errors="replace")
            if index < sent:
                _, command = self.window.command(index)
                self.check_error(text, arguments(command)[1], index)
            else:
                self.last_reply = shortened(text)
        columns.errors.clear()
        if columns.invalid is not None:
            row, column = columns.invalid
            raise self.not_text(self.window.command(row)[1], column)
        if columns.replies > sent and stream.lost is None:
            stream.give_up(ProtocolError("more replies than commands", self.received))
        self.acknowledge(min(columns.replies, sent))

    def take_batches(self, *, rest: bool = False) -> Iterator[StringBatch]:
        """Remove and yield full batches of rows; if ``rest`` is True, remove and yield all rows."""
        columns = self.columns
        while rest or columns.rows >= self._batch_rows or columns.nbytes >= BATCH_BYTES:
            batch = columns.take(self._batch_rows)
            if batch is None:
                return
            yield batch if self.finder is None else self.finder.with_keys(batch)

    def replies(self) -> Iterator[Any]:
        for batch in self.take_batches():
            yield batch
            # The time until the caller asks for more does not count towards the timeout.
            (self.cluster or self).restart_timeout()

    def fetching(self, keys: Any, kind: type[Chunks] = Chunks) -> Generator[Step | Emit, Any, None]:
        """Connect, send the keys, and yield batches of rows (core)."""
        template = Template("HMGET {0} " + " ".join(map(_quoted, self._fields)))
        chunks = kind(keys, template, Options(timeout=self.timeout))
        failure = None
        try:
            yield from open_source(chunks)
            check_single(chunks.writer)
            failure = yield from exchange_core(self, chunks, HashCluster)
            if isinstance(failure, EncodeError):  # replace advice that is useful only for loads
                failure.args = (with_advice(failure.message, "keys must be str, bytes or numbers"),)
            if failure is not None:
                raise failure
            yield Emit(self.take_batches(rest=True))
        finally:
            failure = None  # its traceback refers to this frame, and thus to the data
            chunks.close()


def check_single(writer: Any) -> None:
    """Refuse keys of several columns."""
    columns: Sequence[str] = getattr(writer, "names", ())
    if len(columns) > 1:
        raise SourceError(
            f"keys must be one column, not {len(columns)} ({', '.join(columns)}); pass one of "
            f"them, such as keys[{columns[0]!r}]"
        )


def single(keys: Any) -> Any:
    """Return an iterable of the keys; it raises a TypeError at a row of several values.

    Arrow data is returned unchanged.
    """
    if hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__"):
        return keys
    # For a list, check the set of its items' types: 20 ns per key; checking each key costs 116 ns.
    if isinstance(keys, list) and not any(issubclass(kind, ROWS) for kind in set(map(type, keys))):
        return keys
    return map(_one, keys)


def _one(key: Any) -> Any:
    if isinstance(key, ROWS) and len(key) != 1:
        raise TypeError(f"a key must be one value, not {len(key)}: {key!r}")
    return key


def _quoted(text: str) -> str:
    """Return the name of a field as a quoted, literal argument of a template."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}") + '"'
