"""The doctor on a cluster: every primary is examined, and each finding names its nodes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from command_line import invoke, run
from doctor_cases import changes, verdict
from local_cluster import SLOTS, LocalCluster
from waiting import until

import fastresp
from fastresp import doctor as doctor_module
from fastresp.cli.exit_codes import Exit
from fastresp.doctor import CLUSTER_PLAN, PLAN, doctor, watch
from fastresp.doctor.cluster import CLUSTER_RULES, Cluster, Primary, grouped, names
from fastresp.doctor.facts import Facts
from fastresp.doctor.rules import Findings, Verdict
from fastresp.server.settings import Server


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


def place(cluster: LocalCluster, number: int) -> str:
    return f"127.0.0.1:{cluster.ports[number]}"


def places(cluster: LocalCluster) -> set[str]:
    return {place(cluster, number) for number in range(cluster.primaries)}


@contextmanager
def setting(
    cluster: LocalCluster, numbers: tuple[int, ...], name: str, value: str
) -> Iterator[None]:
    """Change a setting of some nodes, and reset it."""
    clients = [cluster.clients[number] for number in numbers]
    before = clients[0].config_get(name)[name]
    for client in clients:
        client.config_set(name, value)
    try:
        yield
    finally:
        for client in clients:
            client.config_set(name, before)


@pytest.mark.parametrize("at", [0, 2])
def test_healthy(cluster: LocalCluster, at: int) -> None:
    for client in cluster.clients:
        client.config_resetstat()
    found = doctor(f"redis://{place(cluster, at)}")
    assert changes(found) == set()
    assert found.worst == "note"
    assert verdict(found, "no-replica").nodes == tuple(
        place(cluster, number) for number in range(3)
    )
    assert found.nodes.keys() == places(cluster)
    assert (found.measured, found.use, found.facts.place) == (None, None, place(cluster, at))
    for node in found.nodes.values():
        measured = node.measured
        assert measured is not None and measured.command == "SET"
        assert measured.load and measured.pipeline and measured.redis_py and measured.read_items
        assert (measured.refused, measured.leftover, measured.reading_only) == ({}, "", "")
    assert sum(cluster.sizes()) == 0
    # The doctor's keys are in slots of the node that is measured.
    assert not any("errorstat_MOVED" in client.info("errorstats") for client in cluster.clients)


def test_clients_and_replicas(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "MEASURING_S", 0.0)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        found = doctor(client)
    assert found.nodes.keys() == places(cluster)
    assert all(node.measured is None and node.use for node in found.nodes.values())
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.ports[0])
    assert doctor(client).nodes.keys() == places(cluster)


def test_findings_name_their_nodes(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same finding about two nodes is reported once, and names both."""
    monkeypatch.setattr(doctor_module, "MEASURING_S", 0.0)
    fastresp.mass_insert(
        ((i, "x" * 1000) for i in range(15_000)), "SET {0} {1}", server=cluster.url
    )
    with setting(cluster, (0, 2), "maxmemory", "8000kb"):
        found = doctor(cluster.url)
        assert changes(found) == {"maxmemory-near"}
        full = verdict(found, "maxmemory-near")
        assert full.nodes == (place(cluster, 0), place(cluster, 2))
        assert full.figure.startswith(("127.0.0.1:", "8.")) and "noeviction" in full.figure
        differ = verdict(found, "nodes-differ").figure
        assert f"maxmemory 7.81M on {place(cluster, 0)}, {place(cluster, 2)}" in differ
        assert changes(found.nodes[place(cluster, 0)]) == {"maxmemory-near"}
        # The note follows from the version of all nodes.
        others = {each.code for each in found.nodes[place(cluster, 1)].verdicts}
        assert others <= {"faulty-commands"}
        assert changes(watch(cluster.url, 0.1)) == {"maxmemory-near"}
    with (
        setting(cluster, (1,), "appendfsync", "always"),
        setting(cluster, (1,), "appendonly", "yes"),
    ):
        found = doctor(cluster.url)
        assert verdict(found, "aof-always").nodes == (place(cluster, 1),)


@pytest.mark.slow
def test_slots_without_a_node_and_a_dead_node() -> None:
    with LocalCluster() as cluster:
        for client in cluster.clients:
            client.config_set("cluster-require-full-coverage", "no")
        for client in cluster.clients:
            client.execute_command("CLUSTER", "DELSLOTS", 0, 1, 2)
        cluster.nodes[1].process.kill()
        cluster.nodes[1].process.wait()
        found = doctor(cluster.url)
        assert changes(found) == {"slots-unserved", "node-unreachable"}
        assert found.worst == "problem"
        assert verdict(found, "slots-unserved").figure == "3 of 16,384 slots, the first is 0"
        dead = verdict(found, "node-unreachable")
        assert dead.nodes == (place(cluster, 1),)
        assert f"can't use the server at {place(cluster, 1)}" in dead.figure
        assert found.nodes.keys() == {place(cluster, 0), place(cluster, 2)}
        assert all(node.measured and node.measured.load for node in found.nodes.values())


