"""``read``: files and queries as a stream of columns."""

from __future__ import annotations

import glob
import os
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from typing import IO, Any, Literal, Self, TypeAlias, overload

from ...outcome.errors import SourceError
from ...outcome.messages import Hint, Message
from .input import check_not_read, name_of
from .read_ahead import Ahead, Run
from .reading import (
    FileOptions,
    Reading,
    Wanted,
    unfit,
)
from .resp import RespFile

__all__ = ["Format", "SUFFIXES", "Source", "Table", "imported", "read"]

Path: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = Path | Sequence[Path] | IO[bytes]
Format: TypeAlias = Literal["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp"]

AS_IT_IS = FileOptions()
FORMATS = ("csv", "tsv", "jsonl", "lines", "parquet", "arrow", "resp")
SUFFIXES = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
PACKED_SUFFIXES = (".gz", ".zst", ".bz2")
DELIMITER = '[^"\r\n\0\x80-\U0010ffff]'
QUERY = re.compile(r"\s*(select|with|from|values)[\s('\"*]", re.IGNORECASE)


@overload
def read(
    source: Path | IO[bytes],
    *,
    format: Literal["resp"],
    limit: int | None = None,
    skip_truncated: bool = False,
) -> RespFile: ...
@overload
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Literal["csv", "tsv", "jsonl", "lines", "parquet", "arrow"],
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] = (),
    bad_rows: Path = "error",
    limit: int | None = None,
) -> Table: ...
@overload
def read(
    source: Source,
    *,
    sql: str,
    format: None = None,
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] = (),
    bad_rows: Path = "error",
    limit: int | None = None,
) -> Table: ...
@overload
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Format | None = None,
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] = (),
    bad_rows: Path = "error",
    limit: int | None = None,
    skip_truncated: bool = False,
) -> Table | RespFile: ...
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Format | None = None,  # noqa: A002
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] = (),
    bad_rows: Path = "error",
    limit: int | None = None,
    skip_truncated: bool = False,
) -> Table | RespFile:
    """Read files, or the rows of a query, as columns to load; or a file of RESP as commands.

    Nothing is held: a thread reads some megabytes ahead of what takes the rows, whatever their
    number.

    Args:
        source: a path; a pattern such as ``data/*.parquet``, whose files are read in the order of
            their names; a list of paths; a file object open for reading bytes, such as
            ``sys.stdin.buffer``; or a query that names its files itself, such as ``SELECT id, name
            FROM 'flights.parquet'``.
        sql: a query over the source, which it calls ``source``.
        format: ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"lines"``, ``"parquet"``, ``"arrow"`` or
            ``"resp"``, where the name of a path, or the first bytes of a file object, do not tell.
            Files of text may be compressed with gzip, Zstandard or bzip2.
        delimiter: the character between the fields of CSV, where that is no comma; of lines what
            ends each of them, where that is no line end.
        header: whether the first line of CSV names the columns. Without one they are
            ``column_1``, ``column_2``, and so on.
        columns: names for the columns of CSV that has no line of them.
        encoding: of a file of text, where that is not UTF-8, such as ``"latin-1"``.
        null_values: fields of CSV that are nulls, besides empty ones, where they are not quoted.
        bad_rows: what a row of CSV or JSON lines does that can't be read: ``"error"``;
            ``"skip"`` leaves it out, and ``Table.bad_rows`` counts it; or the path of a file that
            takes these rows as they stand.
        limit: stop after so many rows.
        skip_truncated: of a file of RESP, load what comes before an end in the midst of a command.

    Every column of CSV is text as it stands in the file: ``00123`` and ``1.10`` stay so, and bytes
    that are not UTF-8 pass. An empty field is a null, and ``""`` an empty string, as in
    PostgreSQL's COPY. Of JSON lines, or one JSON array, numbers keep their text when they are
    loaded, and ``{*!json}`` sends a row as it stands. Elsewhere their columns are of 64-bit
    integers, decimals of up to 38 digits or 64-bit floats. A fraction becomes the nearest float; an
    integer that its column can't hold is an error, and so is a number that would become infinite.
    A missing key is a null. The first 2 MiB have to show every column and its type. Lines have one
    column of bytes, ``line``.

    In a query DuckDB reads CSV and Parquet and gives types to their columns, but not where they
    come from a file object or have options that DuckDB does not know. JSON lines in ``source`` are
    read as above, and those that a query names itself by DuckDB, which makes floats of large
    integers. Times are in UTC.

    A file of RESP, such as ``dump`` writes, is one path or one file object: see RespFile.

    Files have the same columns, in any order; where their beginnings tell, others are an error
    before the first is read. One without rows is none to load; CSV without even a
    first line is an error.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option can't be, or the name of a file does not tell its format.
        SourceError: later, when the table is loaded: the file is not of its format, a row has too
            many fields or too few, files differ in their columns, or the query fails.
        ImportError: pyarrow, or DuckDB for a query, is not installed.
    """
    if format is not None and format not in FORMATS:
        words = f" is one of {', '.join(map(repr, FORMATS))}, not {format!r}"
        raise ValueError(Message(Hint("format"), words))
    if limit is not None and limit < 0:
        raise ValueError(f"limit is a number of rows of 0 or more, not {limit}")
    options = _options(format, delimiter, header, columns, encoding, null_values, bad_rows)
    if format == "resp" or (format is None and _is_resp(source)):
        if sql is not None:
            raise ValueError("a file of RESP holds commands, and no columns for a query")
        if options != AS_IT_IS:
            words = " is for files of text, and this is a file of RESP"
            raise ValueError(Message(Hint(_given(options), ...), words))
        return RespFile(_one(source), limit=limit, skip_truncated=skip_truncated)
    if skip_truncated:
        option, resp = Hint("skip_truncated"), Hint("format", "resp")
        raise ValueError(Message(option, " is for files of RESP: give ", resp, " if this is one"))
    imported("pyarrow")
    if sql is None and isinstance(source, str) and QUERY.match(source) and not _exists(source):
        if options != AS_IT_IS:
            words = " is for a file; in a query the options of read_csv(...) say it"
            raise ValueError(Message(Hint(_given(options), ...), words))
        return Table([], [], sql=source, limit=limit)
    files = _files(source)
    kinds = [format or _named(file) for file in files]
    for kind in kinds:
        message = None if kind is None else unfit(kind, options)
        if message is not None:
            raise ValueError(message)
    table = Table(files, kinds, sql=sql, options=options, limit=limit)
    if options.bad_rows not in ("error", "skip"):
        check_not_read(options.bad_rows, table.files)
    return table


