"""Checks before a load: faults that redis-cli reports badly, or hangs on, are immediate errors."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from certificates import tls_settings, write_certificates
from redis.driver_info import DriverInfo

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer, find_program
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

PASSWORD = "se/cr€t#@:%"
COMMANDS = [("SET", "a", 1)]


def refused(server: object, **options: object) -> fastresp.TransportError:
    """Return the error for an unusable server, which must be raised well before any deadline."""
    started = time.monotonic()
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.mass_insert(COMMANDS, server=server, **options)
    assert time.monotonic() - started < 10
    assert caught.value.report is None
    shown = "".join(map(str, (caught.value, repr(caught.value), caught.value.__cause__)))
    assert PASSWORD not in shown
    assert quote(PASSWORD, safe="") not in shown
    return caught.value


@pytest.fixture
def locked(start_server: Callable[..., LocalServer], port: int) -> str:
    """The address of a server with a password."""
    start_server("--requirepass", PASSWORD, "--port", str(port))
    return f"127.0.0.1:{port}"


def test_no_password(locked: str) -> None:
    assert "Authentication required" in str(refused(f"redis://{locked}"))


def test_wrong_password(locked: str) -> None:
    error = refused(f"redis://:wr0ng@{locked}")
    assert "invalid username-password pair" in str(error)
    assert "wr0ng" not in str(error)


def test_correct_password(locked: str) -> None:
    host, port = locked.split(":")
    url = f"redis://:{quote(PASSWORD, safe='')}@{locked}"
    assert fastresp.mass_insert(COMMANDS, server=url).replies == 1
    client = redis.Redis(host, int(port), password=PASSWORD)
    assert fastresp.mass_insert(COMMANDS, server=client).replies == 1
    provider = redis.UsernamePasswordCredentialProvider(password=PASSWORD)
    client = redis.Redis(host, int(port), credential_provider=provider)
    assert fastresp.mass_insert(COMMANDS, server=client).replies == 1


def test_password_is_not_in_a_command_line(locked: str) -> None:
    url = f"redis://:{quote(PASSWORD, safe='')}@{locked}"
    with fastresp.RedisCli(url) as cli:
        assert cli._process is not None
        arguments = ""
        while not arguments:  # a new process has no arguments yet
            arguments = Path(f"/proc/{cli._process.pid}/cmdline").read_bytes().decode()
        assert "--pipe" in arguments
        assert "redis://" not in arguments
        assert PASSWORD not in arguments
        assert PASSWORD not in repr(cli) + str(cli.server) + repr(cli.server) + str(cli.report)
        cli.write(fastresp.pack("SET", "a", 1))


def test_password_for_a_server_without_one(server: LocalServer) -> None:
    assert "without any password" in str(refused(f"{server.url}?password={quote(PASSWORD)}"))


def test_password_in_the_environment_is_not_used(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISCLI_AUTH", PASSWORD)
    assert fastresp.mass_insert(COMMANDS, server=server.url).replies == 1


@pytest.mark.parametrize(
    "url",
    [
        "redis://:se/cret@localhost:6379",
        "redis://:se#cret@localhost",
        "redis://:secret@[::1",
        "rediss://secret",
        "secret",
        "http://:secret@localhost",
    ],
)
def test_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    if url == "rediss://secret":
        assert str(Server(url)) == "secret:6379"
        return
    with pytest.raises(ValueError, match="percent-encode special characters") as caught:
        Server(url)
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.fixture
def acl(server: LocalServer, client: redis.Redis) -> Iterator[Callable[..., str]]:
    """A function that creates an ACL user and returns its URL."""

    def make(*rules: str) -> str:
        client.execute_command("ACL", "SETUSER", "loader", "reset", "on", ">p", "~*", *rules)
        return f"{server.url}?username=loader&password=p"

    yield make
    client.execute_command("ACL", "DELUSER", "loader")


def test_acl_user(acl: Callable[..., str], client: redis.Redis) -> None:
    fastresp.mass_insert([("SET", "a", "acl")], server=acl("-@all", "+set", "+echo"))
    assert client.get("a") == b"acl"


def test_acl_user_without_password(server: LocalServer, client: redis.Redis) -> None:
    """The load must not silently run as the default user."""
    client.execute_command("ACL", "SETUSER", "open", "reset", "on", "nopass", "~only:*", "+@all")
    try:
        report = fastresp.mass_insert(
            [("SET", "only:1", 1), ("SET", "other", 1)],
            server=f"{server.url}?username=open",
            on_error="collect",
        )
    finally:
        client.execute_command("ACL", "DELUSER", "open")
    assert [error.code for error in report.errors] == ["NOPERM"]


def test_client_name(server: LocalServer) -> None:
    """A connection has redis-py's own name and version, or what the client names."""
    names = []
    with redis.Redis.from_url(server.url, driver_info=DriverInfo("mine", "3")) as client:
        for each in (server.url, client):
            connection = Server(each).connect(5.0)
            connection.disconnect()
            info = connection.driver_info
            names.append((info.formatted_name, info.lib_version))
    assert names == [("redis-py", redis.__version__), ("mine", "3")]


