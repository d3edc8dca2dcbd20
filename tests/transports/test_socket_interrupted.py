"""Sources that fail, and interruptions: every command is accounted for."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import redis
from loads import Insert, commands, interrupted, running_load, whole_prefix
from waiting import until

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint, Options
from fastresp.transports.lane import Lane
from fastresp.transports.socket import SocketTransport


class SourceFailure(Exception):
    """An exception of the user."""


@pytest.mark.parametrize("failure", [SourceFailure("mine"), MemoryError()])
def test_source_raises(
    insert_any: Insert, server: LocalServer, client: redis.Redis, failure: Exception
) -> None:
    def fail() -> None:
        raise failure

    with pytest.raises(type(failure)) as caught:
        insert_any(commands(60_000, 50_001, fail), server=server.url)
    assert caught.value is failure
    assert failure.report.replies == failure.report.commands == 50_001  # type: ignore[attr-defined]
    assert "50,001 commands" in failure.__notes__[-1]
    assert "50,001 replies" in failure.__notes__[-1]
    assert client.dbsize() == 50_001


def test_source_that_lost_another_server(
    insert_any: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """The source may read from or load into it; the rows before the error are still loaded."""
    lost = fastresp.TransportError("lost the other server", fastresp.Report("socket", commands=7))

    def fail() -> None:
        raise lost

    with pytest.raises(fastresp.TransportError) as caught:
        insert_any(commands(6_000, 5_001, fail), server=server.url)
    assert caught.value is lost
    assert lost.report is not None
    assert lost.report.replies == lost.report.commands == 5_001
    assert client.dbsize() == 5_001


def test_source_whose_own_load_had_errors(insert: Insert, server: LocalServer) -> None:
    """The report of that load is kept; the outcome of this one is in a note."""
    inner = fastresp.LoadErrors(fastresp.Report("socket", commands=7, replies=7, failed=7))

    def fail() -> None:
        raise inner

    with pytest.raises(fastresp.LoadErrors, match="7 errors") as caught:
        insert(commands(6_000, 5_001, fail), server=server.url)
    assert caught.value is inner
    assert "5,001 replies, 0 errors" in inner.__notes__[0]


def test_interruption_leaves_no_connection_open(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interruption while one connection is closed: the others are still closed."""
    closed: list[Lane] = []
    detach = Lane.detach

    def interrupted(lane: Lane) -> None:
        detach(lane)
        closed.append(lane)
        if len(closed) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Lane, "detach", interrupted)
    options = Options(server=server.url, connections=3)
    with SocketTransport(options) as transport:
        with pytest.raises(KeyboardInterrupt):
            transport.kill()
        assert len(closed) == 3


def test_value_that_cannot_be_sent(
    insert_any: Insert, server: LocalServer, client: redis.Redis
) -> None:
    rows = [{"id": i, "name": "x" if i != 1234 else object()} for i in range(2000)]
    with pytest.raises(fastresp.EncodeError, match=r"row 1,234") as caught:
        insert_any(rows, "HSET user:{id} name {name}", server=server.url)
    assert (caught.value.row, caught.value.argument) == (1234, 3)
    assert caught.value.report.replies == 1234
    assert client.dbsize() == 1234


def test_value_larger_than_the_server_accepts(
    insert_any: Insert, server: LocalServer, client: redis.Redis
) -> None:
    client.config_set("proto-max-bulk-len", 1 << 20)
    rows = [("a", 1), ("b", "x" * (1 << 20)), ("c", "x" * ((1 << 20) + 1)), ("d", 1)]
    try:
        for kind in (str, str.encode, lambda s: bytearray(s.encode()), lambda s: s + "é"):
            data = [(k, kind(v) if k == "c" else v) for k, v in rows]
            with pytest.raises(fastresp.EncodeError, match=r"row 2 .*proto-max-bulk-len") as caught:
                insert_any(data, "SET {0} {1}", server=server.url)
            assert (caught.value.row, caught.value.argument) == (2, 2)
            assert client.strlen("b") == 1 << 20
            assert sorted(client.keys("*")) == [b"a", b"b"]
        with pytest.raises(fastresp.EncodeError, match=r"row 1 .*argument 2"):
            insert_any(rows, "SET {0} -{1}", server=server.url)
    finally:
        client.config_set("proto-max-bulk-len", 512 << 20)


def test_source_raises_after_the_server_is_lost(
    insert_any: Insert, start_server: Callable[..., LocalServer]
) -> None:
    server = start_server()

    def fail() -> None:
        server.stop()
        raise SourceFailure

    with pytest.raises(SourceFailure) as caught:
        insert_any(commands(400_000, 300_000, fail), server=server.url)
    assert "lost the connection" in "".join(caught.value.__notes__)


