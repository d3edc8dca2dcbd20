"""Replies of all nodes of a cluster: in the order of the source, and bounded in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeAlias

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from local_cluster import LocalCluster
from peak import PEAK

import fastresp
import fastresp.aio

ROWS = 30_000

Execute: TypeAlias = Callable[..., list[Any]]


def execute_sync(data: Any, command: Any = None, **options: Any) -> list[Any]:
    return list(fastresp.iter_replies(data, command, **options))


def execute_asyncio(data: Any, command: Any = None, **options: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [reply async for reply in fastresp.aio.iter_replies(data, command, **options)]

    return asyncio.run(collect())


@pytest.fixture(params=[execute_sync, execute_asyncio], ids=["sync", "asyncio"])
def execute(request: pytest.FixtureRequest) -> Execute:
    """Return all replies as a list."""
    return request.param


def keys_of(cluster: LocalCluster, number: int, count: int) -> list[str]:
    """Return keys of a node."""
    client = cluster.clients[number]
    keys = (f"key:{i}" for i in range(100 * count))
    found = [key for key in keys if cluster.client_of(key) is client]
    return found[:count]


@pytest.mark.parametrize("at", range(3))
def test_in_order_from_any_node(execute: Execute, cluster: LocalCluster, at: int) -> None:
    server = f"redis://127.0.0.1:{cluster.ports[at]}"
    fastresp.mass_insert(((i, i) for i in range(ROWS)), "SET k{0} {1}", server=server)
    assert min(cluster.sizes()) > ROWS // 4
    got = execute(range(ROWS), "GET k{0}", server=server)
    assert got == [b"%d" % i for i in range(ROWS)]
    assert execute([], "GET k{0}", server=server) == []


def test_commands_of_a_row(execute: Execute, cluster: LocalCluster) -> None:
    """Those of a key run in order, and their replies are of all kinds."""
    rows = [{"id": i % 100, "name": f"näme {i}"} for i in range(3000)]
    template = ["HSET user:{id} name {name}", "HGETALL user:{id}", "INCR n:{id}", "GET none:{id}"]
    got = execute(rows, template, server=cluster.url, decode=True)
    assert got[0::4] == [1] * 100 + [0] * 2900
    assert got[1::4] == [["name", row["name"]] for row in rows]
    assert got[2::4] == [1 + i // 100 for i in range(3000)]
    assert got[3::4] == [None] * 3000


def test_columns(execute: Execute, cluster: LocalCluster) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"id": range(ROWS), "n": range(ROWS)})
    assert execute(table, "SET k{id} {n}; GET k{id}", server=cluster.url)[1::2] == [
        b"%d" % i for i in range(ROWS)
    ]


def clients(cluster: LocalCluster, kind: str) -> Any:
    port = cluster.ports[1]
    if kind.endswith("asyncio"):
        nodes = redis.asyncio if kind.startswith("redis") else valkey.asyncio
    else:
        nodes = redis if kind.startswith("redis") else valkey
    return getattr(nodes, f"{kind.split()[0].title()}Cluster")(host="127.0.0.1", port=port)


@pytest.mark.parametrize("kind", ["redis", "valkey", "redis asyncio", "valkey asyncio"])
def test_clients_of_a_cluster(cluster: LocalCluster, kind: str) -> None:
    async def run() -> None:
        client = clients(cluster, kind)
        replies = fastresp.aio.iter_replies(range(300), "INCR a{0}", server=client)
        assert [reply async for reply in replies] == [1] * 300
        assert await fastresp.aio.execute("GET", "a7", server=client, decode=True) == "1"
        assert list(fastresp.iter_replies(range(300), "INCR a{0}", server=client)) == [2] * 300
        for key in ("a1", "a2", "a3", "a4"):
            assert fastresp.execute("GET", key, server=client) == b"2"
        if kind.endswith("asyncio"):
            await client.aclose()
        else:
            client.close()

    asyncio.run(run())


def execute_one(*arguments: Any, **options: Any) -> Any:
    return fastresp.execute(*arguments, **options)


def execute_one_asyncio(*arguments: Any, **options: Any) -> Any:
    return asyncio.run(fastresp.aio.execute(*arguments, **options))


@pytest.mark.parametrize("run", [execute_one, execute_one_asyncio], ids=["sync", "asyncio"])
def test_execute(run: Callable[..., Any], cluster: LocalCluster) -> None:
    """A command goes to the node that is passed; one with a key, to the node of the key."""
    for number, node in enumerate(cluster.nodes):
        port = str(cluster.ports[number])
        assert run("CONFIG", "GET", "port", server=node.url, decode=True) == ["port", port]
        assert run("PING", server=node.url) == b"PONG"
        assert run("SET", "a", number, server=node.url) == b"OK"
        assert run("GET", "a", server=f"redis://127.0.0.1:{port}") == b"%d" % number
        with pytest.raises(fastresp.CommandError, match=r"^WRONGTYPE") as caught:
            run("LPUSH", "a", "x", server=node.url)
        assert caught.value.arguments == (b"LPUSH", b"a", b"x")
        with pytest.raises(fastresp.CommandError, match=r"^CROSSSLOT"):
            run("MGET", "a", "b", server=node.url)
        assert run("XADD", "stream", "*", "f", number, server=node.url)
        # The client does not know where this command has its keys, but the server does.
        [[name, entries]] = run("XREAD", "STREAMS", "stream", 0, server=node.url)
        assert (name, len(entries)) == (b"stream", number + 1)
    assert [run("DBSIZE", server=node.url) for node in cluster.nodes] == cluster.sizes()


def test_commands_without_a_key(execute: Execute, cluster: LocalCluster) -> None:
    """They run on the node that is passed, and their replies are in their places."""
    rows: list[tuple[Any, ...]] = [("SET", f"k{i}", i) for i in range(999)]
    rows[500:500] = [("CONFIG", "GET", "port"), ("ECHO", "me"), ("EVAL", "return 7", 0)]
    for number, node in enumerate(cluster.nodes):
        got = execute(rows, server=node.url)
        assert got[500:503] == [[b"port", b"%d" % cluster.ports[number]], b"me", 7]
        assert got[:500] + got[503:] == [b"OK"] * 999


def test_errors_in_their_place(execute: Execute, cluster: LocalCluster) -> None:
    rows = [(i % 50, i) for i in range(500)]
    template = "SET {0} x; LPUSH {0} {1}; GET {0}"
    got = execute(rows, template, server=cluster.url, on_error="collect")
    assert [type(reply) for reply in got] == [bytes, fastresp.CommandError, bytes] * 500
    assert [(e.row, e.index, e.code, e.arguments) for e in got[1::3]] == [
        (i, 3 * i + 1, "WRONGTYPE", (b"LPUSH", b"%d" % (i % 50), b"%d" % i)) for i in range(500)
    ]


def test_error_raised_in_its_place(cluster: LocalCluster) -> None:
    rows: list[tuple[Any, ...]] = [("SET", f"k{i}", i) for i in range(5000)]
    rows[3000] = ("LPUSH", "k7", 1)
    replies = fastresp.iter_replies(rows, server=cluster.url)
    got = []
    with pytest.raises(fastresp.CommandError, match="row 3,000, command 3,000: WRONGTYPE"):
        got.extend(replies)
    assert got == [b"OK"] * 3000
    assert list(replies) == []


def test_reply_that_is_not_text(execute: Execute, cluster: LocalCluster) -> None:
    rows: list[tuple[Any, ...]] = [("SET", f"k{i}", i) for i in range(500)]
    rows[300:302] = [("SET", "k7", b"\xff"), ("GET", "k7")]
    got: list[Any] = []
    with pytest.raises(fastresp.DecodeError, match="the reply to command 301 is not utf-8"):
        got.extend(fastresp.iter_replies(rows, server=cluster.url, decode=True))
    assert got == ["OK"] * 301
    assert execute(rows, server=cluster.url, decode="latin-1")[301] == "ÿ"


REFUSED = [
    (("MSET", "a", 1, "b", 2), '"MSET" has keys of several slots'),
    (("XREAD", "STREAMS", "a", 0), 'it is not known where "XREAD" has its keys'),
    (("MULTI",), '"MULTI" and its EXEC must be in one row'),
    (("WATCH", "a"), '"WATCH" can\'t be part of a load'),
    (("WAIT", 0, 10), '"WAIT" has no key'),
    (("SELECT", 0), '"SELECT" has no key'),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_commands_without_a_node(cluster: LocalCluster, command: Any, words: str) -> None:
    rows = [*(("INCR", f"k{i}") for i in range(700)), command, *[("SET", "never", 1)] * 700]
    got: list[Any] = []
    with pytest.raises(fastresp.EncodeError, match=f"row 700, command 700: {words}") as caught:
        got.extend(fastresp.iter_replies(rows, server=cluster.url))
    assert got == [1] * 700
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.replies, report.in_doubt, report.unsent) == (700, 700, 0, 0)
    assert sum(cluster.sizes()) == 700


def test_replies_before_the_data_fails(cluster: LocalCluster) -> None:
    def source() -> Iterator[tuple[str, Any]]:
        for i in range(50_000):
            yield f"k{i % 1000}", i
        raise ZeroDivisionError("mine")

    got: list[bytes] = []
    with pytest.raises(ZeroDivisionError) as caught:
        got.extend(fastresp.iter_replies(source(), "GETSET {0} {1}", server=cluster.url))
    assert got == [None] * 1000 + [b"%d" % i for i in range(49_000)]
    assert caught.value.report.replies == 50_000  # type: ignore[attr-defined]


def test_transactions(execute: Execute, cluster: LocalCluster) -> None:
    template = "MULTI; INCR {{{0}}}:a; INCRBY {{{0}}}:b 2; EXEC"
    got = execute([i % 100 for i in range(1000)], template, server=cluster.url)
    queued = [b"OK", b"QUEUED", b"QUEUED"]
    assert [got[i : i + 3] for i in range(0, 4000, 4)] == [queued] * 1000
    assert got[3::4] == [[1 + i // 100, 2 + 2 * (i // 100)] for i in range(1000)]


def test_scripts(execute: Execute, cluster: LocalCluster) -> None:
    """Also after the nodes have forgotten them: each reply is in its place, and each runs once."""
    script = fastresp.Script("return {ARGV[1], redis.call('HINCRBY', KEYS[1], 'n', 1)}")
    template = ["ECHO {0}", script.command("u:{1}", "{0}")]

    def rows() -> Iterator[tuple[int, int]]:
        for i in range(ROWS):
            if i % 7000 == 3000:
                for client in cluster.clients:
                    client.script_flush()
            yield i, i % 300

    got = execute(rows(), template, server=cluster.url, decode=True)
    assert got[0::2] == [str(i) for i in range(ROWS)]
    assert got[1::2] == [[str(i), 1 + i // 300] for i in range(ROWS)]


def test_async_source_that_pauses(cluster: LocalCluster) -> None:
    async def source() -> AsyncIterator[int]:
        for i in range(5000):
            if i % 1000 == 999:
                await asyncio.sleep(0.03)
            yield i

    assert execute_asyncio(source(), "INCRBY k{0} {0}", server=cluster.url) == [*range(5000)]


@pytest.mark.parametrize("ending", ["raise", "null"])
@pytest.mark.parametrize("pause", [0, 0.1])
def test_async_source_that_fails(cluster: LocalCluster, ending: str, pause: float) -> None:
    """All replies before are yielded, also if the source pauses before it fails."""

    async def source() -> AsyncIterator[Any]:
        for i in range(2000):
            yield f"k{i}"
        await asyncio.sleep(pause)
        yield "last"
        if ending == "raise":
            raise ArithmeticError
        yield None

    async def collect() -> list[Any]:
        got: list[Any] = []
        error = ArithmeticError if ending == "raise" else fastresp.EncodeError
        with pytest.raises(error):
            async for reply in fastresp.aio.iter_replies(source(), "INCR {0}", server=cluster.url):
                got.append(reply)
        return got

    assert asyncio.run(collect()) == [1] * 2001


def test_node_that_is_lost_while_the_source_pauses() -> None:
    """It does not wait for the next row."""
    with LocalCluster() as cluster:

        async def source() -> AsyncIterator[Any]:
            yield keys_of(cluster, 0, 1)[0]
            os.kill(cluster.nodes[1].process.pid, signal.SIGSTOP)
            yield keys_of(cluster, 1, 1)[0]
            await asyncio.sleep(0.2)
            os.kill(cluster.nodes[1].process.pid, signal.SIGKILL)
            await asyncio.sleep(60)

        async def collect() -> None:
            async for reply in fastresp.aio.iter_replies(source(), "INCR {0}", server=cluster.url):
                assert reply == 1

        with pytest.raises(fastresp.TransportError, match=f"127.0.0.1:{cluster.ports[1]}"):
            asyncio.run(asyncio.wait_for(collect(), 30))


def test_cancelled(cluster: LocalCluster) -> None:
    before = connected(cluster)
    frozen = cluster.nodes[2].process

    async def read() -> int:
        replies = fastresp.aio.iter_replies(range(10**9), "INCRBY k{0} {0}", server=cluster.url)
        async with aclosing(replies) as them:  # type: ignore[type-var]
            return sum([reply async for reply in them])

    async def main() -> None:
        task = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        os.kill(frozen.pid, signal.SIGSTOP)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: connected(cluster) == before)


def connected(cluster: LocalCluster) -> list[int]:
    """Return how many other clients each node has."""
    return [len(client.client_list(_type="normal")) - 1 for client in cluster.clients]


def wait_until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stopped_early(cluster: LocalCluster) -> None:
    before = connected(cluster)
    replies = fastresp.iter_replies(range(10**9), "INCRBY k{0} {0}", server=cluster.url)
    assert [next(replies) for _ in range(1000)] == [*range(1000)]
    assert connected(cluster) == [count + 1 for count in before]
    replies.close()  # type: ignore[attr-defined]
    wait_until(lambda: connected(cluster) == before)


def test_asyncio_stopped_early(cluster: LocalCluster) -> None:
    before = connected(cluster)

    async def take() -> list[Any]:
        got = []
        replies = fastresp.aio.iter_replies(range(10**9), "INCRBY k{0} {0}", server=cluster.url)
        async with aclosing(replies) as them:  # type: ignore[type-var]
            async for reply in them:
                got.append(reply)
                if len(got) == 1000:
                    break
        return got

    assert asyncio.run(take()) == [*range(1000)]
    wait_until(lambda: connected(cluster) == before)


def test_slow_reader_is_not_a_timeout(cluster: LocalCluster) -> None:
    replies = fastresp.iter_replies(range(3000), "INCRBY k{0} {0}", server=cluster.url, timeout=1.0)
    for i, reply in enumerate(replies):
        assert reply == i
        if i in (50, 2000):
            time.sleep(1.5)


def test_reader_that_stops_stops_the_sender(cluster: LocalCluster) -> None:
    """Unread replies fill neither the client's memory nor the servers'."""
    keys = [key for number in range(3) for key in keys_of(cluster, number, 4)]
    fastresp.mass_insert([(key, "x" * 100_000) for key in keys], "SET {0} {1}", server=cluster.url)
    made = 0

    def source() -> Iterator[str]:
        nonlocal made
        while True:
            made += 1
            yield keys[made % len(keys)]

    replies = fastresp.iter_replies(source(), "GET {0}", server=cluster.url)
    for _ in range(1000):
        assert len(next(replies)) == 100_000
    time.sleep(0.3)
    used = [client.info("memory")["mem_clients_normal"] for client in cluster.clients]
    assert max(used) < 20 << 20
    replies.close()  # type: ignore[attr-defined]


SLOW_NODE_CODE = (
    PEAK
    + """
