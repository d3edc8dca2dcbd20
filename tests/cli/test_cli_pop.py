"""``fastresp pop``: items are written to standard output, and none is lost."""

from __future__ import annotations

import subprocess
import time

import preloaded
import pytest
import redis
from buffers import end_leases
from command_line import PROGRAM, run

from fastresp.cli.exit_codes import Exit
from fastresp.lists import ListBuffer
from fastresp.server.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("server", "url_in_environment")


def test_some_and_all(client: redis.Redis) -> None:
    client.rpush("q", *range(3000))
    done = run("pop", "q", "-n", 3)
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n")
    assert done.stderr == "3 items popped, 2,997 left in q\n"
    assert run("pop", "q", "-n", 1, "--order", "lifo").stdout == "2999\n"
    assert run("pop", "q").stdout.split() == [str(i) for i in range(3, 2999)]
    done = run("pop", "q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "0 items popped, 0 left in q\n")
    assert client.keys("*") == []


def test_line_ends_within(client: redis.Redis) -> None:
    client.rpush("q", "a\nb", "c", "\n")
    done = run("pop", "q")
    assert done.stdout == "a\nb\nc\n\n\n"
    words = "2 items contained newlines, and were written as several lines; use --null"
    assert words in done.stderr
    client.rpush("q", "a\nb", "c")
    assert run("pop", "q", "--null").stdout == "a\nb\0c\0"


def test_wait(client: redis.Redis) -> None:
    command = [*PROGRAM, "pop", "q", "-n", "3", "--block", "20"]
    with preloaded.Popen(command, stdout=subprocess.PIPE) as process:
        for item in "abc":
            client.rpush("q", item)
        assert process.communicate(timeout=30)[0] == b"a\nb\nc\n"
    assert process.returncode == 0


def test_reader_that_exits(client: redis.Redis) -> None:
    """Unread items return to the list, in order."""
    client.rpush("q", *range(100_000))
    with preloaded.Popen([*PROGRAM, "pop", "q"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) != 0
    assert first == b"0\n"
    left = [int(item) for item in client.lrange("q", 0, -1)]
    assert left == list(range(left[0], 100_000))
    assert client.keys("*") == [b"q"]


def test_reader_that_waits(client: redis.Redis) -> None:
    """A slow reader holds little more than fits a pipe."""
    client.rpush("q", *("x" * 10_000 for _ in range(1000)))
    command = [*PROGRAM, "pop", "q", "--lease", "20"]
    with preloaded.Popen(command, stdout=subprocess.PIPE) as process:
        left = -1
        while left != (left := client.llen("q")) or left == 1000:
            time.sleep(0.5)
        [held] = [key for key in client.keys("*") if client.type(key) == b"list" and key != b"q"]
        assert client.llen(held) <= 16
        [lease] = [key for key in client.keys("*") if client.type(key) == b"string"]
        assert 0 < client.ttl(lease) <= 20
        assert process.stdout is not None
        assert len(process.stdout.read()) == 1000 * 10_001
    assert process.returncode == 0


def test_items_of_a_killed_process(client: redis.Redis, server: LocalServer) -> None:
    client.rpush("q", *range(5))
    dead = ListBuffer("q", server=server.url, delivery="at-least-once")
    assert len(dead.pop(3)) == 3
    dead._calls.connection.close()
    end_leases(client)
    assert run("pop", "q").stdout.split() == list("01234")


def test_failures(client: redis.Redis, port: int) -> None:
    client.set("text", 1)
    done = run("pop", "text")
    assert (done.returncode, done.stdout) == (Exit.ERRORS, "")
    assert "WRONGTYPE" in done.stderr
    assert run("pop", "q", "--server", f"redis://localhost:{port}").returncode == Exit.LOST
    assert run("pop").returncode == Exit.USAGE
    assert run("pop", "q", "-n", -1).returncode == Exit.USAGE
