"""The benchmarks' page: every table is there, the HTML is whole, and nothing private leaks.

The results here are invented, and say nothing about speed.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from needed import imported, lacking
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from bench_results import missing, result, shares
from pages.data import Section, clean
from pages.sections import GROUPS
from pages.source_figures import POP, PUSH
from report import write
from results import save

SECTIONS = [section for group in GROUPS for section in group.sections]
VOID = {"meta", "link", "br"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save some results: two tables of 2018, a curve, shares, and missing rows."""
    made = tmp_path_factory.mktemp("results")
    rows = [
        result("000 push", row, [1e5 / figure.rate, 1.1e5 / figure.rate], parser)
        for (row, parser), figure in PUSH.items()
        if not row.startswith("redis-cli")
    ]
    rows += [result("000 push", row, [0.2, 0.21]) for row, _ in PUSH if row.startswith("redis-cli")]
    rows += [result("000 push", "redis-cli, format", [0.2, 0.21], "PythonParser")]
    rows += [result("000 push", "fastresp mass_insert", [0.05, 0.2])]
    rows += [
        result("000 pop", row, [1e5 / figure.rate] * 2, parser)
        for (row, parser), figure in POP.items()
        if row != "LRANGE trick"
    ]
    rows += [missing("000 pop", "fastresp ListBuffer.pop", f"{made}/a.sock is gone | really")]
    save(made / "buffer.json", rows)
    curve = [
        result("003 depth, unix", f"depth {depth}", [1.0 / depth], "redis-py, hiredis")
        for depth in (1, 10, 100)
    ]
    curve += [result("003 depth, unix", "fastresp iter_replies, no depth to choose", [0.01])]
    save(made / "pipelining.json", curve)
    save(made / "shares.json", shares("naive", processing=4, receiving=30, sending=50))
    save(made / "lists.json", [missing("lists", "pop C lrange 100", "no hiredis.h")])
    run = {
        "started": "2026-01-02T03:04:05", "mode": "fast", "commit": "abc1234", "busy": 1.5,
        "versions": {"redis-server": "7.0.15"}, "seconds": 9,
    }  # fmt: skip
    machine = {
        "cpu": "A processor", "cores": 2, "memory_gib": 4, "os": "An OS", "python": "3.11",
        "fast": True, "commands": {"buffer": f"python {BENCH}/buffer.py --fast"},
        "runs": {"buffer": run, "lists": run | {"started": "2026-01-03T00:00:00", "busy": 50.0}},
    }  # fmt: skip
    (made / "machine.json").write_text(json.dumps(machine))
    # Other files in the folder are not tables.
    (made / "state.json").write_text('{"done": ["buffer"]}')
    return made


