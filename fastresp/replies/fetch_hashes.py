"""Hashes out of a server, as columns."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self, TypeAlias
from weakref import ref

from ..encode.template import Template
from ..outcome.errors import (
    CommandError,
    DecodeError,
    EncodeError,
    ProtocolError,
    SourceError,
    TransportError,
)
from ..outcome.excerpts import shortened, shown_reply
from ..outcome.messages import Hint, Message, with_advice
from ..resp.split import arguments
from ..server.forks import Inherited, is_own
from ..server.settings import Server, ServerLike
from ..sources.source import (
    ArrowHolding,
    ArrowStreaming,
    encoding,
    release,
)
from ..transports.connection import LostConnection
from ..transports.stream import Wait, wait_for
from .arrow_out import StringBatch, schema, stream
from .reply_columns import ReplyColumns, string_column
from .stream import More, ReplyCore

__all__ = ["Hashes", "fetch_hashes"]

Keys: TypeAlias = str | Iterable[Any] | ArrowStreaming | ArrowHolding

BATCH_ROWS = 65_536
# A batch ends here, too, however few rows it has.
BATCH_BYTES = 32 << 20
# How many keys a SCAN looks at: enough to hide its way there and back.
SCAN_COUNT = 1000
# Doubled braces, a placeholder, a brace alone, text.
PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
# What has a meaning in the patterns of SCAN.
GLOB = re.compile(r"([*?\[\]\\^])")
SHOWN_BYTES = 40
# What holds several values, where it is not a key.
ROWS = (tuple, list)


def fetch_hashes(
    keys: Keys | Pattern,
    fields: Iterable[str],
    *,
    server: ServerLike = None,
    binary: bool | Iterable[str] = False,
    timeout: float | None = 30.0,
    batch_rows: int = BATCH_ROWS,
    max_reply_bytes: int | None = None,
) -> Hashes:
    """Fetch fields of hashes as columns, without a Python object for each value.

    What is returned goes to anything that takes Arrow data: ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)``, ``pandas.DataFrame.from_arrow(rows)`` (``pandas.DataFrame(rows)`` is
    slower: by a dict for each row). It is read over a connection of its own while it is taken, in
    batches: nothing else is held, whatever the number of keys. A replica will do as the server.

    Args:
        keys: an iterable of keys, or a column of them (an Arrow array, a Series): a row for each,
            in their order. Or a pattern for SCAN, a str: ``"user:*"``, whose keys become the first
            column, ``key``; or ``"user:{id}"``, whose first column ``id`` has what stands there in
            the key. So that is the way back from ``"HSET user:{id} {**}"``; other characters of
            such a pattern stand for themselves. A literal brace is doubled, as in templates.
        fields: the names of the fields, each a column.
        server: as for ``mass_insert``.
        binary: True for columns of bytes, or the names of those that shall be; the others are
            UTF-8 text.
        timeout: seconds without any progress after which it is given up; None for never.
        batch_rows: rows of a batch at most; one of 32 MiB has fewer.
        max_reply_bytes: a larger row ends the reading; None for 512 MiB.

    A field that a hash does not have is a null, and a key that does not exist a row of nulls. A
    pattern finds hashes only, in no order. SCAN may find a key twice, while the server resizes its
    table of keys, and one that is deleted meanwhile, or becomes something else than a hash, is a
    row of nulls; what is written meanwhile may be in it or not.

    Returns:
        The rows, to be taken; nothing is opened before.

    Raises:
        ValueError, TypeError: an argument can't be.

    While the rows are taken:

        CommandError: one of the keys given holds no hash, or the server refuses to tell; names
            the key.
        DecodeError: a value is not UTF-8; names the key and the column.
        TransportError, TransportTimeout: the server can't be used, or was lost.
        SourceError, EncodeError: the keys can't be read, are of several columns, or one of them
            can't be sent.
        TypeError: the keys are rows of several values.

    A library that takes the Arrow stream raises an exception of its own with the same text, for a
    Ctrl-C, too; ours is then in ``error``.
    """
    pattern = as_pattern(keys) if isinstance(keys, str) else None
    if isinstance(keys, Pattern):
        pattern = keys
    else:
        _check_keys(keys)
    wanted = _fields(fields)
    names = wanted if pattern is None else [pattern.column, *wanted]
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise ValueError(f"two columns are named {double[0]!r}; each has a name of its own")
    if not isinstance(batch_rows, int):
        raise TypeError(f"batch_rows is a whole number, not {batch_rows!r}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows is a number of rows above 0, not {batch_rows}")
    as_bytes = _binary(binary, names)
    options = Options(Server(server, reading=True), timeout, batch_rows, max_reply_bytes)
    HashCore(options, wanted, [True] * len(wanted))  # refuses a timeout that can't be
    return Hashes(pattern or keys, names, [name not in as_bytes for name in names], options)


def _check_keys(keys: Any) -> None:
    """Refuse what is neither a pattern, nor an iterable of keys, nor a column."""
    if isinstance(keys, (bytes, bytearray, memoryview)):
        raise TypeError("keys is an iterable of keys, or a pattern that is a str, not one key")
    given = ("__iter__", "__arrow_c_stream__", "__arrow_c_array__")
    if isinstance(keys, Mapping) or not any(hasattr(keys, name) for name in given):
        raise TypeError(
            "keys is an iterable of keys, a column of them, or a pattern that is a str, not a "
            f"{type(keys).__name__}"
        )


def _fields(fields: Iterable[str]) -> list[str]:
    """The names of the fields."""
    if isinstance(fields, (str, bytes)) or not hasattr(fields, "__iter__"):
        raise TypeError(f"fields is a list of names, not one {type(fields).__name__}")
    names = [*fields]
    if not names:
        raise ValueError("fields is empty; name one at least")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a field is named by a str, not by {name!r}")
        if "\0" in name:
            raise ValueError(f"{name!r} can't be a column: Arrow has no NUL in names")
    return names


def _binary(binary: bool | Iterable[str], names: list[str]) -> set[str]:
    """The names of the columns that are to be bytes."""
    if isinstance(binary, bool):
        return set(names) if binary else set()
    chosen = {binary} if isinstance(binary, str) else set(binary)
    if unknown := chosen.difference(names):
        words = f" names {min(unknown)!r}, and the columns are {', '.join(names)}"
        raise ValueError(Message(Hint("binary"), words))
    return chosen


class Options(NamedTuple):
    """What is the same for every reading."""

    server: Server
    timeout: float | None
    batch_rows: int
    max_reply_bytes: int | None


@dataclass(frozen=True)
class Pattern:
    """Which keys to look for, and what of them becomes a column.

    Attributes:
        glob: for SCAN.
        column: the name of the column.
        head, tail: how many bytes of a key stand before that, and behind it.
        single: it is a key, and no pattern.
    """

    glob: str
    column: str = "key"
    head: int = 0
    tail: int = 0
    single: bool = False


def as_pattern(text: str, *, single: bool = False) -> Pattern:
    """Read ``user:*`` or ``user:{id}``; or also a single key.

    Raises:
        ValueError: it is neither.
    """
    literal = [""]
    names = []
    for piece in PIECES.finditer(text):
        if piece[1] is not None:
            names.append(piece[1])
            literal.append("")
        elif piece[0] in ("{", "}"):
            raise ValueError(f"a brace of {text!r} is alone; write '{{{{' or '}}}}' for a literal")
        else:
            literal[-1] += piece[0][0] if piece[0] in ("{{", "}}") else piece[0]
    if len(names) > 1 or any(not name or name[0] == "*" or "!" in name for name in names):
        raise ValueError(f"{text!r} is no pattern: it has one name in braces, as in 'user:{{id}}'")
    if names:
        before, after = literal
        glob = f"{_escaped(before)}*{_escaped(after)}"
        return Pattern(glob, names[0], len(before.encode()), len(after.encode()))
    if not GLOB.search(literal[0]):
        if single:
            return Pattern(literal[0], single=True)
        raise ValueError(
            f"{text!r} is one key, and keys is a pattern, such as 'user:*' or 'user:{{id}}', or an "
            "iterable of keys: put a single key in a list"
        )
    return Pattern(literal[0])


def _escaped(text: str) -> str:
    return GLOB.sub(r"\\\1", text)


class Hashes:
    """Hashes as columns, read while they are taken: what ``fetch_hashes`` gives.

    Anything that takes Arrow data takes it. It can be taken again, and then is read anew, unless
    the keys were an iterator. As an iterable it gives the rows, each a dict: so
    ``pandas.DataFrame(rows)`` is right, and ``pandas.DataFrame.from_arrow(rows)`` faster. polars
    makes the columns of a DataFrame in ``polars.DataFrame(rows)``, and in
    ``polars.from_arrow(rows)`` a Series of structs, as of any stream.

    Attributes:
        names: of the columns.
        rows: how many have been read, in the last reading.
        nbytes: bytes of replies, likewise.
        error: what ended the last reading, where it was an exception.
    """

    def __init__(
        self, keys: Pattern | Keys, names: list[str], text: list[bool], options: Options
    ) -> None:
        self.names = names
        self.rows = self.nbytes = 0
        self.error: BaseException | None = None
        self._keys = keys
        self._text = text
        self._options = options
        self._taken = False
        self._readings: list[ref[Generator[StringBatch, None, None]]] = []

    def __repr__(self) -> str:
        return f"<fastresp.Hashes of {', '.join(self.names)}>"

    def __arrow_c_schema__(self) -> object:
        return schema(self.names, self._text)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the batches as an Arrow stream; the first is read when it is asked for."""
        return stream(self.names, self._text, self.batches())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with closing(self.batches()) as batches:
            for batch in batches:
                for row in zip(*batch.columns, strict=True):
                    yield dict(zip(self.names, row, strict=True))

    def batches(self) -> Generator[StringBatch, None, None]:
        """Give the batches, each an object with ``__arrow_c_array__``."""
        reading = self._read()
        self._readings = [each for each in self._readings if each() is not None]
        self._readings.append(ref(reading))
        return reading

    def close(self) -> None:
        """End the readings that are going on: their connections are closed."""
        for each in self._readings:
            reading = each()
            if reading is not None:
                reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self) -> tuple[HashCore, Found | None, Any]:
        """Begin a reading: its core, what finds the keys of a pattern, and otherwise the keys.

        Raises:
            SourceError: the keys were an iterator that has been read.
        """
        self.rows = self.nbytes = 0
        self.error = None
        fields = slice(1 if isinstance(self._keys, Pattern) else 0, None)
        core = HashCore(self._options, self.names[fields], self._text[fields])
        if isinstance(self._keys, Pattern):
            core.found = True
            return core, Found(self._keys, core), None
        if self._taken and iter_of(self._keys) is self._keys:
            raise SourceError("the keys were an iterator, and were read; give a list of them")
        self._taken = True
        return core, None, single(self._keys)

    def counted(self, batch: StringBatch, core: HashCore, found: Found | None) -> StringBatch:
        """Count a batch, and add the column of the keys that a pattern has found."""
        whole = batch if found is None else found.added(batch, text=self._text[0])
        self.rows += len(whole)
        self.nbytes = core.received
        return whole

    def _read(self) -> Generator[StringBatch, None, None]:
        try:
            core, found, keys = self.begin()
            # Closed here: a traceback that somebody keeps would keep their connections open.
            with ExitStack() as stack:
                if found is not None:
                    pages = stack.enter_context(closing(found.pages()))
                    keys = chain.from_iterable(pages)
                for batch in stack.enter_context(closing(core.batches(keys))):
                    yield self.counted(batch, core, found)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


