"""Results of a folder, and tables made from them."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from results import Result, load, name_of

# The command that makes a file of results, if machine.json does not have it.
SCRIPTS = {"push-tcp": "python bench/push.py --tcp"}

# An absolute path, or the URL of a socket: only its last part may be published.
PATH = re.compile(r"(?:unix://|(?<![\w.:/>]))/(?:[\w.+@~-]+/)+([\w.+@~-]*)")


def clean(text: str) -> str:
    """Remove paths and the machine's name from a text."""
    text = PATH.sub(r"\1", " ".join(text.split()))
    host = platform.node()
    return re.sub(rf"\b{re.escape(host)}\b", "the machine", text) if host else text


class NotMeasured(Exception):
    """A result is missing; the message says why."""


class NotRun(NotMeasured):
    """The script was not run."""


class Results:
    """The results in a folder: ``NAME.json[.gz]``, ``NAME.missing.json`` and ``machine.json``.

    Args:
        folder: where they are; None to start empty and use ``add()``.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.machine: dict[str, Any] = {}
        self._files: dict[str, list[Result]] = {}
        if folder is None:
            return
        # Published results were cleaned on the machine that made them.
        private = not any(folder.glob("*.json.gz"))
        if (path := folder / "machine.json").exists():
            machine = json.loads(path.read_text())
            self.machine = _cleaned(machine) if private else machine
        for path in sorted(folder.glob("*.json*")):
            name = name_of(path)
            # NAME.part is from a script that did not finish.
            if name not in self._files and "." not in name and _is_results(path):
                whole = folder / f"{name}.json.gz"
                rows = load(whole if whole.exists() else folder / f"{name}.json")
                self._files[name] = [
                    replace(row, reason=clean(row.reason)) if private else row for row in rows
                ]

    def add(self, name: str, row: Result) -> None:
        """Add a row of a file that is not written yet."""
        self._files.setdefault(name, []).append(row)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[Result]:
        for rows in self._files.values():
            yield from rows

    def items(self) -> Iterator[tuple[str, list[Result]]]:
        """Yield each file: its name and its rows."""
        yield from self._files.items()

    def command(self, name: str) -> str:
        """Return the command that produces a file of results."""
        default = SCRIPTS.get(name, f"python bench/{name}.py")
        return str(self.machine.get("commands", {}).get(name, f"{default} -o {name}.json"))

    def rows(self, table: str, *names: str) -> list[Result]:
        """Return the rows of a table, including rows without a value."""
        return [
            row for name in names for row in self._files.get(name, []) if row.table in (table, name)
        ]

    def find(self, name: str, row: str, parser: str = "", table: str = "") -> Result:
        """Return a row that was measured.

        Raises:
            NotMeasured: with the reason.
        """
        if name not in self._files:
            raise NotRun(f"not run yet: `{self.command(name)}`")
        rows = [found for found in self.rows(table or name, name) if found.row == row]
        for found in rows:
            # If there is only one row, its parser need not be named.
            if found.parser == parser or (not parser and len(rows) == 1):
                if not found.values:
                    raise NotMeasured(found.reason)
                return found
        raise NotMeasured(f"{name} has no row {', '.join(filter(None, (row, parser)))}")


def _is_results(path: Path) -> bool:
    """Return whether ``save()`` wrote a file; other files may be in the folder."""
    if path.name.endswith((".missing.json", ".json.gz")):
        return True
    held = json.loads(path.read_text())
    return isinstance(held, dict) and "benchmarks" in held


def _cleaned(value: Any) -> Any:
    """Remove paths and the machine's name from all texts."""
    if isinstance(value, dict):
        return {name: _cleaned(each) for name, each in value.items()}
    return clean(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: its content; code is in backticks.
        mark: ``"reached"``, ``"missed"``, ``"open"`` or ``"noisy"``.
    """

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: leading columns of text, then its cells.

    Attributes:
        ours: whether the row is fastresp's.
        reason: shown instead of the cells.
    """

    head: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    ours: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Table:
    """A table; its first ``words`` columns are text."""

    headings: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    words: int = 1


class Entry(NamedTuple):
    """A table of the page.

    Attributes:
        files: the files of results that the table needs, the main one first.
        build: makes the table from results.
    """

    files: tuple[str, ...]
    build: Callable[[Results], Table]

    def shown(self, results: Results) -> Table:
        """Return the table, which is empty if none of its files exists."""
        if any(name in results for name in self.files):
            return self.build(results)
        return Table(())
