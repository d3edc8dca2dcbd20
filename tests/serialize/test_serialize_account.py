"""Whole serialised loads: errors, interruptions, permissions, limits; counts stay exact."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import insert_asyncio, interrupted, running_load
from needed import imported
from twice import as_file, calls
from waiting import only_we_are_connected

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

Command = tuple[Any, ...]


def keys(count: int, rows: int = 1, name: str = "key") -> Iterator[Command]:
    """Yield the commands of sets, each of ``rows`` rows."""
    for number in range(count * rows):
        yield "SADD", f"{name}:{number // rows}", number % rows


def serialized(
    server: LocalServer, data: Any, *template: str, at: str | None = None, **options: Any
) -> fastresp.Report:
    options = {"server": at or server.url, "mode": "serialize", "on_error": "collect", **options}
    return fastresp.mass_insert(data, *template, **grouped(options))


def report_of(caught: pytest.ExceptionInfo[BaseException]) -> fastresp.Report:
    report = getattr(caught.value, "report", None)
    assert isinstance(report, fastresp.Report)
    return report


def failure(server: LocalServer, data: Any, *template: str, **options: Any) -> Any:
    """Return the EncodeError that ends a load."""
    with pytest.raises(fastresp.EncodeError) as caught:
        serialized(server, data, *template, **options)
    return caught.value


class TestErrors:
    def test_load_errors(self, server: LocalServer, client: redis.Redis) -> None:
        client.set("key:1", "in the way")
        with pytest.raises(fastresp.LoadErrors, match=r"2 x BUSYKEY .*first for row 2"):
            serialized(server, keys(3, 2), on_error="raise")
        assert client.get("key:1") == b"in the way"

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"on_error": "stop"}, "stopped at the first error"),
            ({"max_errors": 39}, "stopped after more than 39 error"),
        ],
    )
    def test_stopped(
        self, server: LocalServer, client: redis.Redis, options: dict[str, Any], words: str
    ) -> None:
        """Commands count, not replies."""
        client.set("key:0", "in the way")
        with pytest.raises(fastresp.LoadErrors) as caught:
            serialized(server, keys(10**9, 40), **{"on_error": "raise", **options})
        report = report_of(caught)
        assert words in report.stopped
        assert (report.failed, report.in_doubt) == (40, 0)
        client.delete("key:0")
        assert 40 * client.dbsize() == report.replies - 40

    def test_permissions_for_some_keys(self, server: LocalServer, client: redis.Redis) -> None:
        client.execute_command("ACL SETUSER some on >secret ~key:* +@all")
        try:
            data = [*keys(2, 3), *keys(1, 3, "other"), *keys(1, 3, "key:x")]
            report = serialized(server, data, at=f"{server.url}?username=some&password=secret")
        finally:
            client.execute_command("ACL DELUSER some")
        assert report.errors_by_code == {"NOPERM": 3}
        assert [error.row for error in report.errors] == [6, 7, 8]
        assert client.dbsize() == 3

    def test_full_memory(self, server: LocalServer, client: redis.Redis) -> None:
        """Each key is stored, or all its commands fail."""
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (4 << 20))
        try:
            rows = ((number // 5, number % 5, "x" * 500) for number in range(50_000))
            report = serialized(server, rows, "HSET key:{0} {1} {2}", max_errors=10**6)
        finally:
            client.config_set("maxmemory", 0)
        assert report.commands == report.replies == 50_000
        assert report.errors_by_code == {"OOM": report.failed}
        assert 0 < report.failed < 50_000
        assert 5 * client.dbsize() == 50_000 - report.failed


class TestBadRows:
    """Keys before the row are loaded; the row's key is not, and ``rows`` is where to continue."""

    @pytest.mark.parametrize(
        ("bad", "words"),
        [
            (("ZADD", "open", "0x10", "m"), r'"0x10" is not a plain decimal number'),
            (("ZADD", "open", "nan", "m"), r'"nan" is not a plain decimal number'),
            (("ZADD", "open", 1), r'"ZADD" has 1 argument '),
            (("ZADD", "open", "NX", 1, "m"), "arguments after the key"),
            (("ZADD", "open", 1, object()), "object"),
            (("HSET", "open", "f", 1), "made by commands that can't be combined"),
            (("INCR", "open"), '"INCR" does not make'),
            (("SET", "open", 1), '"SET" does not make'),
            (("PEXPIRE", "open", -1), '"PEXPIRE" needs one plain number above 0'),
        ],
    )
    def test_in_the_middle_of_a_key(
        self, server: LocalServer, client: redis.Redis, bad: Command, words: str
    ) -> None:
        data = [*keys(4, 5), ("ZADD", "open", 1, "a"), ("ZADD", "open", 2, "b"), bad, *keys(9)]
        error = failure(server, data)
        assert words in str(error)
        assert (error.row, error.command) == (22, 22)
        assert "row 22" in str(error) or "command 22" in str(error)
        assert (error.report.rows, error.report.replies) == (20, 20)
        assert (client.dbsize(), client.exists("open")) == (4, 0)

    def test_key_again(self, server: LocalServer, client: redis.Redis) -> None:
        rows = [(1, "a"), (1, "b"), (2, "a"), (1, "c")]
        error = failure(server, rows, "RPUSH list:{0} {1}")
        assert 'row 0 and row 3 make the same key, "list:1"' in str(error)
        assert "sort the rows by key" in str(error)
        assert (error.row, error.report.rows, error.report.replies) == (3, 3, 3)
        assert client.lrange("list:1", 0, -1) == [b"a", b"b"]
        assert client.dbsize() == 2

    def test_columns(self, server: LocalServer, client: redis.Redis) -> None:
        pa = imported("pyarrow")
        table = pa.table({"key": [1, 1, 2, 2, 3], "score": ["1", "2", "3", "", "5"]})
        error = failure(server, table, "ZADD z:{key} {score} member")
        assert '"" is not a plain decimal number' in str(error)
        assert (error.row, error.report.rows) == (3, 2)
        assert client.keys() == [b"z:1"]

    def test_value_larger_than_the_server_accepts(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        """Each item is small enough, but the whole value is not, unless a limit splits it."""
        client.config_set("proto-max-bulk-len", 1 << 20)
        large = "x" * (600 << 10)
        try:
            error = failure(server, [*keys(3), ("SADD", "large", large + "a", large + "b")])
            assert (error.row, error.command, error.report.rows) == (3, 3, 3)
            assert "proto-max-bulk-len" in str(error)
            assert client.dbsize() == 3
            client.flushall()
            pushes = [("RPUSH", "large", large + str(number)) for number in range(5)]
            assert serialized(server, pushes).replies == 5
            assert [item[-1] - 48 for item in client.lrange("large", 0, -1)] == list(range(5))
            error = failure(server, [*keys(3), ("SADD", "larger", large + large)])
            assert "row 3" in str(error) or "command 3" in str(error)
        finally:
            client.config_set("proto-max-bulk-len", 512 << 20)


class TestInterruptions:
    @pytest.mark.few(1)
    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
    def test_source_raises(
        self, server: LocalServer, client: redis.Redis, error: type[BaseException]
    ) -> None:
        def broken() -> Iterator[Command]:
            yield from keys(5000, 7)
            yield "SADD", "open", 1
            raise error

        with pytest.raises(error) as caught:
            serialized(server, broken())
        report = report_of(caught)
        assert (report.rows, report.commands, report.replies) == (35_000,) * 3
        assert (client.dbsize(), client.exists("open")) == (5000, 0)

    @pytest.mark.slow
    @pytest.mark.parametrize("attempt", range(10))
    def test_ctrl_c(self, server: LocalServer, client: redis.Redis, attempt: int) -> None:
        child = running_load(server.url, "socket", 10_000 + 7919 * attempt, "serialize")
        os.killpg(child.pid, signal.SIGINT)
        acknowledged, doubt = interrupted(child)
        sizes = [client.llen(f"key:{number}") for number in range(client.dbsize())]
        assert set(sizes) == {5}
        assert (sum(sizes), doubt) == (acknowledged, 0)

    def test_rejects_are_interrupted(self, server: LocalServer, client: redis.Redis) -> None:
        """Each failed command is rejected once, even after a Ctrl-C."""
        client.set("key:0", "in the way")
        seen: list[int | None] = []

        def note(error: fastresp.CommandError) -> None:
            seen.append(error.index)
            if len(seen) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            serialized(server, keys(100, 30), rejects=note)
        report = report_of(caught)
        assert seen == list(range(30))
        assert report.errors_by_code == {"BUSYKEY": 30}

    def test_cancellation(self, server: LocalServer, client: redis.Redis) -> None:
        async def cancelled() -> fastresp.Report:
            load = fastresp.aio.mass_insert(
                keys(10**9, 7), server=server.url, mode="serialize",
                progress=lambda report: some.set() if report.replies else None,
            )  # fmt: skip
            some = asyncio.Event()
            task = asyncio.create_task(load)
            await some.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            return report_of(caught)

        report = asyncio.run(cancelled())
        only_we_are_connected(client)
        assert report.acknowledged % 7 == report.in_doubt % 7 == 0
        assert report.acknowledged <= 7 * client.dbsize() <= report.acknowledged + report.in_doubt


def test_any_number_is_a_limit(server: LocalServer, client: redis.Redis) -> None:
    report = serialized(server, keys(2, 5), max_payload_bytes=10**20)
    assert (report.replies, client.dbsize()) == (10, 2)


def test_asyncio(server: LocalServer, client: redis.Redis) -> None:
    async def rows() -> AsyncIterator[Command]:
        for number, row in enumerate(keys(500, 50)):
            yield row
            if number % 5003 == 5000:
                await asyncio.sleep(0.03)

    client.config_resetstat()
    report = insert_asyncio(rows(), server=server.url, mode="serialize")
    assert (report.rows, report.replies, report.failed) == (25_000, 25_000, 0)
    assert {client.scard(f"key:{number}") for number in range(500)} == {50}
    assert calls(client, "sadd") == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("rows", [1, 300])
def test_rate_limit(server: LocalServer, client: redis.Redis, rows: int) -> None:
    """A key may have more commands than the rate allows at once; later ones then wait."""
    started = time.monotonic()
    report = serialized(server, keys(1200 // rows, rows), rate_limit=3000, timeout=0.5)
    assert (report.replies, client.dbsize()) == (1200, 1200 // rows)
    assert 0.2 < time.monotonic() - started < 5
    assert report.seconds > (1200 - rows) / 3000 - 0.1


def test_progress(server: LocalServer) -> None:
    seen: list[tuple[int, int]] = []

    def note(report: fastresp.Report) -> None:
        seen.append((report.rows, report.replies))

    serialized(server, keys(20_000, 5), progress=note)
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert all(row % 5 == reply % 5 == 0 for row, reply in seen)
    assert seen[-1][0] <= 100_000


class TestNulls:
    def test_skipped(self, server: LocalServer, client: redis.Redis) -> None:
        rows = [(1, "a", "x"), (1, "b", None), (2, "a", None), (3, None, "x"), (4, "d", "y")]
        report = serialized(server, rows, "HSET h:{0} {1} {2}", nulls="skip")
        assert (report.rows, report.commands, report.skipped) == (5, 2, 3)
        assert sorted(client.keys()) == [b"h:1", b"h:4"]
        assert client.hgetall("h:1") == {b"a": b"x"}

    def test_only_the_time_to_live_remains(self, server: LocalServer, client: redis.Redis) -> None:
        """EXPIRE alone is sent unchanged; between the rows of a key, it applies to this key."""
        client.rpush("l:2", "there before")
        rows = [(1, "a", 100), (1, None, 9000), (2, None, 5000), (3, "b", None), (4, None, 100)]
        template = ["RPUSH l:{0} {1}", "EXPIRE l:{0} {2}"]
        report = fastresp.mass_insert(
            rows, template, server=server.url, mode="serialize", nulls="skip"
        )
        assert (report.rows, report.commands, report.replies, report.skipped) == (5, 6, 6, 4)
        assert sorted(client.keys()) == [b"l:1", b"l:2", b"l:3"]
        for key, least, most in (("l:1", 8900, 9000), ("l:2", 4900, 5000), ("l:3", -2, -1)):
            assert least < client.ttl(key) <= most


@pytest.mark.parametrize("template", [None, "HSET h:{0} {1} {2}"])
def test_nothing(server: LocalServer, client: redis.Redis, template: str | None) -> None:
    report = serialized(server, iter([]), *([template] if template else []))
    assert (report.rows, report.commands, report.replies, report.failed) == (0,) * 4
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("SET {0} {1}", "needs a template that begins with HSET"),
        ("DEL {0}", "needs a template that begins with HSET"),
        ("ZADD {0} NX {1} {2}", "can't use options of ZADD"),
        (["HSET {0} a {1}", "EXPIRE {1} 10"], "EXPIRE must have the key of HSET"),
        (["HSET {0} a {1}", "SADD {0} {1}"], "only EXPIRE or PEXPIRE of the same key may follow"),
    ],
)
def test_templates(server: LocalServer, client: redis.Redis, template: Any, words: str) -> None:
    """Templates that can't be serialised are refused before a row is read."""

    def rows() -> Iterator[Command]:
        raise AssertionError
        yield

    with pytest.raises(fastresp.TemplateError, match=words):
        fastresp.mass_insert(rows(), template, server=server.url, mode="serialize")


def test_redis_cli(server: LocalServer) -> None:
    with pytest.raises(ValueError, match="can't tell which key"):
        serialized(server, keys(1), transport="redis-cli")
    assert serialized(server, keys(1), transport="auto").transport == "socket"


class TestPermissions:
    """Users with fewer permissions."""

    @pytest.fixture
    def url(self, server: LocalServer, client: redis.Redis) -> Iterator[Callable[..., str]]:
        def url(*rules: str) -> str:
            client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", *rules)
            return f"{server.url}?username=limited&password=secret"

        yield url
        client.execute_command("ACL", "DELUSER", "limited")

    def test_without_restore(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        with pytest.raises(fastresp.TransportError, match=r"nothing was sent.* \+restore"):
            serialized(server, keys(3), at=url("+@all", "-restore"))
        assert client.dbsize() == 0

    @pytest.mark.parametrize("rules", [("+@all", "-config"), ("+restore", "+info", "+sadd")])
    def test_without_config(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis, rules: Any
    ) -> None:
        """The server's limits are unknown, but it can read any encoding."""
        names = ("set-max-intset-entries", "hash-max-listpack-entries")
        for name in names:
            client.config_set(name, 4)
        try:
            report = serialized(server, keys(3, 100), at=url(*rules))
            assert (report.replies, report.failed) == (300, 0)
            assert client.smembers("key:1") == {b"%d" % number for number in range(100)}
            client.sadd("key:1", 7, 1000)
            assert client.scard("key:1") == 101
        finally:
            for name in names:
                client.config_set(name, 512)

    def test_without_info(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        with pytest.raises(fastresp.TransportError, match="allow INFO, or") as caught:
            serialized(server, keys(3), at=url("+@all", "-info"))
        assert "commands" not in str(caught.value)
        assert client.dbsize() == 0


def test_database(server: LocalServer, client: redis.Redis) -> None:
    assert serialized(server, keys(3, 2), at=f"{server.url}?db=3").replies == 6
    assert client.info("keyspace")["db3"]["keys"] == 3
    assert client.dbsize() == 0


def test_resp_file(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    report = serialized(server, as_file(keys(1000, 50), tmp_path), connections=2)
    assert (report.rows, report.replies, report.failed) == (50_000, 50_000, 0)
    assert {client.scard(f"key:{number}") for number in range(1000)} == {50}


@pytest.mark.parametrize("after", ["null", "raise"])
def test_first_error_is_raised(server: LocalServer, after: str) -> None:
    """A row that can't be serialised comes before a later one that can't be encoded or read."""

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from (("a", 1), ("b", 1), ("c", "x"))
        if after == "raise":
            raise ArithmeticError
        yield ("d", None)

    with pytest.raises(fastresp.EncodeError, match=r"row 2 \(key 'c'\), command 2: .x. is not"):
        fastresp.mass_insert(rows(), "ZADD {0} {1} m", server=server.url, mode="serialize")
