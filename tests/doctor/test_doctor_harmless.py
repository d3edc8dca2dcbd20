"""The doctor needs few permissions, changes nothing, and leaves nothing behind."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable

import pytest
import redis
from doctor_cases import COUNT, changes, client_at_work, fill, verdict, watched
from server_programs import WHEEL_SERVERS, located

from fastresp.doctor import PLAN, WATCH_PLAN, doctor, watch
from fastresp.doctor.facts import KEY_PREFIX, WRITES, Facts, no_writing
from fastresp.outcome.errors import TransportError
from fastresp.server.local_server import LocalServer


class TestPermissions:
    """The doctor names refused commands, and runs all others."""

    QUESTIONS = ("config", "latency", "slowlog", "info", "client", "command")

    def user(self, server: LocalServer, *rights: str) -> str:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", *rights)
        return f"{server.url}?username=few&password=secret"

    def test_questions_refused(self, start_server: Callable[..., LocalServer]) -> None:
        refused = [f"-{name}" for name in self.QUESTIONS]
        url = self.user(start_server(), "~*", "+@all", *refused)
        found = doctor(url)
        assert changes(found) == set()
        assert {"CONFIG", "LATENCY", "SLOWLOG", "INFO"} <= found.facts.unread.keys()
        assert found.measured is not None and found.measured.load
        with pytest.raises(TransportError, match=r"can't watch .* without INFO"):
            watch(url, 0.5)

    def test_watching_needs_few_permissions(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        url = self.user(server, "+info")
        with client_at_work("sequential", server.url):
            found = watched(url, lambda found: changes(found) == {"no-pipeline"})
        assert changes(found) == {"no-pipeline"}
        assert {"CONFIG", "CLIENT"} <= found.facts.unread.keys()

    def test_no_keys(self, start_server: Callable[..., LocalServer]) -> None:
        url = self.user(start_server(), "~app:*", "+@all")
        found = doctor(url)
        assert changes(found) == set()
        assert found.measured is not None and found.measured.command == "PING"
        assert verdict(found, "writes-refused").grade == "note"

    @pytest.mark.slow
    def test_some_commands_refused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        for right, missing in (
            ("multi", {"a list read by redis-py"}),
            ("expire", {"a list read by redis-py"}),
            ("lrange", {"a list read by redis-py"}),
            ("ping", {"round trips", "PINGs in flight"}),
        ):
            found = doctor(self.user(server, "~*", "+@all", f"-{right}"))
            assert changes(found) == set()
            measured = found.measured
            assert measured is not None and measured.refused.keys() == missing
            assert all(right in words for words in measured.refused.values())
            assert measured.load and measured.pipeline and measured.reconnecting
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 0

    def test_delete_refused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        found = doctor(self.user(server, "~*", "+@all", "-del"))
        assert found.measured is not None
        assert "expire by themselves" in found.measured.leftover
        with redis.Redis.from_url(server.url) as client:
            keys = client.keys("*")
            assert keys and all(0 < client.ttl(key) <= 60 for key in keys)

    def test_managed_server(self, start_server: Callable[..., LocalServer]) -> None:
        renamed = ("CONFIG", "LATENCY", "SLOWLOG")
        server = start_server(*(x for name in renamed for x in ("--rename-command", name, "")))
        found = doctor(server.url)
        assert changes(found) == set()
        assert {"CONFIG", "LATENCY", "SLOWLOG"} <= found.facts.unread.keys()


class TestHarmless:
    @pytest.mark.few(1)
    @pytest.mark.parametrize("watching", [False, True])
    def test_the_plan_names_every_command(self, watching: bool, port: int) -> None:
        """It names exactly the commands that the server counted."""
        options = (
            "--port", str(port), "--requirepass", "x", "--latency-monitor-threshold", "1",
            "--slowlog-log-slower-than", "0",
        )  # fmt: skip
        with LocalServer(*options, program=located("valkey-9.1", WHEEL_SERVERS)) as server:
            with redis.Redis.from_url(server.url, password="x") as client:
                client.eval(COUNT, 0, 3_000)
                client.keys("*")
                client.config_resetstat()
                before = client.info("persistence")["rdb_changes_since_last_save"]
                url = f"redis://:x@127.0.0.1:{port}/1"
                later = threading.Timer(0.2, client.keys, ["*"])
                later.start()
                found = watch(url, 0.6) if watching else doctor(url)
                later.join()
                info = client.info("all")
            assert found.facts.slow and found.facts.latency
            changed = info["rdb_changes_since_last_save"] - before
            opened = info["total_connections_received"]
            sent = info["total_net_input_bytes"] + info["total_net_output_bytes"]
        counted = {
            name.removeprefix("cmdstat_").replace("|", " ").upper()
            for name in info
            if name.startswith("cmdstat_")
        } - {"CONFIG RESETSTAT", "KEYS"}
        plan = (WATCH_PLAN if watching else PLAN).replace("\n", " ")
        parts = "CLIENT|CONFIG|SLOWLOG|LATENCY|COMMAND"
        named = set(re.findall(rf"(?:{parts}) [A-Z_]+|[A-Z]{{3,}}", plan))
        # The first is only sent to servers before 7.0; this server does not know the second.
        named -= {"COMMAND INFO", "CLIENT MAINT_NOTIFICATIONS"}
        named -= {"BGSAVE"}  # the plan says that it is not triggered
        assert counted == named
        if watching:
            assert (changed, opened) == (0, 3)  # one finds out which process owns the unix socket
        else:
            # A slow machine sends fewer of both.
            assert 0 < changed <= WRITES and 10 <= opened <= 70
            assert sent < 7e6

    @pytest.mark.few(1)
    @pytest.mark.parametrize(
        ("save", "own", "written"),
        [
            ("1 100", 0, False),
            ("20 8000", 0, False),
            ("1 100 3600 1000000", 0, False),
            ("3600 1 300 100 60 10000", 0, True),  # the default; the server has just started
            ("1 100000", 0, True),
            ("", 0, True),
            ("20 100", 200, True),  # this save happens even without the doctor
        ],
    )
    def test_no_save_is_triggered(
        self,
        start_server: Callable[..., LocalServer],
        monkeypatch: pytest.MonkeyPatch,
        save: str,
        own: int,
        written: bool,
    ) -> None:
        monkeypatch.setattr(sys.modules["fastresp.doctor.facts"], "SMALL_BYTES", 0)
        server = start_server("--save", save)
        with redis.Redis.from_url(server.url) as client:
            fill(server.url, own)
            time.sleep(1.1)
            found = doctor(server.url).measured
            info = client.info("all")
        assert found is not None and found.redis_py and found.pipeline
        assert (found.load is not None) == written
        if not written:
            assert f"(save {save[:5].strip()}" in found.reading_only
            assert info["rdb_changes_since_last_save"] == 0
        assert info["latest_fork_usec"] == 0 and info["rdb_last_bgsave_time_sec"] == -1

    def test_save_points_that_would_be_reached(self) -> None:
        """With facts of servers that have run longer than a test can wait."""
        default = "3600 1 300 100 60 10000"
        for save, age, changed, words in (
            (default, 200, 0, ""),
            (default, 3_590, 0, "save 3600 1;"),
            (default, 3_590, 1, "save 300 100;"),
            (default, 290, 0, "save 300 100;"),
            (default, 290, 100, ""),
            (default, 70, 500, ""),
            (default, 70, 1_500, "save 60 10000;"),
            ("", 4_000, 5, ""),
            (None, 4_000, 5, ""),
        ):
            info = {"rdb_changes_since_last_save": str(changed), "rdb_last_save_time": "1000"}
            info["used_memory"] = str(1 << 30)
            config = {} if save is None else {"save": save}
            facts = Facts("x", "tcp", False, info=info, now=1000.0 + age, config=config)
            reason = no_writing(facts)
            assert words in reason and bool(reason) == bool(words), (save, age, changed, reason)
            info["used_memory"] = str(1 << 20)
            assert no_writing(facts) == ""
        assert no_writing(Facts("x", "tcp", False, config={"save": default})) == ""

    def test_every_key_expires(self, start_server: Callable[..., LocalServer]) -> None:
        """No key is ever without an expiry."""
        server = start_server()
        lasting: set[bytes] = set()
        seen: set[bytes] = set()
        done = threading.Event()

        def look() -> None:
            with redis.Redis.from_url(server.url) as client:
                while not done.is_set():
                    for key in client.scan(count=100)[1]:
                        seen.add(key)
                        if client.ttl(key) == -1:
                            lasting.add(key)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            doctor(server.url)
        finally:
            done.set()
            looker.join()
        assert seen and not lasting
        assert all(key.startswith(KEY_PREFIX.encode()) for key in seen)

    def test_settings_and_keys_unchanged(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        with redis.Redis.from_url(server.url) as client:
            client.set("mine", 1)
            before = client.config_get("*")
            doctor(server.url)
            watch(server.url, 0.1)
            after = client.config_get("*")
            assert before == after and client.keys("*") == [b"mine"]
            names = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
            assert not names & {"flushall", "flushdb", "config|set", "debug"}
