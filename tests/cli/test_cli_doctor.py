"""``fastresp doctor``: its text, JSON and exit codes; it leaves no keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import preloaded
import pytest
import redis
from command_line import ENDED, PROGRAM, invoke, run
from doctor_cases import client_at_work, fill
from waiting import until

from fastresp.cli.exit_codes import Exit
from fastresp.doctor.facts import KEY_PREFIX
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving

WITHOUT_HIREDIS = (
    "import sys; sys.modules['hiredis'] = None; sys.argv[0] = 'fastresp'; "
    "from fastresp.__main__ import main; main()"
)


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


def fits(text: str) -> bool:
    """Return whether all but addresses fits 80 columns, and addresses are unbroken."""
    lines = [line for line in text.splitlines() if not line.strip().startswith("http")]
    return max(map(len, lines)) <= 80 and "https:" not in "".join(lines)


def test_healthy(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    done = run("doctor", server.url)
    assert done.returncode == Exit.OK, done
    assert "No problems found." in done.stdout
    assert "SET by mass_insert()" in done.stdout and "SET over a bare socket" in done.stdout
    assert done.stdout.count("█") > 20
    assert fits(done.stdout)
    # The plan is printed first, and not among the results.
    assert done.stderr.startswith("The doctor takes 1 to 5 seconds")
    plan = " ".join(done.stderr.split())
    assert "Your settings and keys are not changed." in plan and fits(done.stderr)
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


@pytest.mark.slow
def test_plain_letters(start_server: Callable[..., LocalServer]) -> None:
    done = run("doctor", start_server().url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == Exit.OK and "####" in done.stdout
    assert done.stdout.isascii()


def test_problem(start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--min-replicas-to-write", "1")
    done = run("doctor", REDIS_URL=server.url)
    assert done.returncode == Exit.ERRORS
    assert "1. problem: The server refuses writes" in done.stdout
    assert "Nothing was written: the server refuses SET on" in done.stdout
    for word in ("figure", "do", "gain", "source"):
        assert f"\n   {word}" in done.stdout
    done = run("doctor", "--json", "--server", server.url)
    assert done.returncode == Exit.ERRORS
    fields = json.loads(done.stdout)
    assert fields["exit_code"] == 1 and fields["error"] is None and fields["worst"] == "problem"
    assert fields["plan"] in done.stderr
    first = fields["verdicts"][0]
    assert first["code"] == "writes-refused" and first["source"] and first["figure"]
    assert fields["measured"]["depths"].keys() >= {"1", "1000"}
    assert fields["use"]["watched"] is False


@pytest.mark.slow
def test_advice(start_server: Callable[..., LocalServer], port: int) -> None:
    threads = str(len(os.sched_getaffinity(0)) + 1)
    server = start_server("--port", str(port), "--io-threads", threads)
    done = run("doctor", f"redis://127.0.0.1:{port}")
    assert done.returncode == Exit.ADVICE, done
    assert "advice: The server has more I/O threads than cores" in done.stdout
    assert str(server.socket) in done.stdout.replace("\n", "").replace(" ", "")


@pytest.mark.slow
def test_without_hiredis(start_server: Callable[..., LocalServer]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HIREDIS, "doctor", start_server().url, "--json"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == Exit.ADVICE, done
    fields = json.loads(done.stdout)
    assert fields["hiredis"] is False
    (found,) = [each for each in fields["verdicts"] if each["grade"] != "note"]
    assert found["code"] == "no-hiredis" and found["gain"] == 1.1
    assert "list items per second" in found["figure"] and "hiredis-py" in found["source"]


@pytest.mark.slow
def test_watch(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    with client_at_work("sequential", server.url):
        for seconds in (1, 4, 10):  # on a busy machine one connection may hardly ever wait
            done = run("doctor", "--watch", seconds, server.url)
            in_json = run("doctor", "--watch", seconds, server.url, "--json")
            if done.returncode == in_json.returncode == Exit.ADVICE:
                break
    assert done.returncode == in_json.returncode == Exit.ADVICE, done
    assert "Commands are sent one at a time" in done.stdout
    assert "commands per read" in done.stdout and "SET" in done.stdout
    assert fits(done.stdout)
    assert done.stderr.startswith(f"Watching for {seconds} s.\n") and fits(done.stderr)
    fields = json.loads(in_json.stdout)
    assert fields["measured"] is None and fields["use"]["commands"] > 100
    assert 0.9 < fields["use"]["commands_per_read"] < 1.1
    with client_at_work("healthy", server.url):
        done = run("doctor", "--watch", 0.5, server.url)
    assert done.returncode == Exit.OK and "No problems found." in done.stdout


@pytest.mark.slow
def test_usage(start_server: Callable[..., LocalServer]) -> None:
    assert run("doctor", "redis://localhost", "--server", "redis://x").returncode == Exit.USAGE
    assert invoke("doctor", "http://x").exit_code == Exit.USAGE
    server = start_server()
    for seconds, words in ((0, "'--watch'"), (0.4, "'--watch'"), ("inf", "above 0, not inf")):
        done = run("doctor", "--watch", seconds, server.url)
        assert done.returncode == Exit.USAGE and words in done.stderr, done


@pytest.mark.parametrize("more", [(), ("--watch", "1"), ("--json",)])
def test_no_server(port: int, more: tuple[str, ...]) -> None:
    done = invoke("doctor", f"redis://:sesame@127.0.0.1:{port}", *more)
    assert done.exit_code == Exit.LOST
    assert "check that it is running" in done.output
    assert "sesame" not in done.output
    if "--json" in more:
        assert json.loads(done.stdout).keys() == {"plan", "exit_code", "error"}


def test_password(
    start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server("--requirepass", "sesame")
    for more in (("--json",), ("--watch", "0.5")):
        monkeypatch.setenv("REDIS_URL", f"{server.url}?password=sesame")
        done = invoke("doctor", *more)
        assert done.exit_code == Exit.OK, done.output
        assert "sesame" not in done.output
    monkeypatch.setenv("REDIS_URL", f"{server.url}?password=secrets")
    done = invoke("doctor")
    assert done.exit_code == Exit.LOST and "check the user" in done.output
    assert "secrets" not in done.output


def test_facts_that_the_server_refuses(start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--rename-command", "CONFIG", "")
    done = invoke("doctor", server.url)
    assert done.exit_code == Exit.OK
    assert "The server refused CONFIG (" in done.stdout


def test_skipped_measurements(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        rights = ("reset", "on", ">secret", "~*", "+@all", "-multi", "-ping")
        client.execute_command("ACL", "SETUSER", "few", *rights)
    done = run("doctor", f"{server.url}?username=few&password=secret")
    assert done.returncode == Exit.OK, done
    words = done.stdout.replace("\n", " ")
    assert "Not measured: a list read by redis-py (" in words
    assert "Not measured: round trips (" in words and "'multi'" in words
    assert "SET by mass_insert()" in words and fits(done.stdout)


@contextmanager
def at_work(server: LocalServer, url: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start the doctor; it measures a server, through another URL if given."""
    with (
        redis.Redis.from_url(server.url) as client,
        preloaded.Popen(
            [*PROGRAM, "doctor", url or server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"COLUMNS": "80"},
        ) as process,
    ):  # fmt: skip
        until(lambda: client.dbsize() >= 1 or process.poll() is not None)
        assert process.poll() is None
        yield process


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(start_server: Callable[..., LocalServer], number: int) -> None:
    server = start_server()
    with at_work(server) as process:
        process.send_signal(number)
        _, words = process.communicate(timeout=30)
    code, word = ENDED[signal.Signals(number)]
    assert process.returncode == code
    assert word.encode() in words and b"Traceback" not in words
    assert b"replies" not in words  # no report of a load
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


