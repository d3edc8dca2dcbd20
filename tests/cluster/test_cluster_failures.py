"""Slow or failing nodes, and failing readers: bounded memory, and no hang."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from cluster_reading import connected, keys_of
from local_cluster import LocalCluster
from peak import PEAK
from reading import Execute
from waiting import until

import fastresp
import fastresp.aio


def test_node_that_is_lost_while_the_source_pauses() -> None:
    """The loss is noticed before the next row arrives."""
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
    until(lambda: connected(cluster) == before)


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


@pytest.mark.slow
def test_large_replies_while_a_node_is_slow(cluster: LocalCluster) -> None:
    """1 GB of replies of the other nodes wait for the slow node, a part at a time."""
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
    """All earlier replies are yielded; the error names the node."""
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


def test_connection_that_is_closed(cluster: LocalCluster) -> None:
    """It is closed while idle: all replies arrive, including replies to writes."""
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
    for reply in fastresp.iter_replies(source(), "INCR {0}", server=cluster.url):
        got.append(reply)
        if len(got) == 1000:
            cluster.clients[1].client_kill_filter(_type="normal", skipme=True)
            killed = True
    assert got == [1, *range(1, made + 1), 2, *range(1, 1001)]


def test_interrupted(cluster: LocalCluster) -> None:
    """Ctrl-C during the wait for a node ends the call immediately."""
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
    until(lambda: connected(cluster) == before)
