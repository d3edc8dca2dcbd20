"""Write the tables of docs/compatibility.md from test runs.

Run the tests of the servers under each Python, then this script with their reports::

    pytest -n 0 tests/server/test_matrix.py --junitxml 3.11.xml
    .ci/oldest oldest.xml
    python docs/make_compatibility.py 3.11.xml 3.12.xml oldest.xml
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

PAGE = Path(__file__).with_name("compatibility.md")
BEGIN, END = "<!-- tables: made by docs/make_compatibility.py -->\n", "<!-- end of the tables -->\n"
NOT_RUN = "-"
# What wheels are built for, and no report was made on: the release workflow only runs .ci/smoke.py.
UNTESTED = [
    ["3.14t", "Linux", NOT_RUN],
    ["3.11 to 3.14", "Linux, musl", NOT_RUN],
    ["3.11 to 3.14", "macOS 13.3 and later, ARM and x86-64", NOT_RUN],
]
# Tested weekly, by .github/workflows/ci.yml.
WEEKLY = "yodb"


class Run(NamedTuple):
    """What one report says: the day, the machine, versions of packages, and servers."""

    date: str
    python: str
    system: str
    packages: dict[str, str]
    transports: dict[str, set[str]]


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {
        found.attrib["name"]: found.attrib["value"]
        for found in element.iterfind("properties/property")
    }


def by_number(text: str) -> list[int | str]:
    """Sort ``Redis 10.1`` after ``Redis 9.2``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def read(report: Path) -> Run:
    """Read a report of pytest.

    Raises:
        SystemExit: a test failed, or none recorded a server.
    """
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None, report
    if int(suite.attrib["failures"]) or int(suite.attrib["errors"]):
        sys.exit(f"{report}: not all tests passed")
    machine = properties(suite)
    packages = dict(package.split(" ") for package in machine["packages"].split(", "))
    transports: dict[str, set[str]] = {}
    for case in suite.iterfind("testcase"):
        if "server" in (ran := properties(case)):
            transports.setdefault(ran["server"], set()).add(ran["transport"])
    if not transports:
        sys.exit(f"{report}: no test recorded a server")
    date = suite.attrib["timestamp"][:10]
    return Run(date, machine["python"], machine["system"], packages, transports)


PYTHONS = "Python | System | Tested on"
PACKAGES = "Package | Oldest | Newest"
SERVERS = "Server | Transports | Tested on"


def rows_of(page: str, head: str) -> list[list[str]]:
    """Return the rows that the page has in the table with this head."""
    body = page.partition(f"| {head} |\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in body.splitlines()[1:]]


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {head} |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def pythons(page: str, runs: list[Run]) -> str:
    """Return the table of minor versions of Python on each system."""
    rows = [row for row in rows_of(page, PYTHONS) if row[2] != NOT_RUN]
    rows += [[run.python, run.system, run.date] for run in runs]
    last = {(re.sub(r"\.\d+(t?)$", r"\1", row[0]), row[1]): row for row in rows}
    return table(PYTHONS, [*sorted(last.values(), key=lambda row: by_number(row[0])), *UNTESTED])


def packages(page: str, runs: list[Run]) -> str:
    versions = {name: {oldest, newest} for name, oldest, newest in rows_of(page, PACKAGES)}
    for run in runs:
        for name, version in run.packages.items():
            versions.setdefault(name, set()).add(version)
    ordered = {name: sorted(versions[name], key=by_number) for name in sorted(versions)}
    return table(PACKAGES, [(name, every[0], every[-1]) for name, every in ordered.items()])


def servers(page: str, runs: list[Run]) -> str:
    last = {name: (set(ways.split(", ")), date) for name, ways, date in rows_of(page, SERVERS)}
    for run in runs:
        for name, ways in run.transports.items():
            last[name] = (last.get(name, (set(), ""))[0] | ways, run.date)
    if any(name.startswith(f"{WEEKLY} ") for name in last):
        last.pop(WEEKLY, None)
    else:
        last[WEEKLY] = ({"socket"}, "weekly")
    return table(
        SERVERS,
        [
            (name, ", ".join(sorted(last[name][0], key=by_number)), last[name][1])
            for name in sorted(last, key=by_number)
        ],
    )


def main() -> None:
    """Add the reports in ``sys.argv`` to the tables; older rows stay, with their dates."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    page, _, after = rest.partition(END)
    if not rest or not after:
        sys.exit(f"{PAGE} has no place for the tables")
    runs = sorted((read(Path(name)) for name in sys.argv[1:]), key=lambda run: run.date)
    made = "\n".join(make(page, runs) for make in (pythons, packages, servers))
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
