"""ListBuffer in a cluster, sync and asyncio: the node of the list dies during a call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Awaited, numbers
from local_cluster import LocalCluster
from moving_lists import KEY, holder
from server_programs import need

import fastresp
import fastresp.aio
from fastresp.lists.push import PushedRows
from fastresp.resp.split import CommandSplitter

FORMS = [fastresp.ListBuffer, Awaited]


@pytest.fixture
def replicated() -> Iterator[LocalCluster]:
    need("server")
    with LocalCluster(3, 1) as cluster:
        cluster.until_synced()
        yield cluster


@contextmanager
def opened(form: Any, cluster: LocalCluster, **options: Any) -> Iterator[Any]:
    buffer = form(KEY, **({"server": cluster.url} | options))
    try:
        yield buffer
    finally:
        buffer.close()
        if isinstance(buffer, Awaited):
            buffer.loop.close()


def kill(cluster: LocalCluster, *, in_doubt: bool) -> threading.Timer | None:
    """Kill the node of the list; if ``in_doubt``, commands sent now are never answered."""
    at = holder(cluster)
    assert cluster.clients[at].wait(1, 10_000) == 1
    node = cluster.nodes[at]
    if not in_doubt:
        node.process.kill()
        node.process.wait()
        return None
    os.kill(node.process.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, node.process.kill)
    timer.start()
    return timer


def stored(cluster: LocalCluster) -> Any:
    """Return the list, as stored on the new primary."""
    deadline = time.monotonic() + 30
    while True:
        for client in cluster.clients:
            try:
                return client.lrange(KEY, 0, -1)
            except redis.RedisError:
                assert time.monotonic() < deadline
        time.sleep(0.05)


def call(buffer: Any, name: str) -> Any:
    if name == "len":
        return len(buffer)
    if name == "pop_arrow":
        return pa.array(buffer.pop_arrow(5)).to_pylist()
    if name == "consume":
        return list(buffer.consume(max_items=5, block=20.0))
    if name == "drain":
        return next(iter(buffer.drain()))
    return {
        "push": lambda: buffer.push(numbers(5, 20)).length, "pop": lambda: buffer.pop(5),
        "clear": lambda: buffer.clear(), "recover": lambda: buffer.recover(),
        "ack": lambda: buffer.ack(2),
    }[name]()  # fmt: skip


ANSWERS: dict[str, Any] = {
    "push": 20, "pop": numbers(5, 5), "pop_arrow": numbers(5, 5), "consume": numbers(5, 5),
    "drain": numbers(15, 5), "len": 15, "clear": None, "recover": 0, "ack": 3,
}  # fmt: skip


@pytest.mark.few(0)
@pytest.mark.parametrize("form", FORMS, ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("delivery", "name"),
    [
        (each, name)
        for each in DELIVERIES
        for name in ANSWERS
        if (each, name) != (DELIVERIES[0], "ack")
    ],
)
def test_node_that_died(replicated: LocalCluster, form: Any, delivery: str, name: str) -> None:
    """The next call waits for the replica to take over: its commands were not sent."""
    with opened(form, replicated, delivery=delivery) as buffer:
        buffer.push(numbers(20))
        assert buffer.pop(5) == numbers(5)
        kill(replicated, in_doubt=False)
        assert call(buffer, name) == ANSWERS[name]
        if name == "push":
            assert buffer.pop(30) == [*numbers(15, 5), *numbers(5, 20)]


SAFE = [("at-least-once", name) for name in ANSWERS if name != "push"]


@pytest.mark.few(0)
@pytest.mark.parametrize(
    ("delivery", "name"), [*SAFE, ("at-most-once", "len"), ("at-most-once", "clear")]
)
def test_idempotent_commands_in_doubt(replicated: LocalCluster, delivery: str, name: str) -> None:
    with opened(fastresp.ListBuffer, replicated, delivery=delivery) as buffer:
        buffer.push(numbers(20))
        assert buffer.pop(5) == numbers(5)
        timer = kill(replicated, in_doubt=True)
        assert call(buffer, name) == ANSWERS[name]
        assert timer is not None
        timer.join()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("maxlen", [None, 1000])
def test_push_in_doubt_is_an_error(
    replicated: LocalCluster, delivery: str, maxlen: int | None
) -> None:
    """Nothing is pushed twice."""
    with opened(fastresp.ListBuffer, replicated, delivery=delivery, maxlen=maxlen) as buffer:
        buffer.push(numbers(20))
        timer = kill(replicated, in_doubt=True)
        with pytest.raises(fastresp.TransportError, match="in doubt") as caught:
            buffer.push(numbers(5, 20))
        report = caught.value.report
        assert report is not None
        count = 4 if maxlen else 1
        assert (report.commands, report.replies, report.in_doubt) == (count, 0, count)
        assert timer is not None
        timer.join()
        assert buffer.push(numbers(5, 20)).report.rows == 5
        assert stored(replicated) == numbers(25)


@pytest.mark.parametrize("name", ["pop", "pop_arrow", "consume", "drain"])
def test_pop_in_doubt(replicated: LocalCluster, name: str) -> None:
    """With at-most-once it is an error: the items may be gone."""
    with opened(fastresp.ListBuffer, replicated) as buffer:
        buffer.push(numbers(20))
        assert buffer.pop(5) == numbers(5)
        timer = kill(replicated, in_doubt=True)
        with pytest.raises(fastresp.TransportError, match="in doubt"):
            call(buffer, name)
        assert timer is not None
        timer.join()
        assert buffer.pop(20) == numbers(15, 5)


@pytest.mark.slow
def test_push_of_an_async_source(replicated: LocalCluster) -> None:
    """The node dies while the source pauses."""

    async def items() -> AsyncIterator[bytes]:
        for i in range(3_000):
            if i == 1_500:
                await asyncio.sleep(0.5)  # until all earlier items are pushed
                kill(replicated, in_doubt=False)
            yield b"%d" % i

    async def push() -> Any:
        async with fastresp.aio.ListBuffer(KEY, server=replicated.url, batch=100) as buffer:
            return await buffer.push(items())

    pushed = asyncio.run(push())
    assert (pushed.report.rows, pushed.length, pushed.report.failed) == (3_000, 3_000, 0)
    assert pushed.report.commands == pushed.report.replies
    assert (pushed.report.unsent, pushed.report.in_doubt) == (0, 0)
    assert stored(replicated) == numbers(3_000)


@pytest.mark.few(0)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_no_replica_takes_over(delivery: str) -> None:
    """The call ends after the timeout, and so does the next one."""
    with LocalCluster() as cluster:
        buffer = fastresp.ListBuffer(KEY, server=cluster.url, delivery=delivery, timeout=1)
        buffer.push(numbers(20))
        at = holder(cluster)
        cluster.nodes[at].process.kill()
        cluster.nodes[at].process.wait()
        words = r"the slot of the list '{q}' could not be used for 1 s;"
        for name in ("pop", "push"):
            with pytest.raises(fastresp.TransportError, match=words) as caught:
                call(buffer, name)
        report = caught.value.report
        assert report is not None
        assert (report.commands, report.replies, report.in_doubt) == (0, 0, 0)
        buffer.close()


def test_rows_that_were_not_sent() -> None:
    """They are resent together, and don't count as refused."""
    rows = PushedRows(1)
    commands = [fastresp.pack("RPUSH", "q", str(i)) for i in range(4)]
    chunk = CommandSplitter().feed(b"".join(commands))
    assert chunk is not None
    rows.add(chunk)
    assert rows.accept() == 0
    rows.keep_unsent()
    assert (rows.refused, rows.refusals) == ([1, 2, 3], 0)
    assert bytes(rows.resend_chunk()) == b"".join(commands[1:])
    assert [rows.accept() for _ in range(3)] == [1, 2, 3]
    assert not rows.overtaken
