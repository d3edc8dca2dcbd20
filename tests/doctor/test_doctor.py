"""The doctor on real servers, each with one planted fault or healthy."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from doctor_cases import COUNT, SERVERS, changes, fill, verdict
from local_cluster import free_port
from server_programs import WHEEL_SERVERS, located
from waiting import until

from fastresp.doctor import doctor, watch
from fastresp.doctor.connections import StateReader, usable_socket
from fastresp.doctor.facts import KEY_PREFIX, latency_spikes
from fastresp.server.local_server import LocalServer
from fastresp.server.settings import Server


class TestMeasured:
    """``doctor()`` finds the planted fault and no other."""

    @pytest.mark.few(2)
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

    def test_saves_paused(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--save", "100000003600 1")
        found = doctor(server.url)
        assert changes(found) == {"saves-paused"}
        assert 'run CONFIG SET save "3600 1".' in verdict(found, "saves-paused").advice

    def test_aof_everysec_is_fine(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--appendonly", "yes", "--appendfsync", "everysec")
        assert changes(doctor(server.url)) == set()

    def test_memory_nearly_full(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--maxmemory", "8mb")
        fill(server.url, 8_000)
        with redis.Redis.from_url(server.url) as client:
            keys = client.dbsize()
            found = doctor(server.url)
            assert client.dbsize() == keys
            assert not [key for key in client.keys("*") if key.startswith(KEY_PREFIX.encode())]
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
            # Any connection needs memory, and may evict a few keys.
            assert 0 < evicted <= client.info("stats")["evicted_keys"] < evicted + 150
        assert changes(found) == set()
        assert "allkeys-lru" in verdict(found, "eviction-near").figure
        assert "keys evicted since" in verdict(found, "eviction-near").figure

    @pytest.mark.slow
    def test_replicas(self, start_server: Callable[..., LocalServer], port: int) -> None:
        master = start_server("--port", str(port), "--repl-diskless-sync-delay", "0")
        replica = start_server("--replicaof", "127.0.0.1", str(port))
        with redis.Redis.from_url(master.url) as client:
            until(lambda: client.info("replication").get("slave0", {}).get("state") == "online", 15)
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
            until(lambda: client.info("replication")["master_link_status"] != "up")
        found = watch(replica.url, 0.1)
        assert changes(found) == {"is-replica"} and "the link to it is down" in str(found.verdicts)
        found = doctor(replica.url)
        assert changes(found) == {"is-replica"}
        assert f"127.0.0.1:{port}" in verdict(found, "is-replica").figure
        assert "REPLICAOF NO ONE" in verdict(found, "is-replica").advice
        assert found.measured is not None
        assert found.measured.reading_only == "the server is a replica"

    @pytest.mark.slow
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
            ", sent by lister; O(N)" in named.figure
            and "% of the time since the server started" in named.figure
        )
        # Whether other clients waited is unknown.
        assert named.grade == "advice" and named.gain is None
        assert "--watch" in named.expected
        assert "SCAN" in named.advice and "UNLINK" not in named.advice

    def test_old_latency_spikes(self, start_server: Callable[..., LocalServer]) -> None:
        server = start_server("--latency-monitor-threshold", "1")
        with redis.Redis.from_url(server.url) as client:
            client.eval(COUNT, 0, 3_000)
        where = Server(server.url)
        connection = where.connect(5.0)
        try:
            questions = StateReader(where, connection)
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

    def test_unix_socket_of_another_server(
        self, start_server: Callable[..., LocalServer], port: int, tmp_path: Path
    ) -> None:
        """A server in a container reports a path that differs on this machine."""
        server, other = start_server("--port", str(port)), start_server()
        server.socket.rename(tmp_path / "moved")
        os.symlink(other.socket, server.socket)
        assert changes(watch(f"redis://127.0.0.1:{port}", 0.1)) == set()

    @pytest.mark.slow
    def test_local_ports(self, start_server: Callable[..., LocalServer], port: int) -> None:
        """A client has just opened a connection for each command."""
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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_cluster_node(self, start_server: Callable[..., LocalServer]) -> None:
        """On a node with half of the slots, and without permission to list them."""
        port = free_port()
        server = start_server("--cluster-enabled", "yes", "--port", str(port))
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(8192))
            client.config_set("cluster-require-full-coverage", "no")
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 10)
            [node] = doctor(f"redis://127.0.0.1:{port}").nodes.values()
            client.execute_command("ACL", "SETUSER", "default", "-cluster|slots")
            for found in (node, doctor(server.url)):  # it tries other keys after MOVED
                assert found.measured is not None and found.measured.command == "SET"
                assert found.measured.load and client.dbsize() == 0

    def test_tls(self, tls_server: LocalServer, tls: Callable[..., str]) -> None:
        found = doctor(tls())
        assert found.facts.way == "tls" and found.facts.nodelay
        assert changes(found) <= {"unix-socket"} and verdict(found, "unix-socket")
        assert found.measured is not None and found.measured.load
        assert changes(watch(tls(), 0.1)) == {"unix-socket"}

    @pytest.mark.slow
    def test_slow_tls(self, tls_server: LocalServer, tls: Callable[..., str]) -> None:
        """A reply may take longer than the handshake."""
        where = Server(tls())
        connection, _ = where.open(None)
        try:
            with redis.Redis.from_url(tls_server.url) as client:
                client.client_pause(1_200)
            assert StateReader(where, connection).info()
        finally:
            connection.disconnect()

    def test_no_local_port_left(self, port: int) -> None:
        words = f"Error 99 connecting to localhost:{port}. Cannot assign requested address."
        error = Server(f"redis://localhost:{port}").failure(redis.ConnectionError(words))
        assert "a connection for each command" in str(error)


def test_no_password_for_another_process(
    tmp_path: Path, start_server: Callable[..., LocalServer]
) -> None:
    """Behind a tunnel, another process here may own the path that the server reports."""
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
