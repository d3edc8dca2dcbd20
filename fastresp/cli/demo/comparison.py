"""The demo: load the same data by each method, and check the server's data."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Literal

from ...encode.template import Template
from ...encode.writer import Writer
from ...load.dump import dump
from ...load.mass_insert import mass_insert
from ...outcome.errors import FastrespError
from ...sources.files.checks import binary_format
from ...sources.files.input import MAGIC_BYTES
from .methods import PAYLOAD, READY_FILE, Announce, Comparison, Methods, Workbench

__all__ = [
    "BY_CLI",
    "BY_COLUMNS",
    "BY_SOCKET",
    "PIPELINE",
    "compare_push",
    "compare_rows",
    "read_rows",
]

PIPELINE = "redis-py pipeline"
BY_CLI = "fastresp, redis-cli"
BY_SOCKET = "fastresp, socket"
BY_COLUMNS = "fastresp, columns"
# Number of rows in the Arrow array that is repeated.
COLUMN_ROWS = 10_000
PIPELINE_COMMANDS = 1_000
KEY = "demo"
LRANGE_VALUES = 10_000
NO_DATA = "0" * 40
# The demo shows medians, since the time of a load varies by 10%. It must end within a minute, even
# on a slow machine.
ROUNDS = 3
BUDGET_S = 45.0


def compare_push(commands: int, announce: Announce) -> Comparison:
    """Load LPUSH commands of 129 bytes by each method.

    Args:
        commands: number of commands.
        announce: called with the progress, between the timed parts.

    Raises:
        FastrespError: a program is missing or failed, or the server's data differs from the data
            sent.
    """
    command = ("LPUSH", KEY, PAYLOAD)
    with Workbench.open(need_cli=False) as workbench:
        announce("writing the ready-made file")
        dump(repeat(command, commands), None, workbench.ready_file)
        methods: Methods = {
            PIPELINE: lambda: _load_by_pipeline(workbench.client, repeat(command, commands))
        }
        methods |= workbench.plain_methods(lambda: repeat(command, commands))
        methods |= _fastresp(workbench, lambda: repeat(command, commands), None)
        if (column := _payload_column(commands)) is not None:
            methods[BY_COLUMNS] = lambda: _load(
                column, f"LPUSH {KEY} {{value}}", workbench.url, "socket"
            )

        def check(method: str) -> None:
            _check_list(workbench.client, commands, method)

        return workbench.compare(
            methods, commands, ROUNDS,
            check=check, announce=announce, budget_s=BUDGET_S,
            warm_up=READY_FILE if workbench.cli else None,
        )  # fmt: skip


def compare_rows(
    rows: list[dict[str, Any]],
    template: Template,
    announce: Announce,
    *,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
) -> Comparison:
    """Load rows with a template by each method.

    Only fastresp's time includes filling in the template: other methods get lists of arguments.

    Args:
        rows: the rows to load.
        template: the commands of each row.
        announce: called with the progress, between timed parts.
        rounds: maximum number of rounds; the first round always runs.
        budget_s: maximum seconds; no round is started that would exceed them.

    Raises:
        EncodeError, TemplateError: a row lacks a field of the template, or has no value for it.
        FastrespError: as in ``compare_push()``, or the server refused a command.
    """
    announce("filling in the template for the other methods")
    commands = list(_expanded(rows, template))
    with Workbench.open(need_cli=False) as workbench:
        announce("writing the ready-made file")
        dump(rows, template, workbench.ready_file)
        # redis-py is first, since it reports error replies more clearly than redis-cli.
        methods: Methods = {PIPELINE: lambda: _load_by_pipeline(workbench.client, commands)}
        methods |= workbench.plain_methods(lambda: commands)
        methods |= _fastresp(workbench, lambda: rows, template)
        if (columns := _columns_of(rows)) is not None:
            methods[BY_COLUMNS] = lambda: _load(columns, template, workbench.url, "socket")
        digests: list[str] = []

        def check(method: str) -> None:
            digests.append(_digest(workbench.client))
            if digests[-1] != digests[0]:
                raise FastrespError(
                    f"{method} loaded different data from {PIPELINE}; commands that depend on time "
                    "or chance, such as 'XADD key *', can't be compared"
                )

        return workbench.compare(
            methods, len(commands), rounds, check=check, announce=announce, budget_s=budget_s
        )


def _fastresp(workbench: Workbench, rows: Callable[[], Any], template: Template | None) -> Methods:
    """Return the methods that load rows with fastresp."""
    methods: Methods = {}
    if workbench.cli:
        methods[BY_CLI] = lambda: _load(rows(), template, workbench.url, "redis-cli")
    return methods | {BY_SOCKET: lambda: _load(rows(), template, workbench.url, "socket")}


def _load(
    data: Any, template: Template | str | None, url: str, transport: Literal["redis-cli", "socket"]
) -> None:
    mass_insert(data, template, server=url, transport=transport)


def _payload_column(rows: int) -> Any:
    """Return a table of ``rows`` rows with the payload; None if pyarrow is not installed."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    chunk = pa.repeat(PAYLOAD, COLUMN_ROWS)
    chunks = [chunk] * (rows // COLUMN_ROWS) + [chunk[: rows % COLUMN_ROWS]]
    return pa.table({"value": pa.chunked_array(chunks)})


def _columns_of(rows: list[dict[str, Any]]) -> Any:
    """Return the rows as a table of text columns; None if pyarrow is not installed."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a CSV file with a header line.

    Raises:
        FastrespError: the file is missing, not CSV in UTF-8, or has no rows; or a row does not
            match the header.
    """
    csv.field_size_limit(sys.maxsize)
    rows: list[dict[str, Any]] = []
    try:
        if path.is_file():  # not a pipe
            with open(path, "rb") as binary:
                what = binary_format(binary.read(MAGIC_BYTES))
            if what is not None:
                raise FastrespError(
                    f"{path} is {what}, but demo reads CSV; convert it, or load it with fastresp "
                    "load"
                )
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise FastrespError(
                        f"{path}, line {reader.line_num:,}, has more or fewer values than the "
                        f"{len(reader.fieldnames or ())} fields of the header; check its commas"
                    )
                rows.append(row)
    except OSError as error:
        raise FastrespError(f"can't read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise FastrespError(
            f"{path} is not in UTF-8 ({error.reason}); convert it, for example with "
            "iconv -f latin1 -t utf8"
        ) from error
    except csv.Error as error:
        raise FastrespError(f"{path} can't be read as CSV: {error}; check its quotes") from error
    if not rows:
        raise FastrespError(f"{path} has no rows; it needs a header line and one line or more")
    return rows


def _expanded(rows: Iterable[Any], template: Template) -> Iterator[list[str]]:
    """Encode rows with a template, and yield the arguments of each command."""
    import hiredis

    reader = hiredis.Reader(encoding="utf-8")
    for chunk in Writer(template).chunks(rows):
        reader.feed(bytes(chunk))
        try:
            while (command := reader.gets()) is not False:
                yield command
        except UnicodeDecodeError as error:
            raise FastrespError(
                "the template creates arguments that are not UTF-8, but the generators for "
                r"comparison write only text; leave out escapes such as \xff"
            ) from error


def _load_by_pipeline(client: Any, commands: Iterable[Sequence[str]]) -> None:
    """Load commands in pipelines, as redis-py's documentation does."""
    import redis

    source = iter(commands)
    while batch := list(islice(source, PIPELINE_COMMANDS)):
        pipeline = client.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command)
        try:
            pipeline.execute()
        except redis.ResponseError as error:
            raise FastrespError(
                f"the server refused a command of the template: {error}; check the template"
            ) from error


def _digest(client: Any) -> str:
    """Return the server's digest of all data.

    Raises:
        FastrespError: the server has no data.
    """
    digest = str(client.execute_command("DEBUG", "DIGEST"), "ascii")
    if digest == NO_DATA:
        raise FastrespError(
            "the template's commands write nothing to an empty server, so nothing can be "
            "compared; use a command that writes, such as SET or HSET"
        )
    return digest


def _check_list(client: Any, commands: int, method: str) -> None:
    """Check that the list in the server contains exactly the values that were sent.

    Raises:
        FastrespError: the list differs.
    """
    held = client.llen(KEY)
    expected = [PAYLOAD.encode()] * LRANGE_VALUES
    for first in range(0, max(held, commands), LRANGE_VALUES):
        values = client.lrange(KEY, first, first + LRANGE_VALUES - 1)
        if held != commands or values != expected[: commands - first]:
            raise FastrespError(
                f"the server's data differs from what {method} sent: {held:,} values for "
                f"{commands:,} commands, or different bytes; please report this as a bug"
            )
