"""``fastresp unload``: write keys of a server to a file."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..encode.key_columns import EXPIRES_AT, as_target
from ..load.new_file import replacing
from ..load.progress import counting
from ..outcome.passwords import masked
from ..outcome.report import counted, size_text
from ..replies.fetch_hashes import Hashes
from ..replies.unload import Entries, check_found
from ..replies.unload import unload as read_keys
from ..sources.files.paths import SUFFIXES, names_snapshot
from ..sources.files.read_source import read
from ..sources.files.reading import import_optional
from ..sources.files.table import Table
from . import options
from .command_line import FILE, argument, command, option
from .ending import ending, standard_output
from .exit_codes import say

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["unload"]

FORMATS = ("csv", "jsonl", "parquet")
# Number of rows per write of JSON Lines.
JSON_ROWS = 1024


@command("unload")
@argument(
    "pattern",
    "PATTERN",
    "`'user:{id}'` (adds a column `id`), `'user:*'`, or a single key; or an RDB file.",
)
@argument(
    "named_output",
    "[FILE]",
    "The same as `-o FILE`, if the extension of FILE is of an output format.",
    required=False,
    type=FILE,
)
@option("--match P", "The pattern of keys in an RDB file.", show_default="all keys")
@option("--db N", "The database of an RDB file.", type=click.IntRange(min=0), show_default="`0`")
@option(
    "--type TYPE",
    "`hash`, `string`, `set`, `zset`, `list`, `stream` or `json`.",
    type=click.Choice(["hash", "string", "set", "zset", "list", "stream", "json"]),
    show_default="`hash`; for a single key, its own type",
)
@option(
    "--fields F,G",
    "Fields to write, separated by commas; can be repeated.",
    multiple=True,
    show_default="all, found by a first scan",
)
@option(
    "--ttl [NAME]",
    "Add a column, NAME or `expires_at`: when the key expires, in UTC; null if it does not.",
    is_flag=False,
    flag_value=EXPIRES_AT,
)
@option("--output -o FILE", "Write to FILE; its extension sets the format.", type=FILE)
@option(
    "--format F",
    "`csv`, `jsonl` or `parquet`; overrides the file extension.",
    type=click.Choice(FORMATS),
)
@option("--binary F,G", "Columns that can contain any bytes; `'*'` for all.", multiple=True)
@option("--json", "Print a JSON summary; on stderr if rows go to stdout.", name="as_json")
@options.server
@options.timeout
def unload(
    pattern: str,
    named_output: Path | None,
    match: str | None,
    db: int | None,
    type: str | None,  # noqa: A002
    fields: tuple[str, ...],
    ttl: str | None,
    output: Path | None,
    format: str | None,  # noqa: A002
    binary: tuple[str, ...],
    server: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Write keys to a file that `fastresp load` can reload.

    fastresp unload "user:{id}" -o users.parquet

    fastresp load users.parquet "HSET user:{id} {**}" --nulls skip

    Each hash is one row, with one column per field. A missing field is null: empty in CSV, where
    an empty string is `""`. Other types have one row per value. These templates reload them:

        --type string    "SET page:{id} {value}"
        --type json      "JSON.SET doc:{id} $ {value}"
        --type set       "SADD tags:{id} {member}"
        --type zset      "ZADD top:{id} {score} {member}"
        --type list      "RPUSH jobs:{id} {item}"
        --type stream    "XADD log:{id} {entry_id} {**}"

    Times to live are written only with `--ttl`. To reload them, add `; PEXPIREAT page:{id}
    {expires_at!ms}` to the template, write `{**-expires_at}` for `{**}`, and add `--nulls skip`.
    Only the entries of streams are written, without consumer groups.

    Columns are UTF-8 text. With `--binary`, columns of CSV and Parquet can contain any bytes. If
    keys change during the scan, keys or list items may be missing, and list items or set members
    may appear twice.

    An RDB file is a snapshot that a server has saved; no server is needed to read it:

        fastresp unload dump.rdb users.parquet --match "user:{id}"

    In a cluster, the keys of all nodes are written; pass the URL of any node. If slots move during
    the scan, keys may be missing or appear twice.

    Without FILE, CSV is written to stdout. FILE is replaced only when the new file is complete;
    after an error or Ctrl-C, the old file is unchanged.
    """
    with ending(as_json=as_json) as end:
        output = _output(output, named_output)
        path = None if output is None or str(output) == "-" else output
        if path is None:
            end.json_file = sys.stderr
        kind = _kind(path, format)
        names = None if fields in ((), ("*",)) else _split(fields, "--fields")
        columns = binary == ("*",) or _split(binary, "--binary")
        if columns and kind == "jsonl":
            raise ValueError(
                "JSON Lines can't contain the bytes of --binary; write CSV or Parquet, such as -o "
                "FILE.parquet"
            )
        chosen: dict[str, Any] = {
            "type": type, "fields": names, "ttl": ttl or False, "binary": columns,
        }  # fmt: skip
        rows: Hashes | Entries | SnapshotRows
        if match is not None or names_snapshot(pattern):
            if server is not None:
                raise ValueError(f"{pattern} is a file, which needs no server; leave out --server")
            rows = SnapshotRows(read(pattern, format="rdb", match=match, db=db, **chosen))
        elif db is not None:
            raise ValueError("--db is for RDB files; name a server's database in its URL")
        else:
            rows = read_keys(as_target(pattern), server=server, timeout=timeout or None, **chosen)
        output_name = path and str(path)
        summary: dict[str, Any] = {"rows": 0, "bytes": 0, "seconds": 0.0, "output": output_name}
        end.fields = summary if as_json else None
        start = time.monotonic()

        def summarise() -> None:
            seconds = time.monotonic() - start
            summary.update(rows=rows.rows, bytes=rows.nbytes, seconds=seconds)

        with rows, _opened(path) as file:
            shown = not as_json and sys.stderr.isatty() and not (path is None and file.isatty())
            _write(rows, file, kind, shown, summarise)
            changed = rows.changed if isinstance(rows, Entries) else 0
            if not (rows.rows or changed or isinstance(rows, SnapshotRows)):
                check_found(as_target(pattern), type, server, timeout or None)
        if not as_json:
            where = "" if path is None else f" to {path}"
            say(
                f"{counted(rows.rows, 'row')} written{where}: {size_text(rows.nbytes)} read "
                f"in {time.monotonic() - start:,.2f} s"
            )
            if changed:
                say(
                    f"{counted(changed, 'key')} without rows: deleted or changed in type before "
                    "reading, or an empty stream"
                )