def test_password_in_bytes(locked: str) -> None:
    host, port = locked.split(":")
    client = redis.Redis(host, int(port), password=PASSWORD.encode())
    assert fastresp.mass_insert(COMMANDS, server=client).replies == 1


def test_acl_without_echo(acl: Callable[..., str]) -> None:
    url = acl("+@all", "-echo")
    assert fastresp.mass_insert(COMMANDS, server=url).transport == "socket"
    error = refused(url, transport="redis-cli")
    assert "no permissions to run the 'echo'" in str(error)
    assert "+echo" in str(error)


def test_acl_without_the_command(acl: Callable[..., str]) -> None:
    report = fastresp.mass_insert(
        COMMANDS, server=acl("-@all", "+get", "+echo"), on_error="collect"
    )
    assert report.failed == 1
    assert report.errors[0].code == "NOPERM"


def test_database_that_does_not_exist(server: LocalServer) -> None:
    assert "DB index is out of range" in str(refused(f"{server.url}?db=99"))


def test_max_clients(server: LocalServer, client: redis.Redis) -> None:
    client.config_set("maxclients", 1)
    try:
        assert "max number of clients reached" in str(refused(server.url))
    finally:
        client.config_set("maxclients", 1000)


def test_no_server(port: int, tmp_path: Path) -> None:
    assert "refused" in str(refused(f"redis://127.0.0.1:{port}"))
    assert "No such file" in str(refused(f"unix://{tmp_path}/nothing"))
    assert "nowhere.invalid:6379" in str(refused("redis://nowhere.invalid"))


def test_frozen_server(start_server: Callable[..., LocalServer]) -> None:
    server = start_server()
    os.kill(server.process.pid, signal.SIGSTOP)
    error = refused(server.url, timeout=0.5)
    assert isinstance(error, fastresp.TransportTimeout)
    assert isinstance(error, TimeoutError)


@pytest.mark.slow
def test_loading_server(start_server: Callable[..., LocalServer], port: int) -> None:
    server = start_server()
    fastresp.mass_insert(((i, i) for i in range(5000)), "SET {0} {1}", server=server.url)
    redis.Redis.from_url(server.url).save()
    server.stop()
    # 5,000 keys at 10 ms each: loading them takes longer than the test.
    server.options = (
        "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024",
    )  # fmt: skip
    server.start()
    assert "loading" in str(refused(server.url)).lower()


def test_replica(start_server: Callable[..., LocalServer], port: int) -> None:
    start_server("--port", str(port))
    replica = start_server("--replicaof", "127.0.0.1", str(port))
    assert f"load into its primary 127.0.0.1:{port}" in str(refused(replica.url))
    redis.Redis.from_url(replica.url).config_set("replica-read-only", "no")
    assert fastresp.mass_insert(COMMANDS, server=replica.url).failed == 0


