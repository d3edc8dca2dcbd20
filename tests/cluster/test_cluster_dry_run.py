"""Dry runs for a cluster: what each node gets, whether it fits there, and what can't be sent."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from local_cluster import LocalCluster

import fastresp
from fastresp import Template
from fastresp.cli.exit_codes import Exit
from fastresp.encode.row_key import RowKeys
from fastresp.load.dry_run import DryRun, dry_run
from fastresp.load.inquiry import slot_shares
from fastresp.resp.slots import Rules
from fastresp.server.cluster import Topology

ROWS = [{"id": i, "name": f"name {i}" * 10} for i in range(6_000)]
HSET = Template("HSET user:{id} {**}")


@contextmanager
def maxmemory(
    cluster: LocalCluster, number: int, size: int, policy: str = "noeviction"
) -> Iterator[None]:
    client = cluster.clients[number]
    client.config_set("maxmemory", size)
    client.config_set("maxmemory-policy", policy)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


def memory(cluster: LocalCluster) -> list[int]:
    return [int(client.info("memory")["used_memory"]) for client in cluster.clients]


def places(cluster: LocalCluster) -> list[str]:
    return [f"127.0.0.1:{port}" for port in cluster.ports[: cluster.primaries]]


@pytest.mark.parametrize("count", [600, 6_000])
def test_each_node_gets_its_part(cluster: LocalCluster, count: int) -> None:
    """This holds even if the sample is only part of the load."""
    before = memory(cluster)
    found = dry_run(ROWS[:count], HSET, cluster.url)
    assert (found.problems, found.refused_rows, sum(cluster.sizes())) == ([], 0, 0)
    assert sorted(node.server for node in found.nodes) == sorted(places(cluster))
    assert sum(node.share for node in found.nodes) == pytest.approx(1)
    assert sum(node.memory for node in found.nodes) == pytest.approx(found.estimate.memory, abs=3)
    fastresp.mass_insert(ROWS[:count], HSET, server=cluster.url)
    used = dict(zip(places(cluster), map(int.__sub__, memory(cluster), before), strict=True))
    keys = dict(zip(places(cluster), cluster.sizes(), strict=True))
    for node in found.nodes:
        assert count * node.share == pytest.approx(keys[node.server], rel=0.1)
        if count == 6_000:  # few keys need less memory than connections
            assert node.memory == pytest.approx(used[node.server], rel=0.2)


def test_few_hash_tags(cluster: LocalCluster) -> None:
    """New keys are in the slots of the sample; nodes without these slots get nothing."""
    rows = [{"id": i, "tag": "tenant1"} for i in range(5_000)]
    found = dry_run(rows, Template("SET {{{tag}}}:{id} {id}"), cluster.url)
    fastresp.mass_insert(rows, "SET {{{tag}}}:{id} {id}", server=cluster.url)
    assert sorted(cluster.sizes()) == [0, 0, 5_000]
    assert {node.server: node.share for node in found.nodes} == {
        place: size / 5_000 for place, size in zip(places(cluster), cluster.sizes(), strict=True)
    }
    assert sorted(node.memory for node in found.nodes)[:2] == [0, 0]


def test_shares_grow_with_the_slots() -> None:
    """New keys of a long source are spread like the slots of the cluster."""
    topology = Topology()
    topology.add(("a", 1), 0, 4095)
    topology.add(("b", 1), 4096, 16383)
    commands = [(b"SET", b"key:%d" % i, b"1") for i in range(1_000)]
    parts = slot_shares(commands, range(1_000), topology, Rules(), 3, RowKeys(None))
    few = parts.shares(topology, [len(each) for each in parts.commands], 1.0)
    many = parts.shares(topology, [len(each) for each in parts.commands], 1_000.0)
    assert few == [len(parts.commands[0]) / 1_000, len(parts.commands[1]) / 1_000]
    assert many == pytest.approx([0.25, 0.75], abs=0.005)
    nothing = slot_shares([], [], topology, Rules(), 3, RowKeys(None))
    assert nothing.shares(topology, [0, 0], 1.0) == [0, 0]


def test_node_that_is_too_small(cluster: LocalCluster) -> None:
    used = memory(cluster)[1]
    with maxmemory(cluster, 1, used + 100_000):
        found = dry_run(ROWS, HSET, cluster.url)
        [problem] = found.problems
        assert problem.startswith(f"the part for {places(cluster)[1]} needs about ")
        assert "(maxmemory, policy noeviction); raise its maxmemory" in problem
        assert (found.inquiry.maxmemory, found.inquiry.used_memory) != (None, None)
    with maxmemory(cluster, 1, used + 100_000, "allkeys-lru"):
        assert dry_run(ROWS, HSET, cluster.url).problems == []
    with maxmemory(cluster, 1, used + 100_000_000):
        assert dry_run(ROWS, HSET, cluster.url).problems == []


REFUSED = [
    ("MSET", "a", 1, "b", 2), ("PING",), ("FLUSHALL",), ("XREAD", "STREAMS", "a", 0),
    ("EVAL", "return 1", 0), ("MULTI",), ("WATCH", "a"), ("PUBLISH", "a", 1),
]  # fmt: skip


def test_rows_that_can_not_be_sent(cluster: LocalCluster) -> None:
    good = [("SET", f"k{i}", i) for i in range(20)]
    rows = [*good, *REFUSED, *good]
    found = dry_run(rows, None, cluster.url)
    assert found.refused_rows == len(REFUSED)
    [problem] = found.problems
    assert problem.startswith("8 rows of the sample can't be sent to a cluster, the first: row 20")
    assert problem.count("; row ") == 2
    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.mass_insert(rows, server=cluster.url)
    assert str(caught.value) in problem
    assert sum(node.share for node in found.nodes) == pytest.approx(1)


COMMANDS = [
    "SET {0} 1", "MSET {0} 1 {1} 2", "DEL {0} {1}", "MULTI", "EXEC", "DISCARD", "WATCH {0}", "PING",
    "SCRIPT FLUSH", "script load {0}", "FUNCTION LOAD x", "SCRIPT EXISTS {0}", "BOGUS {0}",
    "EVAL x 2 {0} {1}", "BITOP AND {0} {1}", "RENAME {0} {1}", "SORT {0} STORE {1}",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_the_same_rows_as_in_a_load(cluster: LocalCluster, seed: int) -> None:
    """For any template, the dry run refuses the same first row as the load."""
    randoms = random.Random(seed)
    chosen = [each for each in COMMANDS if each != "PING"] if seed % 2 else COMMANDS[:6]
    template = randoms.choices(chosen, k=randoms.randint(1, 4))
    rows = [(f"{{{randoms.choice('ab')}}}1", f"{{{randoms.choice('ab')}}}2") for _ in range(10)]
    found = dry_run(rows, Template(*template), cluster.url)
    try:
        fastresp.mass_insert(
            rows, template, server=cluster.url, on_error="collect", transport="socket"
        )
        refusal = None
    except fastresp.EncodeError as error:
        refusal = str(error)
    except fastresp.CommandError:  # the template has an unknown command: nothing was sent
        assert "BOGUS {0}" in template
        return
    assert (found.refused_rows > 0) == (refusal is not None), template
    if refusal is not None:
        assert any(refusal in problem for problem in found.problems)


def test_keys_of_another_type(cluster: LocalCluster) -> None:
    """Each key is looked up on its own node."""
    for i in range(0, 300, 50):
        cluster.client_of(f"key:{i}").lpush(f"key:{i}", 1)
    found = dry_run([{"id": i} for i in range(300)], Template("INCR key:{id}"), cluster.url)
    assert (found.inquiry.checked_keys, len(found.inquiry.wrong_types)) == (300, 6)
    assert found.inquiry.allowed is True
    [problem] = found.problems
    assert problem.startswith("WRONGTYPE for 6 keys of the sample: ")


def test_permissions_on_each_node(cluster: LocalCluster) -> None:
    client = cluster.clients[1]
    client.execute_command("ACL", "SETUSER", "few", "on", ">p", "~*", "+@all", "-hset")
    for other in (cluster.clients[0], cluster.clients[2]):
        other.execute_command("ACL", "SETUSER", "few", "on", ">p", "~*", "+@all")
    try:
        found = dry_run(ROWS, HSET, cluster.url.replace("redis://", "redis://few:p@"))
    finally:
        for each in cluster.clients:
            each.execute_command("ACL", "DELUSER", "few")
    assert found.inquiry.allowed is False
    assert len(found.problems) == 1 and "hset" in found.problems[0]


def test_dead_node() -> None:
    with LocalCluster() as cluster:
        cluster.nodes[2].process.kill()
        cluster.nodes[2].process.wait()
        found = dry_run(ROWS, HSET, cluster.url)
        assert f"can't use the server at {places(cluster)[2]}" in found.problems[0]
        assert len(found.nodes) == 3


@pytest.mark.parametrize("library", ["redis", "redis.asyncio", "valkey", "valkey.asyncio"])
def test_cluster_clients(cluster: LocalCluster, library: str) -> None:
    module = importlib.import_module(library)
    name = "ValkeyCluster" if library.startswith("valkey") else "RedisCluster"
    client = getattr(module, name)(host="127.0.0.1", port=cluster.ports[1])
    found = dry_run(ROWS, HSET, client)
    assert (found.problems, len(found.nodes)) == ([], 3)
    if not library.endswith("asyncio"):
        client.close()


def test_from_a_replica() -> None:
    with LocalCluster(2, 1) as cluster:
        found = dry_run(ROWS, HSET, f"redis://127.0.0.1:{cluster.ports[3]}")
        assert found.problems == []
        assert sorted(node.server for node in found.nodes) == sorted(places(cluster))


def test_serialised_loads_are_spread_like_the_load(cluster: LocalCluster) -> None:
    found = dry_run(ROWS, Template("RPUSH l:{id} 1"), cluster.url, mode="serialize")
    assert found.problems == []
    assert sorted(node.server for node in found.nodes) == sorted(places(cluster))
    report = fastresp.mass_insert(ROWS, "RPUSH l:{id} 1", server=cluster.url, mode="serialize")
    assert report.replies == report.commands == found.commands


def test_command_line(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text("id,name\n" + "".join(f"{i},name {i}\n" for i in range(3_000)))
    arguments = ("load", file, "HSET user:{id} {**}", "--dry-run", "--server", cluster.url)
    done = run(*arguments)
    assert done.returncode == Exit.OK, done
    lines = done.stderr.splitlines()
    at = lines.index("Share of each primary of the cluster:")
    parts = [line for line in lines[at + 1 :] if line.startswith("  127.0.0.1:")]
    assert len(parts) == 3
    assert all(
        "3% of the commands (about " in line and "with no maxmemory" in line for line in parts
    )
    done = run(*arguments, "--json")
    fields = json.loads(done.stdout)
    assert fields["refused_rows"] == 0
    assert sorted(node["server"] for node in fields["nodes"]) == sorted(places(cluster))
    assert sum(node["commands"] for node in fields["nodes"]) == pytest.approx(
        fields["commands"], abs=2
    )
    assert {"memory", "used_memory", "maxmemory", "maxmemory_policy"} <= fields["nodes"][0].keys()
    done = run("load", file, "MSET {id} 1 {name} 2", "--dry-run", "--server", cluster.url)
    assert done.returncode == Exit.ERRORS
    assert "rows of the sample can't be sent to a cluster, the first: row 0" in done.stderr


def test_no_cluster(server: Any) -> None:
    found: DryRun = dry_run([("MSET", "a", 1, "b", 2)], None, server.url)
    assert (found.nodes, found.refused_rows, found.problems) == ([], 0, [])
