"""ListBuffer, sync and asyncio: interruptions, which lose nothing and leave it in step."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import redis
from buffers import DELIVERIES, Open

from fastresp.server.local_server import LocalServer
from fastresp.transports.window import Window


def test_interruption_before_the_first_item(
    open_buffer: Open, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays what it is, and nothing was pushed."""
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
def test_interruptions_leave_it_in_step(
    server: LocalServer, client: redis.Redis, delivery: str
) -> None:
    """The reply to a call that was interrupted is not taken for that to another."""
    client.rpush("q", *range(100_000))
    command = [sys.executable, "-c", INTERRUPTED, "q", server.url, delivery]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout == "all well\n", done.stderr


RANDOMLY = """
import random, signal, sys, threading, time, fastresp, redis
key, url, way, where = sys.argv[1:]
random.seed(3)
made = 0
got, interruptions = [], 0

def interrupt(number, frame):
    # Only there: an item that the code below has, and drops, is lost by that code.
    while frame is not None:
        if "/fastresp/lists/" in frame.f_code.co_filename:
            raise KeyboardInterrupt
        frame = frame.f_back

def disturb():
    # In the end it is left in peace: on a busy machine nearly every call would be interrupted.
    while interruptions < 300:
        time.sleep(0.0001 + 0.001 * random.random())
        signal.pthread_kill(idle.ident if where == "idle" else main, signal.SIGALRM)

signal.signal(signal.SIGALRM, interrupt)
main = threading.get_ident()
idle = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
idle.start()
# A column that is on its way is lost with at-most-once; so is what is when another thread is in the
# midst of a signal, which it had before we knew.
safe = way == "pop_arrow" or where == "idle"
delivery = "at-least-once" if safe else "at-most-once"
with fastresp.ListBuffer(key, server=url, batch=50, delivery=delivery, timeout=5.0) as buffer:
    len(buffer)
    client = redis.Redis.from_url(url)
    threading.Thread(target=disturb, daemon=True).start()
    # On a fast machine it takes more items until there were some interruptions.
    while len(got) < made or made < 30_000 or interruptions < 10:
        if len(got) == made:
            client.rpush(key, *range(made, made + 30_000))
            made += 30_000
        try:
            if way == "pop":
                got += buffer.pop(200)
            elif way == "push":
                # What an iterator that was left had asked for comes in here.
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


@pytest.mark.parametrize("where", ["main", "idle"])
@pytest.mark.parametrize("way", ["pop", "consume", "pop_arrow", "push", "len"])
def test_interruptions_at_random_lose_nothing(
    server: LocalServer, client: redis.Redis, way: str, where: str
) -> None:
    """Wherever in a call they come, and whichever thread the kernel gives them to."""
    command = [sys.executable, "-c", RANDOMLY, "q", server.url, way, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.stdout.startswith("True "), done.stderr[-2000:]
