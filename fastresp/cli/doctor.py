"""``fastresp doctor``: what limits the throughput of a server, as text or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..doctor import (
    CLUSTER_PLAN,
    PLAN,
    WATCH_CLUSTER_PLAN,
    WATCH_PLAN,
    Cluster,
    Diagnosis,
    Measured,
    Use,
    Verdict,
    doctor,
    watch,
)
from ..doctor.cluster import names
from ..doctor.measure import PIPELINE
from ..outcome.messages import visible
from ..outcome.report import counted, size_text
from . import options
from .command_line import argument, command, option
from .ending import ending, step_display
from .exit_codes import Exit, say

__all__ = ["diagnose"]

STYLES = {"problem": "bold red", "advice": "bold yellow", "note": "bold cyan"}
EXITS = {"problem": Exit.ERRORS, "advice": Exit.ADVICE}
BAR_CELLS = 36
COMMANDS_SHOWN = 5
NODES_SHOWN = 20

# Name, figure, and explanation.
Row: TypeAlias = tuple[str, str, str]


@command("doctor")
@argument("url", "[URL]", "The server, as for `--server`.", required=False)
@option(
    "--watch S",
    "Watch normal use for S seconds; send no test commands.",
    name="seconds",
    type=click.FloatRange(min=0.5),
)
@options.as_json
@options.server
def diagnose(url: str | None, seconds: float | None, server: str | None, as_json: bool) -> None:
    """Find what limits the throughput of a server.

    fastresp doctor redis://db:6379/0

    fastresp doctor --watch 10 redis://db:6379/0

    It measures for 1 to 5 seconds, with harmless commands on its own keys, and says what to change
    first in the server and its clients. With `--watch`, it sends only INFO and similar commands.

    For a cluster, pass any node: all primaries are examined, and findings name their nodes.

    The exit code is 0 if nothing needs to change, 5 if there is advice, and 1 if there is a
    problem.
    """
    with ending(as_json=as_json) as end:
        if url is not None and server is not None:
            raise click.BadParameter("the server is given twice; leave out --server")
        where = url or server
        plan = f"{PLAN}\n{CLUSTER_PLAN}"
        if seconds is not None:
            plan = f"Watching for {seconds:g} s.\n{WATCH_PLAN}\n{WATCH_CLUSTER_PLAN}"
        say(f"{plan}\n")
        if as_json:
            end.fields = {"plan": plan}
        with step_display() as announce:
            found = doctor(where, announce) if seconds is None else watch(where, seconds, announce)
        if as_json:
            end.fields = found.to_dict() | {"plan": plan}
        else:
            _print(found)
        end.end(EXITS.get(found.worst or "", Exit.OK))


def _text(text: str, style: str = "") -> Text:
    """Return text to print, with control characters from a server escaped."""
    return Text(visible(text), style)


def _print(found: Diagnosis) -> None:
    console = Console(highlight=False)
    facts = found.facts
    version = f"{facts.product} {facts.version}".strip()
    if found.cluster is not None:
        count = counted(len(found.cluster.primaries), "primary", "primaries")
        version += f", a cluster of {count},"
    here = ", on this machine" if facts.local and facts.way != "unix" else ""
    way = {"unix": "a unix socket", "tcp": "TCP", "tls": "TLS"}[facts.way]
    console.print(_text(f"{version} at {facts.place}, over {way}{here}", style="bold"))
    console.print()
    if found.cluster is not None:
        _print_nodes(console, found, found.cluster)
        _print_verdicts(console, found)
        return
    if found.measured is not None:
        _print_measured(console, found.measured)
    if found.use is not None and found.use.watched:
        _print_use(console, found.use)
    _print_verdicts(console, found)
    for name, why in facts.unread.items():
        console.print(_text(f"The server refused {name} ({why})", style="dim"))


def _print_measured(console: Console, measured: Measured) -> None:
    _print_rows(console, "Measured", _measured_rows(measured))
    if measured.reading_only:
        console.print(_text(f"Nothing was written: {measured.reading_only}.\n"))
    for what, why in measured.refused.items():
        console.print(_text(f"Not measured: {what} ({why})"))
    if measured.refused:
        console.print()
    if measured.leftover:
        console.print(_text(f"Not removed: {measured.leftover}\n"))
    if measured.depths:
        _print_depths(console, measured)


def _measured_rows(measured: Measured) -> list[Row]:
    name, encoder, trip = measured.command, measured.encoder_ns, measured.round_trip_ms
    rows = []
    if trip is not None:
        slow = f"1 in 100 takes over {measured.round_trip_p99_ms:.3f} ms"
        rows.append(("round trip of a PING", f"{trip:.3f} ms", slow))
    for title, rate, note in (
        (f"{name} over a bare socket", measured.ready, ", one at a time, encoded before"),
        (f"{name} by redis-py", measured.redis_py, ", one at a time"),
        ("  a new connection each", measured.reconnecting, ""),
        (f"  pipelines of {PIPELINE:,}", measured.pipeline, ""),
        (f"{name} by mass_insert()", measured.load, ""),
    ):
        if rate is not None:
            share = _share(rate / measured.ready) if measured.ready else ""
            rows.append((title, _rate(rate), (share + note).removeprefix(", ")))
    rows.append(("encoding alone", _rate(1e9 / encoder), f"{encoder:.0f} ns per command"))
    if measured.read_items is not None:
        rows.append(("list items by redis-py", _rate(measured.read_items), "LRANGE of 1,000"))
    return rows


def _print_depths(console: Console, measured: Measured) -> None:
    """Print the rates of PINGs as bars, one for each number of PINGs in flight."""
    bar = "█" if console.encoding.startswith("utf") else "#"
    most = max(measured.depths.values())
    console.print(_text("PINGs over a bare socket, by the number in flight", style="bold"))
    for depth, rate in measured.depths.items():
        cells = max(1, round(BAR_CELLS * rate / most))
        console.print(_text(f"  {depth:>5,}  {_rate(rate):>12}  {bar * cells}"))
    console.print()


def _print_use(console: Console, use: Use) -> None:
    _print_rows(console, f"Watched for {use.seconds:.1f} s", _use_rows(use))
    busy = sorted(use.calls.items(), key=lambda item: -item[1][1])[:COMMANDS_SHOWN]
    if busy:
        rows = [
            (name.upper(), _rate(use.per_second(count)), f"{usec / count / 1000:,.4f} ms each")
            for name, (count, usec) in busy
        ]
        _print_rows(console, "Where the server's time went", rows)


def _use_rows(use: Use) -> list[Row]:
    def shown(value: float | None, form: str) -> str:
        return "unknown" if value is None else format(value, form)

    each = use.commands_per_connection
    size = use.bytes_per_command
    opened = "" if each is None else f"{each:,.1f} commands per connection"
    active = "" if use.active is None else f"{use.active:,} active"
    share = "" if use.error_share is None else f"{use.error_share:.1%} of the commands"
    busy = None if use.cpu is None else use.cpu / use.seconds
    trip = None if use.round_trip_s is None else use.round_trip_s * 1000
    per_read = "-" if use.reads == 0 else shown(use.commands_per_read, ".2f")
    return [
        ("commands", _rate(use.per_second(use.commands)), f"{use.commands:,} in total"),
        ("commands per read", per_read, "above 1, clients use pipelines"),
        ("connections opened", f"{use.per_second(use.connections):,.1f}/s", opened),
        ("connections open", f"{use.clients:,}", active),
        ("bytes per command", "-" if size is None else size_text(size), ""),
        ("error replies", shown(use.errors, ",d"), share),
        ("CPU time", shown(busy, ".0%"), "of one core"),
        ("round trip of a PING", shown(trip, ".3f") + " ms", "before watching"),
    ]


def _print_rows(console: Console, title: str, rows: Sequence[Row]) -> None:
    console.print(_text(title, style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=24)
    table.add_column(justify="right", min_width=12)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*(_text(each) for each in row))
    console.print(Padding(table, (0, 0, 0, 2)))
    console.print()


def _print_nodes(console: Console, found: Diagnosis, cluster: Cluster) -> None:
    """Print a line for each primary of a cluster, and what could not be read or measured."""
    watched = any(each.use and each.use.watched for each in found.nodes.values())
    if watched:
        columns = ("commands", "CPU", "per read", "errors")
        title = "Primaries, and their load"
    else:
        columns = ("PING", "redis-py", "pipelines", "mass_insert()")
        title = "Primaries, and SET commands per second"
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in ("slots", "memory", *columns):
        table.add_column(justify="right")
    table.add_row("", *(_text(each, "dim") for each in ("slots", "memory", *columns)))
    slots = {each.place: len(each.slots) for each in cluster.primaries}
    for place, node in [*found.nodes.items()][:NODES_SHOWN]:
        memory = size_text(node.facts.number("used_memory") or 0)
        cells = _use_cells(node.use) if watched else _measured_cells(node.measured)
        table.add_row(*map(_text, (place, f"{slots[place]:,}", memory, *cells)))
    console.print(_text(title, style="bold"))
    console.print(Padding(table, (0, 0, 0, 2)))
    if len(found.nodes) > NODES_SHOWN:
        console.print(_text(f"  and {len(found.nodes) - NODES_SHOWN:,} more; --json lists all"))
    console.print()
    exceptions = _exceptions(found, watched)
    for text, places in exceptions.items():
        where = "" if len(places) == len(found.nodes) else f" ({names(places)})"
        console.print(_text(f"{text}{where}", style="dim"))
    if exceptions:
        console.print()


def _measured_cells(measured: Measured | None) -> list[str]:
    if measured is None:
        return ["-"] * 4
    trip = measured.round_trip_ms
    rates = (measured.redis_py, measured.pipeline, measured.load)
    known = [rate if measured.command == "SET" else None for rate in rates]
    return [
        "-" if trip is None else f"{trip:.3f} ms",
        *("-" if rate is None else _rate(rate) for rate in known),
    ]


def _use_cells(use: Use | None) -> list[str]:
    if use is None:
        return ["-"] * 4
    per_read, errors = use.commands_per_read, use.errors
    return [
        _rate(use.per_second(use.commands)),
        "-" if use.cpu is None else f"{use.cpu / use.seconds:.0%}",
        "-" if per_read is None else f"{per_read:.2f}",
        "-" if errors is None else f"{errors:,}",
    ]


def _exceptions(found: Diagnosis, watched: bool) -> dict[str, list[str]]:
    """Return messages about what could not be read or measured, each with the affected nodes."""
    exceptions: dict[str, list[str]] = {}
    for place, node in found.nodes.items():
        measured = node.measured
        lines = [f"The server refused {name} ({why})" for name, why in node.facts.unread.items()]
        if measured is not None:
            lines += [f"Not measured: {what} ({why})" for what, why in measured.refused.items()]
            if measured.reading_only:
                lines.append(f"Nothing was written: {measured.reading_only}")
            if measured.leftover:
                lines.append(f"Not removed: {measured.leftover}")
        elif not watched:
            lines.append("Not measured: no time left")
        for each in lines:
            exceptions.setdefault(each, []).append(place)
    return exceptions


def _print_verdicts(console: Console, diagnosis: Diagnosis) -> None:
    found, nodes = diagnosis.verdicts, len(diagnosis.nodes)
    changes = [verdict for verdict in found if verdict.grade != "note"]
    if not changes:
        console.print(_text("No problems found.", style="bold green"))
        console.print()
    else:
        console.print(_text("What to change, largest gain first", style="bold"))
    for number, verdict in enumerate(changes, 1):
        _print_verdict(console, f"{number}. ", verdict, nodes)
    notes = [verdict for verdict in found if verdict.grade == "note"]
    if notes:
        console.print(_text("Good to know", style="bold"))
    for verdict in notes:
        _print_verdict(console, "", verdict, nodes)


def _print_verdict(console: Console, number: str, verdict: Verdict, nodes: int) -> None:
    """Print a verdict; ``nodes`` is the number of primaries in the cluster."""
    every = len(verdict.nodes) == nodes > 1
    places = f"all {nodes:,} primaries" if every else names(verdict.nodes)
    console.print(
        Text.assemble(number, (verdict.grade, STYLES[verdict.grade]), f": {visible(verdict.title)}")
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    source, _, address = verdict.source.partition(": http")
    for name, text in (
        ("nodes", places),
        ("figure", verdict.figure),
        ("do", verdict.advice),
        ("gain", verdict.expected),
        ("source", source),
    ):
        if text:
            table.add_row(name, _text(text))
    console.print(Padding(table, (0, 0, 0, 3)))
    if address:  # unwrapped, so that terminals link it
        console.print(_text(f"           http{address}"), soft_wrap=True)
    console.print()


def _share(share: float) -> str:
    return f"{share:.0%}" if share < 2 else f"{share:,.1f}x"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s"