def single(keys: Any) -> Any:
    """The keys; refuse a row of several values in the place of one.

    Raises:
        TypeError: there is one.
    """
    if hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__"):
        return keys
    # Of a list: 20 ns a key for their types, where a look at each is 116.
    if isinstance(keys, list) and not any(issubclass(kind, ROWS) for kind in set(map(type, keys))):
        return keys
    return map(_one, keys)


def _one(key: Any) -> Any:
    if isinstance(key, ROWS) and len(key) != 1:
        raise TypeError(f"a key is one value, not {len(key)}: {key!r}")
    return key


def iter_of(keys: Any) -> Any:
    """What iterates over them; None for columns."""
    return iter(keys) if hasattr(type(keys), "__iter__") else None


class HashCore(ReplyCore):
    """A pipeline of HMGET whose replies become columns.

    Args:
        options: of the reading.
        fields: their names.
        text: for each whether it is to be UTF-8.
    """

    def __init__(self, options: Options, fields: list[str], text: list[bool]) -> None:
        super().__init__(options.server, decode=None, on_error="raise", timeout=options.timeout)
        self.batch_rows = options.batch_rows
        # The keys were found by a pattern.
        self.found = False
        self.fields = fields
        self.columns = ReplyColumns(fields, text=text, max_reply_bytes=options.max_reply_bytes)
        self.sink = self.columns
        self.template = Template("HMGET {0} " + " ".join(map(_quoted, fields)))

    def understand(self) -> None:
        """Acknowledge the replies that came.

        Raises:
            CommandError: one was an error.
            DecodeError: a text among them is none.
        """
        columns, sent = self.columns, self.window.sent
        stream = self.stream
        assert stream is not None
        for index, words in columns.errors:
            text = words.decode(errors="replace")
            if index < sent:
                if self.found and text.startswith("WRONGTYPE "):
                    continue  # it was a hash when SCAN found it, and is a row of nulls
                raise CommandError(f"{text} (key {shown_key(self._key(index))})", index=index)
            self.last_words = shortened(text)
        if columns.invalid is not None:
            raise self._not_text(*columns.invalid)
        if columns.replies > sent and stream.lost is None:
            stream.lost = ProtocolError("a reply more than commands", self.received)
        self.acknowledge(min(columns.replies, sent))

    def batches(self, keys: Any) -> Generator[StringBatch, None, None]:
        """Send the keys, and yield batches of their rows.

        Raises:
            TransportError, TransportTimeout: the server can't be used, or was lost.
        """
        writer, source = encoding(keys, self.template, nulls="error", default=None)
        try:
            check_single(writer)
            connection, answers = self.server.open(self.timeout)
            self.attach(connection)
            writer.max_bulk_bytes = answers.max_bulk_bytes
            for item in self.reading():
                if isinstance(item, Wait):
                    assert self.stream is not None
                    wait_for([(self.stream, item)])
                elif isinstance(item, More):
                    with advising():
                        self.ended = not writer.fill(source)
                    chunk = writer.take()
                    if chunk is not None:
                        self.window.add(chunk)
                    self.touch()
                else:
                    yield item
        except LostConnection:
            raise self.loss() from None
        finally:
            self.detach()
            release(source)

    def reading(self) -> Iterator[Wait | More | StringBatch]:
        """Yield what is to be done next: wait, add more keys, or take this batch.

        Raises:
            LostConnection, TransportTimeout: as ``step()`` and ``wait()``.
        """
        while not (self.ended and self.finished):
            while not self.ended and not self.window.unsent:
                yield More()
            before = self.window.acknowledged
            self.step()
            yield from self.taken()
            if self.window.acknowledged == before and not self.finished:
                yield self.wait()
        yield from self.taken(rest=True)

    def taken(self, *, rest: bool = False) -> Iterator[StringBatch]:
        """The batches that are full; and the rest, if it is the end."""
        columns = self.columns
        while rest or columns.rows >= self.batch_rows or columns.nbytes >= BATCH_BYTES:
            batch = columns.take(self.batch_rows)
            if batch is None:
                return
            yield batch
            # The time that others took of it does not count.
            self.touch()

    def _key(self, index: int) -> bytes:
        return arguments(self.window.command(index)[1])[1]

    def _not_text(self, row: int, column: int) -> DecodeError:
        key, field = self._key(row), self.fields[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)


