"""``fastresp unload``: keys of a server into a file."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import IO, Annotated, Literal, TypeAlias

import typer

from ..load.progress import counting
from ..outcome.report import size_text
from ..replies.fetch_hashes import Hashes
from ..replies.unload import (
    Entries,
    as_target,
    check_found,
    open_target,
)
from ..sources.files import SUFFIXES
from ..sources.files.packages import imported
from . import options
from .exit_codes import ending, say, standard_output

__all__ = ["unload"]

FORMATS = ("csv", "jsonl", "parquet")

Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write there; its name tells the format. - or nothing for stdout.",
    ),
]
Format: TypeAlias = Annotated[
    Literal["csv", "jsonl", "parquet"] | None,
    typer.Option(
        "--format",
        metavar="csv|jsonl|parquet",
        help="The format, where the name of the file does not tell.",
        show_default="csv for stdout",
    ),
]
Type: TypeAlias = Annotated[
    Literal["hash", "string", "set", "zset", "list", "json"] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Which keys: hash, string, set, zset, list or json.",
        show_default="hash; of a single key its own",
    ),
]
Names: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fields",
        metavar="F,G",
        help="Of hashes only these fields, each a column; once for all, or one by one. A line of "
        "CSV: 'a,\"b,c\"' are two.",
        show_default="all; their names are read first",
    ),
]
Binary: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--binary",
        metavar="F,G",
        help="Columns whose values are any bytes, or '*' for all; for CSV and Parquet.",
    ),
]


def unload(
    pattern: Annotated[
        str,
        typer.Argument(help="Which keys: 'user:{id}', with a column id; 'user:*'; or one key."),
    ],
    type: Type = None,  # noqa: A002
    fields: Names = None,
    output: Output = None,
    format: Format = None,  # noqa: A002
    binary: Binary = None,
    server: options.Url = None,
    timeout: options.Timeout = 30.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print a summary as JSON on stdout, or on stderr if the rows go there."
        ),
    ] = False,
) -> None:
    """Write keys of a type to a file, as rows that fastresp load brings back.

    fastresp unload "user:{id}" -o users.parquet

    fastresp load users.parquet "HSET user:{id} {**}" --nulls skip

    A hash is a row, with a column for each field. A field that is not there is a null: nothing in
    CSV, where an empty string is "". Other types have a row for each value; behind each of these
    commands stands the template that loads its file:

    fastresp unload "page:{id}" --type string -o pages.csv   # "SET page:{id} {value}"

    fastresp unload "doc:{id}" --type json -o docs.jsonl     # "JSON.SET doc:{id} $ {value}"

    fastresp unload "tags:{id}" --type set -o tags.csv       # "SADD tags:{id} {member}"

    fastresp unload "top:{id}" --type zset -o top.csv        # "ZADD top:{id} {score} {member}"

    fastresp unload "jobs:{id}" --type list -o jobs.csv      # "RPUSH jobs:{id} {item}"

    Columns hold text; with --binary those of CSV and Parquet hold any bytes. Times to live are
    not written. What is changed meanwhile may be in the file or not, a member may be there twice,
    and a list that is changed may lack items or have some twice.

    The file gets its name when it is whole; after an error or a Ctrl-C there is none, or the one
    that was there.
    """
    with ending(as_json=as_json) as end:
        path = None if output is None or str(output) == "-" else output
        if path is None:
            end.json_file = sys.stderr
        kind = _kind(path, format)
        target = as_target(pattern)
        names = None if fields in (None, ["*"]) else _split(fields or [], "--fields")
        columns = binary == ["*"] or _split(binary or [], "--binary")
        if columns and kind == "jsonl":
            raise ValueError(
                "JSON lines hold text, and --binary is any bytes: write CSV or Parquet"
            )
        rows = open_target(
            target, type, names, server=server, binary=columns, timeout=timeout or None
        )
        summary = {"rows": 0, "bytes": 0, "seconds": 0.0, "output": path and str(path)}
        end.fields = summary if as_json else None
        start = time.monotonic()
        with rows, _opened(path) as file:
            shown = not as_json and sys.stderr.isatty() and not (path is None and file.isatty())
            with closing(_written(rows, file, kind, shown)) as batches:
                for _ in batches:
                    summary |= {"rows": rows.rows, "bytes": rows.nbytes}
                    summary["seconds"] = time.monotonic() - start
            if not rows.rows:
                check_found(target, type, server, timeout or None)
        if not as_json:
            where = "" if path is None else f" to {path}"
            say(
                f"{rows.rows:,} rows written{where}: {size_text(rows.nbytes)} of replies in "
                f"{time.monotonic() - start:,.2f} s"
            )


def _split(names: list[str], option: str) -> list[str]:
    """The fields that an option names.

    Raises:
        ValueError: one has no name, or they are no CSV.
    """
    fields: list[str] = []
    for text in names:
        try:
            line = next(csv.reader([text], skipinitialspace=True, strict=True)) or [""]
        except csv.Error as error:
            raise ValueError(f"{option} is no line of CSV: {error}") from error
        # Blanks count where somebody quotes.
        fields += line if '"' in text else map(str.strip, line)
    if not all(fields):
        raise ValueError(f"a field of {option} has no name; give them as in {option} name,email")
    return fields


def _kind(path: Path | None, kind: str | None) -> str:
    """The format to write.

    Raises:
        ValueError: nothing tells it; or it is Parquet, which is for a file.
    """
    if path is None:
        if kind == "parquet":
            raise ValueError("Parquet is for a file: name one after -o")
        return kind or "csv"
    kind = kind or SUFFIXES.get(path.suffix.lower())
    if kind not in FORMATS:
        raise ValueError(
            f"the name of {path} does not tell a format that can be written; give --format "
            "csv, --format jsonl or --format parquet"
        )
    return kind


def _written(rows: Hashes | Entries, file: IO[bytes], kind: str, shown: bool) -> Generator[None]:
    """Write all batches; yield after each."""
    imported("pyarrow")
    import pyarrow as pa

    from .column_files import open_output

    with open_output(file, kind, pa.schema(rows)) as writer, counting(shown) as show:
        for batch in rows.batches():
            writer.write_batch(pa.record_batch(batch))
            show(rows.rows, rows.nbytes)
            yield
    yield


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Standard output; or a file that gets its name when it is whole."""
    if path is None:
        file = standard_output()
        yield file
        file.flush()
        return
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:  # a pipe, or a device
            yield file
        return
    path = path.resolve()
    part = path.with_name(f".{path.name}.{token_hex(4)}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with file:
            if path.exists():
                os.fchmod(file.fileno(), S_IMODE(path.stat().st_mode))
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
