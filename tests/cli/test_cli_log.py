"""``--log json``: one JSON object per line on standard error, and nothing else there."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from command_line import ENDED, HSET, PROGRAM, Endless, invoke, run, wait_for_keys

from fastresp.cli.exit_codes import Exit
from fastresp.cli.json_log import JsonLog

pytestmark = pytest.mark.usefixtures("url_in_environment")
LOG = ("--log", "json")


def lines(words: str) -> list[dict[str, Any]]:
    """Parse the lines, and check the fields of each."""
    found = [json.loads(line) for line in words.splitlines()]
    times = [each["time"] for each in found]
    assert times == sorted(times)
    for each in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"])
        assert datetime.fromisoformat(each["time"]).tzinfo is not None
        assert each["level"] in ("info", "warning", "error")
        assert re.fullmatch("[a-z_]+", each["event"])
    return found


def events(found: list[dict[str, Any]]) -> list[str]:
    return [each["event"] for each in found]


class TestLog:
    def test_load(self, server, client, users: Path) -> None:
        done = run("load", users, HSET, *LOG)
        assert (done.returncode, done.stdout) == (Exit.OK, "")
        start, end = lines(done.stderr)
        assert (start["event"], start["level"]) == ("start", "info")
        assert start["server"] == server.url.removeprefix("unix://")
        assert (end["event"], end["level"]) == ("end", "info")
        assert (end["rows"], end["replies"], end["exit_code"], end["error"]) == (3, 3, 0, None)
        assert client.dbsize() == 3

    def test_json_on_stdout(self, server, resp) -> None:
        done = run("send", resp(), *LOG, "--json")
        assert json.loads(done.stdout)["commands"] == 1000
        assert events(lines(done.stderr)) == ["start", "end"]

    def test_progress(self, server, resp, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lines are printed while the load runs, and report its progress."""
        monkeypatch.setattr(JsonLog, "every_s", 0.4)
        path = resp([("SET", f"key:{i}", i) for i in range(2500)])
        start, *progress, end = lines(invoke("send", path, *LOG, "--rate-limit", "1000").stderr)
        assert (start["event"], end["event"]) == ("start", "end")
        assert {each["event"] for each in progress} == {"progress"}
        # On a busy machine, the first line may come before the first reply.
        look = next(each for each in progress if each["replies"])
        assert look["replies"] <= look["commands"] < 2500
        assert look["bytes_sent"] > 0
        assert 0 < look["fraction"] < 1
        assert (look["failed"], look["seconds"] > 0.3) == (0, True)

    def test_errors(self, server, client, users: Path) -> None:
        """Each error has a line with the row and the key, without other data."""
        client.set("user:2", "x")
        done = run("load", users, HSET, *LOG)
        assert done.returncode == Exit.ERRORS
        _, error, end = lines(done.stderr)
        assert (error["event"], error["level"]) == ("command_error", "warning")
        assert (error["code"], error["row"], error["key"]) == ("WRONGTYPE", 1, '"user:2"')
        assert error["error"].startswith("WRONGTYPE Operation against")
        assert (end["level"], end["exit_code"], end["failed"]) == ("error", 1, 1)
        assert end["errors_by_code"] == {"WRONGTYPE": 1}
        assert "b@x" not in done.stderr

    def test_error_that_quotes_arguments(self, server, resp) -> None:
        path = resp([("SETT", "user:2", "hush"), ("SET", "user:2", "hush")])
        done = run("send", path, *LOG)
        _, error, _ = lines(done.stderr)
        assert "unknown command" in error["error"].lower() and "SETT" in error["error"]
        assert error["key"] is None
        assert "hush" not in done.stderr and "user:2" not in done.stderr

    def test_many_errors(self, server, client, resp) -> None:
        client.set("text", "x")
        path = resp([("LPUSH", "text", i) for i in range(5000)])
        found = lines(run("send", path, *LOG).stderr)
        assert events(found) == ["start", *["command_error"] * 100, "end"]
        assert found[-1]["failed"] == 5000

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted(self, server, client, number: signal.Signals) -> None:
        with Endless("send", "-", *LOG) as process:
            wait_for_keys(server.url)
            process.process.send_signal(number)
            output, words = process.communicate(timeout=30)
        code, word = ENDED[number]
        end = lines(words)[-1]
        assert (process.returncode, output) == (code, "")
        assert (end["event"], end["exit_code"], end["error"]) == ("end", code, word)
        assert end["replies"] == client.dbsize()

    def test_no_server(self, users: Path) -> None:
        done = run("load", users, HSET, *LOG, "--server", "redis://ann:hush@127.0.0.1:1/0")
        assert done.returncode == Exit.LOST
        end = lines(done.stderr)[-1]
        assert (end["level"], end["exit_code"]) == ("error", 3)
        assert "refused" in end["error"]
        assert "hush" not in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("none.csv", HSET), "none.csv"),
            (("users.csv", "DEL {id}"), "add --yes if that is what you want"),
            (("users.csv", HSET, "--rate-limit", "fast"), "--rate-limit is 'fast'"),
        ],
    )
    def test_usage(
        self, server, users: Path, arguments: tuple[str, ...], words: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.chdir(users.parent)
        done = run("load", *arguments, *LOG)
        assert done.returncode == Exit.USAGE
        [end] = lines(done.stderr)
        assert (end["event"], end["exit_code"]) == ("end", 64)
        assert words in end["error"]

    def test_traceback(self, server) -> None:
        done = run("--traceback", "load", "none.csv", HSET, *LOG)
        [end] = lines(done.stderr)
        assert end["traceback"].startswith("Traceback")

    def test_dry_run(self, server, users: Path) -> None:
        found = lines(run("load", users, HSET, *LOG, "--dry-run").stderr)
        assert set(events(found)) == {"message", "end"}

    def test_bad_rows_and_verification(self, server, users: Path) -> None:
        users.write_text(users.read_text() + "4,too,many,fields\n")
        end = lines(run("load", users, HSET, *LOG, "--bad-rows", "skip", "--verify").stderr)[-1]
        assert (end["bad_rows"], end["verification"]["same"]) == (1, True)

    def test_verification_after_a_load_logs_no_data(self, server, client, users: Path) -> None:
        """Differences are only counted, since they contain data."""
        client.set("user:2", "x")
        end = lines(run("load", users, HSET, *LOG, "--verify").stderr)[-1]
        assert end["verification"]["by_kind"] == {"type": 2}
        assert "differences" not in end["verification"] and "b@x" not in json.dumps(end)

    def test_verify(self, server, client, users: Path) -> None:
        run("load", users, HSET)
        client.hdel("user:2", "mail")
        done = run("verify", users, HSET, *LOG)
        assert (done.returncode, done.stdout) == (Exit.ERRORS, "")
        start, end = lines(done.stderr)
        assert (start["event"], start["server"]) == ("start", server.url.removeprefix("unix://"))
        assert (end["event"], end["level"], end["exit_code"]) == ("end", "error", 1)
        assert (end["by_kind"], end["same"]) == ({"missing": 1}, False)
        assert "differences" not in end and "user:2" not in done.stderr
        done = run("verify", "none.csv", HSET, *LOG)
        [end] = lines(done.stderr)
        assert (end["event"], end["exit_code"], end["same"]) == ("end", 64, None)

    def test_progress_of_a_verification(
        self, server, users: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lines replace the progress bar."""
        monkeypatch.setattr(JsonLog, "every_s", 0.0)
        for command in (("load", users, HSET, "--verify"), ("verify", users, HSET)):
            found = lines(invoke(*command, *LOG).stderr)
            looks = [each for each in found if each["event"] == "verification"]
            assert looks and looks[-1]["rows_compared"] == 3

    def test_warnings_of_other_packages(self, server, users: Path) -> None:
        """They become lines."""
        code = (
            "import sys, warnings, fastresp.cli.load as module\n"
            "loaded = module.mass_insert\n"
            "def load(*arguments, **options):\n"
            "    warnings.warn('old setting', stacklevel=1)\n"
            "    return loaded(*arguments, **options)\n"
            "module.mass_insert = load\n"
            "from fastresp.__main__ import main\n"
            "sys.argv[0] = 'fastresp'\n"
            "main()"
        )
        done = preloaded.run(
            [sys.executable, "-c", code, "load", str(users), HSET, *LOG],
            capture_output=True, text=True, check=True, timeout=100,
        )  # fmt: skip
        found = lines(done.stderr)
        assert events(found) == ["message", "start", "end"]
        assert (found[0]["logger"], found[0]["level"]) == ("py.warnings", "warning")
        assert "old setting" in found[0]["message"]

    def test_a_closed_reader_does_not_end_the_load(self, server, client, resp) -> None:
        path = resp([("SET", f"key:{i}", i) for i in range(1000)])
        with preloaded.Popen(
            [*PROGRAM, "send", str(path), *LOG], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        ) as process:
            assert process.stderr is not None
            process.stderr.close()
            assert process.wait(60) == Exit.OK
        assert client.dbsize() == 1000

    def test_settings_are_restored(self, server, client, users: Path) -> None:
        """A load in the same process prints as before."""
        assert events(lines(invoke("load", users, HSET, *LOG).stderr)) == ["start", "end"]
        assert invoke("load", users, HSET).stderr.startswith("3 commands (")


def test_password_is_never_logged(server, tmp_path: Path, client: redis.Redis) -> None:
    client.acl_setuser("ann", enabled=True, passwords=["+hush"], categories=["+@all"], keys=["*"])
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    url = f"{server.url}?username=ann&password=hush"
    done = run("load", path, "SET {id} 1", *LOG, "--server", url)
    assert events(lines(done.stderr)) == ["start", "end"]
    assert "hush" not in done.stderr
    client.acl_deluser("ann")
