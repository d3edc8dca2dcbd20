"""``fastresp demo``: load the same data by each method, and check the server's data."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice, repeat
from pathlib import Path
from typing import Any, TypeAlias

import click
import redis
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...encode.template import Template
from ...encode.writer import Writer
from ...load.dump import dump
from ...load.mass_insert import mass_insert
from ...outcome.errors import FastrespError
from ...outcome.report import counted
from ...sources.files.input import MAGIC_BYTES
from ...sources.files.reading import binary_format
from ..command_line import COUNT, FILE, argument, command, option
from ..ending import ending, step_display
from ..exit_codes import Exit, fail, terminated
from .methods import PAYLOAD, READY_FILE, Announce, Client, Comparison, Methods, Workbench

__all__ = ["BY_COLUMNS", "BY_SOCKET", "HOW", "PIPELINE", "compare_rows", "demo"]

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
# In shorter loads, starting redis-cli and connecting (about 5 ms) distorts the comparison.
SHORT_S = 0.1
OURS = (BY_CLI, BY_SOCKET, BY_COLUMNS)
# A function that returns data for fastresp, and its template.
Data: TypeAlias = tuple[Callable[[], Any], Template | str | None]
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
@option("--commands N", "Number of LPUSH commands to load.", type=COUNT, show_default="1,000,000")
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


def compare_push(commands: int, announce: Announce) -> Comparison:
    """Load LPUSH commands of 129 bytes by each method.

    Args:
        commands: number of commands.
        announce: called with the progress, between the timed parts.

    Raises:
        FastrespError: a program is missing or failed, or the server's data differs from the data
            sent.
    """
    push = ("LPUSH", KEY, PAYLOAD)
    with Workbench.open() as workbench:
        announce("writing the ready-made file")
        dump(repeat(push, commands), None, workbench.ready_file)
        pushes = partial(repeat, push, commands)
        columns = partial(_payload_column, commands), f"LPUSH {KEY} {{value}}"
        methods = _methods(workbench, pushes, (pushes, None), columns)
        return workbench.compare(
            methods, commands, ROUNDS,
            check=partial(_check_list, workbench.client, commands), announce=announce,
            budget_s=BUDGET_S, warm_up=READY_FILE if workbench.cli else None,
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
    with Workbench.open() as workbench:
        announce("writing the ready-made file")
        dump(rows, template, workbench.ready_file)
        columns = partial(_columns_of, rows), template
        methods = _methods(workbench, lambda: commands, (lambda: rows, template), columns)
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


def _methods(
    workbench: Workbench, commands: Callable[[], Iterable[Sequence[str]]], rows: Data, columns: Data
) -> Methods:
    """Return all methods that can be used here.

    Args:
        workbench: the server, and redis-cli.
        commands: the commands for the other methods, as lists of arguments.
        rows, columns: the data for fastresp, each with its template.
    """

    def load(data: Any, template: Any, transport: Any) -> Callable[[], object]:
        return lambda: mass_insert(data(), template, server=workbench.url, transport=transport)

    # redis-py is first, since it reports error replies more clearly than redis-cli.
    methods: Methods = {PIPELINE: lambda: _load_by_pipeline(workbench.client, commands())}
    methods |= workbench.plain_methods(commands)
    if workbench.cli:
        methods[BY_CLI] = load(*rows, "redis-cli")
    methods[BY_SOCKET] = load(*rows, "socket")
    if find_spec("pyarrow") is not None:
        table = columns[0]()
        methods[BY_COLUMNS] = load(lambda: table, columns[1], "socket")
    return methods


def _payload_column(rows: int) -> Any:
    """Return a table that repeats PAYLOAD in each row."""
    import pyarrow as pa

    chunk = pa.repeat(PAYLOAD, COLUMN_ROWS)
    chunks = [chunk] * (rows // COLUMN_ROWS) + [chunk[: rows % COLUMN_ROWS]]
    return pa.table({"value": pa.chunked_array(chunks)})


def _columns_of(rows: list[dict[str, Any]]) -> Any:
    """Return the rows as a table of text columns."""
    import pyarrow as pa

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
            while (arguments := reader.gets()) is not False:
                yield arguments
        except UnicodeDecodeError as error:
            raise FastrespError(
                "the template creates arguments that are not UTF-8, but the generators for "
                r"comparison write only text; leave out escapes such as \xff"
            ) from error


def _load_by_pipeline(client: Any, commands: Iterable[Sequence[str]]) -> None:
    """Load commands in pipelines, as redis-py's documentation does."""
    source = iter(commands)
    while batch := list(islice(source, PIPELINE_COMMANDS)):
        pipeline = client.pipeline(transaction=False)
        for each in batch:
            pipeline.execute_command(*each)
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
