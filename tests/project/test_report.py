"""The benchmarks' report: every table is there, goals are judged right, and nothing private leaks.

The results here are invented: they are there to be shown, and say nothing of what is fast.
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
from places import BENCH, ROOT

# Last, for bench has a columns.py, too.
sys.path.append(str(BENCH))

from pages.data import Results, Section, clean
from pages.goals import HELD, Goal, faster, judge, of_values
from pages.ratios import redis_benchmark_name
from pages.sections import GROUPS
from pages.source_figures import (
    PARSER_GAIN,
    POP,
    PROFILES,
    PUSH,
    REDIS_BENCHMARK,
    SECTION_GAIN,
)
from pages.tables import ceiling
from pages.text import goals_table, summary
from report import write
from results import Result, save

SECTIONS = [section for group in GROUPS for section in group.sections]
VOID = {"meta", "link", "br"}


def result(
    table: str, row: str, values: list[float], parser: str = "", operations: int = 100_000
) -> Result:
    made = Result(table, row, parser, operations)
    for value in values:
        made.add(value, server_cpu=value / 2, client_cpu=value / 4)
    return made


def missing(table: str, row: str, reason: str) -> Result:
    return Result(table, row, reason=reason)


def shares(method: str, **percent: float) -> list[Result]:
    made = []
    for name, share in percent.items():
        row = Result("000 shares", f"{method}: {name}", "HiredisParser")
        row.add(1.0, share=share)
        made.append(row)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some results: two tables of the report, a curve, shares, and what could not be measured."""
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
    # What else is kept there is no table.
    (made / "state.json").write_text('{"done": ["buffer"]}')
    return made


@pytest.fixture(scope="module")
def texts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The report as Markdown and as HTML."""
    markdown, html = write(folder, tmp_path_factory.mktemp("report"))
    return markdown.read_text(), html.read_text()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.slug)
def test_every_section_is_there(section: Section, texts: tuple[str, str]) -> None:
    markdown, html = texts
    assert f"\n### {section.title}\n" in markdown
    assert f"<h3>{section.title}</h3>" in html
    assert html.count(f'id="{section.slug}"') == 1


def test_what_was_not_run_tells_its_command(texts: tuple[str, str]) -> None:
    for text in texts:
        assert "python bench/peers.py -o peers.json" in text
        assert "python bench/push.py --tcp -o push-tcp.json" in text
    assert "**Not run yet:** `python bench/peers.py" in texts[0]


def test_missing_rows_have_their_reason(texts: tuple[str, str]) -> None:
    markdown, html = texts
    row = next(line for line in markdown.splitlines() if "**fastresp ListBuffer.pop** " in line)
    assert "*not measured: a.sock is gone \\| really*" in row
    assert "not measured: a.sock is gone | really</td>" in html
    # What the script left out without a word.
    assert re.search(
        r"\| LRANGE trick \| PythonParser \| \*not measured: not in the results", markdown
    )
    # A file that holds nothing but what is missing.
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


def test_the_figures_of_the_source_are_beside_ours(texts: tuple[str, str]) -> None:
    row = next(line for line in texts[0].splitlines() if line.startswith("| naive | hiredis (C)"))
    assert "| 1.25 | 79,977 |" in row
    row = next(line for line in texts[0].splitlines() if line.startswith("| redis-cli, format |"))
    assert "| 0.25 | 394,046 |" in row
    # Which the source has with one parser only.
    lines = texts[0].splitlines()
    assert lines[lines.index(row) + 1].startswith("| redis-cli, format | PythonParser | 0.210")
    assert "| - | - |" in lines[lines.index(row) + 1]
    assert "| pop, pipelined | 12.69% | 17.34% | - | 12.69% |" in texts[0]


def test_one_load_is_compared_with_one_load_in_c(tmp_path: Path) -> None:
    names = {"push fastresp mass_insert": 0.5, "push C lpush-pipeline": 1.0}
    save(tmp_path / "lists.json", [result("lists", row, [time]) for row, time in names.items()])
    rows = [result("000 push", "fastresp mass_insert", [9.0])]
    rows += [result("000 push", "pipelining -P 1000", [1.0], "hiredis (C)")]
    save(tmp_path / "buffer.json", rows)
    [load] = [row for row in table_of("Python by C", tmp_path) if "mass_insert" in row[0]]
    assert load[1:5] == ["-", "-", "200%", "-"]


def table_of(title: str, folder: Path) -> list[list[str]]:
    """The cells of a section's table, row by row."""
    [section] = [each for each in SECTIONS if each.title == title]
    rows = section.shown(Results(folder)).rows
    return [[*row.head, *(cell.text for cell in row.cells), row.reason] for row in rows]


