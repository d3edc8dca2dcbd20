"""The report counts skipped commands, and errors by code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner
from loads import Insert

import fastresp
from fastresp.cli.app import app
from fastresp.outcome.report import CODES_KEPT, Report
from fastresp.resp.grammar import ERROR_BYTES
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Serialize

SKIPPING = "SET a:{id} {v}; HSET h:{id} w {w}; HSET p:{id} x 1 {**}"
ROWS = [
    {"id": "1", "v": "x", "w": None},
    {"id": "2", "v": None, "w": None},
    {"id": None, "v": "x", "w": "y"},
    {"id": "4", "v": "x", "w": "y"},
]
SKIPPED = 1 + 3 + 3  # of the first three rows


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]})


@pytest.mark.parametrize("kind", [list, as_table])
def test_skipped(insert: Insert, server: LocalServer, kind: Any) -> None:
    for connections in (1, 3):
        report = insert(
            kind(ROWS * 1000), SKIPPING, server=server.url, nulls="skip", connections=connections
        )
        assert (report.rows, report.skipped) == (4000, 1000 * SKIPPED)
        assert report.commands == 4000 * 3 - report.skipped
        words = "7,000 commands skipped: a null, or nothing to send\n1,000 nulls left out"
        assert words in str(report)
    report = insert(kind(ROWS), SKIPPING, server=server.url, nulls="empty")
    assert (report.skipped, "left out" in str(report)) == (0, False)


FIELDS = [
    {"id": "1", "a": "x", "b": None},
    {"id": "2", "a": None, "b": None},
    {"id": "3", "a": "y", "b": "z"},
    {"id": "1", "a": None, "b": "w"},
    {"id": "4", "a": None, "b": None},
]
HASHES = {b"k:1": {b"a": b"x", b"b": b"w"}, b"k:3": {b"a": b"y", b"b": b"z"}}


@pytest.mark.parametrize("kind", [list, as_table])
@pytest.mark.parametrize("nulls", ["auto", "skip", "delete"])
def test_null_fields_are_omitted(
    insert: Insert, client: redis.Redis, server: LocalServer, kind: Any, nulls: Any
) -> None:
    """This is the default; rows at the end also count."""
    client.hset("k:2", "a", "of an earlier load")
    report = insert(kind(FIELDS), "HSET k:{id} {**}", server=server.url, nulls=nulls)
    hashes = HASHES if nulls == "delete" else HASHES | {b"k:2": {b"a": b"of an earlier load"}}
    if nulls == "delete":
        hashes = hashes | {b"k:1": {b"b": b"w"}}
    assert {key: client.hgetall(key) for key in client.keys("k:*")} == hashes
    deletes = 4 if nulls == "delete" else 0
    assert (report.rows, report.skipped, report.nulls_skipped) == (5, 2, 2)
    assert report.commands == report.rows - report.skipped + deletes
    found = fastresp.verify(kind(FIELDS), "HSET k:{id} {**}", server=server.url, nulls=nulls)
    assert found.differing == 0


@pytest.mark.parametrize("kind", [list, as_table])
def test_fields_that_a_command_names_are_sent_if_all_others_are_null(
    server: LocalServer, client: redis.Redis, kind: Any
) -> None:
    rows = kind([{"id": "1", "a": None}])
    for nulls in ("auto", "delete"):
        client.hset("k:1", "a", "old")
        report = fastresp.mass_insert(
            rows, "HSET k:{id} id {id} b fixed {**}", server=server.url, nulls=nulls
        )
        assert (report.rows, report.skipped, report.nulls_skipped) == (1, 0, 1)
        old = {b"a": b"old"} if nulls == "auto" else {}
        assert client.hgetall("k:1") == {b"id": b"1", b"b": b"fixed"} | old
    rows = kind([{"id": "2", "b": None}])
    fastresp.mass_insert(rows, "HSET k:{id} b fixed {**}", server=server.url, nulls="delete")
    assert client.hgetall("k:2") == {b"b": b"fixed"}


@pytest.mark.parametrize("kind", [list, as_table])
def test_nulls_in_other_places_are_errors(server: LocalServer, kind: Any) -> None:
    for template in ("SET k:{a} {id}", "ZADD z {a} {id}", "SET k:{id} {a}", "HSET k:{id} a {a}"):
        with pytest.raises(fastresp.EncodeError, match="cannot send"):
            fastresp.mass_insert(kind(FIELDS), template, server=server.url)


@pytest.mark.parametrize("kind", [list, as_table])
def test_null_fields_in_serialized_loads_and_deletes_without_a_hash(
    client: redis.Redis, server: LocalServer, kind: Any
) -> None:
    rows = sorted(FIELDS, key=lambda row: str(row["id"]))  # rows of a key are adjacent
    for _ in range(2):
        report = fastresp.mass_insert(
            kind(rows), "HSET k:{id} {**}", server=server.url, mode=Serialize(exists="replace")
        )
        assert (report.rows, report.skipped, report.nulls_skipped) == (5, 2, 2)
    with pytest.raises(ValueError, match=r"exists='replace'\) instead of nulls='delete'"):
        fastresp.mass_insert(
            kind(FIELDS), "HSET k:{id} {**}", server=server.url, mode="serialize", nulls="delete"
        )
    with pytest.raises(fastresp.TemplateError, match="needs a command such as HSET"):
        fastresp.mass_insert(kind(FIELDS), "SET k {a}", server=server.url, nulls="delete")


def test_skipped_over_redis_cli_and_of_commands(server: LocalServer, insert: Insert) -> None:
    for data in (ROWS, as_table(ROWS)):
        report = fastresp.mass_insert(
            data, SKIPPING, server=server.url, nulls="skip", transport="redis-cli"
        )
        assert (report.transport, report.skipped, report.rows) == ("redis-cli", SKIPPED, 4)
    commands = [("SET", "a", None), ("SET", "b", 1), ("SET", None, None)]
    assert insert(commands, server=server.url, nulls="skip").skipped == 2
    assert insert([("SET", "a", None)] * 9, server=server.url, nulls="skip").skipped == 9


def test_skipped_before_an_error(insert: Insert, server: LocalServer) -> None:
    """Count commands skipped in the rows before the error, none in the row of the error."""
    rows: list[Any] = [*ROWS, {"id": None, "v": [1], "w": None}, *ROWS]
    with pytest.raises(fastresp.EncodeError) as caught:
        insert(rows, "SET a:{id} 1; SET b {v}", server=server.url, nulls="skip")
    report = caught.value.report  # type: ignore[attr-defined]
    assert (report.commands, report.skipped) == (8 - 2, 2)


def test_skipped_on_the_command_line(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    arguments = ["load", str(path), "SET a:{id} {v}", "--nulls", "skip", "--server", server.url]
    said = CliRunner().invoke(app, arguments).stderr
    assert "2 commands skipped: a null, or nothing to send" in said
    fields = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (fields["commands"], fields["skipped"], fields["rows"]) == (2, 2, 4)


FAILING = [("LPUSH", "text", 1)] * 300 + [("INCR", "text")] * 200 + [("SET", "ok", 1)] * 50


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_errors_by_code(client: redis.Redis, server: LocalServer, transport: Any) -> None:
    client.set("text", "x")
    commands = FAILING.copy()
    random.Random(1).shuffle(commands)
    report = fastresp.mass_insert(
        commands, server=server.url, on_error="collect", transport=transport
    )
    assert report.errors_by_code == {"WRONGTYPE": 300, "ERR": 200}
    assert report.failed == 500 and len(report.errors) == 100
    text = str(report)
    assert "   300 x WRONGTYPE Operation against" in text
    assert "   200 x ERR value is not an integer" in text
    assert "of the first" not in text


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
def test_codes_of_errors_that_are_not_kept(
    client: redis.Redis, server: LocalServer, transport: Any
) -> None:
    """Their texts are shown without passwords."""
    client.set("text", "x")
    secret = [("ACL", "SETUSER", "bob", "hunter2")] * 2
    report = fastresp.mass_insert(
        [("LPUSH", "text", 1)] * 300 + secret,
        server=server.url, on_error="collect", transport=transport, connections=1,
    )  # fmt: skip
    assert len(report.errors) == 100
    assert "     2 x ERR, such as: ERR Error in ACL SETUSER modifier '(red" in str(report)
    assert "hunter2" not in str(report)


def test_errors_by_code_in_each_way(
    insert: Insert, client: redis.Redis, server: LocalServer, tmp_path: Path
) -> None:
    client.set("text", "x")
    expected = {"WRONGTYPE": 300, "ERR": 200}
    for options in ({"max_errors": 1000}, {"rejects": tmp_path / "r"}, {"rejects": lambda e: None}):
        report = insert(FAILING, server=server.url, on_error="collect", **options)
        assert report.errors_by_code == expected
    source = tmp_path / "x.resp"
    fastresp.dump(FAILING, None, source)
    done = CliRunner().invoke(app, ["send", str(source), "--json", "--server", server.url])
    assert json.loads(done.stdout)["errors_by_code"] == expected


def test_messages_that_quote_arguments(client: redis.Redis, server: LocalServer) -> None:
    """A million different messages are shown as one line, not as the first five."""
    client.set("text", "x")
    data = [("EVAL", f"return redis.error_reply('MYCODE {i}')", 0) for i in range(50)]
    report = fastresp.mass_insert(
        [*data, *FAILING], server=server.url, on_error="collect", transport="socket"
    )
    assert report.errors_by_code == {"MYCODE": 50, "WRONGTYPE": 300, "ERR": 200}
    assert "    50 x MYCODE, such as: MYCODE 0, first for row 0" in str(report)


@pytest.mark.parametrize("transport", ["socket", "redis-cli"])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_long_messages_are_cut_at_the_same_byte(
    server: LocalServer, letter: str, transport: Any
) -> None:
    script = f"return redis.error_reply('MY ' .. string.rep('{letter}', 10000))"
    report = fastresp.mass_insert(
        [("EVAL", script, 0)], server=server.url, on_error="collect", transport=transport
    )
    letters = (ERROR_BYTES - len("MY ")) // len(letter.encode())
    assert str(report.errors[0]).count(letter) == letters


def test_few_errors_are_shown_by_their_text(client: redis.Redis, server: LocalServer) -> None:
    client.set("text", "x")
    data = [("INCR", "text"), ("HSET", "a", "b"), ("HSET", "a", "b")]
    report = fastresp.mass_insert(data, server=server.url, on_error="collect", transport="socket")
    assert report.errors_by_code == {"ERR": 3}
    lines = str(report).splitlines()
    assert "     2 x ERR wrong number of arguments for 'hset' command, first for row 1" in lines
    assert "     1 x ERR value is not an integer or out of range, first for row 0" in lines


def test_codes_are_bounded() -> None:
    report = Report("socket")
    for i in range(10_000):
        report.count_error(f"CODE{i} words")
        report.count_error("x" * 1000)
    assert len(report.errors_by_code) == CODES_KEPT + 1
    assert sum(report.errors_by_code.values()) == 20_000
    assert max(map(len, report.errors_by_code)) == 40


def test_errors_over_redis_cli_recommend_the_socket(
    client: redis.Redis, server: LocalServer
) -> None:
    client.set("text", "x")
    words = "transport='socket' can"
    with pytest.raises(fastresp.LoadErrors, match=words) as caught:
        fastresp.mass_insert(FAILING, server=server.url, transport="redis-cli")
    assert caught.value.report.errors[0].row is None
    with pytest.raises(fastresp.LoadErrors) as caught:
        fastresp.mass_insert(FAILING, server=server.url, transport="socket")
    assert words not in str(caught.value)


def test_words_for_commands_without_nulls(insert: Insert, server: LocalServer) -> None:
    report = insert([{"id": 1}], "HSET k:{id} {**}", server=server.url)
    assert "\n1 command skipped: a null, or nothing to send" in str(report)
