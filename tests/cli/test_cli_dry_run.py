"""``--dry-run``: its text and its JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import HSET, run
from places import ROOT

from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


@pytest.mark.usefixtures("server")
class TestDryRun:
    def test_words(self, client, users: Path) -> None:
        done = run("load", users, HSET, "--dry-run")
        assert (done.returncode, done.stdout) == (0, "")
        for words in (
            'HSET "user:1" "name" "Ann" "mail" "a@x"',
            "Rows: 3; commands: 3; bytes to send: ",
            "Memory in the server: about ",
            "with no maxmemory",
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
        page = ROOT / "docs" / "reference" / "cli.md"
        rows = page.read_text().partition("## JSON of a dry run")[2].partition("\n## ")[0]
        names = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", rows, re.MULTILINE)))
        assert set(names) == {*fields, "bad_rows"}

    def test_permissions_that_could_not_be_checked(self, client, users: Path) -> None:
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
        assert "No problems found; permissions could not be checked." in done.stderr
        assert "Allowed by the ACL: could not be checked" in done.stderr
        fields = json.loads(as_json.stdout)
        assert (fields["allowed"], fields["rights_unknown"], fields["problems"]) == (None, True, [])

    def test_deleting_commands_are_not_asked_about(self, client, users: Path) -> None:
        client.set("user:1", 1)
        assert run("load", users, "DEL user:{id}", "--dry-run").returncode == 0
        assert client.dbsize() == 1

    def test_unreachable_server(self, users: Path, port: int) -> None:
        url = f"redis://localhost:{port}"
        done = run("load", users, HSET, "--dry-run", "--server", url)
        assert done.returncode == Exit.ERRORS
        assert 'HSET "user:3" "name" "Zo\\xc3\\xab" "mail" "z@x"' in done.stderr
        assert "Connection refused" in done.stderr

    def test_json_of_a_row_that_cannot_be_sent(self, users: Path) -> None:
        users.write_text("id,name\n1,\n")
        done = run("load", users, HSET, "--nulls", "error", "--dry-run", "--json")
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
    assert "unless you add --yes: DEL may delete or overwrite data" in done.stderr
    done = run("load", users, "HSET", "user:{id}", "{**}", "--json")
    assert done.returncode == Exit.USAGE
    assert "put quotes around all of it" in json.loads(done.stdout)["error"]


@pytest.mark.slow
def test_dry_run_counts_lines(server, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with open(path, "w") as file:
        file.write("id,name\n")
        file.writelines(f"{i},name {'x' * (i // 100_000)}\n" for i in range(3_000_000))
    fields = json.loads(run("load", path, "SET {id} {name}", "--dry-run", "--json").stdout)
    assert fields["exact"] is False
    assert 2_800_000 < fields["rows"] < 3_200_000
