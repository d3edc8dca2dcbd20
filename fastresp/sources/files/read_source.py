"""``read``: files and queries as a stream of columns, RESP files as commands."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import IO, Any, Literal, TypedDict, Unpack, overload

from ...encode.key_columns import VALUE_COLUMNS, as_target, checked_fields, expiry_name
from ...outcome.messages import Hint, Message
from ...outcome.tracebacks import public
from .command_files import CommandsFile
from .paths import (
    FORMATS,
    Format,
    Path,
    Source,
    check_not_read,
    exists,
    files_of,
    format_of,
    pattern_of,
)
from .reading import DEFAULT_OPTIONS, ROW_BYTES, FileOptions, FileSet, option_error
from .remote import is_remote, open_remote, path_of
from .resp import RespFile
from .table import Table

__all__ = ["read"]

DELIMITER = '[^"\r\n\0\x80-\U0010ffff]'
QUOTE = "[^\r\n\0\x80-\U0010ffff]"
QUERY = re.compile(r"\s*(select|with|from|values)[\s('\"*]", re.IGNORECASE)


class TableOptions(TypedDict, total=False):
    """The options of ``read`` for columns, with the same defaults."""

    delimiter: str | None
    quote: str | None
    escape: str | None
    header: bool
    columns: Sequence[str] | None
    encoding: str | None
    null_values: Sequence[str]
    bad_rows: Path
    max_row_bytes: int
    match: str | None
    type: str | None
    fields: Sequence[str] | None
    ttl: bool | str
    binary: bool | str | Sequence[str]
    db: int | None
    limit: int | None
    sort_by: str | Sequence[str]


@overload
def read(
    source: Path | IO[bytes],
    *,
    format: Literal["resp", "commands"],
    limit: int | None = None,
    skip_truncated: bool = False,
) -> RespFile: ...
@overload
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Literal["csv", "tsv", "jsonl", "lines", "parquet", "arrow", "rdb"],
    **options: Unpack[TableOptions],
) -> Table: ...
@overload
def read(
    source: Source, *, sql: str, format: None = None, **options: Unpack[TableOptions]
) -> Table: ...
@overload
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Format | None = None,
    skip_truncated: bool = False,
    **options: Unpack[TableOptions],
) -> Table | RespFile: ...
@public
def read(
    source: Source,
    *,
    sql: str | None = None,
    format: Format | None = None,  # noqa: A002
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] = (),
    bad_rows: Path = "error",
    max_row_bytes: int = ROW_BYTES,
    match: str | None = None,
    type: str | None = None,  # noqa: A002
    fields: Sequence[str] | None = None,
    ttl: bool | str = False,
    binary: bool | str | Sequence[str] = False,
    db: int | None = None,
    limit: int | None = None,
    sort_by: str | Sequence[str] = (),
    skip_truncated: bool = False,
) -> Table | RespFile:
    """Read files, or the rows of a query, as columns to load; or a RESP file as commands.

    Memory stays small, whatever the number of rows: a thread reads a few megabytes ahead.

    Args:
        source: a path or a URL such as ``s3://bucket/users.csv`` (the extra ``remote``, with
            credentials from the environment); a pattern such as ``data/*.parquet``, whose files
            are read in order of their names; a list of paths; a file object open for reading
            bytes, such as ``sys.stdin.buffer``; ``redis+psync://host`` for a server's snapshot,
            which this process receives as a replica would; or a query that names its own files,
            such as ``SELECT id, name FROM 'flights.parquet'``.
        sql: a query that reads the source as a table with the name ``source``.
        format: ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"lines"``, ``"parquet"``, ``"arrow"``,
            ``"rdb"``, ``"resp"`` or ``"commands"``; overrides the file extension or, for a file
            object, its first bytes. If a path without a known extension is passed directly to a
            load, without ``read``, it is read as lines if the template has ``{line}``. Text and RDB
            files may be compressed with gzip, Zstandard or bzip2.
        delimiter: the character between CSV fields, if not a comma; for lines, the line end, if
            not a newline.
        quote: the character around a CSV field that contains delimiters or line ends, if not
            ``"``; ``""`` if quotes are part of the text. By default, quotes in TSV are part of the
            text, unless its first 2 MiB prove that fields are quoted.
        escape: the character before a quote that is part of a quoted CSV field, such as ``"\\"``,
            which Spark writes; by default such a quote is doubled.
        header: whether the first line of CSV names the columns. If not, the columns are
            ``column_1``, ``column_2``, and so on.
        columns: the column names of CSV without a header.
        encoding: the encoding of a text file, if not UTF-8, such as ``"latin-1"``.
        null_values: unquoted CSV fields that mean null, besides empty fields.
        bad_rows: how to handle rows of CSV or JSON lines that can't be read: ``"error"`` raises;
            ``"skip"`` skips them, and ``Table.bad_rows`` counts them; or the path of a file to
            write them to, unchanged. If that file is not empty, loading the table raises
            FileExistsError.
        max_row_bytes: the maximum size of a row of JSON lines, in bytes; by default 512 MiB, the
            default limit of a server. A row needs about five times its size in memory.
        match, type, fields, ttl, binary: options for RDB files, as for ``unload()``: a pattern of
            keys such as ``"user:{id}"`` (by default all keys, with a column ``key``); one type; the
            names of fields; a column with expiry times; and the columns to read as bytes.
        db: the database of an RDB file; by default 0, with a warning if other databases have keys.
        limit: stop after this many rows; with ``sort_by``, this many sorted rows.
        sort_by: the name of a column, or a list of names: sort the rows by these columns, in
            ascending order, with nulls last. Rows with equal values keep their order. DuckDB uses
            at most 128 MB of memory, or for rows of more than 256 bytes, 128 MB plus the size of
            150,000 rows (up to 4 GB); it spills the rest to the folder for temporary files.
        skip_truncated: if a RESP file ends inside a command, load the commands before it.

    CSV: every column is text, exactly as in the file: ``00123`` and ``1.10`` are unchanged, and
    bytes need not be UTF-8. An empty field is a null and ``""`` an empty string, as in
    PostgreSQL's COPY. An empty file is an error unless ``header`` is False or ``columns`` is set.

    JSON lines, or one JSON array: in a load, numbers keep their text, and ``{*!json}`` sends a row
    unchanged. For other consumers, a column of integers has 64-bit integers, or decimals of up to
    38 digits if an integer needs them; a column with fractions has the nearest 64-bit floats. An
    integer that its column can't represent, or a number that would become infinite, is an error.
    A missing key is a null. In a load, keys and types may change from row to row. For
    other consumers, and with ``sort_by``, types come from the first 2 MiB; after that, new
    columns and values that don't fit are errors.

    Lines: one column of bytes, ``line``.

    RDB, a snapshot of Redis up to 8.2 or Valkey up to 9.1: rows as ``unload()`` returns them from a
    server; no server is needed. The names of fields are found by a first pass over the file, unless
    ``fields`` or the template names them. Keys that have expired since the snapshot are included.
    An error about damage names the offset; the checksum is compared after the last row.

    RESP, as ``dump`` writes it: one path or one file object; see RespFile.

    Commands: a command per line, quoted as for redis-cli; one path or one file object.

    Queries: DuckDB reads Parquet. CSV, TSV and JSON lines, both in ``source`` and in files named by
    the query, are read as above, so the columns of CSV are text: cast them to calculate. DuckDB's
    own functions, such as ``read_csv``, infer types and may drop rows. Queries calculate in UTC. A
    column of the result has the time zone of the files' column of the same name; other timestamps
    are in UTC.

    Sorted files: the values are the same as without ``sort_by``. So CSV sorts as text, by its
    bytes: ``10`` sorts before ``9``. For another order, use ``sql`` with ORDER BY.

    Several files must have the same columns, in any order; only a query can combine different CSV
    or Parquet files, with nulls for missing columns. If the beginnings of the files show that the
    columns differ, the error is raised before the first file is read. Files may have no rows. A
    load keeps the types of each Parquet or Arrow file. Other consumers, ``sort_by`` and ``sql``
    need one type for each column; types are refused if no common type can represent all values.

    Folders such as ``day=2024-01-01`` are columns of their files, as text: the folders directly
    above a file, up to the first folder whose name is not of this form. At or below the pattern's
    topmost folder with a wildcard, other names are ignored, and folders further up are still used.
    If the file has a column of the same name, that column is used, and must have the folder's
    value. Two folders may name the same column only with the same value.

    Returns:
        A Table of columns, or a RespFile of commands.

    Raises:
        FileNotFoundError: the file does not exist.
        SourceError: a URL can't be read.
        ValueError: an option is invalid, or the format of a file can't be detected from its name.
        SourceError: later, when the table is loaded: the file is not in its format, or changes
            while it is read; a row has too many or too few fields; the columns of files differ; or
            the query fails.
        ImportError: pyarrow, or DuckDB for a query or ``sort_by``, is not installed.
    """
    if format is not None and format not in FORMATS:
        text = f" must be one of {', '.join(map(repr, FORMATS))}, not {format!r}"
        raise ValueError(Message(Hint("format"), text))
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 rows or more, not {limit}")
    for name, texts in (("columns", columns), ("null_values", null_values)):
        if isinstance(texts, str):
            raise TypeError(f"{name} must be a list of strings, not a string; use [{texts!r}]")
    if not isinstance(binary, bool):
        binary = (binary,) if isinstance(binary, str) else tuple(binary)
    options = FileOptions(
        delimiter=delimiter,
        header=header and columns is None,
        columns=None if columns is None else tuple(columns),
        encoding=encoding,
        null_values=tuple(null_values),
        bad_rows=bad_rows,
        quote=quote,
        escape=None if escape == (quote or '"') else escape,
        max_row_bytes=max_row_bytes,
        match=match,
        type=type,
        fields=None if fields is None else tuple(checked_fields(fields)),
        ttl=expiry_name(ttl),
        binary=binary,
        db=db,
    )
    _check_options(options, format)
    keys = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by)
    if format in ("resp", "commands") or (format is None and _is_resp(source)):
        if sql is not None:
            raise ValueError("this file contains commands, so it has no columns for a query")
        if keys:
            text = " is for columns, but this file contains commands; leave it out"
            raise ValueError(Message(Hint("sort_by", ...), text))
        if options != DEFAULT_OPTIONS:
            text = " is for rows of text, but this file contains commands; leave it out"
            raise ValueError(Message(Hint(_first_set(options), ...), text))
        file_type = CommandsFile if format == "commands" else RespFile
        return file_type(_single_source(source), limit=limit, skip_truncated=skip_truncated)
    if skip_truncated:
        option, resp = Hint("skip_truncated"), Hint("format", "resp")
        raise ValueError(Message(option, " is for RESP files; use ", resp, " if this is one"))
    if sql is None and isinstance(source, str) and QUERY.match(source) and not exists(source):
        if options != DEFAULT_OPTIONS:
            text = " is for files; in a query, use the options of read_csv(...) instead"
            raise ValueError(Message(Hint(_first_set(options), ...), text))
        return Table(FileSet([], []), sql=source, limit=limit, sort_by=keys)
    paths = files_of(source)
    kinds = [format or format_of(file) for file in paths]
    for kind in kinds:
        message = None if kind is None else option_error(kind, options)
        if message is not None:
            raise ValueError(message)
    files = FileSet(paths, kinds, replace(options, pattern=pattern_of(source, paths)))
    if files.writes_bad_rows:
        check_not_read(bad_rows, files.names)
    return Table(files, sql=sql, limit=limit, sort_by=keys)


def _check_options(options: FileOptions, format: Format | None) -> None:  # noqa: A002
    delimiter = None if format == "lines" and options.delimiter == "\0" else options.delimiter
    for name, value, pattern, others in (
        ("delimiter", delimiter, DELIMITER, "a quote, a line end or NUL"),
        ("quote", options.quote, f"{QUOTE}?", "a line end or NUL, or empty"),
        ("escape", options.escape, QUOTE, "a line end or NUL"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            text = f" must be one ASCII character other than {others}, not {value!r}"
            raise ValueError(Message(Hint(name), text))
    if options.escape is not None and options.quote == "":
        text = " is for quoted fields, but this file has no quotes; leave it out"
        raise ValueError(Message(Hint("escape", ...), text))
    if options.encoding is not None:
        try:
            "".encode(options.encoding)
        except LookupError:
            text = f" must be one that Python knows, such as 'latin-1', not {options.encoding!r}"
            raise ValueError(Message(Hint("encoding"), text)) from None
    if not 0 < options.max_row_bytes <= ROW_BYTES:
        text = f" must be from 1 to {ROW_BYTES} (512 MiB), not {options.max_row_bytes}"
        raise ValueError(Message(Hint("max_row_bytes"), text))
    if options.columns == ():
        raise ValueError(Message(Hint("columns"), " must name at least one column"))
    kinds = [name for name in VALUE_COLUMNS if name != "json"]
    if options.type is not None and options.type not in kinds:
        raise ValueError(f"type must be one of {', '.join(kinds)}, not {options.type!r}")
    if options.fields is not None and options.type not in (None, "hash", "stream"):
        raise ValueError(Message(f"a {options.type} has no fields; omit ", Hint("fields")))
    if options.match is not None:
        as_target(options.match)


def _first_set(options: FileOptions) -> str:
    """Return the name of the first option that is set.

    Setting ``columns`` also changes ``header``: in that case, return ``"columns"``.
    """
    names = [
        each.name
        for each in fields(options)
        if getattr(options, each.name) != getattr(DEFAULT_OPTIONS, each.name)
    ]
    return "columns" if names[0] == "header" and options.columns is not None else names[0]


def _is_resp(source: Source) -> bool:
    if not isinstance(source, (str, os.PathLike)):
        return False
    return path_of(os.fspath(source)).lower().endswith(".resp")


def _single_source(source: Any) -> Any:
    if isinstance(source, Sequence) and not isinstance(source, str):
        raise ValueError("files of commands are loaded one at a time; pass one path, not a list")
    return open_remote(files_of(source)[0], ranges=True) if is_remote(source) else source
