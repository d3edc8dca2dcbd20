"""Open the source of a command line, and parse its templates."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import IO, Any

from ..encode.template import Template
from ..server.file_io import check_unused
from ..sources.files.command_files import RejectsFile, read_rejects
from ..sources.files.paths import Format
from ..sources.files.read_source import read
from ..sources.files.reading import ROW_BYTES
from ..sources.files.resp import RespFile
from ..sources.files.table import Table
from ..sources.source import format_for
from .ending import Ending

__all__ = [
    "SourceOptions", "check_templates", "counted_bad_rows", "fields_of", "is_read_once", "opened",
    "retried", "standard_input", "template_for",
]  # fmt: skip


@dataclass(frozen=True)
class SourceOptions:
    """The options for reading a source; ``delimiter`` and all later options are for text files."""

    sql: str | None = None
    sort_by: str | None = None
    format: Format | None = None
    limit: int | None = None
    skip_truncated: bool = False
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    no_header: bool = False
    columns: str | None = None
    encoding: str | None = None
    null_values: str | None = None
    bad_rows: str = "error"
    null: bool = False
    max_row_bytes: int = ROW_BYTES


def fields_of(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Move the options that are fields of the dataclass ``kind`` from ``values`` to a new dict."""
    names = [each.name for each in fields(kind)]
    return {name: values.pop(name) for name in names if name in values}


@contextmanager
def opened(
    source: str, options: SourceOptions, templates: Sequence[str] = (), *, dry_run: bool = False
) -> Iterator[Any]:
    """Open the source that a command line names, for use in the block.

    A dry run writes no file of bad rows. If the extension of the source is unknown, the templates
    determine the format.
    """
    where = standard_input() if source == "-" else source
    found_format = options.format
    if found_format is None and templates:
        found_format = format_for(where, Template(*templates))
    if options.null and found_format != "lines":
        raise ValueError("--null is for lines; add --format lines")
    bad_rows = options.bad_rows
    if bad_rows == "-":
        raise ValueError("--bad-rows - can't write to stdout; name a file, or use --bad-rows skip")
    if dry_run and bad_rows not in ("error", "skip"):
        check_unused(bad_rows, "the bad rows of an earlier load")
        bad_rows = "skip"
    if options.sort_by is not None and not _names(options.sort_by):
        raise ValueError("--sort-by is empty; name a column, or leave out the option")
    data = read(
        where,
        sql=options.sql,
        format=found_format,
        delimiter="\0" if options.null else options.delimiter,
        quote=options.quote,
        escape=options.escape,
        header=not options.no_header,
        columns=_names(options.columns),
        encoding=options.encoding,
        null_values=_names(options.null_values) or (),
        bad_rows=bad_rows,
        max_row_bytes=options.max_row_bytes,
        limit=options.limit,
        sort_by=_names(options.sort_by) or (),
        skip_truncated=options.skip_truncated,
    )
    try:
        yield data
    finally:
        if isinstance(data, Table):
            data.close()


def _names(text: str | None) -> list[str] | None:
    """Split the comma-separated names in an option's value; None if the option is not given."""
    return None if text is None else next(csv.reader([text]), [])


def standard_input() -> IO[bytes]:
    """Return standard input without a buffer, since Ctrl-C can't end a buffered read."""
    try:
        if sys.stdin is None:
            raise ValueError("standard input is closed; use the path of a file")
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    except OSError:  # stdin may not be a file, as in a test
        return sys.stdin.buffer


def template_for(source: Any, texts: Sequence[str]) -> Template | None:
    """Parse the template; return None for RESP files and rejects files, which need none."""
    if isinstance(source, (RespFile, RejectsFile)):
        if texts:
            raise TypeError(f"{source.name} contains whole commands; leave out the template")
        return None
    if not texts:
        raise ValueError(
            "a template is missing; add the command for each row, such as 'HSET user:{id} {**}'"
        )
    return Template(*texts)


def check_templates(texts: Sequence[str]) -> None:
    """Refuse a template that is the name of an existing file.

    Otherwise, the name would be sent as a command for each row.
    """
    for text in texts:
        if os.path.exists(text):
            raise ValueError(
                f"{text} is a file, but a template is expected here; for several files, use one "
                "pattern in quotes, such as 'part-*.csv'"
            )


@contextmanager
def counted_bad_rows(data: Any, end: Ending) -> Iterator[None]:
    """After the block, set ``end.bad_rows`` to the number of skipped bad rows."""
    try:
        yield
    finally:
        if isinstance(data, Table) and data.skips_bad_rows:
            end.bad_rows = data.bad_rows


@contextmanager
def retried(source: str, options: SourceOptions) -> Iterator[RejectsFile]:
    """Open a rejects file as a source; refuse all options but ``--limit``."""
    if source == "-":
        raise ValueError("--from-rejects reads its source twice; give the path of a file")
    if options != SourceOptions(limit=options.limit):
        raise ValueError(
            "--from-rejects reads a file that --rejects wrote; leave out --sql, --sort-by, "
            "--format, --skip-truncated and the options for text files"
        )
    yield read_rejects(source, limit=options.limit)


def is_read_once(source: str) -> bool:
    """Return whether a source is a pipe, which can't be read again."""
    if source == "-":
        return True
    return os.path.exists(source) and not (os.path.isfile(source) or os.path.isdir(source))