def scan(
    server: Server, connection: Any, glob: str, kind: str | None
) -> Generator[list[bytes], None, None]:
    """Find keys with SCAN; the next are asked for ahead.

    Args:
        connection: of its own, which is closed at the end.
        kind: the type of the keys, as TYPE calls it; None for any.

    Raises:
        CommandError: the server refuses it.
        TransportError, TransportTimeout: the server was lost, or does not answer.
    """
    import redis

    how: tuple[Any, ...] = ("MATCH", glob, "COUNT", SCAN_COUNT)
    if kind is not None:
        how += ("TYPE", kind)
    try:
        connection.send_command("SCAN", 0, *how)
        cursor = None
        while cursor != b"0":
            if not is_own(connection):
                raise TransportError(str(Inherited("connection")))
            cursor, found = _page_of(connection.read_response())
            if cursor != b"0":
                connection.send_command("SCAN", cursor, *how)
            yield found
    except ProtocolError as error:
        raise TransportError(f"can't read the server at {server}: {error.args[0]}") from error
    except redis.ResponseError as error:
        raise CommandError(f"SCAN: {error}") from error
    except (redis.RedisError, OSError) as error:
        raise server.failure(error) from error
    finally:
        connection.disconnect()


def check_single(writer: Any) -> None:
    """Refuse keys of several columns.

    Raises:
        SourceError: there are several.
    """
    columns: Sequence[str] = getattr(writer, "names", ())
    if len(columns) > 1:
        raise SourceError(
            f"keys is one column, not {len(columns)}, {', '.join(columns)}: give one of them, such "
            f"as keys[{columns[0]!r}]"
        )


