"""The options for files: selecting, refusing and counting rows."""

from __future__ import annotations

import json
from pathlib import Path

import preloaded
import pytest
import redis
from command_line import PROGRAM, invoke, run

from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: LocalServer) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDIS_URL", server.url)


@pytest.mark.parametrize("command", ["load", "dump"])
def test_a_file_in_place_of_a_template(client: redis.Redis, tmp_path: Path, command: str) -> None:
    for name in ("h1.csv", "h2.csv"):
        Path(name).write_text("id\n1\n")
    options = ["-o", "out.resp"] if command == "dump" else []
    said = invoke(command, "h1.csv", "h2.csv", "SET user:{id} x", *options)
    assert said.exit_code == Exit.USAGE
    assert "h2.csv is a file, but a template is expected here; for several files" in said.output
    assert client.dbsize() == 0
    assert not Path("out.resp").exists()


def test_no_header_and_columns(client: redis.Redis) -> None:
    Path("x.csv").write_text("1,Ann\n2,Bo\n")
    assert invoke("load", "x.csv", "SET a:{0} {1}", "--no-header").exit_code == 0
    assert invoke("load", "x.csv", "HSET b:{id} {**}", "--columns", "id,name").exit_code == 0
    assert invoke("load", "-", "SET c:{column_1} {column_2}", "--no-header",
                  stdin="1,Ann\n").exit_code == 0  # fmt: skip
    assert (client.get("a:1"), client.get("a:2")) == (b"Ann", b"Bo")
    assert client.hgetall("b:2") == {b"name": b"Bo"}
    assert client.get("c:1") == b"Ann"
    said = invoke("load", "x.csv", "SET {a} {b}", "--columns", "a,b,c")
    assert "--columns has 3 names, but the first row has 2 fields" in said.output


@pytest.mark.few(1)
@pytest.mark.parametrize("null", [[], ["--null"]])
def test_lines_are_the_inverse_of_pop(client: redis.Redis, null: list[str]) -> None:
    items = [b"a b", b"", b"\xff\xfe\r", b'{"x": "}"}', b"last"] + ([b"two\nlines"] if null else [])
    client.rpush("queue", *items)
    popped = preloaded.run([*PROGRAM, "pop", "queue", *null], capture_output=True)
    assert client.llen("queue") == 0
    Path("items").write_bytes(popped.stdout)
    for source in ("items", "-"):
        arguments = ["load", source, "RPUSH queue {line}", "--format", "lines", *null]
        assert run(*arguments, stdin=popped.stdout).returncode == 0
        assert client.lrange("queue", 0, -1) == items
        client.delete("queue")
    assert "--null is for lines" in invoke("load", "items", "SET k {0}", "--null").output


def test_encoding_and_null_values(client: redis.Redis) -> None:
    Path("x.csv").write_bytes("id,name\n1,Zoë\n2,NULL\n".encode("latin-1"))
    done = invoke("load", "x.csv", "SET {id} {name}", "--encoding", "latin-1", "--null-values",
                  "NULL,\\N", "--nulls", "skip")  # fmt: skip
    assert done.exit_code == 0
    assert (client.get("1"), client.get("2")) == ("Zoë".encode(), None)
    done = invoke("load", "x.csv", "SET {id} {name}", "--encoding", "latin-99")
    assert "--encoding must be one that Python knows" in done.output


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_bad_rows(client: redis.Redis, suffix: str) -> None:
    bad = "1,2,3" if suffix == "csv" else '{"a": 1'
    good = ["1,2", "3,4"] if suffix == "csv" else ['{"a": 1, "b": 2}', '{"a": 3, "b": 4}']
    head = ["a,b"] if suffix == "csv" else []
    Path(f"x.{suffix}").write_text("\n".join([*head, good[0], bad, good[1]]) + "\n")
    arguments = ["load", f"x.{suffix}", "SET {a} {b}"]
    assert invoke(*arguments).exit_code == Exit.ERRORS
    assert client.dbsize() == 0
    done = invoke(*arguments, "--bad-rows", "skip")
    assert done.exit_code == 0
    assert "1 bad row skipped" in done.output
    assert client.dbsize() == 2
    done = invoke(*arguments, "--bad-rows", "bad.txt", "--json")
    assert json.loads(done.stdout)["bad_rows"] == 1
    assert Path("bad.txt").read_text() == bad + "\n"
    client.flushall()
    for more in ((), ("--dry-run",)):
        done = invoke(*arguments, "--bad-rows", "bad.txt", *more)
        assert done.exit_code == Exit.EARLIER
        assert (
            "bad.txt already exists, and may contain the bad rows of an earlier load" in done.output
        )
    assert Path("bad.txt").read_text() == bad + "\n" and client.dbsize() == 0
    Path("bad.txt").write_text("")
    assert invoke(*arguments, "--bad-rows", "bad.txt", "--dry-run").exit_code == 0
    assert Path("bad.txt").read_text() == ""
    done = invoke("dump", *arguments[1:], "-o", "x.resp", "--bad-rows", "skip")
    assert "1 bad row skipped" in done.output
    done = invoke(*arguments, "--bad-rows", f"x.{suffix}")
    assert "is also the source; write to another file" in done.output


def test_headers_that_differ(client: redis.Redis) -> None:
    Path("h1.csv").write_text("id,name\n" + "1,x\n" * 3)
    Path("h2.csv").write_text("id,mail\n1,x\n")
    done = invoke("load", "h*.csv", "RPUSH k {id}")
    assert done.exit_code == Exit.ERRORS
    assert "h2.csv has the columns id, mail, but h1.csv has id, name" in done.output
    assert client.dbsize() == 0


def test_unclosed_quote(client: redis.Redis) -> None:
    text = 'id,name\n1,Ann\n2,"Bo\n3,Cy\n'
    Path("x.csv").write_text(text)
    for source in ("x.csv", "-"):
        done = invoke("load", source, "SET {id} {name}", stdin=text)
        assert done.exit_code == Exit.ERRORS
        assert "the quote opened in line 3 is never closed" in done.output
        assert client.dbsize() == 0


@pytest.mark.parametrize("option", ["--quote", "--escape"])
@pytest.mark.parametrize(("name", "character"), [("x.csv", ","), ("x.tsv", "\t")])
def test_the_delimiter_as_quote_or_escape(
    client: redis.Redis, option: str, name: str, character: str
) -> None:
    Path(name).write_text(f"id{character}v\n1{character}2\n")
    said = invoke("load", name, "SET {id} {v}", option, character)
    assert said.exit_code == Exit.USAGE
    assert f"{option} must not be the delimiter, which is {character!r}; change" in said.output
    assert client.dbsize() == 0


def test_json_documents_and_large_ids(client: redis.Redis) -> None:
    rows = [f'{{"id": {2**63 + n}, "v": 1.10}}' for n in range(3)]
    for text in ("\n".join(rows), f"[{', '.join(rows)}]"):
        done = invoke("load", "-", "SET event:{id} {*!json}", stdin=text)
        assert done.exit_code == 0
        assert [client.get(f"event:{2**63 + n}") for n in range(3)] == [r.encode() for r in rows]
        client.flushall()


@pytest.mark.parametrize("text", ["", "[]"])
def test_json_without_rows(text: str) -> None:
    Path("x.jsonl").write_text(text)
    said = invoke("load", "x.jsonl", "SET {id} 1")
    assert said.exit_code == 0
    assert "0 commands (0 bytes, 0 rows)" in said.output
    said = invoke("load", "-", "SET {id} 1", "--format", "jsonl", stdin=text)
    assert said.exit_code == 0