import os, sys, threading, signal, time, fastresp
url, pid, slow, *fast = sys.argv[1:]
def rows(count):
    # Small replies, so that many commands are in flight when large ones follow.
    for i in range(count):
        name = fast[i % len(fast)]
        yield slow if i % 100 == 0 else name if i // 3000 % 2 else "{" + name + "}none"
def read(count):
    replies = fastresp.iter_replies(rows(count), "GET {0}", server=url)
    return sum(len(reply or b"") for reply in replies)
assert read(3500) == 495 * 200_000 + 35
before = peak()
stop = threading.Event()
def pausing():
    # The node answers for a tenth of the time.
    while not stop.wait(0.02):
        os.kill(int(pid), signal.SIGSTOP)
        time.sleep(0.18)
        os.kill(int(pid), signal.SIGCONT)
thread = threading.Thread(target=pausing)
thread.start()
try:
    assert read(12_000) == 5940 * 200_000 + 120
finally:
    stop.set()
    thread.join()
print(peak() - before)
"""
)


def test_large_replies_while_a_node_is_slow(cluster: LocalCluster) -> None:
    """1 GB of replies of the other nodes wait for those of the slow node, a part at a time."""
    [slow], *fast = (keys_of(cluster, number, 1 if number == 0 else 3) for number in range(3))
    keys = [key for some in fast for key in some]
    rows = [(slow, "x"), *((key, "x" * 200_000) for key in keys)]
    fastresp.mass_insert(rows, "SET {0} {1}", server=cluster.url)
    pid = cluster.nodes[0].process.pid
    done = subprocess.run(
        [sys.executable, "-c", SLOW_NODE_CODE, cluster.url, str(pid), slow, *keys],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) * 1024 <= 16 << 20


@pytest.mark.parametrize("kind", ["killed", "frozen"])
def test_node_that_fails(execute: Execute, kind: str) -> None:
    """The replies before its next one are yielded; the error names the node."""
    with LocalCluster() as cluster:
        dead = cluster.nodes[1].process

        def source() -> Iterator[str]:
            for i in range(300_000):
                if i == 100_000:
                    os.kill(dead.pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
                yield f"k{i}"

        error = fastresp.TransportError if kind == "killed" else fastresp.TransportTimeout
        with pytest.raises(error, match=f"127.0.0.1:{cluster.ports[1]}") as caught:
            execute(source(), "INCR {0}", server=cluster.url, timeout=2.0)
        report = caught.value.report
        assert report is not None
        assert 0 < report.replies <= report.commands < 300_000
        assert report.connections == 3
        os.kill(dead.pid, signal.SIGCONT)


def test_replies_before_a_lost_node(cluster: LocalCluster) -> None:
    """All before the first that can't come are yielded, also those of other nodes."""
    first, second, third = (keys_of(cluster, number, 1)[0] for number in range(3))
    killed = False
    made = 0

    def source() -> Iterator[str]:
        nonlocal made
        yield second
        while not killed:
            made += 1
            yield first
        yield second
        yield from [third] * 1000

    got = []
    with pytest.raises(fastresp.TransportError, match=f"127.0.0.1:{cluster.ports[1]}"):
        for reply in fastresp.iter_replies(source(), "INCR {0}", server=cluster.url):
            got.append(reply)
            if len(got) == 1000:
                cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
                killed = True
    assert got == [1, *range(1, made + 1)]


def test_interrupted(cluster: LocalCluster) -> None:
    """Ctrl-C while it waits for a node ends it at once."""
    before = connected(cluster)
    pid = cluster.nodes[2].process.pid
    replies = fastresp.iter_replies(range(10**9), "INCRBY k{0} {0}", server=cluster.url)
    assert next(replies) == 0
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sum(replies)
    finally:
        timer.join()
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: connected(cluster) == before)
