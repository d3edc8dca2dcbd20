"""Every server and every command line client that a wheel or PATH has: the same load, read back."""

from __future__ import annotations

import pytest
import redis
from server_programs import WHEEL_CLIS, WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer


@pytest.mark.parametrize("cli_name", ["redis-cli", *WHEEL_CLIS])
@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_load(server_name: str, cli_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTRESP_CLI", located(cli_name, WHEEL_CLIS))
    values = {f"kéy:{i}": f"vàlue {i}\r\n" * (i % 5) for i in range(20_000)}
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        report = fastresp.mass_insert(values.items(), "SET {0} {1}", server=server.url)
        assert (report.commands, report.replies, report.failed) == (20_000, 20_000, 0)
        client = redis.Redis.from_url(server.url)
        assert client.mget(list(values)) == [value.encode() for value in values.values()]
        client.execute_command("ACL", "SETUSER", "loader", "on", ">p:ss", "~*", "+@all", "-ping")
        report = fastresp.mass_insert(
            [("LPUSH", "kéy:1", 1), ("SET", "x", 1)],
            server=f"{server.url}?username=loader&password=p%3Ass&db=3",
            on_error="collect",
        )
        assert (report.replies, report.failed) == (2, 0)
        with pytest.raises(fastresp.TransportError, match="invalid username-password"):
            fastresp.mass_insert([], server=f"{server.url}?username=loader&password=no")
        report = fastresp.mass_insert([("GET",)] * 3, server=server.url, on_error="collect")
        assert [error.code for error in report.errors] == ["ERR"] * 3


@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_socket(server_name: str) -> None:
    values = {f"kéy:{i}": f"vàlue {i}\r\n" * (i % 5) for i in range(20_000)}
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        options = {"server": server.url, "transport": "socket", "on_error": "collect"}
        report = fastresp.mass_insert(values.items(), "SET {0} {1}", **options)
        assert (report.commands, report.replies, report.failed) == (20_000, 20_000, 0)
        expected = [value.encode() for value in values.values()]
        assert list(fastresp.iter_replies(list(values), "GET {0}", server=server.url)) == expected
        report = fastresp.mass_insert([("GET",), ("LPUSH", "kéy:1", 1)], **options)
        assert [(e.index, e.code) for e in report.errors] == [(0, "ERR"), (1, "WRONGTYPE")]
        client = redis.Redis.from_url(server.url)
        client.config_set("proto-max-bulk-len", 1 << 20)
        with pytest.raises(fastresp.EncodeError, match="proto-max-bulk-len"):
            fastresp.mass_insert([("SET", "a", "x" * (2 << 20))], **options)
