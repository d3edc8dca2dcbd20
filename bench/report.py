"""Write the benchmarks' page, ``docs/benchmarks.md``, and a page of HTML with charts.

``docs/benchmarks.svg`` is the chart at its top, which the README shows as well. The page of HTML,
``benchmarks.html``, is beside the results and is not published. If ``scale.py`` was run, the
figures in the guide to large loads, ``docs/guides/scale.md``, become its results.

The results are those of ``python bench/run.py``, a file for each script. Scripts that were not run,
and rows that could not be measured, say so. Only what ``machine.json`` has about the machine is
published, without paths and the machine's name.

    python bench/report.py
    python bench/report.py --results before --output before
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pages.charts import picture
from pages.data import NotMeasured, Results
from pages.guide import updated
from pages.html import html
from pages.markdown import markdown
from pages.sections import GROUPS, PICTURE

__all__ = ["write"]

ROOT = Path(__file__).parent.parent
GUIDE = Path("guides") / "scale.md"


def write(folder: Path, output: Path) -> list[Path]:
    """Write both pages of the results in a folder, and the chart.

    Args:
        folder: has ``NAME.json``, ``NAME.missing.json`` and ``machine.json``;
            ``benchmarks.html`` is written here.
        output: the folder for ``benchmarks.md`` and ``benchmarks.svg``; its guide is renewed if
            it has one.

    Returns:
        The files that were written.
    """
    results = Results(folder)
    chart = PICTURE(results)
    made = {
        output / "benchmarks.md": markdown(results, GROUPS, chart.title if chart else ""),
        folder / "benchmarks.html": html(results, GROUPS, chart),
    }
    if chart:
        made[output / "benchmarks.svg"] = picture(chart)
    guide = output / GUIDE
    if guide.exists():
        try:
            made[guide] = updated(guide.read_text(encoding="utf-8"), results)
        except NotMeasured as error:
            print(f"{guide.name} keeps its figures: {error}", file=sys.stderr)
    output.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return [*made]


def main() -> None:
    """Read the options and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    if not args.results.is_dir():
        parser.error(f"{args.results} is not a folder; python bench/run.py creates it")
    for path in write(args.results, args.output):
        print(path)


if __name__ == "__main__":
    main()
