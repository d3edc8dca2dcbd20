"""Nodes that announce IPv6 addresses, host names, no host, or addresses to be translated."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from cluster_calls import (
    Reached,
    check_calls,
    check_command_line,
    check_failover,
    check_load,
    check_replies,
)
from loads import Insert, insert_sync
from local_cluster import LocalCluster, free_port
from moving_lists import move
from proxy import Proxy
from reading import Execute, execute_sync
from server_programs import need
from several_clusters import started

import fastresp
from fastresp.replies.large_keys import FIRST_ENTRIES, LargeKeyReader
from fastresp.server.cluster import redirect_of
from fastresp.server.local_server import output_of
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

CLIENTS = (
    redis.RedisCluster, redis.asyncio.RedisCluster,
    valkey.ValkeyCluster, valkey.asyncio.ValkeyCluster,
)  # fmt: skip
# How the nodes of "mapped" announce themselves; "remap": at unreachable addresses.
ENDPOINTS = {
    "hostname": "hostname", "unknown": "unknown-endpoint", "mapped": "ip", "remap": "ip",
}  # fmt: skip


class Announced(dict[int, int]):
    """Map the ports where nodes listen to the ports that they announce."""

    def options(self, port: int, host: str) -> tuple[str, ...]:
        self[port] = free_port()
        return (
            "--cluster-announce-port", str(self[port]), "--cluster-announce-hostname", host,
        )  # fmt: skip


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def announced() -> Announced:
    return Announced()


@pytest.fixture(scope="module")
def clusters(announced: Announced) -> Iterator[dict[str, LocalCluster]]:
    if b"v=6." in output_of(need("server"), "--version"):
        pytest.skip("servers announce host names from Redis 7.0 on")
    mapped = partial(announced.options, host="localhost")
    wanted = {
        "mapped": LocalCluster(options=mapped),
        "lost": LocalCluster(1, options=partial(announced.options, host="nohost.invalid")),
    }
    if has_ipv6():
        url = "redis://[::1]:{port}"
        wanted["ipv6"] = LocalCluster(3, 1, url=url, options=lambda port: ("--bind", "::1"))
    with started(**wanted) as running:
        yield running


@pytest.fixture(params=["ipv6", *ENDPOINTS])
def reached(
    request: pytest.FixtureRequest, clusters: dict[str, LocalCluster], announced: Announced
) -> Iterator[Reached]:
    """Start each of these clusters; where ports are mapped, only the announced ones are known."""
    if request.param == "ipv6":
        if "ipv6" not in clusters:
            pytest.skip("this machine has no ::1")
        cluster = clusters["ipv6"]
        places = [f"[::1]:{port}" for port in cluster.ports[:3]]
        url = cluster.url
        yield Reached(cluster, [lambda: url, *all_clients("::1", cluster.ports[1])], places)
        return
    cluster = clusters["mapped"]
    for client in cluster.clients:
        client.config_set("cluster-preferred-endpoint-type", ENDPOINTS[request.param])
    ports = [announced[port] for port in cluster.ports]
    if request.param == "remap":
        remap = {("127.0.0.1", there): ("localhost", here) for here, there in announced.items()}
        servers = all_clients("127.0.0.1", cluster.ports[0], address_remap=remap.__getitem__)
        yield Reached(cluster, servers, [f"localhost:{port}" for port in cluster.ports])
        return
    host = "127.0.0.1" if request.param == "mapped" else "localhost"
    with ExitStack() as stack:
        for node, port in zip(cluster.nodes, ports, strict=True):
            stack.enter_context(Proxy(str(node.socket), port=port))
        yield Reached(
            cluster, [lambda: f"redis://localhost:{ports[0]}"], [f"{host}:{port}" for port in ports]
        )


def all_clients(host: str, port: int, **options: Any) -> list[Callable[[], Any]]:
    return [partial(each, host=host, port=port, **options) for each in CLIENTS]


@pytest.mark.few(1)
def test_load_while_a_slot_moves(reached: Reached, insert_singly: Insert) -> None:
    check_load(reached, insert_singly, lambda: move(reached.cluster))


@pytest.mark.few(1)
def test_replies_while_a_slot_moves(reached: Reached, execute: Execute) -> None:
    check_replies(reached, execute)


def test_calls(reached: Reached) -> None:
    check_calls(reached)


@pytest.mark.few(1)
def test_command_line(reached: Reached, tmp_path: Path) -> None:
    if isinstance(reached.servers[0](), str):
        check_command_line(reached, tmp_path)


def test_large_key_while_its_slot_moves(reached: Reached) -> None:
    """Entries are read in parts, over a connection that is redirected."""
    cluster, server = reached.cluster, reached.servers[0]()
    cluster.empty()
    items = [b"%d" % i + b"x" * 10_000 for i in range(600)]
    fastresp.mass_insert([("RPUSH", "q", *items)], server=server)
    rest = LargeKeyReader(Server(server, Requirements(reading=True, nodes=True)), "LRANGE", 20)
    found: list[bytes] = []
    moves = 0
    with closing(rest):
        for part in rest.parts(b"q", items[:FIRST_ENTRIES]):
            found += part
            if moves < 2:
                move(cluster)
                moves += 1
    assert (found, moves) == (items, 2)


def test_failover_of_an_ipv6_cluster(clusters: dict[str, LocalCluster]) -> None:
    if "ipv6" not in clusters:
        pytest.skip("this machine has no ::1")
    cluster = clusters["ipv6"]
    reached = Reached(cluster, [lambda: cluster.url], [])
    check_failover(reached, insert_sync)


def test_unreachable_address(clusters: dict[str, LocalCluster]) -> None:
    """The message names the address that the cluster announces, and says what to do."""
    cluster = clusters["lost"]
    for kind, place in (("ip", "127.0.0.1"), ("hostname", "nohost.invalid")):
        cluster.clients[0].config_set("cluster-preferred-endpoint-type", kind)
        for call in (insert_sync, execute_sync):
            with pytest.raises(fastresp.TransportError) as caught:
                call([("SET", "a", 1)], server=cluster.url)
            assert f"can't use the server at {place}:" in str(caught.value)
            assert "the cluster announces this address" in str(caught.value)
            assert "address_remap" in str(caught.value)


@pytest.mark.parametrize("remap", [lambda address: {}[address], lambda address: None])
def test_remap_that_fails(clusters: dict[str, LocalCluster], remap: Any) -> None:
    cluster = clusters["lost"]
    cluster.clients[0].config_set("cluster-preferred-endpoint-type", "ip")
    server = valkey.asyncio.ValkeyCluster("127.0.0.1", cluster.ports[0], address_remap=remap)
    with pytest.raises(fastresp.TransportError, match=r"address_remap .*must return the host"):
        fastresp.mass_insert([("SET", "a", 1)], server=server)


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("MOVED 1 ::1:7001", ("::1", 7001)),
        ("ASK 1 fe80::1%eth0:7001", ("fe80::1%eth0", 7001)),
        ("MOVED 1 node-1.example:7001", ("node-1.example", 7001)),
        ("MOVED 1 :7001", ("asked", 7001)),
        ("MOVED 1 ?:7001", ("asked", 7001)),
    ],
)
def test_hosts_of_redirections(words: str, address: tuple[str, int]) -> None:
    found = redirect_of(words, "asked")
    assert found is not None
    assert found.node == address
    mapped = redirect_of(words, "asked", lambda it: (f"mapped-{it[0]}", it[1] + 1))
    assert mapped is not None
    assert mapped.node == (f"mapped-{address[0]}", 7002)


@pytest.mark.parametrize("url", ["redis://[::1]:7001", "redis://[2001:db8::1]:7001/0"])
def test_ipv6_address_in_messages(url: str) -> None:
    assert str(Server(url)) == url.removeprefix("redis://").removesuffix("/0")
