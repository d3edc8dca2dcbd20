"""The doctor on real servers: a planted fault each, real careless clients, and healthy ones."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from doctor_cases import (
    CARELESS,
    SERVERS,
    WATCH_S,
    changes,
    client_at_work,
    fill,
    verdict,
    watched,
)
from places import ROOT
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.doctor import (
    PLAN,
    WATCH_PLAN,
    Diagnosis,
    diagnose,
    doctor,
    watch,
)
from fastresp.doctor.facts import Facts, usable_socket
from fastresp.doctor.findings import Findings
from fastresp.doctor.logs import SCRATCH, Slow, latency_spikes
from fastresp.doctor.may_write import WRITES, no_writing
from fastresp.doctor.measure import Measured
from fastresp.doctor.questions import Questions
from fastresp.doctor.watch import Look, Use, use_between
from fastresp.outcome.errors import TransportError
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server

# Runs for some milliseconds, as many as it counts thousands.
COUNT = "local i = 0 while i < tonumber(ARGV[1]) * 1000 do i = i + 1 end"


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


class TestMeasured:
    """``doctor()``, the planted fault each, and nothing else where that can be told."""

    @SERVERS
    def test_healthy(self, program: str) -> None:
        with LocalServer(program=located(program, WHEEL_SERVERS)) as server:
            found = doctor(server.url)
            assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())
            assert found.worst == ("advice" if program == "redis-6.2" else "note")
            measured = found.measured
            assert measured is not None and measured.command == "SET"
            assert measured.leftover == measured.reading_only == ""
            assert measured.reconnecting and measured.redis_py and measured.pipeline
            assert 0 < measured.reconnecting < measured.redis_py < measured.pipeline
            assert measured.ready and measured.read_items
            assert measured.load and measured.load > measured.redis_py
            assert measured.depths[1000] > measured.depths[1]
            assert measured.refused == {}
            assert found.facts.unread.keys() <= {"COMMAND"}
            with redis.Redis.from_url(server.url) as client:
                assert client.dbsize() == 0

    def test_old_version(self) -> None:
        with LocalServer(program=located("redis-6.2", WHEEL_SERVERS)) as server:
            assert verdict(doctor(server.url), "old-version").figure == "Redis 6.2.5"

    def test_aof_always(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--appendonly", "yes", "--appendfsync", "always")
        found = doctor(server.url)
        assert changes(found) == {"aof-always"}
        assert found.worst == "problem"
        assert "appendfsync always" in verdict(found, "aof-always").figure

    def test_aof_everysec_is_no_fault(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--appendonly", "yes", "--appendfsync", "everysec")
        assert changes(doctor(server.url)) == set()

    def test_memory_nearly_full(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "8mb")
        fill(server.url, 8_000)
        with redis.Redis.from_url(server.url) as client:
            keys = client.dbsize()
            found = doctor(server.url)
            assert client.dbsize() == keys
            assert not [key for key in client.keys("*") if key.startswith(SCRATCH.encode())]
            assert "cmdstat_del" not in client.info("commandstats")
        assert "maxmemory-near" in changes(found)
        assert "policy noeviction" in verdict(found, "maxmemory-near").figure
        assert found.measured is not None and found.measured.command == "PING"
        assert "nearly full" in found.measured.reading_only
        assert found.measured.redis_py and found.measured.load is None
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "volatile-lru")
            named = verdict(watch(server.url, 0.1), "maxmemory-near")
            assert named.grade == "problem" and "0% of the keys have an expiry" in named.figure

    def test_cache(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
        fill(server.url, 12_000)
        with redis.Redis.from_url(server.url) as client:
            evicted = client.info("stats")["evicted_keys"]
            found = doctor(server.url)
            # A connection takes some memory, whoever it is from.
            assert 0 < evicted <= client.info("stats")["evicted_keys"] < evicted + 150
        assert changes(found) == set()
        assert "allkeys-lru" in verdict(found, "eviction-near").figure
        assert "keys evicted since" in verdict(found, "eviction-near").figure

    def test_replicas(self, start_server: Callable[..., LocalServer], port: int) -> None:
        master = start_server("--port", str(port), "--repl-diskless-sync-delay", "0")
        replica = start_server("--replicaof", "127.0.0.1", str(port))
        with redis.Redis.from_url(master.url) as client:
            deadline = time.monotonic() + 15
            while client.info("replication").get("slave0", {}).get("state") != "online":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            client.config_set("client-output-buffer-limit", "replica 268435456 100000 60")
        found = doctor(master.url)
        assert changes(found) == set()
        assert verdict(found, "replicas").figure.startswith("1 replica, backlog 1.0 MB: ")
        with redis.Redis.from_url(master.url) as client:
            client.config_set("repl-disable-tcp-nodelay", "yes")
            replica.process.send_signal(signal.SIGSTOP)
            try:
                for i in range(20):
                    client.set(i, "x" * 10_000)
                found = watch(master.url, 0.1)
            finally:
                replica.process.send_signal(signal.SIGCONT)
        assert changes(found) == {"replicas"} and found.worst == "problem"
        assert re.search(r" is \d s and [\d.]+ [kM]B behind", verdict(found, "replicas").figure)
        assert verdict(found, "replica-nagle").grade == "note"
        assert changes(watch(replica.url, 0.1)) == set()
        master.stop()
        with redis.Redis.from_url(replica.url) as client:
            while client.info("replication")["master_link_status"] == "up":
                time.sleep(0.02)
        found = watch(replica.url, 0.1)
        assert changes(found) == {"is-replica"} and "the link to it is down" in str(found.verdicts)
        found = doctor(replica.url)
        assert changes(found) == {"is-replica"}
        assert f"127.0.0.1:{port}" in verdict(found, "is-replica").advice
        assert found.measured is not None and found.measured.reading_only == "it is a replica"

    def test_slow_commands(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--slowlog-log-slower-than", "5000")
        fill(server.url, 200_000, 1)
        with redis.Redis.from_url(server.url, client_name="lister") as client:
            for _ in range(5):
                client.keys("*")
        found = doctor(server.url)
        assert changes(found) == {"slow-commands"}
        named = verdict(found, "slow-commands")
        assert named.figure.startswith("KEYS: ") and "O(N)" in named.figure
        assert (
            ", by lister; O(N)" in named.figure and "% of the time since the start" in named.figure
        )
        # Nobody knows whether anybody waited for them.
        assert named.grade == "advice" and named.gain is None
        assert "--watch" in named.expected
        assert "SCAN" in named.advice and "UNLINK" not in named.advice

    def test_latency_spikes_of_yesterday(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--latency-monitor-threshold", "1")
        with redis.Redis.from_url(server.url) as client:
            client.eval(COUNT, 0, 3_000)
        where = Server(server.url)
        connection = where.connect(5.0)
        try:
            questions = Questions(where, connection)
            assert latency_spikes(questions, time.time())["command"] >= 1
            assert latency_spikes(questions, time.time() + 25 * 3600) == {}
        finally:
            connection.disconnect()

    def test_unix_socket(self, start_server: Callable[..., LocalServer], port: int) -> None:
        server = start_server("--port", str(port))
        found = doctor(f"redis://127.0.0.1:{port}")
        named, measured = verdict(found, "unix-socket"), found.measured
        assert str(server.socket) in named.figure and "with 100 in flight" in named.expected
        assert measured is not None and measured.unix and measured.unix_deep
        best = max(measured.unix / measured.depths[1], measured.unix_deep / measured.depths[100])
        assert named.grade == ("advice" if best >= 1.1 else "note")
        assert changes(found) == ({"unix-socket"} if best >= 1.1 else set())

    def test_unix_socket_of_another(
        self, start_server: Callable[..., LocalServer], port: int, tmp_path: Path
    ) -> None:
        """As of a container, whose paths mean something else here."""
        server, other = start_server("--port", str(port)), start_server()
        server.socket.rename(tmp_path / "moved")
        os.symlink(other.socket, server.socket)
        assert changes(watch(f"redis://127.0.0.1:{port}", 0.1)) == set()

    def test_local_ports(self, start_server: Callable[..., LocalServer], port: int) -> None:
        """A client that has opened a connection for each command, a moment ago."""
        start_server("--port", str(port), "--tcp-backlog", "128")
        for _ in range(1_200):
            with socket.create_connection(("127.0.0.1", port)) as link:
                link.sendall(b"PING\r\n")
                assert link.recv(7) == b"+PONG\r\n"
        found = doctor(f"redis://127.0.0.1:{port}")
        assert changes(found) - {"unix-socket"} == {"connection-per-command"}
        named = verdict(found, "connection-per-command")
        assert named.grade == "problem" and "Cannot assign requested address" in named.figure
        assert named.gain and named.gain > 1.5

    def test_nagle(self, start_server: Callable[..., LocalServer], port: int) -> None:
        class Careless(redis.Connection):
            def _connect(self) -> Any:
                link = super()._connect()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
                return link

        start_server("--port", str(port))
        pool = redis.ConnectionPool(connection_class=Careless, port=port)
        found = doctor(redis.Redis(connection_pool=pool))
        assert changes(found) - {"unix-socket"} == {"nagle"}
        assert "written in two parts" in verdict(found, "nagle").figure

    def test_io_threads(self, start_server: Callable[..., LocalServer]) -> None:
        cores = len(os.sched_getaffinity(0))
        server = start_server("--io-threads", str(cores + 1))
        assert changes(doctor(server.url)) == {"io-threads-many"}

    def test_writes_refused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--min-replicas-to-write", "1")
        found = doctor(server.url)
        assert changes(found) == {"writes-refused"}
        assert "NOREPLICAS" in verdict(found, "writes-refused").figure
        assert found.measured is not None and found.measured.command == "PING"

    def test_errors_since_the_start(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        with redis.Redis.from_url(server.url) as client:
            client.set("text", "x")
            pipeline = client.pipeline(transaction=False)
            for _ in range(200):
                pipeline.lpush("text", "x")
            pipeline.execute(raise_on_error=False)
        found = doctor(server.url)
        assert changes(found) == {"error-replies"}
        assert "WRONGTYPE 200" in verdict(found, "error-replies").figure

    def test_cluster_node(self, start_server: Callable[..., LocalServer], port: int) -> None:
        """A node that has half of the slots: MOVED is answered by looking for another key."""
        port = min(port, 55_535)  # the bus has a port that is higher by 10,000
        server = start_server("--cluster-enabled", "yes", "--port", str(port))
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(8192))
            client.config_set("cluster-require-full-coverage", "no")
            deadline = time.monotonic() + 10
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            found = doctor(server.url)
            assert found.measured is not None and found.measured.command == "SET"
            assert found.measured.load and client.dbsize() == 0

    def test_tls(self, tls_server: LocalServer, tls: Callable[..., str]) -> None:
        found = doctor(tls())
        assert found.facts.way == "tls" and found.facts.nodelay
        assert changes(found) <= {"unix-socket"} and verdict(found, "unix-socket")
        assert found.measured is not None and found.measured.load
        assert changes(watch(tls(), 0.1)) == {"unix-socket"}

    def test_slow_tls(self, tls_server: LocalServer, tls: Callable[..., str]) -> None:
        """An answer may take longer than the handshake."""
        where = Server(tls())
        connection, _ = where.open(None)
        try:
            with redis.Redis.from_url(tls_server.url) as client:
                client.client_pause(1_200)
            assert Questions(where, connection).info()
        finally:
            connection.disconnect()

    def test_no_local_port_left(self, port: int) -> None:
        words = f"Error 99 connecting to localhost:{port}. Cannot assign requested address."
        error = Server(f"redis://localhost:{port}").failure(redis.ConnectionError(words))
        assert "a connection for each command" in str(error)


class TestWatched:
    """``watch()`` with clients of all manners in processes of their own."""

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
        assert use.errors is not None and use.errors <= 4  # of a connection half counted
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
            found = watched(url, lambda found: "commands-in-pieces" in changes(found))
        assert changes(found) - {"unix-socket"} == {"commands-in-pieces"}
        named = verdict(found, "commands-in-pieces")
        assert "reads a command of 3" in named.figure
        assert found.use is not None and found.use.commands_per_read is not None
        assert 0.45 < found.use.commands_per_read < 0.6
        if sys.platform == "linux":  # 40 ms for each
            assert "what Nagle's algorithm makes of it" in named.figure

    def test_slow_commands(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        fill(server.url, 200_000, 1)
        with client_at_work("slow", server.url):
            found = watched(server.url, lambda found: changes(found) == {"slow-commands"})
        assert changes(found) == {"slow-commands"}
        named = verdict(found, "slow-commands")
        assert named.grade == "problem" and named.gain and named.gain > 1.1
        assert "lister" in named.figure and "% of the time that was watched" in named.figure

    def test_evictions(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
        fill(server.url, 10_000)
        with client_at_work("pushing_out", server.url):
            found = watched(server.url, lambda found: changes(found) == {"evicted"})
        assert changes(found) == {"evicted"}
        assert verdict(found, "evicted").grade == "advice"

    def test_connections_refused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxclients", "12")
        found: list[Diagnosis] = []
        for seconds in (2.0, 8.0, 20.0):  # in which the client has to begin
            watcher = threading.Thread(target=lambda s=seconds: found.append(watch(server.url, s)))
            with redis.Redis.from_url(server.url) as client:
                watcher.start()
                # The doctor is in before the server is full.
                while client.info("clients")["connected_clients"] < 2 and watcher.is_alive():
                    time.sleep(0.01)
            with subprocess.Popen([sys.executable, str(CARELESS), "greedy", server.url]) as process:
                watcher.join()
                process.kill()
            if "connections-refused" in changes(found[-1]):
                break
        assert "connections-refused" in changes(found[-1])

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

    @SERVERS
    def test_queue(self, program: str) -> None:
        """Commands that come one at a time, from clients that wait hardly ever for a reply."""
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

    @SERVERS
    def test_what_clients_send_as_they_connect(self, program: str, port: int) -> None:
        """redis-py's first commands over TCP, some of which servers do not know."""
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
            assert use.active in (0, 1)  # who asked for the size, if that was in this second
            assert use.calls == {}
        assert changes(found) == ({"old-version"} if program == "redis-6.2" else set())

    def test_who_asks_as_we_do_is_not_ours(self, start_server: Callable[..., LocalServer]) -> None:
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
        """A server tells 0.1 s as 1, if a full second of its clock lies between."""

        def look(seconds: float, idle: str) -> Look:
            fields = {"id": "3", "flags": "N", "idle": idle, "age": "9", "cmd": "set"}
            return Look(seconds, {"run_id": "r"}, {"3": fields})

        for window, idle, active in ((0.8, "1", 1), (0.8, "2", 0), (10.0, "11", 0)):
            use = use_between(look(5.0, "0"), look(5.0 + window, idle))
            assert (use.active, use.senders) == (active, active), (window, idle)

    def test_server_that_closes_idle_connections(
        self, start_server: Callable[..., LocalServer]
    ) -> None:
        use = watch(start_server("--timeout", "1").url, 2.3).use
        assert use is not None
        assert (use.commands, use.reads, use.connections, use.bytes) == (0, 0, 0, 0)

    def test_server_started_anew(self) -> None:
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


