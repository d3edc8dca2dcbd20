"""What the report is made of: the results of a folder, and tables that any renderer can show."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from results import Result, load

__all__ = [
    "NOISY",
    "Cell",
    "Group",
    "NotMeasured",
    "Results",
    "Row",
    "Section",
    "Table",
    "clean",
    "in_turn",
    "spread",
]

# A row whose values are further apart than that, by their median, is marked.
NOISY = 0.25
# How a result of each name is made, where machine.json does not tell.
SCRIPTS = {"push-tcp": "python bench/push.py --tcp"}

# An absolute path, or the URL of a socket: of it only the last part may be published.
PATH = re.compile(r"(?:unix://|(?<![\w.:/>]))/(?:[\w.+@~-]+/)+([\w.+@~-]*)")


def clean(text: str) -> str:
    """Take out of a text what says where it was measured: paths and the machine's name."""
    text = PATH.sub(r"\1", " ".join(text.split()))
    host = platform.node()
    return re.sub(rf"\b{re.escape(host)}\b", "the machine", text) if host else text


def spread(values: Sequence[float]) -> float:
    """How far apart values are, by their median."""
    middle = abs(median(values))
    return (max(values) - min(values)) / middle if middle else 0.0


class NotMeasured(Exception):
    """There is no such result, and why."""


class Results:
    """The results in a folder: ``NAME.json``, ``NAME.missing.json`` and ``machine.json``.

    Args:
        folder: where they are; without it there are those that are added.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.machine: dict[str, Any] = {}
        self._files: dict[str, list[Result]] = {}
        if folder is not None:
            self._read(folder)

    def add(self, name: str, row: Result) -> None:
        """Take a row of a file that is still to be written."""
        self._files.setdefault(name, []).append(row)

    def _read(self, folder: Path) -> None:
        if (machine := folder / "machine.json").exists():
            self.machine = json.loads(machine.read_text())
        for path in sorted(folder.glob("*.json")):
            name = path.name.removesuffix(".json").removesuffix(".missing")
            # NAME.part is of a script that did not end.
            if name not in self._files and "." not in name and _is_results(path):
                self._files[name] = [_cleaned(row) for row in load(folder / f"{name}.json")]

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[Result]:
        for rows in self._files.values():
            yield from rows

    def command(self, name: str) -> str:
        """What makes the results of a name."""
        default = SCRIPTS.get(name, f"python bench/{name}.py")
        return clean(self.machine.get("commands", {}).get(name, f"{default} -o {name}.json"))

    def rows(self, table: str, *names: str) -> list[Result]:
        """The rows of a table, those without a value as well."""
        return [
            row for name in names for row in self._files.get(name, []) if row.table in (table, name)
        ]

    def find(self, name: str, row: str, parser: str = "", table: str = "") -> Result:
        """A row that was measured.

        Raises:
            NotMeasured: with the reason.
        """
        if name not in self._files:
            raise NotMeasured(f"not run yet: `{self.command(name)}`")
        rows = [found for found in self.rows(table or name, name) if found.row == row]
        for found in rows:
            # Where there is one only, its parser needs no name.
            if found.parser == parser or (not parser and len(rows) == 1):
                if not found.values:
                    raise NotMeasured(found.reason)
                return found
        raise NotMeasured(f"{name} has no row {', '.join(filter(None, (row, parser)))}")


def _is_results(path: Path) -> bool:
    """Tell what pyperf or ``save()`` wrote from what else is kept in the folder."""
    held = json.loads(path.read_text())
    return path.name.endswith(".missing.json") or (isinstance(held, dict) and "benchmarks" in held)


def _cleaned(row: Result) -> Result:
    row.reason = clean(row.reason)
    return row


def in_turn(one: Result, other: Result) -> bool:
    """Tell whether two took turns, so that their values belong together round by round."""
    rounds = one.of("round")
    return len(rounds) == len(one.values) and rounds == other.of("round")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what it says; backticks are around code.
        mark: ``"reached"``, ``"missed"``, ``"open"`` or ``"noisy"``.
    """

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: what comes first, as text, and then its cells.

    Attributes:
        ours: whether it is fastresp's.
        reason: what is said instead of the cells.
    """

    head: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    ours: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``words`` says how many of the columns, from the left, are text."""

    headings: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    words: int = 1


@dataclass(frozen=True)
class Section:
    """A table of the report, its chart, and what is said of them.

    Attributes:
        title: its heading.
        files: the names of the results it needs, the first of which makes it.
        table: makes its table.
        chart: makes its chart, or nothing if there is nothing to draw.
        about: a paragraph; backticks are around code.
    """

    title: str
    files: tuple[str, ...]
    table: Callable[[Results], Table]
    chart: Callable[[Results], Any] | None = None
    about: str = ""

    def shown(self, results: Results) -> Table:
        """Its table, without rows if none of its files is there."""
        if any(name in results for name in self.files):
            return self.table(results)
        return Table(())

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Group:
    """Sections that belong together; ``sources`` are keys of ``SOURCES``."""

    title: str
    about: str
    sections: tuple[Section, ...]
    sources: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
