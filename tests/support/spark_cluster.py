"""A Spark cluster on this machine: a master, and workers on their own loopback addresses.

Spark starts a second attempt of a task only on another host, so ``local[2]`` and ``local-cluster``
can't run second attempts.
"""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyspark

__all__ = ["SparkCluster"]

READY_S = 60.0


class SparkCluster:
    """Run a cluster in a ``with`` statement.

    Args:
        folder: for logs and Spark's files.
        workers: number of workers; each has one core, and restarts a killed executor.

    Attributes:
        url: the URL of the master.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            master = self._start(
                stack, "master", "master.Master", "--host", "127.0.0.1", "--port", "0",
                "--webui-port", "0",
            )  # fmt: skip
            self.url = self._found(master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                worker = self._start(
                    stack, f"worker{number}", "worker.Worker", "--host", f"127.0.0.{number + 2}",
                    "--cores", "1", "--memory", "2g", "--webui-port", "0",
                    "--work-dir", str(self._folder / f"work{number}"), self.url,
                )  # fmt: skip
                self._found(worker, "(Successfully registered with master)")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack, name: str, kind: str, *options: str) -> Path:
        log = self._folder / f"{name}.log"
        program = Path(pyspark.__file__).parent / "bin/spark-class"
        with log.open("wb") as file:
            process: Any = subprocess.Popen(
                [program, f"org.apache.spark.deploy.{kind}", *options],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return log

    def _found(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + READY_S
        while not (found := re.search(pattern, log.read_text())):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        return found[1]
