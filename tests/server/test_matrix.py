"""Load and read back with every server and every redis-cli in a wheel or on the PATH."""

from __future__ import annotations

import platform
import subprocess
import sysconfig
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import redis
from other_servers import OTHER_SERVERS
from server_programs import WHEEL_CLIS, WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer

# docs/make_compatibility.py reads these properties from pytest's report.
Record = Callable[[str, object], None]


PACKAGES = ("click", "duckdb", "hiredis", "pyarrow", "redis", "rich")


@pytest.fixture(autouse=True, scope="module")
def this_machine(record_testsuite_property: Record) -> None:
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    record_testsuite_property("python", platform.python_version() + free_threaded)
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    libc = ", musl" if "musl" in sysconfig.get_config_var("SOABI") else ""
    record_testsuite_property("system", f"{system}{libc}, {platform.machine()}")
    found = [package for package in PACKAGES if find_spec(package)]
    versions = ", ".join(f"{package} {version(package)}" for package in found)
    record_testsuite_property("packages", versions)


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


@pytest.mark.parametrize("name", OTHER_SERVERS)
def test_server_of_other_origin(name: str, record_property: Record) -> None:
    """Rows, merged and serialised, into servers that share no code with Redis."""
    rows = [{"id": i, "name": f"vàlue {i}\r\n", "score": i / 8} for i in range(2_000)]
    fields = ["name", "score"]
    expected = [{"name": row["name"], "score": str(row["score"])} for row in rows]
    with OTHER_SERVERS[name]() as server:
        options = {"server": server.url, "on_error": "collect"}
        for mode in ("commands", "serialize"):
            template = f"HSET {mode}:{{id}} {{**-id}}"
            report = fastresp.mass_insert(rows, template, mode=mode, **options)
            assert (report.commands, report.replies, report.failed) == (2_000, 2_000, 0)
            keys = [f"{mode}:{row['id']}" for row in rows]
            assert list(fastresp.fetch_hashes(keys, fields, server=server.url)) == expected
            assert fastresp.verify(rows, template, server=server.url).same
        report = fastresp.mass_insert(rows, "RPUSH list {id}", mode="merge", **options)
        assert (report.commands, report.failed) == (2_000, 0)
        items = fastresp.execute("LRANGE", "list", 0, -1, server=server.url)
        assert items == [str(row["id"]).encode() for row in rows]
        client = redis.Redis.from_url(server.url)
        assert client.info("commandstats")["cmdstat_rpush"]["calls"] < 2_000
        report = fastresp.mass_insert([("GET",), ("SET", "list", 1), ("INCR", "list")], **options)
        assert [(error.index, error.code) for error in report.errors] == [(0, "ERR")]
        record_property("server", server.version())
        record_property("transport", "socket")
