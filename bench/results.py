"""Results of the benchmarks as files: pyperf's JSON, a benchmark for each row of a table.

``push.json`` has the measured rows; ``push.missing.json`` beside it has the other rows, each with
the reason why it was not measured. A pyperf run has one value; its metadata has the table, the row,
and the other measurements of the value. ``push.json.gz`` is ``push.json``, compressed.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyperf

# A row with a larger spread is measured again, and marked if it stays so.
NOISY = 0.25
# Number of values that a row of many rounds keeps.
KEPT = 3
# The details of a value that pages use; the others, such as pyperf's host name, are not published.
PUBLISHED = {
    *("round", "server_cpu", "client_cpu", "node_cpu", "all_cpu", "command_bytes", "key_bytes"),
    *("bytes", "start", "peak", "peak_bytes", "share", "longest"),
}


def spread(values: Sequence[float]) -> float:
    """Return the spread of values: maximum minus minimum, divided by the median."""
    middle = abs(median(values))
    return (max(values) - min(values)) / middle if middle else 0.0


@dataclass
class Result:
    """A row of a table.

    Attributes:
        table: such as ``"000 push"``: the number of the source, or the name of the script.
        row: its name in the table, such as ``"pipelining -P 1000"``.
        parser: the parser of the replies, such as ``"hiredis"``; empty where it does not matter.
        operations: number of operations in one value.
        unit: pyperf's: ``"second"``, ``"byte"`` or ``"integer"``.
        values: one for each round.
        details: for each value, the other measurements, such as ``server_cpu`` and ``client_cpu``
            (seconds), and its ``round``; numbers or text.
        reason: why there are no values.
        aside: values with their details that are not shown: of slower rounds, and of a noisier
            second run. Ratios use them as well, each with another row's value of the same round.
    """

    table: str
    row: str
    parser: str = ""
    operations: int = 1
    unit: str = "second"
    values: list[float] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    aside: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.table, self.row, self.parser

    @property
    def noisy(self) -> bool:
        """Whether its values are so far apart that it is measured again, and marked."""
        return len(self.values) > 1 and spread(self.values) > NOISY

    def add(self, value: float, **details: Any) -> None:
        """Add a value and its details."""
        self.values.append(value)
        self.details.append(details)

    def leave_out(self, reason: str) -> None:
        """Remove its values, and set the reason why."""
        self.values, self.details, self.reason = [], [], reason

    def settle(self) -> None:
        """Keep the least time of each third of the rounds, and set the others aside.

        Other work on the machine only adds time, for seconds at a stretch. So a third has every
        third round, and its least time is the time that the work needs. Fewer than six rounds are
        all kept.
        """
        if self.unit != "second" or len(self.values) < 2 * KEPT:
            return
        rounds = range(len(self.values))
        least = {min(rounds[first::KEPT], key=self.values.__getitem__) for first in range(KEPT)}
        self.details = [{"round": i + 1} | more for i, more in enumerate(self.details)]
        pairs = list(zip(self.values, self.details, strict=True))
        self.aside += [pairs[i] for i in rounds if i not in least]
        self.values, self.details = map(list, zip(*(pairs[i] for i in sorted(least)), strict=True))

    def rates(self) -> list[float]:
        return [self.operations / value for value in self.values]

    def of(self, detail: str) -> list[float]:
        """Return a detail of all values that have it."""
        return [each[detail] for each in self.details if detail in each]

    def by_round(self, detail: str = "") -> dict[int, float]:
        """Return the values of all rounds, or a detail of them; empty if they have no rounds."""
        pairs = [*zip(self.values, self.details, strict=True), *self.aside]
        return {
            details["round"]: details[detail] if detail else value
            for value, details in pairs
            if "round" in details and (not detail or detail in details)
        }


def merged(first: Iterable[Result], second: Iterable[Result]) -> list[Result]:
    """Merge two runs of a script: a quieter row of the second run replaces a noisy row.

    The values of the other run are set aside, for ratios.
    """
    again = {row.key: row for row in second}
    made = []
    for row in first:
        other = again.get(row.key)
        if row.values and other is not None and other.values:
            last = max(row.by_round(), default=0)
            for details in (*other.details, *(details for _, details in other.aside)):
                if "round" in details:
                    details["round"] += last
            if row.noisy and spread(other.values) < spread(row.values):
                row, other = other, row
            row.aside += [*zip(other.values, other.details, strict=True), *other.aside]
        made.append(row)
    return made


def name_of(path: Path) -> str:
    """Return the name of a file of results, such as ``"push"`` of ``push.json.gz``."""
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".missing")


def missing_path(path: Path) -> Path:
    """Return where the missing rows of a file of results are."""
    return path.with_name(f"{name_of(path)}.missing.json")


def save(path: Path, results: Iterable[Result]) -> None:
    """Write results as pyperf's JSON, and missing rows with their reasons to a second file."""
    results = list(results)
    missing = [
        {"table": row.table, "row": row.row, "parser": row.parser, "reason": row.reason}
        for row in results
        if not row.values
    ]
    if missing:
        missing_path(path).write_text(json.dumps(missing, indent=1) + "\n")
    # pyperf cannot write a file without a benchmark.
    if benchmarks := [_benchmark(row) for row in results if row.values]:
        text = io.StringIO()
        pyperf.BenchmarkSuite(benchmarks).dump(text)
        data = text.getvalue().encode()
        # Without a time, equal results are equal files.
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def publish(path: Path, results: Iterable[Result]) -> None:
    """Write results with only the details and the digits that pages use."""
    made = []

    def short(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) else value

    def used(details: dict[str, Any]) -> dict[str, Any]:
        return {name: short(value) for name, value in details.items() if name in PUBLISHED}

    for row in results:
        aside = [(short(value), used(details)) for value, details in row.aside]
        values, details = [*map(short, row.values)], [*map(used, row.details)]
        made.append(replace(row, values=values, details=details, aside=aside))
    save(path, made)


def load(path: Path) -> Iterator[Result]:
    """Yield the rows of a file that ``save()`` wrote, including the missing rows."""
    measured = pyperf.BenchmarkSuite.load(str(path)).get_benchmarks() if path.exists() else []
    for benchmark in measured:
        about = benchmark.get_metadata()
        result = Result(
            about.get("table", path.stem),
            about.get("row", benchmark.get_name()),
            about.get("parser", ""),
            about.get("operations", 1),
            benchmark.get_unit(),
        )
        for run in benchmark.get_runs():
            details = run.get_metadata()
            for value in run.values:
                if details.get("aside"):
                    result.aside.append((value, details))
                else:
                    result.add(value, **details)
        yield result
    if missing_path(path).exists():
        for row in json.loads(missing_path(path).read_text()):
            yield Result(**row)


def _benchmark(result: Result) -> pyperf.Benchmark:
    about = {
        "name": ", ".join(filter(None, (f"{result.table}: {result.row}", result.parser))),
        "unit": result.unit,
        "table": result.table,
        "row": result.row,
        "operations": result.operations,
        "loops": 1,
    }
    if result.parser:
        about["parser"] = result.parser
    numbered = enumerate(zip(result.values, result.details, strict=True), start=1)
    runs = [
        *((value, {"round": number} | details) for number, (value, details) in numbered),
        *((value, details | {"aside": True}) for value, details in result.aside),
    ]
    return pyperf.Benchmark(
        [
            pyperf.Run([value], metadata=about | details, collect_metadata=False)
            for value, details in runs
        ]
    )