def test_unreachable_addresses(port: int) -> None:
    """All nodes announce a port that nobody listens on."""
    with LocalCluster() as cluster:
        for client in cluster.clients:
            client.config_set("cluster-announce-port", port)
        asked = cluster.clients[0]

        def announced() -> set[int]:
            connection = asked.connection_pool.get_connection()
            connection.send_command("CLUSTER", "SLOTS")
            slots: Any = connection.read_response()
            asked.connection_pool.release(connection)
            return {primary[1] for _, _, primary in slots}

        until(lambda: announced() == {port}, 20)
        for found in (doctor(cluster.url), watch(cluster.url, 0.1)):
            assert changes(found) == {"node-unreachable"}
            assert "cluster-announce-port" in verdict(found, "node-unreachable").advice
            assert found.nodes == {}
        assert found.facts.place == place(cluster, 0)


@pytest.mark.slow
def test_replicas() -> None:
    with LocalCluster(3, 1) as cluster:
        cluster.until_synced()
        found = watch(f"redis://127.0.0.1:{cluster.ports[4]}", 0.1)
        assert changes(found) == set()
        assert found.nodes.keys() == places(cluster)
        assert verdict(found, "replicas").nodes == tuple(found.nodes)
        cluster.nodes[5].process.kill()
        deadline = time.monotonic() + 20
        wanted = {("no-replica", "advice", (place(cluster, 2),))}
        # On a busy machine, other replicas are briefly reported as down.
        while {(v.code, v.grade, v.nodes) for v in found.verdicts if v.grade != "note"} != wanted:
            assert time.monotonic() < deadline
            found = watch(cluster.url, 0.1)
        alone = verdict(found, "no-replica")
        assert alone.figure == "1 of 3 primaries"


def test_slot_that_is_being_moved(cluster: LocalCluster) -> None:
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in cluster.clients]
    slot = SLOTS - 1
    source = next(number for number in range(3) if cluster.serves(number, slot))
    target = (source + 1) % 3
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    try:
        found = watch(cluster.url, 0.1)
    finally:
        cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    assert changes(found) == {"slots-moving"}
    moving = verdict(found, "slots-moving")
    assert moving.nodes == (place(cluster, source),)
    assert moving.figure == "1 slot, the first is 16,383"


def test_one_node_gets_most_of_the_commands(cluster: LocalCluster) -> None:
    """Only while it is watched; a client's mistakes on this node are found on this node only."""
    over = threading.Event()
    at = next(n for n in range(3) if cluster.clients[n] is cluster.client_of("key"))

    def work() -> None:
        with redis.Redis(port=cluster.ports[at]) as client:
            while not over.is_set():
                client.get("key")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for seconds in (1, 3, 10):  # on a busy machine, it may hardly ever wait
            found = watch(cluster.url, seconds)
            if changes(found) == {"use-uneven", "no-pipeline"}:
                break
    finally:
        over.set()
        worker.join()
    assert changes(found) == {"use-uneven", "no-pipeline"}
    assert verdict(found, "use-uneven").nodes == (place(cluster, at),)
    assert verdict(found, "no-pipeline").nodes == (place(cluster, at),)
    for where, node in found.nodes.items():
        assert node.use is not None
        assert (node.use.commands > 100) == (where == place(cluster, at))


def findings(**info: str) -> Findings:
    return Findings(Facts("x", "tcp", False, info=info))


def primaries(*slots: int, replicas: int = 1) -> list[Primary]:
    return [
        Primary(Server(f"redis://10.0.0.{number}"), range(count), replicas)
        for number, count in enumerate(slots)
    ]


def test_rules_about_a_cluster() -> None:
    def found(cluster: Cluster, nodes: dict[str, Findings]) -> dict[str, Verdict]:
        verdicts = (rule(cluster, nodes) for rule in CLUSTER_RULES)
        return {each.code: each for each in verdicts if each}

    assert found(Cluster(primaries(5461, 5461, 5462)), {}) == {}
    assert found(Cluster(primaries(16384)), {}) == {}
    uneven = found(Cluster(primaries(9_000, 4_000, 3_384)), {})
    assert uneven.keys() == {"slots-uneven"}
    assert uneven["slots-uneven"].nodes == ("10.0.0.0:6379",)
    assert uneven["slots-uneven"].gain == pytest.approx(1.648, abs=0.001)
    even = Cluster(primaries(8_192, 8_192))
    sizes = {"a": findings(used_memory="9000000000"), "b": findings(used_memory="1000000000")}
    assert found(even, sizes) == {}
    sizes["c"] = findings(used_memory="1000000000")
    assert found(even, sizes).keys() == {"memory-uneven"}
    assert found(even, sizes)["memory-uneven"].figure == (
        "9.0 GB; the average of 3 nodes is 3.7 GB"
    )
    few = {
        name: findings(used_memory=str(size)) for name, size in zip("abc", (9e6, 1, 1), strict=True)
    }
    assert found(even, few) == {}
    versions = {"a": findings(redis_version="7.2.4"), "b": findings(redis_version="7.0.15")}
    assert found(even, versions)["nodes-differ"].figure == "version 7.2.4 on a; version 7.0.15 on b"


