"""Each type of value, on each server, which checks every RESTORE payload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from twice import SERVERS, calls, debugged, outcome

from fastresp.server.local_server import LocalServer
from fastresp.server.options import Serialize

TEXT = ["", "a", "12", "-7", "4096", "1" * 30, "x" * 64, "x" * 65, "x" * 9000, "é", "-0", "01"]
SCORES = [0, -1, 2.5, 1e-7, 0.1 + 0.2, 1e22, -(2.0**40), "+inf", "-inf", "0.10"]
WIDE_SCORES = [
    1e100, -1e100, 1e-100, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-180, 9.9e307, 1e308,
    1.7976931348623157e308, "123456.75e300", "0.000005e-318", "1.7976931348623157000e+308",
]  # fmt: skip
# Commands that create one key each, small and large.
KEYS: dict[str, list[tuple[Any, ...]]] = {
    "hash": [("HSET", "small", text, number) for number, text in enumerate(TEXT[:8])],
    "large hash": [("HMSET", "large", f"f{number}", "v" * number) for number in range(600)],
    "hash with fields twice": [("HSET", "twice", number % 5, number) for number in range(20)],
    "list": [("RPUSH", "list", *TEXT), ("RPUSH", "list", *reversed(TEXT))],
    "list from its head": [("LPUSH", "head", number, "x" * 300) for number in range(200)],
    "set of integers": [("SADD", "integers", 1 << number, -number) for number in range(60)],
    "set": [("SADD", "set", text, text) for text in TEXT[:8]],
    "large set": [("SADD", "members", f"member {number}") for number in range(400)],
    "sorted set": [("ZADD", "zset", s, f"m{n}") for n, s in enumerate(SCORES)],
    "sorted set of wide scores": [("ZADD", "wide", s, f"m{n}") for n, s in enumerate(WIDE_SCORES)],
    "large sorted set": [("ZADD", "board", n / 7, f"m{n % 300}") for n in range(400)],
    "time to live": [("SADD", "timed", "a"), ("EXPIRE", "timed", 9990)],
    "time to live in ms": [("RPUSH", "ms", "a"), ("PEXPIRE", "ms", 9_990_000)],
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with debugged(request.param, "--sanitize-dump-payload", "yes") as server:
        yield server


@pytest.mark.few(3)
@pytest.mark.parametrize("most", [None, 500])
def test_each_type(
    server: LocalServer, most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same data as with commands, even if commands continue large keys."""
    commands = [command for key in KEYS.values() for command in key]
    path = tmp_path / "rejects"
    single = outcome(server, lambda client: None, commands, None, path)
    with redis.Redis.from_url(server.url) as client:
        client.config_resetstat()
        if most is not None:
            monkeypatch.setattr("fastresp.sources.source.CHUNK_BYTES", 200)
        found = outcome(
            server, lambda client: None, commands, None, path,
            mode=Serialize(max_bytes=most),
        )  # fmt: skip
        assert found == single
        assert found.report["commands"] == found.report["replies"] == len(commands)
        assert calls(client, "restore") == len(KEYS)
        assert client.info("stats")["dump_payload_sanitizations"] > 0
        assert (calls(client, "rpush") > 0) == (most is not None)


@pytest.mark.slow
def test_values_can_be_changed_and_saved(server: LocalServer, tmp_path: Path) -> None:
    """The server accepts later changes, and saves the values."""
    with redis.Redis.from_url(server.url) as client:
        for name, commands in KEYS.items():
            outcome(server, lambda client: None, commands, None, tmp_path / "rejects",
                    mode="serialize")  # fmt: skip
            key = commands[0][1]
            before = client.execute_command("DEBUG DIGEST-VALUE", key)
            verb, _, *words = next(
                each for each in commands if each[0] not in ("EXPIRE", "PEXPIRE")
            )
            client.execute_command(verb, key, *(["1"] if verb == "ZADD" else words[:1]), "new")
            assert client.execute_command("DEBUG DIGEST-VALUE", key) != before, name
            assert client.save()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("setting", "commands", "encodings"),
    [
        ("hash-max-{}-entries", [("HSET", "k", n, n) for n in range(4)], ("{}", "hashtable")),
        ("zset-max-{}-entries", [("ZADD", "k", n, n) for n in range(4)], ("{}", "skiplist")),
        ("set-max-intset-entries", [("SADD", "k", n) for n in range(4)], ("intset", "")),
    ],
)
def test_encoding(
    server: LocalServer, setting: str, commands: list[tuple[Any, ...]], encodings: tuple[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Values have the encoding that the server's settings select."""
    with redis.Redis.from_url(server.url) as client:
        old = client.info("server")["redis_version"].startswith("6.")
        setting = setting.format("ziplist" if old else "listpack")
        before = client.config_get(setting)[setting]
        compact, large = (name.format("ziplist" if old else "listpack") for name in encodings)
        for most, wanted in ((4, compact), (3, large)):
            client.config_set(setting, most)
            try:
                outcome(server, lambda client: None, commands, None, tmp_path / "rejects",
                        mode="serialize")  # fmt: skip
                found = client.object("ENCODING", "k").decode()
                client.flushall()
                for command in commands:
                    client.execute_command(*command)
                assert found == client.object("ENCODING", "k").decode()
                assert found == wanted or not wanted
            finally:
                client.config_set(setting, before)