# Transports and modes of loads in other processes.
HOW = [("socket", "commands"), ("socket", "merge"), ("redis-cli", "commands")]


def wait_until_gone(children: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


@pytest.mark.few(3)
@pytest.mark.parametrize(("transport", "mode"), HOW)
@pytest.mark.parametrize("attempt", range(10))
def test_ctrl_c(
    server: LocalServer, client: redis.Redis, attempt: int, transport: str, mode: str
) -> None:
    """SIGINT to the whole process group, as a terminal sends it."""
    child = running_load(server.url, transport, 10_000 + 7919 * attempt, mode)
    started = psutil.Process(child.pid).children()
    os.killpg(child.pid, signal.SIGINT)
    acknowledged, doubt = interrupted(child)
    wait_until_gone(started)
    assert (whole_prefix(client), doubt) == (acknowledged, 0)


@pytest.mark.parametrize("transport", ["socket", pytest.param("redis-cli", marks=pytest.mark.slow)])
def test_second_ctrl_c_does_not_wait(
    start_server: Callable[..., LocalServer], transport: str
) -> None:
    """The first waits for a frozen server, the second ends the load immediately."""
    server = start_server()
    child = running_load(server.url, transport, 10_000)
    started = psutil.Process(child.pid).children()
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=10)
    wait_until_gone(started)


@pytest.mark.few(2)
@pytest.mark.parametrize(("transport", "mode"), HOW)
@pytest.mark.parametrize("attempt", range(5))
def test_killed_without_warning(
    server: LocalServer, client: redis.Redis, attempt: int, transport: str, mode: str
) -> None:
    """kill -9 of the loading process: the server got whole commands only, and redis-cli ends."""
    before = client.info("clients")["connected_clients"]
    child = running_load(server.url, transport, 10_000 + 7919 * attempt, mode)
    started = psutil.Process(child.pid).children()
    child.kill()
    child.communicate(timeout=30)
    wait_until_gone(started)
    until(lambda: client.info("clients")["connected_clients"] <= before, 10)
    assert whole_prefix(client) > (10_000 if transport == "redis-cli" else 0)


@pytest.mark.parametrize(
    "failure", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit]
)
@pytest.mark.parametrize("transport", ["redis-cli", "socket"])
def test_source_raises_what_ends_a_task(
    server: LocalServer, client: redis.Redis, transport: str, failure: type[BaseException]
) -> None:
    """Without an event loop it is an exception like any other."""

    def rows() -> Iterator[tuple[str, str, int]]:
        yield from (("SET", f"key:{i}", i) for i in range(5))
        raise failure

    with pytest.raises(failure) as caught:
        fastresp.mass_insert(rows(), server=server.url, transport=transport)  # type: ignore[arg-type]
    assert client.dbsize() == caught.value.report.replies == 5  # type: ignore[attr-defined]
    with pytest.raises(failure), fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.push(row[2] for row in rows())
    assert client.llen("q") == 5


@pytest.mark.parametrize("failure", [GeneratorExit, SystemExit])
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("template", ["SET key:{0} {1}", "INCRBY key:{0} {1}"])
def test_source_raises_what_ends_a_task_with_a_checkpoint(
    server: LocalServer,
    client: redis.Redis,
    template: str,
    observed: bool,
    failure: type[BaseException],
) -> None:
    def rows(*, whole: bool) -> Iterator[tuple[int, int]]:
        yield from ((i, i) for i in range(5))
        if not whole:
            raise failure
        yield 5, 5

    def load(*, whole: bool, resume: bool) -> fastresp.Report:
        return fastresp.mass_insert(
            rows(whole=whole),
            template,
            server=server.url,
            metrics=[].append if observed else None,
            checkpoint=Checkpoint("load", source_id="rows", resume=resume),
        )

    with pytest.raises(failure) as caught:
        load(whole=False, resume=False)
    assert caught.value.report.rows == 5  # type: ignore[attr-defined]
    report = load(whole=True, resume=True)
    assert (report.resumed_at, report.rows) == (5, 1)
    assert [client.get(f"key:{i}") for i in range(6)] == [b"%d" % i for i in range(6)]


def test_transport_in_a_generator_that_is_closed(server: LocalServer, client: redis.Redis) -> None:
    def load() -> Iterator[None]:
        with fastresp.RedisCli(server.url) as cli:
            cli.write(fastresp.pack("SET", "a", 1))
            yield
            cli.write(fastresp.pack("SET", "b", 1))
            yield

    loading = load()
    next(loading)
    next(loading)
    loading.close()
    assert client.dbsize() == 2