def test_redis_py_in_percent_of_redis_benchmark(tmp_path: Path) -> None:
    table, row = "001 redis-benchmark", "LPUSH (needed to benchmark LRANGE)"
    rows = [
        result(table, row, [1.0, 1.0, 4.0], "redis-benchmark"),
        result(table, row, [2.0, 4.0, 5.0], "hiredis"),
    ]
    for way, seconds in (("one connection", 2.0), ("a connection a command", 0.5)):
        number = 100_000 if way == "one connection" else 10_000
        rows.append(result("001 connections", f"TCP, {way}", [seconds], "hiredis", number))
    for way, seconds in (("one connection", 1.0), ("one connection, two cores", 4.0)):
        rows.append(result("001 connections", f"TCP, {way}", [seconds], "redis-benchmark"))
    way = "a connection a command, two cores"
    rows.append(result("001 connections", f"TCP, {way}", [8.0], "hiredis"))
    save(tmp_path / "redis_benchmark.json", rows)
    # By medians of the times, and of the ratios round by round.
    listed = table_of("redis-benchmark and redis-py, command by command", tmp_path)
    assert listed == [[row, "100,000 ▲", "25,000 (50%) ▲", "33,223", ""]]
    _, ours = table_of("The same commands: worst, best, average", tmp_path)
    assert ours == [
        *(row, "hiredis", "5.000", "2.000", "3.667", "20,000", "50,000", "27,273"),
        *("50% (25% to 80%)", "33,223", "75% ▲", ""),
    ]
    connections = table_of("A connection for each command", tmp_path)
    assert [each[2] for each in connections] == ["100,000", "10,000", *["100,000"] * 3]
    shares = [each[9:11] for each in connections]
    none = ["-", "-"]
    assert shares == [["50%", "50-60%"], ["20%", "25-30%"], none, none, ["50%", "25-30%"]]


METHODS = (
    "naive", "pipelining", "LRANGE trick", "redis-cli, format", "redis-cli, concatenation +",
    "redis-cli, substitution %", "redis-cli, no generation",
)  # fmt: skip
CLASSES = ("processing", "receiving", "sending", "generation", "other")


def profile(folder: Path, share: dict[tuple[str, str], float]) -> None:
    """Save results of shares.py, each class of a method and parser with the same share."""
    rows = []
    for (method, parser), percent in share.items():
        for name in CLASSES:
            row = Result("000 shares", f"{method}: {name}", parser)
            row.add(1.0, share=percent)
            rows.append(row)
    save(folder / "shares.json", rows)


def test_each_profile_of_2018_is_shown_once_with_its_parser(tmp_path: Path) -> None:
    parsers = ("PythonParser", "hiredis")
    profile(tmp_path, {(method, parser): 1.5 for method in METHODS for parser in parsers})
    shown = {}
    for method, parser, *cells, _ in table_of("Where the CPU time goes", tmp_path):
        assert cells[::2] == ["1.50%"] * len(CLASSES)
        then = zip(CLASSES, cells[1::2], strict=True)
        if figures := {name: float(cell[:-1]) for name, cell in then if cell != "-"}:
            shown[method, parser] = figures
    assert shown == PROFILES


def test_gains_are_computed_as_in_2018(tmp_path: Path) -> None:
    """Of the shares of 2018 the gains of 2018 come out, but for what was cut off."""
    profile(tmp_path, {key: shares["processing"] for key, shares in PROFILES.items()})
    rows = table_of("What each way gains over the one before", tmp_path)
    assert len(rows) == len(SECTION_GAIN)
    for _, _, ours, then, by_rate, _ in rows:
        assert float(ours[:-1]) == pytest.approx(float(then[:-1]), abs=0.02)
        assert by_rate == "-"
    both = [
        result("000 both", row, [seconds], parser)
        for row, seconds in (
            ("pipelining -P 1000", 2.0),
            ("naive", 3.0),
            ("redis-cli, format", 1.0),
        )
        for parser in ("PythonParser", "HiredisParser")
    ]
    pushes = [
        result(f"000 {kind}", "naive", [seconds], parser)
        for kind in ("push", "pop")
        for parser, seconds in (("PythonParser", 1.0), ("HiredisParser", 0.5))
    ]
    save(tmp_path / "buffer.json", [*both, *pushes])
    first, *_ = table_of("What each way gains over the one before", tmp_path)
    assert first[0] == "pipelining, over naive"
    assert first[4] == "50.00%"
    naive, *_ = table_of("What the parser in C gains", tmp_path)
    assert naive[:4] == ["naive", "100.00%", "100.00%", "0.00%"]
    assert float(naive[4][:-1]) == pytest.approx(PARSER_GAIN["naive"], abs=0.02)


