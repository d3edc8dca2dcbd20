"""``fastresp demo``: compare ways to load data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import redis
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...encode.template import Template
from ...outcome.errors import FastrespError
from ...outcome.report import counted
from ..command_line import COUNT, FILE, argument, command, option
from ..ending import ending, step_display
from ..exit_codes import Exit, fail, terminated
from .comparison import (
    BY_CLI,
    BY_COLUMNS,
    BY_SOCKET,
    PIPELINE,
    compare_push,
    compare_rows,
    read_rows,
)
from .methods import READY_FILE, Client, Comparison

__all__ = ["demo"]

# In shorter loads, starting redis-cli and connecting (about 5 ms) distorts the comparison.
SHORT_S = 0.1
OURS = (BY_CLI, BY_SOCKET, BY_COLUMNS)
# The source of redis-cli's RESP: Python code, or a file written beforehand.
HOW = {
    "format": "Python format()",
    "concatenation +": "Python +",
    "substitution %": "Python %",
    READY_FILE: "ready-made file",
}


@command("demo")
@argument(
    "source",
    "[SOURCE]",
    "A CSV file to load; its first line names the fields.",
    required=False,
    type=FILE,
)
@argument(
    "template",
    "[TEMPLATE]",
    "The command for each row, such as `'HSET user:{id} {**}'`.",
    required=False,
)
@option(
    "--commands", "N", "Number of LPUSH commands to load.", type=COUNT, show_default="1,000,000"
)
def demo(source: Path | None, template: str | None, commands: int | None) -> None:
    """Compare ways to load data on a temporary server.

    It starts a server, and stops it afterwards. By default, each method loads 1,000,000 LPUSH
    commands of 129 bytes. Load your own file with the same arguments as for `fastresp load`:

    fastresp demo flights.csv "HSET flight:{id} {**}"
    """
    swapped = source and template and not source.exists() and Path(template).exists()
    if swapped or (source is not None and template is None):
        first = template if swapped else source if source and source.exists() else "FILE.csv"
        raise click.BadParameter(
            f"SOURCE needs a TEMPLATE, and must come first: fastresp demo {first} "
            '"HSET user:{id} {**}"'
        )
    if source is not None and commands is not None:
        raise click.BadParameter("--commands can't be used with SOURCE, which is loaded whole")
    with _failures_as_sentences():
        if source is None or template is None:
            _demo_push(commands or 1_000_000)
        else:
            _demo_rows(source, template)


def _demo_push(commands: int) -> None:
    with step_display() as announce:
        comparison = compare_push(commands, announce)
    notes = [
        f"After each load the list was read back: it had exactly the {commands:,} values sent.",
        "Timed: encoding and loading, from the client's start to the last reply.",
    ]
    _print_table(f"{commands:,} LPUSH of 129 bytes", comparison, notes)


def _demo_rows(path: Path, text: str) -> None:
    template = Template(text)
    if not path.exists():
        fail(f"{path}: No such file or directory; check the path")
    with step_display() as announce:
        announce(f"reading {path}")
        rows = read_rows(path)
        comparison = compare_rows(rows, template, announce)
    notes = [
        "After each load the server's DEBUG DIGEST was the same as after a load by redis-py.",
        "Timed: encoding and loading, from the client's start to the last reply. Not timed: "
        "reading the CSV file. fastresp gets dicts or Arrow columns, and fills in the template "
        "while it is timed; the other methods get complete lists of arguments.",
    ]
    commands, count = counted(comparison.commands, "command"), counted(len(rows), "row")
    _print_table(f"{commands} from {count} of {path.name}", comparison, notes)


def _print_table(title: str, comparison: Comparison, notes: list[str]) -> None:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    for column in ("seconds", "commands/s", "speed-up", "server CPU"):
        table.add_column(column, justify="right")
    client = comparison.client
    for method in comparison.timings:
        seconds = comparison.seconds(method)
        table.add_row(
            method if client is None else _shown(method, client),
            f"{seconds:.3f}",
            f"{comparison.commands / seconds:,.0f}",
            f"{comparison.seconds(PIPELINE) / seconds:.2f}x",
            f"{comparison.server_seconds(method):.3f}",
            style="bold green" if method in OURS else None,
        )
    if client is None:
        notes.append(
            "Rows with redis-cli are left out, because it is not installed (Debian: apt install "
            "redis-tools; macOS: brew install redis)."
        )
    elif client.from_wheel:
        notes.append(
            f"* {client.name} {client.version} is from a wheel, and slower than redis-cli from a "
            "package. For a fair comparison, install a package (Debian: apt install redis-tools; "
            "macOS: brew install redis)."
        )
    if BY_COLUMNS not in comparison.timings:
        notes.append("Columns need pyarrow: pip install 'fastresp[files]'.")
    if comparison.seconds(BY_SOCKET) < SHORT_S:
        notes.append("Loads this short measure mostly the start of a process.")
    rounds = comparison.rounds
    named = f"{client.name} {client.version}" if client else "none"
    how = f"medians of {rounds} rounds, in turn" if rounds > 1 else "1 round"
    console = Console()
    console.print()
    console.print(table)
    console.print(
        f"{comparison.server} on a unix socket; client: {named}; {how}.",
        f"Speed-up: commands/s relative to the {PIPELINE}.",
        *notes,
        sep="\n",
        highlight=False,
        markup=False,
    )


def _shown(method: str, client: Client) -> str:
    """Return how rows are loaded, and by which client; ``*`` marks a client from a wheel."""
    name = f"{client.name}{'*' if client.from_wheel else ''}"
    if method in HOW:
        return f"{name}, {HOW[method]}"
    return f"fastresp, {name}" if method == BY_CLI else method


@contextmanager
def _failures_as_sentences() -> Iterator[None]:
    with ending():
        try:
            yield
        except FastrespError:  # before redis.RedisError, which it may also be
            raise
        except redis.RedisError as error:
            raise FastrespError(
                f"the demo's server was lost: {error}; check the free memory"
            ) from error
        except OSError as error:
            if isinstance(error, FastrespError):
                raise
            raise FastrespError(f"{error}; check the free space in /tmp") from error
        except KeyboardInterrupt:
            code = Exit.TERMINATED if terminated() else Exit.INTERRUPTED
            fail("stopped; the server and its folder were removed", code)
