"""Write the benchmarks' page and charts, and fill in the figures that other pages quote.

The published run is in ``bench/published``: the README and all pages of ``docs/`` quote it. A text
between ``<!-- published: NAME -->`` and ``<!-- end -->`` is made from it, and so are
``docs/benchmarks.md`` and its charts.

    python bench/report.py                        # from bench/published, after a change of texts
    python bench/report.py --publish              # publish bench/results, a run of bench/run.py
    python bench/report.py --results DIR --output DIR    # only the page and charts, of another run

In the page, scripts that were not run and rows that could not be measured say so. A figure that
another page quotes must have been measured, unless the page says that its figures are older.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pages.charts import drawn, pictures
from pages.data import NotMeasured, Results
from pages.markdown import markdown
from pages.published import copied, filled, pages

BENCH = Path(__file__).parent
PUBLISHED = BENCH / "published"


def made(results: Results) -> dict[str, str]:
    """Return the benchmarks' page and its charts, by the names of their files."""
    try:
        charts = pictures(results)
    except NotMeasured:
        charts = {}
    page = markdown(results, {name: chart.title for name, chart in charts.items()})
    return {"benchmarks.md": page} | {name: drawn(chart) for name, chart in charts.items()}


def quoting(root: Path, results: Results) -> dict[Path, str]:
    """Return the other pages of a repository that quote these results, with their figures.

    Raises:
        NotMeasured: the results lack a figure of a page.
    """
    return {path: filled(text, results) for path, text in pages(root)}


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
