"""Fake redis-cli programs that lie, flood, or never end: no load hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis
from peak import PEAK
from waiting import until

import fastresp
from fastresp.cli.demo import methods
from fastresp.server import local_server as programs
from fastresp.server.local_server import LocalServer, find_program

COMMANDS = 3
Fake = Callable[[str], str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """Return a function that makes loads use a shell script as redis-cli."""

    def write(script: str) -> str:
        path = tmp_path / "redis-cli"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("FASTRESP_CLI", str(path))
        return str(path)

    yield write
    left = [each for each in psutil.Process().children(recursive=True) if _runs(each, tmp_path)]
    assert left == []


def _runs(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in word for word in process.cmdline())


def load(server: LocalServer, timeout: float = 30.0) -> fastresp.Report:
    data = [("SET", f"key:{i}", i) for i in range(COMMANDS)]
    return fastresp.mass_insert(data, server=server.url, transport="redis-cli", timeout=timeout)


def failed_load(server: LocalServer, timeout: float = 30.0) -> fastresp.TransportError:
    """Return the error of a load; check that its counts don't exceed the commands sent."""
    started = time.monotonic()
    with pytest.raises(fastresp.TransportError) as caught:
        load(server, timeout)
    assert time.monotonic() - started < 20
    report = caught.value.report
    assert report is not None
    assert 0 <= report.failed <= report.commands <= COMMANDS
    assert 0 <= report.in_doubt <= COMMANDS
    return caught.value


@pytest.mark.parametrize(
    ("failed", "replies", "in_doubt"),
    [("0", "4", 0), ("999", "3", 0), ("2", "1", 2), ("9" * 18, "9" * 18, 0)],
    ids=["more replies", "more errors", "fewer replies", "absurd"],
)
def test_counts_that_cannot_be_right(
    server: LocalServer, fake: Fake, failed: str, replies: str, in_doubt: int
) -> None:
    fake(f"cat > /dev/null; echo errors: {failed}, replies: {replies}")
    error = failed_load(server)
    assert error.report is not None
    assert error.report.in_doubt == in_doubt
    assert error.report.failed <= error.report.replies
    assert f"(commands sent: 3, replies: {int(replies):,}, errors: " in str(error)


def test_errors_and_no_count(server: LocalServer, fake: Fake) -> None:
    """An error counts as a reply, even if redis-cli exits before counting it."""
    fake("cat > /dev/null; echo WRONGTYPE one >&2; exit 1")
    report = failed_load(server).report
    assert report is not None
    assert (report.failed, report.replies, report.in_doubt) == (1, 1, 2)


def test_count_of_thousands_of_digits(server: LocalServer, fake: Fake) -> None:
    fake(f"cat > /dev/null; echo errors: 0, replies: {'9' * 5000}")
    assert "redis-cli lost the connection" in str(failed_load(server))


@pytest.mark.few(1)
@pytest.mark.parametrize("reads", ["", "cat > /dev/null; "], ids=["deaf", "reading"])
def test_outputs_closed_and_no_end(server: LocalServer, fake: Fake, reads: str) -> None:
    fake(f"{reads}exec sleep 600 >&- 2>&-")
    error = failed_load(server, 1.5)
    assert isinstance(error, fastresp.TransportTimeout)
    assert "redis-cli closed its outputs" in str(error)


def test_outputs_closed_while_it_is_written_to(server: LocalServer, fake: Fake) -> None:
    fake("exec sleep 600 >&- 2>&-")
    data = (("SET", f"key:{i}", "x" * 10_000) for i in range(1_000))
    with pytest.raises(fastresp.TransportTimeout, match="closed its outputs") as caught:
        fastresp.mass_insert(data, server=server.url, transport="redis-cli", timeout=1.5)
    report = caught.value.report
    assert report is not None
    assert report.in_doubt == report.commands < 1_000


