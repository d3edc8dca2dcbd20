"""Values that depend on other rows or writers: parts of documents, early expiries, counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from waiting import until

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.load.verifying import verify as module
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]


class TestPartsOfDocuments:
    ROWS = tuple(
        (number, f'{{"a": {number}, "b": {{"x": [1, {number}]}}, "c": "long text"}}')
        for number in range(20)
    )
    WHOLE = "JSON.SET d:{0} $ {1}"

    @pytest.fixture
    def client(self, json_server: LocalServer) -> redis.Redis:
        return redis.Redis.from_url(json_server.url)

    @pytest.mark.parametrize(
        "later",
        [
            ["JSON.SET d:{0} $.a 7"], ["JSON.SET d:{0} .b.x[1] 7"], ["JSON.SET d:{0} $.new 7"],
            ["JSON.SET d:{0} \"$['b']\" '{{\"x\": []}}'", "JSON.SET d:{0} $.b.x 7"],
            ["JSON.SET d:{0} a 7", "JSON.SET d:{0} '$[\"a\"]' 8", "JSON.SET d:{0} $.b.x[0] 9"],
        ],
        ids=str,
    )  # fmt: skip
    def test_rest_is_compared(
        self, later: list[str], verify: Verify, client: redis.Redis, json_server: LocalServer
    ) -> None:
        template = [self.WHOLE, *later]
        options: dict[str, Any] = {"server": json_server.url}
        fastresp.mass_insert(self.ROWS, template, **options)
        report = verify(self.ROWS, template, **options)
        assert report.same and report.written_meanwhile == 0, report
        client.execute_command("JSON.SET", "d:7", "$.c", '"other"')
        client.execute_command("JSON.DEL", "d:8", "$.c")
        report = verify(self.ROWS, template, **options)
        assert [(each.row, each.field) for each in report.differences] == [(7, b"$"), (8, b"$")]
        assert verify(self.ROWS, template, repair=True, **options).same
        assert verify(self.ROWS, template, **options).same

    def test_part_that_differs_is_reported_once(
        self, verify: Verify, client: redis.Redis, json_server: LocalServer
    ) -> None:
        template = [self.WHOLE, "JSON.SET d:{0} $.a 7", "JSON.SET d:{0} $.b.x[1] 7"]
        options: dict[str, Any] = {"server": json_server.url}
        fastresp.mass_insert(self.ROWS, template, **options)
        client.execute_command("JSON.SET", "d:7", "$.a", "8")
        report = verify(self.ROWS, template, **options)
        assert [(each.row, each.field) for each in report.differences] == [(7, b"$.a")]
        client.delete("d:8")
        assert not verify(self.ROWS, template, **options).same
        assert verify(self.ROWS, template, repair=True, **options).same

    def test_large_document(
        self, verify: Verify, client: redis.Redis, json_server: LocalServer
    ) -> None:
        """Only its start is kept; the recheck compares all of it."""
        rows = [(1, '{"a": 1, "text": "' + "x" * 200_000 + '", "end": 1}')]
        template = ["JSON.SET d:{0} $ {1}", "JSON.SET d:{0} $.a 7"]
        options: dict[str, Any] = {"server": json_server.url}
        fastresp.mass_insert(rows, template, **options)
        report = verify(rows, template, **options)
        assert report.same and report.written_meanwhile == 0
        client.execute_command("JSON.SET", "d:1", "$.end", "2")
        report = verify(rows, template, **options)
        assert [each.field for each in report.differences] == [b"$"]

    @pytest.mark.parametrize("path", ["$..a", "$.b.x[*]", "$.b.x[-1]", "$.b[?(@.x)].y"])
    def test_ambiguous_path(
        self, path: str, verify: Verify, client: redis.Redis, json_server: LocalServer
    ) -> None:
        """The report says that documents were not fully compared."""
        template = [self.WHOLE, f"JSON.SET d:{{0}} {path} 7"]
        options: dict[str, Any] = {"server": json_server.url, "on_error": "collect"}
        fastresp.mass_insert(self.ROWS, template, **options)
        del options["on_error"]
        client.execute_command("JSON.SET", "d:7", "$.c", '"other"')
        report = verify(self.ROWS, template, **options)
        assert not report.same
        if not report.differing:
            assert "20 documents not fully compared" in report.stopped
            assert "20 documents not fully compared" in str(report)


class TestEarlyTimes:
    def test_key_that_expired_with_what_later_rows_wrote(
        self, load: Load, verify: Verify, client: redis.Redis
    ) -> None:
        rows = [("HSET", "k", "a", 1), ("PEXPIRE", "k", 1000), ("HSET", "k", "b", 2)]
        began = time.time()
        load([*rows, ("HSET", "other", "b", 2)])
        assert client.pttl("k") > 0
        until(lambda: not client.exists("k"))
        report = verify(rows, since=began)
        assert report.same, report
        # Whether they must exist if the time of the load is unknown.
        assert verify(rows).by_kind == {"missing": 2}
        # A key that a later row creates again must exist.
        rows += [("SET", "k", "x"), ("SET", "j", 1)]
        report = verify(rows, since=began)
        assert [(each.row, each.kind) for each in report.differences] == [
            (3, "missing"), (4, "missing"),
        ]  # fmt: skip

    def test_key_that_expired_before_a_later_row_created_it_again(
        self, load: Load, verify: Verify, client: redis.Redis
    ) -> None:
        past = int(time.time()) - 100
        rows = [("HSET", "k", "a", 1), ("EXPIREAT", "k", past), ("HSET", "k", "b", 2)]
        load(rows)
        assert client.hgetall("k") == {b"b": b"2"}
        report = verify(rows)
        assert report.same, report
        client.hset("k", "b", 3)
        assert [each.row for each in verify(rows).differences] == [2]
        # Without a later row, it must not exist.
        assert {each.row for each in verify(rows[:2]).differences} == {0, 1}

    def test_later_expiry_in_the_future(
        self, load: Load, verify: Verify, client: redis.Redis
    ) -> None:
        """Later values must exist."""
        rows = [
            ("HSET", "k", "a", 1), ("PEXPIRE", "k", 1), ("HSET", "k", "b", 2),
            ("EXPIRE", "k", 1000), ("HSET", "k", "c", 3),
        ]  # fmt: skip
        began = time.time() - 1
        client.hset("k", "b", 2)
        client.expire("k", 999)
        report = verify(rows, since=began)
        assert [(each.row, each.field) for each in report.differences] == [(4, b"c")]

    @pytest.mark.parametrize(
        "template",
        [
            "EXPIRE k:{0} 100; HSET k:{0} a 1",
            ["SET j:{0} 1", "PEXPIRE k:{0} 100", "SADD k:{0} a"],
            "HSET k:{0} a 1; DEL k:{0}; EXPIRE k:{0} 100; HSET k:{0} b 1",
        ],
    )
    def test_expire_before_its_key(self, template: Any, load: Load, verify: Verify) -> None:
        """It does nothing unless the key exists already, which the source does not show."""
        load([(1,)], template)
        with pytest.raises(fastresp.TemplateError, match="move it after the commands"):
            verify([(1,)], template)


class TestCounts:
    @pytest.mark.parametrize(
        ("template", "write"),
        [
            ("HSET k:{0} a {0} b {0}", lambda client, i: client.hset(f"k:{i}", "b", i)),
            ("SADD k:{0} a b", lambda client, i: client.sadd(f"k:{i}", "b")),
            ("ZADD k:{0} 1 a 2 b", lambda client, i: client.zadd(f"k:{i}", {"b": 2})),
        ],
    )
    def test_item_that_reappears_before_the_recheck(
        self, template: str, write: Any, load: Load, verify: Verify, client: redis.Redis,
        server: LocalServer, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """The source names it, but it was missing at the first count."""
        rows = [(number,) for number in range(10)]
        remove = {"H": client.hdel, "S": client.srem, "Z": client.zrem}[template[0]]
        add = {
            "H": lambda key: client.hset(key, "more", 1), "S": lambda key: client.sadd(key, "more"),
            "Z": lambda key: client.zadd(key, {"more": 1}),
        }[template[0]]  # fmt: skip
        load(rows, template)
        # Two items each, as in the source, but different ones.
        for number in (3, 4):
            remove(f"k:{number}", "b")
            add(f"k:{number}")

        def pause(seconds: float) -> None:
            # Now they have the correct items, and one of them has an extra item.
            for number in (3, 4):
                write(client, number)
            remove("k:3", "more")

        monkeypatch.setattr(module.time, "sleep", pause)
        report = verify(rows, template, exact=True)
        monkeypatch.undo()
        assert [(each.row, each.kind) for each in report.differences] == [(4, "extra")]
        assert (report.differences[0].wanted, report.differences[0].found) == (2, 3)
        assert report.written_meanwhile == 3


@pytest.mark.parametrize(
    "template",
    [
        "SET {k} {v} NX", "SET {k} {v} EX 10 XX", "ZADD {k} NX {v} m", "ZADD {k} GT CH {v} m",
        "EXPIRE {k} 10 NX", "HSET {k} a 1; SET x y NX", "JSON.SET {k} $ {v} NX",
        "EXPIRE {k} 10; SET {k} {v}",
    ],
)  # fmt: skip
def test_load_is_refused_before_anything_is_sent(
    template: str, server: LocalServer, client: redis.Redis, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, verify: Verify,
) -> None:  # fmt: skip
    monkeypatch.setenv("REDIS_URL", server.url)
    path = tmp_path / "rows.csv"
    path.write_text("k,v,o\na,1,NX\nb,2,KEEPTTL\n")
    done = invoke("load", path, template, "--verify")
    assert done.exit_code == Exit.USAGE
    assert "can't be verified" in done.stderr
    assert client.dbsize() == 0
    with pytest.raises(fastresp.TemplateError, match="can't be verified"):
        verify(path, template)


@pytest.mark.parametrize(
    "template",
    [
        "SET {k} {v} KEEPTTL", "SET {k} {v} EX {v}00", "ZADD {k} CH {v} m", "HSET {k} {**}",
        "HSET {k} a 1; EXPIRE {k} {v}00", "MULTI; DEL {k}; SET {k} {v}; EXEC", "SET {k} {v} {o}",
        "EXPIRE {k} 100",
    ],
)  # fmt: skip
def test_load_is_not_refused(
    template: str, server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    path = tmp_path / "rows.csv"
    path.write_text("k,v,o\na,1,KEEPTTL\nb,2,GET\n")
    if template.startswith("EXPIRE"):
        assert invoke("load", path, "SET {k} 1").exit_code == Exit.OK
    done = invoke("load", path, template, "--verify", "--yes")
    assert done.exit_code == Exit.OK, done.stderr
