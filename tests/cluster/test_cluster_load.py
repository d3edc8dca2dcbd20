"""Loads into a cluster: each key goes to its node, in order; unroutable rows are refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
import redis.asyncio.cluster
from loads import Insert, insert_sync
from local_cluster import LocalCluster, free_port

import fastresp
import fastresp.aio
from fastresp.server.cluster import positions_of, topology_of
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

ROWS = 30_000


def pushes(count: int = ROWS, keys: int = 101) -> Iterator[tuple[int, int]]:
    return ((i % keys, i) for i in range(count))


def check_pushes(cluster: LocalCluster, count: int = ROWS, keys: int = 101) -> None:
    assert min(cluster.sizes()) > 0
    for key in range(keys):
        stored = cluster.client_of(f"list:{key}").lrange(f"list:{key}", 0, -1)
        assert [int(item) for item in stored] == [*range(key, count, keys)]


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_every_key_on_its_node_in_order(
    insert: Insert, cluster: LocalCluster, connections: int, mode: str
) -> None:
    report = insert(
        pushes(), "RPUSH list:{0} {1}", server=cluster.url, connections=connections, mode=mode
    )
    assert (report.rows, report.commands, report.replies, report.failed) == (ROWS,) * 3 + (0,)
    assert (report.in_doubt, report.unsent) == (0, 0)
    assert (report.transport, report.connections) == ("socket", 3 * connections)
    check_pushes(cluster)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_rows_that_are_written_one_at_a_time(
    cluster: LocalCluster, mode: Any, asynchronous: bool
) -> None:
    async def push() -> fastresp.Report:
        async with fastresp.aio.loader("RPUSH list:{0} {1}", cluster.url, mode=mode) as load:
            for row in pushes():
                await load.write(row)
        return load.report

    if asynchronous:
        report = asyncio.run(push())
    else:
        with fastresp.loader("RPUSH list:{0} {1}", cluster.url, mode=mode) as load:
            for row in pushes():
                load.write(row)
                if row[1] % 10_000 == 0:
                    load.flush()
                    assert load.report.replies == row[1] + 1
        report = load.report
    assert (report.rows, report.commands, report.replies, report.failed) == (ROWS,) * 3 + (0,)
    check_pushes(cluster)


@pytest.mark.parametrize("at", range(3))
def test_from_any_node(cluster: LocalCluster, at: int) -> None:
    url = f"redis://127.0.0.1:{cluster.ports[at]}"
    assert fastresp.mass_insert(pushes(1000, 50), "RPUSH list:{0} {1}", server=url).replies == 1000
    check_pushes(cluster, 1000, 50)
    assert fastresp.mass_insert([("SET", "a", 1)], server=cluster.nodes[at].url).replies == 1


def test_columns_and_files(cluster: LocalCluster, tmp_path: Path) -> None:
    table = pa.table({"id": range(ROWS), "name": [f"name {i}" for i in range(ROWS)]})
    report = fastresp.mass_insert(table, "HSET user:{id} {**}", server=cluster.url)
    assert (report.rows, report.replies, sum(cluster.sizes())) == (ROWS, ROWS, ROWS)
    assert cluster.client_of("user:177").hgetall("user:177") == {b"name": b"name 177"}
    cluster.empty()
    fastresp.dump(table, "HSET user:{id} {**}", tmp_path / "users.resp")
    report = fastresp.mass_insert(tmp_path / "users.resp", server=cluster.url)
    assert (report.replies, sum(cluster.sizes())) == (ROWS, ROWS)


def test_large_values(cluster: LocalCluster) -> None:
    value = b"v" * (1 << 20)
    rows = [(f"key:{i}", value) for i in range(30)]
    assert fastresp.mass_insert(rows, "SET {0} {1}", server=cluster.url).replies == 30
    assert all(cluster.client_of(key).get(key) == value for key, _ in rows)


def test_hash_tags(cluster: LocalCluster) -> None:
    template = "MSET {{{id}}}:a {id} {{{id}}}:b {id}"
    rows = [{"id": i} for i in range(500)]
    assert fastresp.mass_insert(rows, template, server=cluster.url).failed == 0
    assert sum(cluster.sizes()) == 1000


def test_transactions(cluster: LocalCluster) -> None:
    template = "MULTI; INCR {{{id}}}:a; INCR {{{id}}}:b; EXEC"
    rows = [{"id": i % 100} for i in range(1000)]
    report = fastresp.mass_insert(rows, template, server=cluster.url)
    assert (report.commands, report.failed) == (4000, 0)
    assert {cluster.client_of("{7}").get(f"{{7}}:{name}") for name in "ab"} == {b"10"}


def test_scripts(cluster: LocalCluster) -> None:
    script = fastresp.Script("return redis.call('SET', KEYS[1], ARGV[1])")
    rows = [(f"key:{i}", i) for i in range(1000)]
    for client in cluster.clients:
        client.script_flush()
    report = fastresp.mass_insert(rows, script.command("{0}", "{1}"), server=cluster.url)
    assert (report.failed, sum(cluster.sizes())) == (0, 1000)


@pytest.mark.parametrize("transport", ["redis-cli", "socket"])
def test_redis_cli_transport_is_refused(cluster: LocalCluster, cli: str, transport: str) -> None:
    client = redis.RedisCluster("127.0.0.1", cluster.ports[0])
    options: dict[str, Any] = {"server": client, "transport": transport}
    if transport == "redis-cli":
        with pytest.raises(fastresp.TransportError, match="can't load a whole cluster"):
            fastresp.mass_insert([("SET", "a", 1)], **options)
    else:
        assert fastresp.mass_insert([("SET", "a", 1)], **options).replies == 1
    client.close()


def test_module_command(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key positions come from COMMAND; here the command is renamed in its reply."""
    from fastresp.server import answers

    known = answers.positions_of
    monkeypatch.setattr(
        answers, "positions_of", lambda reply: known(reply) | {b"BOGUS.SET": (2, 2, 1)}
    )
    rows = [("BOGUS.SET", i, f"key:{i}") for i in range(100)]
    report = fastresp.mass_insert(rows, server=cluster.url, on_error="collect", transport="socket")
    assert (report.replies, report.failed) == (100, 100)
    assert {error.code for error in report.errors} == {"ERR"}


