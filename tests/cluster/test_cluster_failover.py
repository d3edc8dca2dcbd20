"""Nodes that die during a load: a replica takes over, the node comes back, or neither."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import LocalCluster
from server_programs import need
from waiting import until

import fastresp

ROWS = 40_000
KEYS = 200
# Fewer rows fill as many chunks.
ZEROS = "0" * 60
PUSH = f"RPUSH list:{{0}} {ZEROS}{{1}}"
SET = f"SET key:{{1}} {ZEROS}{{1}}"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Start three primaries with two synced replicas each, so that one is left for WAIT."""
    need("server")
    with LocalCluster(3, 2) as cluster:
        cluster.until_synced()
        yield cluster


def rows(happening: Callable[[], object], at: int = ROWS // 2) -> Iterator[tuple[int, int]]:
    for i in range(ROWS):
        if i == at:
            happening()
        yield i % KEYS, i


def kill(cluster: LocalCluster, number: int) -> None:
    cluster.nodes[number].process.kill()
    cluster.nodes[number].process.wait()


def kill_copied(cluster: LocalCluster, number: int) -> None:
    """Kill a primary when its replicas have received all its data."""

    def copied() -> bool:
        wanted = cluster.clients[number].info("replication")["master_repl_offset"]
        states = [client.info("replication") for client in cluster.clients]
        offsets = [
            state["slave_repl_offset"]
            for state in states
            if state.get("master_port") == cluster.ports[number]
        ]
        assert len(offsets) == cluster.replicas
        return min(offsets) >= wanted

    until(copied, 20, "the replicas do not catch up")
    kill(cluster, number)


def listed(cluster: LocalCluster, alive: int) -> dict[int, list[int]]:
    """Return the list of each key, as the live nodes have it."""
    with redis.RedisCluster("127.0.0.1", cluster.ports[alive]) as client:
        return {
            key: [int(item) for item in client.lrange(f"list:{key}", 0, -1)] for key in range(KEYS)
        }


@pytest.mark.few(1)
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_primary_that_is_killed(
    insert: Insert, cluster: LocalCluster, connections: int, mode: str
) -> None:
    """Idempotent commands in doubt are resent."""
    report = insert(
        rows(lambda: kill(cluster, 0)), f"HSET hash:{{0}} f{{1}} {ZEROS}{{1}}", server=cluster.url,
        connections=connections, mode=mode, durable=1,
    )  # fmt: skip
    assert (report.rows, report.commands, report.replies) == (ROWS, ROWS, ROWS)
    assert (report.failed, report.in_doubt, report.unsent) == (0, 0, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[1]) as client:
        for key in range(KEYS):
            assert client.hlen(f"hash:{key}") == ROWS // KEYS


@pytest.mark.few(0)
@pytest.mark.parametrize("retry", [None, "never"])
@pytest.mark.parametrize("replicas", [0, 1])
def test_commands_that_are_not_idempotent(
    cluster: LocalCluster, retry: str | None, replicas: int
) -> None:
    """They are in doubt, the report names their rows, and the load continues."""
    report = insert_sync(
        rows(lambda: kill_copied(cluster, 1)), PUSH, server=cluster.url, retry=retry,
        on_error="collect", durable=replicas or "acknowledged",
    )  # fmt: skip
    assert (report.rows, report.commands, report.failed) == (ROWS, ROWS, 0)
    assert (report.unsent, report.in_doubt) == (0, len(report.rows_in_doubt))
    doubtful = set(report.rows_in_doubt)
    assert len(doubtful) == report.in_doubt
    lost = 0
    for key, stored in listed(cluster, 0).items():
        assert stored == sorted(set(stored))
        missing = set(range(key, ROWS, KEYS)) - set(stored) - doubtful
        if replicas:
            assert not missing
        lost += len(missing)
    assert lost < ROWS / 100  # without WAIT, the replica may lack the newest commands


@pytest.mark.slow
def test_always_resends(cluster: LocalCluster) -> None:
    """Every command in doubt is resent: none is missing, and some run twice."""
    report = insert_sync(
        rows(lambda: kill(cluster, 1)), PUSH, server=cluster.url, retry="always", durable=1
    )
    assert (report.replies, report.in_doubt, report.unsent) == (ROWS, 0, 0)
    for key, stored in listed(cluster, 0).items():
        assert set(stored) == set(range(key, ROWS, KEYS))


@pytest.mark.parametrize("on_error", ["raise", "stop"])
def test_doubt_is_an_error(cluster: LocalCluster, on_error: str) -> None:
    """The error is raised at the end, or immediately."""
    with Caught() as caught:
        report = insert_sync(
            rows(lambda: kill(cluster, 1)), PUSH, server=cluster.url, on_error=on_error,
            durable=1,
        )  # fmt: skip
        assert not report.rows_in_doubt
    if caught:
        assert "in doubt" in str(caught[0])
        report = caught[0].report
        assert report.in_doubt == len(report.rows_in_doubt) > 0
        assert (report.rows == ROWS) == (on_error == "raise")


class Caught(list[fastresp.TransportError]):
    """Suppress a TransportError, if any: a kill may hit a moment without commands in flight."""

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, fastresp.TransportError):
            self.append(error)
            return True
        return False