def test_names_of_many_nodes() -> None:
    assert names([]) == ""
    assert names(list("abcde")) == "a, b, c, d, e"
    assert names(list("abcdefg")) == "a, b, c, d and 3 more"


def test_grouping() -> None:
    def one(figure: str, gain: float | None = None) -> Verdict:
        return Verdict("code", "advice", "title", figure, "do", "gain", "source", gain)

    [same] = grouped({"a": [one("x")], "b": [], "c": [one("x")]})
    assert (same.figure, same.nodes) == ("x", ("a", "c"))
    [other] = grouped({"a": [one("x", 1.5)], "b": [one("y", 2.0)]})
    assert (other.figure, other.gain, other.nodes) == ("b: y", 2.0, ("a", "b"))


def test_the_plan_names_every_command() -> None:
    with LocalCluster(2) as cluster:
        for client in cluster.clients:
            client.config_resetstat()
        found = doctor(cluster.url)
        counted = {
            name.removeprefix("cmdstat_").replace("|", " ").upper()
            for client in cluster.clients
            for name in client.info("commandstats")
        }
    assert found.nodes.keys() == places(cluster)
    named = set(
        re.findall(r"[A-Z]+ [A-Z_]+|[A-Z]{3,}", f"{PLAN} {CLUSTER_PLAN}".replace("\n", " "))
    )
    parts = {part for name in named for part in name.split()}
    assert {"CLUSTER SLOTS", "CLUSTER NODES"} <= counted
    assert all(set(name.split()) <= parts for name in counted - {"CONFIG RESETSTAT"}), counted


def test_user_without_permission(cluster: LocalCluster) -> None:
    """Only the node passed by the caller is examined."""
    for client in cluster.clients:
        client.execute_command("ACL", "SETUSER", "me", "on", ">p", "~*", "+@all", "-cluster|slots")
    try:
        found = doctor(cluster.url.replace("redis://", "redis://me:p@"))
    finally:
        for client in cluster.clients:
            client.execute_command("ACL", "DELUSER", "me")
    assert found.nodes == {} and found.cluster is None
    assert found.measured is not None and found.measured.load
    assert sum(cluster.sizes()) == 0


def test_text_and_json(cluster: LocalCluster) -> None:
    with setting(cluster, (1,), "maxmemory", "1mb"):
        done = run("doctor", cluster.url)
        assert done.returncode == Exit.ERRORS, done
        lines = done.stdout.splitlines()
        words = " ".join(done.stdout.split())
        assert "a cluster of 3 primaries" in words
        assert "Primaries, and SET commands per second" in lines
        table = [line.split() for line in lines if re.match(r"  127\.0\.0\.1:\d+ ", line)]
        assert {line[0] for line in table} == places(cluster)
        assert [line[1] for line in table] == ["5,461", "5,461", "5,462"]
        assert "1. problem: Memory is nearly full: writes will be refused (OOM)" in done.stdout
        assert f"nodes {place(cluster, 1)} figure" in words
        assert (
            f"Nothing was written: the server's memory is nearly full ({place(cluster, 1)})"
            in words
        )
        assert "nodes all 3 primaries" in words
        assert max(len(line) for line in lines if "http" not in line) <= 80
        assert "CLUSTER SLOTS and CLUSTER NODES" in done.stderr.replace("\n", " ")

        done = run("doctor", "--watch", "0.5", "--json", cluster.url)
        fields = json.loads(done.stdout)
        assert (fields["measured"], fields["use"]) == (None, None)
        assert {each["server"] for each in fields["nodes"]} == places(cluster)
        assert sum(each["slots"] for each in fields["nodes"]) == SLOTS
        assert all(each["use"]["watched"] for each in fields["nodes"])
        near = next(each for each in fields["verdicts"] if each["code"] == "maxmemory-near")
        assert near["nodes"] == [place(cluster, 1)]
    done = invoke("doctor", "--watch", "0.5", cluster.url)
    assert done.exit_code == Exit.OK
    assert "Primaries, and their load" in done.stdout


def test_timeout(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "MEASURING_S", 0.0)
    done = invoke("doctor", cluster.url)
    assert done.exit_code == Exit.OK
    assert "Not measured: no time left\n" in done.stdout


@pytest.mark.slow
def test_password() -> None:
    with LocalCluster(2) as cluster:
        for client in cluster.clients:
            client.config_set("masterauth", "s3same")
            client.config_set("requirepass", "s3same")
        done = invoke("doctor", "--json", cluster.url.replace("redis://", "redis://:s3same@"))
        assert done.exit_code == Exit.OK, done.output
        assert "s3same" not in done.output
        assert len(json.loads(done.stdout)["nodes"]) == 2


@pytest.mark.slow
def test_interrupted(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is left on any node."""
    moments: list[str] = []

    def announce(text: str) -> None:
        moments.append(text)
        if text == f"{place(cluster, 1)}: mass_insert()":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        doctor(cluster.url, announce)
    assert f"{place(cluster, 0)}: round trips" in moments
    assert not any(place(cluster, 2) in text for text in moments)
    assert sum(cluster.sizes()) == 0
