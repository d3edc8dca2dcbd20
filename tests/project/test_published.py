"""All pages quote the published run of the benchmarks, and none of them another number."""

from __future__ import annotations

import gzip
import json
import platform
import re
import sys
from collections.abc import Callable

import pytest
from places import BENCH, ROOT

# Appended, not inserted: bench also has a columns.py.
sys.path += [str(BENCH), str(ROOT / ".ci")]

from check_numbers import PAGES, problems
from pages.data import NotRun, Results
from report import PUBLISHED, filled, made, quoting


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(PUBLISHED)


def test_pages_are_made_from_the_published_run(results: Results) -> None:
    pages = {ROOT / "docs" / name: text for name, text in made(results).items()}
    pages |= quoting(ROOT, results)
    assert len([path for path in pages if path.suffix == ".svg"]) == 3
    assert {ROOT / name for name in PAGES} < {*pages}
    # A comment at the start of a line would make HTML of the rest of the line.
    assert not re.findall(r"(?m)^\W*<!-- published: .* -->.+", "".join(pages.values()))
    changed = [path.name for path, text in pages.items() if path.read_text() != text]
    assert not changed, "python bench/report.py writes them"


def test_a_page_without_its_results_says_so() -> None:
    """A text whose script was not run stays only if the page says that it is older."""
    empty = Results()
    page = "Figures measured before\nthe published run: <!-- published: lanes -->1<!-- end -->"
    assert filled(page, empty) == page
    with pytest.raises(NotRun):
        filled(page.replace("before", "in"), empty)


@pytest.mark.parametrize("name", PAGES)
def test_numbers_are_of_the_run(name: str, results: Results) -> None:
    assert not [*problems(name, (ROOT / name).read_text(), results)]


def changed_number(page: str) -> str:
    """Change the last digit of a rate that is in the table."""
    return re.sub(
        r"(\*\*fastresp, from dicts\*\* \| \d+,\d)(\d)",
        lambda found: f"{found[1]}{(int(found[2]) + 1) % 10}",
        page,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed_number, r"is not a figure of ways"),
        (lambda page: f"{page}\nIt is 5 to 12 times as fast.\n", "5 to 12 times"),
        (lambda page: f"{page}\nIt loads 912,000 rows per second.\n", "912,000"),
        (lambda page: f"{page}\nIt needs 7 MiB.\n", "7 MiB"),
        (lambda page: f"{page}\nIt is ten times as fast.\n", "ten times"),
        (lambda page: re.sub("<!-- .*? -->", "", page), "there are no figures"),
    ],
    ids=["a digit", "ratio", "rate", "memory", "words", "no comments"],
)
def test_another_number_is_found(
    change: Callable[[str], str], message: str, results: Results
) -> None:
    page = (ROOT / "README.md").read_text()
    doctored = change(page)
    assert doctored != page
    assert re.search(message, "\n".join(problems("README.md", doctored, results)))


def test_the_published_run_is_small_and_says_nothing_private() -> None:
    files = [*PUBLISHED.iterdir()]
    assert sum(path.stat().st_size for path in files) < 400_000
    assert len(files) > 20
    for path in files:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        assert json.loads(text)
        assert not re.search(r"hostname|python_executable|/(home|root|tmp|usr|var)/", text)
        assert not re.search(rf"\b{re.escape(platform.node())}\b", text)