@pytest.fixture(scope="module")
def texts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the page as Markdown and as HTML."""
    markdown, html = write(folder, tmp_path_factory.mktemp("report"))
    return markdown.read_text(), html.read_text()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.slug)
def test_every_section_is_there(section: Section, texts: tuple[str, str]) -> None:
    markdown, html = texts
    assert f"\n### {section.title}\n" in markdown
    assert f"<h3>{section.title}</h3>" in html
    assert html.count(f'id="{section.slug}"') == 1


def test_a_script_that_was_not_run_shows_its_command(texts: tuple[str, str]) -> None:
    for text in texts:
        assert "python bench/peers.py -o peers.json" in text
        assert "python bench/push.py --tcp -o push-tcp.json" in text
    assert "**Not run yet:** `python bench/peers.py" in texts[0]


def test_missing_rows_have_a_reason(texts: tuple[str, str]) -> None:
    markdown, html = texts
    row = next(line for line in markdown.splitlines() if "**fastresp ListBuffer.pop** " in line)
    assert "*not measured: a.sock is gone \\| really*" in row
    assert "not measured: a.sock is gone | really</td>" in html
    # A row that the script left out without a reason.
    assert re.search(
        r"\| LRANGE trick \| PythonParser \| \*not measured: not in the results", markdown
    )
    # A file with missing rows only.
    assert "| C lrange 100 | *not measured: no hiredis.h*" in markdown


def test_tables_have_as_many_cells_in_each_row(texts: tuple[str, str]) -> None:
    widths: list[int] = []
    tables = 0
    for line in texts[0].splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
            continue
        tables += bool(widths)
        assert len(set(widths)) <= 1, line
        widths = []
    assert tables > 5


def test_figures_of_the_source_are_beside_ours(texts: tuple[str, str]) -> None:
    row = next(line for line in texts[0].splitlines() if line.startswith("| naive | hiredis (C)"))
    assert "| 1.25 | 79,977 |" in row
    row = next(line for line in texts[0].splitlines() if line.startswith("| redis-cli, format |"))
    assert "| 0.25 | 394,046 |" in row
    # The source has it with one parser only.
    lines = texts[0].splitlines()
    assert lines[lines.index(row) + 1].startswith("| redis-cli, format | PythonParser | 0.210")
    assert "| - | - |" in lines[lines.index(row) + 1]
    assert "| pop, pipelined | 13% | 17% | - | 12.69% |" in texts[0]


def test_noisy_rows_are_marked(texts: tuple[str, str]) -> None:
    row = next(line for line in texts[0].splitlines() if "**fastresp mass_insert** |  |" in line)
    assert "120% ▲" in row
    assert "rows have more than 25% and are marked ▲" in texts[0]
    assert '<td class="noisy">120% ▲</td>' in texts[1]


def test_nothing_of_the_machine_leaks(texts: tuple[str, str], folder: Path) -> None:
    for text in texts:
        assert str(folder) not in text
        assert str(BENCH.parent) not in text
        assert not re.search(r"[\s\"'>]/(tmp|home|work|root|usr|var)/", text)
        assert not re.search(rf"\b{re.escape(platform.node())}\b", text)
        assert "python buffer.py --fast" in text
        assert "2026-01-02" in text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("can't connect to unix:///tmp/x/redis.sock", "can't connect to redis.sock"),
        ("/opt/a-b/redis-benchmark is 5.0", "redis-benchmark is 5.0"),
        ("1,000 op/s and GET/SET", "1,000 op/s and GET/SET"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("python bench/push.py", "python bench/push.py"),
        ("two\nlines", "two lines"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_charts_are_xml_and_follow_the_page(texts: tuple[str, str]) -> None:
    charts = re.findall(r"<svg.*?</svg>", texts[1], re.DOTALL)
    assert len(charts) == 4
    ids: list[str] = []
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 3
        assert list(root.iter("{http://www.w3.org/2000/svg}text"))
        assert not re.search(r"#0000\w\w", chart), "a colour that is not from the page"
        ids += [node.get("id", "") for node in root.iter() if node.get("id")]
    assert len(ids) == len(set(ids))


class Balance(HTMLParser):
    """Find unclosed tags, duplicate ids, and external resources."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        if tag == "a":
            self.links.append(found.get("href") or "")
        self.fetched += [tag] if "src" in found or tag == "script" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open[-1:] == [tag]:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_first_chart_has_its_own_colours(tmp_path: Path) -> None:
    rows = [
        result("peers SET", "redis-py, pipeline of 1,000", [0.5, 0.6], "hiredis"),
        result("peers SET", "fastresp mass_insert, socket", [0.05, 0.06]),
        result("peers SET", "fastresp mass_insert, columns", [0.04, 0.05]),
    ]
    save(tmp_path / "peers.json", rows)
    page, _, picture = (path.read_text() for path in write(tmp_path, tmp_path))
    # It is first, followed by the main results.
    first, sentence = [line for line in page.splitlines() if line][1:3]
    assert first == "![SETs of 129 bytes per second, over a unix socket](benchmarks.svg)"
    assert sentence.endswith(": 10x and 12.2x (12x to 12.5x) the rate of a redis-py pipeline.")
    assert "fastresp mass_insert, socket" in "".join(ElementTree.fromstring(picture).itertext())
    # Its findings are visible without scrolling.
    assert re.search(r'<svg width="400" height="\d{3}" ', picture)
    used = set(re.findall(r"var\((--[\w-]+)\)", picture))
    assert "--ours" in used
    assert used <= set(re.findall(r"(--[\w-]+):", picture))


def test_page_is_complete(texts: tuple[str, str]) -> None:
    page = Balance()
    page.feed(texts[1])
    page.close()
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.fetched == []
    assert "url(http" not in texts[1]
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


@pytest.mark.slow
def test_the_results_of_a_script(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    script = [sys.executable, BENCH / "redis_py.py", "--rounds", "1"]
    done = subprocess.run(
        [*script, "-o", results / "redis_py.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = [sys.executable, BENCH / "report.py", "--results", results, "--output", tmp_path]
    done = subprocess.run(report, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    markdown = (tmp_path / "benchmarks.md").read_text()
    row = next(line for line in markdown.splitlines() if line.startswith("| redis-py: `pack_co"))
    assert "reached" in row or "missed" in row
    assert "| **fastresp** |" in markdown


BROKEN = """<!doctype html><html><body><figure><svg viewBox="0 0 9 9" aria-label="empty"></svg>
</figure><div style="width: 5000px">wide</div><script>console.log("said")</script></body></html>"""


def test_the_browser_finds_faults(tmp_path: Path, texts: tuple[str, str]) -> None:
    imported("playwright")
    from check_page import browser_path, check

    if browser_path() is None:
        lacking("there is no Chromium")
    (tmp_path / "whole.html").write_text(texts[1])
    assert check(tmp_path / "whole.html") == ([], 4)
    (tmp_path / "broken.html").write_text(BROKEN)
    faults, _ = check(tmp_path / "broken.html")
    assert "phone, light: said" in faults
    assert "desktop, dark: empty: not drawn" in faults
    assert any(fault.endswith("px wider than the screen") for fault in faults)
    assert "light and dark look the same" in faults
