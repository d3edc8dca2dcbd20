"""``fastresp demo``: ways to load data, compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import redis
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from ...encode.template import Template
from ...outcome.errors import FastrespError
from ..command_line import argument, command, option
from ..ending import ending
from ..exit_codes import Exit, fail
from .comparison import compare_push, compare_rows, read_rows
from .methods import (
    FASTRESP,
    READY_FILE,
    Announce,
    Comparison,
)

__all__ = ["demo"]

# Loads shorter than this say little: to start redis-cli and connect takes about 5 ms.
SHORT_S = 0.1


@command("demo")
@argument(
    "template",
    metavar="[TEMPLATE]",
    required=False,
    help="With --rows: the command for each row.",
)
@option(
    "--rows",
    metavar="FILE.csv",
    type=click.Path(path_type=Path),
    help="Load this CSV file instead; its first line names the fields.",
)
@option(
    "--commands",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of LPUSH commands to load.",
    show_default="1,000,000",
)
def demo(template: str | None, rows: Path | None, commands: int | None) -> None:
    """Compare ways to load data on a temporary server.

    The server is started for the comparison and removed afterwards. By default each way loads
    1,000,000 LPUSH commands of 129 bytes. To load a file of your own:

    fastresp demo --rows flights.csv "HSET flight:{id} {**}"
    """
    if (rows is None) != (template is None):
        raise click.BadParameter(
            "--rows FILE.csv and a template go together: fastresp demo --rows FILE.csv "
            '"HSET user:{id} {**}"'
        )
    if rows is not None and commands is not None:
        raise click.BadParameter("--commands goes without --rows: the file says how many")
    with _failures_as_sentences():
        if rows is None or template is None:
            _demo_push(commands or 1_000_000)
        else:
            _demo_rows(rows, template)


def _demo_push(commands: int) -> None:
    with _status() as announce:
        comparison = compare_push(commands, announce)
    notes = [
        f"After each load the list was read back: it held exactly the {commands:,} values sent.",
        "Timed: encoding and loading, from the client's start to the last reply.",
    ]
    _print_table(f"{commands:,} LPUSH of 129 bytes", comparison, notes)


def _demo_rows(path: Path, text: str) -> None:
    template = Template(text)
    if not path.exists():
        fail(f"{path}: No such file or directory; check the path after --rows")
    with _status() as announce:
        announce(f"reading {path}")
        rows = read_rows(path)
        comparison = compare_rows(rows, template, announce)
    notes = [
        "After each load the server's DEBUG DIGEST was the same as after a load by redis-py.",
        "Timed: encoding and loading, from the client's start to the last reply. Not timed: "
        "reading the CSV file; and, for all but fastresp, filling in the template: they got ready "
        "lists of arguments, fastresp got the rows as dicts.",
    ]
    title = f"{comparison.commands:,} commands from {len(rows):,} rows of {path.name}"
    _print_table(title, comparison, notes)


def _print_table(title: str, comparison: Comparison, notes: list[str]) -> None:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("method")
    for column in ("seconds", "commands/s", "ratio", "server CPU s"):
        table.add_column(column, justify="right")
    for method in comparison.timings:
        seconds = comparison.seconds(method)
        table.add_row(
            method if method == FASTRESP or "redis-py" in method else f"redis-cli, {method}",
            f"{seconds:.3f}",
            f"{comparison.commands / seconds:,.0f}",
            f"{comparison.seconds(READY_FILE) / seconds:.2f}x",
            f"{comparison.server_seconds(method):.3f}",
            style="bold green" if method == FASTRESP else "dim" if method == READY_FILE else None,
        )
    if comparison.seconds(READY_FILE) < SHORT_S:
        notes = [*notes, "Loads as short as these time mostly the start of a process."]
    rounds = comparison.rounds
    how = f"medians of {rounds} rounds in turn" if rounds > 1 else "one round"
    console = Console()
    console.print()
    console.print(table)
    console.print(
        f"{comparison.server} on a unix socket; {how}. Ratio: the rate by that of 'no generation', "
        "which is redis-cli fed a file written beforehand.",
        *notes,
        sep="\n",
        highlight=False,
    )


@contextmanager
def _status() -> Iterator[Announce]:
    """Show on stderr what goes on; only between the timed parts, so that it costs them nothing."""
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda text: live.update(Spinner("dots", escape(text)), refresh=True)


@contextmanager
def _failures_as_sentences() -> Iterator[None]:
    with ending():
        try:
            yield
        except FastrespError:  # some of which are redis-py's, too
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
            fail("stopped; the server and its folder are removed", Exit.INTERRUPTED)
