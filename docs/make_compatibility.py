"""Write the tables of docs/compatibility.md from test runs.

Run the tests of the servers under each Python, then this script with their reports::

    pytest -n 0 tests/server/test_matrix.py --junitxml 3.11.xml
    python docs/make_compatibility.py 3.11.xml 3.12.xml
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).with_name("compatibility.md")
BEGIN, END = "<!-- tables: made by docs/make_compatibility.py -->\n", "<!-- end of the tables -->\n"


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {
        found.attrib["name"]: found.attrib["value"]
        for found in element.iterfind("properties/property")
    }


def in_order(versions: set[str]) -> list[str]:
    """Sort ``Redis 10.1`` after ``Redis 9.2``."""
    return sorted(
        versions,
        key=lambda text: [
            int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)
        ],
    )


def tables(reports: list[Path]) -> str:
    """Return the tables of what the tests in these reports ran with.

    Raises:
        SystemExit: a test failed, or none recorded a server.
    """
    machines: set[tuple[str, str]] = set()
    transports: dict[str, set[str]] = {}
    for report in reports:
        for suite in ElementTree.parse(report).getroot().iterfind("testsuite"):
            if int(suite.attrib["failures"]) or int(suite.attrib["errors"]):
                sys.exit(f"{report}: not all tests passed")
            machine = properties(suite)
            machines.add((machine["python"], machine["system"]))
            for case in suite.iterfind("testcase"):
                if "server" in (ran := properties(case)):
                    transports.setdefault(ran["server"], set()).add(ran["transport"])
    if not transports:
        sys.exit("no test recorded a server")
    lines = ["| Python | System |", "|---|---|"]
    lines += [f"| {python} | {system} |" for python, system in sorted(machines)]
    lines += ["", "| Server | Transports |", "|---|---|"]
    lines += [
        f"| {server} | {', '.join(in_order(transports[server]))} |"
        for server in in_order(set(transports))
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replace the tables of the page with the tables of the reports in ``sys.argv``."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    if not rest or not after:
        sys.exit(f"{PAGE} has no place for the tables")
    PAGE.write_text(
        f"{before}{BEGIN}\n{tables([Path(name) for name in sys.argv[1:]])}\n{END}{after}"
    )


if __name__ == "__main__":
    main()
