"""ListBuffer in a cluster, sync and asyncio: it finds the node of its list, and follows it."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest
import redis
from buffers import DELIVERIES, Awaited, Open, numbers
from command_line import run
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.lists.sent_rows import SentRows
from fastresp.resp.split import CommandSplitter

KEY = "{q}"
ITEMS = 20_000


@pytest.fixture(params=[fastresp.ListBuffer, Awaited], ids=["sync", "asyncio"])
def open_buffer(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[Open]:
    """A function that opens a buffer on a list of the cluster."""
    opened: list[Any] = []

    def open_buffer(**options: Any) -> Any:
        opened.append(request.param(KEY, **({"server": cluster.url} | options)))
        return opened[-1]

    yield open_buffer
    for each in opened:
        with suppress(fastresp.TransportError):  # the test has lost its server
            each.close()
        if isinstance(each, Awaited):
            each.loop.close()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[redis.RedisCluster]:
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        yield client


def slot_of(cluster: LocalCluster, key: str = KEY) -> int:
    number: int = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", key)
    return number


def holder(cluster: LocalCluster) -> int:
    """Return the number of the node that serves the list."""
    slot = slot_of(cluster)
    return next(each for each in range(cluster.primaries) if cluster.serves(each, slot))


def move(cluster: LocalCluster) -> None:
    """Move the slot of the list to the next node."""
    cluster.move_slot(slot_of(cluster), (holder(cluster) + 1) % 3)


@contextmanager
def moving(cluster: LocalCluster) -> Iterator[list[int]]:
    """Move the slot of the list round and round, in another thread; yield the moves so far."""
    over = threading.Event()
    moves: list[int] = []

    def work() -> None:
        while not over.wait(0.05):
            move(cluster)
            moves.append(1)

    mover = threading.Thread(target=work)
    mover.start()
    try:
        yield moves
    finally:
        over.set()
        mover.join()


@contextmanager
def half_moved(cluster: LocalCluster, *, arrived: bool) -> Iterator[Callable[[], None]]:
    """Begin to move the slot of the list, with its keys or without; yield what completes it."""
    slot, source = slot_of(cluster), holder(cluster)
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    here, there = cluster.clients[source], cluster.clients[target]
    cluster.agree()
    there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    keys = here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
    if arrived and keys:
        here.execute_command(
            "MIGRATE", "127.0.0.1", cluster.ports[target], "", 0, 5000, "KEYS", *keys
        )
    completed = []

    def complete() -> None:
        completed.append(slot)
        if not arrived and keys:
            here.execute_command(
                "MIGRATE", "127.0.0.1", cluster.ports[target], "", 0, 5000, "KEYS", *keys
            )
        for number in (target, source, 3 - target - source):
            cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    yield complete
    if not completed:
        complete()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("at", range(3))
def test_all_calls_from_any_node(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, at: int, delivery: str
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
    assert client.lrange(KEY, 0, -1) == left
    assert sum(cluster.sizes()) == (1 if left else 0)
    buffer.push(["a"])
    buffer.clear()
    assert len(buffer) == 0


def test_keep_the_newest(open_buffer: Open, client: redis.RedisCluster) -> None:
    pushed = open_buffer(maxlen=50, batch=10).push(numbers(100))
    assert (pushed.length, pushed.dropped) == (50, 50)
    assert client.lrange(KEY, 0, -1) == numbers(50, 50)


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
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, delivery: str, order: str
) -> None:
    """Each call follows the slot, whatever it does."""
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
    assert client.lrange(KEY, 0, -1) == (left if order == "fifo" else left[::-1])
    move(cluster)
    buffer.clear()
    buffer.close()
    assert sum(cluster.sizes()) == 0


@contextmanager
def moving_once(cluster: LocalCluster) -> Iterator[None]:
    """Move the slot in another thread: it must not come back while items are in flight."""
    mover = threading.Thread(target=move, args=(cluster,))
    mover.start()
    try:
        yield
    finally:
        mover.join()


@pytest.mark.parametrize("maxlen", [None, 3 * ITEMS])
def test_pushes_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, maxlen: int | None
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
    assert client.lrange(KEY, 0, -1) == numbers(left, 5 * ITEMS - left)


def test_push_of_a_column_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster
) -> None:
    column = pa.array([b"%d" % i for i in range(5 * ITEMS)])
    with moving_once(cluster):
        pushed = open_buffer(batch=5).push(column)
    assert (pushed.report.rows, pushed.length) == (len(column), len(column))
    assert client.lrange(KEY, 0, -1) == column.to_pylist()


def test_push_of_an_async_source(cluster: LocalCluster, client: redis.RedisCluster) -> None:
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
    assert client.lrange(KEY, 0, -1) == numbers(3_000)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("way", ["pop", "pop_arrow", "consume", "drain"])
def test_pops_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, way: str, delivery: str
) -> None:
    """Every item comes once, in order, also with at-most-once: a refused pop has popped nothing."""
    for start in range(0, ITEMS, 1_000):
        client.rpush(KEY, *numbers(1_000, start))
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
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, delivery: str
) -> None:
    """A consumer that waits for an item is redirected, and waits for the rest of the time."""
    buffer = open_buffer(delivery=delivery)
    assert len(buffer) == 0

    def act() -> None:
        for _ in range(3):
            time.sleep(0.2)
            move(cluster)
        client.rpush(KEY, "a")

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


CALLS = ["push", "pop", "pop_arrow", "len", "recover", "clear"]


@pytest.mark.parametrize(
    ("delivery", "call"),
    [*((each, call) for each in DELIVERIES for call in CALLS), ("at-least-once", "ack")],
)
def test_slot_that_is_being_moved(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, delivery: str, call: str
) -> None:
    """Calls wait until it has moved."""
    buffer = open_buffer(delivery=delivery)
    buffer.push(numbers(10))
    assert buffer.pop(4) == numbers(4)
    with half_moved(cluster, arrived=True) as complete:
        timer = threading.Timer(0.3, complete)
        timer.start()
        if call == "push":
            pushed = buffer.push(numbers(5, 10))
            assert (pushed.report.replies, pushed.length) == (pushed.report.commands, 11)
            assert client.lrange(KEY, 0, -1) == numbers(11, 4)
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
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster, call: str
) -> None:
    buffer = open_buffer(timeout=0.5)
    buffer.push(numbers(10))
    with half_moved(cluster, arrived=True) as complete:
        with pytest.raises(
            fastresp.TransportError, match=r"has been moving for 0.5 s.*ASK"
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
    cluster: LocalCluster, client: redis.RedisCluster
) -> None:
    """After a Ctrl-C, what the node refuses counts as unsent."""

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
        assert client.lrange(KEY, 0, -1) == [b"a"]


def test_source_that_fails_while_the_slot_moves(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster
) -> None:
    """The items before the exception are pushed to the new node."""

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
    assert client.lrange(KEY, 0, -1) == [b"a", *numbers(10)]


def test_one_buffer_feeds_another(
    open_buffer: Open, cluster: LocalCluster, client: redis.RedisCluster
) -> None:
    """While both slots move."""
    client.rpush("other", *numbers(5_000))
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
    assert client.lrange(KEY, 0, -1) == numbers(5_000)


def test_overtaken_rows() -> None:
    """A row that was accepted after an earlier one was refused is noticed."""
    rows = SentRows(1)
    commands = [fastresp.pack("RPUSH", "q", str(i)) for i in range(5)]
    for part in (commands[:2], commands[2:]):
        chunk = CommandSplitter().feed(b"".join(part))
        assert chunk is not None
        rows.add(chunk)
    assert rows.accepted() == 0
    for _ in range(4):
        rows.refuse()
    assert rows.refused == [1, 2, 3, 4]
    assert bytes(rows.again()) == commands[1]
    rows.refuse()
    assert bytes(rows.again()) == commands[1]
    assert rows.accepted() == 1
    assert bytes(rows.again()) == b"".join(commands[2:])
    rows.refuse()
    assert not rows.overtaken
    assert rows.accepted() == 3
    assert rows.overtaken
    assert (rows.refused, rows.refusals) == ([2], 6)


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


def test_from_the_shell(cluster: LocalCluster, client: redis.RedisCluster) -> None:
    client.rpush(KEY, *range(3_000))
    done = run("pop", KEY, "-n", 1_000, "--server", cluster.url)
    assert done.stdout.split() == [str(i) for i in range(1_000)]
    assert done.stderr == f"1,000 items popped, 2,000 left in {KEY}\n"
    move(cluster)
    assert len(run("pop", KEY, "--server", cluster.url).stdout.split()) == 2_000
    assert sum(cluster.sizes()) == 0


def test_slot_without_a_node(start_server: Any, port: int) -> None:
    server = start_server("--port", str(port % 50000 + 1024), "--cluster-enabled", "yes")
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(8192))
        client.config_set("cluster-require-full-coverage", "no")
        while LocalCluster.state(client, "cluster_state") != "ok":
            time.sleep(0.02)
        buffer = fastresp.ListBuffer("a", server=server.url)
        with pytest.raises(fastresp.TransportError, match="no node serves slot 15,495"):
            buffer.push(["a"])
        with fastresp.ListBuffer("b", server=server.url) as buffer:  # slot 3300
            assert buffer.push(["a"]).length == 1


def test_user_without_the_right(cluster: LocalCluster) -> None:
    for client in cluster.clients:
        client.execute_command("ACL", "SETUSER", "me", "on", ">p", "~*", "+@all", "-cluster|slots")
    url = cluster.url.replace("redis://", "redis://me:p@")
    with pytest.raises(fastresp.TransportError, match=r"ACL SETUSER ... \+cluster\|slots"):
        fastresp.ListBuffer("q", server=url).push(["a"])
    for client in cluster.clients:
        client.execute_command("ACL", "DELUSER", "me")


def replicated(cluster: LocalCluster) -> None:
    """Wait until all replicas are in step with their primaries."""
    cluster.until(
        lambda client: (
            client.info("replication").get("master_link_status", "up") == "up"
            and client.wait(1, 5_000) in (0, 1)
            if client.info("replication")["role"] == "master"
            else client.info("replication")["master_link_status"] == "up"
        )
    )


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_replica_takes_over(delivery: str) -> None:
    """As planned: a waiting consumer and a push go on. After a crash: with the next call."""
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
            timer = threading.Timer(0.3, replica.execute_command, ("CLUSTER", "FAILOVER"))
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
            came = []
            while not came or came[-1] != b"end":
                came += buffer.consume(max_items=1, block=20.0)
            pusher.join()
            timer.join()
            assert came == [*numbers(len(came) - 1), b"end"]
            if delivery == "at-least-once":
                assert buffer.ack() == 0

            # The new primary dies; the old one is its replica now.
            other.push(numbers(100))
            assert buffer.pop(10) == numbers(10)
            assert replica.wait(1, 5_000) == 1
            cluster.nodes[first + 3].process.kill()
            with pytest.raises(fastresp.TransportError, match=str(cluster.ports[first + 3])):
                buffer.pop(10)
            deadline = time.monotonic() + 30
            while True:
                with suppress(fastresp.TransportError, fastresp.CommandError):
                    assert len(buffer) == 90
                    break
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert buffer.pop(100) == numbers(90, 10)
            if delivery == "at-least-once":
                assert buffer.ack() == 0


@pytest.mark.parametrize("name", WHEEL_SERVERS)
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_servers(name: str, delivery: str) -> None:
    """Other versions refuse other commands while a slot is being moved."""
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


def test_node_that_was_passed_dies() -> None:
    """The others are asked for the slot."""
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
            with pytest.raises(fastresp.TransportError, match="a new connection works"):
                buffer.pop(3)
            assert buffer.pop(3) == numbers(3, 3)
