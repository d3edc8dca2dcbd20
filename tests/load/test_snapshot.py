"""Loads whose commands count once a snapshot of the server includes them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from loads import Insert, insert_sync
from local_cluster import LocalCluster
from resumed_loads import restart
from server_programs import WHEEL_SERVERS, located
from waiting import until

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving

pytestmark = pytest.mark.few(1)
ROWS = 20_000
SET = "SET key:{0} {0}"


@pytest.fixture(params=["redis-server", *WHEEL_SERVERS])
def program(request: pytest.FixtureRequest) -> str:
    return located(request.param, WHEEL_SERVERS)


@pytest.fixture
def own() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def saved(server: LocalServer) -> int:
    """Return the number of keys that a server has after a crash."""
    restart(server)
    with redis.Redis.from_url(server.url) as client:
        return int(client.dbsize())


def failed(
    server: str, insert: Insert = insert_sync, source: Any = range(100), **options: Any
) -> fastresp.TransportError:
    with pytest.raises(fastresp.TransportError) as caught:
        insert(source, SET, server=server, durable="snapshot", **options)
    report = caught.value.report
    assert report is not None
    assert (report.commands, report.durable, report.in_doubt) == (100, 0, 100)
    return caught.value


def test_crash_after_the_load(insert: Insert, program: str) -> None:
    with LocalServer(program=program) as server:
        report = insert(range(ROWS), SET, server=server.url, durable="snapshot")
        assert (report.replies, report.durable, report.in_doubt) == (ROWS, ROWS, 0)
        assert f"0 errors, {ROWS:,} commands durable" in str(report)
        assert saved(server) == ROWS


@pytest.mark.slow
def test_snapshot_that_began_earlier(own: LocalServer) -> None:
    """It does not count, and the load waits for its end."""
    with redis.Redis.from_url(own.url) as client:
        client.config_set("rdb-key-save-delay", 20_000)
        client.mset({f"old:{number}": 1 for number in range(40)})

        def rows() -> Iterator[int]:
            yield 0
            client.bgsave()
            yield 1
            client.config_set("rdb-key-save-delay", 0)

        report = insert_sync(rows(), SET, server=own.url, durable="snapshot")
        assert report.durable == 2
    assert saved(own) == 42


@pytest.mark.slow
@pytest.mark.parametrize("child", ["aof", "killed", "saves"])
def test_other_children(own: LocalServer, child: str) -> None:
    """The snapshot waits for an AOF rewrite, is repeated if it was killed, or is the server's."""
    with redis.Redis.from_url(own.url) as client:
        client.mset({f"old:{number}": 1 for number in range(40)})
        client.config_set("rdb-key-save-delay", 10_000)
        if child == "aof":
            client.config_set("appendonly", "yes")
            client.config_set("appendonly", "no")
        if child == "saves":
            client.config_set("save", "1 1")
            client.config_set("rdb-key-save-delay", 0)

        def disturb() -> None:
            if child == "aof":
                client.bgrewriteaof()
                client.config_set("rdb-key-save-delay", 0)
                return
            until(lambda: client.info("persistence")["rdb_bgsave_in_progress"])
            if child == "killed":
                parent = own.process.pid
                for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                    os.kill(int(pid), signal.SIGUSR1)
            client.config_set("rdb-key-save-delay", 0)

        thread = threading.Thread(target=disturb)
        thread.start()
        report = insert_sync(range(100), SET, server=own.url, durable="snapshot")
        thread.join()
        assert report.durable == 100
    assert saved(own) == 140


