"""ListBuffer while the server, the connections and the consumers are killed at random."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
import redis
from buffers import DELIVERIES, wait_for_silence

import fastresp
from fastresp.server.local_server import LocalServer

# A consumer that keeps its buffer, retries calls that lost their connection, and records the
# items that it received, and each wrong count.
CONSUMER = """
import itertools, os, random, sys, time, fastresp
key, url, delivery, out, way = sys.argv[1:]
out = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
safe = delivery == "at-least-once"
options = {"server": url, "delivery": delivery, "lease": 1.5, "batch": 40, "timeout": 5.0}

def record(items):
    os.write(out, b"".join(item + b"\\n" for item in items))

def acknowledge(count, left, before):
    while True:
        try:
            kept = buffer.ack(count)
            break
        except fastresp.TransportError:
            time.sleep(0.01)
    if (kept, buffer.acknowledged) != (left, before + count):
        record([b"WRONG %d %d %d %d" % (kept, left, buffer.acknowledged, before + count)])

def some():
    n = random.randint(1, 150)
    if way == "pop":
        return buffer.pop(n)
    if way == "pop_arrow":
        return buffer.pop_arrow(n).to_bytes()
    items = []
    try:
        for item in buffer.consume(n, block=0.05):
            items.append(item)
    except fastresp.TransportError:
        if not items:
            raise
    return items

buffer = fastresp.ListBuffer(key, **options)
while True:
    try:
        if random.random() < 0.1:
            buffer.recover()
        if random.random() < 0.05:
            buffer.close()
        items = some()
        record(items)
        if safe:
            first, before = random.randint(0, len(items)), buffer.acknowledged
            acknowledge(first, len(items) - first, before)
            acknowledge(len(items) - first, 0, before + first)
        if not items:
            time.sleep(0.01)
    except fastresp.LeaseError:
        pass
    except fastresp.TransportError:
        time.sleep(0.01)
"""
CONSUMERS = 4
WAYS = ("pop", "pop_arrow", "consume")


class Producer(threading.Thread):
    """Pushes numbered items, through lost connections.

    Attributes:
        sure: items that the server acknowledged.
        doubtful: items in doubt or unsent.
    """

    def __init__(self, number: int, url: str) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.sure: set[bytes] = set()
        self.doubtful: set[bytes] = set()
        self._number, self._url = number, url

    def run(self) -> None:
        made = 0
        buffer = fastresp.ListBuffer("q", server=self._url, batch=30, timeout=5.0)
        while not self.stop.is_set():
            items = [b"%d:%d" % (self._number, i) for i in range(made, made + 200)]
            made += len(items)
            try:
                buffer.push(items)
                done = len(items)
            except fastresp.TransportError as error:
                done = error.report.rows if error.report else 0
            self.sure.update(items[:done])
            self.doubtful.update(items[done:])
            time.sleep(0.005)
        buffer.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("seconds", [1.5, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_kills(
    start_server: Callable[..., LocalServer], tmp_path: Path, delivery: str, seconds: float
) -> None:
    """At-most-once: no item twice. At-least-once: no item lost. Each ack() counts once."""
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    chance = random.Random(11)
    kills: Counter[str] = Counter()

    def start(place: int) -> subprocess.Popen[bytes]:
        out, way = str(tmp_path / f"out{place}"), WAYS[place % len(WAYS)]
        command = [sys.executable, "-c", CONSUMER, "q", server.url, delivery, out, way]
        return preloaded.Popen(command)

    producers = [Producer(i, server.url) for i in range(2)]
    consumers = [start(place) for place in range(CONSUMERS)]
    try:
        for producer in producers:
            producer.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or len(kills) < 3:
            time.sleep(0.05 + 0.2 * chance.random())
            what = chance.choices(["server", "connections", "consumer"], [2, 5, 2])[0]
            kills[what] += 1
            if what == "server":
                server.process.kill()
                server.process.wait()
                server.start()
            elif what == "connections":
                with redis.Redis.from_url(server.url) as client:
                    client.client_kill_filter(_type="normal", skipme=True)
            else:
                place = chance.randrange(CONSUMERS)
                assert consumers[place].poll() is None
                consumers[place].kill()
                consumers[place].wait()
                consumers[place] = start(place)
    finally:
        for producer in producers:
            producer.stop.set()
            producer.join()
        alive = [consumer.poll() is None for consumer in consumers]
        for consumer in consumers:
            consumer.kill()
            consumer.wait()
    assert all(alive)
    with redis.Redis.from_url(server.url) as client:
        wait_for_silence(client)
    with fastresp.ListBuffer("q", server=server.url) as buffer:
        buffer.recover()
        got = Counter(buffer.consume())
    for place in range(CONSUMERS):
        path = tmp_path / f"out{place}"
        got.update(path.read_bytes().split(b"\n")[:-1] if path.exists() else [])
    sure = set.union(*(producer.sure for producer in producers))
    doubtful = set.union(*(producer.doubtful for producer in producers))
    assert not [item for item in got if item.startswith(b"WRONG")]
    assert got.keys() <= sure | doubtful
    if delivery == "at-least-once":
        assert sure <= got.keys()
    else:
        assert set(got.values()) == {1}
        assert len(got) > len(sure) // 3  # lost items were in flight to a consumer
    with redis.Redis.from_url(server.url) as client:
        assert client.keys("*processing*") == []
