"""``mode="replicate"``: a server is empty or loaded at the end, and always a primary."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from certificates import write_certificates
from click.testing import CliRunner
from local_cluster import free_port
from needed import lacking
from test_rdb_file import commands
from twice import SERVERS, debugged
from waiting import until, until_loaded

import fastresp
import fastresp.aio
from fastresp import EncodeError, Replicate, TransportError, TransportTimeout
from fastresp.cli.app import app
from fastresp.doctor import doctor
from fastresp.load import rdb_file
from fastresp.load.replica import Replica
from fastresp.server.local_server import LocalServer
from fastresp.sink.sink import Sink

HASHES = "HSET user:{id} name {name}"
TIMED = f"{HASHES}; EXPIRE user:{{id}} 86400"


def rows(number: int = 5000, size: int = 10) -> Iterator[dict[str, Any]]:
    return ({"id": row, "name": f"{row:0{size}}"} for row in range(number))


@pytest.fixture
def target(start_server: Callable[..., LocalServer]) -> Iterator[redis.Redis]:
    """A client of a server of the test's own, which must be a primary at the end."""
    options = ("--enable-debug-command", "yes", "--masteruser", "u", "--masterauth", "secret")
    server = start_server(*options)
    with redis.Redis.from_url(server.url) as client:
        client.server = server  # type: ignore[attr-defined]
        yield client
        with suppress(redis.ConnectionError):  # ended by the test
            assert client.info("replication")["role"] == "master"


def url_of(target: redis.Redis, database: int = 0) -> str:
    url: str = target.server.url  # type: ignore[attr-defined]
    return f"{url}?db={database}"


def replicate(target: redis.Redis, data: Any, template: Any = HASHES, **options: Any) -> Any:
    options = {"mode": "replicate", "timeout": 20} | options
    return fastresp.mass_insert(data, template, url_of(target), **options)


def check_refused(target: redis.Redis, words: str, **options: Any) -> None:
    """A load is refused, and changes nothing."""
    with pytest.raises(TransportError, match=words) as caught:
        replicate(target, rows(), **options)
    assert "mode='serialize' (nothing was loaded)" in str(caught.value)
    assert target.exists("user:0") == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SERVERS)
def test_servers_have_the_same_data_as_after_a_load(name: str) -> None:
    with debugged(name) as server, redis.Redis.from_url(server.url) as client:
        fastresp.mass_insert(commands(), server=server.url)
        found = client.execute_command("DEBUG DIGEST")
        client.flushall()
        report = fastresp.mass_insert(commands(), server=server.url, mode="replicate")
        assert client.execute_command("DEBUG DIGEST") == found
        assert client.info("replication")["role"] == "master"
        sent = len(list(commands()))
        assert (report.commands, report.replies, report.rows, report.keys) == (
            sent,
            sent,
            sent,
            300,
        )
        assert "over replication" in str(report)
        assert "the server has 300 keys" in str(report)
        client.set("new", 1)  # it accepts writes