@contextmanager
def advising() -> Iterator[None]:
    """Replace advice that names options of a load, which a fetch does not have."""
    try:
        yield
    except EncodeError as error:
        error.args = (with_advice(error.message, "a key is a str, bytes or a number"),)
        raise


class Found:
    """The keys of a pattern, and the column of them.

    Args:
        pattern: which keys.
        core: whose server is asked, over a connection of its own.
    """

    def __init__(self, pattern: Pattern, core: HashCore) -> None:
        self.pattern = pattern
        self.core = core
        # Those whose rows were not given yet.
        self.kept: list[bytes] = []
        self._connection: Any = None

    def pages(self) -> Generator[list[bytes], None, None]:
        """The keys; while some are taken the next are looked for.

        Raises:
            CommandError, TransportError, TransportTimeout: as ``scan()``.
        """
        server, pattern = self.core.server, self.pattern
        if pattern.single:
            self.kept.append(pattern.glob.encode())
            yield [*self.kept]
            return
        self._connection = server.connect(self.core.timeout)
        with closing(scan(server, self._connection, pattern.glob, "hash")) as found:
            for page in found:
                check_keys_of(server, pattern, page)
                self.kept += page
                yield page

    def disconnect(self) -> None:
        """End a SCAN that another thread waits for."""
        if self._connection is not None and is_own(self._connection):
            with suppress(OSError):
                self._connection._sock.shutdown(socket.SHUT_RDWR)

    def added(self, batch: StringBatch, *, text: bool) -> StringBatch:
        """The batch with the column of the keys before the others.

        Raises:
            DecodeError: one is not UTF-8.
        """
        keys, self.kept = self.kept[: len(batch)], self.kept[len(batch) :]
        pattern = self.pattern
        try:
            column = string_column(keys, head=pattern.head, tail=pattern.tail, text=text)
        except UnicodeDecodeError as error:
            key = next(key for key in keys if not is_text(key))
            raise not_text(f"key {shown_key(key)}", key, pattern.column) from error
        return StringBatch([pattern.column, *batch.names], [column, *batch.columns])