REFUSED = [
    (("MSET", "a", 1, "b", 2), '"MSET" has keys of several slots'),
    (("PING",), '"PING" has no key'),
    (("FLUSHALL",), '"FLUSHALL" has no key'),
    (("BOGUS", "a"), 'unknown which arguments of "BOGUS" are keys'),
    (("EVAL", "return 1", 0), '"EVAL" has no key'),
    (("MULTI",), '"MULTI" and its EXEC must be in one row'),
    (("WATCH", "a"), '"WATCH" can\'t be part of a load'),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_commands_without_an_owner(
    insert: Insert, cluster: LocalCluster, command: tuple[Any, ...], words: str
) -> None:
    rows = [*(("SET", f"k{i}", i) for i in range(700)), command, *[("SET", "never", 1)] * 700]
    with pytest.raises(fastresp.EncodeError, match=f"row 700, command 700: {words}") as caught:
        insert(rows, server=cluster.url)
    assert (caught.value.row, caught.value.command) == (700, 700)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.replies, sum(cluster.sizes())) == (700, 700, 700)


def test_transaction_over_several_slots(cluster: LocalCluster) -> None:
    rows = [("a", "a"), ("a", "b"), ("a", "a")]
    with pytest.raises(fastresp.EncodeError, match=r"row 1 \(key 'b'\), command 6: .INCR. has "):
        fastresp.mass_insert(rows, "MULTI; INCR {0}; INCR {1}; EXEC", server=cluster.url)
    assert cluster.client_of("a").get("a") == b"2"
    assert sum(cluster.sizes()) == 1


def test_transaction_that_does_not_end(cluster: LocalCluster) -> None:
    rows = [("{a}1", "v" * 600_000), ("zz", "1")]
    with pytest.raises(fastresp.EncodeError, match=r"row 0 \(key '{a}1'\), command 1: .MULTI."):
        fastresp.mass_insert(rows, ["SET {0} {1}", "MULTI", "INCR {0}"], server=cluster.url)
    assert sum(cluster.sizes()) == 0


def test_unknown_command_in_a_transaction(cluster: LocalCluster) -> None:
    template = "MULTI; SET {0} 1; XREAD STREAMS {0} 0; EXEC"
    with pytest.raises(fastresp.EncodeError, match='unknown which arguments of "XREAD" are keys'):
        fastresp.mass_insert([("a",)], template, server=cluster.url)
    assert sum(cluster.sizes()) == 0


