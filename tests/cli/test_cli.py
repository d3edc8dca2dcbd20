"""The command line: what it loads and prints, its exit codes, interruptions, and no tracebacks."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from command_line import PROGRAM, invoke, run
from places import ROOT

import fastresp
from fastresp.cli.exit_codes import Exit

HSET = "HSET user:{id} {**}"
CSV = "id,name,mail\n1,Ann,a@x\n2,Bo,b@x\n3,Zoë,z@x\n"
TRANSPORTS = pytest.mark.parametrize("transport", ["redis-cli", "socket"])


@pytest.fixture(autouse=True)
def _url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server comes from the environment, where a test has one."""
    if "server" in request.fixturenames:
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("server").url)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


@pytest.fixture
def resp(tmp_path: Path):
    """A function that writes a file of RESP."""

    def write(commands: object = None) -> Path:
        path = tmp_path / "x.resp"
        if commands is None:
            commands = [("SET", f"key:{i}", i) for i in range(1000)]
        fastresp.dump(commands, None, path)  # type: ignore[arg-type]
        return path

    return write


@pytest.mark.usefixtures("server")
class TestLoad:
    @TRANSPORTS
    def test_csv(self, client, users: Path, transport: str) -> None:
        done = run("load", users, HSET, "--transport", transport)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("3 commands (")
        assert f"over {transport}" in done.stderr
        assert "3 replies, 0 of them errors" in done.stderr
        assert client.hgetall("user:3") == {b"name": "Zoë".encode(), b"mail": b"z@x"}

    def test_standard_input(self, client) -> None:
        done = run("load", "-", "SET {id} {name}", "--format", "csv", stdin=CSV.encode())
        assert done.returncode == 0, done
        assert client.get("3") == "Zoë".encode()

    def test_sql(self, client, users: Path) -> None:
        query = "SELECT id, upper(name) AS name FROM source WHERE id > 1"
        done = invoke("load", users, "SET {id} {name}", "--sql", query)
        assert done.exit_code == 0, done.output
        assert client.mget("1", "2") == [None, b"BO"]

    def test_glob_and_limit(self, client, tmp_path: Path) -> None:
        for part in range(3):
            (tmp_path / f"part-{part}.csv").write_text(f"id\n{part}0\n{part}1\n")
        assert invoke("load", tmp_path / "part-*.csv", "SET {id} x").exit_code == 0
        assert client.dbsize() == 6
        client.flushall()
        assert invoke("load", tmp_path / "part-*.csv", "SET {id} x", "--limit", 3).exit_code == 0
        assert client.dbsize() == 3

    def test_several_templates(self, client, users: Path) -> None:
        assert invoke("load", users, "SET {id} {name}", "SADD ids {id}").exit_code == 0
        assert client.scard("ids") == 3

    def test_nulls(self, client, tmp_path: Path) -> None:
        path = tmp_path / "rows.json"
        path.write_text('{"id": 1, "name": "Ann"}\n{"id": 2, "name": null}\n')
        done = invoke("load", path, HSET)
        assert done.exit_code == Exit.ERRORS
        assert "--nulls skip" in done.stderr
        assert "nulls='" not in done.stderr
        assert invoke("load", path, HSET, "--nulls", "empty").exit_code == 0
        assert client.hget("user:2", "name") == b""

    def test_field_that_is_not_there(self, users: Path) -> None:
        done = run("load", users, "SET {id} {nmae}")
        assert done.returncode == Exit.USAGE
        assert "no field {nmae}" in done.stderr or "nmae" in done.stderr
        assert done.stderr.endswith("\n    SET {id} {nmae}\n             ^\n")

    def test_file_that_is_not_what_it_should_be(self, client, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("id,name\n" + "".join(f"{i},x\n" for i in range(1_000_000)) + "1,2,3\n")
        done = run("load", path, "SET {id} {name}")
        assert done.returncode == Exit.ERRORS
        assert done.stderr.startswith(f"{client.dbsize():,} commands (")
        assert "row 1,000,000: 3 fields" in done.stderr
        assert "--format as one of" in run("load", __file__, HSET).stderr

    def test_json(self, users: Path) -> None:
        done = run("load", users, HSET, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        fields = json.loads(done.stdout)
        assert fields["rows"] == fields["commands"] == fields["replies"] == 3
        assert fields["errors"] == []
        assert set(fields) == {
            "rows", "commands", "replies", "failed", "in_doubt", "unsent", "stopped", "bytes_sent",
            "seconds", "commands_per_second", "transport", "reason", "connections",
            "errors", "errors_by_code", "skipped", "exit_code", "error",
        }  # fmt: skip
        assert fields["transport"] in fields["reason"]
        assert fields["commands_per_second"] > 0
        assert (fields["exit_code"], fields["error"]) == (0, None)

    def test_template_and_resp(self, client, resp) -> None:
        assert run("load", resp()).returncode == 0
        assert client.dbsize() == 1000
        done = run("load", resp(), HSET)
        assert done.returncode == Exit.USAGE
        assert "leave out the template" in done.stderr

    def test_no_template(self, users: Path) -> None:
        done = run("load", users)
        assert done.returncode == Exit.USAGE
        assert "a template is missing" in done.stderr

    def test_rate_limit(self, users: Path) -> None:
        done = invoke("load", users, HSET, "--rate-limit", 5, "--json")
        assert json.loads(done.stdout)["seconds"] > 0.3

    def test_bar_only_on_a_terminal(self, resp) -> None:
        code, output, screen = on_terminal("send", resp())
        assert (code, output) == (0, b"")
        for words in (b"1,000 rows", b"commands/s", b"MB/s", b"0 errors", b"0:00:00"):
            assert words in screen
        code, output, screen = on_terminal("send", resp(), "--json")
        assert screen == b""
        assert json.loads(output)["commands"] == 1000
        assert "MB/s  0 errors" not in run("send", resp()).stderr


def on_terminal(*arguments: object, answer: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run it with a terminal for stdin and stderr; give its code, its stdout, and the screen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    assert process.stdout is not None
    screen = b""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            screen += os.read(ours, 1 << 16)
        except OSError:
            break  # the other side has closed it
        if answer and b"[y/N]" in screen:
            os.write(ours, answer)
            answer = b""
    output = process.stdout.read()
    process.stdout.close()
    os.close(ours)
    return process.wait(30), output, screen


def test_bar_under_a_rate_limit(server, client, resp) -> None:
    """It moves with every tenth of a second, not only at the end."""
    path = resp([("SET", f"key:{i}", "x") for i in range(2000)])
    code, _, screen = on_terminal("send", path, "--rate-limit", 1000)
    assert (code, client.dbsize()) == (Exit.OK, 2000)
    shown = {int(found.replace(b",", b"")) for found in re.findall(rb"([\d,]+) rows", screen)}
    assert len(shown - {0, 2000}) >= 4


@pytest.mark.usefixtures("server")
class TestErrors:
    WRONG = (
        ("SET", "text", 1),
        ("LPUSH", "text", "é"),
        ("LPUSH", "text", b"\xff"),
        ("SET", "b", 1),
    )

    @TRANSPORTS
    def test_done_with_errors(self, client, resp, transport: str) -> None:
        for policy in ([], ["--on-error", "collect"]):
            done = run("send", resp(self.WRONG), "--transport", transport, *policy)
            assert done.returncode == Exit.ERRORS
            assert "4 replies, 2 of them errors" in done.stderr
            assert "WRONGTYPE" in done.stderr
            assert "on_error=" not in done.stderr
            assert "transport=" not in done.stderr
        assert client.get("b") == b"1"

    def test_policies(self) -> None:
        """The program raises nothing: it goes on to the end, or stops."""
        done = run("send", "-", "--on-error", "raise")
        assert done.returncode == Exit.USAGE
        for command in ("load", "send"):
            words = " ".join(run(command, "--help", COLUMNS="300").stdout.split())
            assert "collect|stop" in words and "[default: collect]" in words

    def test_rejects_to_standard_output(self, resp) -> None:
        done = run("send", resp(self.WRONG), "--rejects", "-")
        assert done.returncode == Exit.ERRORS
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["command"] for line in lines] == [1, 2]
        assert not Path("-").exists()
        done = run("send", resp(self.WRONG), "--rejects", "-", "--json")
        assert done.returncode == Exit.USAGE
        assert "name a file" in done.stdout
        done = run("send", "-", "--rejects", "-", stdin=resp(self.WRONG).read_bytes())
        assert len(done.stdout.splitlines()) == 2

    def test_json(self, resp) -> None:
        done = invoke("send", resp(self.WRONG), "--transport", "socket", "--json")
        fields = json.loads(done.stdout)
        assert (done.exit_code, fields["exit_code"], fields["failed"]) == (1, 1, 2)
        assert fields["errors"][0] == {
            "command": 1,
            "row": 1,
            "code": "WRONGTYPE",
            "error": "WRONGTYPE Operation against a key holding the wrong kind of value",
            "arguments": ["LPUSH", "text", "é"],
        }
        assert fields["errors"][1]["arguments"][2] == {"base64": "/w=="}

    @pytest.mark.parametrize(
        "options", [("--on-error", "stop"), ("--max-errors", "1"), ("--max-errors", "10%")]
    )
    def test_stopped(self, resp, options: tuple[str, str]) -> None:
        commands = [("SET", "text", 1)] + [("LPUSH", "text", 1)] * 1000
        done = run("send", resp(commands), *options)
        assert done.returncode == Exit.STOPPED
        assert "stopped" in done.stderr
        done = run("send", resp(commands), *options, "--json")
        fields = json.loads(done.stdout)
        assert (done.returncode, fields["exit_code"]) == (2, 2)
        assert fields["stopped"].startswith("stopped")

    def test_rejects(self, resp, tmp_path: Path) -> None:
        rejects = tmp_path / "rejects.jsonl"
        done = run("send", resp(self.WRONG), "--rejects", rejects)
        assert done.returncode == Exit.ERRORS
        lines = [json.loads(line) for line in rejects.read_text().splitlines()]
        assert [line["command"] for line in lines] == [1, 2]
        done = run("send", resp(self.WRONG), "--rejects", rejects)
        assert done.returncode == Exit.USAGE
        assert "name another file" in done.stderr

    def test_rejects_that_cannot_be_written(self, resp) -> None:
        done = run("send", resp(self.WRONG), "--rejects", "/dev/full")
        assert done.returncode == Exit.ERRORS
        assert "No space left" in done.stderr
        assert "4 commands" in done.stderr


class TestTransportErrors:
    def test_refused(self, resp, port: int) -> None:
        done = run("send", resp(), "--server", f"redis://:hidden@localhost:{port}/0")
        assert (done.returncode, done.stdout) == (Exit.LOST, "")
        assert "Connection refused" in done.stderr
        assert "hidden" not in done.stderr
        done = run("send", resp(), "--server", f"redis://localhost:{port}/0", "--json")
        fields = json.loads(done.stdout)
        assert (done.returncode, done.stderr, fields["exit_code"]) == (3, "", 3)
        assert "Connection refused" in fields["error"]
        assert (fields["commands"], fields["transport"]) == (0, "")

    @TRANSPORTS
    def test_wrong_password(self, start_server, resp, transport: str) -> None:
        server = start_server("--requirepass", "right")
        url = server.url.replace("unix://", "unix://:hidden@")
        done = run("--traceback", "send", resp(), "--server", url, "--transport", transport)
        assert done.returncode == Exit.LOST
        assert "invalid username-password pair" in done.stderr
        assert "check the user and the password" in done.stderr
        assert "Traceback" in done.stderr
        assert "hidden" not in done.stderr
        assert "Authentication required" in run("send", resp(), "--server", server.url).stderr
        url = server.url.replace("unix://", "unix://:right@")
        assert run("send", resp(), "--server", url, "--transport", transport).returncode == 0

    @TRANSPORTS
    def test_lost(self, start_server, transport: str) -> None:
        server = start_server()
        with Endless("send", "-", "--transport", transport, "--server", server.url) as process:
            wait_for_keys(server.url)
            server.process.kill()
            _, words = process.communicate(timeout=30)
        assert process.returncode == Exit.LOST
        assert "lost the server" in words or "was lost" in words or "lost" in words
        assert "commands (" in words
        assert words.count("commands/s") == 1

    def test_frozen(self, start_server, resp) -> None:
        server = start_server()
        server.process.send_signal(signal.SIGSTOP)
        try:
            done = run("send", resp(), "--server", server.url, "--timeout", 1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert done.returncode == Exit.LOST


class Endless:
    """A load that is fed without end, until it ends itself or is ended."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
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
        deadline = time.monotonic() + 100
        while client.dbsize() < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


class TestInterruptions:
    @TRANSPORTS
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_load(self, server, client, transport: str, number: signal.Signals) -> None:
        with Endless("send", "-", "--transport", transport) as process:
            wait_for_keys(server.url)
            process.process.send_signal(number)
            output, words = process.communicate(timeout=30)
        assert (process.returncode, output) == (Exit.INTERRUPTED, "")
        assert "Traceback" not in words
        count = client.dbsize()
        assert words.startswith(f"{count:,} commands (")
        assert f"\n{count:,} replies, 0 of them errors\n" in words
        assert words.endswith("fastresp: interrupted\n")

    def test_json(self, server, client) -> None:
        with Endless("send", "-", "--transport", "socket", "--json") as process:
            wait_for_keys(server.url)
            process.process.send_signal(signal.SIGINT)
            output, words = process.communicate(timeout=30)
        fields = json.loads(output)
        assert (process.returncode, words, fields["exit_code"]) == (4, "", 4)
        assert fields["commands"] == fields["replies"] == client.dbsize()
        assert fields["error"] == "interrupted"

    @pytest.mark.parametrize("wait", [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5])
    def test_at_any_time(self, server, resp, wait: float) -> None:
        """From our first line on, while Python still imports, there is no traceback.

        What Python says of its imports tells when that is: the first of typer is ours.
        """
        path = resp([("SET", f"key:{i}", "x" * 100) for i in range(300_000)])
        command = [sys.executable, "-X", "importtime", "-m", "fastresp", "send", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            while "typer" not in (line := process.stderr.readline()):
                assert line
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            lines = process.stderr.read().splitlines()
        words = [line for line in lines if not line.startswith("import time:")]
        assert process.returncode in (Exit.OK, Exit.INTERRUPTED), words
        assert "Traceback" not in " ".join(words)
        assert (words[-1] == "fastresp: interrupted") == (process.returncode == Exit.INTERRUPTED)

    def test_under_a_rate_limit(self, server, client, resp) -> None:
        """What is made by then goes at that rate, so it is little."""
        path = resp([("SET", f"key:{i}", "x") for i in range(100_000)])
        command = [*PROGRAM, "send", str(path), "--rate-limit", "500"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_for_keys(server.url, 300)
            process.send_signal(signal.SIGINT)
            sent = client.dbsize()
            _, words = process.communicate(timeout=30)
        assert process.returncode == Exit.INTERRUPTED
        assert words.startswith(f"{client.dbsize():,} commands (")
        assert client.dbsize() - sent < 5000

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_under_a_rate_limit_that_takes_for_ever(
        self, server, client, resp, number: signal.Signals
    ) -> None:
        path = resp([("SET", f"key:{i}", "x") for i in range(1000)])
        command = [*PROGRAM, "send", str(path), "--rate-limit", "0.5"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_for_keys(server.url, 1)
            process.send_signal(number)
            _, words = process.communicate(timeout=10)
        assert process.returncode == Exit.INTERRUPTED
        assert words.startswith(f"{client.dbsize()} command")

    def test_twice(self, server, client, start_server) -> None:
        """The second waits for nothing, and there still is a report."""
        server = start_server()
        with Endless("send", "-", "--server", server.url) as process:
            wait_for_keys(server.url)
            os.kill(server.process.pid, signal.SIGSTOP)
            process.process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            process.process.send_signal(signal.SIGINT)
            _, words = process.communicate(timeout=10)
            os.kill(server.process.pid, signal.SIGCONT)
        assert process.returncode == Exit.INTERRUPTED
        assert re.match(r"[\d,]+ commands \(", words)
        assert words.endswith("fastresp: interrupted\n")

    def test_ignored(self, server, client, resp) -> None:
        """What a shell started it to ignore, as with nohup, it ignores."""
        path = resp([("SET", f"key:{i}", "x") for i in range(1000)])
        command = ["nohup", *PROGRAM, "send", str(path), "--rate-limit", "1000"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            wait_for_keys(server.url, 100)
            process.send_signal(signal.SIGHUP)
            process.communicate(timeout=30)
        assert (process.returncode, client.dbsize()) == (Exit.OK, 1000)

    def test_silent_input(self, server, tmp_path) -> None:
        """Nothing has come yet, and nothing will: there is no read to be waited for."""
        reader, writer = os.pipe()
        said = tmp_path / "said"
        command = [sys.executable, "-X", "importtime", "-m", "fastresp"]
        command += ["load", "-", "SET {id} 1", "--server", server.url]
        with (
            said.open("wb") as file,
            subprocess.Popen(command, stdin=reader, stderr=file) as process,
        ):
            before = ""
            # Our handler is there from typer on; and it waits when it imports no more.
            while "typer" not in before or before != said.read_text():
                before = said.read_text()
                time.sleep(1)
            process.send_signal(signal.SIGINT)
            process.wait(30)
        os.close(reader)
        os.close(writer)
        words = [each for each in said.read_text().splitlines() if not each.startswith("import ")]
        assert (process.returncode, words) == (4, ["fastresp: interrupted"])


@pytest.mark.usefixtures("server")
class TestDeleting:
    DELETE = "DEL user:{id}"

    @pytest.mark.parametrize(
        "template",
        ["DEL user:{id}", "SET a {id}; unlink b", "FLUSHALL", "RESTORE {id} 0 x", "{name} {id}"],
    )
    def test_refused_without_a_terminal(self, client, users: Path, template: str) -> None:
        client.set("user:1", 1)
        done = run("load", users, template)
        assert done.returncode == Exit.USAGE
        assert "give --yes if that is what you want" in done.stderr
        assert client.dbsize() == 1

    def test_names_the_commands(self, users: Path) -> None:
        done = run("load", users, "SET a {id}; unlink b; FLUSHDB")
        assert "UNLINK, FLUSHDB may delete or overwrite data" in done.stderr

    def test_yes(self, client, users: Path) -> None:
        client.set("user:1", 1)
        assert run("load", users, self.DELETE, "--yes").returncode == 0
        assert client.dbsize() == 0

    def test_file_of_resp(self, client, resp) -> None:
        path = resp([("SET", "a", 1), ("DEL", "a")])
        assert run("send", path).returncode == Exit.USAGE
        assert run("send", path, "-y").returncode == 0
        assert run("send", "-", stdin=path.read_bytes()).returncode == 0

    def test_server_that_does_not_tell_what_commands_do(self, start_server, users: Path) -> None:
        server = start_server()
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "blind", "on", ">p", "~*", "+@write")
        url = server.url.replace("unix://", "unix://blind:p@")
        assert run("load", users, self.DELETE, "--server", url).returncode == Exit.USAGE
        assert run("load", users, HSET, "--server", url).returncode == 0

    def test_asked_on_a_terminal(self, client, users: Path) -> None:
        client.set("user:1", 1)
        code, _, screen = on_terminal("load", users, self.DELETE, answer=b"n\n")
        assert (code, client.dbsize()) == (Exit.USAGE, 1)
        assert b"DEL may delete or overwrite data: go on? [y/N]" in screen
        assert b"nothing was sent" in screen
        code, _, screen = on_terminal("load", users, self.DELETE, answer=b"y\n")
        assert (code, client.dbsize()) == (0, 0)

    def test_harmless_commands_are_not_asked_about(self, users: Path) -> None:
        assert invoke("load", users, "SET {id} x; EXPIRE {id} 10; XADD s * f {id}").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["load"],
        ["load", "nothing.csv", HSET],
        ["load", "nothing.csv", "HSET user:{id"],
        ["send", "nothing.resp"],
        ["check", "nothing.resp"],
        ["pack", "nothing.csv", HSET],
        ["send"],
        ["load", "x.resp", "--bogus"],
        ["send", "x.resp", "--transport", "bogus"],
        ["send", "x.resp", "--transport", "redis-cli", "--rejects", "r"],
        ["send", "x.resp", "--transport", "redis-cli", "--on-error", "stop"],
        ["send", "x.resp", "--max-errors", "many"],
        ["send", "x.resp", "--max-errors", "3", "--on-error", "stop"],
        ["send", "x.resp", "--rate-limit", "0"],
        ["send", "x.resp", "--timeout", "-1"],
        ["send", "x.resp", "--limit", "-1"],
        ["send", "x.resp", "--connections", "0"],
        ["send", "x.resp", "--connections", "2", "--transport", "redis-cli"],
        ["send", "x.resp", "--server", "http://:hidden@x"],
        ["send", "x.resp", "--server", "redis://:hid/hidden@x"],
    ],
    ids=" ".join,
)
def test_bad_usage(server, resp, tmp_path: Path, arguments: list[str]) -> None:
    path = resp()
    done = run(*(str(path) if each == "x.resp" else each for each in arguments))
    assert done.returncode == Exit.USAGE, done
    assert done.stderr.strip()
    assert "hidden" not in done.stderr + done.stdout


def test_words_of_bad_usage(resp) -> None:
    assert "--connections is a number from 1" in run("send", "x", "--connections", 65).stderr
    assert run("load", "none.csv", "SET {id").stderr.endswith("\n    SET {id\n        ^\n")
    done = run("send", resp(), "--max-errors", "x")
    assert "--max-errors is a number" in done.stderr
    assert "check the path" in run("send", "nothing.resp").stderr
    words = run("send", resp(), "--transport", "redis-cli", "--rejects", "r").stderr
    assert "redis-cli --pipe can't tell which command an error belongs to; use --transport" in words


class TestResp:
    def test_pack_check_send(self, server, client, users: Path, tmp_path: Path) -> None:
        path = tmp_path / "users.resp"
        done = run("pack", users, HSET, "-o", path)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"3 commands written to {path}\n"
        streamed = subprocess.run(
            [*PROGRAM, "pack", str(users), HSET], capture_output=True, timeout=200
        )
        assert streamed.stdout == path.read_bytes()
        assert streamed.stdout.startswith(b"*6\r\n$4\r\nHSET\r\n$6\r\nuser:1\r\n")
        assert run("check", path).returncode == 0
        assert run("send", path).returncode == 0
        assert client.hget("user:2", "mail") == b"b@x"

    def test_pack_standard_input(self) -> None:
        done = run("pack", "-", "SET {id} {name}", "--format", "csv", stdin=CSV.encode())
        assert done.stdout.count("SET") == 3

    def test_pack_refuses_a_terminal(self, users: Path) -> None:
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [*PROGRAM, "pack", str(users), HSET], stdout=theirs, stderr=subprocess.PIPE, timeout=200
        )
        os.close(theirs)
        os.close(ours)
        assert done.returncode == Exit.USAGE
        assert b"RESP is not for a terminal" in done.stderr

    def test_pack_does_not_write_over_its_source(self, users: Path, resp) -> None:
        assert run("pack", users, HSET, "-o", users).returncode == Exit.USAGE
        assert users.read_text(encoding="utf-8") == CSV

    def test_pack_of_a_pattern_or_a_query_again(self, users: Path, tmp_path: Path) -> None:
        path = tmp_path / "old.resp"
        for source in (f"{users.parent}/user*.csv", f"SELECT * FROM '{users}'"):
            path.write_text("what an earlier one wrote")
            done = run("pack", source, HSET, "-o", path)
            assert (done.returncode, done.stderr) == (0, f"3 commands written to {path}\n")

    def test_pack_into_a_closed_pipe(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("id\n" + "".join(f"{i}\n" for i in range(200_000)))
        done = subprocess.run(
            f"{' '.join(PROGRAM)} pack {path} 'SET {{id}} x' | head -c 10",
            shell=True,
            capture_output=True,
            timeout=200,
        )
        assert done.stdout == b"*3\r\n$3\r\nSE"
        assert done.stderr == b""

    def test_check(self, resp) -> None:
        commands = [("SET", "a", "x" * 500), ("hset", "h", "f", 1), ("HSET", "h", "g", 1)]
        path = resp(commands)
        done = run("check", path)
        assert (done.returncode, done.stderr) == (0, "")
        for words in (
            "whole commands",
            "500 bytes, in command 0",
            "HSET",
            f"{path.stat().st_size}",
        ):
            assert words in done.stdout
        done = run("check", path, "--json")
        assert json.loads(done.stdout) == {
            "valid": True,
            "commands": 3,
            "bytes": path.stat().st_size,
            "names": {"SET": 1, "HSET": 2},
            "largest_argument": 500,
            "largest_argument_command": 0,
            "last_command": 'HSET "h" "g" "1"',
            "last_command_offset": len(fastresp.pack_many(commands[:2])),
            "truncated": False,
            "offset": None,
            "reason": None,
            "exit_code": 0,
            "error": None,
        }

    @pytest.mark.parametrize("broken", ["cut", "garbage", "subscribe"])
    def test_check_of_a_broken_file(self, resp, broken: str) -> None:
        path = resp()
        content = path.read_bytes()
        tail = {
            "cut": b"*2\r\n$3\r\nGET\r\n$5",
            "garbage": b"garbage",
            "subscribe": b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n",
        }[broken]
        path.write_bytes(content + tail)
        for done in (run("check", path), run("check", "-", stdin=path.read_bytes())):
            assert done.returncode == Exit.ERRORS
            assert "1,000" in done.stdout
            assert done.stderr.startswith("fastresp: ")
        if broken != "subscribe":
            assert 'SET "key:999" "999"' in done.stderr
            assert f"at byte {len(content):,}" in done.stderr
        fields = json.loads(run("check", path, "--json").stdout)
        assert (fields["valid"], fields["exit_code"], fields["commands"]) == (False, 1, 1000)
        assert fields["truncated"] == (broken == "cut")
        assert fields["offset"] == (None if broken == "subscribe" else len(content))
        assert fields["last_command"] == 'SET "key:999" "999"'
        assert fields["reason"]

    def test_send_of_a_broken_file(self, server, client, resp) -> None:
        path = resp()
        path.write_bytes(path.read_bytes()[:-5])
        done = run("send", path)
        assert done.returncode == Exit.ERRORS
        assert "is cut off" in done.stderr
        assert "--skip-truncated sends what comes before it" in done.stderr
        assert client.dbsize() == 0
        assert run("send", path, "--skip-truncated").returncode == 0
        assert client.dbsize() == 999

    def test_send_standard_input(self, server, client, resp) -> None:
        assert run("send", "-", stdin=resp().read_bytes()).returncode == 0
        assert client.dbsize() == 1000
        assert run("load", "-", "--format", "resp", stdin=resp().read_bytes()).returncode == 0


@pytest.mark.usefixtures("server")
class TestDryRun:
    def test_words(self, client, users: Path) -> None:
        done = run("load", users, HSET, "--dry-run")
        assert (done.returncode, done.stdout) == (0, "")
        for words in (
            'HSET "user:1" "name" "Ann" "mail" "a@x"',
            "Rows: 3; commands: 3; bytes to send: ",
            "Memory in the server: about ",
            "without a maxmemory",
            "No problems found.",
            "nothing was sent",
        ):
            assert words in done.stderr
        assert client.dbsize() == 0

    def test_json(self, client, users: Path) -> None:
        client.set("user:2", "text")
        done = run("load", users, HSET, "--dry-run", "--json")
        fields = json.loads(done.stdout)
        assert (done.returncode, done.stderr, fields["exit_code"]) == (1, "", 1)
        assert (fields["rows"], fields["commands"], fields["exact"]) == (3, 3, True)
        assert fields["wrong_types"] == ['"user:2" holds a string, and HSET expects a hash']
        assert len(fields["problems"]) == 1
        assert fields["rights_unknown"] is False
        assert client.dbsize() == 1
        page = ROOT / "docs" / "cli.md"
        rows = page.read_text().partition("## The JSON of a dry run")[2].partition("\n## ")[0]
        names = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", rows, re.MULTILINE)))
        assert set(names) == {*fields, "bad_rows"}

    def test_rights_that_could_not_be_checked(self, client, users: Path) -> None:
        client.execute_command(
            "ACL", "SETUSER", "nomulti", "on", ">p", "~*", "+@all", "-multi", "-acl"
        )
        path = client.connection_pool.connection_kwargs["path"]
        try:
            command = ["load", users, HSET, "--dry-run", "--server", f"unix://nomulti:p@{path}"]
            done, as_json = run(*command), run(*command, "--json")
        finally:
            client.execute_command("ACL", "DELUSER", "nomulti")
        assert done.returncode == as_json.returncode == 0
        assert "No problems found; rights could not be checked." in done.stderr
        assert "Allowed by the ACL: could not be checked" in done.stderr
        fields = json.loads(as_json.stdout)
        assert (fields["allowed"], fields["rights_unknown"], fields["problems"]) == (None, True, [])

    def test_deleting_commands_are_not_asked_about(self, client, users: Path) -> None:
        client.set("user:1", 1)
        assert run("load", users, "DEL user:{id}", "--dry-run").returncode == 0
        assert client.dbsize() == 1

    def test_server_that_is_not_there(self, users: Path, port: int) -> None:
        url = f"redis://localhost:{port}"
        done = run("load", users, HSET, "--dry-run", "--server", url)
        assert done.returncode == Exit.ERRORS
        assert 'HSET "user:3" "name" "Zo\\xc3\\xab" "mail" "z@x"' in done.stderr
        assert "Connection refused" in done.stderr

    def test_json_of_a_row_that_cannot_be_sent(self, users: Path) -> None:
        users.write_text("id,name\n1,\n")
        done = run("load", users, HSET, "--dry-run", "--json")
        assert done.returncode == Exit.ERRORS
        assert json.loads(done.stdout).keys() == {"dry_run", "exit_code", "error"}

    def test_send(self, client, resp) -> None:
        done = run("send", resp(), "--dry-run")
        assert done.returncode == 0
        assert "commands: 1,000" in done.stderr
        assert client.dbsize() == 0


def test_dry_run_says_what_is_asked_about(server, users: Path) -> None:
    done = run("load", users, "DEL user:{id}", "--dry-run")
    assert done.returncode == 0
    assert "or allowed by --yes: DEL may delete or overwrite data" in done.stderr
    done = run("load", users, "HSET", "user:{id}", "{**}", "--json")
    assert done.returncode == Exit.USAGE
    assert "put quotes around the whole of it" in json.loads(done.stdout)["error"]


def test_dry_run_counts_lines(server, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with open(path, "w") as file:
        file.write("id,name\n")
        file.writelines(f"{i},name {'x' * (i // 100_000)}\n" for i in range(3_000_000))
    fields = json.loads(run("load", path, "SET {id} {name}", "--dry-run", "--json").stdout)
    assert fields["exact"] is False
    assert 2_800_000 < fields["rows"] < 3_200_000


def test_streams_that_are_closed(server, users: Path) -> None:
    load = f"{' '.join(PROGRAM)} load {users} 'SET {{id}} 1'"
    for how, code, words in (
        ("--json >&-", 0, ""),
        ("--json > /dev/full", 1, "standard output: No space left on device"),
        ("2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{load} {how}"], capture_output=True, text=True, timeout=200
        )
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (how, done.stderr)
        assert words in done.stderr
    for how in ("load - 'SET {id} 1' <&-", f"pack {users} 'SET {{id}} 1' >&-"):
        command = f"{' '.join(PROGRAM)} {how}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=200)
        assert (done.returncode, "is closed; give" in done.stderr) == (Exit.USAGE, True), done


def test_rejects_on_a_full_disk(server, client, resp, tmp_path: Path) -> None:
    client.set("text", 1)
    done = run("send", resp([("LPUSH", "text", "x")] * 1000), "--rejects", "/dev/full")
    assert done.returncode == Exit.ERRORS
    assert "/dev/full: No space left on device, so rejects are missing there" in done.stderr
    assert "1,000 replies" in done.stderr


def test_database_that_is_no_number(server) -> None:
    done = run("send", "-", "--server", "redis://localhost:1/abc")
    assert done.returncode == Exit.USAGE
    assert "can't be read" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = run(_FASTRESP_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert "_FASTRESP_COMPLETE=complete_" in done.stdout
    done = run(
        _FASTRESP_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="fastresp load --rej",
    )
    assert "--rejects" in done.stdout
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    command = f"{' '.join(PROGRAM)} --show-completion; true"
    done = subprocess.run([program, "-c", command], capture_output=True, text=True, timeout=200)
    assert "_FASTRESP_COMPLETE=complete_" in done.stdout


@pytest.mark.parametrize("command", ["load", "send", "pack", "check", "demo"])
def test_help(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"fastresp {command} " in done.stdout.partition("Options")[0].replace("Usage:", "", 1)


def test_exit_codes_are_in_the_help() -> None:
    words = " ".join(run("--help").stdout.split())
    for code in Exit:
        assert f" {code.value} " in words


def test_broken_pipe(server, resp) -> None:
    done = subprocess.run(
        f"{' '.join(PROGRAM)} send {resp()} --json | true", shell=True, capture_output=True
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_traceback_is_shown_where_wanted(port: int, resp) -> None:
    done = run("--traceback", "send", resp(), "--server", f"redis://localhost:{port}")
    assert "Traceback" in done.stderr
    assert done.returncode == Exit.LOST
