"""Watching real servers: a verdict on each careless client, and none on good clients."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import redis
from doctor_cases import CARELESS, SERVERS, WATCH_S, changes, client_at_work, fill, verdict, watched
from server_programs import WHEEL_SERVERS, located

from fastresp.doctor import Diagnosis, watch
from fastresp.doctor.watch import Counters, use_between
from fastresp.outcome.errors import TransportError
from fastresp.server.local_server import LocalServer


def in_pieces(found: Diagnosis) -> bool:
    return "commands-in-pieces" in changes(found)


def waits_40_ms(found: Diagnosis) -> bool:
    """Return whether commands arrive in pieces, the second one 40 ms after the first."""
    return in_pieces(found) and "Nagle's algorithm" in verdict(found, "commands-in-pieces").figure


class TestWatched:
    """``watch()`` with one client in its own process."""

    @pytest.mark.few(1)
    @pytest.mark.parametrize(
        ("program", "manner", "code", "grade"),
        [
            ("redis-server", "sequential", "no-pipeline", "advice"),
            ("valkey-9.1", "sequential", "no-pipeline", "advice"),
            ("redis-server", "errors", "error-replies", "problem"),
            *(
                (program, "reconnect", "connection-per-command", "problem")
                for program in ("redis-server", *WHEEL_SERVERS)
            ),
        ],
    )
    def test_planted(self, manner: str, code: str, grade: str, program: str) -> None:
        with (
            LocalServer(program=located(program, WHEEL_SERVERS)) as server,
            client_at_work(manner, server.url),
        ):
            found = watched(server.url, lambda found: changes(found) - {"old-version"} == {code})
        assert changes(found) - {"old-version"} == {code}
        assert verdict(found, code).grade == grade

    def test_figures(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        with client_at_work("reconnect", server.url):
            found = watch(server.url, WATCH_S)
        use = found.use
        assert use is not None and use.commands_per_connection is not None
        assert 0.9 < use.commands_per_connection < 1.1
        assert use.errors is not None and use.errors <= 4  # from a connection counted in part
        with client_at_work("errors", server.url):
            use = watch(server.url, WATCH_S).use
        assert use is not None and use.error_share is not None
        assert 0.15 < use.error_share < 0.25
        assert use.commands_per_read is not None and use.commands_per_read > 5
        assert use.calls["set"][0] > use.calls["lpush"][0] > 0

    def test_pieces(self, start_server: Callable[..., LocalServer], port: int) -> None:
        start_server("--port", str(port))
        url = f"redis://127.0.0.1:{port}"
        with client_at_work("pieces", url):
            found = watched(url, waits_40_ms if sys.platform == "linux" else in_pieces)
        assert changes(found) - {"unix-socket"} == {"commands-in-pieces"}
        named = verdict(found, "commands-in-pieces")
        assert "reads per command of 3" in named.figure
        assert found.use is not None and found.use.commands_per_read is not None
        assert 0.45 < found.use.commands_per_read < 0.6

    @pytest.mark.slow
    def test_slow_commands(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        fill(server.url, 200_000, 1)
        with client_at_work("slow", server.url):
            found = watched(server.url, lambda found: changes(found) == {"slow-commands"})
        assert changes(found) == {"slow-commands"}
        named = verdict(found, "slow-commands")
        assert named.grade == "problem" and named.gain and named.gain > 1.1
        assert "lister" in named.figure and "% of the watched time" in named.figure

    def test_evictions(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
        fill(server.url, 10_000)
        with client_at_work("pushing_out", server.url):
            found = watched(server.url, lambda found: changes(found) == {"evicted"})
        assert changes(found) == {"evicted"}
        assert verdict(found, "evicted").grade == "advice"

    @pytest.mark.slow
    def test_connections_refused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxclients", "12")
        found: list[Diagnosis] = []
        for seconds in (2.0, 8.0, 20.0):  # time for the client to start
            watcher = threading.Thread(target=lambda s=seconds: found.append(watch(server.url, s)))
            with redis.Redis.from_url(server.url) as client:
                watcher.start()
                # The doctor connects before the server is full.
                while client.info("clients")["connected_clients"] < 2 and watcher.is_alive():
                    time.sleep(0.01)
            with subprocess.Popen([sys.executable, str(CARELESS), "greedy", server.url]) as process:
                watcher.join()
                process.kill()
            if "connections-refused" in changes(found[-1]):
                break
        assert "connections-refused" in changes(found[-1])

    @pytest.mark.few(1)
    @SERVERS
    def test_healthy(self, program: str) -> None:
        with (
            LocalServer(program=located(program, WHEEL_SERVERS)) as server,
            client_at_work("healthy", server.url),
        ):
            found = watched(
                server.url, lambda found: min(found.use.commands, found.use.busiest or 1001) > 1000
            )
        assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())
        use = found.use
        assert use is not None and use.commands > 1000 and use.errors == 0
        assert use.active == 1
        if program in ("redis-8.2", "valkey-8.1", "valkey-9.1"):
            assert use.busiest and use.busiest > 1000

    @pytest.mark.slow
    @SERVERS
    def test_queue(self, program: str) -> None:
        """Commands arrive one at a time, from clients that rarely wait for a reply."""
        with (
            LocalServer(program=located(program, WHEEL_SERVERS)) as server,
            client_at_work("queue", server.url),
        ):
            found = watched(
                server.url,
                lambda found: (
                    found.use.commands >= 200
                    and found.use.blocking >= 80
                    and "no-pipeline" not in changes(found)
                ),
                2 * WATCH_S,
            )
        assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())
        use = found.use
        assert use is not None and use.commands >= 200 and use.blocking >= 80
        assert use.commands_per_read is not None and use.commands_per_read < 1.2
        assert use.active == 2 and use.senders == 1
        assert use.busiest is None or use.busiest_name == "producer"

    @pytest.mark.few(1)
    @SERVERS
    def test_commands_that_set_up_connections(self, program: str, port: int) -> None:
        """redis-py's first commands over TCP, and errors of unknown ones, are not counted."""
        where = f"redis://127.0.0.1:{port}"
        with (
            LocalServer("--port", str(port), program=located(program, WHEEL_SERVERS)) as server,
            client_at_work("sessions", where),
        ):
            found = watch(server.url, WATCH_S)
        assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())
        use = found.use
        assert use is not None and use.connections and use.errors == 0
        assert use.commands_per_read is not None and use.commands_per_read > 10

    @pytest.mark.few(2)
    @SERVERS
    def test_our_own_commands_are_not_counted(self, program: str) -> None:
        with LocalServer(program=located(program, WHEEL_SERVERS)) as server:
            with redis.Redis.from_url(server.url) as client:
                keys = client.dbsize()
                found = watch(server.url, 0.5)
                assert client.dbsize() == keys
            use = found.use
            assert use is not None
            assert (use.commands, use.reads, use.connections, use.bytes) == (0, 0, 0, 0)
            assert use.errors == 0
            assert use.active in (0, 1)  # the client above, if its DBSIZE was in this second
            assert use.calls == {}
        assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())

    def test_other_client_with_our_commands(self, start_server: Callable[..., LocalServer]) -> None:
        """A client that sends the doctor's own commands is counted."""
        server = start_server()
        done = threading.Event()

        def ask() -> None:
            with redis.Redis.from_url(server.url) as client:
                while not done.wait(0.01):
                    client.client_list()

        other = threading.Thread(target=ask)
        other.start()
        try:
            use = watch(server.url, 0.5).use
        finally:
            done.set()
            other.join()
        assert use is not None and use.active == 1

    def test_idle_across_a_full_second(self) -> None:
        """A server reports 0.1 s as 1 across a full second of its clock."""

        def look(seconds: float, idle: str) -> Counters:
            fields = {"id": "3", "flags": "N", "idle": idle, "age": "9", "cmd": "set"}
            return Counters(seconds, {"run_id": "r"}, {"3": fields})

        for window, idle, active in ((0.8, "1", 1), (0.8, "2", 0), (10.0, "11", 0)):
            use = use_between(look(5.0, "0"), look(5.0 + window, idle))
            assert (use.active, use.senders) == (active, active), (window, idle)

    def test_server_that_closes_idle_connections(
        self, start_server: Callable[..., LocalServer]
    ) -> None:
        use = watch(start_server("--timeout", "1").url, 2.3).use
        assert use is not None
        assert (use.commands, use.reads, use.connections, use.bytes) == (0, 0, 0, 0)

    @pytest.mark.slow
    def test_server_restarted(self) -> None:
        with LocalServer() as server:
            restart = threading.Timer(0.5, lambda: (server.stop(), server.start()))
            restart.start()
            with pytest.raises(TransportError):
                watch(server.url, 1.5)
            restart.join()

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
    def test_seconds(self, seconds: float) -> None:
        with pytest.raises(ValueError, match="above 0"):
            watch("redis://localhost:1", seconds)
