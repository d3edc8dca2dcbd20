"""Reading continues while nodes refuse commands, die or freeze, and after failovers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from cluster_events import Events
from cluster_reading import keys_of
from local_cluster import READY_S, LocalCluster
from reading import Execute, execute_asyncio, execute_sync
from server_programs import need
from waiting import until

import fastresp
import fastresp.aio

ROWS = 60_000
KEYS = 300


@pytest.fixture
def replicated() -> Iterator[LocalCluster]:
    """Start three primaries, each with a synced replica."""
    need("server")
    with LocalCluster(3, 1, options=lambda port: ("--appendonly", "yes")) as cluster:
        rows = [(key, field) for key in range(KEYS) for field in range(3)]
        fastresp.mass_insert(rows, "HSET h:{0} f{1} {0}", server=cluster.url)
        fastresp.mass_insert(range(KEYS), "SET n:{0} {0}", server=cluster.url)
        in_step(cluster)
        yield cluster


def in_step(cluster: LocalCluster) -> None:
    """Wait until each replica is in sync with its primary."""
    count = cluster.primaries

    def reached() -> bool:
        links = [client.info("replication") for client in cluster.clients[count:]]
        return all(link["master_link_status"] == "up" for link in links) and (
            [client.dbsize() for client in cluster.clients[count:]] == cluster.sizes()
        )

    cluster.until(lambda _: reached())


def rows(happening: Callable[[], object], at: int = ROWS // 2) -> Iterator[int]:
    for i in range(ROWS):
        if i == at:
            happening()
        yield i % KEYS


def kill(cluster: LocalCluster, number: int) -> None:
    cluster.nodes[number].process.kill()
    cluster.nodes[number].process.wait()


def freeze(cluster: LocalCluster, number: int) -> None:
    os.kill(cluster.nodes[number].process.pid, signal.SIGSTOP)


def restart(cluster: LocalCluster, number: int) -> None:
    cluster.clients[number].save()
    kill(cluster, number)
    threading.Timer(0.5, cluster.nodes[number].start).start()


def close_connections(cluster: LocalCluster, number: int) -> None:
    cluster.clients[number].client_kill_filter(_type="normal", skipme=True)


@pytest.mark.few(0)
@pytest.mark.parametrize("happening", [kill, freeze, restart, close_connections])
@pytest.mark.parametrize("command", ["GET n:{0}", "SETEX n:{0} 1000 {0}"])
def test_lost_node(
    execute: Execute, replicated: LocalCluster, happening: Any, command: str
) -> None:
    """Every reply arrives, in order."""
    got = execute(rows(lambda: happening(replicated, 1)), command, server=replicated.url)
    if command.startswith("GET"):
        assert got == [b"%d" % (i % KEYS) for i in range(ROWS)]
    else:
        assert got == [b"OK"] * ROWS
    if happening is freeze:
        os.kill(replicated.nodes[1].process.pid, signal.SIGCONT)


@pytest.mark.slow
def test_hashes(replicated: LocalCluster) -> None:
    """As dicts or columns, sync and asyncio; rows are put in order as bytes."""
    wanted = [{"f0": str(i % KEYS), "f2": str(i % KEYS)} for i in range(ROWS)]
    keys = (f"h:{key}" for key in rows(lambda: kill(replicated, 0)))
    url = f"redis://127.0.0.1:{replicated.ports[1]}"
    assert list(fastresp.fetch_hashes(keys, ["f0", "f2"], server=url)) == wanted

    async def collect() -> list[Any]:
        # The first replica is now a primary, and the killed node its replica.
        keys = (f"h:{key}" for key in rows(lambda: kill(replicated, 3)))
        hashes = fastresp.aio.fetch_hashes(keys, ["f0", "f2"], server=url)
        return [row async for row in hashes]

    replicated.nodes[0].start()
    in_step_again(replicated, 3)
    assert asyncio.run(collect()) == wanted


def in_step_again(cluster: LocalCluster, primary: int) -> None:
    """Wait until a promoted replica has a replica itself."""
    until(lambda: cluster.clients[primary].info("replication")["connected_slaves"] >= 1, READY_S)


@pytest.mark.few(0)
def test_commands_that_are_not_idempotent(execute: Execute, replicated: LocalCluster) -> None:
    """The error names the row of the first command in doubt; earlier replies are yielded."""
    dead = keys_of(replicated, 1, 1)[0]

    def source() -> Iterator[str]:
        yield from keys_of(replicated, 0, 20)
        freeze(replicated, 1)
        yield from [dead, dead]
        yield from keys_of(replicated, 0, 20)
        timer.start()  # all is sent before it fires

    timer = threading.Timer(0.5, kill, (replicated, 1))
    words = rf"127.0.0.1:{replicated.ports[1]}.*the INCR of row 20 is not resent, since it"
    with pytest.raises(fastresp.TransportError, match=words) as caught:
        execute(source(), "INCR {0}", server=replicated.url)
    timer.join()
    report = caught.value.report
    assert report is not None
    assert (report.rows, report.commands, report.replies, report.unsent) == (42, 42, 40, 0)


@pytest.mark.few(0)
def test_no_replica_takes_over(execute: Execute) -> None:
    """After the timeout the reading ends, and names the slots and the row."""
    with LocalCluster() as cluster:
        for client in cluster.clients:
            client.config_set("cluster-require-full-coverage", "no")
        [key] = keys_of(cluster, 1, 1)
        alive = keys_of(cluster, 0, 50)
        slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", key)

        def source() -> Iterator[str]:
            yield from alive
            kill(cluster, 1)
            yield key
            yield from alive

        words = rf"127.0.0.1:{cluster.ports[1]}.* slots {slot:,} after 1 s.* row 50"
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            execute(source(), "GET {0}", server=cluster.url, timeout=1)
        report = caught.value.report
        assert report is not None
        assert report.replies >= 50
        assert report.unsent + report.in_doubt >= 1
        assert report.commands == report.replies + report.in_doubt


@pytest.mark.parametrize("run", ["sync", "asyncio"])
def test_execute(run: str) -> None:
    """The call waits for the node's restart, or for a redirection to its successor."""
    with LocalCluster(3, 1) as cluster:
        [key] = keys_of(cluster, 1, 1)
        cluster.clients[1].set(key, "x")
        in_step(cluster)
        url = f"redis://127.0.0.1:{cluster.ports[0]}"

        def get() -> Any:
            if run == "sync":
                return fastresp.execute("GET", key, server=url)
            return asyncio.run(fastresp.aio.execute("GET", key, server=url))

        kill(cluster, 1)  # the other node still names it as the owner
        assert get() == b"x"