def test_expiries_and_databases(target: redis.Redis) -> None:
    assert fastresp.mass_insert(rows(), TIMED, url_of(target, 7), mode="replicate").keys == 5000
    assert target.info("keyspace")["db7"]["expires"] == 5000
    assert target.dbsize() == 0
    with redis.Redis.from_url(url_of(target, 7)) as client:
        assert 86_000 < client.ttl("user:4999") <= 86_400


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_sources_may_pause(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the server's repl-timeout."""
    monkeypatch.setattr("fastresp.load.replica_link.KEEP_ALIVE_S", 0.2)

    def slow() -> Iterator[dict[str, Any]]:
        for row in rows(30_000, 100):
            if row["id"] in (20_000, 25_000):
                time.sleep(3.5)
            yield row

    with (
        debugged(name, "--repl-timeout", "1") as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert fastresp.mass_insert(slow(), HASHES, server.url, mode="replicate").keys == 30_000
        assert client.hget("user:29999", "name") == b"%0100d" % 29_999


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_keys_that_expire_meanwhile_are_counted(name: str) -> None:
    with debugged(name) as server, redis.Redis.from_url(server.url) as client:
        template = "SADD a:{id} {name}; PEXPIRE a:{id} 1"
        report = fastresp.mass_insert(rows(300_000), template, server.url, mode="replicate")
        assert report.keys == 300_000
        until(lambda: not client.dbsize())


def test_nothing(target: redis.Redis) -> None:
    runs = target.info("replication")["master_replid"]
    report = replicate(target, [])
    assert (report.commands, report.keys, report.unsent) == (0, None, 0)
    assert target.info("replication")["master_replid"] == runs  # it was no replica


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("redis-8.2", ["--repl-rdb-channel", "yes"]),
        ("valkey-8.1", ["--dual-channel-replication-enabled", "yes"]),
        ("valkey-9.1", ["--dual-channel-replication-enabled", "yes"]),
        ("redis-server", ["--replica-serve-stale-data", "no"]),
        ("valkey-9.1", ["--io-threads", "4"]),
    ],
)
def test_options_of_servers(name: str, options: list[str]) -> None:
    with debugged(name, *options) as server:
        report = fastresp.mass_insert(rows(), TIMED, server.url, mode=Replicate("[::1]"))
        assert report.keys == 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_the_data_survives_a_restart(name: str) -> None:
    for append, rewritten in (("no", False), ("yes", True)):
        with debugged(name, "--appendonly", append) as server:
            fastresp.mass_insert(rows(), TIMED, server.url, mode="replicate")
            with redis.Redis.from_url(server.url) as client:
                while rewritten and "base.rdb" not in str(os.listdir(server.folder)):
                    info = client.info("persistence")
                    if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
                        break
                    time.sleep(0.01)
                os.kill(server.process.pid, signal.SIGKILL)
            server.stop()
            server.start()
            with redis.Redis.from_url(server.url) as client:
                until_loaded(client)
                assert client.dbsize() == 5000


@pytest.mark.slow
def test_memory_is_flat(target: redis.Redis) -> None:
    code = (
        "import fastresp, resource, sys\n"
        "rows = ((n, 'x' * 200) for n in range(int(sys.argv[2])))\n"
        "fastresp.mass_insert(rows, 'SET {0} {1}', sys.argv[1], mode='replicate')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    peaks = []
    for number in (100_000, 2_500_000):
        words = [sys.executable, "-c", code, url_of(target), str(number)]
        peaks.append(int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout))
        assert target.dbsize() == number
        target.flushall()
    assert peaks[1] - peaks[0] < 64


def test_asyncio(target: redis.Redis) -> None:
    async def slowly() -> Any:
        for row in rows(3000):
            if row["id"] % 1000 == 0:
                await asyncio.sleep(0.01)
            yield row

    load = fastresp.aio.mass_insert(slowly(), TIMED, url_of(target), mode="replicate")
    assert asyncio.run(load).keys == target.dbsize() == 3000


# What is refused before anything changes.


def test_keys_are_refused(target: redis.Redis) -> None:
    with redis.Redis.from_url(url_of(target, 3)) as client:
        client.set("kept", 1)
        check_refused(target, "its database 3 has 1 key, and all data would be deleted; load into")
        assert client.get("kept") == b"1"