def test_no_part_of_a_refused_row_is_sent(insert: Insert, cluster: LocalCluster) -> None:
    rows = [("a", "a"), ("a", "b"), ("c", "c")]
    template = ["SET x{0}{1} 1", "MSET {0} 1 {1} 2"]
    with pytest.raises(fastresp.EncodeError, match=r"row 1 \(key 'a'\), command 3") as caught:
        insert(rows, template, server=cluster.url)
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.commands, sum(cluster.sizes())) == (1, 2, 2)


class Refused:
    """Yield rows of which the third has no owner, then fail."""

    def __init__(self, after: str) -> None:
        self.after = after

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        yield from (("a", "a"), ("b", "b"), ("a", "b"))
        if self.after == "raise":
            raise ArithmeticError("later")
        yield ("d", None)


@pytest.mark.parametrize("after", ["null", "raise"])
@pytest.mark.parametrize("kind", ["sync", "asyncio", "async source"])
def test_first_error_is_raised(cluster: LocalCluster, kind: str, after: str) -> None:
    async def rows() -> Any:
        for row in Refused(after):
            yield row

    options: Any = {"server": cluster.url}
    template = "MSET {0} 1 {1} 2"
    with pytest.raises(fastresp.EncodeError, match=r"row 2 \(key '.'\), command 2") as caught:
        if kind == "sync":
            fastresp.mass_insert(Refused(after), template, **options)
        else:
            data = rows() if kind == "async source" else Refused(after)
            asyncio.run(fastresp.aio.mass_insert(data, template, **options))
    report: fastresp.Report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.acknowledged, sum(cluster.sizes())) == (2, 2, 2)


def test_node_that_closes_an_idle_connection() -> None:
    """It is connected again; its keys don't go to another node."""
    with LocalCluster() as cluster:

        def rows() -> Iterator[tuple[str, int]]:
            yield from ((f"{{{keys[0]}}}{i}", i) for i in range(100))
            cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
            yield from ((f"{{{keys[1]}}}{i}", i) for i in range(100_000))

        keys = [
            next(k for k in map(str, range(1000)) if cluster.client_of(k) is cluster.clients[n])
            for n in range(2)
        ]
        report = insert_sync(rows(), "SET {0} {1}", server=cluster.url)
        assert (report.replies, report.failed, report.in_doubt) == (100_100, 0, 0)
        assert cluster.sizes() == [100, 100_000, 0]


@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_commands_for_all_nodes(insert: Insert, cluster: LocalCluster, mode: str) -> None:
    """Each node gets the script and the function before the commands that use them."""
    script = fastresp.Script("return redis.call('RPUSH', KEYS[1], ARGV[1])" + "--" * 100_000)
    library = (
        "#!lua name=ours\nredis.register_function('put', function(keys, args) "
        "return redis.call('RPUSH', keys[1], args[1]) end)"
    )
    commands: list[tuple[Any, ...]] = [("RPUSH", f"list:{i}", 0) for i in range(300)]
    commands += [("script", "load", script.text), ("FUNCTION", "LOAD", "REPLACE", library)]
    commands += [("EVALSHA", script.sha1, 1, f"list:{i}", 1) for i in range(300)]
    commands += [("FCALL", "put", 1, f"list:{i}", 2) for i in range(300)]
    commands += [("FUNCTION", "LOAD", library)]
    report = insert(commands, server=cluster.url, mode=mode, on_error="collect")
    assert (report.rows, report.commands, report.replies) == (903, 909, 909)
    assert report.failed == 3  # the library already exists on each node
    assert {error.row for error in report.errors} == {902}
    for i in range(300):
        stored = cluster.client_of(f"list:{i}").lrange(f"list:{i}", 0, -1)
        assert stored == [b"0", b"1", b"2"]


def test_report_names_the_slow_node(insert: Insert, cluster: LocalCluster) -> None:
    """The others wait for it once its share of the window is full."""
    slow = cluster.nodes[1].process.pid

    def rows() -> Iterator[tuple[str, str]]:
        for i in range(60_000):
            if i == 1_000:
                os.kill(slow, signal.SIGSTOP)
                threading.Timer(0.7, os.kill, (slow, signal.SIGCONT)).start()
            yield f"key:{i}", "x" * 200

    report = insert(rows(), "SET {0} {1}", server=cluster.url)
    assert report.replies == 60_000
    node = f"127.0.0.1:{cluster.ports[1]}"
    assert max(report.waited_for, key=report.waited_for.__getitem__) == node
    assert f"waited longest for {node}" in str(report)