def _options(
    format: Format | None,  # noqa: A002
    delimiter: str | None,
    header: bool,
    columns: Sequence[str] | None,
    encoding: str | None,
    null_values: Sequence[str],
    bad_rows: Path,
) -> FileOptions:
    """What the user says of files of text.

    Raises:
        ValueError: it can't be.
    """
    ends_lines = delimiter == "\0" and format == "lines"
    if delimiter is not None and not ends_lines and not re.fullmatch(DELIMITER, delimiter):
        words = f" is one ASCII character and no quote, not {delimiter!r}"
        raise ValueError(Message(Hint("delimiter"), words))
    if encoding is not None:
        try:
            "".encode(encoding)
        except LookupError:
            words = f" is one that Python knows, such as 'latin-1', not {encoding!r}"
            raise ValueError(Message(Hint("encoding"), words)) from None
    for name, texts in (("columns", columns), ("null_values", null_values)):
        if isinstance(texts, str):
            raise TypeError(f"{name} is a list of texts, not one: give [{texts!r}]")
    if columns is not None and not columns:
        raise ValueError(Message(Hint("columns"), " names at least one column"))
    return FileOptions(
        delimiter,
        header and columns is None,
        None if columns is None else tuple(columns),
        encoding,
        tuple(null_values),
        bad_rows,
    )