def test_keys_that_come_in_the_last_moment(
    target: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPLICAOF stops writes, and then the server is asked again: no key can come in between."""
    monkeypatch.setattr(Replica, "check", lambda self: target.set("kept", 1))
    check_refused(target, "its database 0 has 1 key")
    assert target.get("kept") == b"1"


@pytest.mark.parametrize(
    ("setting", "value"), [("repl-diskless-load", "swapdb"), ("replica-read-only", "no")]
)
def test_settings_are_refused(target: redis.Redis, setting: str, value: str) -> None:
    target.config_set(setting, value)
    check_refused(target, f"its {setting} is {value}, so .*; run CONFIG SET {setting} ")


def test_replication_with_tls_is_refused(
    start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    try:
        server = start_server("--tls-replication", "yes", *write_certificates(tmp_path))
    except TransportError as error:
        lacking(f"the server was built without TLS: {error}")
    with pytest.raises(TransportError, match=r"its tls-replication is yes, so .* no certificate"):
        fastresp.mass_insert(rows(), HASHES, server.url, mode="replicate")


@pytest.mark.slow
def test_search_indexes_are_refused(module_server: LocalServer) -> None:
    with redis.Redis.from_url(module_server.url, protocol=2) as client:
        client.flushall()
        client.execute_command("FT.CREATE", "idx", "SCHEMA", "name", "TEXT")
        try:
            with pytest.raises(TransportError, match="search indexes, which would be deleted"):
                fastresp.mass_insert(rows(), HASHES, module_server.url, mode="replicate")
        finally:
            client.execute_command("FT.DROPINDEX", "idx")


def test_functions_are_refused(target: redis.Redis) -> None:
    library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
    target.function_load(library)
    check_refused(target, "it has libraries of functions, which would be deleted; use ")


def test_sentinel_is_refused(target: redis.Redis) -> None:
    with target.pubsub() as sentinel:
        sentinel.subscribe("__sentinel__:hello")
        sentinel.get_message(timeout=5)
        check_refused(target, "Sentinel monitors it.*; remove it from Sentinel, or use")


def test_users_without_permission_are_refused(target: redis.Redis) -> None:
    for command in ("replicaof", "pubsub|numsub", "config|get"):
        target.acl_setuser("loader", enabled=True, nopass=True, categories=["+@all"], keys=["*"],
                           channels=["*"], commands=[f"-{command}"], reset=True)  # fmt: skip
        url = f"unix://loader:@{target.server.socket}"  # type: ignore[attr-defined]
        with pytest.raises(TransportError, match=r"ACL SETUSER \.\.\. \+"):
            fastresp.mass_insert(rows(), HASHES, url, mode="replicate")
    assert target.dbsize() == 0


@pytest.mark.slow
def test_servers_without_the_command_are_refused(start_server: Callable[..., LocalServer]) -> None:
    for command in ("replicaof", "config", "pubsub"):
        server = start_server("--rename-command", command, "")
        with pytest.raises(TransportError, match=r"unknown command.*use mode='serialize'"):
            fastresp.mass_insert(rows(), HASHES, server.url, mode="replicate")


@pytest.mark.slow
def test_replicas_and_primaries_with_replicas_are_refused(
    target: redis.Redis, start_server: Callable[..., LocalServer], port: int
) -> None:
    start_server("--port", str(port), "--enable-debug-command", "yes")
    with redis.Redis(port=port) as primary:
        target.config_set("masterauth", "")
        target.replicaof("127.0.0.1", port)
        until(lambda: target.info("replication")["master_link_status"] == "up")
        with pytest.raises(TransportError, match=f"is a read-only replica; load into .*:{port}"):
            replicate(target, rows())
        with pytest.raises(TransportError, match="it has 1 replica, whose data would be replaced"):
            fastresp.mass_insert(rows(), HASHES, f"redis://127.0.0.1:{port}", mode="replicate")
        assert primary.dbsize() == 0
        target.replicaof("NO", "ONE")


@pytest.mark.slow
def test_clusters_are_refused(start_server: Callable[..., LocalServer]) -> None:
    port = free_port()
    start_server("--port", str(port), "--cluster-enabled", "yes")
    with redis.Redis(port=port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: client.cluster("info")["cluster_state"] == "ok")
    with pytest.raises(TransportError, match="it is a node of a cluster; use mode='serialize'"):
        fastresp.mass_insert(rows(), HASHES, f"redis://127.0.0.1:{port}", mode="replicate")


LEFT_OVER = (
    r"its primary 127\.0\.0\.1:\d+ can't be reached, so a load by replication may have been "
    "killed; if so, send the replica REPLICAOF NO ONE"
)


@pytest.mark.parametrize("mode", ["replicate", "serialize"])
def test_replicas_of_a_killed_load_are_recognised(target: redis.Redis, mode: Any) -> None:
    target.replicaof("127.0.0.1", free_port())
    with pytest.raises(TransportError, match=f"is a read-only replica; {LEFT_OVER}"):
        replicate(target, rows(), mode=mode)
    found = {each.code: each for each in doctor(url_of(target)).verdicts}["is-replica"]
    assert "primary can't be reached" in found.title and "REPLICAOF NO ONE" in found.advice
    target.config_set("replica-read-only", "no")
    with pytest.raises(TransportError, match=f"it is a replica; {LEFT_OVER}, or use mode="):
        replicate(target, rows())
    target.replicaof("NO", "ONE")


def test_replicas_of_a_running_load_are_not_taken_for_left_over(target: redis.Redis) -> None:
    def during() -> Iterator[dict[str, Any]]:
        for row in rows(30_000, 100):
            if row["id"] == 29_000:
                assert target.info("replication")["master_link_status"] == "down"
                with pytest.raises(TransportError, match="read-only replica; load into its"):
                    replicate(target, rows())
            yield row

    assert replicate(target, during()).keys == 30_000


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_programs_leave_an_empty_replica(target: redis.Redis, number: int) -> None:
    code = (
        "import fastresp, sys, time\n"
        "def rows():\n"
        "    for n in range(100_000):\n"
        "        yield n, 'x' * 100\n"
        "    time.sleep(60)\n"
        "fastresp.mass_insert(rows(), 'SET {0} {1}', sys.argv[1], mode='replicate')\n"
    )
    handled = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    for start, status in ((f"import sys\n{handled}", 143), ("", -number)):
        if number == signal.SIGTERM or not start:
            process = subprocess.Popen([sys.executable, "-c", start + code, url_of(target)])
            until(lambda: target.info("replication").get("master_sync_in_progress"))
            process.send_signal(number)
            assert process.wait() == status
            assert target.info("replication")["role"] == ("master" if start else "slave")
    until(lambda: not target.info("replication")["master_sync_in_progress"])
    with pytest.raises(TransportError, match=LEFT_OVER):
        replicate(target, rows())
    assert target.dbsize() == 0
    target.replicaof("NO", "ONE")
    assert replicate(target, rows()).keys == 5000


def test_options_are_refused(target: redis.Redis, tmp_path: Path) -> None:
    for options in (
        {"connections": 2}, {"rejects": tmp_path / "rejects"}, {"durable": 1}, {"nulls": "delete"},
        {"checkpoint": "a"}, {"rate_limit": "1MB"}, {"retry": "always"}, {"transport": "redis-cli"},
    ):  # fmt: skip
        words = f"{next(iter(options))} can't be used with mode='replicate', which sends no"
        with pytest.raises(ValueError, match=words):
            replicate(target, rows(), **options)
    for address in ("", "0.0.0.0", "[::]:80", "a b", 7, "10.0.0.1:port", "10.0.0.1:65536"):
        with pytest.raises(ValueError, match="listen must be an address that the server can"):
            Replicate(address)  # type: ignore[arg-type]
    for address in ("10.0.0.1", "[::1]:7000", "[fe80::1]", "localhost:0"):
        assert Replicate(address).listen == address
    with pytest.raises(ValueError, match="a loader can't use mode='replicate'"):
        fastresp.loader(HASHES, mode="replicate")
    with pytest.raises(ValueError, match="a sink can't use mode='replicate'"):
        Sink(None, HASHES, mode="replicate")


def test_addresses(target: redis.Redis) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        place = f"127.0.0.1:{used.getsockname()[1]}"
        with pytest.raises(TransportError, match=f"can't listen on {place}: .*name another ad"):
            replicate(target, rows(), mode=Replicate(place))
    with pytest.raises(TransportError, match=r"name an address of this machine with "):
        replicate(target, rows(), mode=Replicate("192.0.2.1"))
    assert replicate(target, rows(), mode=Replicate("localhost")).keys == 5000


def test_announced_addresses(target: redis.Redis) -> None:
    """The server connects to the announced address, and the load listens on all others."""
    port, closed = free_port(), free_port()
    mode = Replicate(f"0.0.0.0:{port}", announce="localhost")
    assert replicate(target, rows(), mode=mode).keys == 5000
    target.flushall()
    mode = Replicate(f"127.0.0.1:{port}", announce=f"127.0.0.1:{closed}")
    with pytest.raises(
        TransportTimeout, match=rf"did not connect to 127.0.0.1:{closed} .*announce="
    ):
        replicate(target, rows(), mode=mode, timeout=0.5)
    for wrong in ("0.0.0.0:7000", "a b", "10.0.0.1:65536", 7):
        with pytest.raises(ValueError, match="announce must be an address that the server can"):
            Replicate(announce=wrong)  # type: ignore[arg-type]


# The server stays empty, and is a primary again.


class Broken(Exception):
    """An exception of the source."""


@pytest.mark.parametrize("kind", [Broken, KeyboardInterrupt, GeneratorExit])
def test_exceptions_of_the_source(target: redis.Redis, kind: type[BaseException]) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from rows(30_000, 100)
        assert target.info("replication")["role"] == "slave"
        raise kind

    with pytest.raises(kind) as caught:
        replicate(target, failing())
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.commands, report.replies, report.rows, report.keys) == (0, 0, 0, 0)
    assert 0 < report.unsent <= 30_000
    assert target.dbsize() == 0
    assert target.info("replication")["role"] == "master"


def test_keys_twice(target: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would exit when it reads the second."""
    monkeypatch.setattr(rdb_file, "MAX_KEYS", 1000)
    for repeated in ([{"id": 5, "name": "again"}], [{"id": 4000, "name": "again"}]):
        with pytest.raises(EncodeError, match=r"the same key.* with other keys between"):
            replicate(target, [*rows(), *repeated])
        assert target.dbsize() == 0


def test_cancelled(target: redis.Redis) -> None:
    async def cancelled() -> None:
        reached = asyncio.Event()

        async def endless() -> Any:
            for row in rows(1 << 40, 100):
                if row["id"] == 30_000:
                    reached.set()
                    await asyncio.sleep(60)
                yield row

        load = fastresp.aio.mass_insert(endless(), HASHES, url_of(target), mode="replicate")
        task = asyncio.create_task(load)
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert target.info("replication")["role"] == "master"

    asyncio.run(cancelled())
    assert target.dbsize() == 0


def test_another_client_ends_the_replication(target: redis.Redis) -> None:
    def cut() -> Iterator[dict[str, Any]]:
        for row in rows(1 << 40, 100):
            if row["id"] == 30_000:
                target.replicaof("NO", "ONE")
            yield row

    with pytest.raises(TransportError, match=r"closed its connection after .* of the RDB file"):
        replicate(target, cut())
    assert target.dbsize() == 0
    assert target.info("replication")["role"] == "master"


def test_the_server_refuses_the_file(target: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rdb_file.RDB_VERSIONS, 9999, "99.0.0")
    monkeypatch.setattr("fastresp.load.replication.min", max, raising=False)
    with pytest.raises(TransportError, match="received the RDB file, and did not load it"):
        replicate(target, rows())
    assert target.dbsize() == 0


def test_the_server_dies(target: redis.Redis) -> None:
    server: LocalServer = target.server  # type: ignore[attr-defined]

    def killing() -> Iterator[dict[str, Any]]:
        for row in rows(1 << 40, 100):
            if row["id"] == 30_000:
                os.kill(server.process.pid, signal.SIGKILL)
            yield row

    with pytest.raises(TransportError, match="closed its connection after") as caught:
        replicate(target, killing(), timeout=1)
    words = r"may still be a replica of 127\.0\.0\.1:\d+; if so, send it REPLICAOF NO ONE"
    assert re.search(words, str(caught.value))


def test_the_server_stops(target: redis.Redis) -> None:
    server: LocalServer = target.server  # type: ignore[attr-defined]

    def stopping() -> Iterator[dict[str, Any]]:
        for row in rows(1 << 40, 1000):
            if row["id"] == 3000:
                os.kill(server.process.pid, signal.SIGSTOP)
            yield row

    try:
        with pytest.raises(TransportTimeout, match=r"has not read the RDB file for 0\.5 s"):
            replicate(target, stopping(), timeout=0.5)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    target.replicaof("NO", "ONE")
    assert target.dbsize() == 0


def test_the_server_cannot_connect(target: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    attach = Replica.attach
    monkeypatch.setattr(Replica, "attach", lambda self, host, _: attach(self, host, free_port()))
    words = r"did not connect to 127.0.0.1:\d+ within 0.5 s; check firewalls.*listen="
    with pytest.raises(TransportTimeout, match=words):
        replicate(target, rows(), timeout=0.5)


@pytest.fixture
def loading(start_server: Callable[..., LocalServer]) -> LocalServer:
    """A server that needs seconds to load a file of 20,000 keys."""
    return start_server(
        "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"
    )  # fmt: skip


@pytest.mark.slow
def test_progress_while_the_server_loads(loading: LocalServer) -> None:
    shares = []

    def show(report: fastresp.Report) -> None:
        shares.append(report.replies / max(1, report.commands))

    mode = fastresp.mass_insert(
        rows(20_000), HASHES, loading.url, mode="replicate", progress=show, timeout=1.5
    )
    assert mode.keys == 20_000
    assert sorted(shares) == shares
    assert len({share for share in shares if 0 < share < 1}) > 3


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_server_ends_or_stops_while_it_loads(loading: LocalServer, number: int) -> None:
    def stop(report: fastresp.Report) -> None:
        if report.replies:
            os.kill(loading.process.pid, number)

    with pytest.raises(TransportError, match="may still be a replica") as caught:
        fastresp.mass_insert(
            rows(20_000), HASHES, loading.url, mode="replicate", progress=stop, timeout=1
        )
    assert caught.value.report is not None
    assert (caught.value.report.in_doubt, caught.value.report.keys) == (20_000, None)
    os.kill(loading.process.pid, signal.SIGCONT)


# Others at our port.


def test_strangers_get_nothing(target: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the server knows its replication ID."""
    port = free_port()
    said = [
        b"PSYNC ? -1\r\n", b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$4\r\nSYNC\r\n",
        b"*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n",
        b"*3\r\n$5\r\nPSYNC\r\n$40\r\n%s\r\n$2\r\n-1\r\n" % (b"0" * 40),
        b"*2\r\n$9\r\nREPLCONF\r\n$999999999\r\n", b"", b"*1000000\r\n" * 1000,
    ]  # fmt: skip
    strangers: list[socket.socket] = []
    attach = Replica.attach

    def late(self: Any, host: str, port: int) -> None:
        for number, text in zip(count(), said * 2):
            strangers.append(socket.create_connection((host, port)))
            if number % 5:
                strangers[-1].sendall(text)
        attach(self, host, port)

    monkeypatch.setattr(Replica, "attach", late)
    report = replicate(target, rows(), mode=Replicate(f"127.0.0.1:{port}"))
    assert report.keys == target.dbsize() == 5000
    for stranger in strangers:
        stranger.settimeout(5)
        with stranger, suppress(ConnectionResetError):
            assert stranger.recv(100) == b""


# The command line.


def test_command_line(target: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,name\n1,a\n2,b\n")
    words = ["load", str(path), HASHES, "--mode", "replicate", "--server", url_of(target)]
    for options, said, code in (
        (["--dry-run"], "No problems found", 0),
        (["--listen", "127.0.0.1", "--json"], '"keys": 2', 0),
        (["--dry-run"], "its database 0 has 2 keys", 1),
        ([], "or use --mode serialize (nothing was loaded)", 3),
        (["--listen", "::"], "--listen must be an address", 64),
        (["--announce", "::"], "--announce must be an address", 64),
        (["--connections", "2"], "--connections can't be used with --mode replicate", 64),
    ):
        result = CliRunner().invoke(app, [*words, *options])
        assert said in result.output, options
        assert result.exit_code == code
        assert target.dbsize() in (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.5, 1.0, 1.5, 2.0])
def test_signals(target: redis.Redis, tmp_path: Path, number: int, delay: float) -> None:
    """At any moment: the server has all keys or none, and is a primary."""
    path = tmp_path / "users.csv"
    with path.open("w") as file:
        file.write("id,name\n")
        file.writelines(f"{row},{row:0200}\n" for row in range(1_000_000))
    words = [sys.executable, "-m", "fastresp", "load", str(path), HASHES, "--mode", "replicate"]
    process = subprocess.Popen(
        [*words, "--server", url_of(target)], text=True, stderr=subprocess.PIPE
    )
    until(lambda: target.info("replication")["role"] != "master" or process.poll() is not None)
    time.sleep(delay)
    process.send_signal(number)
    said = process.communicate()[1]
    assert process.returncode in (0, {signal.SIGINT: 4, signal.SIGTERM: 143}[number])
    assert target.info("replication")["role"] == "master"
    keys = target.dbsize()
    assert f"the server has {keys:,} keys" in said or process.returncode == 0
    assert keys in (0, 1_000_000)
