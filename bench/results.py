"""Results of the benchmarks as they are kept: pyperf's JSON, a benchmark for each row of a table.

``push.json`` holds what was measured, ``push.missing.json`` beside it the rows that could not be,
each with its reason. A run of pyperf holds one value. Its metadata tell the table, the row and what
else there is to know of the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyperf

__all__ = ["Result", "load", "missing_path", "save", "save_missing"]


@dataclass
class Result:
    """A row of a table.

    Attributes:
        table: as ``"000 push"``: the number of the source, or the name of the script.
        row: what the table calls it, as ``"pipelining -P 1000"``.
        parser: by what replies were read, as ``"hiredis"``; empty where that says nothing.
        operations: operations that one value is the time of.
        unit: pyperf's: ``"second"``, ``"byte"`` or ``"integer"``.
        values: as they were measured, one for each round.
        details: for each value what else was measured meanwhile, such as ``server_cpu``,
            ``client_cpu`` (seconds); the values are numbers or text.
        reason: why there are no values.
    """

    table: str
    row: str
    parser: str = ""
    operations: int = 1
    unit: str = "second"
    values: list[float] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (f"{self.table}: {self.row}", self.parser)))

    def add(self, value: float, **details: Any) -> None:
        """Take a value and what was measured with it."""
        self.values.append(value)
        self.details.append(details)

    def rates(self) -> list[float]:
        """Operations a second, value by value."""
        return [self.operations / value for value in self.values]

    def of(self, detail: str) -> list[float]:
        """A detail of each value that has it."""
        return [each[detail] for each in self.details if detail in each]


def missing_path(path: Path) -> Path:
    """Where the missing rows of a file of results are."""
    return path.with_suffix(".missing.json")


def save(path: Path, results: Iterable[Result]) -> None:
    """Write results as pyperf's JSON, and beside it those that have only a reason."""
    results = list(results)
    save_missing(path, results)
    # pyperf has no file without a benchmark.
    if benchmarks := [_benchmark(result) for result in results if result.values]:
        pyperf.BenchmarkSuite(benchmarks).dump(str(path))


def save_missing(path: Path, results: Iterable[Result]) -> None:
    """Write the rows that have only a reason, beside a file of results."""
    missing = [
        {"table": result.table, "row": result.row, "parser": result.parser, "reason": result.reason}
        for result in results
        if not result.values
    ]
    if missing:
        missing_path(path).write_text(json.dumps(missing, indent=1) + "\n")


def load(path: Path) -> Iterator[Result]:
    """The rows of a file: those of ``save()``, or of a script that pyperf itself runs.

    There may be only the file of what is missing.
    """
    measured = pyperf.BenchmarkSuite.load(str(path)).get_benchmarks() if path.exists() else []
    for benchmark in measured:
        about = benchmark.get_metadata()
        result = Result(
            about.get("table", path.stem),
            about.get("row", benchmark.get_name()),
            about.get("parser", ""),
            about.get("operations", about.get("commands", 1)),
            benchmark.get_unit(),
        )
        for run in benchmark.get_runs():
            for value in run.values:
                result.add(value, **run.get_metadata())
        yield result
    if missing_path(path).exists():
        for row in json.loads(missing_path(path).read_text()):
            yield Result(**row)


def _benchmark(result: Result) -> pyperf.Benchmark:
    about = {
        "name": result.name,
        "unit": result.unit,
        "table": result.table,
        "row": result.row,
        "operations": result.operations,
    }
    if result.parser:
        about["parser"] = result.parser
    return pyperf.Benchmark(
        [
            pyperf.Run([value], metadata=about | {"loops": 1, "round": index} | details)
            for index, (value, details) in enumerate(
                zip(result.values, result.details, strict=True), start=1
            )
        ]
    )