@pytest.mark.few(0)
def test_primary_that_freezes(insert: Insert, cluster: LocalCluster) -> None:
    """Another node takes over its slots while its connection is still open."""
    process = cluster.nodes[2].process
    try:
        report = insert(
            rows(lambda: os.kill(process.pid, signal.SIGSTOP)), f"SADD set:{{0}} {ZEROS}{{1}}",
            server=cluster.url,
        )  # fmt: skip
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert (report.rows, report.replies, report.in_doubt, report.unsent) == (ROWS, ROWS, 0, 0)


def test_no_replica_takes_over() -> None:
    """After the timeout the load ends, and names the slots; other nodes' commands are answered."""
    with LocalCluster() as cluster:
        with pytest.raises(fastresp.TransportError) as caught:
            insert_sync(rows(lambda: kill(cluster, 1)), SET, server=cluster.url, timeout=1.5)
        words = str(caught.value)
        assert f"127.0.0.1:{cluster.ports[1]}" in words
        assert "no node serves slots 5,461-10,921 after 1.5 s" in words or "CLUSTERDOWN" in words
        report = caught.value.report
        assert report is not None
        assert report.rows > ROWS // 2
        stored = sum(client.dbsize() for client in (cluster.clients[0], cluster.clients[2]))
        assert 0 < stored <= report.replies


@pytest.mark.few(0)
@pytest.mark.parametrize("aof", ["yes", "no"])
def test_restarted_node(aof: str) -> None:
    """The load waits for the node; without an append-only file, acknowledged data may be lost."""
    # With everysec, a write to the file can wait for a slow disk, and follow the reply.
    options = ("--appendonly", aof, "--appendfsync", "no")
    with LocalCluster(options=lambda port: options) as cluster:

        def restart() -> None:
            kill(cluster, 1)
            threading.Timer(0.5, cluster.nodes[1].start).start()

        def answered_before() -> Iterator[tuple[int, int]]:
            """Pause until each node has answered; otherwise nothing is lost."""
            source = rows(restart, ROWS * 3 // 4)
            yield from itertools.islice(source, ROWS // 2)
            cluster.until(lambda client: client.dbsize() > 0)
            yield from source

        def load(on_error: str) -> fastresp.Report:
            cluster.empty()
            return insert_sync(answered_before(), SET, server=cluster.url, on_error=on_error)

        if aof == "yes":
            report = load("raise")
            assert (report.restarts, sum(cluster.sizes())) == ([], ROWS)
        else:
            with pytest.raises(
                fastresp.TransportError, match="acknowledged commands may be lost"
            ) as caught:
                load("raise")
            report = caught.value.report
            assert report is not None
            [words] = report.restarts
            place = f"127.0.0.1:{cluster.ports[1]}"
            assert words == (
                f"the server at {place} was restarted or replaced, and is empty "
                "(slots 5,461-10,921)"
            )
            assert sum(cluster.sizes()) < ROWS
            assert len(load("collect").restarts) == 1
            with pytest.raises(fastresp.TransportError) as caught:
                load("stop")
            assert caught.value.report is not None
            assert "a server may have lost data" in caught.value.report.stopped
            assert caught.value.report.rows < ROWS
            return
        assert (report.rows, report.replies, report.in_doubt, report.unsent) == (ROWS, ROWS, 0, 0)


@pytest.mark.few(0)
def test_connections_that_are_closed(insert: Insert, cluster: LocalCluster) -> None:
    """They are closed repeatedly, while commands are in flight."""

    def closing() -> Iterator[tuple[int, int]]:
        for key, i in rows(lambda: None):
            if i % 4_000 == 3_999:
                with suppress(redis.RedisError):
                    cluster.clients[i % 3].client_kill_filter(_type="normal", skipme=True)
            yield key, i

    report = insert(closing(), f"SADD set:{{0}} {ZEROS}{{1}}", server=cluster.url, connections=2)
    assert (report.rows, report.replies, report.failed) == (ROWS, ROWS, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        assert sum(client.scard(f"set:{key}") for key in range(KEYS)) == ROWS


@pytest.mark.slow
def test_scripts_are_loaded_on_the_new_primary(cluster: LocalCluster) -> None:
    script = fastresp.Script("return redis.call('SADD', KEYS[1], ARGV[1])")
    report = insert_sync(
        rows(lambda: kill(cluster, 0)), script.command("set:{0}", "{1}"), server=cluster.url,
        retry="always", durable=1,
    )  # fmt: skip
    assert (report.replies, report.failed, report.in_doubt) == (ROWS, 0, 0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[1]) as client:
        assert sum(client.scard(f"set:{key}") for key in range(KEYS)) == ROWS


@pytest.mark.slow
def test_transactions(cluster: LocalCluster) -> None:
    """Each ran entirely or not at all; transactions without a sent EXEC are resent."""
    template = f"MULTI; {PUSH}; RPUSH {{{{list:{{0}}}}}}:2 {{1}}; EXEC"
    report = insert_sync(
        rows(lambda: kill(cluster, 0)), template, server=cluster.url, on_error="collect",
        durable=1,
    )  # fmt: skip
    assert (report.rows, report.commands, report.failed) == (ROWS, 4 * ROWS, 0)
    doubtful = set(report.rows_in_doubt)
    with redis.RedisCluster("127.0.0.1", cluster.ports[1]) as client:
        for key, stored in listed(cluster, 1).items():
            assert stored == sorted(set(stored))
            assert set(range(key, ROWS, KEYS)) - set(stored) <= doubtful
            assert client.lrange(f"{{list:{key}}}:2", 0, -1) == [b"%d" % item for item in stored]
