"""The benchmarks' page: figures of loads next to their goals.

The results here are invented, and say nothing about speed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

import checkpoint
import verify
from bench_results import missing, result
from pages.data import Results
from pages.goals import CHECKPOINTS, SLOTS, VERIFIED
from report import made
from results import save
from scale import NODES, SIZES, SOURCES

MILLION = 1_000_000


def page(folder: Path) -> list[str]:
    """Return the lines of a page made from the results in a folder."""
    return made(Results(folder))["benchmarks.md"].splitlines()


def cell(lines: list[str], section: str, row: str, column: str) -> str:
    """Return a cell of the table in a section."""
    rows = lines[lines.index(f"### {section}") :]
    headings = next(line for line in rows if line.startswith("|  |")).split("|")
    found = next(line for line in rows if line.strip("| *").startswith(f"{row}"))
    return found.split("|")[headings.index(f" {column} ")].strip()


def test_verification(tmp_path: Path) -> None:
    rows = []
    for name in verify.TEMPLATES:
        table = f"verify {name}"
        rows.append(result(table, "load", [1.0, 2.0], operations=MILLION))
        slow = name == "SADD"
        rows.append(result(table, "verify", [4.0 if slow else 1.0] * 2, operations=MILLION))
    save(tmp_path / "verify.json", rows)
    lines = page(tmp_path)
    for name in verify.TEMPLATES:
        found = cell(lines, "Verify a load", f"{name}, verify", "rate / load")
        if name == "SADD":
            assert found == "🔴 **0.375x (0.250x to 0.500x), goal ≥ 0.5x**"
        else:
            assert found == "🟢 1.500x (1.000x to 2.00x), goal ≥ 0.5x"
        assert cell(lines, "Verify a load", f"{name}, load", "rate / load") == "-"
        assert cell(lines, "Verify a load", f"{name}, load", "median s") == "1.500"
    goals = [line for line in lines if line.startswith("| Verification: ")]
    assert len(goals) == len(verify.TEMPLATES)
    assert sum("reached" in line for line in goals) == len(goals) - 1


def test_few_rows_are_not_judged(tmp_path: Path) -> None:
    rows = [result("verify SET", "load", [1.0]), result("verify SET", "verify", [0.5])]
    rows += [missing("verify HSET", "load", "no memory"), missing("verify HSET", "verify", "it")]
    save(tmp_path / "verify.json", rows)
    lines = page(tmp_path)
    found = cell(lines, "Verify a load", "SET, verify", "rate / load")
    assert found == "⚪ 2.00x, goal ≥ 0.5x"
    assert "| HSET, load | *not measured: no memory*" in "\n".join(lines).replace("**", "")


def test_checkpoints(tmp_path: Path) -> None:
    rows = []
    for name in checkpoint.TEMPLATES:
        rows.append(result("checkpoint", name, [1.0], operations=MILLION))
        with_it = 1.5 if name == "RPUSH" else 1.005
        rows.append(result("checkpoint", f"{name}, checkpoint", [with_it], operations=MILLION))
    save(tmp_path / "checkpoint.json", rows)
    lines, column = page(tmp_path), "server CPU / without"
    for name in checkpoint.TEMPLATES:
        found = cell(lines, "The cost of a checkpoint", f"{name}, checkpoint", column)
        assert found.startswith("🔴 **1.500x" if name == "RPUSH" else "🟢 1.005x, goal ≤ 1")


def test_slots(tmp_path: Path) -> None:
    words = {0: "without slots", 1: "1 node", 3: "3 nodes"}
    assert [*NODES] == [*words]
    rows = [
        result("scale slots", f"{kind}, {size} bytes, {words[nodes]}", [nodes * 0.005 + 0.1],
               operations=MILLION)
        for kind in SOURCES for size in SIZES for nodes in NODES
    ]  # fmt: skip
    save(tmp_path / "scale.json", rows)
    lines, column = page(tmp_path), "more than without slots"
    for row in SLOTS:
        found = cell(lines, "The cost of key slots", row, column)
        assert found == "🔴 **15.0 ns, goal ≤ 12 ns**"
    assert cell(lines, "The cost of key slots", "rows, 129 bytes, 3 nodes", column) == "-"


@pytest.mark.parametrize(
    ("goals", "rows"),
    [
        (VERIFIED, [f"{name}, verify" for name in verify.TEMPLATES]),
        (CHECKPOINTS, [f"{name}, checkpoint" for name in checkpoint.TEMPLATES]),
        (SLOTS, [f"{kind}, 8 bytes, 3 nodes" for kind in SOURCES]),
    ],
    ids=["verify", "checkpoint", "slots"],
)
def test_goals_are_those_of_the_scripts(goals: dict[str, object], rows: list[str]) -> None:
    assert [*goals] == rows