def late(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.wait(0.05)
    return honest


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_the_first_reply(
    start_server: Callable[..., LocalServer], number: int
) -> None:
    """Executed commands are undone, although their replies have not arrived."""
    server = start_server()
    with Misbehaving(late, server.url) as between, at_work(server, between.url) as process:
        process.send_signal(number)
        process.communicate(timeout=200)
    assert process.returncode == ENDED[signal.Signals(number)][0]
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


RANDOMLY = """
import random, signal, sys, redis
from fastresp.doctor import doctor

def end(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, end)
url, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
moments = random.Random(seed)
interrupted = 0
for number in range(count):
    try:
        # As much in the first moments, with many small writes, as in all the others.
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.01, moments.choice([0.3, 2.0])))
        doctor(url)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    with redis.Redis.from_url(url) as client:
        for _ in range(20):
            assert client.dbsize() == 0, (number, client.keys("*"))
print(interrupted)
"""


@pytest.mark.few(0)
@pytest.mark.parametrize(
    "count", [8, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_interrupted_at_random(start_server: Callable[..., LocalServer], count: int) -> None:
    """Whenever it is interrupted, no key of the doctor stays in the server."""
    command = [sys.executable, "-c", RANDOMLY, start_server().url, str(count), "seed"]
    done = preloaded.run(command, capture_output=True, text=True, timeout=6 * count + 60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= count // 4


def test_keys_of_a_killed_doctor_expire(start_server: Callable[..., LocalServer]) -> None:
    """They expire within a minute."""
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        keys: list[bytes] = []
        while not keys:  # it may have removed them a moment before
            with at_work(server) as process:
                process.kill()
                process.communicate(timeout=30)
            keys = client.keys("*")
        assert keys and all(key.startswith(KEY_PREFIX.encode()) for key in keys)
        assert all(0 < client.ttl(key) <= 60 for key in keys)


def test_nothing_is_written_where_it_could_evict_data(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server("--maxmemory", "8mb")
    fill(server.url, 8_000)
    done = invoke("doctor", server.url)
    assert done.exit_code == Exit.ERRORS
    assert "Nothing was written: the server's memory is nearly full." in done.stdout
    assert "pipelines of" not in done.stdout


def test_lost_server(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    with at_work(server) as process:
        server.stop()
        _, words = process.communicate(timeout=30)
    assert process.returncode == Exit.LOST, words
    assert b"can't use the server at" in words and b"Traceback" not in words