class SnapshotRows:
    """The rows of an RDB file, with the interface of rows from a server (Hashes, Entries).

    Attributes:
        rows, nbytes: the number of rows and of bytes read so far.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._reader: Any = None
        self.rows = self.nbytes = 0

    def __enter__(self) -> SnapshotRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._table.close()

    def __arrow_c_schema__(self) -> object:
        import pyarrow as pa

        self._reader = pa.RecordBatchReader.from_stream(self._table)
        return self._reader.schema.__arrow_c_schema__()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches; requires an earlier call of ``__arrow_c_schema__()``."""
        try:
            for batch in self._reader:
                self.rows += batch.num_rows
                self.nbytes += batch.nbytes
                yield batch
        except Exception as error:
            raise self._table.error or error from None


def _split(names: Sequence[str], option: str) -> list[str]:
    """Return the comma-separated names in the values of an option.

    Raises:
        ValueError: a name is empty, or a value is not valid CSV.
    """
    fields: list[str] = []
    for text in names:
        try:
            line = next(csv.reader([text], skipinitialspace=True, strict=True)) or [""]
        except csv.Error as error:
            raise ValueError(f"{option} is not valid CSV: {error}; check its quotes") from error
        # Spaces around a name belong to the name only if the value contains quotes.
        fields += line if '"' in text else map(str.strip, line)
    if not all(fields):
        raise ValueError(f"{option} has an empty name; write {option} name,email")
    return fields


def _output(output: Path | None, named: Path | None) -> Path | None:
    """Return the output file: the value of ``-o``, or the second argument.

    Raises:
        ValueError: both are given, or the argument has a different extension: it may be a file that
            the shell substituted for an unquoted pattern, and must not be overwritten.
    """
    if named is None:
        return output
    if output is not None:
        raise ValueError(f"there are two output files: {masked(str(named))}, and that of -o")
    if SUFFIXES.get(named.suffix.lower()) not in FORMATS:
        text = "is no output file ending in .csv, .jsonl or .parquet; use -o for other names"
        raise ValueError(f"{masked(str(named))} {text}. If it is from a pattern, quote the pattern")
    return named


