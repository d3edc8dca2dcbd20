"""A sink's task while the engine or the server pauses, and all its ways to end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import preloaded
import pytest
import redis
from peak import PEAK
from places import SUPPORT
from sink_attempts import batch, threads
from waiting import until

from fastresp import TransportTimeout
from fastresp.server.local_server import LocalServer
from fastresp.sink import Sink

SET = "SET {id} {key}"


pytestmark = pytest.mark.usefixtures("no_thread_left")


@pytest.fixture
def frozen(start_server: Callable[..., LocalServer]) -> Iterator[Callable[[], LocalServer]]:
    """A function that freezes and returns a new server, which wakes up at the end."""
    server = start_server()
    frozen = []

    def freeze() -> LocalServer:
        frozen.append(os.kill(server.process.pid, signal.SIGSTOP))
        return server

    freeze.server = server  # type: ignore[attr-defined]
    yield freeze
    if frozen:
        os.kill(server.process.pid, signal.SIGCONT)


class TestDuplex:
    @pytest.mark.parametrize("options", [{}, {"connections": 2}, {"exactly_once": "job"}])
    def test_pause(self, server: LocalServer, client: redis.Redis, options: Any) -> None:
        """Batches are loaded while the engine computes the next one."""
        with Sink(server.url, SET, **options).open(0) as task:
            for number in range(3):
                task.write(batch(10, 10 * number))
            until(lambda: client.exists(*range(30)) == 30)
            task.write(batch(10, 30))
            until(lambda: client.exists("39"))
            assert task.commit().rows == 40

    def test_long_pause(self, server: LocalServer, client: redis.Redis) -> None:
        """The engine's time is not the server's, and costs no CPU time."""
        with Sink(server.url, SET, timeout=0.3).open(0) as task:
            task.write(batch(10))
            until(client.dbsize)
            before = time.process_time()
            time.sleep(1)
            assert time.process_time() - before < 0.2
            task.write(batch(10, 10))
            assert task.commit().rows == 20

    def test_frozen_server(self, frozen: Any) -> None:
        sink = Sink(frozen.server.url, SET, timeout=0.5)
        rows = batch(300_000)
        with sink.open(0) as task:
            task.write(batch(1))
            with redis.Redis.from_url(frozen.server.url) as client:
                until(client.dbsize)
            frozen()
            with pytest.raises(TransportTimeout, match=r"no progress for 0\.5 s"):
                for _ in range(100):
                    task.write(rows)
            with pytest.raises(TransportTimeout):
                task.commit()

    @pytest.mark.parametrize("committing", [False, True])
    def test_abort_with_frozen_server(self, frozen: Any, committing: bool) -> None:
        """It does not wait for replies, whatever the timeout."""
        task = Sink(frozen.server.url, SET, timeout=None).open(0)
        task.write(batch(1))
        with redis.Redis.from_url(frozen.server.url) as client:
            until(client.dbsize)
        frozen()
        for _ in range(2):
            task.write(batch(300_000))
        if committing:
            main = threading.main_thread().ident
            threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                task.commit()
        task.abort()
        until(lambda: not threads())

    def test_abort_with_rate_limit(self, server: LocalServer, client: redis.Redis) -> None:
        task = Sink(server.url, SET, rate_limit=100, tasks=1).open(0)
        task.write(batch(100_000))
        until(client.dbsize)
        task.abort()
        until(lambda: not threads())

    @pytest.mark.parametrize("how", ["commit", pytest.param("write", marks=pytest.mark.slow)])
    def test_interrupted(self, frozen: Any, how: str) -> None:
        """KeyboardInterrupt ends a wait for the server, in a separate process."""
        with preloaded.Popen(
            [sys.executable, "-c", BEGUN + INTERRUPTED, frozen.server.url, how], cwd=SUPPORT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            frozen()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "written\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT, errors
        assert errors.rstrip().endswith("KeyboardInterrupt")

    @pytest.mark.slow
    def test_memory(self, start_server: Callable[..., LocalServer]) -> None:
        """Batches wait while the server does not read."""
        server = start_server()
        found = subprocess.run(
            [sys.executable, "-c", PEAK + MEMORY, server.url],
            capture_output=True, text=True, check=True, timeout=60, cwd=SUPPORT,
        )  # fmt: skip
        rows, more = map(int, found.stdout.split())
        assert rows == 960_000
        assert more < 100 << 10  # KiB; all batches have 250 MiB


BEGUN = f"""
import sys, time
import redis
from sink_attempts import batch
from fastresp.sink import Sink
client = redis.Redis.from_url(sys.argv[1])
task = Sink(sys.argv[1], {SET!r}, timeout=None).open(0)
task.write(batch(1))
while not client.dbsize():
    time.sleep(0.01)
