"""mass_insert end to end: redis-py reads back what was loaded."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import preloaded
import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer


def test_rows_with_several_commands(server: LocalServer, client: redis.Redis) -> None:
    rows = [{"id": i, "name": f"näme {i}\r\n", "tags": ["a", "b"]} for i in range(1000)]
    report = fastresp.mass_insert(
        rows,
        ["HSET user:{id} name {name}", "SADD tags:{id} {*tags}; EXPIRE user:{id} 1000"],
        server=client,
    )
    assert (report.rows, report.commands) == (1000, 3000)
    assert client.hget("user:7", "name") == "näme 7\r\n".encode()
    assert client.smembers("tags:999") == {b"a", b"b"}
    assert 990 < client.ttl("user:0") <= 1000


@dataclasses.dataclass
class User:
    id: int
    name: str | None


@pytest.mark.parametrize(
    ("nulls", "stored"), [("skip", None), ("empty", b"")], ids=["skip", "empty"]
)
def test_nulls(server: LocalServer, client: redis.Redis, nulls: str, stored: bytes | None) -> None:
    fastresp.mass_insert([User(1, None)], "SET {id} {name}", server=server.url, nulls=nulls)
    assert client.get("1") == stored


def test_default_turns_objects_into_values(server: LocalServer, client: redis.Redis) -> None:
    fastresp.mass_insert([("SET", "path", Path("/a b"))], server=server.url, default=str)
    assert client.get("path") == b"/a b"


def test_large_values_between_small_ones(server: LocalServer, client: redis.Redis) -> None:
    values = ["small", "x" * 3_000_000, b"\r\n" * 700_000, "", "y" * 600_000]
    report = fastresp.mass_insert(enumerate(values), "SET {0} {1}", server=server.url)
    assert report.commands == len(values)
    for i, value in enumerate(values):
        assert client.get(str(i)) == (value if isinstance(value, bytes) else value.encode())


def test_values_that_look_like_protocol(server: LocalServer, client: redis.Redis) -> None:
    odd = ["*3\r\n$3\r\nSET\r\n", "$5\r\nhello\r\n", "\0\r\n'\"{}", "\r\n", "*", "-ERR no\r\n"]
    fastresp.mass_insert(enumerate(odd), "SET {0} {1}", server=server.url)
    assert client.mget(range(len(odd))) == [value.encode() for value in odd]


def test_database_of_the_url(server: LocalServer) -> None:
    fastresp.mass_insert([("SET", "a", 1)], server=f"{server.url}?db=5")
    with redis.Redis.from_url(server.url, db=5) as five:
        assert five.get("a") == b"1"
    fastresp.mass_insert(
        [("SET", "a", 2)], server=redis.Redis(unix_socket_path=str(server.socket), db=6)
    )
    with redis.Redis.from_url(server.url, db=6) as six:
        assert six.get("a") == b"2"


def test_server_from_the_environment(
    server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    fastresp.mass_insert([("SET", "from", "environment")])
    assert client.get("from") == b"environment"


@pytest.mark.parametrize("option", [{"on_error": "stop"}, {"max_errors": 5}, {"rejects": print}])
def test_options_that_redis_cli_does_not_support(server: LocalServer, option: dict) -> None:
    with pytest.raises(ValueError, match="use transport='socket'"):
        fastresp.mass_insert([("PING",)], server=server.url, transport="redis-cli", **option)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"data": b"SET a 1"}, TypeError, "not one bytes"),
        ({"data": {"a": 1}}, TypeError, "put it in a list"),
        ({"data": 5}, TypeError, "must be an iterable of rows"),
        ({"data": [], "transport": "pigeon"}, ValueError, "'auto', 'redis-cli' or 'socket'"),
        ({"data": [], "on_error": "ignore"}, ValueError, "'raise', 'collect' or 'stop'"),
        ({"data": [], "nulls": "drop"}, ValueError, "'auto', 'skip', 'empty', 'error' or 'delete'"),
        ({"data": [], "timeout": 0}, ValueError, "above 0"),
        ({"data": [], "template": 5}, TypeError, "template"),
        ({"data": [], "template": ["GET a", 5]}, TypeError, "list of str"),
        ({"data": [], "template": ""}, fastresp.TemplateError, "empty"),
        ({"data": [], "server": 6379}, TypeError, "a URL or a client of redis-py"),
        ({"data": [], "server": "localhost:6379"}, ValueError, "redis://"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_arguments(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fastresp.mass_insert(**arguments)


def test_columns_need_a_template(server: LocalServer) -> None:
    class Table:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise AssertionError("not asked for")

    with pytest.raises(TypeError, match="needs a template"):
        fastresp.mass_insert(Table(), server=server.url)


def test_progress_callable_sees_the_load_advance(server: LocalServer) -> None:
    seen: list[int] = []
    fastresp.mass_insert(
        (("SET", f"k{i}", "x" * 100) for i in range(60_000)),
        server=server.url,
        progress=lambda report: seen.append(report.commands),
    )
    assert seen == sorted(seen)
    assert len(seen) > 5
    assert seen[-1] == 60_000


def test_progress_bar_goes_to_stderr(server: LocalServer) -> None:
    code = (
        "import fastresp, sys\n"
        f"r = fastresp.mass_insert([('PING',)] * 1000, server={server.url!r}, progress=True)\n"
        "print(r.commands)"
    )
    done = preloaded.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1000\n"
    assert "1,000 rows" in done.stderr
    assert "MB/s" in done.stderr