def test_memory_is_the_greatest_with_the_start_and_peak_of_its_round(tmp_path: Path) -> None:
    row = Result("memory", "fastresp mass_insert, socket", operations=10, unit="byte")
    for above, start in ((3, 50), (5, 40), (4, 60)):
        row.add(above * 2**20, start=start * 2**20, peak=(start + above) * 2**20)
    save(tmp_path / "memory.json", [row])
    [cells] = table_of("Memory", tmp_path)
    assert cells == [row.row, "10", "5.0", "40.0", "45.0", "50% ▲", ""]


def test_each_line_of_2013_is_measured() -> None:
    from redis_benchmark import NEEDED, NO_COMMAND, RANGES, SAME

    lines = [*SAME, NEEDED, *RANGES, *NO_COMMAND]
    assert set(REDIS_BENCHMARK) <= {redis_benchmark_name(line) for line in lines}


def test_a_ceiling_needs_ten_ticks_of_the_clock_or_a_finer_one() -> None:
    def used(*seconds: float) -> float | None:
        row = Result("push", "push SET", operations=1_000)
        for each in seconds:
            row.add(1.0, server_cpu=each)
        return ceiling(row)

    assert used(0.02, 0.03) is None
    assert used(0.04, 0.06) == pytest.approx(20_000)
    assert used(0.001234, 0.000766) == pytest.approx(1_000_000)
    assert used() is None


def test_a_table_has_one_statistic(tmp_path: Path) -> None:
    row = Result("lists", "push fastresp push", operations=1_000)
    for seconds, cpu in ((1.0, 0.5), (2.0, 0.25), (9.0, 0.75)):
        row.add(seconds, server_cpu=cpu, client_cpu=cpu / 2)
    save(tmp_path / "lists.json", [row])
    [cells] = table_of("A list as a buffer: push", tmp_path)
    medians = ["2.000", "500", "0.500", "2,000", "8.00", "0.250"]
    assert cells == ["fastresp push", *medians, "-", "400% ▲", ""]


def test_the_cpu_time_of_pings_is_beside_that_of_the_source(tmp_path: Path) -> None:
    named = ("naive", "pipelined", "pipelined, a transaction")
    rows = [result("002 ping", name, [0.0084], "hiredis", 10_000) for name in named]
    rows.append(result("002 ping", "naive", [0.4], "hiredis (C)", 10_000))
    save(tmp_path / "pipelining.json", rows)
    found = table_of("Ten thousand pings", tmp_path)
    assert [each[8:11] for each in found] == [
        ["0.00210", "0.390", "1.185"],
        ["0.00210", "-", "0.251"],
        ["0.00210", "0.190", "-"],
        ["0.100", "-", "-"],
    ]


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
        assert not re.search(r"#0000\w\w", chart), "a colour that is not the page's"
        ids += [node.get("id", "") for node in root.iter() if node.get("id")]
    assert len(ids) == len(set(ids))


class Balance(HTMLParser):
    """Finds tags that are not closed, ids that are there twice, and what would be fetched."""

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


def test_the_picture_brings_its_colours(tmp_path: Path) -> None:
    peers = ("redis-py, pipeline of 1,000", "fastresp mass_insert, socket")
    save(tmp_path / "peers.json", [result("peers SET", name, [0.5, 0.6]) for name in peers])
    picture = write(tmp_path, tmp_path)[-1].read_text()
    assert "fastresp mass_insert, socket" in "".join(ElementTree.fromstring(picture).itertext())
    used = set(re.findall(r"var\((--[\w-]+)\)", picture))
    assert "--ours" in used
    assert used <= set(re.findall(r"(--[\w-]+):", picture))


def test_the_page_is_whole(texts: tuple[str, str]) -> None:
    page = Balance()
    page.feed(texts[1])
    page.close()
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.fetched == []
    assert "url(http" not in texts[1]
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def goal(bound: float | None, at_most: bool = False, operations: int = 0) -> Goal:
    measure = faster("push", "push SET fastresp socket", "push SET no generation")
    return Goal("Push", "it", "push", measure, bound, at_most=at_most, operations=operations)


