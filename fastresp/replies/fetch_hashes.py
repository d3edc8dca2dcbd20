"""``fetch_hashes()``: read fields of hashes as columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any, NamedTuple, Self, TypeAlias
from weakref import ref

from ..encode.columns.arrow_out import TIMES, StringBatch, schema
from ..encode.columns.arrow_out import stream as arrow_stream
from ..encode.key_columns import Pattern, as_pattern, binary_columns, check_names, checked_fields
from ..encode.template import Template
from ..outcome.errors import CommandError, DecodeError, EncodeError, ProtocolError, SourceError
from ..outcome.messages import Hint, Message, shortened, with_advice
from ..outcome.report import as_html
from ..outcome.tracebacks import public, shorten
from ..resp.slots import SLOTS
from ..resp.split import arguments
from ..server.options import Options, check_timeout
from ..server.preflight import Requirements
from ..server.settings import Server, ServerLike
from ..sources.chunks import Chunks
from ..sources.source import ArrowHolding, ArrowStreaming
from ..transports.driver import Emit, Step, open_source, stream
from .cluster_core import RawCluster
from .iter_replies import exchange_core
from .key_pattern import KeyFinder, not_text, shown_key
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore

__all__ = ["BATCH_ROWS", "Columns", "Hashes", "fetch_hashes"]


class Columns(ABC):
    """Columns of text, bytes or times, read in batches as they are used; see Hashes and Entries."""

    def __init__(self, names: list[str], text: list[bool], ttl: str | None = None) -> None:
        if ttl in names:
            message = f"{ttl!r} is also the name of another column; choose a different name, as in "
            raise ValueError(Message(message, Hint("ttl", "key_expires_at")))
        self.names = names if ttl is None else [*names, ttl]
        self.rows = self.nbytes = 0
        self.error: BaseException | None = None
        self._text = text
        self._kinds = [*text, TIMES][: len(self.names)]
        self._readings: list[ref[Generator[StringBatch, None, None]]] = []

    def __repr__(self) -> str:
        return f"<fastresp.{type(self).__name__} of {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        read = [("rows read", self.rows), ("bytes read", self.nbytes)] if self.rows else []
        return as_html(type(self).__name__, "", [("columns", ", ".join(self.names)), *read])

    def __arrow_c_schema__(self) -> object:
        return schema(self.names, self._kinds)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as an Arrow stream; the first batch opens the connection."""
        return arrow_stream(self.names, self._kinds, self.batches())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with closing(self.batches()) as batches:
            for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    def batches(self) -> Generator[StringBatch, None, None]:
        """Return an iterator of batches, each an object with ``__arrow_c_array__``."""
        reading = self._noting_errors()
        self._readings = [each for each in self._readings if each() is not None]
        self._readings.append(ref(reading))
        return reading

    def close(self) -> None:
        """Stop all iterations, and close their connections."""
        for each in self._readings:
            reading = each()
            if reading is not None:
                reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _noting_errors(self) -> Generator[StringBatch, None, None]:
        self.rows = self.nbytes = 0
        self.error = None
        try:
            with closing(self._read()) as batches:
                yield from batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            shorten(error)
            raise

    @abstractmethod
    def _read(self) -> Generator[StringBatch, None, None]:
        """Yield batches read from the server, and count their rows and bytes."""


Keys: TypeAlias = str | Iterable[Any] | ArrowStreaming | ArrowHolding

BATCH_ROWS = 65_536
# A batch also ends at this size.
BATCH_BYTES = 32 << 20
# Types of rows; a row of several values is refused as a key.
ROWS = (tuple, list)


@public
def fetch_hashes(
    keys: Keys | Pattern,
    fields: Iterable[str],
    *,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
    batch_rows: int = BATCH_ROWS,
    max_reply_bytes: int | None = None,
    slots: range | None = None,
) -> Hashes:
    """Read fields of hashes as columns, without a Python object for each value.

    Pass the result to any library that accepts Arrow data: ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)``, ``pandas.DataFrame.from_arrow(rows)`` (``pandas.DataFrame(rows)`` is
    slower: it makes a dict per row). Each use of the result opens a new connection and fetches
    batches as they are needed, so memory stays bounded for any number of keys. The server may be a
    replica. If the server is a node of a cluster, all primaries are read concurrently.

    Args:
        keys: an iterable of keys, or a column of keys (an Arrow array, a Series): one row per key,
            in order. A str is a SCAN pattern: with ``"user:*"``, the first column, ``key``, has the
            whole keys; with ``"user:{id}"``, the first column, ``id``, has the part of the key in
            place of ``{id}``. So ``"user:{id}"`` reads back hashes written by
            ``"HSET user:{id} {**}"``; all other characters of such a pattern are literal. Double a
            literal brace, as in templates.
        fields: the names of the fields, one column each.
        server: as for ``mass_insert``.
        binary: True for bytes in all columns, or the names of columns to read as bytes; the other
            columns are UTF-8 text.
        timeout: give up after this many seconds without progress; None to wait forever.
        batch_rows: the maximum number of rows per batch; a batch also ends at 32 MiB.
        max_reply_bytes: a row of more bytes raises an error; None for 512 MiB.
        slots: with a pattern, read only keys in this range of key slots, within ``range(16384)``,
            such as ``range(8192)``. Several readers with adjacent ranges read each key once. In a
            cluster, only the owners of these slots are scanned. A single server lists all its keys
            to each reader.

    A missing field is a null, and a missing key is a row of nulls. A pattern finds only hashes, in
    no particular order. SCAN may return a key twice while the server resizes its table of keys. A
    key that is deleted or changes its type during the scan is a row of nulls; a key that is created
    during the scan may be missing. In a cluster, a key in a moving slot may be returned twice, or
    not at all. If a node is lost, its slots are scanned again, and keys may be returned twice.

    Returns:
        The rows. No connection is opened until the rows are read.

    Raises:
        ValueError, TypeError: an argument is invalid.

    While the rows are read:

        CommandError: a given key is not a hash, or the server refuses the command; the message
            names the key.
        DecodeError: a value is not UTF-8; the message names the key and the column.
        TransportError, TransportTimeout: the server can't be used, or the connection was lost.
        SourceError, EncodeError: the keys can't be read, have several columns, or include a key
            that can't be encoded.
        TypeError: the keys are rows of several values.

    A library that reads the Arrow stream raises its own exception with the same text, even for
    Ctrl-C; ``error`` has the original exception.
    """
    pattern = as_pattern(keys) if isinstance(keys, str) else None
    if isinstance(keys, Pattern):
        pattern = keys
    else:
        _check_keys(keys)
    wanted = checked_fields(fields)
    names = wanted if pattern is None else [pattern.column, *wanted]
    check_names(names)
    if not isinstance(batch_rows, int):
        raise TypeError(f"batch_rows must be a whole number, not {batch_rows!r}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be above 0, not {batch_rows}")
    as_bytes = binary_columns(binary, names)
    check_timeout(timeout)
    where = Server(server, Requirements(reading=True, nodes=True))
    _check_slots(slots, pattern)
    options = FetchOptions(where, timeout, batch_rows, max_reply_bytes, slots)
    HashCore(options, wanted, [True] * len(wanted))  # checks max_reply_bytes
    return Hashes(pattern or keys, names, [name not in as_bytes for name in names], options)


