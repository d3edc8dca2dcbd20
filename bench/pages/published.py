"""The published run: where it is kept, and the pages that quote it.

``bench/published`` has the results of the run, without what they say about the machine's name and
folders. In a page, the text between ``<!-- published: NAME -->`` and ``<!-- end -->`` is made from
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from results import publish

from .claims import CLAIMS
from .data import NotRun, Results

MARKED = re.compile(r"<!-- published: ([\w-]+) -->(\n*)(.*?)\n*<!-- end -->", re.DOTALL)

# A page says this of figures whose script was not in the published run.
EARLIER = "measured before the published run"


def copied(source: Path, target: Path) -> None:
    """Replace the published run by the results in a folder."""
    target.mkdir(exist_ok=True)
    for path in target.iterdir():
        path.unlink()
    results = Results(source)
    for name, rows in results.items():
        publish(target / f"{name}.json.gz", rows)
    (target / "machine.json").write_text(json.dumps(results.machine, indent=1) + "\n")


def filled(page: str, results: Results) -> str:
    """Return a page with the texts of these results.

    If the page says that its figures were measured before the published run, a text stays if its
    script was not run.

    Raises:
        NotMeasured: the results lack a figure, and the page does not say so.
        KeyError: there is no text of a name.
    """
    earlier = EARLIER in " ".join(page.split())
    return MARKED.sub(lambda found: _filled(found, results, earlier), page)


def _filled(found: re.Match[str], results: Results, earlier: bool) -> str:
    name, lines, _ = found.groups()
    try:
        text = CLAIMS[name](results)
    except NotRun:
        if not earlier:
            raise
        return found[0]
    # A table begins behind a blank line.
    space = "\n\n" if lines else ""
    return f"<!-- published: {name} -->{space}{text}{space}<!-- end -->"


def pages(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pages of a repository that quote the run, with their text."""
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if MARKED.search(text):
            yield path, text
