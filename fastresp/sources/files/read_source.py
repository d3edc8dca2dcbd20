"""``read``: files and queries as a stream of columns, files of RESP as commands."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import IO, Literal, overload

from ...outcome.messages import Hint, Message
from .input import check_not_read
from .paths import FORMATS, Format, Path, Source, exists, files_of, format_of
from .reading import AS_IT_IS, FileOptions, unfit
from .resp import RespFile
from .table import Table

__all__ = ["read"]

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
    if sql is None and isinstance(source, str) and QUERY.match(source) and not exists(source):
        if options != AS_IT_IS:
            words = " is for a file; in a query the options of read_csv(...) say it"
            raise ValueError(Message(Hint(_given(options), ...), words))
        return Table([], [], sql=source, limit=limit)
    files = files_of(source)
    kinds = [format or format_of(file) for file in files]
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


def _is_resp(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).lower().endswith(".resp")


def _one(source: Source) -> Path | IO[bytes]:
    if isinstance(source, Sequence) and not isinstance(source, str):
        raise ValueError("files of RESP are loaded one by one: give one path, and not a list")
    return source