def _given(options: FileOptions) -> str:
    """The first option that is given; columns come before header, which they take away."""
    names = [
        each.name
        for each in fields(options)
        if getattr(options, each.name) != getattr(AS_IT_IS, each.name)
    ]
    return "columns" if names[0] == "header" and options.columns is not None else names[0]


class Table:
    """Columns that are read as they are loaded: what ``read`` gives.

    Anything that takes Arrow data takes it, such as ``pyarrow.table(table)``. Each time a table of
    paths or of a query is taken it is read anew; a file object can be read once.

    Attributes:
        files: the paths; of a file object its name.
        error: what ended the last reading, where it was an exception; an Arrow stream hands on
            no more than its text.
    """

    def __init__(
        self,
        files: list[Any],
        kinds: list[str | None],
        *,
        sql: str | None = None,
        options: FileOptions = AS_IT_IS,
        limit: int | None = None,
    ) -> None:
        self._sources = files
        self._kinds = kinds
        self._sql = sql
        self._options = options
        self._limit = limit
        self._run: Run | None = None
        self._ahead: Ahead | None = None
        self._rows: int | Literal[False] | None = False

    def __repr__(self) -> str:
        what = [*self.files] if self._sql is None else [*self.files, self._sql]
        return f"<fastresp.Table of {', '.join(what)}>"

    @property
    def files(self) -> list[str]:
        """The paths; of a file object its name."""
        return [file if isinstance(file, str) else name_of(file) for file in self._sources]

    @property
    def error(self) -> BaseException | None:
        """What ended the last reading, where it was an exception."""
        return None if self._ahead is None else self._ahead.error

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the metadata of every file say so.

        Raises:
            SourceError, OSError: a file can't be read.
        """
        if self._rows is False:
            self._rows = self._counted()
        return self._rows

    def __length_hint__(self) -> int:
        rows = self.rows
        return NotImplemented if rows is None else rows

    def fraction(self, rows: int | None = None) -> float | None:
        """How much of the files the first rows are, from 0 to 1, where that is known.

        Args:
            rows: how many rows, not fewer than in the call before; None for all that were read,
                which is ahead of those that were taken.
        """
        if self._run is None:
            return None
        part = self._run.fraction(rows)
        if part is not None and self._limit:
            count = getattr(self._run, "rows_read", 0) if rows is None else rows
            part = min(1.0, max(part, count / self._limit))
        return part

    def place(self, row: int) -> tuple[str, int]:
        """The file that a row came from, and which of its rows it is, counted from 0.

        For a query it is the row of its result, and no file.

        Raises:
            LookupError: the row has not been read.
        """
        if self._run is None:
            raise LookupError(f"row {row:,} has not been read")
        return self._run.place(row)

    @property
    def bad_rows(self) -> int:
        """How many rows the last reading left out, for ``bad_rows=`` says so."""
        count: int = getattr(self._run, "bad_rows", 0)
        return count

    @property
    def has_no_columns(self) -> bool:
        """Whether the last reading found none: JSON without rows names no columns."""
        return self._ahead is not None and not self._ahead.schema.names

    @property
    def skips_bad_rows(self) -> bool:
        """Whether rows that can't be read are left out."""
        return self._options.bad_rows != "error"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin to read, and give the batches as an Arrow stream.

        Raises:
            SourceError, OSError: the first file, or the query, can't be read.
        """
        return self._stream(None, requested_schema)

    def for_load(self, wanted: Wanted) -> Loaded:
        """The columns as a load takes them: numbers of JSON have their text, and rows theirs."""
        return Loaded(self, wanted)

    def _stream(self, wanted: Wanted | None, requested_schema: object = None) -> object:
        import pyarrow as pa

        self.close()
        self._run = self._new_run(wanted)
        ahead = self._ahead = Ahead(self._run)
        batches = _Batches(ahead)
        # Also when the interpreter ends: it is aborted when a thread is in the midst of Arrow.
        weakref.finalize(batches, ahead.close)
        stream = pa.RecordBatchReader.from_batches(ahead.schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """End the reading that is going on, if any."""
        if self._ahead is not None:
            self._ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _new_run(self, wanted: Wanted | None) -> Run:
        if self._run is not None and not all(isinstance(file, str) for file in self._sources):
            raise SourceError(
                f"{self.files[0]} has been read, and can't be read twice; give a path, or a new "
                "file object"
            )
        run: Run
        if self._sql is None:
            parts = imported("pyarrow", ".parts")
            reading = Reading(self._options, wanted)
            run = parts.Parts(self._sources, self._kinds, reading, self._limit)
        else:
            query = imported("duckdb", ".query")
            run = query.Query(self._sql, self._sources, self._kinds, self._options, self._limit)
        return run

    def rows_about(self) -> int | None:
        """How many rows there are, about, where some lines of every file tell."""
        return self._total(imported("pyarrow", ".formats").rows_about)

    def _counted(self) -> int | None:
        return self._total(imported("pyarrow", ".formats").rows_of)

    def _total(self, rows_of: Callable[[str, str | None], int | None]) -> int | None:
        if self._sql is not None:
            return None
        total = 0
        for file, kind in zip(self._sources, self._kinds, strict=True):
            rows = rows_of(file, kind) if isinstance(file, str) else None
            if rows is None:
                return None
            total += rows
        return total if self._limit is None else min(total, self._limit)


class Loaded:
    """The columns of a Table as a load takes them.

    Args:
        table: the table.
        wanted: what the template takes.
    """

    def __init__(self, table: Table, wanted: Wanted) -> None:
        self._table = table
        self._wanted = wanted

    @property
    def error(self) -> BaseException | None:
        """What ended the reading, where it was an exception."""
        return self._table.error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table._stream(self._wanted, requested_schema)


class _Batches:
    """What Arrow takes the batches from; the reading ends when Arrow lets go of it."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._ahead)


