"""Check that the measurements in README.md, docs/index.md and docs/compare.md are published ones.

A measured number stands between ``<!-- published: NAME -->`` and ``<!-- end -->``, and must be a
figure that ``bench/published`` has for this name, in the same notation. Outside of these comments,
no number may look like a measurement, except those in ``KNOWN``.

    python .ci/check_numbers.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(ROOT / "bench"))

from pages.claims import CLAIMS
from pages.data import Results
from pages.figures import Claim
from report import MARKED, PUBLISHED

__all__ = ["PAGES", "problems"]

PAGES = ("README.md", "docs/index.md", "docs/compare.md")
# Numbers that look like measurements but are not, with the reason.
KNOWN = {
    "8 MiB": "the limit of what is in flight",
    "1,000 keys": "the size of a batch of polars-redis",
    "100,000 SETs": "the size of a load",
    "200,000 rows": "the size of a load",
    "10 text": "the size of a row",
    "10,000,000 rows": "the size of a load",
    "1,000,000 rows": "the size of a load",
    "300,000 rows": "the size of a load",
    "pipelines of 1,000": "the size of a pipeline",
}
# Blocks of code, code, links and pictures.
CODE = re.compile(r"(?ms)```.*?^```|`[^`\n]*`|!?\[[^\]]*\]\([^)]*\)|<img[^>]*>")
NUMBER = r"\d[\d,]*(?:\.\d+)?"
WORDS = "two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|hundred"
UNITS = (
    r"[\s-]?(?:x\b|\u00d7|%|[nµum]?s\b|(?:milli|micro|nano)?seconds?\b|minutes?\b|hours?\b"
    r"|[kKMGT]i?B\b|M/s|[kM]\b|times\b|fold\b|million\b"
    r"|(?:[\w-]+ ){0,2}(?:(?:per|a|each) second|/s)\b)"
)
# A number with a unit, a number with thousands, and words that compare.
MEASURED = re.compile(
    rf"(?i){NUMBER}(?: to {NUMBER})?{UNITS}|\b\d+,\d{{3}}\b"
    rf"|\b(?:{WORDS})(?: times\b|fold\b)|\b(?:twice|half) as\b"
)


def problems(name: str, page: str, results: Results) -> Iterator[str]:
    """Yield the problems with the numbers of a page."""
    count = 0
    for found in MARKED.finditer(page):
        figures = list(_figures(found[1], results))
        count += len(figures)
        known = {number for figure in figures for number in _numbers(figure)}
        known |= set(_numbers(_words(found[1], results)))
        for number in _numbers(found[3]):
            if number not in known:
                yield f"{name}: {number} is not a figure of {found[1]}, which has {figures}"
        if found[3] != CLAIMS[found[1]](results):
            yield f"{name}: the text of {found[1]} is not that of the run: {found[3]!r}"
    if not count:
        yield f"{name}: there are no figures"
    rest = MARKED.sub(lambda found: f" {_words(found[1], results)} ", page)
    rest = CODE.sub(" ", rest)
    for known in KNOWN:
        rest = rest.replace(known, " ")
    for found in MEASURED.finditer(rest):
        about = " ".join(rest[max(0, found.start() - 40) : found.end() + 20].split())
        yield f"{name}: {found[0]!r} is not from the published run: ... {about} ..."


def _numbers(text: str) -> list[str]:
    return re.findall(NUMBER, CODE.sub(" ", text))


def _figures(name: str, results: Results) -> Iterator[str]:
    """Yield the figures of a claim, as they are written."""
    claim = CLAIMS[name]
    if isinstance(claim, Claim):
        yield from (figure for _, figure in claim.pieces(results) if figure)


def _words(name: str, results: Results) -> str:
    """Return the text of a claim without its figures."""
    claim = CLAIMS[name]
    if isinstance(claim, Claim):
        return " ... ".join(text for text, _ in claim.pieces(results))
    return claim(results)


def main() -> None:
    """Check the pages."""
    results = Results(PUBLISHED)
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    found = [each for name, text in texts.items() for each in problems(name, text, results)]
    if found:
        sys.exit("\n".join(found))
    count = sum(
        len(list(_figures(mark[1], results)))
        for text in texts.values()
        for mark in MARKED.finditer(text)
    )
    print(f"{count} figures of {len(PAGES)} pages are from the published run")


if __name__ == "__main__":
    main()
