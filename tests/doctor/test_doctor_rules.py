"""The doctor's rules: the verdict for each fact, and that the page lists all verdicts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import changes
from places import ROOT

import fastresp
from fastresp.doctor import diagnose
from fastresp.doctor.facts import Facts, Slow
from fastresp.doctor.measure import Measured
from fastresp.doctor.rules import Findings
from fastresp.doctor.watch import Use


class TestRules:
    """Faults that can't be planted on this machine: facts as a server would report them."""

    def judge(self, use: Use | None = None, **facts: Any) -> set[str]:
        given: dict[str, Any] = {"place": "x", "way": "tcp", "local": True, **facts}
        return changes(diagnose(Findings(Facts(**given), None, use)))

    def test_swap(self) -> None:
        info = {"used_memory": str(1 << 30), "mem_fragmentation_ratio": "0.50"}
        resident = {"used_memory_rss": str(10 << 30)}
        assert self.judge(swapped=1 << 30, info=resident) == {"swap"}
        assert self.judge(swapped=1 << 20, info={"used_memory_rss": str(8 << 20)}) == {"swap"}
        # A large server with a few unused pages in swap.
        facts = Facts("x", "tcp", True, info=resident, swapped=100 << 20)
        (found,) = diagnose(Findings(facts)).verdicts
        assert (found.code, found.grade) == ("swap", "note") and "1.0% of it" in found.figure
        assert self.judge(info=info) == {"swap"}
        assert self.judge(info=info, swapped=0) == set()
        assert self.judge(info=info | {"mem_fragmentation_ratio": "0.95"}) == set()
        assert self.judge(info=info | {"used_memory": "1000000"}) == set()

    def test_io_threads(self) -> None:
        busy, idle = (Use(True, 10.0, commands=50, cpu=cpu) for cpu in (9.5, 2.0))
        one = {"config": {"io-threads": "1"}, "cores": 8}
        assert self.judge(busy, **one) == {"io-threads-one"}
        assert self.judge(idle, **one) == set()
        assert self.judge(busy, **{**one, "cores": 2}) == set()
        assert self.judge(busy, **{**one, "cores": None}) == set()

    def test_latency_events(self) -> None:
        assert self.judge(latency={"fork": 400.0, "command": 900.0}) == {"latency-spikes"}
        assert self.judge(latency={"fork": 2.0, "fast-command": 900.0}) == set()

    @pytest.mark.parametrize(
        ("line", "grade", "words"),
        [
            ("state=online,offset=9000000000,lag=1", "note", "1 replica"),
            ("", "note", "1 replica"),  # INFO has no line for it
            ("state=online,offset=9000000000,lag=11", "problem", "11 s and 0 bytes behind"),
            ("state=online,offset=8900000000,lag=1", "problem", "1 s and 100.0 MB behind"),
            ("state=wait_bgsave,offset=0,lag=0", "advice", "is in state wait_bgsave"),
            ("state=send_bulk,offset=0,lag=0", "advice", "is in state send_bulk"),
        ],
    )
    def test_replicas(self, line: str, grade: str, words: str) -> None:
        info = {"connected_slaves": "1", "master_repl_offset": "9000000000"}
        info |= {"slave0": f"ip=1,port=2,{line}"} if line else {}
        (found,) = diagnose(Findings(Facts("x", "tcp", False, info=info))).verdicts
        assert (found.code, found.grade) == ("replicas", grade)
        assert words in found.figure

    @pytest.mark.parametrize(
        ("policy", "expires", "used", "code", "grade"),
        [
            ("noeviction", 100, 95, "maxmemory-near", "problem"),
            ("noeviction", 100, 80, "maxmemory-near", "advice"),
            ("volatile-ttl", 0, 95, "maxmemory-near", "problem"),
            ("volatile-ttl", 5, 95, "maxmemory-near", "advice"),
            ("volatile-ttl", 50, 95, "eviction-near", "note"),
            ("allkeys-lfu", 0, 99, "eviction-near", "note"),
        ],
    )
    def test_memory(self, policy: str, expires: int, used: int, code: str, grade: str) -> None:
        info = {
            "maxmemory": str(100 << 20), "used_memory": str(used << 20),
            "maxmemory_policy": policy, "evicted_keys": "1000000", "uptime_in_seconds": "10",
            "db0": f"keys=60,expires={expires},avg_ttl=0", "db3": "keys=40,expires=0,avg_ttl=0",
        }  # fmt: skip
        use = Use(False, 10.0, commands=100, evicted=1_000_000)
        (found,) = diagnose(Findings(Facts("x", "tcp", False, info=info), None, use)).verdicts
        assert (found.code, found.grade) == (code, grade)

    def test_cache_with_few_evictions(self) -> None:
        use = Use(True, 10.0, commands=10_000, evicted=500)
        assert self.judge(use) == set()
        assert self.judge(replace(use, evicted=2_000)) == {"evicted"}

    def test_versions(self) -> None:
        for version, old in (("5.0.7", True), ("6.2.14", True), ("7.0.0", False), ("?", False)):
            assert self.judge(info={"redis_version": version}) == (
                {"old-version"} if old else set()
            )
        for version, old in (("7.2.5", True), ("8.0.0", False), ("9.1.2", False)):
            info = {"redis_version": "7.2.4", "valkey_version": version}
            assert self.judge(info=info) == ({"old-version"} if old else set())

    def test_known_faults(self) -> None:
        info = {"redis_version": "7.2.4", "valkey_version": "9.0.2"}
        threads = {"io-threads": "4", "appendfsync": "always"}
        found = diagnose(Findings(Facts("x", "tcp", False, info=info, config=threads))).verdicts
        any_load, commands = found
        assert (any_load.code, any_load.grade) == ("known-faults", "problem")
        assert "held back" in any_load.figure and "(valkey#3198, Valkey 9.0.2)" in any_load.figure
        assert any_load.advice.startswith("Upgrade to 9.0.3, or set io-threads 1.")
        assert (commands.code, commands.grade) == ("faulty-commands", "note")
        assert "CVE-2026-25243" in commands.figure and "; copies: " in commands.figure
        assert commands.source.startswith("CVE-2026-25243: https://")
        # A refused CONFIG GET: by default, there is one thread.
        first, _ = diagnose(Findings(Facts("x", "tcp", False, info=info))).verdicts
        assert (first.code, first.grade) == ("known-faults", "note")
        assert "io-threads could not be read" in first.figure
        fixed = info | {"valkey_version": "9.2.0"}
        assert (
            diagnose(Findings(Facts("x", "tcp", False, info=fixed, config=threads))).verdicts == []
        )

    def test_forks(self) -> None:
        info = {"used_memory": str(10 << 30), "rdb_last_bgsave_time_sec": "60"}
        for save, seconds, grade in (
            ("60 10000", "60", "advice"), ("60 10000", "2", "note"), ("3600 1", "60", ""),
            ("", "60", ""), ("60 10000", "0", "advice"), ("60 100000000", "60", ""),
        ):  # fmt: skip
            facts = Facts(
                "x", "tcp", False, info=info | {"rdb_last_bgsave_time_sec": seconds},
                config={"save": save},
            )  # fmt: skip
            found = diagnose(Findings(facts)).verdicts
            assert [(each.code, each.grade) for each in found] == ([("forks", grade)] * bool(grade))
            assert all(
                "forks in a load of 10 minutes with 100,000" in each.figure for each in found
            )
        small = {"save": "60 1"}
        facts = Facts("x", "tcp", False, info={"used_memory": "1000000"}, config=small)
        assert diagnose(Findings(facts)).verdicts == []

    def test_single_slow_command_is_ignored(self) -> None:
        """The machine may have caused it."""
        once = Slow("MSET", 1, 40.0, 40.0, "O(N)", "")
        assert self.judge(slow=[once]) == set()
        assert self.judge(slow=[replace(once, times=3, total_ms=60.0)]) == {"slow-commands"}

    @pytest.mark.parametrize(
        ("watched", "times", "usec", "grade"),
        [
            (False, 1, 300_000, "note"),  # once, some time ago
            (False, 6, 3_000_000, "advice"),  # on an otherwise idle server
            (False, 5, 3_000, "advice"),
            (True, 1, 300_000, "advice"),  # in 10 seconds
            (True, 5, 1_500_000, "problem"),
        ],
    )
    def test_slow_commands(self, watched: bool, times: int, usec: int, grade: str) -> None:
        slow = [Slow("FLUSHALL", times, 300.0, 300.0, "O(N)", "")]
        calls = {"flushall": (times, usec), "set": (1_000_000, 1_000_000)}
        use = Use(watched, 10.0, calls=calls)
        (found,) = diagnose(Findings(Facts("x", "tcp", False, slow=slow), None, use)).verdicts
        assert (found.code, found.grade) == ("slow-commands", grade)
        assert "ASYNC" in found.advice and "SCAN" not in found.advice
        assert (found.gain is not None) == (grade == "problem")

    def test_advice_for_slow_commands(self) -> None:
        slow = [
            Slow(name, 5, 300.0, 900.0, complexity, "")
            for name, complexity in (
                ("EVAL_RO", "Depends on the script that is executed"),
                ("FCALL", "Depends on the function that is executed"),
                ("SINTER", "O(N*M) worst case where N is the cardinality"),
                ("GRAPH.QUERY", ""),
            )
        ]
        (found,) = diagnose(Findings(Facts("x", "tcp", False, slow=slow))).verdicts
        assert found.advice == (
            "Use shorter scripts and functions: each blocks the server while it runs; use SINTER "
            "with fewer elements per call; check why GRAPH.QUERY is slow."
        )
        for name in ("EVAL", "EVALSHA", "EVALSHA_RO", "FCALL_RO"):
            row = replace(slow[0], name=name)
            (found,) = diagnose(Findings(Facts("x", "tcp", False, slow=[row]))).verdicts
            assert found.advice.startswith("Use shorter scripts") and name not in found.advice

    def test_many_slow_clients_need_no_pipelines(self) -> None:
        use = Use(True, 10.0, commands=5_000, reads=5_000, senders=500, round_trip_s=0.002)
        assert self.judge(use) == set()
        assert self.judge(replace(use, senders=2)) == {"no-pipeline"}

    def test_pipelines_only_for_clients_that_wait(self) -> None:
        """432 commands per second over one connection."""
        use = Use(True, 10.0, commands=4_320, reads=4_320, busiest=4_320, round_trip_s=42e-6)
        assert self.judge(use) == set()
        assert self.judge(replace(use, round_trip_s=0.6e-3)) == set()
        far = replace(use, round_trip_s=1e-3)
        (found,) = diagnose(Findings(Facts("x", "tcp", False), None, far)).verdicts
        assert found.grade == "advice"
        assert "1.000 ms: one connection waits 43% of the time" in found.figure
        # The clients must be closer to the server than the doctor.
        farther = replace(use, round_trip_s=20e-3)
        (found,) = diagnose(Findings(Facts("x", "tcp", False), None, farther)).verdicts
        assert found.grade == "note" and "closer to the server" in found.figure
        (found,) = diagnose(Findings(Facts("x", "tcp", True), None, farther)).verdicts
        assert found.grade == "advice" and "waits 100% of the time" in found.figure

    def test_blocking_commands_need_no_pipelines(self) -> None:
        use = Use(True, 10.0, commands=20_000, reads=20_000, senders=1, round_trip_s=0.2e-3)
        assert self.judge(use) == {"no-pipeline"}
        assert self.judge(replace(use, calls={"blpop": (10_000, 10_000)})) == set()

    @pytest.mark.parametrize(
        ("unix", "deep", "grade", "gains"),
        [
            (75_000.0, 600_000.0, "advice", ["1.49", "1.20"]),
            (50_224.0, 500_000.0, "note", ["1.00", "1.00"]),
            (45_000.0, 450_000.0, "note", ["0.90", "0.90"]),
            (45_000.0, 600_000.0, "advice", ["0.90", "1.20"]),
            (45_000.0, None, "note", ["0.90"]),
        ],
    )
    def test_unix_socket(
        self, unix: float, deep: float | None, grade: str, gains: list[str]
    ) -> None:
        facts = Facts("x", "tcp", True, unix_socket="/s")
        measured = Measured(depths={1: 50_224.0, 100: 500_000.0}, unix=unix, unix_deep=deep)
        (found,) = diagnose(Findings(facts, measured)).verdicts
        assert (found.code, found.grade) == ("unix-socket", grade)
        assert re.findall(r"([\d.]+)x", found.expected) == gains
        assert found.gain and f"{found.gain:.2f}" == max(gains)
        assert ("unix:///s" in found.advice) == (grade == "advice")

    def test_order(self) -> None:
        facts = Facts("x", "tcp", True, hiredis=False, unix_socket="/s", swapped=1 << 30)
        use = Use(True, 10.0, commands=90_000, reads=90_000, senders=1, round_trip_s=1e-4)
        codes = [each.code for each in diagnose(Findings(facts, None, use)).verdicts]
        assert codes == ["swap", "no-pipeline", "unix-socket", "no-hiredis"]

    def test_the_page_lists_all_verdicts(self) -> None:
        package = Path(fastresp.__file__).parent / "doctor"
        names = ("cluster", "rules", "server_rules")
        rules = [(package / f"{name}.py").read_text() for name in names]
        codes = set(re.findall(r'(?:Verdict\(|_uneven\([^"]*)\s*"([a-z-]+)"', "".join(rules)))
        page = (ROOT / "docs" / "guides" / "diagnose.md").read_text()
        assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == codes
        assert len(codes) >= 20

    def test_unknown_figures_are_ignored(self) -> None:
        assert self.judge(Use(True, 10.0)) == set()
        assert self.judge(Use(True, 10.0, commands=100_000, errors=None, reads=None)) == set()
