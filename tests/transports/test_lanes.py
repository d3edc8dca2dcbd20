"""Loads over several connections: nothing is missing, errors have rows, losses are reported."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from loads import VALUE, Insert, insert_sync
from waiting import only_we_are_connected, until

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import MAX_CONNECTIONS, Options
from fastresp.transports.driver import Steps
from fastresp.transports.socket import SocketTransport

SET = "SET key:{0} {1}"
ROWS = 200_000
# The last commands of a connection that a load has opened.
LOADS = ("set", "mset", "rpush", "NULL")


def rows(
    count: int = ROWS, at: int | None = None, happening: Callable[[], object] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield rows with distinct keys; call ``happening`` before one of them."""
    for i in range(count):
        if i == at and happening is not None:
            happening()
        yield i, VALUE


def loaders(client: redis.Redis) -> list[str]:
    """The IDs of the load's connections."""
    return [each["id"] for each in client.client_list() if each["cmd"] in LOADS]


def rows_until_killed(client: redis.Redis, which: int) -> Iterator[tuple[int, str]]:
    """Yield rows; after half of them, kill a connection that has commands in flight.

    If an idle connection is lost, the load continues without it. So the
    server is paused until a command of the connection waits.
    """
    killed = False
    for i, row in enumerate(rows()):
        if i == ROWS // 2:
            client.client_pause(10_000, all=False)
            time.sleep(0.05)
        if i >= ROWS // 2 and i % 100 == 0 and not killed:
            lanes = [each for each in client.client_list() if each["cmd"] in LOADS]
            lane = sorted(lanes, key=lambda each: int(each["id"]))[which]
            if "b" in lane["flags"]:
                client.client_kill_filter(_id=lane["id"])
                client.client_unpause()
                killed = True
        yield row


