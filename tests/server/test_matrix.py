"""Load and read back with every server and every redis-cli in a wheel or on the PATH."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable

import pytest
import redis
from server_programs import WHEEL_CLIS, WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer

# docs/make_compatibility.py reads these properties from pytest's report.
Record = Callable[[str, object], None]


@pytest.fixture(autouse=True, scope="module")
def this_machine(record_testsuite_property: Record) -> None:
    record_testsuite_property("python", platform.python_version())
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    record_testsuite_property("system", f"{system}, {platform.machine()}")


def server_version(client: redis.Redis) -> str:
    info = client.info("server")
    if info.get("server_name") == "valkey":
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def client_version(program: str) -> str:
    """Return the first two words of ``--version``, such as ``redis-cli 7.0.15``."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return " ".join(done.stdout.split()[:2])


@pytest.mark.few(14)
@pytest.mark.parametrize("cli_name", ["redis-cli", *WHEEL_CLIS])
@pytest.mark.parametrize("server_name", ["redis-server", *WHEEL_SERVERS])
def test_load(
    server_name: str, cli_name: str, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    cli = located(cli_name, WHEEL_CLIS)
    monkeypatch.setenv("FASTRESP_CLI", cli)
    values = {f"kéy:{i}": f"vàlue {i}\r\n" * (i % 5) for i in range(20_000)}
    with LocalServer(program=located(server_name, WHEEL_SERVERS)) as server:
        report = fastresp.mass_insert(values.items(), "SET {0} {1}", server=server.url)
        assert (report.commands, report.replies, report.failed) == (20_000, 20_000, 0)
        client = redis.Redis.from_url(server.url)
        record_property("server", server_version(client))
        record_property("transport", client_version(cli))
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
def test_socket(server_name: str, record_property: Record) -> None:
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
        record_property("server", server_version(client))
        record_property("transport", "socket")
        client.config_set("proto-max-bulk-len", 1 << 20)
        with pytest.raises(fastresp.EncodeError, match="proto-max-bulk-len"):
            fastresp.mass_insert([("SET", "a", "x" * (2 << 20))], **options)
