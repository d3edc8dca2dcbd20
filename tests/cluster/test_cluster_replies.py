"""Replies of all nodes of a cluster: in the order of the source, with bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from cluster_reading import clients, connected
from local_cluster import LocalCluster
from needed import imported
from reading import Execute, execute_asyncio, execute_one, execute_one_asyncio
from waiting import until

import fastresp
import fastresp.aio

ROWS = 30_000


@pytest.mark.parametrize("at", range(3))
def test_in_order_from_any_node(execute: Execute, cluster: LocalCluster, at: int) -> None:
    server = f"redis://127.0.0.1:{cluster.ports[at]}"
    fastresp.mass_insert(((i, i) for i in range(ROWS)), "SET k{0} {1}", server=server)
    assert min(cluster.sizes()) > ROWS // 4
    got = execute(range(ROWS), "GET k{0}", server=server)
    assert got == [b"%d" % i for i in range(ROWS)]
    assert execute([], "GET k{0}", server=server) == []


def test_commands_of_a_row(execute: Execute, cluster: LocalCluster) -> None:
    """Commands of a key run in order, and return replies of all kinds."""
    rows = [{"id": i % 100, "name": f"näme {i}"} for i in range(3000)]
    template = ["HSET user:{id} name {name}", "HGETALL user:{id}", "INCR n:{id}", "GET none:{id}"]
    got = execute(rows, template, server=cluster.url, decode=True)
    assert got[0::4] == [1] * 100 + [0] * 2900
    assert got[1::4] == [["name", row["name"]] for row in rows]
    assert got[2::4] == [1 + i // 100 for i in range(3000)]
    assert got[3::4] == [None] * 3000


def test_columns(execute: Execute, cluster: LocalCluster) -> None:
    pa = imported("pyarrow")
    table = pa.table({"id": range(ROWS), "n": range(ROWS)})
    assert execute(table, "SET k{id} {n}; GET k{id}", server=cluster.url)[1::2] == [
        b"%d" % i for i in range(ROWS)
    ]


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


@pytest.mark.parametrize("run", [execute_one, execute_one_asyncio], ids=["sync", "asyncio"])
def test_execute(run: Callable[..., Any], cluster: LocalCluster) -> None:
    """A command runs on the seed node, or on the owner of its key."""
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
        # The client doesn't know this command's key positions, but the server does.
        [[name, entries]] = run("XREAD", "STREAMS", "stream", 0, server=node.url)
        assert (name, len(entries)) == (b"stream", number + 1)
    assert [run("DBSIZE", server=node.url) for node in cluster.nodes] == cluster.sizes()


def test_commands_without_a_key(execute: Execute, cluster: LocalCluster) -> None:
    """They run on the seed node, and their replies are in order."""
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
    (("XREAD", "STREAMS", "a", 0), 'unknown which arguments of "XREAD" are keys'),
    (("MULTI",), '"MULTI" and its EXEC must be in one row'),
    (("WATCH", "a"), '"WATCH" can\'t be part of a load'),
    (("WAIT", 0, 10), '"WAIT" has no key'),
    (("SELECT", 0), '"SELECT" has no key'),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_commands_without_an_owner(cluster: LocalCluster, command: Any, words: str) -> None:
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
    """They run once, even after the nodes forgot them, and each reply is in order."""
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
    """All earlier replies are yielded, even if the source pauses before it fails."""

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


def test_stopped_early(cluster: LocalCluster) -> None:
    before = connected(cluster)
    replies = fastresp.iter_replies(range(10**9), "INCRBY k{0} {0}", server=cluster.url)
    assert [next(replies) for _ in range(1000)] == [*range(1000)]
    assert connected(cluster) == [count + 1 for count in before]
    replies.close()  # type: ignore[attr-defined]
    until(lambda: connected(cluster) == before)


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
    until(lambda: connected(cluster) == before)
