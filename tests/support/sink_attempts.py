"""Attempts of a sink's task in separate processes, which tests pause, freeze, kill and wake.

``main()`` is one attempt: it reads a pickled Plan.
"""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

import preloaded
import pyarrow as pa
from places import SUPPORT

import fastresp.load.checkpoint.description
import fastresp.load.checkpoint.feature
import fastresp.sink.task
from fastresp.sink import Sink, Totals

__all__ = ["COUNT", "ROWS", "Attempt", "Place", "Plan", "batch", "hurry", "threads"]

BATCH_ROWS = 500
# Rows of a task, and a template that counts each.
ROWS, COUNT = 4000, "INCRBY n:{id} 1"


def batch(count: int, first: int = 0) -> pa.RecordBatch:
    """Return rows of a number and its key, one of 20 keys."""
    numbers = range(first, first + count)
    columns = {"id": [*numbers], "key": [number % 20 for number in numbers]}
    schema = pa.schema([("id", pa.int64()), ("key", pa.int64())])
    return pa.RecordBatch.from_pydict(columns, schema)


def hurry(lease: int) -> None:
    """Set the lease in seconds; it is renewed and checked often."""
    fastresp.load.checkpoint.description.LEASE_S = lease
    fastresp.load.checkpoint.feature.RECORDED_S = fastresp.load.checkpoint.feature.RENEWED_S = 0.1
    fastresp.sink.task.RECHECK_S = 0.05


def threads() -> list[str]:
    """Return the names of the threads of tasks; the listener's thread never ends."""
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if re.match("fastresp-(?!listener)", name)]


class Place:
    """The target of a load, and its contents.

    Args:
        url: of a server.
        client: of it, or of its cluster.
        connections: of each attempt.
    """

    def __init__(self, url: str, client: Any, connections: int = 1) -> None:
        self.url = url
        self.client = client
        self.connections = connections

    def sink(self, template: str = COUNT, job: str = "job", **options: Any) -> Sink:
        options = {"connections": self.connections, "timeout": 20.0} | options
        return Sink(self.url, template, exactly_once=job, **options)

    def loaded(self, rows: int = ROWS) -> None:
        """Check that each row was counted once, or is in the lists once and in order."""
        if self.client.exists("list:0"):
            for key in range(20):
                stored = [int(item) for item in self.client.lrange(f"list:{key}", 0, -1)]
                assert stored == [*range(key, rows, 20)]
            return
        # redis-py's MGET refuses keys of several slots.
        with self.client.pipeline(transaction=False) as pipeline:
            for row in range(rows + 1):
                pipeline.get(f"n:{row}")
            assert pipeline.execute() == [b"1"] * rows + [None]

    def own_keys(self) -> set[bytes]:
        return {*self.client.scan_iter("*fastresp:*", count=10_000)}


@dataclass
class Plan:
    """What an attempt does.

    Attributes:
        sink: the sink to write to.
        rows: number of rows; the rows of each task have different numbers.
        task: the number of the task.
        hold: the row before which the attempt waits for ``go_on()``; -1 for none.
        pause: seconds after each batch.
        lease: see ``hurry()``.
    """

    sink: Sink
    rows: int
    task: int = 0
    hold: int = -1
    pause: float = 0.0
    lease: int = 600

    def run(self) -> Totals:
        """Load the rows."""
        hurry(self.lease)
        with self.sink.open(self.task) as task:
            for first in range(0, self.rows, BATCH_ROWS):
                if first == self.hold:
                    sys.stdout.buffer.write(b"held\n")
                    sys.stdout.flush()
                    sys.stdin.buffer.readline()
                task.write(batch(BATCH_ROWS, self.task * self.rows + first))
                time.sleep(self.pause)
            return task.commit()


class Attempt:
    """A process that runs a plan; a ``with`` statement ends it if it is still running."""

    def __init__(self, plan: Plan) -> None:
        self.process = preloaded.Popen(
            [sys.executable, "-c", "import sink_attempts; sink_attempts.main()"],
            cwd=SUPPORT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout
        pickle.dump(plan, self._to)
        self._to.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self._to.close()
        self._from.close()

    def held(self) -> None:
        """Wait until the attempt has reached the row ``hold``."""
        assert self._from.readline() == b"held\n"

    def go_on(self) -> None:
        self._to.write(b"\n")
        self._to.flush()

    def signal(self, number: int) -> None:
        """Send a signal; return when a killed or frozen process has stopped."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def outcome(self) -> Totals | Exception:
        """Wait for the end of the attempt, and return its result or exception."""
        found: Any = pickle.load(self._from)
        assert self.process.wait() == 0
        return found  # type: ignore[no-any-return]


def main() -> None:
    """Run the plan read from standard input."""
    try:
        found: Any = pickle.load(sys.stdin.buffer).run()
    except Exception as error:
        found = error
    pickle.dump(found, sys.stdout.buffer)