def _kind(path: Path | None, kind: str | None) -> str:
    """Return the output format: the requested format, or the format of the file's extension.

    Raises:
        ValueError: the format is unknown, or is Parquet without an output file.
    """
    if path is None:
        if kind == "parquet":
            raise ValueError("Parquet needs a file; add -o FILE")
        return kind or "csv"
    kind = kind or SUFFIXES.get(path.suffix.lower())
    if kind not in FORMATS:
        raise ValueError(
            f"the extension of {path} is not a supported output format; add --format csv, "
            "--format jsonl or --format parquet"
        )
    return kind


def _write(
    rows: Hashes | Entries | SnapshotRows,
    file: IO[bytes],
    kind: str,
    shown: bool,
    written: Callable[[], object],
) -> None:
    """Write all batches to a file; call ``written`` after each, and when the file is complete."""
    import_optional("pyarrow")
    import pyarrow as pa

    schema = pa.schema(rows)
    batches = map(pa.record_batch, rows.batches())
    first = next(batches, pa.RecordBatch.from_pylist([], schema=schema))
    with _open_writer(file, kind, schema, first) as write, counting(shown) as show:
        for batch in chain((first,), batches):
            write(batch)
            show(rows.rows, rows.nbytes)
            written()
    written()


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Open standard output, or a new file that replaces ``path`` when it is complete."""
    if path is None:
        file = standard_output()
        yield file
        file.flush()
        return
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:  # a pipe or a device
            yield file
        return
    with replacing(path) as (raw, _), io.BufferedWriter(raw) as file:
        yield file


@contextmanager
def _open_writer(
    file: IO[bytes], kind: str, schema: pa.Schema, first: pa.RecordBatch
) -> Iterator[Callable[[pa.RecordBatch], object]]:
    """Yield a function that writes one batch; complete the file after the block.

    In CSV, every value is in quotes: an empty string is ``""``, and a null is empty.

    Args:
        kind: ``"csv"``, ``"jsonl"`` or ``"parquet"``.
        schema: the schema of all batches.
        first: the first batch.
    """
    if kind == "jsonl":
        yield partial(write_json_lines, file)
        return
    import pyarrow as pa

    sink = pa.PythonFile(file, "w")
    writer: Any
    if kind == "csv":
        from pyarrow import csv

        writer = csv.CSVWriter(sink, _texts(schema))
    else:
        from pyarrow import parquet

        # A dictionary of values that rarely repeat costs time, and makes the file larger.
        names = [
            name
            for name, column in zip(schema.names, first.columns, strict=True)
            if 2 * len(column.unique()) <= len(column)
        ]
        writer = parquet.ParquetWriter(sink, schema, use_dictionary=names)
    try:
        yield writer.write_batch if kind == "parquet" else partial(_write_csv, writer)
    except BaseException:
        with suppress(Exception):
            writer.close()
        if kind == "parquet":
            # Otherwise, garbage collection closes the writer again, with an error message.
            writer.is_open = False
        raise
    writer.close()


def _texts(schema: pa.Schema) -> pa.Schema:
    """Replace bytes and times in a schema by strings, which may then hold invalid UTF-8."""
    import pyarrow as pa

    kinds = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}
    kinds[pa.timestamp("ms", "UTC")] = pa.string()
    return pa.schema([field.with_type(kinds.get(field.type, field.type)) for field in schema])


def _write_csv(writer: Any, batch: pa.RecordBatch) -> None:
    """Write a batch whose fields can contain any bytes."""
    schema = _texts(batch.schema)
    columns = [
        _as_text(column).view(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    writer.write_batch(type(batch).from_arrays(columns, schema=schema))


def _as_text(column: pa.Array) -> pa.Array:
    """Return a column of times as ISO 8601 text; return any other column unchanged."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_timestamp(column.type):
        return column
    # Without a time zone, pyarrow needs no database of time zones.
    return compute.strftime(column.view(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")


def write_json_lines(file: IO[bytes], batch: pa.RecordBatch) -> None:
    """Write a batch of strings, times and nulls as JSON objects."""
    names = (encode_basestring(name).replace("%", "%%") for name in batch.schema.names)
    line = "{" + ", ".join(f"{name}: %s" for name in names) + "}\n"
    for start in range(0, batch.num_rows, JSON_ROWS):
        # 4x faster than json.dumps() for each row.
        columns = [
            ["null" if value is None else encode_basestring(value) for value in column.to_pylist()]
            for column in map(_as_text, batch.slice(start, JSON_ROWS).columns)
        ]
        rows = zip(*columns, strict=True)
        file.write("".join(line % row for row in rows).encode())
