"""A template that the server would refuse in every row fails before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from loads import Insert

import fastresp
from fastresp import CommandError, TransportError
from fastresp.cli.app import app
from fastresp.server.local_server import LocalServer
from fastresp.server.preflight import sample_commands

ROWS = [{"id": i, "v": "x", "list": [1, 2]} for i in range(3)]
UNKNOWN = [
    ("NOSUCH {id}", "ERR unknown command 'NOSUCH'"),
    ("SET a:{id} {v}; SETT b {v}", "ERR unknown command 'SETT'"),
    ("SET a:{id}", "ERR wrong number of arguments for 'set' command"),
    ("GET a {id} {v}", "ERR wrong number of arguments for 'get' command"),
    ("hset h {id}", "ERR wrong number of arguments for 'hset' command"),
]
TAKEN = [
    "SET a:{id} {v}", "HSET h:{id} {**}", "SADD s {*list}", "DEL a {*list}", "PING",
    "EVAL 'return 1' {id}", "CONFIG GET {v}", "MULTI; SET a {v}; EXEC", "SELECT {id}", "{v} a",
    "XADD s * f {v}", "ZADD z {id} {v}", "EXPIRE a {id}", "SUBSTR a {id} {id}", "OBJECT {v} a",
    "SORT a {v}", "MIGRATE h {id} a 0 {id}", "GEOADD g {id} {id} {v}", "SETEX a {id} {v}",
]  # fmt: skip


@pytest.fixture
def restricted(start_server: Callable[..., LocalServer]) -> Iterator[Callable[..., str]]:
    """A function that creates a user with these ACL rules and returns its URL."""
    server = start_server()
    with redis.Redis.from_url(server.url, decode_responses=True) as admin:

        def make(*rules: str) -> str:
            admin.execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", *rules)
            return f"unix://bob:pw@{server.socket}"

        make.admin = admin  # type: ignore[attr-defined]
        yield make
        assert not [c for c in admin.client_list() if c.get("multi", "-1") != "-1"]


@pytest.mark.parametrize(("template", "words"), UNKNOWN)
def test_unknown_command_and_wrong_arity(
    insert: Insert, server: LocalServer, client: redis.Redis, template: str, words: str
) -> None:
    for options in ({}, {"on_error": "collect"}, {"connections": 3}):
        with pytest.raises(CommandError) as caught:
            insert(ROWS, template, server=server.url, **options)
        assert caught.value.text.replace("`", "'") == words  # Redis 6.2 quotes differently
        assert "no command was sent" in caught.value.__notes__[0]
    with pytest.raises(CommandError, match=words.replace("'", ".")):
        fastresp.mass_insert(ROWS, template, server=server.url, transport="redis-cli")
    assert client.dbsize() == 0


@pytest.mark.parametrize("template", TAKEN)
def test_commands_that_may_be_valid_are_not_refused(server: LocalServer, template: str) -> None:
    """The preflight runs no command."""
    with redis.Redis.from_url(server.url) as client:
        before = client.info("commandstats")
        fastresp.mass_insert([], template, server=server.url)
        ran = {name for name, stats in client.info("commandstats").items()
               if stats["calls"] != before.get(name, {"calls": 0})["calls"]}  # fmt: skip
        assert ran <= {
            f"cmdstat_{name}"
            for name in ("ping", "echo", "info", "config|get", "config", "multi", "discard")
        } | {"cmdstat_select"} | {each for each in ran if each.startswith("cmdstat_client")}
        assert client.dbsize() == 0


def test_rows_are_loaded_after_a_preflight(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    report = insert(ROWS, "SET a:{id} {v}; SADD s {*list}", server=server.url)
    assert (report.replies, report.failed, client.dbsize()) == (6, 0, 4)


@pytest.mark.parametrize(
    "rules", [("+@all", "~*", "-set"), ("+multi", "+discard", "+get", "~*"), ("+@all", "-@write")]
)
def test_missing_permission(insert: Insert, restricted: Any, rules: tuple[str, ...]) -> None:
    url = restricted(*rules)
    for options in ({}, {"on_error": "collect"}, {"connections": 2}):
        with pytest.raises(TransportError, match="to run the 'set' command") as caught:
            insert(ROWS, "SET a:{id} {v}", server=url, **options)
        assert r"ACL SETUSER ... +set" in str(caught.value)
        assert caught.value.report is None
    with pytest.raises(TransportError, match="to run the 'set' command"):
        fastresp.mass_insert(ROWS, "GET a; SET a:{id} {v}", server=url, transport="socket")
    assert restricted.admin.dbsize() == 0


def test_key_permissions_are_left_to_the_load(insert: Insert, restricted: Any) -> None:
    url = restricted("+@all", "~user:*")
    assert insert(ROWS, "SET user:{id} {v}", server=url).failed == 0
    keys = [{"k": "user:1"}, {"k": "user:2"}]
    assert insert(keys, "SET {k} v", server=url).failed == 0
    assert insert(ROWS, "SET other:{id} v", server=url, on_error="collect").failed == 3


@pytest.mark.parametrize("missing", ["-multi", "-discard", "-@transaction"])
def test_user_without_transactions(insert: Insert, restricted: Any, missing: str) -> None:
    """Nothing can be checked, and nothing is queued forever or run by mistake."""
    url = restricted("+@all", "~*", missing)
    report = insert(ROWS, "SET a:{id} {v}", server=url)
    assert (report.replies, report.failed) == (3, 0)
    assert restricted.admin.get("a:1") == "x"
    assert restricted.admin.dbsize() == 3


def test_over_redis_cli_without_permission_to_discard(restricted: Any) -> None:
    url = restricted("+@all", "~*", "-discard")
    assert fastresp.mass_insert(ROWS, "SET a:{id} 1", server=url, transport="redis-cli").failed == 0
    assert restricted.admin.dbsize() == 3


def test_dry_run(restricted: Any, tmp_path: Path) -> None:
    """It works without permission for COMMAND INFO and ACL DRYRUN."""
    path = tmp_path / "x.csv"
    path.write_text("id,v\n1,x\n")
    url = restricted("+multi", "+discard", "+get", "~*")
    for template, words in (
        ("SET a:{id} {v}", "to run the 'set' command"),
        ("GET a {id}", "wrong number of arguments for 'get' command"),
        ("NOSUCH {id}", "unknown command 'NOSUCH'"),
    ):
        arguments = ["load", str(path), template, "--dry-run", "--yes", "--server", url]
        done = CliRunner().invoke(app, arguments)
        assert words in " ".join(done.stderr.split()).replace("`", "'"), done.stderr
        assert done.exit_code == 1
    done = CliRunner().invoke(app, ["load", str(path), "GET a:{id}", "--dry-run", "--server", url])
    assert done.exit_code == 0
    done = CliRunner().invoke(app, ["load", str(path), "SET a {v}", "--server", url, "--json"])
    assert (done.exit_code, "to run the 'set' command" in done.stdout) == (3, True)


def test_commands_of_a_preflight() -> None:
    template = fastresp.Template("hset user:{id} n {n} {**}; {cmd} x; MULTI; SADD s {*t}; PING")
    assert [each[:2] for each in sample_commands(template)] == [
        ((b"hset", b"user:1", b"n", b"1", b"1", b"1"), False),
        ((b"SADD", b"s", b"1"), False),
        ((b"PING",), True),
    ]
    assert sample_commands(None) == []
