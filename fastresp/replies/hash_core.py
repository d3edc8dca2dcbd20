"""Fetch fields of hashes as columns: one HMGET per key, without Python objects for values."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..encode.template import Template
from ..outcome.errors import (
    CommandError,
    DecodeError,
    EncodeError,
    ProtocolError,
    SourceError,
)
from ..outcome.messages import shortened, with_advice
from ..resp.read import RawReplies
from ..resp.split import arguments
from ..server.options import Options
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..transports.connection import LostConnection
from ..transports.driver import Blocking, Emit, Step, next_chunk, open_source
from .arrow_out import StringBatch
from .cluster_core import ClusterCore
from .key_pattern import not_text, shown_key
from .node_core import NodeCore
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore, connect

__all__ = [
    "FetchOptions",
    "HashCluster",
    "HashCore",
    "HashFields",
    "advising",
    "iter_of",
    "key_of",
    "single",
]

# A batch also ends at this size.
BATCH_BYTES = 32 << 20


class HashFields:
    """The fields to read from each hash.

    Attributes:
        found: whether the keys were found by a pattern.
    """

    def __init__(self, names: list[str], batch_rows: int) -> None:
        self.names = names
        self.batch_rows = batch_rows
        self.found = False

    def take_batches(self, columns: ReplyColumns, *, rest: bool = False) -> Iterator[StringBatch]:
        """Remove and yield full batches of rows; if ``rest`` is True, remove and yield all rows."""
        while rest or columns.rows >= self.batch_rows or columns.nbytes >= BATCH_BYTES:
            batch = columns.take(self.batch_rows)
            if batch is None:
                return
            yield batch

    def ignores(self, text: str) -> bool:
        """Return whether to ignore an error: a key changed its type after SCAN found the key."""
        return self.found and text.startswith("WRONGTYPE ")

    def error(self, text: str, key: bytes, index: int) -> CommandError:
        """Return the exception for an error reply."""
        return CommandError(f"{text} (key {shown_key(key)})", index=index)

    def not_text(self, key: bytes, column: int) -> DecodeError:
        """Return the exception for a value that is not UTF-8."""
        field = self.names[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)


def key_of(core: ReplyCore, index: int) -> bytes:
    """Return the key of a command in flight; ``index`` is the command's index in the window."""
    return arguments(core.window.command(index)[1])[1]


@contextmanager
def advising() -> Iterator[None]:
    """In an EncodeError, replace advice that is useful only for loads."""
    try:
        yield
    except EncodeError as error:
        error.args = (with_advice(error.message, "keys must be str, bytes or numbers"),)
        raise


class HashCluster(ClusterCore):
    """Collects the HMGET replies of all nodes as columns.

    Replies are put in order as bytes, and then parsed.
    """

    keeps_commands = True

    def __init__(
        self,
        core: ReplyCore,
        *others: Any,
        fields: HashFields,
        columns: ReplyColumns,
        follows: bool,
    ) -> None:
        self._fields = fields
        self._columns = columns
        self._nothing = b"*%d\r\n%b" % (len(fields.names), b"$-1\r\n" * len(fields.names))
        super().__init__(core, *others, follows=follows)
        self._raising = False  # emitting() raises errors

    def _node(self, kind: type[NodeCore], server: Server, address: tuple[str, int] | None) -> Any:
        node = super()._node(kind, server, address)
        node.reader = node.sink = RawReplies(max_reply_bytes=self._settings["max_reply_bytes"])
        return node

    def reading(self, chunks: Chunks) -> Generator[Step | Emit, Any, None]:
        """Send the keys, and yield batches of rows."""
        failure = yield from self.exchange(chunks)
        if failure is not None:
            with advising():
                raise failure
        for batch in self._fields.take_batches(self._columns, rest=True):
            yield Emit([batch])

    def emitting(self) -> Iterator[Emit]:
        replies = []
        for reply in self.replies():
            if type(reply) is CommandError:
                assert reply.arguments is not None
                assert reply.index is not None
                if not self._fields.ignores(reply.text):
                    raise self._fields.error(reply.text, reply.arguments[1], reply.index)
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
            node.reject_reply("HMGET", replies[columns.replies - first])
        if columns.invalid is not None:
            row, column = columns.invalid
            raise self._fields.not_text(arguments(self.sender(row)[1])[1], column)
        for batch in self._fields.take_batches(columns):
            yield Emit([batch])
            # The time until the caller asks for more does not count towards the timeout.
            self.restart_timeout()


