"""Write the tables of docs/compatibility.md from test runs.

Run the tests of the servers under each Python, then this script with their reports::

    pytest -n 0 tests/server/test_matrix.py --junitxml 3.11.xml
    .ci/oldest oldest.xml
    python docs/make_compatibility.py 3.11.xml 3.12.xml oldest.xml
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

PAGE = Path(__file__).with_name("compatibility.md")
BEGIN, END = "<!-- tables: made by docs/make_compatibility.py -->\n", "<!-- end of the tables -->\n"
# What wheels are built for, and no report was made on: the release workflow only runs .ci/smoke.py.
UNTESTED = [("3.14t", "Linux"), ("3.11 to 3.14", "macOS 13.3 and later, ARM and x86-64")]
NOT_RUN = "-"
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


def day(run: Run) -> str:
    return run.date


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


def table(head: str, rows: list[tuple[str, ...]]) -> list[str]:
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def tables(runs: list[Run]) -> str:
    """Return the tables of Pythons, packages and servers, each with the day of its last run."""
    machines = {(run.python, run.system): run.date for run in sorted(runs, key=day)}
    pythons = [
        (*machine, machines[machine])
        for machine in sorted(machines, key=lambda each: by_number(each[0]))
    ]
    pythons += [(*machine, NOT_RUN) for machine in UNTESTED]
    names = sorted({name for run in runs for name in run.packages})
    packages = []
    for name in names:
        versions = sorted(
            {run.packages[name] for run in runs if name in run.packages}, key=by_number
        )
        packages.append((name, versions[0], versions[-1]))
    servers = {name: run.date for run in sorted(runs, key=day) for name in run.transports}
    ways = {
        name: set().union(*(run.transports.get(name, set()) for run in runs)) for name in servers
    }
    rows = [
        (name, ", ".join(sorted(ways[name], key=by_number)), servers[name])
        for name in sorted(servers, key=by_number)
    ]
    if not any(name.startswith(WEEKLY) for name in servers):
        rows.append((WEEKLY, "socket", "weekly"))
    return "\n".join(
        table("Python | System | Tested on", pythons)
        + table("Package | Oldest | Newest", packages)
        + table("Server | Transports | Tested on", rows)
    )


def main() -> None:
    """Replace the tables of the page with the tables of the reports in ``sys.argv``."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    if not rest or not after:
        sys.exit(f"{PAGE} has no place for the tables")
    made = tables([read(Path(name)) for name in sys.argv[1:]])
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