def test_errors_name_their_node(insert: Insert, cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.client_of("key:7").set("key:7", "text")
    node = f"127.0.0.1:{cluster.client_of('key:7').connection_pool.connection_kwargs['port']}"
    rejects = tmp_path / "rejects"
    report = insert(
        [{"id": i} for i in range(100)], "RPUSH key:{id} 1", server=cluster.url,
        on_error="collect", rejects=str(rejects),
    )  # fmt: skip
    [error] = report.errors
    assert (error.row, error.node) == (7, node)
    assert f"(node {node})" in str(error)
    assert json.loads(rejects.read_text())["node"] == node


def test_client_with_a_dead_first_node(cluster: LocalCluster, port: int) -> None:
    nodes = [
        redis.asyncio.cluster.ClusterNode("127.0.0.1", each) for each in (port, *cluster.ports)
    ]

    async def load() -> fastresp.Report:
        async with redis.asyncio.RedisCluster(startup_nodes=nodes) as client:
            return await fastresp.aio.mass_insert([("SET", "a", 1)], server=client)

    assert asyncio.run(load()).replies == 1


SLOTS_REPLIES: list[tuple[Any, Any]] = [
    ([[0, 16383, [b"10.0.0.1", 1, b"id"]]], [("10.0.0.1", 1)]),
    ([[0, 16383, [b"::1", 1, b"id", []]]], [("::1", 1)]),
    ([[0, 16383, [b"", 1, b"id"]]], [("asked", 1)]),
    ([[0, 16383, [None, 1, b"id", [b"ip", b"10.0.0.2"]]]], [("asked", 1)]),
    ([[0, 9, [b"?", 1, b"a", [b"ip", b"10.0.0.1"]]],
      [10, 11, [b"?", 1, b"b", [b"ip", b"10.0.0.2"]]]],
     [("10.0.0.1", 1), ("10.0.0.2", 1)]),
    ([[0, 16383, [b"?", 1, b"id"]]], [("asked", 1)]),
    ([[0, 9, [b"a", 1, b"id"], [b"b", 2, b"id"]], [20, 29, [b"a", 1, b"id"]]], [("a", 1)]),
    ([], None), (None, None), (b"OK", None), ([1], None), ([[0, 16384, [b"a", 1, b"id"]]], None),
    ([[5, 4, [b"a", 1, b"id"]]], None), ([[0, 1, [b"a", 0, b"id"]]], None),
    ([[0, 1, [b"a", 70000, b"id"]]], None), ([[0, 1, [7, 1, b"id"]]], None),
    ([[0, 1, [[b"a"], 1, b"id"]]], None), ([[0, 1, [b"a", b"1", b"id"]]], None),
    ([[0, 1, [b"\xff", 1, b"id"]]], None), ([[0, 1, [b"?", 1, b"id", 7]]], None),
    ([[n, n, [b"a", n + 1, b"id"]] for n in range(2000)], None),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "nodes"), SLOTS_REPLIES)
def test_replies_to_cluster_slots(reply: Any, nodes: Any) -> None:
    if nodes is None:
        with pytest.raises(fastresp.TransportError, match="can't use the cluster at place"):
            topology_of(reply, "asked", "place")
    else:
        assert topology_of(reply, "asked", "place").nodes == nodes


def test_unreachable_replicas() -> None:
    """They are left out: the load needs them only if a primary is lost."""
    reply = [[0, 16383, [b"a", 1, b"id"], [b"b", 70000, b"id"], [b"c", 0, b"id"], [b"d", 2, b"id"]]]
    assert topology_of(reply, "asked", "place").replicas == [("d", 2)]


def test_replies_to_command() -> None:
    good = [b"x.y", 2, [b"write"], 1, 1, 1, []]
    reply = [
        good,
        [b"big", 2, [], 2**40, 1, 1],
        [b"moves", 2, [b"movablekeys"], 1, 1, 1],
        7,
        [b"x"],
    ]
    assert positions_of(reply) == {b"X.Y": (1, 1, 1)}
    assert positions_of(b"ERR") == {}


