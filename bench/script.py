"""What all scripts share: options, tables on the terminal, and the file of results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pages.data import Results, Table
from pages.goals import GOALS, judge
from pages.markdown import goals_table
from pages.sections import TABLES
from results import Result, save
from rich.console import Console
from rich.table import Table as Grid
from turns import NotAvailable

from fastresp import FastrespError

# The width of tables that are not on a terminal.
WIDTH = 200


def run_script(
    doc: str,
    measured: Callable[[argparse.Namespace], Sequence[Result]],
    rounds: int,
    fast_rounds: int,
    *,
    only: bool = False,
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
    **numbers: tuple[str, int] | tuple[str, int, int],
) -> None:
    """Read the options of a script, measure, print its tables and goals, and write its results.

    Args:
        doc: the script's docstring.
        measured: measures with the script's options, and returns the rows. If it raises
            ``NotAvailable``, all rows are missing.
        rounds, fast_rounds: the default number of rounds, without and with ``--fast``.
        only: whether there is an option ``--only``, which chooses contenders by name.
        add: adds other options.
        **numbers: options that are numbers: what is counted, the default, and the default with
            ``--fast`` if it differs.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the results as pyperf's JSON")
    parser.add_argument("--fast", action="store_true", help=f"{fast_rounds} rounds, not {rounds}")
    numbers = {"rounds": ("number of rounds", rounds, fast_rounds)} | numbers
    for name, (what, *defaults) in numbers.items():
        said = f"{what} (default: {defaults[0]:,}, or {defaults[-1]:,} with --fast)"
        parser.add_argument(f"--{name}", type=int, help=said if defaults[1:] else what)
    if only:
        parser.add_argument(
            "--only", type=lambda names: names.split(","), help="measure only these contenders"
        )
    add(parser)
    args = parser.parse_args()
    if args.output and args.output.exists():
        parser.error(f"{args.output} exists already; remove it or choose another name")
    for name, (_, *defaults) in numbers.items():
        if getattr(args, name) is None:
            setattr(args, name, defaults[-1 if args.fast else 0])
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    name = Path(sys.argv[0]).stem
    try:
        results = measured(args)
    except NotAvailable as error:
        results = [Result(name, "all rows", reason=str(error))]
    except FastrespError as error:
        sys.exit(str(error))
    for row in results:
        row.settle()
    found = Results()
    files = {file for entry in TABLES.values() for file in entry.files}
    for row in results:  # as if they were read from the script's file
        found.add(row.table if row.table in files else name, row)
    for title, table in tables_of(found).items():
        print_table(title, table)
    if args.output:
        save(args.output, results)


def tables_of(results: Results) -> dict[str, Table]:
    """Return the page's tables of these results, and their goals."""
    tables = {}
    for title, entry in TABLES.items():
        table = entry.shown(results)
        if entry.files[0] not in results:
            table = replace(table, rows=[row for row in table.rows if not row.reason])
        if table.rows:
            tables[title] = table
    verdicts = [verdict for goal in GOALS if (verdict := judge(goal, results)).measured]
    return tables | ({"Goals": goals_table(verdicts)} if verdicts else {})


def print_table(title: str, table: Table) -> None:
    """Print a table, and below it the reasons of missing rows."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    shown = Grid(title=title, title_justify="left", box=None, pad_edge=False)
    for number, heading in enumerate(table.headings):
        shown.add_column(heading, justify="left" if number < table.words else "right")
    for row in table.rows:
        if not row.reason:
            shown.add_row(*row.head, *(cell.text for cell in row.cells))
    console.print()
    console.print(shown)
    for row in table.rows:
        if row.reason:
            # Without markup: rich would read [peers] as a style.
            words = f"{' '.join(filter(None, row.head))}: {row.reason}"
            console.print(words, highlight=False, markup=False, soft_wrap=True)