def test_server_that_cannot_fork(own: LocalServer) -> None:
    """It answers BGSAVE with an error without a text."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        return b"-ERR\r\n" if command == [b"BGSAVE"] else honest

    with Misbehaving(reply, own.url, honest=lambda connection, command: False) as server:
        error = failed(server.url)
    assert "can't fork a process for BGSAVE (its log has the cause, usually vm." in str(error)


def test_failing_snapshot(insert: Insert, own: LocalServer) -> None:
    """The commands are in doubt; they were executed."""
    with redis.Redis.from_url(own.url) as client:
        client.ping()  # the server has looked for a file
    (own.folder / "dump.rdb").mkdir()
    error = failed(own.url, insert)
    assert "the snapshot of" in str(error)
    assert "failed (rdb_last_bgsave_status:err; the server's log has the cause" in str(error)
    with redis.Redis.from_url(own.url) as client:
        assert client.dbsize() == 100


@pytest.mark.slow
def test_failure_before_the_load(own: LocalServer) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.ping()  # the server has looked for a file
        (own.folder / "dump.rdb").mkdir()
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        (own.folder / "dump.rdb").rmdir()
        client.config_set("stop-writes-on-bgsave-error", "no")
    assert insert_sync(range(9), SET, server=own.url, durable="snapshot").durable == 9


def test_no_progress(own: LocalServer) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.config_set("rdb-key-save-delay", 10_000_000)
        error = failed(own.url, timeout=0.5)
        assert isinstance(error, fastresp.TransportTimeout)
        assert "no snapshot has made progress for 0.5 s" in str(error)


@pytest.mark.slow
def test_slow_snapshot_is_progress(own: LocalServer) -> None:
    """It takes longer than the timeout."""
    with redis.Redis.from_url(own.url) as client:
        client.config_set("rdb-key-save-delay", 1_000)
        report = insert_sync(range(5_000), SET, server=own.url, durable="snapshot", timeout=3)
        assert report.durable == 5_000


@pytest.mark.parametrize("aof", ["yes", "no"])
def test_server_is_restarted(aof: str) -> None:
    """If the data is lost, the load fails; otherwise, there is another snapshot."""
    with LocalServer("--appendonly", aof, "--appendfsync", "always") as server:
        client = redis.Redis.from_url(server.url)
        client.config_set("rdb-key-save-delay", 50_000)

        def kill() -> None:
            until(lambda: client.info("persistence")["rdb_bgsave_in_progress"])
            restart(server)

        thread = threading.Thread(target=kill)
        thread.start()
        if aof == "no":
            error = failed(server.url, timeout=20)
            assert "was restarted or replaced, and is empty: data of the load may" in str(error)
        else:
            report = insert_sync(range(100), SET, server=server.url, durable="snapshot", timeout=20)
            assert report.durable == 100
        thread.join()


def test_server_is_restarted_during_the_load(own: LocalServer) -> None:
    def rows() -> Iterator[int]:
        yield from range(99)
        restart(own)
        yield 99

    error = failed(own.url, source=rows(), retry="idempotent", on_error="collect")
    assert "was restarted or replaced, and" in str(error)


def test_server_is_gone(own: LocalServer) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.config_set("rdb-key-save-delay", 100_000)

        def kill() -> None:
            until(lambda: client.info("persistence")["rdb_bgsave_in_progress"])
            own.process.kill()

        thread = threading.Thread(target=kill)
        thread.start()
        error = failed(own.url, timeout=0.5)
        thread.join()
    assert "it is unknown whether the data was saved: " in str(error)


class TestRefused:
    """Refused before anything is sent."""

    @pytest.mark.parametrize("denied", ["bgsave", "info"])
    def test_user_without_permission(self, own: LocalServer, denied: str) -> None:
        with redis.Redis.from_url(own.url) as client:
            client.execute_command(
                "ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", f"-{denied}"
            )
            url = f"{own.url}?username=some&password=secret"
            with pytest.raises(fastresp.TransportError) as caught:
                insert_sync(range(10), SET, server=url, durable="snapshot")
            assert "durable='snapshot' is not possible with the server at" in str(caught.value)
            assert f"ACL SETUSER ... +{denied}" in str(caught.value)
            assert client.dbsize() == 0

    def test_server_without_bgsave(self) -> None:
        with LocalServer("--rename-command", "BGSAVE", "") as server:
            with pytest.raises(fastresp.TransportError, match="it has no BGSAVE, as is usual for"):
                insert_sync(range(10), SET, server=server.url, durable="snapshot")
            with redis.Redis.from_url(server.url) as client:
                assert client.dbsize() == 0

    def test_checkpoint(self, server: LocalServer) -> None:
        words = "durable='snapshot' can't be used with checkpoint, which covers only durable rows"
        with pytest.raises(ValueError, match=words):
            insert_sync(range(9), SET, server=server.url, durable="snapshot", checkpoint="a")
        with pytest.raises(ValueError, match=words):
            fastresp.copy(server.url, server.url, durable="snapshot", checkpoint="a", exists="skip")


def test_load_that_ends_early(own: LocalServer) -> None:
    """There is no snapshot, so nothing is durable."""

    def rows() -> Iterator[int]:
        yield from range(10)
        raise OSError("the source has failed")

    with pytest.raises(OSError, match="the source has failed") as caught:
        insert_sync(rows(), SET, server=own.url, durable="snapshot")
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.replies, report.durable) == (10, 0)


@pytest.mark.parametrize("cancels", [False, True])
def test_interrupted_wait(own: LocalServer, cancels: bool) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.config_set("rdb-key-save-delay", 1_000_000)
        began = time.monotonic()

        def begun() -> None:
            until(lambda: client.info("persistence")["rdb_bgsave_in_progress"])

        def interrupt() -> None:
            begun()
            os.kill(os.getpid(), signal.SIGINT)

        async def cancelled() -> None:
            options: dict[str, Any] = {"server": own.url, "durable": "snapshot"}
            load = asyncio.create_task(fastresp.aio.mass_insert(range(100), SET, **options))
            await asyncio.to_thread(begun)
            load.cancel()
            await load

        if cancels:
            with pytest.raises(asyncio.CancelledError) as caught:
                asyncio.run(cancelled())
            error: BaseException = caught.value
        else:
            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt) as interrupted:
                insert_sync(range(100), SET, server=own.url, durable="snapshot")
            error = interrupted.value
        assert time.monotonic() - began < 20
        report: fastresp.Report = error.report  # type: ignore[attr-defined]
        assert (report.commands, report.durable, report.in_doubt) == (100, 0, 100)


@pytest.mark.slow
def test_cluster() -> None:
    with LocalCluster() as cluster:
        report = insert_sync(range(ROWS), SET, server=cluster.url, durable="snapshot")
        assert report.durable == ROWS
        dumps = [node.folder / "dump.rdb" for node in cluster.nodes]
        frames = [fastresp.read(str(each)) for each in dumps if each.exists()]
        assert len(frames) == 3


@pytest.mark.slow
def test_command_line(own: LocalServer, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n2\n")
    done = invoke("load", str(source), "SET {id} 1", "--server", own.url, "--durable", "snapshot")
    assert "2 commands durable" in done.stderr + done.stdout
    assert saved(own) == 2


@pytest.mark.slow
def test_copy(server: LocalServer, client: redis.Redis, own: LocalServer) -> None:
    """Large keys, which are copied in parts, also count."""
    client.mset({f"key:{number}": number for number in range(50)})
    client.rpush("list", *range(20_000))
    options: dict[str, Any] = {"durable": "snapshot", "max_payload_bytes": 10_000}
    report = fastresp.copy(server.url, own.url, **options)
    assert (report.durable, report.in_parts) == (51, 1)
    assert saved(own) == 51
    (own.folder / "dump.rdb").unlink()
    (own.folder / "dump.rdb").mkdir()
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.copy(server.url, own.url, exists="replace", **options)
    assert caught.value.report is not None
    assert (caught.value.report.durable, caught.value.report.in_doubt) == (0, 51)