def test_errors_have_their_rows(insert: Insert, cluster: LocalCluster) -> None:
    wrong = [*range(0, 2000, 97)]
    for i in wrong:
        cluster.client_of(f"key:{i}").lpush(f"key:{i}", 1)
    report = insert(
        ((i,) for i in range(2000)), "INCR key:{0}", server=cluster.url, on_error="collect"
    )
    assert (report.replies, report.failed) == (2000, len(wrong))
    assert sorted((error.row, error.index) for error in report.errors) == [(i, i) for i in wrong]
    assert {error.code for error in report.errors} == {"WRONGTYPE"}


@pytest.mark.parametrize("library", ["redis", "redis.asyncio", "valkey", "valkey.asyncio"])
def test_cluster_clients(cluster: LocalCluster, library: str) -> None:
    import importlib

    module = importlib.import_module(library)
    name = "ValkeyCluster" if library.startswith("valkey") else "RedisCluster"
    client = getattr(module, name)(host="127.0.0.1", port=cluster.ports[1])
    report = fastresp.mass_insert(pushes(1000, 50), "RPUSH list:{0} {1}", server=client)
    assert report.replies == 1000
    check_pushes(cluster, 1000, 50)
    if not library.endswith("asyncio"):
        client.close()


def test_a_node_is_killed() -> None:
    with LocalCluster() as cluster:

        def rows() -> Iterator[tuple[int]]:
            for i in range(200_000):
                if i == 100_000:
                    os.kill(cluster.nodes[1].process.pid, signal.SIGKILL)
                yield (i,)

        with pytest.raises(fastresp.TransportError) as caught:
            insert_sync(rows(), "SET {0} 1", server=cluster.url, timeout=2)
        report = caught.value.report
        assert report is not None
        assert f"127.0.0.1:{cluster.ports[1]}" in str(caught.value)
        assert 0 < report.acknowledged < 200_000
        stored = cluster.clients[0].dbsize() + cluster.clients[2].dbsize()
        assert stored <= report.acknowledged + report.in_doubt


def test_asyncio_source(cluster: LocalCluster) -> None:
    async def rows() -> Any:
        for i, row in enumerate(pushes(1000, 50)):
            if i % 300 == 0:
                await asyncio.sleep(0.01)
            yield row

    async def load() -> fastresp.Report:
        return await fastresp.aio.mass_insert(rows(), "RPUSH list:{0} {1}", server=cluster.url)

    assert asyncio.run(load()).replies == 1000
    check_pushes(cluster, 1000, 50)


def test_slots_without_a_node(start_server: Any) -> None:
    server = start_server("--port", str(free_port()), "--cluster-enabled", "yes")
    with pytest.raises(fastresp.TransportError, match="no node serves a slot"):
        fastresp.mass_insert([("SET", "a", 1)], server=server.url)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(8192))
        client.config_set("cluster-require-full-coverage", "no")
        with pytest.raises(fastresp.EncodeError, match="no node of the cluster serves slot 15,495"):
            fastresp.mass_insert([("SET", "a", 1)], server=server.url)


def test_password(tmp_path: Path) -> None:
    with LocalCluster(1) as cluster:
        cluster.clients[0].config_set("requirepass", "p@ss")
        url = f"redis://:p%40ss@127.0.0.1:{cluster.ports[0]}"
        assert fastresp.mass_insert([("SET", "a", 1)], server=url).replies == 1


def test_rate_limit(cluster: LocalCluster) -> None:
    report = fastresp.mass_insert(
        pushes(1000, 50), "RPUSH list:{0} {1}", server=cluster.url, rate_limit=2000
    )
    assert report.replies == 1000
    assert report.seconds > 0.4
    check_pushes(cluster, 1000, 50)


def test_settings_of_nodes(cluster: LocalCluster) -> None:
    server = Server(cluster.nodes[0].url, Requirements(nodes=True))
    answers = server.ask(5)
    assert answers.topology is not None
    names = [str(each) for each in server.nodes_of(answers.topology.nodes, 2)]
    assert sorted(set(names)) == sorted(f"127.0.0.1:{port}" for port in cluster.ports)
    assert len(names) == 6


def test_too_many_connections() -> None:
    nodes = [("10.0.0.1", port) for port in range(1, 101)]
    assert len(Server("redis://localhost").nodes_of(nodes, 40)) == 4_000
    with pytest.raises(fastresp.TransportError, match="use fewer connections"):
        Server("redis://localhost").nodes_of(nodes, 41)