def push(folder: Path, ours: list[float], file: list[float]) -> Results:
    folder.mkdir(exist_ok=True)
    named = {"push SET fastresp socket": ours, "push SET no generation": file}
    save(folder / "push.json", [result("push", row, values) for row, values in named.items()])
    return Results(folder)


def test_goals_compare_round_by_round(tmp_path: Path) -> None:
    results = push(tmp_path, [1.0, 2.0, 3.0], [2.0, 2.0, 9.0])
    verdict = judge(goal(2.0), results)
    assert verdict.word == "reached"
    assert verdict.measured is not None
    assert (verdict.measured.low, verdict.measured.figure, verdict.measured.high) == (1, 2, 3)
    assert judge(goal(2.1), results).word == "missed"
    assert judge(goal(2.0, at_most=True), results).word == "reached"
    assert judge(goal(1.9, at_most=True), results).word == "missed"


def test_what_was_not_asked_for_is_not_judged(tmp_path: Path) -> None:
    results = push(tmp_path, [1.0], [2.0])
    goals = [goal(1.0), goal(3.0), goal(None)]
    verdicts = [judge(each, results) for each in goals]
    assert [verdict.word for verdict in verdicts] == ["reached", "missed", "beyond"]
    said = "Of 2 goals 1 were reached, 1 missed and 0 not measured."
    assert summary(verdicts[:2]) == said
    assert summary(verdicts) == f"{said} What is beyond them was not asked for, and is not judged."
    *_, row = goals_table(verdicts).rows
    assert [cell.text for cell in row.cells] == ["beyond", "-", "2.00x", "one value"]
    assert row.cells[0].mark == ""
    missing = [judge(each, Results(tmp_path / "none")) for each in goals]
    assert summary(missing).startswith("Of 2 goals 0 were reached, 0 missed and 2 not measured.")


def test_goals_that_were_not_measured_say_why(tmp_path: Path) -> None:
    verdict = judge(goal(1), Results(tmp_path))
    assert (verdict.word, verdict.measured) == ("not measured", None)
    assert verdict.reason == "not run yet: `python bench/push.py -o push.json`"
    save(tmp_path / "push.json", [missing("push", "push SET no generation", "no redis-cli")])
    assert judge(goal(1), Results(tmp_path)).reason == "no redis-cli"


def test_a_goal_for_millions_is_not_reached_with_less(tmp_path: Path) -> None:
    made = Goal("Load", "it", "load", lambda _: of_values([2.0], 99), 1, operations=100)
    verdict = judge(made, Results(tmp_path))
    assert verdict.word == "not measured"
    assert verdict.reason == "measured with 99 and not with 100"


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("PING_INLINE", "PING_INLINE"),
        ("PING (inline)", "PING_INLINE"),
        ("PING_MBULK", "PING"),
        ("MSET (10 keys)", "MSET"),
        ("LRANGE_100 (first 100 elements)", "LRANGE_100"),
        ("LRANGE_500 (first 450 elements)", "LRANGE_450"),
        ("LRANGE_450 (first 450 elements)", "LRANGE_450"),
        ("LPUSH (needed to benchmark LRANGE)", "LPUSH (AGAIN)"),
        ("LPUSH (again, in order to bench LRANGE)", "LPUSH (AGAIN)"),
        ("SET", "SET"),
    ],
)
def test_commands_of_redis_benchmark(name: str, then: str) -> None:
    assert redis_benchmark_name(name) == then
    assert then in REDIS_BENCHMARK


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
    pytest.importorskip("playwright", reason="what drives a browser is not installed")
    from check_page import browser_path, check

    if browser_path() is None:
        pytest.skip("there is no Chromium")
    (tmp_path / "whole.html").write_text(texts[1])
    assert check(tmp_path / "whole.html") == ([], 4)
    (tmp_path / "broken.html").write_text(BROKEN)
    faults, _ = check(tmp_path / "broken.html")
    assert "phone, light: said" in faults
    assert "desktop, dark: empty: not drawn" in faults
    assert any(fault.endswith("px wider than the screen") for fault in faults)
    assert "light and dark look the same" in faults


def test_what_is_held_by_tests_is() -> None:
    for _, test in HELD:
        path, *classes, name = test.split("::")
        assert name != path, f"{test} names no test"
        text = (ROOT / path).read_text()
        for each in classes:
            _, found, text = text.partition(f"\nclass {each}:\n")
            assert found, test
            text, *_ = text.partition("\nclass ")
        assert f"def {name}(" in text, test
