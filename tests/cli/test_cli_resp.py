"""``fastresp dump``, ``check`` and ``send``: RESP files written, checked and sent."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import preloaded
import pytest
from command_line import CSV, ENDED, HSET, PROGRAM, run

import fastresp
from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


class TestResp:
    def test_dump_check_send(self, server, client, users: Path, tmp_path: Path) -> None:
        path = tmp_path / "users.resp"
        done = run("dump", users, HSET, "-o", path)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"3 commands written to {path}\n"
        streamed = preloaded.run(
            [*PROGRAM, "dump", str(users), HSET], capture_output=True, timeout=200
        )
        assert streamed.stdout == path.read_bytes()
        assert run("pack", users, HSET).stdout.encode() == streamed.stdout  # the earlier name
        assert streamed.stdout.startswith(b"*6\r\n$4\r\nHSET\r\n$6\r\nuser:1\r\n")
        assert run("check", path).returncode == 0
        assert run("send", path).returncode == 0
        assert client.hget("user:2", "mail") == b"b@x"

    def test_dump_to_standard_output(
        self, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A dash is not a file."""
        monkeypatch.chdir(tmp_path)
        assert run("dump", users, HSET, "-o", "-").stdout == run("dump", users, HSET).stdout != ""
        assert not Path("-").exists()

    def test_dump_sorted_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("id\n2\n1\n")
        done = run("dump", path, "PING {id}", "--sort-by", "id")
        assert done.stdout == "".join(f"*2\r\n$4\r\nPING\r\n$1\r\n{at}\r\n" for at in (1, 2))

    def test_dump_standard_input(self) -> None:
        done = run("dump", "-", "SET {id} {name}", "--format", "csv", stdin=CSV.encode())
        assert done.stdout.count("SET") == 3

    def test_dump_refuses_a_terminal(self, users: Path) -> None:
        ours, theirs = pty.openpty()
        done = preloaded.run(
            [*PROGRAM, "dump", str(users), HSET], stdout=theirs, stderr=subprocess.PIPE, timeout=200
        )
        os.close(theirs)
        os.close(ours)
        assert done.returncode == Exit.USAGE
        assert b"RESP can't be shown on a terminal" in done.stderr

    def test_dump_does_not_write_over_its_source(self, users: Path, resp) -> None:
        assert run("dump", users, HSET, "-o", users).returncode == Exit.USAGE
        assert users.read_text(encoding="utf-8") == CSV

    def test_dump_overwrites_earlier_output(self, users: Path, tmp_path: Path) -> None:
        path = tmp_path / "old.resp"
        for source in (f"{users.parent}/user*.csv", f"SELECT * FROM '{users}'"):
            path.write_text("what an earlier one wrote")
            done = run("dump", source, HSET, "-o", path)
            assert (done.returncode, done.stderr) == (0, f"3 commands written to {path}\n")

    def test_dump_into_a_closed_pipe(self, tmp_path: Path) -> None:
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

    def test_dump_an_rdb_file(self, users: Path, tmp_path: Path, resp) -> None:
        path = tmp_path / "dump.rdb"
        done = run("dump", users, HSET, "--format", "rdb", "-o", path)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"3 commands written to {path}\n"
        data = path.read_bytes()
        assert data.startswith(b"REDIS0010")
        assert b"user:2" in data
        formats = ("--format", "csv", "--format", "rdb", "--rdb-version", "9")
        done = run("dump", "-", "SET {id} x", *formats, "-o", path, stdin=CSV.encode())
        assert (done.returncode, done.stderr) == (0, f"3 commands written to {path}\n")
        assert path.read_bytes().startswith(b"REDIS0009")
        commands = resp([("SET", "a", "1"), ("RPUSH", "b", "2", "3")])
        assert run("dump", commands, "--format", "rdb", "-o", path).returncode == 0
        assert run("check", path).returncode != 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ((HSET, "--format", "rdb"), "can't be written to stdout; add -o FILE"),
            ((HSET, "--rdb-version", "9", "-o", "x"), "--rdb-version is for RDB files; add"),
            ((HSET, "--format", "csv", "--format", "tsv", "-o", "x"), "csv and tsv"),
            (("INCR {id}", "--format", "rdb", "-o", "x"), "RDB file needs a template"),
            ((HSET, "--format", "rdb", "-o", "/dev/null"), "/dev/null is not a file"),
        ],
    )
    def test_dump_refuses(
        self, options: tuple[str, ...], words: str, users: Path, tmp_path: Path
    ) -> None:
        options = tuple(str(tmp_path / each) if each == "x" else each for each in options)
        done = run("dump", users, *options)
        assert done.returncode == Exit.USAGE
        assert words in done.stderr
        assert not (tmp_path / "x").exists()

    def test_dump_of_a_repeated_key(self, tmp_path: Path) -> None:
        source, path = tmp_path / "rows.csv", tmp_path / "dump.rdb"
        source.write_text("id\n1\n2\n1\n")
        path.write_bytes(b"old")
        done = run("dump", source, "SET {id} x", "--format", "rdb", "-o", path)
        assert done.returncode == Exit.ERRORS
        assert "row 0 and row 2 make the same key" in done.stderr
        assert path.read_bytes() == b"old"

    @pytest.mark.few(1)
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_dump_interrupted(self, tmp_path: Path, number: signal.Signals) -> None:
        path = tmp_path / "dump.rdb"
        path.write_bytes(b"old")
        options = ("--format", "rdb", "-o", str(path))
        with preloaded.Popen(
            [*PROGRAM, "dump", "-", "SET {0} x", "--no-header", "--format", "csv", *options],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as program:  # fmt: skip
            assert program.stdin is not None
            assert program.stderr is not None
            deadline = time.monotonic() + 60
            lines = 0
            while len(os.listdir(tmp_path)) < 2:
                assert time.monotonic() < deadline
                text = "".join(f"{line}\n" for line in range(lines, lines + 1000))
                program.stdin.write(text.encode())
                program.stdin.flush()
                lines += 1000
            program.send_signal(number)
            code, word = ENDED[number]
            assert program.wait(60) == code
            assert program.stderr.read() == f"fastresp: {word}\n".encode()
        assert os.listdir(tmp_path) == ["dump.rdb"]
        assert path.read_bytes() == b"old"

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
