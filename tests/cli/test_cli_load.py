"""``fastresp load``: loading, output, its progress bar, and its question before DEL."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import preloaded
import pytest
import redis
from command_line import CSV, HSET, PROGRAM, TRANSPORTS, invoke, run

from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


@pytest.mark.usefixtures("server")
class TestLoad:
    @TRANSPORTS
    def test_csv(self, client, users: Path, transport: str) -> None:
        done = run("load", users, HSET, "--transport", transport)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("3 commands (")
        assert f"over {transport}" in done.stderr
        assert "3 replies, 0 errors" in done.stderr
        assert client.hgetall("user:3") == {b"name": "Zoë".encode(), b"mail": b"z@x"}

    def test_standard_input(self, client) -> None:
        done = run("load", "-", "SET {id} {name}", "--format", "csv", stdin=CSV.encode())
        assert done.returncode == 0, done
        assert client.get("3") == "Zoë".encode()

    def test_sql(self, client, users: Path) -> None:
        query = "SELECT id, upper(name) AS name FROM source WHERE id::INT > 1"
        done = invoke("load", users, "SET {id} {name}", "--sql", query)
        assert done.exit_code == 0, done.output
        assert client.mget("1", "2") == [None, b"BO"]

    def test_sort_by(self, client, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text('"a,b",c\nx,1\nw,2\nx,0\n')
        done = invoke("load", path, "RPUSH list {c}", "--sort-by", '"a,b",c')
        assert done.exit_code == 0, done.output
        assert client.lrange("list", 0, -1) == [b"2", b"0", b"1"]
        done = invoke("load", path, "RPUSH list {c}", "--sort-by", "d")
        assert "can't sort by 'd': no column has this name; the columns are a,b, c" in done.output
        rejects = tmp_path / "rejects.jsonl"
        done = invoke("load", rejects, "--from-rejects", "--sort-by", "c")
        assert "leave out --sql, --sort-by, --format" in done.output

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
        assert done.exit_code == 0
        assert done.stderr.endswith("1 command skipped: a null, or nothing to send\n")
        done = invoke("load", path, HSET, "--nulls", "error")
        assert done.exit_code == Exit.ERRORS
        assert "--nulls skip" in done.stderr
        assert "nulls='" not in done.stderr
        assert invoke("load", path, HSET, "--nulls", "empty").exit_code == 0
        assert client.hget("user:2", "name") == b""

    def test_a_null_in_a_key(self, client, tmp_path: Path) -> None:
        path = tmp_path / "rows.json"
        path.write_text('{"id": 1, "full name": "Ann"}\n{"id": 2}\n')
        done = invoke("load", path, "SADD 'user:{full name}' {id}")
        assert done.exit_code == Exit.ERRORS
        assert f"row 1, line 2 of {path}, command 1, column 'full name', " in done.stderr
        query = 'FROM source WHERE "full name" IS NOT NULL'
        assert f"--sql '{query}' filters the rows of files" in done.stderr
        done = invoke("load", path, "SADD 'user:{full name}' {id}", "--sql", query)
        assert (done.exit_code, client.smembers("user:Ann")) == (0, {b"1"})

    def test_missing_field(self, users: Path) -> None:
        done = run("load", users, "SET {id} {nmae}")
        assert done.returncode == Exit.USAGE
        assert "no field {nmae}" in done.stderr or "nmae" in done.stderr
        assert done.stderr.endswith("\n    SET {id} {nmae}\n             ^\n")

    @pytest.mark.slow
    def test_file_in_another_format(self, client, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("id,name\n" + "".join(f"{i},x\n" for i in range(1_000_000)) + "1,2,3\n")
        done = run("load", path, "SET {id} {name}")
        assert done.returncode == Exit.ERRORS
        assert done.stderr.startswith(f"{client.dbsize():,} commands (")
        assert "row 1,000,000, line 1,000,002 has 3 fields" in done.stderr
        assert "set --format to one of" in run("load", __file__, HSET).stderr

    def test_json(self, users: Path) -> None:
        done = run("load", users, HSET, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        fields = json.loads(done.stdout)
        assert fields["rows"] == fields["commands"] == fields["replies"] == 3
        assert fields["errors"] == []
        assert set(fields) == {
            "rows", "commands", "replies", "failed", "in_doubt", "unsent", "stopped", "bytes_sent",
            "seconds", "commands_per_second", "transport", "program", "connections",
            "errors", "errors_by_code", "skipped", "nulls_skipped", "existing", "gone",
            "deleted", "deleted_fields", "not_mirrored", "unchanged", "converted",
            "expiries_dropped", "keys", "exit_code",
            "by_value", "in_parts",
            "error", "rows_in_doubt", "restarts", "waited_for", "resumed_at", "failed_before",
            "errors_unknown", "ended_before", "durable", "indexes", "warnings",
            "followed", "lag_bytes", "lag_seconds", "offset",
            "saves_paused", "saves_restored", "saves_notes",
        }  # fmt: skip
        assert (fields["transport"], fields["program"]) == ("socket", "")
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
    """Run it with a terminal for stdin and stderr; return its exit code, stdout, and the screen."""
    ours, theirs = pty.openpty()
    process = preloaded.Popen(
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


@pytest.mark.slow
def test_bar_under_a_rate_limit(server, client, resp) -> None:
    """It moves every 0.1 s, not only at the end."""
    path = resp([("SET", f"key:{i}", "x") for i in range(2000)])
    code, _, screen = on_terminal("send", path, "--rate-limit", 1000)
    assert (code, client.dbsize()) == (Exit.OK, 2000)
    shown = {int(found.replace(b",", b"")) for found in re.findall(rb"([\d,]+) rows", screen)}
    assert len(shown - {0, 2000}) >= 4


@pytest.mark.usefixtures("server")
class TestDeleting:
    DELETE = "DEL user:{id}"

    @pytest.mark.few(4)
    @pytest.mark.parametrize(
        "template",
        ["DEL user:{id}", "SET a {id}; unlink b", "FLUSHALL", "RESTORE {id} 0 x", "{name} {id}"],
    )
    def test_refused_without_a_terminal(self, client, users: Path, template: str) -> None:
        client.set("user:1", 1)
        done = run("load", users, template)
        assert done.returncode == Exit.USAGE
        assert "add --yes if that is what you want" in done.stderr
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
        # Whole commands on standard input are not asked about, whatever it is.
        assert run("send", "-", stdin=path.read_bytes()).returncode == 0
        for arguments in (("send", "-"), ("load", "-", "--format", "resp")):
            with path.open("rb") as file:
                done = preloaded.run([*PROGRAM, *arguments], stdin=file, timeout=200, check=False)
            assert done.returncode == 0

    def test_file_of_text_commands(self, client, tmp_path: Path) -> None:
        path = tmp_path / "commands.txt"
        path.write_text("SET 'a key' 1\nDEL b\n")
        done = run("send", path)
        assert (done.returncode, "use --format commands" in done.stderr) == (Exit.ERRORS, True)
        assert run("send", path, "--format", "commands").returncode == Exit.USAGE
        assert run("send", path, "--format", "commands", "--yes").returncode == 0
        assert client.get("a key") == b"1"

    def test_server_that_refuses_command_info(self, start_server, users: Path) -> None:
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
        assert b"DEL may delete or overwrite data. Continue? [y/N]" in screen
        assert b"nothing was sent" in screen
        code, _, screen = on_terminal("load", users, self.DELETE, answer=b"y\n")
        assert (code, client.dbsize()) == (0, 0)

    def test_harmless_commands_are_not_asked_about(self, users: Path) -> None:
        assert invoke("load", users, "SET {id} x; EXPIRE {id} 10; XADD s * f {id}").exit_code == 0
