"""Keys larger than ``max_payload_bytes``: RESTORE creates them, commands continue them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from loads import insert_asyncio, insert_sync
from waiting import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Serialize, grouped

Command = tuple[Any, ...]


def pushes(end: int, start: int = 0, key: str = "big") -> list[Command]:
    return [("RPUSH", key, number) for number in range(start, end)]


def numbers(client: redis.Redis, key: str = "big") -> list[int]:
    return [int(item) for item in client.lrange(key, 0, -1)]


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a chunk, so that the start of a key may end at any row."""
    monkeypatch.setattr("fastresp.sources.source.CHUNK_BYTES", 1)


def serialized(server: LocalServer, data: Any, *template: str, **options: Any) -> fastresp.Report:
    options = {
        "on_error": "collect", "mode": "serialize", "max_payload_bytes": 100, **options
    }  # fmt: skip
    return insert_sync(data, *template, server=server.url, **grouped(options))


@pytest.mark.usefixtures("row_by_row")
class TestExists:
    @pytest.mark.few(3)
    @pytest.mark.parametrize("connections", [1, 3])
    @pytest.mark.parametrize("exists", ["error", "replace", "skip"])
    def test_existing_key(
        self, server: LocalServer, client: redis.Redis, exists: str, connections: int
    ) -> None:
        client.rpush("big", -5)
        rows = [("before", 0), *(("big", i) for i in range(300)), ("after", 0)]
        options = {"exists": exists, "connections": connections}
        report = serialized(server, rows, "RPUSH {0} {1}", **options)
        assert (report.rows, report.replies) == (302, 302)
        assert numbers(client) == (list(range(300)) if exists == "replace" else [-5])
        assert report.failed == (300 if exists == "error" else 0)
        assert report.existing == (300 if exists == "skip" else 0)
        assert [error.row for error in report.errors] == list(range(1, 101))[: report.failed]
        assert set(report.errors_by_code) == ({"BUSYKEY"} if report.failed else set())
        assert client.exists("before", "after") == 2

    @pytest.mark.parametrize("exists", ["error", "skip"])
    def test_key_disappears(self, server: LocalServer, client: redis.Redis, exists: str) -> None:
        """Rows after a refused start do not create the key."""
        client.rpush("big", -5)

        def rows() -> Iterator[Command]:
            yield from pushes(150)
            client.delete("big")
            yield from pushes(300, 150)
            yield ("SADD", "after", 1)

        report = serialized(server, rows(), exists=exists)
        assert report.failed + report.existing == report.replies - 1 == 300
        assert report.failed >= 100
        assert client.exists("big") == 0
        assert client.scard("after") == 1

    def test_time_to_live(self, server: LocalServer, client: redis.Redis) -> None:
        """A refused start also leaves the time to live unchanged."""
        for exists, existing, failed in (("skip", 101, 0), ("error", 0, 101)):
            client.rpush("big", -5)
            data = [*pushes(100), ("EXPIRE", "big", 1000), ("SADD", "after", 1)]
            report = serialized(server, data, exists=exists)
            assert (report.existing, report.failed, report.replies) == (existing, failed, 102)
            assert client.ttl("big") == -1
            assert numbers(client) == [-5]
            client.flushall()
        report = serialized(server, data)
        assert (report.failed, client.llen("big"), client.scard("after")) == (0, 100, 1)
        assert 900 < client.ttl("big") <= 1000

    def test_refused_time_to_live_is_in_the_rejects(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        client.rpush("big", -5)
        seen: list[fastresp.CommandError] = []
        serialized(server, [*pushes(50), ("PEXPIRE", "big", 9000)], rejects=seen.append)
        assert [error.arguments for error in seen[-2:]] == [
            (b"RPUSH", b"big", b"49"),
            (b"PEXPIRE", b"big", b"9000"),
        ]
        assert {error.code for error in seen} == {"BUSYKEY"}


@pytest.mark.usefixtures("row_by_row")
class TestContinued:
    @pytest.mark.parametrize("exists", ["error", "replace", "skip"])
    def test_key_again(self, server: LocalServer, client: redis.Redis, exists: str) -> None:
        """A key that occurs again does not overwrite its start."""
        for between in (("EXPIRE", "other", 100), ("SADD", "other", 1)):
            client.flushall()
            data = [*pushes(100), between, *pushes(110, 100)]
            with pytest.raises(
                fastresp.EncodeError, match=r"row 0 and row 101 .* \"big\""
            ) as caught:
                serialized(server, data, exists=exists)
            assert numbers(client) == list(range(100))
            assert caught.value.report is not None
            assert caught.value.report.rows == 101

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            (("SADD", "big", 1), "made by commands that can't be combined"),
            (("LPUSH", "big", 1), "made by commands that can't be combined"),
            (("DEL", "big"), '"DEL" does not make'),
            (("RPUSH", "big"), '"RPUSH" has 0 arguments'),
            (("EXPIRE", "big", "x"), '"EXPIRE" needs one plain number'),
            (("EXPIRE", "big", 0), '"EXPIRE" needs one plain number'),
        ],
    )
    def test_what_is_refused(
        self, server: LocalServer, client: redis.Redis, command: Command, words: str
    ) -> None:
        """The same commands are refused as for small keys, and earlier rows stay."""
        for key in ("small", "big"):
            client.flushall()
            most = 100 if key == "big" else None
            data = [*pushes(80), (command[0], "big", *command[2:]), ("SADD", "after", 1)]
            with pytest.raises(fastresp.EncodeError, match="row 80") as caught:
                serialized(server, data, max_payload_bytes=most)
            assert words in str(caught.value)
            report = caught.value.report
            assert report is not None
            assert numbers(client) == list(range(80 if most else 0))
            assert (report.rows, report.replies) == ((80, 80) if most else (0, 0))
            assert client.exists("after") == 0

    @pytest.mark.few(1)
    @pytest.mark.parametrize("connections", [1, 3])
    def test_sorted_set(self, server: LocalServer, client: redis.Redis, connections: int) -> None:
        rows = [(n // 200, n / 3, n % 150) for n in range(1000)]
        options = {"connections": connections, "nulls": "skip"}
        report = serialized(server, rows, "ZADD z:{0} {1} {2}", **options)
        assert (report.replies, report.failed) == (1000, 0)
        for key in range(5):
            wanted = {b"%d" % (n % 150): n / 3 for n in range(200 * key, 200 * key + 200)}
            assert dict(client.zrange(f"z:{key}", 0, -1, withscores=True)) == wanted


def test_full_memory(server: LocalServer, client: redis.Redis) -> None:
    """Items acknowledged without an error are in the list."""
    client.config_set("maxmemory", client.info("memory")["used_memory"] + (6 << 20))
    try:
        data = [("RPUSH", "big", "x" * 1000)] * 20_000
        report = serialized(server, data, max_payload_bytes=1 << 20, max_errors=10**6)
    finally:
        client.config_set("maxmemory", 0)
    assert report.commands == report.replies == 20_000
    assert report.errors_by_code == {"OOM": report.failed}
    assert 0 < report.failed < 19_000
    assert client.llen("big") == 20_000 - report.failed


def test_memory_for_a_later_part(
    server: LocalServer, client: redis.Redis, monkeypatch: Any
) -> None:
    """Once memory is free again, the rest of the key is loaded, and counts are exact."""
    monkeypatch.setattr("fastresp.sources.source.CHUNK_BYTES", 1)

    def data() -> Iterator[Command]:
        yield from pushes(30)
        client.config_set("maxmemory", 0)
        yield from pushes(100, 30)

    client.config_set("maxmemory", 1)
    try:
        report = serialized(server, data(), max_errors=10**6)
    finally:
        client.config_set("maxmemory", 0)
    assert (report.replies, report.errors_by_code) == (100, {"OOM": report.failed})
    assert 0 < report.failed < 40
    assert numbers(client) == list(range(report.failed, 100))


class TestInterrupted:
    """CLIENT PAUSE delays the reply to RESTORE, so that the start of the key is in flight."""

    @pytest.mark.few(1)
    @pytest.mark.usefixtures("row_by_row")
    @pytest.mark.parametrize(("connections", "at"), [(1, 5), (3, 5), (3, 300)])
    def test_ctrl_c(
        self, server: LocalServer, client: redis.Redis, connections: int, at: int
    ) -> None:
        """Earlier rows are sent after the reply, not immediately over another connection."""

        def rows() -> Iterator[int]:
            for number in range(100_000):
                if number == at:
                    client.client_pause(200)
                    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
                yield number

        gc.disable()  # Python loses a KeyboardInterrupt in a callback during a collection
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                serialized(server, rows(), "RPUSH big {0}", connections=connections)
        finally:
            gc.enable()
        report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
        assert (report.in_doubt, report.rows) == (0, report.replies)
        assert at <= report.replies < 100_000
        assert numbers(client) == list(range(report.replies))

    def test_source_ends(self, server: LocalServer, client: redis.Redis) -> None:
        async def rows() -> AsyncIterator[Command]:
            for push in pushes(100):
                yield push
            client.client_pause(150)
            await asyncio.sleep(0.05)  # the start is sent
            for push in pushes(1000, 100):
                yield push
            yield ("SADD", "after", 1)

        report = insert_asyncio(rows(), server=server.url, mode=Serialize(max_bytes=100))
        assert (report.rows, report.replies) == (1001, 1001)
        assert numbers(client) == list(range(1000))
        assert client.scard("after") == 1

    @pytest.mark.usefixtures("row_by_row")
    def test_several_wait_when_the_source_raises(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        """Each start is answered before the next is sent, and none is skipped."""

        async def rows() -> AsyncIterator[Command]:
            for number in range(8):
                for item in range(4):
                    yield ("RPUSH", f"key:{number}", f"{item}" * 40)
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine") as caught:
            insert_asyncio(rows(), server=server.url, mode=Serialize(max_bytes=100))
        report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
        assert {client.llen(f"key:{number}") for number in range(7)} == {4}
        assert report.replies == report.rows >= 28

    def test_source_raises(self, server: LocalServer, client: redis.Redis) -> None:
        """Earlier rows are sent, except for a key that could have more rows."""

        async def rows() -> AsyncIterator[Command]:
            for push in pushes(100):
                yield push
            client.client_pause(150)
            await asyncio.sleep(0.05)
            for push in [*pushes(1000, 100), ("SADD", "open", 1)]:
                yield push
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine") as caught:
            insert_asyncio(rows(), server=server.url, mode=Serialize(max_bytes=100))
        report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
        assert (report.rows, report.replies) == (1000, 1000)
        assert numbers(client) == list(range(1000))
        assert client.exists("open") == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("pause_s", [0.0, 0.05])
    def test_no_reply(self, server: LocalServer, client: redis.Redis, pause_s: float) -> None:
        """The load ends after the timeout, and only the start is in doubt."""

        async def rows() -> AsyncIterator[Command]:
            client.client_pause(400)
            for push in pushes(100):
                yield push
            await asyncio.sleep(pause_s)
            for push in pushes(200_000, 100):
                yield push

        with pytest.raises(fastresp.TransportTimeout) as caught:
            insert_asyncio(rows(), server=server.url, mode=Serialize(max_bytes=100), timeout=0.2)
        report = caught.value.report
        assert report is not None
        assert (report.acknowledged, report.rows) == (0, report.in_doubt)
        assert 100 <= report.in_doubt < 100_000
        only_we_are_connected(client)
        assert client.llen("big") in (0, report.in_doubt)

    def test_source_is_not_read_ahead(self, server: LocalServer, client: redis.Redis) -> None:
        """While the start is unanswered, few rows are in memory."""
        early = 0

        async def rows() -> AsyncIterator[Command]:
            nonlocal early
            yield ("RPUSH", "big", "x" * 1000)
            client.client_pause(300)
            paused = time.monotonic()
            await asyncio.sleep(0.05)
            for number in range(30_000):
                early += time.monotonic() < paused + 0.25
                yield ("RPUSH", "big", number)

        report = insert_asyncio(rows(), server=server.url, mode=Serialize(max_bytes=100))
        assert (report.replies, client.llen("big")) == (30_001, 30_001)
        assert early < 3000


def test_bad_row_before_a_pause(server: LocalServer, client: redis.Redis) -> None:
    """The error of a row does not wait for the next row."""

    async def rows() -> AsyncIterator[Command]:
        for command in [*pushes(10), ("ZADD", "z", "bad", "m"), ("SADD", "s", 1)]:
            yield command
        await asyncio.sleep(30)

    started = time.monotonic()
    with pytest.raises(fastresp.EncodeError, match="row 10") as caught:
        insert_asyncio(rows(), server=server.url, mode="serialize")
    assert time.monotonic() - started < 10
    assert caught.value.report is not None
    assert caught.value.report.replies == 10
    assert client.keys() == [b"big"]


@pytest.mark.slow
def test_cancellation(server: LocalServer, client: redis.Redis) -> None:
    """Acknowledged rows are stored."""

    async def rows() -> AsyncIterator[Command]:
        for number in range(10**9):
            yield ("RPUSH", "big", number)
            if number % 1000 == 0:
                await asyncio.sleep(0.001)

    async def cancelled() -> fastresp.Report:
        load = fastresp.aio.mass_insert(rows(), server=server.url, mode=Serialize(max_bytes=1000))
        task = asyncio.create_task(load)
        await asyncio.sleep(0.15)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.report  # type: ignore[attr-defined,no-any-return]

    report = asyncio.run(cancelled())
    only_we_are_connected(client)
    stored = numbers(client)
    assert stored == list(range(len(stored)))
    assert report.acknowledged <= len(stored) <= report.acknowledged + report.in_doubt
