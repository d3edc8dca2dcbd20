"""ListBuffer in a cluster, sync and asyncio: it finds and follows the owner of its list."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Awaited, Open, numbers
from command_line import run
from local_cluster import LocalCluster, free_port
from moving_lists import KEY, move, moving, moving_once
from waiting import until

import fastresp
import fastresp.aio

ITEMS = 20_000


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("at", range(3))
def test_all_calls_from_any_node(
    open_buffer: Open,
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    at: int,
    delivery: str,
) -> None:
    url = f"redis://127.0.0.1:{cluster.ports[at]}"
    buffer = open_buffer(server=url, delivery=delivery, batch=10)
    pushed = buffer.push(numbers(100))
    assert (pushed.length, pushed.report.rows) == (100, 100)
    assert len(buffer) == 100
    assert buffer.pop(25) == numbers(25)
    assert pa.array(buffer.pop_arrow(15)).to_pylist() == numbers(15, 25)
    assert list(buffer.consume(max_items=20)) == numbers(20, 40)
    if delivery == "at-least-once":
        assert buffer.ack(30) == 30
        assert buffer.acknowledged == 30
    assert buffer.recover() == 0
    assert [item for items in buffer.drain() for item in items] == numbers(40, 60)
    assert list(buffer.consume(block=0.05)) == []
    buffer.close()
    left = numbers(70, 30) if delivery == "at-least-once" else []
    assert cluster_client.lrange(KEY, 0, -1) == left
    assert sum(cluster.sizes()) == (1 if left else 0)
    buffer.push(["a"])
    buffer.clear()
    assert len(buffer) == 0


def test_keep_the_newest(open_buffer: Open, cluster_client: redis.RedisCluster) -> None:
    pushed = open_buffer(maxlen=50, batch=10).push(numbers(100))
    assert (pushed.length, pushed.dropped) == (50, 50)
    assert cluster_client.lrange(KEY, 0, -1) == numbers(50, 50)


@pytest.mark.parametrize("library", ["redis", "redis.asyncio", "valkey", "valkey.asyncio"])
def test_cluster_clients(open_buffer: Open, cluster: LocalCluster, library: str) -> None:
    module = importlib.import_module(library)
    name = "ValkeyCluster" if library.startswith("valkey") else "RedisCluster"
    client = getattr(module, name)(host="127.0.0.1", port=cluster.ports[1])
    buffer = open_buffer(server=client)
    assert buffer.push(numbers(10)).length == 10
    assert buffer.pop(10) == numbers(10)
    buffer.close()
    if not library.endswith("asyncio"):
        client.close()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_moves_between_calls(
    open_buffer: Open,
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    delivery: str,
    order: str,
) -> None:
    """Each call follows the slot."""
    buffer = open_buffer(delivery=delivery, order=order, batch=7)
    safe = delivery == "at-least-once"
    assert buffer.push(numbers(50)).length == 50
    expected = numbers(100) if order == "fifo" else numbers(100)[::-1]
    move(cluster)
    pushed = buffer.push(numbers(50, 50))
    report = pushed.report
    assert (pushed.length, report.rows) == (100, 50)
    assert report.replies == report.commands >= 8
    assert (report.unsent, report.in_doubt, report.failed) == (0, 0, 0)
    move(cluster)
    assert buffer.pop(10) == expected[:10]
    move(cluster)
    assert len(buffer) == 90
    if safe:
        move(cluster)
        assert buffer.ack(5) == 5
    move(cluster)
    assert pa.array(buffer.pop_arrow(10)).to_pylist() == expected[10:20]
    source = buffer.consume()
    assert [next(source) for _ in range(10)] == expected[20:30]
    move(cluster)
    assert [next(source) for _ in range(40)] == expected[30:70]
    source.close()
    move(cluster)
    assert buffer.recover() == 0
    move(cluster)
    buffer.close()
    left = expected[5:] if safe else expected[70:]
    assert cluster_client.lrange(KEY, 0, -1) == (left if order == "fifo" else left[::-1])
    move(cluster)
    buffer.clear()
    buffer.close()
    assert sum(cluster.sizes()) == 0


@pytest.mark.parametrize("maxlen", [None, 3 * ITEMS])
def test_pushes_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster, maxlen: int | None
) -> None:
    """Every item is pushed once, in order."""
    buffer = open_buffer(batch=10, maxlen=maxlen)
    for done in range(0, 5 * ITEMS, ITEMS):
        with moving_once(cluster):
            pushed = buffer.push(numbers(ITEMS, done))
        report = pushed.report
        assert report.rows == ITEMS
        assert report.replies == report.commands >= ITEMS // 10 * (4 if maxlen else 1)
        assert (report.unsent, report.in_doubt, report.failed) == (0, 0, 0)
        assert pushed.length == min(done + ITEMS, maxlen or 5 * ITEMS)
    left = maxlen or 5 * ITEMS
    assert cluster_client.lrange(KEY, 0, -1) == numbers(left, 5 * ITEMS - left)


def test_push_of_a_column_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    column = pa.array([b"%d" % i for i in range(5 * ITEMS)])
    with moving_once(cluster):
        pushed = open_buffer(batch=5).push(column)
    assert (pushed.report.rows, pushed.length) == (len(column), len(column))
    assert cluster_client.lrange(KEY, 0, -1) == column.to_pylist()


def test_push_of_an_async_source(cluster: LocalCluster, cluster_client: redis.RedisCluster) -> None:
    async def items() -> Any:
        for i in range(3_000):
            if i % 1_000 == 500:
                await asyncio.to_thread(move, cluster)
            yield b"%d" % i

    async def push() -> Any:
        async with fastresp.aio.ListBuffer(KEY, server=cluster.url, batch=100) as buffer:
            return await buffer.push(items())

    pushed = asyncio.run(push())
    assert (pushed.report.rows, pushed.length, pushed.report.failed) == (3_000, 3_000, 0)
    assert pushed.report.commands == pushed.report.replies
    assert cluster_client.lrange(KEY, 0, -1) == numbers(3_000)


@pytest.mark.few(0)
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("way", ["pop", "pop_arrow", "consume", "drain"])
def test_pops_while_the_slot_moves(
    open_buffer: Open,
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    way: str,
    delivery: str,
) -> None:
    """Each item is returned once, in order, even with at-most-once: a refused pop pops nothing."""
    for start in range(0, ITEMS, 1_000):
        cluster_client.rpush(KEY, *numbers(1_000, start))
    buffer = open_buffer(delivery=delivery, batch=10)
    safe = delivery == "at-least-once"
    came: list[bytes] = []
    with moving(cluster) as moves:
        while len(came) < ITEMS:
            before = len(came)
            if way == "pop":
                came += buffer.pop(500)
            elif way == "pop_arrow":
                came += pa.array(buffer.pop_arrow(500)).to_pylist()
            elif way == "consume":
                came += buffer.consume(max_items=500)
            else:
                for items in buffer.drain():
                    came += items
                    if len(came) - before >= 500:
                        break
            if safe:
                assert buffer.ack() == 0
            if len(came) >= 18_000 and len(moves) < 3:
                time.sleep(0.2)
    assert len(moves) >= 3
    assert came == numbers(ITEMS)
    assert buffer.acknowledged == (ITEMS if safe else 0)
    buffer.close()
    assert sum(cluster.sizes()) == 0


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_waiting_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster, delivery: str
) -> None:
    """A consumer that waits for an item is redirected, and waits for the remaining time."""
    buffer = open_buffer(delivery=delivery)
    assert len(buffer) == 0

    def act() -> None:
        for _ in range(3):
            time.sleep(0.2)
            move(cluster)
        cluster_client.rpush(KEY, "a")

    actor = threading.Thread(target=act)
    actor.start()
    assert list(buffer.consume(max_items=1, block=20.0)) == [b"a"]
    actor.join()
    started = time.monotonic()
    mover = threading.Timer(0.5, move, (cluster,))
    mover.start()
    assert list(buffer.consume(block=1.0)) == []
    assert 1.0 <= time.monotonic() - started < 20.0
    mover.join()


@pytest.mark.parametrize("form", [fastresp.ListBuffer, Awaited], ids=["sync", "asyncio"])
def test_key_without_a_hash_tag(cluster: LocalCluster, form: Any) -> None:
    """Its records would be in another slot."""
    words = "no hash tag can name the slot of the key 'a}b'"
    with form("a}b", server=cluster.url) as buffer:
        buffer.push(numbers(3))
        with pytest.raises(ValueError, match=words):
            buffer.recover()
        assert buffer.pop(5) == numbers(3)
    buffer = form("a}b", server=cluster.url, delivery="at-least-once")
    with pytest.raises(ValueError, match=words):
        buffer.pop(1)
    buffer.close()


def test_from_the_shell(cluster: LocalCluster, cluster_client: redis.RedisCluster) -> None:
    cluster_client.rpush(KEY, *range(3_000))
    done = run("pop", KEY, "-n", 1_000, "--server", cluster.url)
    assert done.stdout.split() == [str(i) for i in range(1_000)]
    assert done.stderr == f"1,000 items popped, 2,000 left in {KEY}\n"
    move(cluster)
    assert len(run("pop", KEY, "--server", cluster.url).stdout.split()) == 2_000
    assert sum(cluster.sizes()) == 0


def test_slot_without_a_node(start_server: Any) -> None:
    server = start_server("--port", str(free_port()), "--cluster-enabled", "yes")
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(8192))
        client.config_set("cluster-require-full-coverage", "no")
        until(lambda: LocalCluster.state(client, "cluster_state") == "ok")
        buffer = fastresp.ListBuffer("a", server=server.url)
        with pytest.raises(fastresp.TransportError, match="no node serves slot 15,495"):
            buffer.push(["a"])
        with fastresp.ListBuffer("b", server=server.url) as buffer:  # slot 3300
            assert buffer.push(["a"]).length == 1
