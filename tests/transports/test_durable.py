"""Loads whose commands count once they are on the server's disk, or on its replicas."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import LocalCluster, free_port
from resumed_loads import MARKER, NAME
from server_programs import WHEEL_SERVERS, located
from waiting import until, until_loaded

import fastresp
from fastresp.resp.scan import ReplyScanner
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

# Each test has cases for two ways to load, and for three servers.
pytestmark = pytest.mark.few(2)
ROWS = 60_000
PUSH = "RPUSH list {0}"
AOF = ("--appendonly", "yes", "--appendfsync")
Start = Callable[..., LocalServer]


@pytest.fixture(params=["redis-8.2", "valkey-8.1", "valkey-9.1"])
def program(request: pytest.FixtureRequest) -> str:
    """Return a server that has WAITAOF."""
    return located(request.param, WHEEL_SERVERS)


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts one such server, for tests that need only one."""
    servers = []

    def start(*options: str) -> LocalServer:
        servers.append(LocalServer(*options, program=located("valkey-8.1", WHEEL_SERVERS)))
        servers[-1].__enter__()
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


def rows(happening: Callable[[], object], at: int = ROWS // 2) -> Iterator[int]:
    for number in range(ROWS):
        if number == at:
            happening()
        yield number


def setting(server: LocalServer, name: str, value: str) -> Callable[[], object]:
    def change() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.config_set(name, value)

    return change


def failed(insert: Insert, *args: Any, **options: Any) -> tuple[str, fastresp.Report]:
    """Return the message and the report of a load that fails."""
    with pytest.raises(fastresp.TransportError) as caught:
        insert(*args, **grouped(options))
    assert caught.value.report is not None
    return str(caught.value), caught.value.report


def restarted(server: LocalServer) -> redis.Redis:
    """Restart a killed server; return a client once it has loaded its data."""
    server.process.kill()
    server.process.wait()
    server.start()
    client = redis.Redis.from_url(server.url)
    until_loaded(client)
    return client


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_on_disk(insert: Insert, program: str, fsync: str) -> None:
    with LocalServer(*AOF, fsync, program=program) as server:
        report = insert(range(ROWS), PUSH, server=server.url, durable="fsync")
        assert (report.replies, report.durable, report.in_doubt) == (ROWS, ROWS, 0)
        assert f"0 errors, {ROWS:,} commands durable" in str(report)
        with restarted(server) as client:
            assert client.llen("list") == ROWS


def test_durable_is_none_by_default(insert: Insert, server: LocalServer) -> None:
    report = insert(range(10), PUSH, server=server.url)
    assert report.durable is None
    assert "durable" not in str(report)


def test_one_wait_at_a_time(start: Start) -> None:
    """A server that syncs once a second does not delay each chunk by a second."""
    server = start(*AOF, "everysec")
    values = ((number, "x" * 200) for number in range(60_000))
    report = insert_sync(values, "SET {0} {1}", server=server.url, durable="fsync")
    with redis.Redis.from_url(server.url) as client:
        asked = client.info("commandstats")["cmdstat_waitaof"]["calls"]
    assert report.durable == 60_000
    assert asked < report.bytes_sent / (1 << 20)


@pytest.mark.few(1)
def test_slow_source(insert: Insert, start: Start) -> None:
    """All rows are confirmed at the end; the last rows follow a pending WAITAOF."""
    server = start(*AOF, "everysec")

    def slow() -> Iterator[int]:
        for number in range(3_000):
            time.sleep(0.0005)
            yield number

    assert insert(slow(), PUSH, server=server.url, durable="fsync").durable == 3_000


class TestRefused:
    """Refused before anything is sent."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ((), "it has no append-only file .switch it on: CONFIG SET appendonly yes"),
            ((*AOF, "no"), "it never syncs its append-only file .CONFIG SET appendfsync everysec"),
        ],
    )
    def test_server_that_cannot(
        self, insert_singly: Insert, program: str, options: tuple[str, ...], words: str
    ) -> None:
        with LocalServer(*options, program=program) as server:
            with pytest.raises(fastresp.TransportError, match=words) as caught:
                insert_singly(range(10), PUSH, server=server.url, durable="fsync")
            where = f"durable='fsync' is not possible with the server at {server.socket}"
            assert where in str(caught.value)
            with redis.Redis.from_url(server.url) as client:
                assert client.dbsize() == 0

    @pytest.mark.parametrize("name", ["redis-server", "redis-6.2"])
    def test_server_without_waitaof(self, name: str) -> None:
        program = located(name, WHEEL_SERVERS)
        with (
            LocalServer(*AOF, "always", program=program) as server,
            redis.Redis.from_url(server.url) as client,
        ):
            if client.info("server")["redis_version"] >= "7.2":
                pytest.skip("this one has WAITAOF")
            with pytest.raises(fastresp.TransportError, match=r"use Redis 7\.2 or later"):
                insert_sync(range(10), PUSH, server=server.url, durable="fsync")
            assert client.dbsize() == 0

    def test_user_without_permission(self, start: Start) -> None:
        server = start(*AOF, "always")
        with redis.Redis.from_url(server.url) as client:
            client.execute_command(
                "ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", "-waitaof"
            )
            url = f"{server.url}?username=some&password=secret"
            with pytest.raises(fastresp.TransportError, match=r"ACL SETUSER \.\.\. \+waitaof"):
                insert_sync(range(10), PUSH, server=url, durable="fsync")
            assert client.dbsize() == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (
                {"durable": "disk"},
                "durable must be 'acknowledged', 'fsync', 'snapshot' or a number",
            ),
            ({"durable": 0}, "durable must be"),
            ({"durable": True}, "durable must be"),
        ],
    )
    def test_options(self, server: LocalServer, options: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            insert_sync(range(10), PUSH, server=server.url, **grouped(options))

    def test_commands_that_change_the_connection(self, start: Start) -> None:
        server = start(*AOF, "always")
        with pytest.raises(ValueError, match="durable='fsync' can't be used with SELECT"):
            insert_sync(range(10), "SELECT {0}", server=server.url, durable="fsync")


class TestFailure:
    def test_file_is_switched_off(self, insert_singly: Insert, program: str) -> None:
        """WAITAOF then fails, even a pending one."""
        with LocalServer(*AOF, "everysec", program=program) as server:
            off = setting(server, "appendonly", "no")
            message, report = failed(
                insert_singly, rows(off), PUSH, server=server.url, durable="fsync"
            )
            assert "can't say whether the commands are on disk: ERR WAITAOF cannot be" in message
            assert report.durable is not None
            assert report.durable == report.replies < report.commands
            assert report.in_doubt == report.commands - report.durable > 0
            with redis.Redis.from_url(server.url) as client:
                assert client.llen("list") >= report.durable

    def test_file_is_not_synced(self, insert_singly: Insert, program: str) -> None:
        """WAITAOF would wait forever; the timeout of the load ends it."""
        with LocalServer(*AOF, "always", program=program) as server:
            off = setting(server, "appendfsync", "no")
            message, report = failed(
                insert_singly, rows(off), PUSH, server=server.url, durable="fsync", timeout=2
            )
            assert "no progress for 2 s" in message
            assert "the server has not synced its append-only file (WAITAOF" in message
            assert report.durable is not None
            assert report.in_doubt == report.commands - report.durable > 0
            # Answered, but not on disk.
            with redis.Redis.from_url(server.url) as client:
                assert client.llen("list") > report.durable

    @pytest.mark.parametrize(
        ("options", "durable", "command", "words"),
        [
            ((*AOF, "always"), "fsync", "waitaof", "whether the commands are on disk: the reply"),
            ((), 2, "wait", "it can't wait for its replicas: the reply"),
        ],
    )
    def test_wait_is_ended(
        self, insert_singly: Insert, start: Start, options: Any, durable: Any, command: str,
        words: str,
    ) -> None:  # fmt: skip
        """CLIENT UNBLOCK ends it like a timeout, so the commands are not durable."""
        server = start(*options)

        def unblock() -> None:
            with redis.Redis.from_url(server.url) as client:
                while True:
                    for each in client.client_list():
                        if each["cmd"] == command and "b" in each["flags"]:
                            client.client_unblock(int(each["id"]))
                            return

        def happening() -> None:
            if options:
                setting(server, "appendfsync", "no")()
            threading.Thread(target=unblock).start()

        message, report = failed(
            insert_singly, rows(happening, 0), PUSH, server=server.url, durable=durable
        )
        assert f"{words} was 0" in message
        assert report.durable == 0 < report.in_doubt

    @pytest.mark.parametrize("fsync", ["always", "everysec"])
    def test_server_is_killed(self, insert_singly: Insert, program: str, fsync: str) -> None:
        """Commands that count as durable are on its disk."""
        with LocalServer(*AOF, fsync, program=program) as server:
            _, report = failed(
                insert_singly, rows(server.process.kill), PUSH, server=server.url, durable="fsync"
            )
            assert report.durable is not None
            with restarted(server) as client:
                stored = [int(item) for item in client.lrange("list", 0, -1)]
            assert stored == [*range(len(stored))]
            assert report.durable <= len(stored) <= report.commands

    @pytest.mark.few(1)
    def test_server_comes_back(self, insert_singly: Insert, start: Start) -> None:
        """With ``retry=``, unconfirmed commands are resent, and the load continues."""
        server = start(*AOF, "everysec")
        again = partial(restarted, server)
        report = insert_singly(
            rows(again), "SADD set {0}", server=server.url, durable="fsync", retry="idempotent"
        )
        assert (report.durable, report.in_doubt) == (ROWS, 0)
        with restarted(server) as client:
            assert client.scard("set") == ROWS

    def test_replica_is_stopped(self, insert_singly: Insert, start: Start) -> None:
        port = free_port()
        server = start("--port", str(port), "--repl-diskless-sync-delay", "0")
        replica = start("--replicaof", f"127.0.0.1 {port}")
        with redis.Redis.from_url(replica.url) as client:
            until(lambda: client.info("replication")["master_link_status"] == "up")
            stop = partial(replica.process.send_signal, signal.SIGSTOP)
            try:
                message, report = failed(
                    insert_singly, rows(stop), PUSH, server=server.url, durable=1, timeout=1
                )
            finally:
                replica.process.send_signal(signal.SIGCONT)
            assert "fewer than 1 replica has the commands (WAIT)" in message
            assert report.durable is not None
            assert report.in_doubt == report.commands - report.durable > 0
            assert client.llen("list") >= report.durable


class TestCheckpoint:
    @pytest.mark.few(1)
    @pytest.mark.parametrize("template", ["SET {0} {0}", "RPUSH list:{0} {0}"])
    def test_row_is_durable(
        self, insert_singly: Insert, start: Start, template: str, tmp_path: Path
    ) -> None:
        """The checkpoint advances once the row is on disk, and the resumed load is complete."""
        server = start(*AOF, "always")
        options: dict[str, Any] = {
            "server": server.url, "checkpoint": NAME, "source_id": "numbers", "durable": "fsync",
        }  # fmt: skip
        client = redis.Redis.from_url(server.url)

        def paused() -> None:
            setting(server, "appendfsync", "no")()

        def slowly() -> Iterator[int]:
            # The row is stored once a second.
            for number in rows(paused):
                time.sleep(0.0005 if number < 4_000 or 0 < number - ROWS // 2 < 4_000 else 0)
                yield number

        _, report = failed(insert_singly, slowly(), template, timeout=3, **options)
        assert report.durable is not None
        if template.startswith("SET"):
            # A row was stored, and it does not count rows that were only answered.
            assert 0 < int(client.get(MARKER) or 0) <= report.durable < client.dbsize()
        setting(server, "appendfsync", "everysec")()
        report = insert_singly(range(ROWS), template, **grouped(options | {"resume": True}))
        assert report.resumed_at + report.rows == ROWS
        assert report.durable == report.replies == report.commands
        with restarted(server) as client:
            assert client.get(MARKER) == b"%d" % ROWS
            if template.startswith("SET"):
                assert client.mget(range(0, ROWS, 7)) == [b"%d" % n for n in range(0, ROWS, 7)]
            else:
                assert [client.llen(f"list:{n}") for n in range(0, ROWS, 701)] == [1] * 86


class TestCluster:
    def cluster(self, replicas: int, off: int = -1) -> LocalCluster:
        started: list[int] = []

        def options(port: int) -> tuple[str, ...]:
            started.append(port)
            return () if len(started) - 1 == off else (*AOF, "everysec")

        return LocalCluster(
            3, replicas, program=located("valkey-8.1", WHEEL_SERVERS), options=options
        )

    def test_each_node(self, insert: Insert) -> None:
        with self.cluster(0) as cluster:
            report = insert(
                range(ROWS), "SET {0} x", server=cluster.url, durable="fsync", connections=2
            )
            assert (report.durable, report.in_doubt) == (ROWS, 0)
            for node in cluster.clients:
                assert node.info("commandstats")["cmdstat_waitaof"]["calls"] >= 2

    def test_one_node_without_a_file(self, insert_singly: Insert) -> None:
        with self.cluster(0, off=1) as cluster:
            words = f"{cluster.host}:{cluster.ports[1]}: it has no append-only file"
            with pytest.raises(fastresp.TransportError, match=words):
                insert_singly(range(ROWS), "SET {0} x", server=cluster.url, durable="fsync")
            assert [node.dbsize() for node in cluster.clients] == [0, 0, 0]

    @pytest.mark.few(0)
    def test_primary_is_killed(self, insert_singly: Insert) -> None:
        """The promoted replica confirms the resent commands."""
        with self.cluster(1) as cluster:
            cluster.until(
                lambda node: node.info("replication").get("master_link_status", "up") == "up"
            )
            report = insert_singly(
                rows(cluster.nodes[0].process.kill), "SET {0} x", server=cluster.url,
                durable="fsync",
            )  # fmt: skip
            assert (report.durable, report.in_doubt) == (ROWS, 0)


def test_command_line(start: Start, tmp_path: Path) -> None:
    server = start(*AOF, "always")
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n2\n")

    def load(*options: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "fastresp", "load", str(path), "RPUSH list {n}"]
        return preloaded.run(
            [*words, "--server", server.url, *options], capture_output=True, text=True
        )

    done = load("--durable", "fsync", "--json")
    assert json.loads(done.stdout)["durable"] == 2, done.stderr
    assert json.loads(load("--json").stdout)["durable"] is None
    assert "2 commands durable" in load("--durable", "fsync").stderr
    for value, words in (("disk", "--durable must be"), ("0", "--durable must be")):
        refused = load("--durable", value)
        assert (refused.returncode, words in refused.stderr) == (64, True), refused.stderr
    refused = load("--durable", "fsync", "--transport", "redis-cli")
    assert "can't wait until commands are durable" in refused.stderr
    lost = load("--durable", "1", "--timeout", "0.3")
    assert (lost.returncode, "fewer than 1 replica has" in lost.stderr) == (3, True)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("asked", "answer"), [(1, (1, 7)), (2, (2, 1)), (3, (3, 12)), (4, None), (5, (5, -3))]
)
def test_number_of_a_reply(size: int, asked: int, answer: tuple[int, int] | None) -> None:
    """The number of the reply itself, or the first in it, however the bytes arrive."""
    scanner = ReplyScanner()
    scanner.asked = asked
    data = b":3\r\n:7\r\n*2\r\n:1\r\n:0\r\n*2\r\n$1\r\n:\r\n:12\r\n-ERR 5\r\n:-3\r\n:9\r\n"
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
    assert scanner.replies == 7
    assert scanner.answer == answer