def _check_keys(keys: Any) -> None:
    """Refuse keys that are neither an iterable of keys nor a column."""
    if isinstance(keys, (bytes, bytearray, memoryview)):
        raise TypeError(
            "keys must be an iterable of keys, or a pattern (str), not one key; for a single key "
            "use [key]"
        )
    given = ("__iter__", "__arrow_c_stream__", "__arrow_c_array__")
    if isinstance(keys, Mapping) or not any(hasattr(keys, name) for name in given):
        raise TypeError(
            "keys must be an iterable of keys, a column of them, or a pattern (str), not "
            f"{type(keys).__name__}"
        )


def _check_slots(slots: range | None, pattern: Pattern | None) -> None:
    if slots is None:
        return
    if not isinstance(slots, range):
        raise TypeError(f"slots must be a range, such as range(0, 8192), not {slots!r}")
    if slots.step != 1 or any(not 0 <= end <= SLOTS for end in (slots.start, slots.stop)):
        raise ValueError(
            f"slots must be within 0 to {SLOTS}, without a step, such as range(0, 8192), not "
            f"{slots!r}"
        )
    if pattern is None:
        raise ValueError("slots is only for a pattern such as 'user:*'; omit it, or pass one")


class FetchOptions(NamedTuple):
    server: Server
    timeout: float | None
    batch_rows: int
    max_reply_bytes: int | None
    slots: range | None
    # The name of the column with the time of expiry, for the keys of a pattern.
    ttl: str | None = None


class Hashes(Columns):
    """Hashes as columns, fetched as they are used: the result of ``fetch_hashes``.

    Pass this object to any library that accepts Arrow data. Each use reads the hashes again; if the
    keys are an iterator, the hashes can be read only once. Iterating yields rows as dicts, so
    ``pandas.DataFrame(rows)`` works, but ``pandas.DataFrame.from_arrow(rows)`` is faster. With
    polars, use ``polars.DataFrame(rows)``: ``polars.from_arrow(rows)`` makes a Series of structs
    from any stream.

    Attributes:
        names: the names of the columns.
        rows: the number of rows that the last iteration has read.
        nbytes: the number of bytes of replies that the last iteration has received.
        error: the exception that ended the last iteration, or None.
    """

    def __init__(
        self, keys: Pattern | Keys, names: list[str], text: list[bool], options: FetchOptions
    ) -> None:
        super().__init__(names, text, options.ttl)
        self._keys = keys
        self._options = options
        self._taken = False

    def with_ttl(self, name: str) -> Hashes:
        """Return the hashes with a last column, the time when each key expires.

        The keys must be given by a pattern.
        """
        names = self.names[: len(self._text)]
        return Hashes(self._keys, names, self._text, self._options._replace(ttl=name))

    def begin(self) -> tuple[HashCore, Any]:
        """Return a connection and the keys; the keys are None if ``core.finder`` finds them."""
        self.rows = self.nbytes = 0
        self.error = None
        keys, options = self._keys, self._options
        names = self.names[: len(self._text)]
        if isinstance(keys, Pattern):
            where, timeout, _, _, slots, ttl = options
            finder = KeyFinder(keys, where, timeout, slots, ttl, text=self._text[0])
            return HashCore(options, names[1:], self._text[1:], finder), None
        if self._taken and isinstance(keys, Iterator):
            raise SourceError("the keys are an iterator that is used up; pass a list to read again")
        self._taken = True
        return HashCore(options, names, self._text), single(keys)

    def count(self, batch: StringBatch, core: HashCore) -> None:
        """Count the rows of a batch, and the bytes received so far."""
        self.rows += len(batch)
        self.nbytes = core.received

    def _read(self) -> Generator[StringBatch, None, None]:
        core, keys = self.begin()
        # Close explicitly: a kept traceback would keep the connections open.
        with ExitStack() as stack:
            if core.finder is not None:
                pages = stack.enter_context(closing(core.finder.pages()))
                keys = chain.from_iterable(pages)
            for batch in stack.enter_context(closing(stream(core.fetching(keys)))):
                self.count(batch, core)
                yield batch


class HashCore(ReplyCore):
    """A connection that sends HMGET commands and collects the replies as columns.

    Args:
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
