"""Clusters behind TLS: own ports, client certificates, and untrusted certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from certificates import tls_settings, write_certificates
from cluster_calls import (
    Reached,
    check_calls,
    check_command_line,
    check_failover,
    check_load,
    check_replies,
)
from loads import Insert, insert_asyncio, insert_sync
from local_cluster import LocalCluster, free_port
from moving_lists import move
from needed import lacking
from reading import Execute, execute_sync
from server_programs import need
from several_clusters import started

import fastresp
from fastresp.outcome.errors import TransportError
from fastresp.server.local_server import LocalServer

CLIENTS = (
    redis.RedisCluster, redis.asyncio.RedisCluster,
    valkey.ValkeyCluster, valkey.asyncio.ValkeyCluster,
)  # fmt: skip
# Errors of servers that were built without TLS: from 7.0 on, and 6.2.
NO_TLS = ("Failed finding TLS support", "Bad directive")


class Certified(LocalCluster):
    """Start a cluster with certificates for its nodes.

    Args:
        folder: directory for the certificates.
        tls: whether nodes talk to each other over TLS, and announce their TLS ports.
        both: whether a node also has a port of the other kind.
    """

    def __init__(
        self, folder: Path, primaries: int, replicas: int = 0, *, tls: bool, both: bool
    ) -> None:
        folder.mkdir()
        self.folder, self.tls, self.both = folder, tls, both
        self.certificates = write_certificates(folder)
        self.others: dict[int, int] = {}
        url = f"rediss://127.0.0.1:{{port}}?{urlencode(tls_settings(folder))}"
        super().__init__(
            primaries,
            replicas,
            url=url if tls else "redis://127.0.0.1:{port}",
            options=self.ports_of,
        )
        self.tls_url = url

    def ports_of(self, port: int) -> list[str]:
        other = self.others[port] = free_port() if self.both else 0
        tls, plain = (port, other) if self.tls else (other, port)
        words = ["--port", str(plain), "--tls-port", str(tls), *self.certificates]
        return [*words, "--tls-cluster", "yes", "--tls-replication", "yes"] if self.tls else words


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Certified]]:
    need("server")
    folder = tmp_path_factory.mktemp("certificates")
    try:
        with LocalServer("--tls-port", str(free_port()), *write_certificates(folder)):
            pass
    except TransportError as error:  # another test may have been faster to take the port
        if any(words in str(error) for words in NO_TLS):
            lacking(f"the server was built without TLS: {error}")
    wanted = {
        "tls": Certified(folder / "tls", 3, 1, tls=True, both=False),
        "both": Certified(folder / "both", 3, tls=True, both=True),
        "plain": Certified(folder / "plain", 1, tls=False, both=True),
    }
    with started(**wanted):
        yield wanted


@pytest.fixture
def cluster(clusters: dict[str, Certified]) -> Certified:
    return clusters["tls"]


@pytest.fixture
def reached(cluster: Certified) -> Reached:
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": cluster.ports[1], "ssl": True}
    settings |= tls_settings(cluster.folder)
    servers: list[Callable[[], Any]] = [lambda: cluster.url]
    servers += [partial(each, **settings) for each in CLIENTS]
    return Reached(cluster, servers, [f"127.0.0.1:{port}" for port in cluster.ports[:3]])


@pytest.mark.few(0)
def test_load_while_a_slot_moves(reached: Reached, insert_singly: Insert) -> None:
    check_load(reached, insert_singly, lambda: move(reached.cluster))


@pytest.mark.slow
def test_failover(reached: Reached) -> None:
    check_failover(reached, insert_asyncio)


@pytest.mark.few(0)
def test_replies_while_a_slot_moves(reached: Reached, execute: Execute) -> None:
    check_replies(reached, execute)


@pytest.mark.few(0)
def test_calls(reached: Reached) -> None:
    check_calls(reached)


def test_command_line(reached: Reached, tmp_path: Path) -> None:
    check_command_line(reached, tmp_path)


@pytest.mark.few(0)
@pytest.mark.parametrize("scheme", ["rediss", "redis"])
def test_both_ports(clusters: dict[str, Certified], scheme: str) -> None:
    """A node announces ports of the kind used to ask it, including in MOVED and ASK."""
    cluster = clusters["both"]
    url, ports = cluster.url, cluster.ports
    if scheme == "redis":
        ports = [cluster.others[port] for port in cluster.ports]
        url = f"redis://127.0.0.1:{ports[0]}"
    reached = Reached(cluster, [lambda: url], [f"127.0.0.1:{port}" for port in ports])
    check_calls(reached)
    check_load(reached, insert_sync, lambda: move(cluster))
    check_replies(reached, execute_sync)


def test_plain_ports_announced_over_tls(clusters: dict[str, Certified]) -> None:
    """Without tls-cluster, servers before Redis 7.2 announce only plain ports."""
    cluster = clusters["plain"]
    url = cluster.tls_url.format(port=cluster.others[cluster.ports[0]])
    version = cluster.clients[0].info("server")["redis_version"].split(".")
    if [int(each) for each in version[:2]] >= [7, 2]:
        assert fastresp.mass_insert([("SET", "a", 1)], server=url).replies == 1
        return
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.mass_insert([("SET", "a", 1)], server=url, timeout=1)
    assert f"127.0.0.1:{cluster.ports[0]}: " in str(caught.value)
    assert "the cluster announces this port, which speaks plain RESP" in str(caught.value)
    assert "set tls-cluster yes" in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"], "add ssl_ca_certs=FILE"),
        (["ssl_certfile", "ssl_keyfile"], "add ssl_certfile=FILE and ssl_keyfile=FILE"),
    ],
)
def test_certificates_that_are_missing(cluster: Certified, missing: list[str], words: str) -> None:
    settings = {k: v for k, v in tls_settings(cluster.folder).items() if k not in missing}
    url = f"rediss://127.0.0.1:{cluster.ports[0]}?{urlencode(settings)}"
    with pytest.raises(fastresp.TransportError) as caught:
        fastresp.mass_insert([("SET", "a", 1)], server=url)
    assert words in str(caught.value)


def test_name_that_the_certificate_lacks(clusters: dict[str, Certified]) -> None:
    """The certificate lacks the name of the seed node, or of a discovered node."""
    cluster = clusters["both"]
    server = cluster.url.replace("127.0.0.1", "localhost")
    with pytest.raises(fastresp.TransportError, match="use the host name or address that"):
        fastresp.mass_insert([("SET", "a", 1)], server=server)
    [first, *_] = cluster.clients
    first.config_set("cluster-announce-hostname", "localhost")
    first.config_set("cluster-preferred-endpoint-type", "hostname")
    try:
        with pytest.raises(fastresp.TransportError) as caught:
            fastresp.mass_insert([("SET", "a", 1)], server=cluster.url)
    finally:
        first.config_set("cluster-preferred-endpoint-type", "ip")
        first.config_set("cluster-announce-hostname", "")
    assert f"can't use the server at localhost:{cluster.ports[0]}: " in str(caught.value)
    assert "announces this address, which is not in the node's certificate" in str(caught.value)


def test_plain_url(cluster: Certified) -> None:
    with pytest.raises(fastresp.TransportError, match="use rediss://"):
        fastresp.mass_insert([("SET", "a", 1)], server=f"redis://127.0.0.1:{cluster.ports[0]}")
