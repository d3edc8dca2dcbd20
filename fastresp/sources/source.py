"""Recognize a source (rows, commands, columns, or keys of a copy) and choose its encoder."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ..encode.fields import Absent, Field, Items, Pairs, Row
from ..encode.template import VECTORS, Template, TemplateLike, as_template
from ..encode.writer import CHUNK_BYTES, Writer
from ..outcome.errors import CheckpointError, SourceError, TemplateError
from ..outcome.messages import Hint, Message, iterator_of
from ..resp.buffer import Chunk
from ..resp.commands import POSITIONS
from ..server.options import Options, Rate
from .files.input import name_of
from .files.paths import names_no_format
from .files.read_ahead import SourcePass
from .files.read_source import read
from .files.reading import ColumnRequest, Need
from .files.resp import CommandSource, RespEncoder, RespFile
from .files.table import Table
from .several_tables import frames_of

if TYPE_CHECKING:
    from ..encode.payload.restorer import Restorer

__all__ = [
    "Data", "Encoder", "Entries", "EntryRow", "as_source", "encoding", "fewer_rows", "files_of",
    "in_parts", "is_columns", "known_rows", "lines_of", "release", "released", "row_writer",
]  # fmt: skip

# The minimum size of a chunk with a rate limit: a few rows, so that not every row is a chunk.
MIN_CHUNK_BYTES = 2048
# With a rate limit, a chunk has at most the bytes that the limit allows in this many seconds.
LIMITED_S = 0.1
# A list of rows ends at this many keys, or at this many bytes of payloads.
PART_KEYS = 2_000
PART_BYTES = 8 << 20

# A key, the time of its expiry in ms since 1970 (0 for none), and the payload of its value.
EntryRow: TypeAlias = tuple[bytes, int, bytes]


class ArrowStreaming(Protocol):
    """An object that exports its columns as a stream: a DataFrame, table or reader."""

    def __arrow_c_stream__(self, requested_schema: Any = None, /) -> Any: ...


class ArrowHolding(Protocol):
    """An object that exports its columns as one batch."""

    def __arrow_c_array__(self, requested_schema: Any = None, /) -> Any: ...


# The value of next() after the last row.
MISSING = object()

Data: TypeAlias = Iterable[Any] | ArrowStreaming | ArrowHolding | RespFile | str | os.PathLike[str]


class Encoder(Protocol):
    """Encodes a source as chunks, which are buffers of commands: see Writer."""

    max_bulk_bytes: int | None

    @property
    def rows(self) -> int: ...
    @property
    def commands(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def nulls_skipped(self) -> int: ...
    def chunks(self, source: Any, /) -> Iterator[Chunk]: ...
    def fill(self, source: Any, /) -> bool: ...
    def take(self) -> Chunk | None: ...


def as_source(data: Any, template: Template | None) -> Any:
    """Turn paths or a query into a Table, and several tables into one stream of columns.

    An open file becomes its lines, without line ends. Any other source is returned unchanged.

    Args:
        template: decides the format of files with unknown extensions.

    Raises:
        OSError, ValueError: the file does not exist, or its format is unknown.
        ImportError: the source needs pyarrow, which is not installed.
    """
    if isinstance(data, str | os.PathLike):
        try:
            return read(data, format=format_for(data, template))
        except FileNotFoundError as error:
            words = data.split(maxsplit=1) if isinstance(data, str) else ()
            if len(words) == 2 and words[0].upper().encode(errors="replace") in POSITIONS:
                error.add_note(
                    "fastresp: a str as data is a path or a query; pass one command as a list with "
                    "a tuple of its arguments: [('SET', 'key', 'value')]"
                )
            raise
    if isinstance(data, list | tuple) and data and all(isinstance(p, os.PathLike) for p in data):
        return read(list(data), format=format_for(data, template))
    if hasattr(data, "__arrow_c_stream__"):
        return data
    data = lines_of(data)
    columns = frames_of(data)
    return data if columns is None else columns


def lines_of(data: Any) -> Any:
    """Return the lines of an open file without their line ends; anything else unchanged.

    A line end is ``\\n``, as for files of the format ``"lines"``.
    """
    if not (hasattr(data, "readline") and hasattr(data, "readable")) or hasattr(data, "__anext__"):
        return data
    if getattr(data, "closed", False):
        raise SourceError(f"{name_of(data)} is closed; open it again")
    return (line.removesuffix(b"\n" if isinstance(line, bytes) else "\n") for line in data)


def format_for(source: Any, template: Template | None) -> Literal["lines"] | None:
    """Return "lines" if no file has a known extension and the template has {line}."""
    fields = () if template is None else _fields(template)
    if any(field.path[:1] == ("line",) for field in fields) and names_no_format(source):
        return "lines"
    return None


def encoding(
    data: Any, template: TemplateLike, options: Options, start_row: int = 0
) -> tuple[Encoder, Any]:
    """Return the encoder for a source, and the rows or columns to pass to the encoder.

    Args:
        start_row: the first row to encode.

    Raises:
        TypeError: the source is not an iterable of rows; a template was passed for commands, or
            none for columns; or ``default=`` was passed for columns or RESP.
        CheckpointError: the source has fewer than ``start_row`` rows.
    """
    columns = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    if options.default is not None and isinstance(data, RespFile):
        raise TypeError(f"{data.name} contains whole commands; leave out default=")
    if isinstance(data, CommandSource) and template is not None:
        raise TypeError(f"{data.name} contains whole commands; leave out the template")
    if isinstance(data, RespFile):
        return RespEncoder(data), data.blocks(_chunk_bytes(options.rate))
    if columns:
        return _columns(data, template, options, start_row)
    _check(data)
    writer = row_writer(template, options)
    writer.start_at(start_row)
    rows = iterator_of(data, "data", "rows or commands")
    if start_row and next(islice(rows, start_row - 1, None), MISSING) is MISSING:
        raise fewer_rows(start_row)
    return writer, rows


def row_writer(template: TemplateLike, options: Options) -> Writer:
    return Writer(
        template_for(template, options),
        nulls=options.nulls,
        default=options.default,
        chunk_bytes=_chunk_bytes(options.rate),
    )


def template_for(template: TemplateLike, options: Options) -> Template | None:
    """Return the template; if the options require it, add commands that delete null fields."""
    found = as_template(template)
    if options.nulls != "delete":
        return found
    if found is None:
        raise ValueError(Message(Hint("nulls", "delete"), " needs a template"))
    return found.deleting()


def _chunk_bytes(rate: Rate | None) -> int:
    """Return the maximum size of a chunk in bytes.

    A slow load needs small chunks: a chunk is sent as a whole even after Ctrl-C, and progress is
    reported once per chunk.
    """
    if rate is None:
        return CHUNK_BYTES
    return min(CHUNK_BYTES, max(MIN_CHUNK_BYTES, rate.bytes_in(LIMITED_S)))


def _check(data: Any) -> None:
    """Refuse bytes and mappings, which can be iterated, but are not iterables of rows."""
    if isinstance(data, (bytes, bytearray)):
        raise TypeError(
            f"data must be an iterable of rows or commands, not one {type(data).__name__}"
        )
    if isinstance(data, Mapping):
        raise TypeError("data must be an iterable of rows; a mapping is one row: put it in a list")


def fewer_rows(count: int) -> CheckpointError:
    """Return the error for a source that has fewer rows than were loaded before."""
    return CheckpointError(
        f"the source has fewer than {count:,} rows, which were loaded before: it is "
        "another source (use another name for another load)"
    )


def _columns(
    data: Any, template: TemplateLike, options: Options, start_row: int
) -> tuple[Encoder, Any]:
    from ..encode.columns.arrow import ArrowStream
    from ..encode.columns.column_writer import ColumnWriter

    if options.default is not None:
        raise TypeError(
            f"default= is for Python objects, and the columns of a {type(data).__name__} are "
            "encoded without them; cast the columns that need it, or pass rows, as returned by "
            "to_dict('records') of pandas, to_dicts() of polars or to_pylist() of pyarrow"
        )
    template = template_for(template, options)
    if template is None:
        raise TypeError(
            f"a {type(data).__name__} has columns and needs a template that makes commands of its "
            "rows, such as 'HSET user:{id} {**}'"
        )
    if isinstance(data, Table):
        loaded = data.for_load(_column_request(template), start_row)
        stream = ArrowStream(loaded, loaded.following)
        read, empty = loaded.source_pass, not loaded.arrow_schema.names
    else:
        stream = ArrowStream(data)
        read, empty = SourcePass(), _has_nothing(data)
    if empty:
        stream.release_columns()
        return row_writer(template, options), iter(())
    try:
        writer = ColumnWriter(
            template,
            stream,
            nulls=options.nulls,
            chunk_bytes=_chunk_bytes(options.rate),
            of_files=isinstance(data, Table),
        )
        writer.start_at(start_row, read.first_row)
        _check_later(template, read, options)
        return writer, stream
    except BaseException:
        stream.release_columns()
        raise


def _has_nothing(data: Any) -> bool:
    """Return whether a frame has neither columns nor rows, as if made from an empty list."""
    known = hasattr(data, "columns") and hasattr(data, "__len__")
    return known and not len(data.columns) and not len(data)


def _check_later(template: Template, read: SourcePass, options: Options) -> None:
    """Before rows are sent, refuse a template that does not fit the columns of a later file."""
    if not read.schemas:
        return
    import pyarrow as pa

    from ..encode.columns.arrow import ArrowStream
    from ..encode.columns.column_writer import ColumnWriter

    checked: list[Any] = []
    for file, schema in read.schemas:
        if schema not in checked:
            try:
                empty = pa.RecordBatchReader.from_batches(schema, [])  # allows any type
                ColumnWriter(template, ArrowStream(empty), nulls=options.nulls)
            except TemplateError as error:
                error.set_file(file, 0)
                raise
            checked.append(schema)


def _column_request(template: Template) -> ColumnRequest:
    """Return which parts of a file's rows a template needs."""
    parts = _fields(template)
    fields = [part for part in parts if not isinstance(part, Row)]
    pairs = [field for field in fields if isinstance(field, Pairs)]
    names = [field.name for field in fields if field.name is not None and len(field.path) == 1]
    # HDEL leaves out the fields that the same row's HSET names. The data may lack them, because
    # HSET may set a field to a constant.
    left_out = [each for field in pairs if not isinstance(field, Absent) for each in field.left_out]
    named = [each for each in fields + left_out if not isinstance(each, Pairs)]
    needs = [
        Need(each.path, isinstance(each, Items), each.convert or "", each.convert in VECTORS)
        for each in named
    ]
    return ColumnRequest(
        columns=None if pairs or len(names) < len(fields) else frozenset(names),
        document=len(fields) < len(parts),
        named=frozenset(each.path[0] for each in named if each.position < 0 or each.head),
        needs=tuple(each for each in needs if len(each.path) > 1 or each.items or each.vector),
        keys=frozenset(str(field.key) for field in named if len(field.path) > 1),
        pairs=bool(pairs),
        positions=max(((field.head or field).position + 1 for field in named), default=0),
    )