# Types of rows; a row of several values is refused as a key.
ROWS = (tuple, list)


class FetchOptions(NamedTuple):
    """The options of a ``Hashes``."""

    server: Server
    timeout: float | None
    batch_rows: int
    max_reply_bytes: int | None
    slots: range | None


class HashCore(ReplyCore):
    """A connection that sends HMGET commands and collects the replies as columns."""

    def __init__(self, options: FetchOptions, fields: list[str], text: list[bool]) -> None:
        super().__init__(
            options.server,
            decode=None,
            on_error="raise",
            timeout=options.timeout,
            max_reply_bytes=options.max_reply_bytes,
        )
        self.fields = HashFields(fields, options.batch_rows)
        # Reads from all nodes of a cluster; None if the server is not a cluster.
        self.cluster: HashCluster | None = None
        self.columns = ReplyColumns(fields, text=text, max_reply_bytes=options.max_reply_bytes)
        self.sink = self.columns
        self.template = Template("HMGET {0} " + " ".join(map(_quoted, fields)))

    def _of_cluster(self, *others: Any, follows: bool) -> HashCluster:
        return HashCluster(*others, fields=self.fields, columns=self.columns, follows=follows)

    @property
    def received(self) -> int:
        """The number of bytes of replies received."""
        return super().received if self.cluster is None else self.cluster.received

    def chunks_of(self, keys: Any, kind: type[Chunks] = Chunks) -> Chunks:
        """Return the chunks of commands that read the keys."""
        return kind(keys, self.template, Options(timeout=self.timeout))

    def process_replies(self) -> None:
        """Acknowledge the received replies."""
        columns, sent = self.columns, self.window.sent
        stream = self.stream
        assert stream is not None
        for index, message in columns.errors:
            text = message.decode(errors="replace")
            if index < sent:
                if self.fields.ignores(text):
                    continue
                raise self.fields.error(text, key_of(self, index), index)
            self.last_reply = shortened(text)
        if columns.invalid is not None:
            row, column = columns.invalid
            raise self.fields.not_text(key_of(self, row), column)
        if columns.replies > sent and stream.lost is None:
            stream.give_up(ProtocolError("more replies than commands", self.received))
        self.acknowledge(min(columns.replies, sent))

    def fetching(self, chunks: Chunks) -> Generator[Step | Emit, Any, None]:
        """Connect, send the keys, and yield batches of rows."""
        try:
            yield from open_source(chunks)
            check_single(chunks.writer)
            self.cluster = yield from connect(self, chunks, self._of_cluster)
            yield from (self if self.cluster is None else self.cluster).reading(chunks)
        except LostConnection:
            raise (yield Blocking((self.cluster or self).loss)) from None
        finally:
            (self.cluster or self).detach()
            chunks.close()

    def reading(self, chunks: Chunks) -> Generator[Step | Emit, Any, None]:
        """Send the keys, and yield batches of rows."""
        while not (self.ended and self.finished):
            while not self.ended and not self.window.unsent:
                with advising():
                    chunk = yield from next_chunk(chunks, self)
                self.ended = chunk is None
                if chunk is not None:
                    self.window.add(chunk)
                self.restart_timeout()
            before = self.window.acknowledged
            self.step()
            yield from self._emitting()
            if self.window.acknowledged == before and not self.finished:
                assert self.stream is not None
                yield [(self.stream, self.wait())]
        yield from self._emitting(rest=True)

    def _emitting(self, *, rest: bool = False) -> Iterator[Emit]:
        for batch in self.fields.take_batches(self.columns, rest=rest):
            yield Emit([batch])
            # The time until the caller asks for more does not count towards the timeout.
            self.restart_timeout()


def check_single(writer: Any) -> None:
    """Refuse keys of several columns."""
    columns: Sequence[str] = getattr(writer, "names", ())
    if len(columns) > 1:
        raise SourceError(
            f"keys must be one column, not {len(columns)} ({', '.join(columns)}); pass one of "
            f"them, such as keys[{columns[0]!r}]"
        )


def single(keys: Any) -> Any:
    """Return an iterable of the keys that raises a TypeError at a row of several values.

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


def iter_of(keys: Any) -> Any:
    """Return an iterator over the keys; None if the keys are not iterable."""
    return iter(keys) if hasattr(type(keys), "__iter__") else None


def _quoted(text: str) -> str:
    """Return a text as a quoted, literal argument of a template."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}") + '"'