def test_everything_arrives(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    report = insert_singly(rows(), SET, server=server.url, connections=4)
    assert (report.rows, report.commands, report.replies, report.failed) == (ROWS,) * 3 + (0,)
    assert (report.in_doubt, report.unsent, report.connections) == (0, 0, 4)
    assert report.bytes_sent == len(fastresp.pack_many(("SET", f"key:{i}", v) for i, v in rows()))
    assert "over socket, 4 connections" in str(report)
    assert client.dbsize() == ROWS
    assert set(client.mget([f"key:{i}" for i in range(0, ROWS, 7)])) == {VALUE.encode()}


def test_all_connections_take_part(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.extend(each["id"] for each in client.client_list() if each["cmd"] in ("set", "mset"))

    insert(rows(ROWS, ROWS - 1, look), SET, server=server.url, connections=3)
    assert len(seen) == 3


def test_columns(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    table = pa.table({"id": range(ROWS), "name": [f"name {i}" for i in range(ROWS)]})
    report = insert(table, "HSET user:{id} {**}", server=server.url, connections=3)
    assert (report.rows, report.replies, client.dbsize()) == (ROWS, ROWS, ROWS)
    assert client.hgetall("user:177777") == {b"name": b"name 177777"}


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("connections", [2, 7])
def test_commands_of_a_key_stay_in_order(
    insert: Insert, server: LocalServer, client: redis.Redis, connections: int, mode: str
) -> None:
    data = ((i % 101, i) for i in range(ROWS))
    report = insert(
        data, "RPUSH list:{0} {1}", server=server.url, connections=connections, mode=mode
    )
    assert (report.rows, report.replies) == (ROWS, ROWS)
    for key in range(101):
        stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
        assert stored == [*range(key, ROWS, 101)]


def test_order_after_connections_were_closed_unused(
    start_server: Callable[..., LocalServer],
) -> None:
    """Another connection takes over the keys of a lost one, even repeatedly."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:

        def slow_rows() -> Iterator[tuple[int, int]]:
            for i in range(400):
                if i in (100, 200, 300):
                    time.sleep(0.05)
                    client.client_kill_filter(_id=max(loaders(client), key=int))
                time.sleep(0.001)
                yield i % 20, i

        report = insert_sync(slow_rows(), "RPUSH {0} {1}", server=server.url, connections=4)
        assert (report.replies, report.in_doubt) == (400, 0)
        for key in range(20):
            assert [int(item) for item in client.lrange(str(key), 0, -1)] == [*range(key, 400, 20)]


def test_unknown_commands_stay_in_order(start_server: Callable[..., LocalServer]) -> None:
    """MY.SET is unknown, so it is routed by its first argument, and runs before EXPIRE."""
    server = start_server("--rename-command", "SET", "MY.SET")
    with redis.Redis.from_url(server.url) as client:
        report = insert_sync(
            ((i,) for i in range(50_000)), "MY.SET {0} 1; EXPIRE {0} 1000",
            server=server.url, connections=4,
        )  # fmt: skip
        assert (report.replies, report.failed) == (100_000, 0)
        assert client.info("keyspace")["db0"]["expires"] == 50_000


@pytest.mark.parametrize("template", ["SELECT {0}; SET {1} 1", "WATCH w; MULTI; SET {0} 1; EXEC"])
def test_commands_about_the_connection(
    server: LocalServer, client: redis.Redis, template: str
) -> None:
    with pytest.raises(ValueError, match="must stay in order on one connection"):
        insert_sync([(1, 2)], template, server=server.url, connections=2)
    assert client.dbsize() == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("keys", [1, 1000])
def test_rate_limit_reads_little_ahead(server: LocalServer, keys: int) -> None:
    read = 0

    def counted() -> Iterator[tuple[int, str]]:
        nonlocal read
        for i in range(10**9):
            read = i
            if i == 6_000:
                raise ArithmeticError
            yield i % keys, VALUE

    with pytest.raises(ArithmeticError):
        insert_sync(counted(), SET, server=server.url, connections=2, rate_limit=10_000)
    with pytest.raises(KeyboardInterrupt) as caught:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        insert_sync(rows(10**9) if keys > 1 else (("1", VALUE) for _ in range(10**9)), SET,
                    server=server.url, connections=2, rate_limit=1_000)  # fmt: skip
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert report.commands + report.unsent < 8_000


def test_nothing_is_lost_with_the_connections(start_server: Callable[..., LocalServer]) -> None:
    """Rows before a pause of an async source are counted when all connections are lost."""
    server = start_server()
    given = 0

    async def source(client: redis.Redis) -> AsyncIterator[tuple[int, str]]:
        nonlocal given
        yield 0, VALUE
        await asyncio.sleep(0.05)
        client.client_kill_filter(_type="normal", skipme=True)
        for i in range(1, 501):
            given = i
            yield i, VALUE
        await asyncio.sleep(0.2)

    async def load(client: redis.Redis) -> fastresp.Report:
        return await fastresp.aio.mass_insert(source(client), SET, server=server.url, connections=2)

    with redis.Redis.from_url(server.url) as client:
        with pytest.raises(fastresp.TransportError) as caught:
            asyncio.run(load(client))
        report = caught.value.report
        assert report is not None
        assert report.acknowledged == client.dbsize()
        assert report.acknowledged + report.in_doubt + report.unsent >= given


def test_errors_have_their_rows(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """Two commands per row, with some rows skipped; every thousandth key is a list."""
    wrong = range(0, ROWS // 2, 1000)
    for i in wrong:
        client.lpush(f"key:{i}", 1)
    data = ({"id": None if i % 7 == 3 and i % 1000 else i, "n": i} for i in range(ROWS // 2))
    left = [i for i in range(ROWS // 2) if i % 7 != 3 or i % 1000 == 0]
    template = ["INCRBY key:{id} {n}", "PING {id}"]
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(
            data, template, server=server.url, connections=4, nulls="skip",
            rejects=tmp_path / "rejects",
        )  # fmt: skip
    report = caught.value.report
    assert (report.failed, report.replies, report.commands) == (len(wrong), *(2 * len(left),) * 2)
    assert report.rows == ROWS // 2
    rejects = [json.loads(line) for line in (tmp_path / "rejects").read_text().splitlines()]
    place = {row: 2 * index for index, row in enumerate(left)}
    listed = sorted((each["row"], each["command"], each["arguments"]) for each in rejects)
    assert listed == [(i, place[i], ["INCRBY", f"key:{i}", str(i)]) for i in wrong]


def test_rows_of_errors_after_a_second_writer(server: LocalServer) -> None:
    """Rows are counted across several Writers."""
    with SocketTransport(Options(server=server.url, connections=3)) as transport:
        for _ in range(5):
            for chunk in fastresp.Writer(chunk_bytes=100).chunks([("PING",)] * 20 + [("BAD",)]):
                transport.write(chunk)
    errors = sorted((error.index, error.row) for error in transport.report.errors)
    assert errors == [(20 + 21 * i, 20 + 21 * i) for i in range(5)]


def test_stop_at_the_first_error(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    client.lpush("key:50000", 1)
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(
            ((i, 1) for i in range(10_000_000)), "INCRBY key:{0} {1}",
            server=server.url, connections=4, on_error="stop",
        )  # fmt: skip
    report = caught.value.report
    assert report.stopped.startswith("stopped at the first error reply")
    assert (report.failed, report.in_doubt) == (1, 0)
    assert report.replies == report.commands < 500_000
    assert report.errors[0].row == 50_000
    assert client.dbsize() == report.commands


@pytest.mark.parametrize("which", [0, 2])
def test_one_connection_is_lost(
    insert: Insert, server: LocalServer, client: redis.Redis, which: int
) -> None:
    """Wait for the replies of the others; only the lost one's commands in flight are in doubt."""
    with pytest.raises(fastresp.TransportError, match="lost the connection to") as caught:
        insert(rows_until_killed(client, which), SET, server=server.url, connections=3)
    report = caught.value.report
    assert report is not None
    assert report.in_doubt < report.acknowledged < ROWS
    assert report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt
    assert "a new connection works" in str(caught.value)
    assert loaders(client) == []


def test_only_the_lost_one_is_in_doubt(server: LocalServer, client: redis.Redis) -> None:
    with (
        pytest.raises(fastresp.TransportError),
        SocketTransport(Options(server=server.url, connections=3)) as transport,
    ):
        writer = fastresp.Writer(fastresp.Template(SET))
        for chunk in writer.chunks(rows_until_killed(client, 1)):
            transport.write(chunk)
    doubts = [lane.window.in_doubt for lane in transport.lanes.lanes]
    assert sum(doubt > 0 for doubt in doubts) <= 1
    assert sum(doubts) == transport.report.in_doubt


def test_server_is_killed(insert: Insert, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    kill = server.process.kill
    with pytest.raises(fastresp.TransportError, match="a new connection failed") as caught:
        insert(rows(ROWS, ROWS // 2, kill), SET, server=server.url, connections=3)
    report = caught.value.report
    assert report is not None
    assert 0 < report.acknowledged <= report.acknowledged + report.in_doubt < ROWS


@pytest.mark.few(1)
def test_frozen_server(insert: Insert, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    freeze = lambda: os.kill(server.process.pid, signal.SIGSTOP)  # noqa: E731
    with pytest.raises(fastresp.TransportTimeout) as caught:
        insert(rows(ROWS, ROWS // 2, freeze), SET, server=server.url, connections=3, timeout=1.0)
    os.kill(server.process.pid, signal.SIGCONT)
    report = caught.value.report
    assert report is not None
    assert report.in_doubt + report.unsent > 0
    with redis.Redis.from_url(server.url) as client:
        stored = client.dbsize()
    assert report.acknowledged <= stored <= report.acknowledged + report.in_doubt


def test_source_raises(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Whole commands are still sent over all connections, and answered."""

    def fail() -> None:
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError) as caught:
        insert(rows(ROWS, ROWS - 10, fail), SET, server=server.url, connections=3)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert report.acknowledged == report.commands == client.dbsize() == ROWS - 10


def test_interrupted(server: LocalServer, client: redis.Redis) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        insert_sync(rows(ROWS, ROWS // 2, interrupt), SET, server=server.url, connections=3)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.in_doubt, report.unsent) == (0, 0)
    assert ROWS // 4 < report.acknowledged == client.dbsize() <= ROWS // 2


def test_cancelled(server: LocalServer, client: redis.Redis) -> None:
    async def main() -> fastresp.Report:
        loading = asyncio.create_task(
            fastresp.aio.mass_insert(rows(10**9), SET, server=server.url, connections=3)
        )
        while client.dbsize() < 10_000:
            await asyncio.sleep(0.01)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await loading
        report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
        return report

    report = asyncio.run(main())
    assert 0 < report.acknowledged <= report.commands
    until(lambda: not loaders(client), 10)


@pytest.mark.few(1)
@pytest.mark.parametrize(("rate", "count", "connections"), [(2000, 3000, 3), (500, 500, 40)])
def test_rate_limit(
    insert: Insert, server: LocalServer, rate: int, count: int, connections: int
) -> None:
    """The limit applies to all connections together, without fixed shares."""
    report = insert(rows(count), SET, server=server.url, connections=connections, rate_limit=rate)
    assert report.replies == count
    # With a fixed share for each of 40 connections, it would take 10 times as long; a busy machine
    # takes twice as long.
    assert 0.9 * count / rate < report.seconds < 8 * count / rate


@pytest.mark.few(1)
def test_connections_that_the_server_closes_unused(
    insert: Insert, start_server: Callable[..., LocalServer]
) -> None:
    """They are idle, so the load continues without them."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        idle = lambda: [client.client_kill_filter(_id=each) for each in loaders(client)[1:]]  # noqa: E731

        def slow_rows() -> Iterator[tuple[int, str]]:
            for i in range(300):
                if i == 150:
                    idle()
                time.sleep(0.003)
                yield i, VALUE

        report = insert(slow_rows(), SET, server=server.url, connections=3)
        assert (report.replies, report.in_doubt, client.dbsize()) == (300, 0, 300)


def test_connections_closed_unused_while_an_async_source_pauses(
    start_server: Callable[..., LocalServer],
) -> None:
    """The load continues without them, even if they are closed during a pause."""
    server = start_server()

    async def pausing_rows(client: redis.Redis) -> AsyncIterator[tuple[int, str]]:
        for i in range(20):
            if i == 10:
                await asyncio.sleep(0.05)
                own = str(client.client_id())
                ids = [each["id"] for each in client.client_list() if each["id"] != own]
                assert len(ids) == 3
                for each in ids[1:]:
                    client.client_kill_filter(_id=each)
            if i >= 10:
                await asyncio.sleep(0.05)
            yield i, VALUE

    async def load(client: redis.Redis) -> fastresp.Report:
        return await fastresp.aio.mass_insert(
            pausing_rows(client), SET, server=server.url, connections=3
        )

    with redis.Redis.from_url(server.url) as client:
        report = asyncio.run(load(client))
        assert (report.replies, report.in_doubt, client.dbsize()) == (20, 0, 20)


def test_one_connection_is_dead(server: LocalServer, client: redis.Redis) -> None:
    """This is detected after the timeout, while the others continue, not at the end."""

    def slow_rows() -> Iterator[tuple[int, str]]:
        for i in range(100_000):
            time.sleep(0.001)
            yield i, VALUE

    class Deaf(SocketTransport):
        def connecting(self) -> Steps[None]:
            yield from super().connecting()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            stream = self.lanes.lanes[1].stream
            assert stream is not None
            os.dup2(ours.fileno(), stream.fileno())
            self.ends = (ours, theirs)

    started = time.monotonic()
    with (
        pytest.raises(fastresp.TransportTimeout),
        Deaf(Options(server=server.url, connections=3, timeout=0.5)) as transport,
    ):
        for chunk in fastresp.Writer(fastresp.Template(SET)).chunks(slow_rows()):
            transport.write(chunk)
    assert time.monotonic() - started < 10
    report = transport.report
    assert report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt
    assert 0 < report.in_doubt < report.acknowledged


def test_callable_that_raises(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    def refuse(error: fastresp.CommandError) -> None:
        raise ArithmeticError(error.row)

    client.lpush("key:100000", 1)
    with pytest.raises(ArithmeticError) as caught:
        insert(
            ((i, 1) for i in range(ROWS)), "INCRBY key:{0} {1}",
            server=server.url, connections=3, rejects=refuse,
        )  # fmt: skip
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (caught.value.args, report.in_doubt) == ((100_000,), 0)
    assert report.acknowledged == client.dbsize()


def test_tls(insert: Insert, tls: Callable[..., str], tls_server: LocalServer) -> None:
    report = insert(rows(50_000), SET, server=tls(), connections=3)
    assert (report.replies, report.connections) == (50_000, 3)
    with redis.Redis.from_url(tls_server.url) as client:
        assert client.dbsize() == 50_000


def test_async_source_that_pauses(server: LocalServer, client: redis.Redis) -> None:
    client.lpush("key:20000", 1)

    async def slow_rows() -> Any:
        for i in range(60_000):
            if i % 10_000 == 9_999:
                await asyncio.sleep(0.1)
            yield i, 1
        await asyncio.sleep(60)

    async def main() -> None:
        await fastresp.aio.mass_insert(
            slow_rows(), "INCRBY key:{0} {1}", server=server.url, connections=3, on_error="stop"
        )

    started = time.monotonic()
    with pytest.raises(fastresp.LoadErrors) as caught:
        asyncio.run(main())
    assert time.monotonic() - started < 30  # does not wait for the source
    assert caught.value.report.errors[0].row == 20_000
    assert caught.value.report.in_doubt == 0


def test_server_accepts_fewer_connections(
    insert: Insert, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server("--maxclients", "4")
    with redis.Redis.from_url(server.url) as client:
        client.ping()
        with pytest.raises(fastresp.TransportError, match="max number of clients"):
            insert(rows(10), SET, server=server.url, connections=8)
        assert client.dbsize() == 0
        only_we_are_connected(client)


@pytest.mark.parametrize("connections", [0, -1, MAX_CONNECTIONS + 1, 2.0, "3", None])
def test_invalid_number_of_connections(insert: Insert, connections: Any) -> None:
    with pytest.raises(ValueError, match="connections must be a whole number from 1 to 64, not"):
        insert(rows(1), SET, server="redis://127.0.0.1:1", connections=connections)


@pytest.mark.parametrize(
    ("data", "template"), [([("SET", "a", 1)], None), ([{"name": "SET"}], "{name} a 1")]
)
def test_command_names_from_the_data(insert: Insert, data: Any, template: Any) -> None:
    with pytest.raises(ValueError, match="leave out connections="):
        insert(data, template, server="redis://127.0.0.1:1", connections=2)


def test_resp_file(insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path):
    path = tmp_path / "x.resp"
    fastresp.dump(rows(), SET, path)
    report = insert(fastresp.read(path), server=server.url, connections=2)
    assert report.replies == client.dbsize() == ROWS
    for command, names in ((("MULTI",), "EXEC, MULTI"), (("FLUSHALL",), "EXEC, FLUSHALL")):
        fastresp.dump([command, ("SET", "a", 1), ("exec",)], None, path)
        with pytest.raises(ValueError, match=f"before and after {names} must stay in order"):
            insert(fastresp.read(path), server=server.url, connections=2)
    read, write = os.pipe()
    os.close(write)
    with open(read, "rb") as pipe, pytest.raises(ValueError, match="can be read only once; give"):
        insert(fastresp.read(pipe, format="resp"), server=server.url, connections=2)


def test_transactions_within_a_row(insert: Insert, server: LocalServer) -> None:
    template = ["MULTI", "SET key:{0} {1}", "INCR n", "EXEC"]
    report = insert(rows(20_000), template, server=server.url, connections=4)
    assert (report.replies, report.failed) == (80_000, 0)


def test_redis_cli_opens_one_connection() -> None:
    """Refused before the source is opened."""
    with pytest.raises(
        ValueError, match="can't open more than one connection; use transport='socket'"
    ):
        fastresp.mass_insert("no.csv", SET, connections=2, transport="redis-cli")


def test_memory_of_the_window_is_shared(server: LocalServer) -> None:
    """With any number of connections, memory does not grow with the load."""
    with SocketTransport(Options(server=server.url, connections=8)) as transport:
        windows = [lane.window for lane in transport.lanes.lanes]
        assert sum(window.max_bytes for window in windows) <= 16 << 20
        writer = fastresp.Writer(fastresp.Template(SET))
        for chunk in writer.chunks(rows(ROWS)):
            transport.write(chunk)
            held = [sending.chunk.memory for window in windows for sending in window.held]
            # Each may exceed its limit by the chunk that fills it.
            assert sum(held) < (16 << 20) + 8 * 700_000


def test_threads_do_not_disturb_one_another(server: LocalServer, client: redis.Redis) -> None:
    reports: list[fastresp.Report] = []

    def load(name: str) -> None:
        command = f"SET {name}:{{0}} {{1}}"
        reports.append(insert_sync(rows(30_000), command, server=server.url, connections=2))

    threads = [threading.Thread(target=load, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.replies for report in reports] == [30_000] * 3
    assert client.dbsize() == 90_000
