"""Fields of hashes fetched as columns: HMGET for each key, without a Python object for a value."""

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
from ..outcome.excerpts import shortened
from ..outcome.messages import with_advice
from ..resp.split import arguments
from ..server.options import Options
from ..server.settings import Server
from ..sources.chunks import Chunks
from ..transports.connection import LostConnection
from ..transports.driver import Blocking, Giving, Wanted, next_chunk, open_source
from .key_pattern import not_text, shown_key
from .reply_columns import ReplyColumns
from .reply_core import ReplyCore

__all__ = ["FetchOptions", "HashCore", "iter_of", "single"]

# A batch ends here, too, however few rows it has.
BATCH_BYTES = 32 << 20
# What holds several values, where it is not a key.
ROWS = (tuple, list)


class FetchOptions(NamedTuple):
    """What is the same for every reading."""

    server: Server
    timeout: float | None
    batch_rows: int
    max_reply_bytes: int | None


class HashCore(ReplyCore):
    """A connection for HMGETs whose replies become columns.

    Args:
        options: of the reading.
        fields: their names.
        text: for each whether it is to be UTF-8.
    """

    def __init__(self, options: FetchOptions, fields: list[str], text: list[bool]) -> None:
        super().__init__(options.server, decode=None, on_error="raise", timeout=options.timeout)
        self.batch_rows = options.batch_rows
        # The keys were found by a pattern.
        self.found = False
        self.fields = fields
        self.columns = ReplyColumns(fields, text=text, max_reply_bytes=options.max_reply_bytes)
        self.sink = self.columns
        self.template = Template("HMGET {0} " + " ".join(map(_quoted, fields)))

    def chunks_of(self, keys: Any, kind: type[Chunks] = Chunks) -> Chunks:
        """What makes commands of keys."""
        return kind(keys, self.template, Options(timeout=self.timeout))

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
            stream.give_up(ProtocolError("a reply more than commands", self.received))
        self.acknowledge(min(columns.replies, sent))

    def fetching(self, chunks: Chunks) -> Generator[Wanted | Giving, Any, None]:
        """Fetch as a core: connect, send the keys, and give batches of their rows.

        Raises:
            TransportError, TransportTimeout: the server can't be used, or was lost.
        """
        try:
            yield from open_source(chunks)
            check_single(chunks.writer)
            yield from self.connecting(chunks)
            yield from self._reading(chunks)
        except LostConnection:
            raise (yield Blocking(self.loss)) from None
        finally:
            self.detach()
            chunks.close()

    def _reading(self, chunks: Chunks) -> Generator[Wanted | Giving, Any, None]:
        """Send the keys, and give batches of their rows.

        Raises:
            LostConnection, TransportTimeout: as ``step()`` and ``wait()``.
        """
        while not (self.ended and self.finished):
            while not self.ended and not self.window.unsent:
                with advising():
                    chunk = yield from next_chunk(chunks, self)
                self.ended = chunk is None
                if chunk is not None:
                    self.window.add(chunk)
                self.touch()
            before = self.window.acknowledged
            self.step()
            yield from self._taken()
            if self.window.acknowledged == before and not self.finished:
                assert self.stream is not None
                yield [(self.stream, self.wait())]
        yield from self._taken(rest=True)

    def _taken(self, *, rest: bool = False) -> Iterator[Giving]:
        """The batches that are full; and the rest, if it is the end."""
        columns = self.columns
        while rest or columns.rows >= self.batch_rows or columns.nbytes >= BATCH_BYTES:
            batch = columns.take(self.batch_rows)
            if batch is None:
                return
            yield Giving([batch])
            # The time that others took of it does not count.
            self.touch()

    def _key(self, index: int) -> bytes:
        return arguments(self.window.command(index)[1])[1]

    def _not_text(self, row: int, column: int) -> DecodeError:
        key, field = self._key(row), self.fields[column]
        return not_text(f"field {field!r} of key {shown_key(key)}", key, field)


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


def _quoted(text: str) -> str:
    """A word of a template that stands for itself."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("{", "{{").replace("}", "}}") + '"'
