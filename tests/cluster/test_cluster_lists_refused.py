"""ListBuffer in a cluster, sync and asyncio: slots that are being moved, and nodes that die."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Open, numbers
from cluster_reading import until_down
from local_cluster import LocalCluster
from moving_lists import KEY, half_moved, holder, move, slot_of
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.lists.push import PushedRows
from fastresp.resp.split import CommandSplitter

CALLS = ["push", "pop", "pop_arrow", "len", "recover", "clear"]


@pytest.mark.parametrize(
    ("delivery", "call"),
    [*((each, call) for each in DELIVERIES for call in CALLS), ("at-least-once", "ack")],
)
def test_slot_that_is_being_moved(
    open_buffer: Open,
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    delivery: str,
    call: str,
) -> None:
    """Calls wait until the slot has moved."""
    buffer = open_buffer(delivery=delivery)
    buffer.push(numbers(10))
    assert buffer.pop(4) == numbers(4)
    with half_moved(cluster, arrived=True) as complete:
        timer = threading.Timer(0.3, complete)
        timer.start()
        if call == "push":
            pushed = buffer.push(numbers(5, 10))
            assert (pushed.report.replies, pushed.length) == (pushed.report.commands, 11)
            assert cluster_client.lrange(KEY, 0, -1) == numbers(11, 4)
        elif call == "pop":
            assert buffer.pop(4) == numbers(4, 4)
        elif call == "pop_arrow":
            assert pa.array(buffer.pop_arrow(4)).to_pylist() == numbers(4, 4)
        elif call == "ack":
            assert buffer.ack(3) == 1
        elif call == "len":
            assert len(buffer) == 6
        elif call == "recover":
            assert buffer.recover() == 0
        else:
            buffer.clear()
            assert len(buffer) == 0
        timer.join()


@pytest.mark.parametrize("call", ["push", "pop", "pop_arrow", "consume"])
def test_slot_that_never_arrives(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster, call: str
) -> None:
    buffer = open_buffer(timeout=2.0)
    buffer.push(numbers(10))
    with half_moved(cluster, arrived=True) as complete:
        with pytest.raises(
            fastresp.TransportError, match=r"could not be used for 2 s.*ASK"
        ) as error:
            if call == "push":
                buffer.push(numbers(5, 10))
            elif call == "consume":
                next(buffer.consume(block=10.0))
            else:
                getattr(buffer, call)(5)
        if call == "push":
            report = error.value.report
            assert report is not None
            assert (report.rows, report.replies, report.in_doubt) == (0, 0, 0)
            assert report.unsent >= 1
        complete()
    assert buffer.push(["x"]).length == 11
    assert buffer.pop(20) == [*numbers(10), b"x"]


def test_interrupted_push_is_not_repeated(
    cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """After Ctrl-C, commands that the node refuses count as unsent."""

    def items() -> Iterator[bytes]:
        yield from numbers(10)
        raise KeyboardInterrupt

    with fastresp.ListBuffer(KEY, server=cluster.url) as buffer:
        buffer.push(["a"])
        with half_moved(cluster, arrived=True) as complete:
            with pytest.raises(KeyboardInterrupt) as caught:
                buffer.push(items())
            report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
            assert (report.rows, report.replies, report.in_doubt) == (0, 0, 0)
            assert report.unsent >= 1
            complete()
        assert cluster_client.lrange(KEY, 0, -1) == [b"a"]


def test_source_that_fails_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """The items yielded before the exception are pushed to the new node."""

    def items() -> Iterator[bytes]:
        yield from numbers(10)
        move(cluster)
        raise ArithmeticError

    buffer = open_buffer()
    buffer.push(["a"])
    with pytest.raises(ArithmeticError) as caught:
        buffer.push(items())
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.unsent, report.in_doubt) == (10, 0, 0)
    assert cluster_client.lrange(KEY, 0, -1) == [b"a", *numbers(10)]


def test_one_buffer_feeds_another_while_both_slots_move(
    open_buffer: Open, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    cluster_client.rpush("other", *numbers(5_000))
    other = fastresp.ListBuffer("other", server=cluster.url, batch=50)

    def items() -> Iterator[bytes]:
        for i, item in enumerate(other.consume()):
            if i % 1_000 == 500:
                move(cluster)
                source = next(n for n in range(3) if cluster.serves(n, slot_of(cluster, "other")))
                cluster.move_slot(slot_of(cluster, "other"), (source + 1) % 3)
            yield item

    assert open_buffer(batch=20).push(items()).length == 5_000
    other.close()
    assert cluster_client.lrange(KEY, 0, -1) == numbers(5_000)


def test_overtaken_rows() -> None:
    """A row accepted after an earlier one was refused is noticed."""
    rows = PushedRows(1)
    commands = [fastresp.pack("RPUSH", "q", str(i)) for i in range(5)]
    for part in (commands[:2], commands[2:]):
        chunk = CommandSplitter().feed(b"".join(part))
        assert chunk is not None
        rows.add(chunk)
    assert rows.accept() == 0
    for _ in range(4):
        rows.refuse()
    assert rows.refused == [1, 2, 3, 4]
    assert bytes(rows.resend_chunk()) == commands[1]
    rows.refuse()
    assert bytes(rows.resend_chunk()) == commands[1]
    assert rows.accept() == 1
    assert bytes(rows.resend_chunk()) == b"".join(commands[2:])
    rows.refuse()
    assert not rows.overtaken
    assert rows.accept() == 3
    assert rows.overtaken
    assert (rows.refused, rows.refusals) == ([2], 6)


def replicated(cluster: LocalCluster) -> None:
    """Wait until all replicas are in sync with their primaries."""
    cluster.until(
        lambda client: (
            client.info("replication").get("master_link_status", "up") == "up"
            and client.wait(1, 5_000) in (0, 1)
            if client.info("replication")["role"] == "master"
            else client.info("replication")["master_link_status"] == "up"
        )
    )


@pytest.mark.few(0)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_replica_takes_over(delivery: str) -> None:
    """After a planned or unplanned failover, a waiting consumer, a push and a pop continue."""
    with LocalCluster(3, 1) as cluster:
        replicated(cluster)
        first = holder(cluster)
        replica = cluster.clients[first + 3]
        options: Any = {"server": cluster.url, "delivery": delivery}
        with (
            fastresp.ListBuffer(KEY, **options) as buffer,
            fastresp.ListBuffer(KEY, server=cluster.url, batch=10) as other,
        ):
            other.push(["a"])
            assert buffer.pop(5) == [b"a"]
            timer = threading.Timer(0.3, cluster.promote, (replica,))
            timer.start()

            def until_promoted() -> Iterator[bytes]:
                i = 0
                while replica.info("replication")["role"] != "master":
                    yield b"%d" % i
                    i += 1
                yield b"end"

            def act() -> None:
                other.push(until_promoted())

            pusher = threading.Thread(target=act)
            pusher.start()
            came: list[bytes] = []
            deadline = time.monotonic() + 60
            while not came or came[-1] != b"end":
                assert time.monotonic() < deadline
                came += buffer.consume(max_items=1, block=20.0)
            pusher.join()
            timer.join()
            assert came == [*numbers(len(came) - 1), b"end"]
            if delivery == "at-least-once":
                assert buffer.ack() == 0

            # The new primary dies; the old one is now its replica.
            other.push(numbers(100))
            assert buffer.pop(10) == numbers(10)
            assert replica.wait(1, 5_000) == 1
            cluster.nodes[first + 3].process.kill()
            cluster.nodes[first + 3].process.wait()
            # The call waits until the replica has taken over.
            assert buffer.pop(10) == numbers(10, 10)
            assert len(buffer) == 80
            assert buffer.pop(100) == numbers(80, 20)
            if delivery == "at-least-once":
                assert buffer.ack() == 0


@pytest.mark.parametrize("name", WHEEL_SERVERS)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_servers(name: str, delivery: str) -> None:
    """Server versions refuse different commands while a slot is being moved."""
    with LocalCluster(program=located(name, WHEEL_SERVERS)) as cluster:
        with fastresp.ListBuffer(KEY, server=cluster.url, delivery=delivery, batch=10) as buffer:
            buffer.push(numbers(100))
            came = buffer.pop(30)
            for arrived in (False, True):
                with half_moved(cluster, arrived=arrived) as complete:
                    timer = threading.Timer(0.2, complete)
                    timer.start()
                    came += buffer.pop(30)
                    if delivery == "at-least-once":
                        buffer.ack(len(came) - buffer.acknowledged)
                    buffer.push([b"%d" % (len(buffer) + len(came))])
                    timer.join()
            came += buffer.pop(100)
            if delivery == "at-least-once":
                assert buffer.ack() == 0
            assert came == numbers(102)
        assert sum(cluster.sizes()) == 0


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_cluster_that_is_down(delivery: str) -> None:
    """Calls wait until the cluster is up again, up to the timeout."""
    with LocalCluster() as cluster:
        at = holder(cluster)
        options: Any = {"server": f"redis://127.0.0.1:{cluster.ports[at]}", "delivery": delivery}
        with fastresp.ListBuffer(KEY, **options) as buffer:
            buffer.push(numbers(10))
            assert buffer.pop(2) == numbers(2)
            cluster.nodes[(at + 1) % 3].process.kill()
            alive = [cluster.clients[number] for number in (at, (at + 2) % 3)]
            until_down(cluster, alive)
            with fastresp.ListBuffer(KEY, **options, timeout=2) as other:
                words = r"could not be used for 2 s.*CLUSTERDOWN"
                with pytest.raises(fastresp.TransportError, match=words):
                    other.pop(1)

            def repair() -> None:
                for each in alive:
                    each.config_set("cluster-require-full-coverage", "no")

            timer = threading.Timer(0.5, repair)
            timer.start()
            assert buffer.push(numbers(10, 10)).report.rows == 10
            timer.join()
            assert buffer.pop(20) == numbers(18, 2)
            if delivery == "at-least-once":
                assert buffer.ack() == 0


def test_seed_node_dies() -> None:
    """The other nodes are asked for the slot's owner."""
    with LocalCluster() as cluster:
        at = holder(cluster)
        server = f"redis://127.0.0.1:{cluster.ports[(at + 1) % 3]}"
        with fastresp.ListBuffer(KEY, server=server) as buffer:
            buffer.push(numbers(10))
            for client in cluster.clients:
                client.config_set("cluster-require-full-coverage", "no")
            cluster.nodes[(at + 1) % 3].process.kill()
            assert buffer.pop(3) == numbers(3)
            cluster.clients[at].client_kill_filter(_type="normal", skipme=True)
            assert buffer.pop(3) == numbers(3, 3)
