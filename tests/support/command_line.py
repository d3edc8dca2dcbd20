"""Run the command line for tests: in this process, or as the installed command."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

import pytest
import redis
from click.testing import CliRunner, Result
from preloaded import PROGRAM, Popen
from preloaded import run as run_preloaded
from waiting import until

import fastresp
from fastresp.cli.app import app
from fastresp.cli.exit_codes import Exit

HSET = "HSET user:{id} {**}"
CSV = "id,name,mail\n1,Ann,a@x\n2,Bo,b@x\n3,Zoë,z@x\n"
# The exit code, and the last word printed after a signal.
ENDED = {
    signal.SIGINT: (Exit.INTERRUPTED, "interrupted"),
    signal.SIGHUP: (Exit.INTERRUPTED, "interrupted"),
    signal.SIGTERM: (Exit.TERMINATED, "terminated"),
}
TRANSPORTS = pytest.mark.parametrize("transport", ["redis-cli", "socket"])


def invoke(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert "Traceback" not in result.output
    return result


def run(
    *arguments: object, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    done = run_preloaded(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=200,
        env=os.environ | {"COLUMNS": "80"} | environment,
    )
    output, words = done.stdout.decode(errors="replace"), done.stderr.decode()
    assert "Traceback" not in words or "--traceback" in arguments
    return subprocess.CompletedProcess(done.args, done.returncode, output, words)


class Endless:
    """Run a load with endless input, until it ends or is stopped."""

    def __init__(self, *arguments: str) -> None:
        self.process = Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.returncode: int | None = None
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _feed(self) -> None:
        assert self.process.stdin is not None
        number = 0
        with suppress(OSError, ValueError):
            while self.process.poll() is None:
                block = fastresp.pack_many(
                    ("SET", f"key:{i}", "x" * 100) for i in range(number, number + 100)
                )
                self.process.stdin.write(block)
                number += 100
                time.sleep(0.001)

    def __enter__(self) -> Endless:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdout, self.process.stderr):
            assert file is not None
            file.close()

    def communicate(self, timeout: float) -> tuple[str, str]:
        self.returncode = self.process.wait(timeout)
        assert self.process.stdout is not None and self.process.stderr is not None
        return self.process.stdout.read().decode(), self.process.stderr.read().decode()


def wait_for_keys(url: str, count: int = 1000) -> None:
    with redis.Redis.from_url(url) as client:
        until(lambda: client.dbsize() >= count, 100)
