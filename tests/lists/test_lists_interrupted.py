"""ListBuffer, sync and asyncio: interruptions lose no item and keep replies in step."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

import preloaded
import pytest
import redis
from buffers import DELIVERIES, Open

import fastresp
import fastresp.aio
from fastresp.lists import push
from fastresp.server.local_server import LocalServer
from fastresp.transports.window import Window


def test_interruption_before_the_first_item(
    open_buffer: Open, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt propagates, and nothing was pushed."""
    buffer = open_buffer()
    assert len(buffer) == 0  # connected
    totals = Window.totals

    def interrupted(window: Window) -> Any:
        monkeypatch.setattr(Window, "totals", totals)
        raise KeyboardInterrupt

    monkeypatch.setattr(Window, "totals", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        buffer.push(["a"])
    assert caught.value.report.rows == 0  # type: ignore[attr-defined]
    assert client.llen("q") == 0
    assert buffer.push(["b"]).length == 1


INTERRUPTED = """
import sys, fastresp, threading, os, signal, random, time
key, url, delivery = sys.argv[1:]
random.seed(7)
with fastresp.ListBuffer(key, server=url, delivery=delivery) as buffer:
    for round in range(60):
        pause = 0.0005 + 0.004 * random.random()
        timer = threading.Timer(pause, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                len(buffer)
                time.sleep(0)
        except KeyboardInterrupt:
            pass
    items = buffer.pop(100_000)
    assert len(items) == 100_000 and items[99_999] == b"99999", (len(items), items[-1:])
    assert len(buffer) == 0
print("all well")
"""


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_interruptions_keep_replies_in_step(
    server: LocalServer, client: redis.Redis, delivery: str
) -> None:
    """The reply to an interrupted call is not used for another one."""
    client.rpush("q", *range(100_000))
    command = [sys.executable, "-c", INTERRUPTED, "q", server.url, delivery]
    done = preloaded.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout == "all well\n", done.stderr


RANDOMLY = """
import random, signal, sys, threading, time, fastresp, redis
key, url, way, where = sys.argv[1:]
random.seed(3)
made = 0
got, interruptions = [], 0

def interrupt(number, frame):
    # Only inside the package: the code below would lose the items that it has.
    while frame is not None:
        if "/fastresp/lists/" in frame.f_code.co_filename:
            raise KeyboardInterrupt
        frame = frame.f_back

def disturb():
    # Stop at some point: on a busy machine nearly every call would be interrupted.
    while interruptions < 300:
        time.sleep(0.0001 + 0.001 * random.random())
        signal.pthread_kill(idle.ident if where == "idle" else main, signal.SIGALRM)

signal.signal(signal.SIGALRM, interrupt)
main = threading.get_ident()
idle = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
idle.start()
# With at-most-once, a column in flight is lost, and so are items in flight when another thread
# receives the signal.
safe = way == "pop_arrow" or where == "idle"
delivery = "at-least-once" if safe else "at-most-once"
with fastresp.ListBuffer(key, server=url, batch=50, delivery=delivery, timeout=5.0) as buffer:
    len(buffer)
    client = redis.Redis.from_url(url)
    threading.Thread(target=disturb, daemon=True).start()
    # A fast machine needs more items to be interrupted a few times.
    while len(got) < made or made < 30_000 or interruptions < 10:
        if len(got) == made:
            client.rpush(key, *range(made, made + 30_000))
            made += 30_000
        try:
            if way == "pop":
                got += buffer.pop(200)
            elif way == "push":
                # Items that the abandoned iterator requested arrive here.
                got.append(next(buffer.consume()))
                buffer.push([])
                got += buffer.pop(70)
            elif way == "consume":
                for item in buffer.consume(1000):
                    got.append(item)
            elif way == "pop_arrow":
                got += buffer.pop_arrow(70).to_bytes()
            else:
                len(buffer)
                got += buffer.pop(200)
            if safe:
                buffer.ack()
        except KeyboardInterrupt:
            interruptions += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(got == [b"%d" % i for i in range(made)], interruptions)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["main", "idle"])
@pytest.mark.parametrize("way", ["pop", "consume", "pop_arrow", "push", "len"])
def test_interruptions_at_random_lose_nothing(
    server: LocalServer, client: redis.Redis, way: str, where: str
) -> None:
    """At any point in a call, and whichever thread receives the signal."""
    command = [sys.executable, "-c", RANDOMLY, "q", server.url, way, where]
    done = preloaded.run(command, capture_output=True, text=True, timeout=250)
    assert done.stdout.startswith("True "), done.stderr[-2000:]


def test_interruption_after_commands_were_encoded(
    open_buffer: Open, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole commands are sent, and counted in the report."""
    fill = push.Push.fill

    def interrupted(made: push.Push) -> bool:
        fill(made)
        raise KeyboardInterrupt

    monkeypatch.setattr(push.Push, "fill", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        open_buffer().push(["a", "b", "c"])
    assert client.llen("q") == caught.value.report.rows == 3  # type: ignore[attr-defined]


def test_cancelled_while_it_connects(server: LocalServer, client: redis.Redis) -> None:
    """The late connection is closed, and the next call opens its own."""

    async def main() -> None:
        async with fastresp.aio.ListBuffer("q", server=server.url) as buffer:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(buffer.push(["a"]), 0.05)
            await buffer.push(["b"])
            deadline = time.monotonic() + 30
            while len(client.client_list()) > 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert await buffer.pop(5) == [b"b"]

    client.client_pause(500)
    gc.disable()  # it would close the late connection at some point
    try:
        asyncio.run(main())
    finally:
        gc.enable()
