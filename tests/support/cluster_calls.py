"""Calls of fastresp with a cluster, for any way to reach its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis
from command_line import invoke
from local_cluster import LocalCluster
from moving_lists import KEY, half_moved, move

import fastresp
import fastresp.aio
from fastresp import Template
from fastresp.doctor import watch
from fastresp.load.dry_run import dry_run

__all__ = [
    "Reached", "check_calls", "check_command_line", "check_failover", "check_load", "check_replies",
]  # fmt: skip

ROWS = 20_000
KEYS = 50
# Rows before which the cluster changes.
MOMENTS = (4_000, 9_000, 14_000)


class Reached(NamedTuple):
    """A cluster, and how its nodes are reached.

    Attributes:
        cluster: the nodes.
        servers: functions that return the ``server`` argument of a user.
        places: the addresses of the primaries, in the order of ``cluster.nodes``.
    """

    cluster: LocalCluster
    servers: list[Callable[[], Any]]
    places: list[str]


def rows(happening: Callable[[], object]) -> Iterator[tuple[str, int]]:
    for i in range(ROWS):
        if i in MOMENTS:
            happening()
        yield (f"list:{i % KEYS}" if i % 2 else KEY), i


def check_load(
    reached: Reached, insert: Callable[..., fastresp.Report], happening: Callable[[], object]
) -> None:
    """Load lists while a slot changes: no command is lost, run twice or overtaken."""
    cluster = reached.cluster
    cluster.empty()
    server = reached.servers[0]()
    report = insert(rows(happening), "RPUSH {0} {1}", server=server, timeout=20)
    assert (report.rows, report.replies, report.failed) == (ROWS, ROWS, 0)
    for key in (KEY, *(f"list:{i}" for i in range(1, KEYS, 2))):
        stored = [int(item) for item in stored_in(cluster, key)]
        assert stored == [i for name, i in rows(int) if name == key]


def check_failover(reached: Reached, insert: Callable[..., fastresp.Report]) -> None:
    """Load while a replica takes over; at the end, restore the roles of the nodes."""
    events = iter([reached.cluster.take_over])  # with a second one, a slot could return too soon
    try:
        with patient(reached.cluster):
            check_load(reached, insert, lambda: next(events, int)())
    finally:
        reached.cluster.take_over()


@contextmanager
def patient(cluster: LocalCluster) -> Iterator[None]:
    """Prevent nodes from marking a busy node as failed."""
    [before] = cluster.clients[0].config_get("cluster-node-timeout").values()
    for client in cluster.clients:
        client.config_set("cluster-node-timeout", 10_000)
    try:
        yield
    finally:
        for client in cluster.clients:
            client.config_set("cluster-node-timeout", before)


def stored_in(cluster: LocalCluster, key: str) -> list[bytes]:
    """Return the items of a list, from the node that has the list."""
    found = []
    for client in cluster.clients:
        try:
            found += client.lrange(key, 0, -1)
        except redis.exceptions.MovedError:
            continue
    return found


def check_replies(reached: Reached, execute: Callable[..., list[Any]]) -> None:
    """Read replies while slots move (MOVED), and from a slot that is being migrated (ASK)."""
    cluster = reached.cluster
    cluster.empty()
    server = reached.servers[0]()
    got = execute(rows(lambda: move(cluster)), "RPUSH {0} {1}", server=server, timeout=20)
    counts: dict[str, int] = {}
    for (key, _), length in zip(rows(int), got, strict=True):
        counts[key] = counts.get(key, 0) + 1
        assert length == counts[key]
    with half_moved(cluster, arrived=True):
        got = execute([(KEY,), ("list:1",)], "LLEN {0}", server=server, timeout=20)
        assert got == [counts[KEY], counts["list:1"]]
        report = fastresp.mass_insert([(KEY, 1)] * 3, "RPUSH {0} {1}", server=server, timeout=20)
        assert report.replies == 3
    assert len(stored_in(cluster, KEY)) == counts[KEY] + 3


def check_calls(reached: Reached) -> None:
    """Fetch hashes, push and pop items while a slot moves, and make read-only calls."""
    cluster, places = reached.cluster, sorted(reached.places)
    cluster.empty()
    users = [{"id": str(i), "name": f"name {i}"} for i in range(300)]
    for make in reached.servers:
        server = make()
        assert fastresp.mass_insert(users, "HSET user:{id} {**}", server=server).replies == 300
        if "asyncio" in type(server).__module__:
            asyncio.run(server.aclose())
    assert min(cluster.sizes()) > 50
    server = reached.servers[0]()
    fetched = fastresp.fetch_hashes("user:{id}", ["name"], server=server)
    assert sorted(map(str, fetched)) == sorted(str(each) for each in users)
    with fastresp.ListBuffer(KEY, server=server) as buffer:
        buffer.push(range(100))
        move(cluster)
        buffer.push(range(100, 200))
        assert buffer.pop(200) == [b"%d" % i for i in range(200)]
    found = dry_run(users, Template("HSET user:{id} {**}"), server)
    assert found.problems == []
    assert sorted(node.server for node in found.nodes) == places
    diagnosis = watch(server, 0.05)
    assert diagnosis.cluster is not None
    assert sorted(each.place for each in diagnosis.cluster.primaries) == places
    assert diagnosis.cluster.unreachable == {}


def check_command_line(reached: Reached, folder: Path) -> None:
    """Load, dry-run, unload and diagnose over the command line."""
    cluster, url = reached.cluster, reached.servers[0]()
    cluster.empty()
    lines = ["id,name", *(f"{i},name {i}" for i in range(300))]
    (folder / "users.csv").write_text("\n".join(lines) + "\n")
    load = ("load", folder / "users.csv", "HSET user:{id} name {name}", "--server", url)
    tried = invoke(*load, "--dry-run")
    assert (tried.exit_code, cluster.sizes()) == (0, [0, 0, 0])
    for place in reached.places:
        assert f"{place}: " in tried.output
    assert invoke(*load).exit_code == 0
    assert sum(cluster.sizes()) == 300
    target = folder / "out.csv"
    done = invoke("unload", "user:{id}", "--fields", "name", "-o", target, "--server", url)
    assert done.exit_code == 0, done.output
    assert sorted(target.read_text().replace('"', "").splitlines()) == sorted(lines)
    cluster.know_replicas()
    with patient(cluster):
        watched = invoke("doctor", url, "--watch", "1", "--json")
    assert watched.exit_code == 0, watched.output
    for place in reached.places:
        assert f'"server": "{place}"' in watched.output
