"""The benchmarks' page and charts: every table is there, and nothing private leaks.

The results here are invented, and say nothing about speed.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from bench_results import missing, result, shares
from pages.charts import Bar, Chart, drawn
from pages.data import Results, clean
from pages.markdown import TEMPLATE
from pages.measures import Measured
from pages.sections import TABLES
from pages.source_figures import POP, PUSH
from report import made
from results import save

GROUPS = re.findall(r"(?m)^## (.+)", TEMPLATE.read_text())


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
def page(folder: Path) -> str:
    """Return the page as Markdown."""
    return made(Results(folder))["benchmarks.md"]


@pytest.mark.parametrize("title", TABLES)
def test_every_section_is_there(title: str, page: str) -> None:
    assert page.count(f"\n### {title}\n") == 1
    _, _, section = page.partition(f"\n### {title}\n")
    commands = re.findall(
        r"(?m)^(?:Made by|\*\*Not run yet:\*\*) `", section.partition("\n### ")[0]
    )
    assert len(commands) == len(TABLES[title].files)


def test_every_section_has_a_table(page: str) -> None:
    assert sorted(re.findall(r"(?m)^### (.+)", page)) == sorted(TABLES)
    assert "<!--" not in page
    # The contents name each group, and each fold its number of tables.
    for group in GROUPS:
        slug = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")
        assert f"\n- [{group}](#{slug})\n" in page
    for shown, fold in re.findall(r"(?s)Show the (\d+) tables(.*?)</details>", page):
        assert fold.count("\n### ") == int(shown)


def test_a_script_that_was_not_run_shows_its_command(page: str) -> None:
    assert "**Not run yet:** `python bench/peers.py -o peers.json" in page
    assert "python bench/push.py --tcp -o push-tcp.json" in page


def test_tables_are_folded(page: str) -> None:
    opened = page.count('<details markdown="1"><summary>')
    # The goals have two folds, the section on how it was measured has no fold.
    assert opened == page.count("</details>") == len(GROUPS)
    # Nothing but the summary is shown: the first table of a source is within its fold.
    assert page.index("## The 2018 report") < page.index("### Pushing: LPUSH")


def test_missing_rows_have_a_reason(page: str) -> None:
    row = next(line for line in page.splitlines() if "**fastresp ListBuffer.pop** " in line)
    assert "*not measured: a.sock is gone \\| really*" in row
    # A row that the script left out without a reason.
    assert re.search(r"\| LRANGE trick \| PythonParser \| \*not measured: not in the results", page)
    # A file with missing rows only.
    assert "| C lrange 100 | *not measured: no hiredis.h*" in page


def test_tables_have_as_many_cells_in_each_row(page: str) -> None:
    widths: list[int] = []
    tables = 0
    for line in page.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
            continue
        tables += bool(widths)
        assert len(set(widths)) <= 1, line
        widths = []
    assert tables > 5


def test_figures_of_the_source_are_beside_ours(page: str) -> None:
    row = next(line for line in page.splitlines() if line.startswith("| naive | hiredis (C)"))
    assert "| 1.25 | 79,977 |" in row
    row = next(line for line in page.splitlines() if line.startswith("| redis-cli, format |"))
    assert "| 0.25 | 394,046 |" in row
    # The source has it with one parser only.
    lines = page.splitlines()
    assert lines[lines.index(row) + 1].startswith("| redis-cli, format | PythonParser | 0.210")
    assert "| - | - |" in lines[lines.index(row) + 1]
    assert "| pop, pipelined | 13% | 17% | - | 12.69% |" in page


def test_noisy_rows_are_marked(page: str) -> None:
    row = next(line for line in page.splitlines() if "**fastresp mass_insert** |  |" in line)
    assert "120% ▲" in row
    assert "rows have more than 25% and are marked ▲" in page


def test_nothing_of_the_machine_leaks(page: str, folder: Path) -> None:
    assert str(folder) not in page
    assert str(BENCH.parent) not in page
    assert not re.search(r"[\s\"'>]/(tmp|home|work|root|usr|var)/", page)
    assert not re.search(rf"\b{re.escape(platform.node())}\b", page)
    assert "python buffer.py --fast" in page
    assert "2026-01-02" in page


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


def test_a_chart_is_legible() -> None:
    bars = [
        Bar("a client with a long name & more", Measured(1e5, 9e4, 1.1e5), "100k"),
        Bar("fastresp", Measured(7e5, 6e5, 8e5), "700k", ours=True),
    ]
    picture = drawn(Chart("A title", ("what it shows",), [("A group", bars)], level=1e5))
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    left, _, width, height = map(float, root.get("viewBox", "").split())
    assert 100 < height < width
    texts = [each for each in root.iter() if each.tag.endswith("}text")]
    assert [each.text for each in texts[:3]] == ["A title", "what it shows", "A group"]
    assert {bar.label for bar in bars} < {each.text for each in texts}
    for each in [*root][2:]:
        # A letter is at most 9 units wide.
        right = float(each.get("x", 0)) + float(each.get("width", 9 * len(each.text or "")))
        assert left <= float(each.get("x", 0)) <= right <= width
    assert re.search(r"font: 1[3-9]px", picture)
    # On dark pages it has colours of its own.
    light, dark = (
        re.findall(r"--\w+", part) for part in picture.split("prefers-color-scheme: dark")
    )
    assert set(re.findall(r"var\((--\w+)\)", picture)) <= {*light} & {*dark}


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
