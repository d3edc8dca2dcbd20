"""Write the benchmarks' page and charts, and fill in the figures that other pages quote.

The published run is in ``bench/published``; the README and the pages of ``docs/`` quote it. Each
text between ``<!-- published: NAME -->`` and ``<!-- end -->`` is made from the published run, and
so are ``docs/benchmarks.md`` and its charts.

The benchmarks' page names scripts that were not run and rows that could not be measured. A figure
that another page quotes must have been measured, unless that page says that its figures are older.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from pages.charts import drawn, pictures
from pages.claims import CLAIMS
from pages.data import NotMeasured, NotRun, Results
from pages.markdown import markdown
from results import publish

BENCH = Path(__file__).parent
# Results without the machine's name and folders.
PUBLISHED = BENCH / "published"
MARKED = re.compile(r"<!-- published: ([\w-]+) -->(\n*)(.*?)\n*<!-- end -->", re.DOTALL)
# A page with this text may keep figures whose script was not in the published run.
EARLIER = "measured before the published run"


def made(results: Results) -> dict[str, str]:
    """Return the benchmarks' page and its charts, by the names of their files."""
    try:
        charts = pictures(results)
    except NotMeasured:
        charts = {}
    page = markdown(results, {name: chart.title for name, chart in charts.items()})
    return {"benchmarks.md": page} | {name: drawn(chart) for name, chart in charts.items()}


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

    If the page says that its figures were measured before the published run, a text whose script
    was not run stays unchanged.

    Raises:
        NotMeasured: the results lack a figure, and the page does not say so.
        KeyError: CLAIMS has no text of this name.
    """
    earlier = EARLIER in " ".join(page.split())

    def text(found: re.Match[str]) -> str:
        name, lines, _ = found.groups()
        try:
            made = CLAIMS[name](results)
        except NotRun:
            if not earlier:
                raise
            return found[0]
        space = "\n\n" if lines else ""  # a table follows a blank line
        return f"<!-- published: {name} -->{space}{made}{space}<!-- end -->"

    return MARKED.sub(text, page)


def quoting(root: Path, results: Results) -> dict[Path, str]:
    """Return the other pages of a repository that quote the run, with the figures of these results.

    Raises:
        NotMeasured: the results lack a figure of a page.
    """
    paths = root / "README.md", *sorted((root / "docs").rglob("*.md"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return {path: filled(text, results) for path, text in texts.items() if MARKED.search(text)}


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publish", action="store_true", help="publish the results of --results")
    parser.add_argument("--results", type=Path, default=BENCH / "results")
    parser.add_argument("--output", type=Path, help="write only the page and the charts, here")
    args = parser.parse_args()
    if (args.publish or args.output) and not args.results.is_dir():
        parser.error(f"{args.results} is not a folder; python bench/run.py creates it")
    if args.output:
        results = Results(args.results)
        write({args.output / name: text for name, text in made(results).items()})
        return
    if args.publish:
        try:
            quoting(BENCH.parent, Results(args.results))
        except NotMeasured as error:
            sys.exit(f"a page quotes a figure that {args.results} lacks: {error}")
        copied(args.results, PUBLISHED)
    results = Results(PUBLISHED)
    docs = BENCH.parent / "docs"
    write({docs / name: text for name, text in made(results).items()})
    write(quoting(BENCH.parent, results))


if __name__ == "__main__":
    main()