def test_all_counted_and_no_end(
    server: LocalServer, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count decides; a wrapper that does not exit is killed."""
    monkeypatch.setattr("fastresp.transports.redis_cli.END_S", 0.2)
    fake("cat > /dev/null; echo errors: 0, replies: 3; exec sleep 600 >&- 2>&-")
    assert load(server).replies == COMMANDS


def test_outputs_held_open_by_another_process(server: LocalServer, fake: Fake) -> None:
    fake("cat > /dev/null; sleep 600 & exit 0")
    assert isinstance(failed_load(server, 1.0), fastresp.TransportTimeout)


def test_program_that_left_its_group(server: LocalServer, fake: Fake) -> None:
    code = f"import os, time; os.setpgid(0, {os.getpgid(0)}); os.closerange(1, 3); time.sleep(600)"
    fake(f'exec {sys.executable} -c "{code}"')
    assert isinstance(failed_load(server, 1.0), fastresp.TransportTimeout)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "flood",
    [
        "exec yes ERR no >&2",
        "exec yes Error reading from the server >&2",
        "exec yes errors",
        "exec cat /dev/zero",
        "exec cat /dev/zero >&2",
    ],
    ids=["errors", "own words", "stdout", "stdout without lines", "stderr without lines"],
)
def test_flood_of_output(server: LocalServer, fake: Fake, flood: str) -> None:
    """Such lines are not progress, and are not stored."""
    fake(f"cat > /dev/null; {flood}")
    code = f"""
import fastresp
{PEAK}
try:
    data = [("SET", f"key:{{i}}", i) for i in range({COMMANDS})]
    fastresp.mass_insert(data, server={server.url!r}, transport="redis-cli", timeout=0.5)
except fastresp.TransportTimeout as error:
    assert error.report.failed <= error.report.commands == {COMMANDS}, error
    assert len(str(error)) < 3_000
    print(peak())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert int(done.stdout) < 100 * 1024


def test_help_that_does_not_end(
    fake: Fake, tls: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is asked whether it supports TLS."""
    monkeypatch.setattr(programs, "OUTPUT_TIMEOUT_S", 0.3)
    program = fake("sleep 600")
    with pytest.raises(fastresp.TransportError, match="did not end within") as caught:
        fastresp.mass_insert([("PING",)], server=tls(), transport="redis-cli")
    assert program in str(caught.value)
    fake("exec yes -- --tls")
    assert programs.output_of(program).startswith(b"--tls\n")


@pytest.mark.parametrize("script", ["exec sleep 600", "cat > /dev/null; exec sleep 600 >&- 2>&-"])
def test_plain_redis_cli_of_a_comparison(
    server: LocalServer, fake: Fake, monkeypatch: pytest.MonkeyPatch, script: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(methods, "STUCK_S", 0.3)
    fake(script)
    cli = methods.PlainCli(server)
    (tmp_path / "ready").write_bytes(b"x" * 10_000_000)
    with pytest.raises(fastresp.TransportError, match=r"did not end within 0\.3 s"):
        cli.feed([b"x" * 1_000_000] * 10)
    with pytest.raises(fastresp.TransportError, match=r"did not end within 0\.3 s"):
        cli.load_file(tmp_path / "ready")


def test_program_that_cannot_run(server: LocalServer, fake: Fake) -> None:
    program = fake("echo 'redis-cli: error while loading libssl.so.1.1' >&2; exit 127")
    with pytest.raises(fastresp.TransportError) as caught:
        load(server)
    words = str(caught.value)
    assert f"{program} can't run (exit status 127): redis-cli: error while loading" in words
    assert "use transport='socket'" in words
    assert "CLIENT KILL" not in words
    Path(program).write_bytes(b"no program")
    with pytest.raises(fastresp.TransportError, match=r"can't be started: .* Exec format error"):
        load(server)
    report = fastresp.mass_insert([("SET", "k", 1)], server=server.url)  # needs no program
    assert (report.transport, report.replies) == ("socket", 1)


def test_wrapper_of_the_real_one(server: LocalServer, client: redis.Redis, fake: Fake) -> None:
    real = find_program("cli")
    fake(f'"{real}" "$@"; status=$?; sleep 0.2; exit $status')
    assert load(server).replies == COMMANDS == client.dbsize()
    client.delete("key:1")
    client.lpush("key:1", 1)
    with pytest.raises(fastresp.LoadErrors) as caught:
        fastresp.mass_insert(
            [("INCR", f"key:{i}") for i in range(COMMANDS)], server=server.url,
            transport="redis-cli",
        )  # fmt: skip
    assert (caught.value.report.failed, caught.value.report.replies) == (1, COMMANDS)


# The ECHO that ends redis-cli's input.


def test_closing_echo_is_no_longer_permitted(server: LocalServer, client: redis.Redis) -> None:
    """Every earlier command was acknowledged: nothing is in doubt."""
    client.acl_setuser("loader", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
    client.lpush("key:7", 1)

    def data() -> Iterator[tuple[str, str]]:
        for i in range(100):
            if i == 50:
                client.execute_command("ACL", "SETUSER", "loader", "-echo")
            yield "INCR", f"key:{i}"

    try:
        report = fastresp.mass_insert(
            data(), server=server.url.replace("unix://", "unix://loader:x@"),
            transport="redis-cli", timeout=30, on_error="collect",
        )  # fmt: skip
    finally:
        client.acl_deluser("loader")
    assert (report.replies, report.failed, report.in_doubt) == (100, 1, 0)
    assert [error.code for error in report.errors] == ["WRONGTYPE"]
    assert report.errors_by_code == {"WRONGTYPE": 1}
    assert client.dbsize() == 100


def test_server_busy_at_the_closing_echo(start_server: Callable[..., LocalServer]) -> None:
    """It may be the reply to the ECHO: the message says so, and the commands stay in doubt."""
    server = start_server("--busy-reply-threshold", "1")
    with redis.Redis.from_url(server.url) as client, redis.Redis.from_url(server.url) as other:
        try:
            with (
                pytest.raises(fastresp.TransportTimeout) as caught,
                fastresp.RedisCli(server.url, timeout=1.0) as cli,
            ):
                cli.write(fastresp.pack_many(("SET", f"key:{i}", "x") for i in range(100)))
                until(lambda: client.dbsize() >= 100)
                connection = other.connection_pool.get_connection()
                connection.send_command("EVAL", "while true do end", 0)
                until(lambda: _is_busy(client))
        finally:
            client.script_kill()
        until(lambda: not _is_busy(client))
        report = caught.value.report
        assert report is not None
        assert report.acknowledged <= client.dbsize() <= report.acknowledged + report.in_doubt
        assert "after the error reply 'BUSY " in str(caught.value)
        assert "answered redis-cli's closing ECHO, all commands were run" in str(caught.value)
        assert "frozen" not in str(caught.value)


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError:
        return True
    return False


# A server that closes idle connections.


@pytest.mark.few(1)
@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_idle_timeout_of_the_server_is_named(
    start_server: Callable[..., LocalServer], transport: str
) -> None:
    server = start_server("--timeout", "1")

    def data() -> Iterator[tuple[str, ...]]:
        yield "SET", "a", "1" * 600_000  # large enough to be sent immediately
        with redis.Redis.from_url(server.url) as client:
            until(lambda: {each["cmd"] for each in client.client_list()} == {"client|list"})
        for i in range(10):
            yield "SET", f"b:{i}", "1" * 600_000

    with pytest.raises(fastresp.TransportError, match="CONFIG GET timeout") as caught:
        fastresp.mass_insert(data(), server=server.url, transport=transport)
    assert "after a pause of" in str(caught.value)
    assert caught.value.report is not None
    assert caught.value.report.commands >= 1
    assert os.path.exists(server.socket)
