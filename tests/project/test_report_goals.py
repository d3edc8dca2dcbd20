"""The benchmarks' goals: judged round by round, or checked by a test that exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from places import BENCH, ROOT

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from bench_results import missing, result
from pages.data import Results
from pages.goals import Goal, judge
from pages.markdown import TEMPLATE, goals_table, summary
from pages.measures import faster, of_values
from results import save


def goal(bound: float | None, at_most: bool = False, operations: int = 0) -> Goal:
    measure = faster("push", "push SET fastresp socket", "push SET no generation")
    return Goal("Push", "it", measure, bound, at_most=at_most, operations=operations)


def push(folder: Path, ours: list[float], file: list[float]) -> Results:
    folder.mkdir(exist_ok=True)
    named = {"push SET fastresp socket": ours, "push SET no generation": file}
    save(folder / "push.json", [result("push", row, values) for row, values in named.items()])
    return Results(folder)


def test_goals_are_compared_round_by_round(tmp_path: Path) -> None:
    results = push(tmp_path, [1.0, 2.0, 3.0], [2.0, 2.0, 9.0])
    verdict = judge(goal(2.0), results)
    assert verdict.word == "reached"
    assert verdict.measured is not None
    assert (verdict.measured.low, verdict.measured.figure, verdict.measured.high) == (1, 2, 3)
    assert judge(goal(2.1), results).word == "missed"
    assert judge(goal(2.0, at_most=True), results).word == "reached"
    assert judge(goal(1.9, at_most=True), results).word == "missed"


def test_a_row_without_a_goal_is_not_judged(tmp_path: Path) -> None:
    results = push(tmp_path, [1.0], [2.0])
    goals = [goal(1.0), goal(3.0), goal(None)]
    verdicts = [judge(each, results) for each in goals]
    assert [verdict.word for verdict in verdicts] == ["reached", "missed", "no goal"]
    counts = "1 of 2 goals reached, 1 missed, 0 not measured."
    assert summary(verdicts[:2]) == counts
    assert summary(verdicts) == f"{counts} Rows without a goal are not judged."
    *_, row = goals_table(verdicts).rows
    assert [cell.text for cell in row.cells] == ["no goal", "-", "2.00x", "one value"]
    assert row.cells[0].mark == ""
    missing = [judge(each, Results(tmp_path / "none")) for each in goals]
    assert summary(missing).startswith("0 of 2 goals reached, 0 missed, 2 not measured.")


def test_goals_that_were_not_measured_say_why(tmp_path: Path) -> None:
    verdict = judge(goal(1), Results(tmp_path))
    assert (verdict.word, verdict.measured) == ("not measured", None)
    assert verdict.reason == "not run yet: `python bench/push.py -o push.json`"
    save(tmp_path / "push.json", [missing("push", "push SET no generation", "no redis-cli")])
    assert judge(goal(1), Results(tmp_path)).reason == "no redis-cli"


def test_goal_for_millions_needs_millions(tmp_path: Path) -> None:
    made = Goal("Load", "it", lambda _: of_values([2.0], 99), 1, operations=100)
    verdict = judge(made, Results(tmp_path))
    assert verdict.word == "not measured"
    assert verdict.reason == "measured with 99 operations, needs 100"


def test_tests_named_by_goals_exist() -> None:
    tests = re.findall(r"(?m)^\| .* \| `(tests/.*)` \|$", TEMPLATE.read_text())
    assert len(tests) > 10
    for test in tests:
        path, *classes, name = test.split("::")
        assert name != path, f"{test} is not the name of a test"
        text = (ROOT / path).read_text()
        for each in classes:
            _, found, text = text.partition(f"\nclass {each}:\n")
            assert found, test
            text, *_ = text.partition("\nclass ")
        assert f"def {name}(" in text, test
