"""Loads with a checkpoint in their own processes, which are killed and resumed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import preloaded
import redis
from waiting import until, until_loaded

from fastresp.server.local_server import LocalServer

__all__ = ["MARKER", "NAME", "Loads", "check_lists", "failing", "restart"]

NAME = "jobs"
MARKER = f"fastresp:{{{NAME}}}:row"
KEYS = 20
# Rows per second before the last interruption. Each interruption happens within MAX_APART_S after
# rows were loaded, so ROWS_APART rows for each interruption are enough.
RATE = 200_000
MAX_APART_S = 0.1
ROWS_APART = 50_000
PROGRAM = f"""
import sys
import fastresp
url, template, count, rate = sys.argv[1:]
rows = [(i % {KEYS}, i) for i in range(int(count))]
print(fastresp.mass_insert(rows, template, server=url, timeout=10,
                           checkpoint=fastresp.Checkpoint("{NAME}", resume=True),
                           rate_limit=float(rate) or None))
"""


def failing(rows: Sequence[Any], at: int, pause: int = 0) -> Iterator[Any]:
    """Yield rows, then fail; from the row ``pause`` on, pause before each of three rows."""
    for number, row in enumerate(rows[:at]):
        if pause <= number < pause + 3 and pause:
            time.sleep(0.2)
        yield row
    raise OSError("the source has failed")


def check_lists(client: Any, keys: int, count: int) -> None:
    """Check that all rows (i % keys, i) ran once, in order for each key."""
    for key in range(keys):
        stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
        assert stored == [*range(key, count, keys)], key


def restart(server: LocalServer, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Kill a server, restart it with its data on disk, and wait until the data is loaded."""
    server.process.kill()
    server.process.wait()
    server.socket.unlink(missing_ok=True)
    meanwhile()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        until_loaded(client)


class Loads:
    """Loads rows until all are loaded; events interrupt the load at random times.

    Args:
        server: the server to load into; ``happening()`` may replace it.
        template: the template for the rows (key, number).
        seed: the seed of the random times.
        happenings: number of interruptions.
    """

    def __init__(self, server: LocalServer, template: str, seed: int, happenings: int) -> None:
        self.server = server
        self.template = template
        self.count = ROWS_APART * (happenings + 1)
        self._happenings = happenings
        self._random = random.Random(seed)
        self.printed = ""

    def run(self, happening: Callable[[Loads], object]) -> int:
        """Load until the end; return how many loads ended early."""
        ended_early = 0
        for _ in range(self._happenings):
            with self.process(RATE) as loader:
                self._wait_for_rows(loader)
                time.sleep(self._random.random() * MAX_APART_S)
                self.loader = loader
                happening(self)
                self.printed, _ = loader.communicate(timeout=60)
                ended_early += loader.returncode != 0
        with self.process(0) as loader:
            self.printed, _ = loader.communicate(timeout=120)
            assert loader.returncode == 0, self.printed
        return ended_early

    def process(self, rate: int) -> subprocess.Popen[str]:
        """Start a load."""
        return preloaded.Popen(
            [sys.executable, "-c", PROGRAM, self.server.url, self.template, str(self.count),
             str(rate)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def kill_loader(self) -> None:
        self.loader.send_signal(signal.SIGKILL)

    def _wait_for_rows(self, loader: subprocess.Popen[str]) -> None:
        """Wait until a load has begun, and sent something."""
        with self.client() as client:
            early = None, b"0", client.get(MARKER)
            until(lambda: loader.poll() is not None or client.get(MARKER) not in early)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.server.url)

    def check(self) -> None:
        """Check that all rows ran once, in order for each key."""
        with self.client() as client:
            marker = client.get(MARKER)
            assert isinstance(marker, bytes)
            # Scripts set a text before the number.
            assert int(marker.rpartition(b":")[2]) == self.count
            for key in range(KEYS):
                numbers = [*range(key, self.count, KEYS)]
                name = self.template.split()[1].replace("{0}", str(key))
                assert self._stored(client, name) in (numbers, sum(numbers)), key

    @staticmethod
    def _stored(client: redis.Redis, name: str) -> Any:
        kind = client.type(name)
        if kind == b"list":
            return [int(item) for item in client.lrange(name, 0, -1)]
        if kind == b"stream":
            return [int(fields[b"n"]) for _, fields in client.xrange(name)]
        return int(client.get(name) or 0)
