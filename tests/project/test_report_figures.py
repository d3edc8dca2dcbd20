"""The benchmarks' page: the figures computed from results, here from invented ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from bench_results import result
from pages.data import Results
from pages.ratios import redis_benchmark_name
from pages.sections import TABLES
from pages.source_figures import (
    PARSER_GAIN,
    PROFILES,
    REDIS_BENCHMARK,
    SECTION_GAIN,
)
from pages.tables import ceiling
from results import Result, save


def test_one_load_is_compared_with_one_load_in_c(tmp_path: Path) -> None:
    names = {"push fastresp mass_insert": 0.5, "push C lpush-pipeline": 1.0}
    save(tmp_path / "lists.json", [result("lists", row, [time]) for row, time in names.items()])
    rows = [result("000 push", "fastresp mass_insert", [9.0])]
    rows += [result("000 push", "pipelining -P 1000", [1.0], "hiredis (C)")]
    save(tmp_path / "buffer.json", rows)
    [load] = [
        row for row in table_of("Python compared with C", tmp_path) if "mass_insert" in row[0]
    ]
    assert load[1:5] == ["-", "-", "200%", "-"]


def table_of(title: str, folder: Path) -> list[list[str]]:
    """Return the cells of a section's table, row by row."""
    rows = TABLES[title].shown(Results(folder)).rows
    return [[*row.head, *(cell.text for cell in row.cells), row.reason] for row in rows]


def test_redis_py_in_percent_of_redis_benchmark(tmp_path: Path) -> None:
    table, row = "001 redis-benchmark", "LPUSH (needed to benchmark LRANGE)"
    rows = [
        result(table, row, [1.0, 1.0, 4.0], "redis-benchmark"),
        result(table, row, [2.0, 4.0, 5.0], "hiredis"),
    ]
    for way, seconds in (("one connection", 2.0), ("a connection per command", 0.5)):
        number = 100_000 if way == "one connection" else 10_000
        rows.append(result("001 connections", f"TCP, {way}", [seconds], "hiredis", number))
    for way, seconds in (("one connection", 1.0), ("one connection, two cores", 4.0)):
        rows.append(result("001 connections", f"TCP, {way}", [seconds], "redis-benchmark"))
    way = "a connection per command, two cores"
    rows.append(result("001 connections", f"TCP, {way}", [8.0], "hiredis"))
    save(tmp_path / "redis_benchmark.json", rows)
    # From the medians of the times, and of the ratios of each round.
    listed = table_of("redis-benchmark and redis-py, command by command", tmp_path)
    assert listed == [[row, "100,000 ▲", "25,000 (50%) ▲", "33,223", ""]]
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
    """Save results of shares.py with the same share for each class of a method and parser."""
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
    """The shares of 2018 yield the gains of 2018, except for rounding."""
    profile(tmp_path, {key: shares["processing"] for key, shares in PROFILES.items()})
    rows = table_of("What each method gains over the previous one", tmp_path)
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
    first, *_ = table_of("What each method gains over the previous one", tmp_path)
    assert first[0] == "pipelining, over naive"
    assert first[4] == "50%"
    naive, *_ = table_of("What hiredis gains", tmp_path)
    assert naive[:4] == ["naive", "100%", "100%", "0%"]
    assert float(naive[4][:-1]) == pytest.approx(PARSER_GAIN["naive"], abs=0.02)


def test_memory_is_the_maximum_with_start_and_peak_of_its_round(tmp_path: Path) -> None:
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


def test_ceiling_needs_ten_clock_ticks_or_a_finer_clock() -> None:
    def used(*seconds: float) -> float | None:
        row = Result("push", "push SET", operations=1_000)
        for each in seconds:
            row.add(1.0, server_cpu=each)
        return ceiling(row)

    assert used(0.02, 0.03) is None
    assert used(0.04, 0.06) == pytest.approx(20_000)
    assert used(0.001234, 0.000766) == pytest.approx(1_000_000)
    assert used() is None


def test_table_shows_medians_only(tmp_path: Path) -> None:
    row = Result("lists", "push fastresp push", operations=1_000)
    for seconds, cpu in ((1.0, 0.5), (2.0, 0.25), (9.0, 0.75)):
        row.add(seconds, server_cpu=cpu, client_cpu=cpu / 2)
    save(tmp_path / "lists.json", [row])
    [cells] = table_of("A list as a buffer: push", tmp_path)
    medians = ["2.000", "500", "0.500", "2,000", "8.00", "0.250"]
    assert cells == ["fastresp push", *medians, "-", "400% ▲", ""]


def test_cpu_time_of_pings_is_beside_the_source(tmp_path: Path) -> None:
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
