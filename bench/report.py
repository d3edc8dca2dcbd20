"""Write the benchmarks' report: ``docs/benchmarks.md``, and a page of HTML with charts.

``docs/benchmarks.svg`` is one of the charts, for the README. The page, ``benchmarks.html``, lies
beside the results that it is made of, and is not published.

The results are those that ``python bench/run.py`` keeps, a file for each script. What was not run
yet, and each row that could not be measured, says so. Of the machine only what ``machine.json``
tells is published; paths and the machine's name are not.

    python bench/report.py
    python bench/report.py --results before --output before
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages.charts import picture
from pages.data import Results
from pages.html import html
from pages.markdown import markdown
from pages.sections import GROUPS, PICTURE

__all__ = ["write"]

ROOT = Path(__file__).parent.parent


def write(folder: Path, output: Path) -> list[Path]:
    """Write both reports of the results in a folder, and the picture.

    Args:
        folder: has ``NAME.json``, ``NAME.missing.json`` and ``machine.json``, and gets
            ``benchmarks.html``.
        output: the folder for ``benchmarks.md`` and ``benchmarks.svg``.

    Returns:
        The files.
    """
    results = Results(folder)
    made = {
        output / "benchmarks.md": markdown(results, GROUPS),
        folder / "benchmarks.html": html(results, GROUPS),
    }
    if chart := PICTURE(results):
        made[output / "benchmarks.svg"] = picture(chart)
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
        parser.error(f"{args.results} is not a folder; python bench/run.py makes it")
    for path in write(args.results, args.output):
        print(path)


if __name__ == "__main__":
    main()