class TestRights:
    """What a server does not tell is said, and all else is done."""

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
        with pytest.raises(TransportError, match="does not tell INFO"):
            watch(url, 0.5)

    def test_watching_needs_little(self, start_server: Callable[..., LocalServer]) -> None:
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

    def test_no_delete(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server()
        found = doctor(self.user(server, "~*", "+@all", "-del"))
        assert found.measured is not None
        assert "by themselves" in found.measured.leftover
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
    @pytest.mark.parametrize("watching", [False, True])
    def test_the_plan_names_every_command(self, watching: bool, port: int) -> None:
        """As the server counts them; and no other."""
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
        # Asked of servers before 7.0; and not known to this one, so that it does not count it.
        named -= {"COMMAND INFO", "CLIENT MAINT_NOTIFICATIONS"}
        named -= {"BGSAVE"}  # what it does not start
        assert counted == named
        if watching:
            assert (changed, opened) == (0, 3)  # one to see who listens at the unix socket
        else:
            # Of both it does less where it takes long.
            assert 0 < changed <= WRITES and 10 <= opened <= 70
            assert sent < 7e6

    @pytest.mark.parametrize(
        ("save", "own", "written"),
        [
            ("1 100", 0, False),
            ("20 8000", 0, False),
            ("1 100 3600 1000000", 0, False),
            ("3600 1 300 100 60 10000", 0, True),  # the default, of a server that has just started
            ("1 100000", 0, True),
            ("", 0, True),
            ("20 100", 200, True),  # that save comes by itself
        ],
    )
    def test_no_save_is_started(
        self,
        start_server: Callable[..., LocalServer],
        monkeypatch: pytest.MonkeyPatch,
        save: str,
        own: int,
        written: bool,
    ) -> None:
        monkeypatch.setattr(sys.modules["fastresp.doctor.may_write"], "SMALL_BYTES", 0)
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
        """As an old server tells them, that can't be waited for here."""
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
        """Whoever looks at any moment finds no key without an expiry."""
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
        assert all(key.startswith(SCRATCH.encode()) for key in seen)

    def test_nothing_is_changed(self, start_server: Callable[..., LocalServer]) -> None:
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


class TestRules:
    """What this machine can't plant: facts as a server would tell them."""

    def judge(self, use: Use | None = None, **facts: Any) -> set[str]:
        given: dict[str, Any] = {"place": "x", "way": "tcp", "local": True, **facts}
        return changes(diagnose(Findings(Facts(**given), None, use)))

    def test_swap(self) -> None:
        info = {"used_memory": str(1 << 30), "mem_fragmentation_ratio": "0.50"}
        resident = {"used_memory_rss": str(10 << 30)}
        assert self.judge(swapped=1 << 30, info=resident) == {"swap"}
        assert self.judge(swapped=1 << 20, info={"used_memory_rss": str(8 << 20)}) == {"swap"}
        # Cold pages of a large server.
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
            ("", "note", "1 replica"),  # it is hidden
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

    def test_a_cache_that_mostly_answers(self) -> None:
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

    def test_a_single_slow_command_may_be_the_machine(self) -> None:
        once = Slow("MSET", 1, 40.0, 40.0, "O(N)", "")
        assert self.judge(slow=[once]) == set()
        assert self.judge(slow=[replace(once, times=3, total_ms=60.0)]) == {"slow-commands"}

    @pytest.mark.parametrize(
        ("watched", "times", "usec", "grade"),
        [
            (False, 1, 300_000, "note"),  # once, which nobody waits for any more
            (False, 6, 3_000_000, "advice"),  # all that an otherwise idle server did
            (False, 5, 3_000, "advice"),
            (True, 1, 300_000, "advice"),  # of 10 seconds
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

    def test_what_to_do_about_slow_commands(self) -> None:
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
            "Use shorter scripts and functions: nothing else runs while one does; use SINTER of "
            "fewer elements at once; look at what GRAPH.QUERY does."
        )
        for name in ("EVAL", "EVALSHA", "EVALSHA_RO", "FCALL_RO"):
            row = replace(slow[0], name=name)
            (found,) = diagnose(Findings(Facts("x", "tcp", False, slow=[row]))).verdicts
            assert found.advice.startswith("Use shorter scripts") and name not in found.advice

    def test_many_slow_clients_need_no_pipelines(self) -> None:
        use = Use(True, 10.0, commands=5_000, reads=5_000, senders=500, round_trip_s=0.002)
        assert self.judge(use) == set()
        assert self.judge(replace(use, senders=2)) == {"no-pipeline"}

    def test_only_who_waits_needs_pipelines(self) -> None:
        """432 commands a second, over one connection."""
        use = Use(True, 10.0, commands=4_320, reads=4_320, busiest=4_320, round_trip_s=42e-6)
        assert self.judge(use) == set()
        assert self.judge(replace(use, round_trip_s=0.6e-3)) == set()
        far = replace(use, round_trip_s=1e-3)
        (found,) = diagnose(Findings(Facts("x", "tcp", False), None, far)).verdicts
        assert found.grade == "advice"
        assert "1.000 ms: one connection waits 43% of the time" in found.figure
        # Then the clients' own way is shorter than ours.
        farther = replace(use, round_trip_s=20e-3)
        (found,) = diagnose(Findings(Facts("x", "tcp", False), None, farther)).verdicts
        assert found.grade == "note" and "less over there" in found.figure
        (found,) = diagnose(Findings(Facts("x", "tcp", True), None, farther)).verdicts
        assert found.grade == "advice" and "waits 100% of the time" in found.figure

    def test_blocking_commands_are_no_waiting_for_replies(self) -> None:
        use = Use(True, 10.0, commands=20_000, reads=20_000, senders=1, round_trip_s=0.2e-3)
        assert self.judge(use) == {"no-pipeline"}
        assert self.judge(replace(use, calls={"blpop": (10_000, 10_000)})) == set()

    @pytest.mark.parametrize(
        ("unix", "deep", "grade", "told"),
        [
            (75_000.0, 600_000.0, "advice", ["1.49", "1.20"]),
            (50_224.0, 500_000.0, "note", ["1.00", "1.00"]),
            (45_000.0, 450_000.0, "note", ["0.90", "0.90"]),
            (45_000.0, 600_000.0, "advice", ["0.90", "1.20"]),
            (45_000.0, None, "note", ["0.90"]),
        ],
    )
    def test_unix_socket(
        self, unix: float, deep: float | None, grade: str, told: list[str]
    ) -> None:
        facts = Facts("x", "tcp", True, unix_socket="/s")
        measured = Measured(depths={1: 50_224.0, 100: 500_000.0}, unix=unix, unix_deep=deep)
        (found,) = diagnose(Findings(facts, measured)).verdicts
        assert (found.code, found.grade) == ("unix-socket", grade)
        assert re.findall(r"([\d.]+) times", found.expected) == told
        assert found.gain and f"{found.gain:.2f}" == max(told)
        assert ("unix:///s" in found.advice) == (grade == "advice")

    def test_order(self) -> None:
        facts = Facts("x", "tcp", True, hiredis=False, unix_socket="/s", swapped=1 << 30)
        use = Use(True, 10.0, commands=90_000, reads=90_000, senders=1, round_trip_s=1e-4)
        codes = [each.code for each in diagnose(Findings(facts, None, use)).verdicts]
        assert codes == ["swap", "no-pipeline", "unix-socket", "no-hiredis"]

    def test_the_page_has_them_all(self) -> None:
        package = Path(fastresp.__file__).parent / "doctor"
        rules = [(package / f"{name}_rules.py").read_text() for name in ("client", "server")]
        codes = set(re.findall(r'Verdict\(\s*"([a-z-]+)"', "".join(rules)))
        page = (ROOT / "docs" / "doctor.md").read_text()
        assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == codes
        assert len(codes) >= 20

    def test_what_is_not_told_is_no_fault(self) -> None:
        assert self.judge(Use(True, 10.0)) == set()
        assert self.judge(Use(True, 10.0, commands=100_000, errors=None, reads=None)) == set()


def test_no_password_for_somebody_else(
    tmp_path: Path, start_server: Callable[..., LocalServer]
) -> None:
    """Behind a tunnel the path that a server names may be another's here."""
    server = start_server()
    info = {"process_id": str(server.process.pid), "run_id": "x"}
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(path)
        impostor.listen()
        impostor.settimeout(5)
        assert usable_socket(Server("redis://:secret@127.0.0.1:1"), info, path) == ""
        link, _ = impostor.accept()
        with link:
            assert link.recv(100) == b""
        impostor.setblocking(False)
        with pytest.raises(BlockingIOError):
            impostor.accept()
