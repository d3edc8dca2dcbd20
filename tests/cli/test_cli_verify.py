"""``fastresp verify`` and ``fastresp load --verify``: output, differences and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
import redis
from command_line import PROGRAM, invoke
from waiting import until

from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("server", "url_in_environment")

TEMPLATE = "HSET user:{id} {**}"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_text("id,name,city\n" + "".join(f"{i},name {i},\n" for i in range(1000)))
    return path


def test_same(users: Path) -> None:
    done = invoke("load", users, TEMPLATE, "--nulls", "skip")
    assert done.exit_code == Exit.OK
    done = invoke("verify", users, TEMPLATE, "--nulls", "skip")
    assert done.exit_code == Exit.OK and done.stdout == ""
    assert done.stderr.startswith("1,000 values of 1,000 rows compared in ")
    assert done.stderr.endswith("nothing differs\n")


def test_differences(users: Path, client: redis.Redis, tmp_path: Path) -> None:
    invoke("load", users, TEMPLATE, "--nulls", "empty")
    client.hset("user:7", "name", "other")
    client.delete("user:8")
    client.hset("user:9", "age", 1)
    path = tmp_path / "differences.jsonl"
    options = ("--nulls", "empty", "--differences")
    done = invoke("verify", users, TEMPLATE, *options, path)
    assert done.exit_code == Exit.ERRORS
    where = f"first for row 7, line 9 of {users}"
    assert f'1 x with another value, {where}: "user:7" "name"' in done.stderr
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "row": 7, "key": "user:7", "field": "name", "kind": "value", "wanted": "name 7",
        "found": "other", "file": str(users), "row_in_file": 7, "line": 9,
    }  # fmt: skip
    assert [line["row"] for line in lines] == [7, 8, 8]
    done = invoke("verify", users, TEMPLATE, *options, "-", "--exact")
    assert [json.loads(line)["row"] for line in done.stdout.splitlines()] == [7, 8, 8, 9]
    done = invoke("verify", users, TEMPLATE, *options, path)
    assert done.exit_code == Exit.EARLIER and "already exists" in done.stderr
    done = invoke("verify", users, TEMPLATE, "--nulls", "empty", "--repair")
    assert done.exit_code == Exit.OK and "3 values repaired" in done.stderr
    assert client.hget("user:8", "name") == b"name 8"


def test_json(users: Path, client: redis.Redis) -> None:
    invoke("load", users, TEMPLATE, "--nulls", "skip")
    client.hset("user:7", "name", b"\xff")
    done = invoke("verify", users, TEMPLATE, "--nulls", "skip", "--json", "--max-differences", "10")
    fields = json.loads(done.stdout)
    assert (done.exit_code, fields["exit_code"], fields["same"]) == (1, 1, False)
    assert (fields["values"], fields["by_kind"]) == (1000, {"value": 1})
    assert fields["differences"][0]["found"] == {"base64": "/w=="}
    done = invoke("verify", "none.csv", TEMPLATE, "--json")
    fields = json.loads(done.stdout)
    assert (done.exit_code, fields["same"], fields["values"]) == (Exit.USAGE, None, 0)
    done = invoke("verify", users, TEMPLATE, "--json", "--differences", "-")
    assert done.exit_code == Exit.USAGE


def test_sample(users: Path) -> None:
    invoke("load", users, TEMPLATE, "--nulls", "skip")
    done = invoke("verify", users, TEMPLATE, "--nulls", "skip", "--sample", "20%", "--seed", "1")
    assert done.exit_code == Exit.OK
    assert "of 1,000 rows compared" in done.stderr and "95% confidence" in done.stderr


@pytest.mark.parametrize("mode", ["commands", "merge", "serialize"])
def test_load_and_verify(mode: str, users: Path, client: redis.Redis) -> None:
    template = ("HSET user:{id} name {name}", "EXPIRE user:{id} 100")
    done = invoke("load", users, *template, "--verify", "--mode", mode)
    assert done.exit_code == Exit.OK, done.stderr
    assert "2,000 commands" in done.stderr
    assert "2,000 values of 1,000 rows compared" in done.stderr
    assert done.stderr.endswith("nothing differs\n")


def test_load_with_errors(users: Path, client: redis.Redis) -> None:
    """Failed rows are differences."""
    client.set("user:7", 1)
    done = invoke("load", users, "HSET user:{id} name {name}", "--verify", "--json")
    fields = json.loads(done.stdout)
    assert (done.exit_code, fields["failed"]) == (Exit.ERRORS, 1)
    assert fields["verification"]["by_kind"] == {"type": 1}
    # An existing key is unchanged, so it differs from the source.
    client.flushall()
    client.set("user:7", "other")
    options = ("--mode", "serialize", "--exists", "skip", "--verify")
    done = invoke("load", users, "HSET user:{id} name {name}", *options)
    assert done.exit_code == Exit.ERRORS
    assert "1 x in a key of another type" in done.stderr


def test_bad_rows_are_skipped_both_times(users: Path, tmp_path: Path) -> None:
    with users.open("a") as file:
        file.write("1000,too,many,fields\n")
    bad = tmp_path / "bad.csv"
    done = invoke("load", users, TEMPLATE, "--nulls", "skip", "--bad-rows", bad, "--verify")
    assert done.exit_code == Exit.OK, done.stderr
    assert "1,000 values of 1,000 rows compared" in done.stderr
    assert bad.read_text().count("\n") == 1
    done = invoke("verify", users, TEMPLATE, "--nulls", "skip", "--bad-rows", "skip")
    assert done.exit_code == Exit.OK and "1 bad row skipped" in done.stderr


@pytest.mark.parametrize("kind", ["/dev/stdin", "fifo"])
def test_a_pipe_cannot_be_verified(
    kind: str, users: Path, client: redis.Redis, tmp_path: Path
) -> None:
    path = kind
    if kind == "fifo":
        path = str(tmp_path / "fifo")
        os.mkfifo(path)
    command = [*PROGRAM, "load", path, TEMPLATE, "--format", "jsonl", "--verify"]
    done = preloaded.run(command, input=b'{"id": 1}\n', capture_output=True, timeout=200)
    assert done.returncode == Exit.USAGE
    assert b"reads its source twice" in done.stderr
    assert client.dbsize() == 0


def test_unverifiable_commands_are_not_loaded(users: Path, client: redis.Redis) -> None:
    done = invoke("load", users, "INCR k:{id}", "--verify")
    assert done.exit_code == Exit.USAGE and "INCR can't be verified" in done.stderr
    assert client.dbsize() == 0


def test_resp_file(users: Path, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "users.resp"
    invoke("dump", users, TEMPLATE, "--nulls", "skip", "-o", path)
    assert invoke("send", path).exit_code == Exit.OK
    assert invoke("verify", path).exit_code == Exit.OK
    client.delete("user:7")
    assert invoke("verify", path).exit_code == Exit.ERRORS


def test_standard_input(users: Path) -> None:
    invoke("load", users, TEMPLATE, "--nulls", "skip")
    command = [*PROGRAM, "verify", "-", TEMPLATE, "--format", "csv", "--nulls", "skip"]
    done = preloaded.run(command, input=users.read_bytes(), capture_output=True, timeout=200)
    assert done.returncode == Exit.OK, done.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("verify users.csv", Exit.USAGE, "a template is missing"),
        ("verify users.csv INCR.k", Exit.USAGE, "INCR can't be verified"),
        ("verify users.csv RPUSH.k.{id} --repair", Exit.USAGE, "--repair can't be used with RPUSH"),
        ("verify users.csv SET.k.{no}", Exit.USAGE, "no column {no}"),
        ("verify users.csv SET.k.{id} --sample 0", Exit.USAGE, "--sample must be a share"),
        ("verify users.csv SET.k.{id} --sample 1% --exact", Exit.USAGE, "leave out --sample"),
        ("verify users.csv SET.k.{id} --since x", Exit.USAGE, "--since must be a time"),
        ("verify users.csv SET.k.{id} --server redis://127.0.0.1:1", Exit.LOST, "refused"),
        ("verify users.csv SET.k.{city}", Exit.ERRORS, "null"),
        ("load - SET.k.{id} --format csv --verify", Exit.USAGE, "reads its source twice"),
        ("load users.csv --from-rejects --verify", Exit.USAGE, "a file, not stdin or rejects"),
    ],
)
def test_failures(
    command: str, code: Exit, words: str, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(users.parent)
    done = invoke(*(word.replace(".k", " k").replace("k.", "k ") for word in command.split()))
    assert done.exit_code == code, done.stderr
    assert words in " ".join(done.stderr.split())


def test_since(users: Path, client: redis.Redis, start_server: Callable[..., LocalServer]) -> None:
    template = ("SET user:{id} {name}", "PEXPIRE user:{id} 1")
    invoke("load", users, *template)
    until(lambda: not client.dbsize())
    assert invoke("verify", users, *template).exit_code == Exit.ERRORS
    for since in ("2020-12-31", "2020-12-31T23:59:00+02:00", "1700000000.5"):
        assert invoke("verify", users, *template, "--since", since).exit_code == Exit.OK


def test_interruption(client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n" + "".join(f"{i}\n" for i in range(3_000_000)))
    client.config_resetstat()
    command = [*PROGRAM, "verify", str(path), "HSET k:{id} a 1", "--json"]
    with preloaded.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"] < 1000:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    fields = json.loads(output)
    assert (process.returncode, fields["error"]) == (Exit.INTERRUPTED, "interrupted")
    assert fields["values"] > 0 and not fields["same"] and fields["stopped"]