def test_tls(tls: Callable[..., str]) -> None:
    data = [("SET", f"k{i}", "x" * 100) for i in range(30_000)]
    assert fastresp.mass_insert(data, server=tls()).replies == 30_000
    with redis.Redis.from_url(tls()) as client:
        assert client.dbsize() == 30_000
        assert fastresp.mass_insert(data, server=client).replies == 30_000
    insecure = tls("ssl_ca_certs", ssl_cert_reqs="none", ssl_check_hostname="False")
    assert fastresp.mass_insert(data, server=insecure).replies == 30_000


def test_tls_file_that_cannot_be_used(tls: Callable[..., str]) -> None:
    for option, path, words in (
        ("ssl_ca_certs", "/no/ca.pem", "can't be read: No such file"),
        ("ssl_ca_certs", "/", "can't be read: Is a directory"),
        ("ssl_ca_certs", __file__, "has no certificate"),
        ("ssl_ca_path", "/no", "can't be read: No such file"),
        ("ssl_certfile", "/no/c.pem", "can't be read: No such file"),
        ("ssl_certfile", __file__, "has no certificate"),
        ("ssl_keyfile", "/no/c.key", "can't be read: No such file"),
        ("ssl_keyfile", __file__, "has no private key"),
    ):
        without = ["ssl_ca_certs"] if option == "ssl_ca_path" else []
        error = str(execute_refused(tls(*without, **{option: path})))
        assert f"{option}={path} {words}" in error
        assert "address is right" not in error


def execute_refused(url: str) -> fastresp.TransportError:
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.execute("PING", server=url)
    return caught.value


def test_tls_certificates_that_do_not_fit(tls: Callable[..., str], tmp_path: Path) -> None:
    of_server = f"{tmp_path}/127.0.0.1.key"
    error = execute_refused(tls(ssl_keyfile=of_server))
    assert f"the key in {of_server} does not match the certificate in" in str(error)
    assert "ssl_keyfile=" in str(execute_refused(tls("ssl_certfile")))
    other = tmp_path / "other"
    other.mkdir()
    write_certificates(other)
    error = execute_refused(tls(ssl_ca_certs=f"{other}/ca.pem"))
    assert "other/ca.pem does not contain the authority" in str(error)
    expired = f"{tmp_path}/expired"
    error = execute_refused(tls(ssl_certfile=f"{expired}.pem", ssl_keyfile=f"{expired}.key"))
    assert f"does not accept ssl_certfile={expired}.pem: certificate expired" in str(error)


def test_tls_certificate_of_the_server_that_expired(
    start_server: Callable[..., LocalServer], port: int, tmp_path: Path
) -> None:
    options = write_certificates(tmp_path)
    for at, option in enumerate(options):
        options[at] = option.replace("127.0.0.1", "expired")
    start_server("--tls-port", str(port), *options)
    settings = "&".join(f"{name}={value}" for name, value in tls_settings(tmp_path).items())
    error = execute_refused(f"rediss://127.0.0.1:{port}?{settings}")
    assert "certificate has expired" in str(error)
    assert "renew the server's certificate" in str(error)


def test_tls_unknown_authority(tls: Callable[..., str]) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in str(refused(tls("ssl_ca_certs")))


def test_tls_without_client_certificate(tls: Callable[..., str]) -> None:
    refused(tls("ssl_certfile", "ssl_keyfile"))


def test_plain_url_of_a_tls_port(tls: Callable[..., str]) -> None:
    assert "use rediss://" in str(refused(tls(scheme="redis")))


def test_tls_url_of_a_plain_port(start_server: Callable[..., LocalServer], port: int) -> None:
    start_server("--port", str(port))
    assert "use redis://" in str(refused(f"rediss://127.0.0.1:{port}"))


def test_tls_settings_beyond_redis_cli(tls: Callable[..., str]) -> None:
    url = tls(ssl_min_version="771")
    assert "ssl_min_version" in str(refused(url, transport="redis-cli"))
    assert fastresp.mass_insert(COMMANDS, server=url).replies == 1


