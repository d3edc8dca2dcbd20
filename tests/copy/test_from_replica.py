"""copy(from_replica=True): a server's snapshot, received as a replica of it."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import redis
from command_line import invoke
from every_encoding import contents, differences, fill
from proxy import DOWN, Fault, Proxy
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

SERVERS = ["redis-6.2", "redis-server", "redis-8.2", "valkey-8.1", "valkey-9.1"]
# Send the snapshot from memory, or from a file.
DISKLESS = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
DISK = ["--repl-diskless-sync", "no"]
StartServer = Callable[..., LocalServer]


@contextmanager
def two_servers(of_source: str, of_target: str, *options: str) -> Iterator[list[redis.Redis]]:
    """Yield clients of a source with these options, and of an empty target."""
    with ExitStack() as stack:
        clients = []
        for name, more in ((of_source, options), (of_target, ())):
            program = located(name, WHEEL_SERVERS)
            server = stack.enter_context(LocalServer(*more, program=program))
            clients.append(stack.enter_context(redis.Redis.from_url(server.url)))
        yield clients


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [DISKLESS, DISK], ids=["diskless", "disk"])
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_type(of_source: str, options: list[str]) -> None:
    with two_servers(of_source, "valkey-9.1", *options) as (source, target):
        fill(source)
        expected = contents(source)
        report = fastresp.copy(source, target, from_replica=True)
        assert differences(expected, contents(target)) == []
        assert report.rows == report.replies == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("of_target", SERVERS)
@pytest.mark.parametrize("of_source", SERVERS)
def test_every_pair_of_servers(of_source: str, of_target: str) -> None:
    with two_servers(of_source, of_target) as (source, target):
        fill(source)
        source.delete("hash:expiring", "hash:expiring table")
        report = asyncio.run(fastresp.aio.copy(source, target, from_replica=True))
        assert differences(contents(source), contents(target)) == []
        assert report.failed == 0


@pytest.mark.parametrize("options", [DISKLESS, DISK], ids=["diskless", "disk"])
def test_the_copy_is_of_one_moment(start_server: StartServer, options: list[str]) -> None:
    """Each transaction sets all keys, so in a snapshot all keys are equal."""
    source, target = start_server(*options), start_server()
    names = [f"key:{number}" for number in range(2000)]
    ended = threading.Event()

    def write() -> None:
        with redis.Redis.from_url(source.url) as client:
            number = 0
            while not ended.is_set():
                client.mset(dict.fromkeys(names, number))
                number += 1

    with redis.Redis.from_url(source.url) as client, redis.Redis.from_url(target.url) as copied:
        client.mset(dict.fromkeys(names, "before"))
        writer = threading.Thread(target=write)
        writer.start()
        try:
            fastresp.copy(client, copied, from_replica=True)
        finally:
            ended.set()
            writer.join()
        assert len(set(copied.mget(names))) == 1
        assert copied.dbsize() == len(names)


def test_the_source_is_no_longer_replicated(start_server: StartServer) -> None:
    with redis.Redis.from_url(start_server(*DISKLESS).url) as client:
        client.set("a", 1)
        fastresp.copy(client, client, from_replica=True, rename="a* -> b*")
        end = time.monotonic() + 5
        while client.info("replication")["connected_slaves"]:
            assert time.monotonic() < end
        assert client.mget("a", "b") == [b"1", b"1"]


def test_only_matching_keys_of_the_database(start_server: StartServer) -> None:
    server, target = start_server(*DISKLESS), start_server()
    with redis.Redis.from_url(server.url) as first:
        first.set("user:0", 1)
    with redis.Redis.from_url(server.url + "?db=3") as third:
        third.mset({"user:1": 1, "user:2": 2, "other": 3})
        third.rpush("user:list", 1)
    options = ("--match", "user:*", "--type", "string", "--rename", "user:* -> u:*", "--json")
    done = invoke("copy", f"{server.url}?db=3", target.url, "--from-replica", *options)
    assert done.exit_code == Exit.OK, done.stderr
    with redis.Redis.from_url(target.url) as copied:
        assert sorted(copied.keys()) == [b"u:1", b"u:2"]


def test_tls_and_a_user_with_few_permissions(
    tls: Callable[..., str], tls_server: LocalServer, start_server: StartServer
) -> None:
    target = start_server()
    with redis.Redis.from_url(tls_server.url) as client:
        client.config_set("repl-diskless-sync", "no")
        client.mset({"a": 1, "b": 2})
        client.acl_setuser("copier", enabled=True, passwords=["+secret"], commands=["+ping"])
        url = tls().replace("://", "://copier:secret@")
        with pytest.raises(fastresp.SourceError, match=r"'replconf'.*\+psync.*leave out") as caught:
            fastresp.copy(url, target.url, from_replica=True)
        assert "secret" not in str(caught.value)
        client.execute_command("ACL", "SETUSER", "copier", "+psync", "+replconf")
        assert fastresp.copy(url, target.url, from_replica=True).rows == 2


def test_sources_that_refuse(start_server: StartServer, server: LocalServer) -> None:
    without = start_server("--rename-command", "PSYNC", "")
    replica = start_server("--replicaof", "127.0.0.1", "1")
    for url, reason in (
        (without.url, "it does not offer replication.*leave out from_replica to copy with SCAN"),
        (replica.url, "NOMASTERLINK.*copy from the primary"),
    ):
        with pytest.raises(fastresp.SourceError, match=reason):
            fastresp.copy(url, server.url, from_replica=True)
    done = invoke("copy", without.url, server.url, "--from-replica")
    assert done.exit_code == Exit.ERRORS
    assert "leave out --from-replica" in done.stderr


def test_a_lost_connection(start_server: StartServer, server: LocalServer) -> None:
    source = start_server(*DISKLESS)
    with redis.Redis.from_url(source.url) as client:
        client.mset({f"key:{number}": random.randbytes(1000) for number in range(3000)})
    fault = Fault("cut", DOWN, at=1_000_000)
    with Proxy(str(source.socket), fault) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        with pytest.raises(fastresp.SourceError, match=r"closed the connection .after .* snapshot"):
            fastresp.copy(url, server.url, from_replica=True)
        # The fault happens once.
        report = fastresp.copy(url, server.url, from_replica=True, exists="replace")
    assert report.rows == 3000


@pytest.mark.slow
def test_a_source_that_begins_late(start_server: StartServer, server: LocalServer) -> None:
    """While the source delays its snapshot, it sends empty lines, which restart the timeout."""
    source = start_server("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "3")
    with redis.Redis.from_url(source.url) as client:
        client.set("a", 1)
    assert fastresp.copy(source.url, server.url, from_replica=True, timeout=1.5).rows == 1


def test_unknown_types(server: LocalServer) -> None:
    with pytest.raises(
        ValueError, match=r"type must be one of .* with from_replica=True, not .MBbloom--."
    ):
        fastresp.copy(server.url, server.url, from_replica=True, type="MBbloom--")


# The limit on file sizes is per process, so this runs in a separate process.
LIMITED = """
import resource, sys
import fastresp
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
try:
    fastresp.copy(*sys.argv[1:], from_replica=True)
except fastresp.SourceError as error:
    print(error)
"""


def test_full_temporary_folder(start_server: StartServer) -> None:
    source, target = start_server(*DISKLESS), start_server()
    with redis.Redis.from_url(source.url) as client:
        client.mset({f"key:{number}": os.urandom(1000) for number in range(1000)})
    arguments = [sys.executable, "-B", "-c", LIMITED, source.url, target.url]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert "File too large; set TMPDIR to a folder with room for a snapshot" in done.stdout
