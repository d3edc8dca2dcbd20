"""``fastresp pack`` and ``fastresp check``: files of RESP, written and looked at."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..load.mass_insert import dump
from ..outcome.errors import ProtocolError
from ..sources.files.resp import RespFile, RespSummary
from . import options
from .exit_codes import Exit, ending, say
from .load import (
    TextOptions,
    check_templates,
    counted_bad_rows,
    opened,
    standard_input,
    template_for,
)

__all__ = ["check", "pack"]

NAMES_SHOWN = 20


def pack(
    source: options.Source,
    templates: options.Templates = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there, and not to stdout."),
    ] = None,
    sql: options.Sql = None,
    format: options.Format = None,  # noqa: A002
    delimiter: options.Delimiter = None,
    no_header: options.NoHeader = False,
    columns: options.Columns = None,
    encoding: options.Encoding = None,
    null_values: options.NullValues = None,
    bad_rows: options.BadRows = "error",
    null: options.Null = False,
    nulls: options.Nulls = "error",
    limit: options.Limit = None,
) -> None:
    """Write the RESP that load would send, for fastresp send or redis-cli --pipe.

    fastresp pack users.csv "HSET user:{id} {**}" > users.resp
    """
    with ending() as end:
        if output is None and sys.stdout is None:
            end.end(Exit.USAGE, "standard output is closed; give -o FILE")
        if output is None and sys.stdout.isatty():
            end.end(Exit.USAGE, "RESP is not for a terminal: write '> FILE' behind it, or -o FILE")
        check_templates(templates or [])
        text = TextOptions(delimiter, no_header, columns, encoding, null_values, bad_rows, null)
        with (
            opened(source, sql=sql, format=format, text=text, limit=limit) as data,
            counted_bad_rows(data, end),
        ):
            template = template_for(data, templates)
            commands = dump(data, template, output or sys.stdout.buffer, nulls=nulls)
        say(f"{commands:,} commands written" + (f" to {output}" if output else ""))


def check(
    source: options.RespSource,
    as_json: options.Json = False,
) -> None:
    """Say what a file of RESP holds, and whether fastresp send would take it.

    fastresp check users.resp

    Exit code 1 for a file that is cut off, or that is not RESP.
    """
    with ending(as_json=as_json) as end:
        file = RespFile(standard_input() if source == "-" else source)
        summary = file.summary()
        if as_json:
            end.fields = _fields(summary)
        else:
            Console(highlight=False).print(_table(file.name, summary))
        if summary.fault is not None:
            end.end(Exit.ERRORS, str(summary.fault))


def _table(name: str, summary: RespSummary) -> Table:
    table = Table(title=Text(name), title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("whole commands", f"{summary.commands:,}")
    table.add_row("their bytes", f"{summary.size:,}")
    largest = f"{summary.largest:,} bytes"
    if summary.commands:
        largest += f", in command {summary.largest_command:,}"
    table.add_row("largest argument", largest, end_section=True)
    for word, count in sorted(summary.names.items(), key=lambda item: -item[1])[:NAMES_SHOWN]:
        table.add_row(Text(word), f"{count:,}")
    return table


def _fields(summary: RespSummary) -> dict[str, Any]:
    fault = summary.fault
    return {
        "valid": fault is None,
        "commands": summary.commands,
        "bytes": summary.size,
        "names": summary.names,
        "largest_argument": summary.largest,
        "largest_argument_command": summary.largest_command,
        "last_command": summary.last or None,
        "last_command_offset": summary.last_offset,
        "truncated": summary.truncated,
        "offset": fault.offset if isinstance(fault, ProtocolError) else None,
        "reason": None if fault is None else str(fault.args[0]),
    }