def _is_resp(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).lower().endswith(".resp")


def _one(source: Source) -> Path | IO[bytes]:
    if isinstance(source, Sequence) and not isinstance(source, str):
        raise ValueError("files of RESP are loaded one by one: give one path, and not a list")
    return source


def _files(source: Source) -> list[Any]:
    """The paths that a source means, each of a file that exists, or its file object."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        if glob.has_magic(path) and not _exists(path):
            found = sorted(glob.glob(path, recursive=True))
            if not found:
                raise FileNotFoundError(f"no file matches {path}")
            return found
        return [_existing(path)]
    if hasattr(source, "read"):
        return [source]
    paths = [_existing(os.fsdecode(path)) for path in source]
    if not paths:
        raise ValueError("the list of paths is empty")
    return paths


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a NUL byte
        return False


def _existing(path: str) -> str:
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a directory; name its files, such as {path}/*.parquet")
    os.stat(path)
    return path


def _named(file: Any) -> str | None:
    """The format that the name of a file tells; None for a file object, or the path of a pipe."""
    if not isinstance(file, str) or not os.path.isfile(file):
        return None
    stem, suffix = os.path.splitext(file.lower())
    packed = suffix in PACKED_SUFFIXES
    if packed:
        suffix = os.path.splitext(stem)[1]
    kind = SUFFIXES.get(suffix)
    if packed and (kind in ("parquet", "arrow") or suffix == ".resp"):
        raise ValueError(f"{file} is not read while it is packed; unpack it first")
    if kind is None:
        words = f"the name of {file} does not tell its format; give "
        formats = f" as one of {', '.join(map(repr, FORMATS))}"
        raise ValueError(Message(words, Hint("format", ...), formats))
    return kind


def imported(package: str, module: str | None = None) -> Any:
    """Import a package, and what of ours is built on it, only where they are used."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"files are read with {package}, which is not installed: pip install 'fastresp[files]'"
        ) from error
    return import_module(module, __name__) if module else None
