"""Failed commands and lost servers: messages and exit codes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from command_line import TRANSPORTS, Endless, invoke, run, wait_for_keys

from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


@pytest.mark.usefixtures("server")
class TestErrors:
    WRONG = (
        ("SET", "text", 1),
        ("LPUSH", "text", "é"),
        ("LPUSH", "text", b"\xff"),
        ("SET", "b", 1),
    )

    @pytest.mark.few(1)
    @TRANSPORTS
    def test_done_with_errors(self, client, resp, transport: str) -> None:
        for policy in ([], ["--on-error", "collect"]):
            done = run("send", resp(self.WRONG), "--transport", transport, *policy)
            assert done.returncode == Exit.ERRORS
            assert "4 replies, 2 errors" in done.stderr
            assert "WRONGTYPE" in done.stderr
            assert "on_error=" not in done.stderr
            assert "transport=" not in done.stderr
        assert client.get("b") == b"1"

    def test_refused_command(self, client, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        path.write_text("a\n1\n")
        done = run("load", path, "SETT {a} 1")
        assert done.returncode == Exit.ERRORS
        assert done.stderr.startswith("fastresp: ERR unknown command")
        assert "(the server refuses SETT; no command was sent)" in done.stderr
        assert client.dbsize() == 0

    def test_policies(self) -> None:
        """The load continues to the end, or stops."""
        done = run("send", "-", "--on-error", "raise")
        assert done.returncode == Exit.USAGE
        for command in ("load", "send"):
            words = " ".join(run(command, "--help", COLUMNS="300").stdout.split())
            assert "--on-error HOW" in words and "[default: collect]" in words

    def test_rejects_to_standard_output(self, resp) -> None:
        done = run("send", resp(self.WRONG), "--rejects", "-")
        assert done.returncode == Exit.ERRORS
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["command"] for line in lines] == [1, 2]
        assert not Path("-").exists()
        done = run("send", resp(self.WRONG), "--rejects", "-", "--json")
        assert done.returncode == Exit.USAGE
        assert "use --rejects FILE" in done.stdout
        done = run("send", "-", "--rejects", "-", stdin=resp(self.WRONG).read_bytes())
        assert len(done.stdout.splitlines()) == 2

    def test_json(self, resp) -> None:
        done = invoke("send", resp(self.WRONG), "--transport", "socket", "--json")
        fields = json.loads(done.stdout)
        assert (done.exit_code, fields["exit_code"], fields["failed"]) == (1, 1, 2)
        [first, *_] = fields["errors"]
        assert first.pop("file").endswith(".resp")
        assert first == {
            "command": 1,
            "row": 1,
            "row_in_file": 1,
            "line": 8,
            "code": "WRONGTYPE",
            "error": "WRONGTYPE Operation against a key holding the wrong kind of value",
            "arguments": ["LPUSH", "text", "é"],
        }
        assert fields["errors"][1]["arguments"][2] == {"base64": "/w=="}

    def test_messages_of_a_server_cannot_control_the_terminal(self, resp) -> None:
        lua = "return redis.error_reply('BAD \\27[2J\\7')"
        done = run("send", resp([("EVAL", lua, 0)]), "--transport", "socket")
        assert "BAD \\x1b[2J\\x07, first for row 0" in done.stderr
        assert "\x1b" not in done.stderr
        done = run("check", resp([("\x1b[2J", "key")]))
        assert "\\X1B[2J" in done.stdout.upper()
        assert "\x1b" not in done.stdout

    @pytest.mark.few(1)
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
        assert done.returncode == 6
        assert "name another file" in done.stderr


class TestTransportErrors:
    def test_refused(self, resp, port: int) -> None:
        done = run("send", resp(), "--server", f"redis://:hidden@localhost:{port}/0")
        assert (done.returncode, done.stdout) == (Exit.LOST, "")
        assert f"at localhost:{port}: Connection refused (check that it is running" in done.stderr
        assert "hidden" not in done.stderr
        done = run("send", resp(), "--server", f"redis://localhost:{port}/0", "--json")
        fields = json.loads(done.stdout)
        assert (done.returncode, done.stderr, fields["exit_code"]) == (3, "", 3)
        assert "Connection refused" in fields["error"]
        assert (fields["commands"], fields["transport"]) == (0, "")

    @pytest.mark.few(1)
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
        assert "lost the connection" in words or "was lost" in words or "lost" in words
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


def test_rejects_on_a_full_disk(server, client, resp, tmp_path: Path) -> None:
    client.set("text", 1)
    done = run("send", resp([("LPUSH", "text", "x")] * 1000), "--rejects", "/dev/full")
    assert done.returncode == Exit.ERRORS
    assert "/dev/full: No space left on device; " in done.stderr
    assert "and all later ones were not written" in done.stderr
    assert "1,000 replies" in done.stderr


@pytest.mark.parametrize("option", ["--metrics", "--bad-rows"])
def test_no_file_named_dash(tmp_path: Path, option: str) -> None:
    """A dash means standard output elsewhere."""
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n")
    done = run("load", path, "SET k {a}", option, "-", "--server", "redis://127.0.0.1:1")
    assert done.returncode == Exit.USAGE
    assert f"{option} - " in done.stderr
    assert not (Path.cwd() / "-").exists()
