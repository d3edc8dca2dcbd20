"""Warnings about known faults and forks: in reports, dry runs and copies; bytes in flight."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp import Template
from fastresp.load.dry_run import dry_run
from fastresp.load.server_warnings import (
    Expected,
    Place,
    forecast_of,
    fork_warnings,
    save_rules,
    warnings_of,
)
from fastresp.server import known_faults
from fastresp.server.known_faults import PIPELINE_BYTES, Fault, Versions
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Rate
from fastresp.transports.connection import Connection

ROWS = [{"id": number, "name": "x" * (number % 3000)} for number in range(3000)]
HSET = Template("HSET user:{id} {**}")
Start = Callable[..., LocalServer]
STALLING = Fault(
    "test#1", "Redis", (Versions("0.0.0", "", "99.0.0"),), "it stalls", "https://x/1",
    pipeline_bytes=PIPELINE_BYTES,
)  # fmt: skip


def user(server: LocalServer, *rules: str) -> str:
    """Create an ACL user with these rules; return the URL with its password."""
    with redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "user", "on", ">word", "~*", "+@all", *rules)
    return f"{server.url}?username=user&password=word"


class TestReports:
    @pytest.fixture
    def faulty(self, start_server: Start) -> LocalServer:
        """Return a server with CVE-2026-25243: Redis 8.2.3."""
        return start_server(program=located("redis-8.2", WHEEL_SERVERS))

    def test_serialized(self, faulty: LocalServer) -> None:
        report = fastresp.mass_insert(ROWS[:3], HSET, faulty.url, mode="serialize")
        (warning,) = report.warnings
        assert "CVE-2026-25243" in warning and "upgrade to 8.2.6, or" in warning
        assert f"warning: {warning}" in str(report).splitlines()
        assert fastresp.mass_insert(ROWS[:3], HSET, faulty.url).warnings == []

    def test_copy(self, faulty: LocalServer, start_server: Start) -> None:
        source = start_server()
        fastresp.mass_insert(ROWS[:3], HSET, source.url)
        report = fastresp.copy(source.url, faulty.url)
        codes = ["CVE-2026-25243", "CVE-2026-66373"]
        assert [any(code in each for each in report.warnings) for code in codes] == [True, True]
        plan = fastresp.copy(source.url, faulty.url, dry_run=True).plan
        assert plan.warnings == report.warnings and len(plan.notes) == 1
        assert f"warning: {plan.warnings[0]}" in str(plan).splitlines()

    def test_fixed_server(self, start_server: Start) -> None:
        target = start_server(program=located("valkey-9.1", WHEEL_SERVERS))
        report = fastresp.mass_insert(ROWS[:3], HSET, target.url, mode="serialize")
        assert report.warnings == []
        assert fastresp.copy(target.url, target.url + "?db=1").warnings == []

    @pytest.mark.parametrize("program", ["valkey-8.1", "valkey-9.1", "redis-8.2"])
    def test_durable(self, start_server: Start, program: str) -> None:
        target = start_server("--appendonly", "yes", program=located(program, WHEEL_SERVERS))
        rows, faulty = ROWS[:1], program.startswith("valkey")

        def warned(url: str = target.url) -> list[str]:
            return fastresp.mass_insert(rows, HSET, url, durable="fsync").warnings

        assert [("WAITAOF answers before" in each) for each in warned()] == [True] * faulty
        assert fastresp.mass_insert(rows, HSET, target.url).warnings == []
        # Without permission for CONFIG, the setting is unknown.
        (text,) = warned(user(target, "-config")) or ["(appendfsync could not be read)"]
        assert "(appendfsync could not be read)" in text
        # Without permission for INFO, so is the version.
        assert warned(user(target, "-config", "-info")) == []
        redis.from_url(target.url).config_set("appendfsync", "always")
        assert warned() == []

    def test_checkpoint(self, start_server: Start) -> None:
        """A checkpoint's transactions are commands of the load."""
        target = start_server("--appendonly", "yes", program=located("valkey-8.1", WHEEL_SERVERS))
        rows = [(str(number), "1") for number in range(3)]
        report = fastresp.mass_insert(rows, "INCRBY {0} {1}", target.url, checkpoint="job")
        (warning,) = report.warnings
        assert "valkey#4342" in warning
        idempotent = fastresp.mass_insert(rows, "SET {0} {1}", target.url, checkpoint="other")
        assert idempotent.warnings == []

    def test_json(self, faulty: LocalServer, tmp_path: Path) -> None:
        file = tmp_path / "users.csv"
        file.write_text("id,name\n1,Ann\n")
        arguments = ["load", file, "HSET user:{id} {**}", "--server", faulty.url, "--json"]
        arguments += ["--mode", "serialize", "--exists", "replace"]
        loaded = json.loads(invoke(*arguments).stdout)
        planned = json.loads(invoke(*arguments, "--dry-run").stdout)
        assert loaded["warnings"] == planned["warnings"]
        assert (
            loaded["warnings"][0].startswith("Redis 8.2.3 has a known fault")
            and loaded["exit_code"] == 0
        )


