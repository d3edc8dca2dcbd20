"""``fastresp pack``, ``check`` and ``send``: RESP files written, checked and sent."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from command_line import CSV, HSET, PROGRAM, run

import fastresp
from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


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

    @pytest.mark.slow
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
            assert ("; --skip-truncated sends" in done.stderr) == (broken == "cut")
        if broken != "subscribe":
            assert 'SET "key:999" "999"' in done.stderr
            assert f"at byte {len(content):,}" in done.stderr
        fields = json.loads(run("check", path, "--json").stdout)
        assert (fields["valid"], fields["exit_code"], fields["commands"]) == (False, 1, 1000)
        assert fields["truncated"] == (broken == "cut")
        assert fields["offset"] == (None if broken == "subscribe" else len(content))
        assert fields["last_command"] == 'SET "key:999" "999"'
        assert fields["reason"] and "skip_truncated" not in fields["reason"]

    def test_send_of_a_broken_file(self, server, client, resp) -> None:
        path = resp()
        path.write_bytes(path.read_bytes()[:-5])
        done = run("send", path)
        assert done.returncode == Exit.ERRORS
        assert "is truncated" in done.stderr
        assert "--skip-truncated sends the commands before it" in done.stderr
        assert client.dbsize() == 0
        assert run("send", path, "--skip-truncated").returncode == 0
        assert client.dbsize() == 999

    def test_send_standard_input(self, server, client, resp) -> None:
        assert run("send", "-", stdin=resp().read_bytes()).returncode == 0
        assert client.dbsize() == 1000
        assert run("load", "-", "--format", "resp", stdin=resp().read_bytes()).returncode == 0