@pytest.mark.slow
def test_source_that_pauses(replicated: LocalCluster) -> None:
    """A node that is lost meanwhile is replaced when the source continues."""

    async def source() -> AsyncIterator[int]:
        for i in range(3_000):
            if i == 1_000:
                kill(replicated, 2)
                await asyncio.sleep(0.5)
            if i in (1_001, 1_002):
                await asyncio.sleep(0.3)
            yield i % KEYS

    async def collect() -> list[Any]:
        replies = fastresp.aio.iter_replies(source(), "GET n:{0}", server=replicated.url)
        return [reply async for reply in replies]

    assert asyncio.run(collect()) == [b"%d" % (i % KEYS) for i in range(3_000)]


@pytest.mark.slow
def test_large_replies(replicated: LocalCluster) -> None:
    """Replies that others wait for are read, and few replies wait."""
    fastresp.mass_insert(range(KEYS), "SETRANGE n:{0} 50000 x", server=replicated.url)
    in_step(replicated)
    got = 0
    for reply in fastresp.iter_replies(
        rows(lambda: kill(replicated, 1), at=5_000), "GET n:{0}", server=replicated.url
    ):
        assert len(reply) == 50_001
        got += 1
        if got == 20_000:
            break
    assert got == 20_000


@pytest.mark.slow
def test_slow_reader_is_not_a_timeout(replicated: LocalCluster) -> None:
    """The caller's own pauses don't count while a replica takes over."""
    replies = fastresp.iter_replies(
        rows(lambda: kill(replicated, 1), at=3_000), "GET n:{0}", server=replicated.url, timeout=5.0
    )
    for i, reply in enumerate(replies):
        assert reply == b"%d" % (i % KEYS)
        if i in (100, 1_000, 2_000):
            time.sleep(2.5)
        if i == 10_000:
            break


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_events(seed: int) -> None:
    """Reading never fails: no reply is missing or wrong."""
    # A restarted node without an append-only file may have lost data, which is an error.
    kept = ("--appendonly", "yes", "--appendfsync", "no")
    with LocalCluster(3, 2, options=lambda port: kept) as cluster:
        fastresp.mass_insert(range(KEYS), "SET n:{0} {0}", server=cluster.url)
        cluster.until_synced()
        time.sleep(0.2)
        slots = [
            cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", f"n:{i}") for i in range(KEYS)
        ]
        events = Events(cluster, seed, slots)
        kinds = ["kill", "move", "freeze", "fail_over", "kill", "move"]
        random.Random(seed).shuffle(kinds)
        count = 200_000
        source = events.between((i % KEYS for i in range(count)), count, kinds)
        execute = (execute_sync, execute_asyncio)[seed % 2]
        got = execute(source, "GET n:{0}", server=cluster.url)
        assert not events.failed, events.failed
        assert sorted(events.done) == sorted(kinds)
        assert got == [b"%d" % (i % KEYS) for i in range(count)]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_commands_of_a_key_stay_in_order(seed: int) -> None:
    """Slots move, and replicas take over as planned: each GET returns the previous SET's value."""
    with LocalCluster(3, 2) as cluster:
        cluster.until_synced()
        client = cluster.clients[0]
        slots = [client.execute_command("CLUSTER", "KEYSLOT", f"n:{i}") for i in range(KEYS)]
        events = Events(cluster, seed, slots)
        count = 150_000

        def source() -> Iterator[tuple[Any, ...]]:
            for i in range(0, count, 2):
                key = f"n:{i // 2 % KEYS}"
                yield "SET", key, i
                yield "GET", key

        kinds = ["move", "fail_over", "move", "fail_over", "reshard"]
        random.Random(seed).shuffle(kinds)
        execute = (execute_sync, execute_asyncio)[seed % 2]
        got = execute(events.between(source(), count, kinds), server=cluster.url)
        assert not events.failed, events.failed
        assert got == [b"%d" % (i - 1) if i % 2 else b"OK" for i in range(count)]
