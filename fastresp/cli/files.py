"""``fastresp dump``, ``check`` and ``inspect``: write and check RESP files, and read RDB files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..load.dump import dump
from ..load.new_file import replacing
from ..outcome.errors import ProtocolError
from ..outcome.messages import message_of, visible
from ..outcome.report import counted, size_text
from ..server.options import Nulls
from ..sources.files.paths import Format
from ..sources.files.resp import RespFile, RespSummary
from . import options
from .command_line import COUNT, FILE, argument, command, option
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

    from ..sources.files.snapshots import SnapshotSummary, Tally

__all__ = ["check", "dump_command", "inspect"]

NAMES_SHOWN = PREFIXES_SHOWN = 20
SHOWN_CHARACTERS = 80
BAR_CHARACTERS = 20
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; margin-bottom: 2rem; width: 100% }
caption { font-weight: 600; text-align: left } td, th { padding: .15rem .5rem; text-align: left }
td.number { text-align: right; white-space: nowrap } td:first-child { word-break: break-all }
td.bar { width: 35% } td.bar div { background: #c6302b; height: .8rem }
p.fault { color: #c6302b; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #e6e6e6 } }
"""


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


@command("inspect")
@argument("file", "FILE", "An RDB file, or `-` for stdin.")
@option("--match P", "Count only keys that match this pattern, such as `'user:*'`.")
@option("--depth N", "Number of parts in a prefix, each up to a colon.", type=COUNT, default=1)
@option("--html FILE", "Write a self-contained HTML page.", type=FILE)
@option("--json", "Print JSON.", name="as_json")
def inspect(file: str, match: str | None, depth: int, html: Path | None, as_json: bool) -> None:
    """Show what an RDB file contains: keys and bytes by type, prefix and expiry.

    fastresp inspect dump.rdb

    No server is needed. Bytes are counted in the file, where values may be compressed; in a server,
    values need more memory. Times to live are those at the time of the snapshot. If the file is
    truncated or damaged, the exit code is 1, and the part before the damage is shown.
    """
    from ..sources.files.snapshots import summarise

    with ending(as_json=as_json) as end:
        summary = summarise(standard_input() if file == "-" else file, match=match, depth=depth)
        if html is not None:
            with replacing(html) as (output, _):
                output.write(page(summary).encode())
        if as_json:
            end.fields = _snapshot_fields(summary)
        elif html is None:
            _print(summary)
        else:
            say(f"{counted(summary.total.keys, 'key')} of {summary.file} written to {html}")
        if summary.fault is not None:
            end.end(Exit.ERRORS, message_of(summary.fault))


def _facts(summary: SnapshotSummary) -> Iterator[tuple[str, str]]:
    """Yield facts about the whole file, as pairs of a name and a value."""
    yield "file", summary.file
    yield "RDB version", str(summary.version)
    if summary.server:
        yield "written by", summary.server
    if summary.created is not None:
        yield "snapshot of", f"{summary.created:%Y-%m-%d %H:%M:%S} UTC"
    yield "keys", f"{summary.total.keys:,}"
    yield "bytes of keys and values", size_text(summary.total.bytes)
    if summary.functions:
        yield "function libraries", f"{summary.functions:,}"
    if summary.unmatched:
        yield "keys that do not match", f"{summary.unmatched:,}"


def _sections(summary: SnapshotSummary) -> Iterator[tuple[str, Mapping[str, Tally]]]:
    """Yield the title and the rows of each table; except for expiry, the largest rows first."""
    from ..sources.files.snapshots import Tally

    yield "Types", _ordered(summary.types)
    if len(summary.databases) > 1:
        yield "Databases", _ordered(summary.databases)
    yield "Prefixes", dict([*_ordered(summary.prefixes).items()][:PREFIXES_SHOWN])
    yield "Expiry", {name: tally for name, tally in summary.expiries.items() if tally.keys}
    # A key can occur in several databases.
    largest = {
        f"{_shown(each.key)} ({each.type}, database {each.database})": Tally(1, each.size)
        for each in summary.largest
    }
    yield "Largest keys", largest


def _ordered(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    return dict(sorted(tallies.items(), key=lambda item: -item[1].bytes))


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _share(tally: Tally, summary: SnapshotSummary) -> float:
    return tally.bytes / max(summary.total.bytes, 1)


def _print(summary: SnapshotSummary) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(show_header=False, box=None)
    for name, value in _facts(summary):
        table.add_row(Text(name), Text(visible(value)))
    console.print(table)
    for title, tallies in _sections(summary):
        if not tallies:
            continue
        table = Table(title=title, title_justify="left", title_style="bold", box=None)
        for name in ("", "keys", "bytes", "share", ""):
            table.add_column(name, justify="right" if name else "left")
        for name, tally in tallies.items():
            share = _share(tally, summary)
            table.add_row(
                Text(visible(name)),
                f"{tally.keys:,}",
                size_text(tally.bytes),
                f"{share:.1%}",
                "█" * round(share * BAR_CHARACTERS),
            )
        console.print()
        console.print(table)


def page(summary: SnapshotSummary) -> str:
    """Return an HTML page without links to other files."""
    from html import escape

    title = f"Contents of {escape(summary.file)}"
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in _facts(summary)
    )
    parts = [f"<h1>{title}</h1><table>{rows}</table>"]
    if summary.fault is not None:
        parts.append(f'<p class="fault">{escape(str(summary.fault))}</p>')
    for name, tallies in _sections(summary):
        parts.append(f"<table><caption>{name}</caption>")
        parts.append("<tr><th></th><th>keys</th><th>bytes</th><th>share of bytes</th></tr>")
        for each, tally in tallies.items():
            share = f"{_share(tally, summary):.1%}"
            parts.append(
                f'<tr><td>{escape(each)}</td><td class="number">{tally.keys:,}</td>'
                f'<td class="number">{size_text(tally.bytes)}</td>'
                f'<td class="bar" title="{share}"><div style="width: {share}"></div></td></tr>'
            )
        parts.append("</table>")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'
    )


def _snapshot_fields(summary: SnapshotSummary) -> dict[str, Any]:
    def counts(tallies: Mapping[str, Tally]) -> dict[str, Any]:
        return {name: vars(tally) for name, tally in tallies.items()}

    return {
        "file": summary.file,
        "rdb_version": summary.version,
        "server": summary.server or None,
        "created": None if summary.created is None else summary.created.isoformat(),
        **vars(summary.total),
        "unmatched": summary.unmatched,
        "functions": summary.functions,
        "types": counts(_ordered(summary.types)),
        "databases": counts(summary.databases),
        "prefixes": counts(_ordered(summary.prefixes)),
        "expiry": counts(summary.expiries),
        "largest": [
            {
                "key": each.key.decode(errors="backslashreplace"),
                "type": each.type,
                "database": each.database,
                "bytes": each.size,
            }
            for each in summary.largest
        ],
    }
