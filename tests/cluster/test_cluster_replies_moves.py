"""Slots that move while replies are read: every command runs once, with replies in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from local_cluster import SLOTS, LocalCluster
from moving_lists import move, moving_slots, slot_of
from reading import Execute, execute_sync

import fastresp

ROWS = 60_000
KEYS = 200


def rows(
    happening: Callable[[], object] | None = None, at: frozenset[int] = frozenset()
) -> Iterator[int]:
    for i in range(ROWS):
        if happening is not None and i in at:
            happening()
        yield i % KEYS


def check(got: list[Any]) -> None:
    """Check that each key was counted up in order."""
    assert got == [1 + i // KEYS for i in range(ROWS)]


def test_slot_that_has_moved(execute: Execute, cluster: LocalCluster) -> None:
    move(cluster, "n:7")
    check(execute(rows(), "INCR n:{0}", server=cluster.url))


@pytest.mark.parametrize("seed", range(2))
def test_slots_that_move(execute: Execute, cluster: LocalCluster, seed: int) -> None:
    """They move between two rows, while earlier commands are in flight."""
    randoms = random.Random(seed)
    keys = iter(randoms.sample(range(KEYS), 20))
    moments = frozenset(randoms.sample(range(ROWS), 20))
    happening = rows(lambda: move(cluster, f"n:{next(keys)}"), moments)
    check(execute(happening, "INCR n:{0}", server=cluster.url))


@pytest.mark.parametrize("seed", range(3))
def test_slots_that_move_meanwhile(execute: Execute, cluster: LocalCluster, seed: int) -> None:
    """In another thread, at any moment: keys are migrated one by one, and ASK is answered."""
    keys = random.Random(seed).sample(range(KEYS), KEYS)
    with moving_slots(cluster, [f"n:{key}" for key in keys]):
        got = execute(rows(), "INCR n:{0}", server=cluster.url)
    check(got)


def importing(cluster: LocalCluster, slot: int) -> tuple[int, int]:
    """Begin to move a slot to the next node; return the numbers of both nodes."""
    source = next(number for number in range(3) if cluster.serves(number, slot))
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    cluster.clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    cluster.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    return source, target


@pytest.mark.parametrize("decode", [None, True])
def test_slot_that_is_being_moved(execute: Execute, cluster: LocalCluster, decode: Any) -> None:
    """Some of its keys are on each node throughout."""
    keys = [f"{{n:7}}{i}" for i in range(100)]
    here = keys[::2]
    execute(here, "SET {0} here", server=cluster.url)
    slot = slot_of(cluster, "n:7")
    source, target = importing(cluster, slot)
    try:
        before = cluster.clients[target].dbsize()
        got = execute(keys * 300, "SET {0} {0} GET", server=cluster.url, decode=decode)
        assert cluster.clients[target].dbsize() == before + 50
    finally:
        for number in (target, source):
            cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
        cluster.empty()
    if decode:
        assert got == [*(["here", None] * 50), *(keys * 299)]
    else:
        assert got == [*([b"here", None] * 50), *(key.encode() for key in keys * 299)]


@pytest.mark.parametrize("by", ["MOVED", "ASK"])
def test_execute(cluster: LocalCluster, by: str) -> None:
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        client.set("n:7", "text")
    slot = slot_of(cluster, "n:7")
    if by == "MOVED":
        move(cluster, "n:7")
    else:
        source, target = importing(cluster, slot)
        port = cluster.ports[target]
        cluster.clients[source].execute_command(
            "MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", "n:7"
        )
    try:
        for node in cluster.nodes:
            assert fastresp.execute("GET", "n:7", server=node.url) == b"text"
            with pytest.raises(fastresp.CommandError, match=r"^WRONGTYPE"):
                fastresp.execute("LPUSH", "n:7", "x", server=node.url)
    finally:
        if by == "ASK":
            for number in (target, source):
                cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
            cluster.empty()


def test_scripts(execute: Execute, cluster: LocalCluster) -> None:
    """The new owner doesn't know the script."""
    script = fastresp.Script("return redis.call('INCR', KEYS[1])")
    moments = frozenset((ROWS // 3, ROWS // 2))
    keys = iter((7, 8))

    def happening() -> None:
        for client in cluster.clients:
            client.script_flush()
        move(cluster, f"n:{next(keys)}")

    got = execute(rows(happening, moments), script.command("n:{0}"), server=cluster.url)
    # Resent commands run after the commands sent behind them.
    for key in range(KEYS):
        assert sorted(got[key::KEYS]) == [*range(1, 1 + ROWS // KEYS)]


def test_errors_keep_their_order(execute: Execute, cluster: LocalCluster) -> None:
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        client.set("n:7", "text")
    happening = rows(lambda: move(cluster, "n:7"), frozenset((ROWS // 2,)))
    got = execute(happening, "INCR n:{0}", server=cluster.url, on_error="collect")
    errors = {i: reply for i, reply in enumerate(got) if type(reply) is fastresp.CommandError}
    assert [*errors] == [*range(7, ROWS, KEYS)]
    for i, error in errors.items():
        assert (error.row, error.index, error.arguments) == (i, i, (b"INCR", b"n:7"))
        assert error.text.startswith("ERR value is not an integer")


def test_transactions_are_not_resent(execute: Execute, cluster: LocalCluster) -> None:
    happening = rows(lambda: move(cluster, "n:7"), frozenset((ROWS // 2,)))
    template = "MULTI; INCR n:{0}; EXEC"
    got = execute(happening, template, server=cluster.url, on_error="collect")
    assert len(got) == 3 * ROWS
    counts = [0] * KEYS
    refused = 0
    for i in range(ROWS):
        begun, queued, done = got[3 * i : 3 * i + 3]
        assert begun == b"OK"
        if isinstance(done, list):
            counts[i % KEYS] += 1
            assert (queued, done) == (b"QUEUED", [counts[i % KEYS]])
            continue
        refused += 1
        assert slot_of(cluster, f"n:{i % KEYS}") == slot_of(cluster, "n:7")
        if queued == b"QUEUED":  # the slot moved before EXEC, which then runs nothing
            assert (done.code, done.index) == ("MOVED", 3 * i + 2)
        else:
            assert (queued.code, queued.index, done.code) == ("MOVED", 3 * i + 1, "EXECABORT")
    assert refused


def test_advice_for_a_transaction_that_is_not_resent(cluster: LocalCluster) -> None:
    happening = rows(lambda: move(cluster, "n:7"), frozenset((ROWS // 2,)))
    with pytest.raises(fastresp.CommandError, match=r"command [\d,]+: MOVED") as caught:
        execute_sync(happening, "MULTI; INCR n:{0}; EXEC", server=cluster.url)
    assert "run its row again" in caught.value.__notes__[0]


@pytest.mark.slow
def test_planned_failover() -> None:
    # On a slow machine, nodes must not consider each other failed: they would refuse commands.
    patient = ("--cluster-node-timeout", "10000")
    with LocalCluster(3, 1, options=lambda port: patient) as cluster:
        cluster.until_synced()

        def fail_over() -> None:
            cluster.promote(cluster.clients[3])

        happening = rows(fail_over, frozenset((ROWS // 2,)))
        check(execute_sync(happening, "INCR n:{0}", server=cluster.url))
        # Start from a replica.
        server = f"redis://127.0.0.1:{cluster.ports[4]}"
        got = execute_sync(range(KEYS), "GET n:{0}", server=server)
        assert got == [b"%d" % (ROWS // KEYS)] * KEYS


@pytest.mark.slow
def test_new_node_and_one_that_is_shut_down() -> None:
    """All slots of a node move to a new one; then the node is removed."""
    with LocalCluster() as cluster, LocalCluster(1) as other:
        everyone, client = cluster.joined_by(other), other.clients[0]
        last = [*range(2 * SLOTS // 3, SLOTS)]
        used = {slot_of(cluster, f"n:{key}") for key in range(KEYS)}.intersection(last)

        def move() -> None:
            for slot in used:
                everyone.move_slot(slot, 3)
            new = client.execute_command("CLUSTER", "MYID").decode()
            for each in (client, *cluster.clients):
                for slot in set(last) - used:
                    try:
                        each.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new)
                    except redis.ResponseError:  # the node became a replica
                        break

        def stop() -> None:
            cluster.nodes[2].process.kill()

        happening = iter((move, stop))
        moments = frozenset((ROWS // 3, ROWS - 10))
        check(
            execute_sync(rows(lambda: next(happening)(), moments), "INCR n:{0}", server=cluster.url)
        )
        assert client.dbsize() > 10


def test_two_nodes_that_name_each_other(cluster: LocalCluster) -> None:
    slot = slot_of(cluster, "n:7")
    source = next(number for number in range(3) if cluster.serves(number, slot))
    got: list[Any] = []
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    source_client = cluster.clients[source]
    source_client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[(source + 1) % 3])
    try:
        # The other node doesn't know that it gets the slot, and redirects back.
        with pytest.raises(fastresp.TransportError, match="moved to another node and back"):
            got.extend(fastresp.iter_replies(rows(), "INCR n:{0}", server=cluster.url, timeout=1))
        for node in cluster.nodes:
            with pytest.raises(fastresp.TransportError, match=r"node and back|redirected for 1 s"):
                fastresp.execute("GET", "n:7", server=node.url, timeout=1)
    finally:
        source_client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    assert got == [1] * 7


@pytest.mark.slow
def test_slot_that_moves_back(cluster: LocalCluster) -> None:
    """No command runs before an earlier one of its key."""
    moved = []

    def move() -> None:
        slot = slot_of(cluster, "n:7")
        if not moved:
            moved.append(next(number for number in range(3) if cluster.serves(number, slot)))
            cluster.move_slot(slot, (moved[0] + 1) % 3)
        else:
            cluster.move_slot(slot, moved.pop())

    for _ in range(5):
        cluster.empty()
        got: list[Any] = []
        moments = frozenset((ROWS // 2, ROWS // 2 + 20_000))
        failure = ""
        try:
            got.extend(fastresp.iter_replies(rows(move, moments), "INCR n:{0}", server=cluster.url))
        except fastresp.TransportError as error:
            failure = str(error)
        assert len(got) == ROWS or "and back while its commands" in failure
        assert got == [1 + i // KEYS for i in range(len(got))]