def _fields(template: Template) -> list[Field]:
    parts = (part for command in template.commands for parts in command for part in parts)
    return [part for part in parts if isinstance(part, Field)]


def is_columns(source: Any) -> bool:
    return hasattr(source, "release_columns")


def release(source: Any) -> None:
    """Release the columns of a source; do nothing for rows, which belong to the user."""
    if is_columns(source):
        source.release_columns()


def known_rows(data: Any) -> int | None:
    """Return a source's number of rows; None if unknown. Call before any row is consumed."""
    # Check the type: a data frame may have a column named "rows".
    rows = data.rows if hasattr(type(data), "rows") else None
    return rows if isinstance(rows, int) else operator.length_hint(data) or None


def files_of(data: Any) -> list[str]:
    if isinstance(data, Table):
        return data.files
    return [data.name] if isinstance(data, CommandSource) else []


@contextmanager
def released(source: Any) -> Iterator[None]:
    """Release the columns of a source at the end, even after an exception."""
    try:
        yield
    finally:
        release(source)


class Entries:
    """Keys with their values, as rows for RESTORE. Iterate once, after ``prepare()``.

    Reading may block, so an event loop reads in a thread.

    Attributes:
        restorer: adapts payloads to the target.
        rows: approximate number of keys; None if unknown.
        unchanged: number of keys left out because the target already has them.
        valkey: whether the source is Valkey, or a file of Valkey; set by ``open()``.
        databases: see ``databases_of()``; set by ``open()`` of a server, empty for a file.
    """

    restorer: Restorer
    valkey = False
    databases: frozenset[str] = frozenset()
    rows: int | None = None
    unchanged = 0

    def __init__(self) -> None:
        self._reading: Generator[list[EntryRow], None, None] | None = None
        self._note: Callable[[EntryRow], EntryRow] | None = None

    def open(self) -> None:
        """Check that the source can be read, before anything is sent; blocks."""

    def prepare(self, restorer: Restorer) -> None:
        """Set the restorer, once the target's version is known."""
        self.restorer = restorer

    def note(self, note: Callable[[EntryRow], EntryRow]) -> None:
        """Set a function that is called with each row, and must return the row."""
        self._note = note

    @property
    def watched(self) -> bool:
        """Whether ``note()`` was called."""
        return self._note is not None

    def watch(self, row: EntryRow) -> None:
        """Call ``note()``'s function with a row that is not yielded; its payload is a digest."""
        if self._note is not None:
            self._note(row)

    def __iter__(self) -> Iterator[EntryRow]:
        self._reading = self._checked()
        rows = chain.from_iterable(self._reading)
        return rows if self._note is None else map(self._note, rows)

    def _checked(self) -> Generator[list[EntryRow], None, None]:
        """Yield lists of rows; before raising the error of a bad key, yield all earlier rows."""
        for rows in self._read():
            yield rows
            if self.restorer.error is not None:
                raise self.restorer.error

    def _read(self) -> Iterator[list[EntryRow]]:
        """Yield lists of rows; the restorer is set when the first row is requested."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            with suppress(ValueError):  # another thread is reading a row
                self._reading.close()


def in_parts(rows: Iterable[EntryRow]) -> Generator[list[EntryRow], None, None]:
    """Yield rows in lists of limited size; yield all earlier rows before raising a SourceError."""
    part, size = list[EntryRow](), 0
    try:
        for row in rows:
            part.append(row)
            size += len(row[2])
            if len(part) >= PART_KEYS or size >= PART_BYTES:
                yield part
                part, size = [], 0
    except SourceError:
        yield part
        raise
    yield part