def test_cli_built_without_tls(
    tls: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain-cli"
    plain.write_text("#!/bin/sh\necho 'Usage: redis-cli [OPTIONS]'\n")
    plain.chmod(0o755)
    monkeypatch.setenv("FASTRESP_CLI", str(plain))
    assert "built without TLS" in str(refused(tls(), transport="redis-cli"))


def test_cluster_client_is_refused() -> None:
    client = object.__new__(redis.RedisCluster)
    client.__dict__["nodes_manager"] = None
    with pytest.raises(fastresp.TransportError, match="can't use a whole cluster"):
        Server(client)


def test_valkey(locked: str) -> None:
    """URLs and clients of valkey-py, and asyncio clients, are accepted as servers."""
    host, port = locked.split(":")
    quoted = quote(PASSWORD, safe="")
    settings: dict[str, Any] = {"host": host, "port": int(port), "password": PASSWORD, "db": 3}
    clients = [
        f"valkey://:{quoted}@{locked}/3",
        f"VALKEY://:{quoted}@{locked}/3",
        valkey.Valkey(**settings),
        valkey.asyncio.Valkey(**settings, client_name="me"),
        redis.asyncio.Redis(**settings),
    ]
    for number, client in enumerate(clients, 1):
        for transport in ("redis-cli", "socket"):
            commands = [("INCR", "n"), ("CLIENT", "GETNAME")]
            assert fastresp.mass_insert(commands, server=client, transport=transport).failed == 0
        assert fastresp.execute("GET", "n", server=client) == b"%d" % (2 * number)
        assert asyncio.run(fastresp.aio.execute("DBSIZE", server=client)) == 1
    assert "invalid username" in str(refused(f"valkey://:wr0ng@{locked}"))
    sentinel = valkey.Sentinel([(host, int(port))]).master_for("mymaster")
    with pytest.raises(fastresp.TransportError, match="not of redis"):
        Server(sentinel)
    cluster = object.__new__(valkey.ValkeyCluster)
    cluster.__dict__["nodes_manager"] = None
    with pytest.raises(fastresp.TransportError, match="can't use a whole cluster"):
        Server(cluster)


def test_valkey_paths(server: LocalServer) -> None:
    path = str(server.socket)
    for client in (valkey.Valkey(unix_socket_path=path), valkey.from_url(f"unix://{path}?db=1")):
        assert fastresp.mass_insert(COMMANDS, server=client).replies == 1


def test_cli_is_found(monkeypatch: pytest.MonkeyPatch, server: LocalServer, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTRESP_CLI", str(tmp_path / "no-such-program"))
    with pytest.raises(fastresp.TransportError, match=r"FASTRESP_CLI is .*set it to"):
        fastresp.mass_insert(COMMANDS, server=server.url, transport="redis-cli")
    report = fastresp.mass_insert(COMMANDS, server=server.url)
    assert (report.transport, report.program) == ("socket", "")
    monkeypatch.delenv("FASTRESP_CLI")
    monkeypatch.setenv("PATH", str(tmp_path))
    in_wheel = find_program("cli")
    if in_wheel is not None:
        assert Path(in_wheel).name == "valkey-cli"
        by_name = fastresp.mass_insert(COMMANDS, server=server.url, transport="redis-cli")
        assert by_name.program == in_wheel
    monkeypatch.setattr("fastresp.server.local_server.WHEELS", ())
    with pytest.raises(fastresp.TransportError, match="apt install redis-tools"):
        fastresp.mass_insert(COMMANDS, server=server.url, transport="redis-cli")


def test_a_server_and_its_requirements_are_frozen() -> None:
    """Copies with other requirements share what was learned about a proxy."""
    server = Server("redis://localhost", Requirements(nodes=True))
    with pytest.raises(FrozenInstanceError):
        server.announced = True  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        server.requirements.nodes = False  # type: ignore[misc]
    other = server.requiring(nodes=False, echo=True)
    assert server.requirements == Requirements(nodes=True)
    assert other.requirements == Requirements(echo=True)
    assert other.settings == server.settings
    assert other._unanswered is server._unanswered
