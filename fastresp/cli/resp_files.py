"""``fastresp dump`` and ``fastresp check``: write RESP and RDB files, and check RESP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..load.dump import dump
from ..outcome.errors import ProtocolError
from ..outcome.messages import message_of, visible
from ..outcome.report import counted
from ..server.options import Nulls
from ..sources.files.paths import Format
from ..sources.files.resp import RespFile, RespSummary
from . import options
from .command_line import FILE, command, option
from .ending import ending, in_options
from .exit_codes import Exit, say
from .sources import (
    SourceOptions,
    check_templates,
    counted_bad_rows,
    opened,
    standard_input,
    template_for,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["check", "dump_command"]

NAMES_SHOWN = 20


@command("dump")
@options.source
@options.templates
@option("--output -o FILE", "Write to FILE instead of stdout.", type=FILE)
@options.formats
@options.rdb_version
@options.rows
@options.limit
def dump_command(
    source: str,
    templates: tuple[str, ...],
    output: Path | None,
    formats: tuple[str, ...],
    rdb_version: str | None,
    nulls: Nulls,
    **values: Any,
) -> None:
    """Write a RESP file or an RDB file instead of loading.

    fastresp dump users.csv "HSET user:{id} {**}" > users.resp

    Load it later with `fastresp send` or `redis-cli --pipe`.

    fastresp dump users.csv "HSET user:{id} {**}" --format rdb -o dump.rdb

    An RDB file contains whole keys. A server reads it at startup, and managed services can import
    it. Keys are created with SET, HSET, RPUSH, LPUSH, SADD or ZADD; the commands of a key must be
    adjacent.
    """
    if output == Path("-"):
        output = None
    with ending() as end:
        rdb = "rdb" in formats
        inputs = [cast(Format, name) for name in formats if name != "rdb"]
        if len(inputs) > 1:
            end.end(Exit.USAGE, f"--format has two input formats, {' and '.join(inputs)}; keep one")
        if rdb_version is not None and not rdb:
            end.end(Exit.USAGE, "--rdb-version is for RDB files; add --format rdb")
        if output is None and rdb:
            end.end(Exit.USAGE, "an RDB file can't be written to stdout; add -o FILE")
        if output is not None and output.suffix == ".rdb" and not rdb:
            advice = f"add --format rdb, or name it {output.stem}.resp"
            end.end(Exit.USAGE, f"{output} would contain RESP; {advice}")
        if output is None and sys.stdout is None:
            end.end(Exit.USAGE, "standard output is closed; use -o FILE")
        if output is None and sys.stdout.isatty():
            end.end(Exit.USAGE, "RESP can't be shown on a terminal; add '> FILE' or -o FILE")
        check_templates(templates)
        source_options = SourceOptions(**values, format=inputs[0] if inputs else None)
        with opened(source, source_options, templates) as data, counted_bad_rows(data, end):
            template = template_for(data, templates)
            commands = dump(
                data,
                template,
                output or sys.stdout.buffer,
                nulls=nulls,
                format="rdb" if rdb else "resp",
                rdb_version=cast(Any, int(rdb_version or 10)),
            )
        say(f"{counted(commands, 'command')} written" + (f" to {output}" if output else ""))


@command("check")
@options.resp_source
@options.as_json
def check(source: str, as_json: bool) -> None:
    """Check a RESP file and summarise its commands.

    fastresp check users.resp

    The exit code is 1 if `fastresp send` would refuse the file, because it is truncated or not
    RESP.
    """
    with ending(as_json=as_json) as end:
        file = RespFile(standard_input() if source == "-" else source)
        summary = file.summary()
        if as_json:
            end.fields = _fields(summary)
        else:
            from rich.console import Console

            Console(highlight=False).print(_table(file.name, summary))
        if summary.fault is not None:
            end.end(Exit.ERRORS, message_of(summary.fault))


def _table(name: str, summary: RespSummary) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(visible(name)), title_justify="left", title_style="bold", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    table.add_row("whole commands", f"{summary.commands:,}")
    table.add_row("bytes", f"{summary.size:,}")
    largest = f"{summary.largest:,} bytes"
    if summary.commands:
        largest += f", in command {summary.largest_command:,}"
    table.add_row("largest argument", largest, end_section=True)
    for each, count in sorted(summary.names.items(), key=lambda item: -item[1])[:NAMES_SHOWN]:
        table.add_row(Text(visible(each)), f"{count:,}")
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
        "reason": None if fault is None else in_options(fault.args[0]),
    }
