"""SIGTERM: a load leaves a checkpoint, from which another process resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import preloaded
import pytest
import redis
from command_line import ENDED, PROGRAM, run
from waiting import until

from fastresp.server.local_server import LocalServer

COUNT = 120_000
KEYS = 10


def stored(client: redis.Redis, key: int) -> object:
    name = f"k:{key}"
    if client.type(name) == b"list":
        return [int(item) for item in client.lrange(name, 0, -1)]
    if client.type(name) == b"zset":
        return sorted(int(item) for item in client.zrange(name, 0, -1))
    return int(client.get(name) or 0)


def sent(client: redis.Redis) -> int:
    """Return the number of commands that the server has run."""
    count: int = client.info("stats")["total_commands_processed"]
    return count


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "template", ["INCRBY k:{key} {n}", "RPUSH k:{key} {n}", "ZADD k:{key} {n} {n}"]
)
def test_resumes_in_another_process(
    server: LocalServer, client: redis.Redis, tmp_path: Path, template: str, number: signal.Signals
) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("key,n\n" + "".join(f"{i % KEYS},{i}\n" for i in range(COUNT)))
    command = ["load", str(path), template, "--checkpoint", "jobs", "--resume", "--json"]
    command += ["--server", server.url]
    for _ in range(2):
        before = sent(client)
        with preloaded.Popen(
            [*PROGRAM, *command, "--rate-limit", "15000"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            until(lambda before=before: sent(client) >= before + 3000)
            time.sleep(1.3)  # the row is stored once a second
            process.send_signal(number)
            output, _ = process.communicate(timeout=30)
        fields = json.loads(output)
        code, word = ENDED[number]
        words = f"{word} (the same command with --resume resumes this load)"
        assert (process.returncode, fields["exit_code"], fields["error"]) == (code, code, words)
        # All sent commands were answered, and count in the checkpoint or are resent.
        assert 0 < fields["replies"] == fields["commands"] < COUNT
        assert fields["in_doubt"] == 0
    anew = [word for word in command[:-1] if word != "--resume"]
    lost = run(*anew, "redis://127.0.0.1:1", "--checkpoint-clear")
    assert "with --resume instead of --checkpoint-clear resumes" in lost.stdout
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_at"] > 0
    for key in range(KEYS):
        numbers = [*range(key, COUNT, KEYS)]
        assert stored(client, key) in (numbers, sum(numbers)), key
    assert int(client.get("fastresp:{jobs}:row") or 0) == COUNT


CODE = """
import signal, sys, fastresp
before = [signal.getsignal(number) for number in signal.Signals]
def source():
    assert [signal.getsignal(number) for number in signal.Signals] == before
    for i in range(10**9):
        yield i, i
        if i == 1000: print("begun", flush=True)
fastresp.mass_insert(source(), "SET {0} {1}", server=sys.argv[1], rate_limit=10_000)
"""


def test_a_library_installs_no_handler(server: LocalServer) -> None:
    """The effect of SIGTERM on a process is unchanged."""
    with preloaded.Popen(
        [sys.executable, "-c", CODE, server.url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