print("begun", flush=True)
sys.stdin.readline()
task.write(batch(100_000))
print("written", flush=True)
"""
INTERRUPTED = """
with task:
    for _ in range(1 if sys.argv[2] == "commit" else 100):
        task.write(batch(300_000))
    task.commit()
"""
MEMORY = """
import sys, time
import pyarrow as pa, redis
from fastresp.sink import Sink
client = redis.Redis.from_url(sys.argv[1])
with Sink(sys.argv[1], "SET {id} {text}").open(0) as task:
    make = lambda: pa.table({"id": pa.repeat(1, 40_000), "text": pa.repeat("x" * 250, 40_000)})
    task.write(make())
    before = peak()
    client.execute_command("CLIENT", "PAUSE", 1000)
    for number in range(23):
        task.write(make())
    print(task.commit().rows, peak() - before)
"""


class TestEnds:
    def test_abort(self, server: LocalServer, client: redis.Redis) -> None:
        """The connections are closed, and the thread ends."""
        with Sink(server.url, SET).open(0) as task:
            task.write(batch(10))
            until(client.dbsize)
            assert len(client.client_list()) == 2
            task.abort()
            until(lambda: not threads())
            until(lambda: len(client.client_list()) == 1)

    def test_exception(self, server: LocalServer, client: redis.Redis) -> None:
        with pytest.raises(ZeroDivisionError), Sink(server.url, SET).open(0) as task:
            task.write(batch(10))
            raise ZeroDivisionError
        until(lambda: not threads())

    @pytest.mark.parametrize("cycle", [False, True])
    def test_dropped(self, server: LocalServer, client: redis.Redis, cycle: bool) -> None:
        task: Any = Sink(server.url, SET).open(0)
        task.write(batch(10))
        until(client.dbsize)
        if cycle:
            task.cycle = task
        del task
        gc.collect()
        until(lambda: not threads())
        until(lambda: len(client.client_list()) == 1)

    @pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
    def test_exit(self, server: LocalServer, count: int) -> None:
        """A program can end with open tasks, at any moment of a load."""
        for number in range(count):
            program = f"""
import time
from sink_attempts import batch
from fastresp.sink import Sink
tasks = [Sink({server.url!r}, {SET!r}).open(number) for number in range(2)]
for task in tasks:
    for _ in range({2 - number % 3}):
        task.write(batch(30_000))
time.sleep({number % 7 / 50})
"""
            found = subprocess.run(
                [sys.executable, "-c", program], cwd=SUPPORT, timeout=60, check=False,
                capture_output=True, text=True,
            )  # fmt: skip
            assert (found.returncode, found.stderr) == (0, ""), found.stderr

    def test_exit_with_frozen_server(self, frozen: Any) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", BEGUN, frozen.server.url], cwd=SUPPORT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            frozen()
            found = process.communicate("\n", timeout=30)
        assert (process.returncode, found) == (0, ("written\n", ""))

    @pytest.mark.parametrize("exits", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_fork(self, server: LocalServer, client: redis.Redis, exits: bool) -> None:
        """A child can't use its parent's task, and leaves it unchanged."""
        program = FORK.replace("EXITS", str(exits))
        found = preloaded.run(
            [sys.executable, "-c", program, server.url], cwd=SUPPORT, timeout=60, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        assert found.stdout.split() == ["0", "1000"]
        assert {*client.mget([f"n:{row}" for row in range(1000)])} == {b"1"}

    def test_many_at_once(self, server: LocalServer, client: redis.Redis) -> None:
        sink = Sink(server.url, SET)
        tasks = [sink.open(number) for number in range(20)]
        for first in range(3):
            for number, task in enumerate(tasks):
                task.write(batch(100, 1000 * number + 100 * first))
        totals = [task.commit() for task in tasks]
        assert sink.finish(totals).rows == client.dbsize() == 6000


FORK = """
import gc, os, signal, sys
from sink_attempts import batch
from fastresp import TransportError
from fastresp.sink import Sink
with Sink(sys.argv[1], "INCRBY n:{id} 1", exactly_once="job").open(0) as task:
    task.write(batch(500))
    child = os.fork()
    if not child:
        signal.alarm(20)
        for call in (lambda: task.write(batch(5)), task.commit):
            try:
                call()
            except TransportError as error:
                assert "belongs to the parent process" in str(error)
            else:
                os._exit(1)
        task.abort()
        if EXITS:
            sys.exit()
        del task
        gc.collect()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    task.write(batch(500, 500))
    print(task.commit().rows)
"""