def _page_of(reply: Any) -> tuple[bytes, list[bytes]]:
    """The cursor and the keys of an answer to SCAN.

    Raises:
        ProtocolError: it is none.
    """
    match reply:
        case [bytes() as cursor, list() as keys] if all(type(key) is bytes for key in keys):
            return cursor, keys
    raise ProtocolError(f"it answers SCAN by {shown_reply(reply)}", 0)


def check_keys_of(server: Server, pattern: Pattern, keys: list[bytes]) -> None:
    """Refuse keys that are too short for the pattern.

    Raises:
        TransportError: one is.
    """
    for key in keys:
        if len(key) < pattern.head + pattern.tail:
            raise TransportError(
                f"can't read the server at {server}: it answers SCAN by the key {shown_key(key)}"
            )


def not_text(what: str, key: bytes, column: str) -> DecodeError:
    message = Message(
        f"{what} is not UTF-8; name {column!r} ", Hint("binary", ..., "in"), " for its bytes"
    )
    return DecodeError(message, key=key, column=column)


def is_text(value: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _quoted(text: str) -> str:
    """A word of a template that stands for itself."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}") + '"'


def shown_key(key: bytes) -> str:
    """A key for a message: its beginning if it is long."""
    if len(key) > SHOWN_BYTES:
        return f"{key[:SHOWN_BYTES]!r}..."
    return repr(key.decode() if is_text(key) else key)