class TestPipelines:
    """With a server that stalls above some bytes in flight, fewer are sent."""

    @pytest.fixture
    def in_flight(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Make the server's version faulty; return the bytes in flight after each step."""
        found: list[int] = []
        step = Connection.step

        def recorded(connection: Connection) -> None:
            step(connection)
            window = connection.window
            if window.acknowledged < window.sent:
                held, at = window.locate(window.acknowledged)
                start = held.first_byte + (held.chunk.ends[at - 1] if at else 0)
                found.append(window.totals()[2] - start)

        monkeypatch.setattr(known_faults, "FAULTS", (STALLING,))
        monkeypatch.setattr(Connection, "step", recorded)
        return found

    @pytest.mark.parametrize(
        "options",
        [
            {}, {"connections": 3}, {"checkpoint": "job"}, {"rate_limit": 100_000.0},
            {"retry": "always"}, {"rate_limit": "50MB"},
        ],
        ids=str,
    )  # fmt: skip
    def test_limit(
        self, server: LocalServer, in_flight: list[int], options: dict[str, Any]
    ) -> None:
        report = fastresp.mass_insert(ROWS, HSET, server.url, **options)
        assert (report.commands, report.replies, report.failed) == (3000, 3000, 0)
        assert 4_000 < max(in_flight) <= PIPELINE_BYTES
        (warning,) = report.warnings
        assert "fastresp keeps at most 16 kB in flight" in warning
        assert redis.from_url(server.url).hlen("user:2999") == 1

    def test_large_commands_are_sent_alone(self, server: LocalServer, in_flight: list[int]) -> None:
        rows = [(key, "x" * 1_000_000) for key in range(5)]
        report = fastresp.mass_insert(rows, "SET {0} {1}", server.url)
        assert report.replies == 5 and PIPELINE_BYTES < max(in_flight) < 1_000_100

    def test_redis_cli(self, server: LocalServer, in_flight: list[int]) -> None:
        report = fastresp.mass_insert(ROWS, HSET, server.url, transport="redis-cli")
        assert "use transport='socket', which keeps at most 16 kB" in report.warnings[0]

    def test_without_fault(self, server: LocalServer, in_flight: list[int]) -> None:
        known_faults.FAULTS = ()  # the fixture restores it
        assert fastresp.mass_insert(ROWS, HSET, server.url).warnings == []
        assert max(in_flight) > PIPELINE_BYTES


LOAD = Expected(commands=60_000_000, size=6 << 30, memory=10 << 30, seconds=600.0)
INFO = {
    "used_memory": str(10 << 30), "rdb_last_bgsave_time_sec": "60", "latest_fork_usec": "200000",
    "rdb_last_cow_size": str(1 << 30), "rdb_last_save_time": "1000", "server_time_usec": "1e9",
    "rdb_changes_since_last_save": "0",
}  # fmt: skip


class TestForecast:
    @pytest.mark.parametrize(
        ("rules", "saves", "rule"),
        [
            ("", 0, ""),
            # A save takes 90 s on average, and the next starts at the latest 60 s later.
            ("60 10000", 4, "60 10000"),
            ("3600 1 300 100 60 10000", 4, "60 10000"),
            ("3600 1", 0, ""),
            ("300 1", 1, "300 1"),
            ("60 100000000", 0, ""),  # fewer changes than that
            ("1 1", 7, "1 1"),
            ("nonsense", 0, ""),
            ("60", 0, ""),
        ],
    )
    def test_save_rules(self, rules: str, saves: int, rule: str) -> None:
        found = forecast_of(INFO, {"save": rules}, LOAD, now=0.0)
        assert (found.saves, found.rule) == (saves, rule)

    def test_since_the_last_save(self) -> None:
        late = INFO | {"server_time_usec": "5000000000"}  # 4,000 s after the last save
        assert forecast_of(late, {"save": "3600 1"}, LOAD, now=0.0).saves == 1
        assert forecast_of(INFO, {"save": "3600 1"}, LOAD, now=0.0).saves == 0
        changed = INFO | {"rdb_changes_since_last_save": "90000000"}
        assert forecast_of(INFO, {"save": "60 100000000"}, LOAD, now=0.0).saves == 0
        assert forecast_of(changed, {"save": "60 100000000"}, LOAD, now=0.0).saves == 1

    @pytest.mark.parametrize(
        ("percentage", "least", "base", "current", "rewrites"),
        [
            ("0", 64, 1 << 30, 1 << 30, 0),
            ("100", 64, 10 << 30, 10 << 30, 0),  # grows to 16 GiB
            ("100", 64, 5 << 30, 5 << 30, 1),
            # 2 GiB become 1.6 GiB, 3.2 GiB become 2.6 GiB, 5.1 GiB become 4.1 GiB.
            ("100", 64, 1 << 30, 1 << 30, 3),
            ("100", 8 << 30, 1 << 30, 1 << 30, 0),
            ("10", 64, 5 << 30, 5 << 30, 9),
            ("1e9", 64, 1 << 30, 1 << 30, 0),
            ("1", 1, 0, 0, 1000),
            ("", 64, 1 << 30, 1 << 30, 0),  # CONFIG was refused
        ],
    )
    def test_append_only_file(
        self, percentage: str, least: int, base: int, current: int, rewrites: int
    ) -> None:
        info = {
            **INFO, "aof_enabled": "1", "aof_base_size": str(base),
            "aof_current_size": str(current),
        }  # fmt: skip
        config = {
            "auto-aof-rewrite-percentage": percentage, "auto-aof-rewrite-min-size": str(least)
        }  # fmt: skip
        assert forecast_of(info, config, LOAD, now=0.0).rewrites == rewrites
        assert forecast_of(info | {"aof_enabled": "0"}, config, LOAD, now=0.0).rewrites == 0

    def test_replicas(self) -> None:
        info = INFO | {"connected_slaves": "2", "repl_backlog_size": "1048576"}
        found = forecast_of(info, {}, LOAD, now=0.0)
        (text,) = fork_warnings(found, LOAD)
        assert found.replicas == 2 and "the server has 2 replicas" in text
        large = info | {"repl_backlog_size": str(8 << 30)}
        assert forecast_of(large, {}, LOAD, now=0.0).replicas == 0

    def test_text(self) -> None:
        found = forecast_of(INFO, {"save": "60 10000"}, LOAD, now=0.0)
        (text,) = fork_warnings(found, LOAD)
        assert text == (
            "save 60 10000: the server forks about 4 times during this load (about 10 min); each "
            "fork blocks the server for about 400 ms, saves for about 90 s, and needs up to 21.5 "
            "GB more memory (copy-on-write, 1.1 GB in the last save); load with pause_saves=True "
            "to avoid these forks"
        )
        once = forecast_of(INFO, {"save": "500 1"}, LOAD, now=0.0)
        (text,) = fork_warnings(once, LOAD)
        assert "forks once" in text and "pause_saves" not in text

    @pytest.mark.parametrize(
        "value", ["", "-1", "x", "nan", "inf", "-inf", "1e99", "1e-300", "0.5"]
    )
    def test_strange_values(self, value: str) -> None:
        """A server may report anything."""
        info = {**dict.fromkeys(INFO, value), "aof_enabled": "1", "aof_base_size": value}
        config = {
            "save": f"{value} 1", "auto-aof-rewrite-percentage": value,
            "auto-aof-rewrite-min-size": value,
        }  # fmt: skip
        for load in (LOAD, Expected.of(0, 0, 0)):
            found = forecast_of(info, config, load, now=0.0)
            assert fork_warnings(found, load) is not None and found.save_seconds >= 0

    def test_save_rules_of_a_strange_server(self) -> None:
        assert save_rules("60 1 5") == [(60, 1)]
        assert save_rules("-1 -1") == save_rules("9" * 4000 + " 1") == save_rules("9" * 5000) == []

    def test_rate(self) -> None:
        assert Expected.of(1000, 10_000, 0).seconds < 0.001
        assert Expected.of(1000, 10_000, 0, Rate(100.0)).seconds == 10.0
        assert Expected.of(1000, 10_000, 0, Rate(100.0, in_bytes=True)).seconds == 100.0

    def test_nodes(self) -> None:
        """Warnings of several nodes name the nodes, and are few."""
        new, old = {"redis_version": "8.8.0"}, {"redis_version": "8.2.3"}
        config = {"save": "1 1"}
        places = [Place(f"h:{port}", new, config, LOAD) for port in range(9)]
        texts = warnings_of(places, {"RESTORE"})
        assert len(texts) == 4 and texts[0].startswith("h:0: save 1 1: the server forks about")
        assert texts[3] == "6 more warnings about nodes"
        texts = warnings_of([places[0]._replace(load=None), Place("h:1", old, {})], {"RESTORE"})
        assert len(texts) == 1 and texts[0].startswith("h:1: Redis 8.2.3 has a known fault")
        many = [Place(f"h:{port}", old, {}) for port in range(99)]
        (text,) = warnings_of([Place("h:0", new, {}), *many[1:]], {"RESTORE"})
        assert text.startswith("h:1, h:2, ") and "h:10 and 88 more nodes: Redis 8.2.3" in text
        texts = warnings_of([Place("h:0", old, {}), Place("h:1", old, {})], {"RESTORE"})
        assert len(texts) == 1 and texts[0].startswith("Redis 8.2.3")


class TestDryRuns:
    @pytest.mark.parametrize("program", ["redis-server", *WHEEL_SERVERS])
    def test_saves(self, start_server: Start, program: str) -> None:
        target = start_server("--appendonly", "yes", program=located(program, WHEEL_SERVERS))
        with redis.from_url(target.url) as client:
            client.config_set("save", "60 1")
            client.config_set("auto-aof-rewrite-min-size", "1000")
        found = dry_run(ROWS, HSET, target.url, rate=Rate(11.0))
        saves, rewrites = found.warnings
        assert saves.startswith(
            "save 60 1: the server forks about 4 times during this load (about 5 min)"
        )
        assert "pause_saves=True" in saves and "append-only file" in rewrites
        assert found.problems == []
        paused = dry_run(ROWS, HSET, target.url, rate=Rate(11.0), pause_saves=True)
        assert paused.warnings == []
        assert dry_run(ROWS, HSET, user(target, "-config"), rate=Rate(11.0)).warnings == []
        assert dry_run(ROWS, HSET, user(target, "-info"), rate=Rate(11.0)).warnings == []

    def test_a_killed_load_left_saves_paused(self, start_server: Start) -> None:
        target = start_server("--save", "100000003600 1")
        (paused,) = dry_run(ROWS, HSET, target.url).warnings
        assert str(paused) == (
            "the saves of the server are paused by a load with pause_saves=True; if no such load "
            'is running, one was killed: run CONFIG SET save "3600 1", or load with '
            "pause_saves=True, which restores them"
        )
        assert fastresp.mass_insert(ROWS, HSET, target.url).warnings == [paused]
        assert fastresp.copy(target.url, target.url + "?db=1").warnings[-1] == paused
        report = fastresp.mass_insert(ROWS, HSET, target.url, transport="redis-cli")
        assert report.warnings == [paused]
        unknown = fastresp.mass_insert(ROWS, HSET, user(target, "-config"))
        assert unknown.warnings == []
        assert dry_run(ROWS, HSET, target.url, pause_saves=True).warnings == []
        assert fastresp.mass_insert(ROWS, HSET, target.url, pause_saves=True).warnings == []
        assert fastresp.mass_insert(ROWS, HSET, target.url).warnings == []

    def test_output(self, start_server: Start, tmp_path: Path) -> None:
        target = start_server()
        redis.from_url(target.url).config_set("save", "60 1")
        file = tmp_path / "users.csv"
        file.write_text("id,name\n" + "".join(f"{number},Ann\n" for number in range(999)))
        arguments = ["load", file, "HSET user:{id} {**}", "--server", target.url, "--dry-run"]
        shown = invoke(*arguments, "--rate-limit", "1")
        assert shown.exit_code == 0
        assert "Warnings:\n- save 60 1: the server forks about 16 times" in shown.stderr
        assert "; load with --pause-saves to avoid these forks\n\nNo problems" in shown.stderr
        assert "Warnings" not in invoke(*arguments).stderr

    def test_unknown_number_of_rows(self, start_server: Start) -> None:
        target = start_server()
        redis.from_url(target.url).config_set("save", "1 1")
        rows = ({"id": number} for number in range(5000))
        assert dry_run(rows, Template("SET {id} 1"), target.url).warnings == []

    @pytest.mark.slow
    @pytest.mark.parametrize("rule", ["2 10", "1 100", "5 1"])
    def test_forecasts_come_true(self, start_server: Start, rule: str) -> None:
        target = start_server(program=located("valkey-9.1", WHEEL_SERVERS))
        rows, limit = [{"id": number} for number in range(15_000)], 1000.0
        with redis.from_url(target.url) as client:
            client.config_set("save", rule)
            (text,) = dry_run(rows, Template("SET {id} 1"), target.url, rate=Rate(limit)).warnings
            fastresp.mass_insert(rows, "SET {id} 1", target.url, rate_limit=limit)
            saves = client.info("persistence")["rdb_saves"]
        times = int(text.partition(" about ")[2].partition(" times")[0])
        assert abs(times - saves) <= 1
