"""Keys that leave a node before it listed them are found on their new node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from local_cluster import LocalCluster

import fastresp
from fastresp.replies.scan import Scan
from fastresp.resp.slots import SLOTS
from fastresp.server.cluster import NodeSlots, node_slots_of
from fastresp.server.preflight import Requirements
from fastresp.server.settings import Server

# Keys of one slot among others of all nodes; each node lists them in several pages.
OTHERS, MOVED = 30_000, 4_000
EXPECTED = {f"key:{number}" for number in range(OTHERS)} | {f"{{a}}:{n}" for n in range(MOVED)}

Move = Callable[[LocalCluster, int], None]


def start_moving(cluster: LocalCluster, slot: int, source: int, target: int) -> None:
    """Move the first keys of a slot, and leave it half moved."""
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in cluster.clients]
    here, there = cluster.clients[source], cluster.clients[target]
    there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    keys = here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, MOVED // 2)
    port = cluster.ports[target]
    here.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)


def owner(cluster: LocalCluster, slot: int) -> int:
    return next(each for each in range(cluster.primaries) if cluster.serves(each, slot))


def moved(cluster: LocalCluster, slot: int) -> None:
    cluster.move_slot(slot, (owner(cluster, slot) + 1) % cluster.primaries, keys_at_once=1000)


def moved_twice(cluster: LocalCluster, slot: int) -> None:
    moved(cluster, slot)
    moved(cluster, slot)


def half_moved(cluster: LocalCluster, slot: int) -> None:
    source = owner(cluster, slot)
    start_moving(cluster, slot, source, (source + 1) % cluster.primaries)


def found(cluster: LocalCluster, move: Callable[[], None], slots: range | None = None) -> list[str]:
    """Return the keys found while keys are moved, after the first page of each node."""
    keys: list[str] = []
    scan = Scan(Server(cluster.url, Requirements(reading=True, nodes=True)), 30, "*", slots=slots)
    for number, page in enumerate(scan.pages()):
        if number == cluster.primaries:
            move()
        keys += map(bytes.decode, page)
    return keys


def load(cluster: LocalCluster) -> int:
    """Store the keys; return the moving keys' slot."""
    fastresp.mass_insert(([key] for key in EXPECTED), "SET {0} 1", server=cluster.url)
    slot: int = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "{a}")
    return slot


@pytest.mark.few(1)
@pytest.mark.parametrize("slots", [None, range(8000, SLOTS)], ids=["all", "some"])
@pytest.mark.parametrize("move", [moved, moved_twice, half_moved])
def test_all_keys_are_found(move: Move, slots: range | None) -> None:
    with LocalCluster() as cluster:
        slot = load(cluster)
        keys = found(cluster, lambda: move(cluster, slot), slots)
        wanted = EXPECTED
        if slots is not None:
            assert slot in slots
            of = cluster.clients[0].execute_command
            wanted = {key for key in EXPECTED if of("CLUSTER", "KEYSLOT", key) in slots}
        assert set(keys) == wanted
        # Only keys of the moved slot may be returned twice.
        assert len(keys) <= len(wanted) + 2 * MOVED


@pytest.mark.few(1)
@pytest.mark.parametrize("whole", [False, True])
def test_node_without_slots_receives_some(whole: bool) -> None:
    with LocalCluster() as cluster, LocalCluster(1) as other:
        everyone = cluster.joined_by(other)
        slot = load(cluster)
        source = owner(cluster, slot)

        def move() -> None:
            if whole:
                everyone.move_slot_between(slot, source, 3, [0, 1, 2, 3], keys_at_once=1000)
            else:
                start_moving(everyone, slot, source, 3)

        assert set(found(cluster, move)) == EXPECTED


def test_user_without_cluster_nodes() -> None:
    """Keys that don't move are found."""
    with LocalCluster() as cluster:
        load(cluster)
        for client in cluster.clients:
            client.execute_command(
                "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection",
                "+cluster|slots", "+command", "+info",
            )  # fmt: skip
        server = Server(
            f"{cluster.url}?username=reader&password=secret", Requirements(reading=True, nodes=True)
        )
        keys = [key.decode() for page in Scan(server, 30, "*").pages() for key in page]
        assert sorted(keys) == sorted(EXPECTED)


def test_slots_without_an_owner() -> None:
    with LocalCluster() as cluster:
        slot = load(cluster)

        def remove() -> None:
            for client in cluster.clients:
                client.execute_command("CLUSTER", "DELSLOTS", slot)

        scan = Scan(Server(cluster.url, Requirements(reading=True, nodes=True)), 1, "*")
        pages = scan.pages()
        next(pages)
        remove()
        words = rf"slots {slot:,} have left .*; no node serves .* after 1 s: no node reports that"
        with pytest.raises(fastresp.TransportError, match=words):
            list(pages)


def test_each_search_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for searches that find no owner for some slots."""
    sleep, opened = time.sleep, []

    def count(seconds: float) -> None:
        opened.append(len(scan._connections))
        sleep(seconds)

    with LocalCluster() as cluster:
        slot = load(cluster)
        source = owner(cluster, slot)
        other = slot + 1 if cluster.serves(source, slot + 1) else slot - 1
        scan = Scan(Server(cluster.url, Requirements(reading=True, nodes=True)), 2, "*")
        pages = scan.pages()
        next(pages)
        moved(cluster, slot)
        for client in cluster.clients:
            client.execute_command("CLUSTER", "DELSLOTS", other)
        monkeypatch.setattr(time, "sleep", count)
        with pytest.raises(fastresp.TransportError, match="no node reports that it has them"):
            list(pages)
        assert len(opened) > 2
        assert {*opened} == {cluster.primaries}


NODES = """\
{a} 127.0.0.1:7000@17000,,shard-id={b} myself,master - 0 0 1 connected 0-5 9 [7->-{b}] [8-<-{c}]
{b} {address} master - 0 0 2 connected 10-16383
{c} :7002@17002 master - 0 0 3 connected
"""


@pytest.mark.parametrize(
    ("address", "to"),
    [
        ("10.0.0.1:7001@17001", [("10.0.0.1", 7001)]),
        ("10.0.0.1:7001@17001,node-b.example", [("10.0.0.1", 7001)]),
        ("10.0.0.1:7001", [("10.0.0.1", 7001)]),
        ("2001:db8::1:7001@17001", [("2001:db8::1", 7001)]),
        (":0@0,,noaddr", []),
        ("10.0.0.1:99999@1", []),
        ("10.0.0.1", []),
    ],
)
def test_reply_of_a_node(address: str, to: list[tuple[str, int]]) -> None:
    text = NODES.format(a="a" * 40, b="b" * 40, c="c" * 40, address=address)
    wanted = NodeSlots(frozenset({0, 1, 2, 3, 4, 5, 9}), frozenset({8}), frozenset({7}), tuple(to))
    assert node_slots_of(text.encode()) == node_slots_of(text) == wanted
    for remapped in node_slots_of(text, lambda node: ("localhost", node[1] + 1)).targets:
        assert remapped == ("localhost", to[0][1] + 1)


def test_wrong_cluster_nodes_reply() -> None:
    """Invalid and repeated slots neither fail nor take long."""
    line = b"a 127.0.0.1:1@2 myself,master - 0 0 1 connected 16380-99999 5-3 99999 [5->-] [x] "
    assert node_slots_of(line + b"0-16383 " * 1_000_000).own == frozenset(range(SLOTS))
    for reply in (None, b"", b"a", b"a b", 7, [b"a"], b"\xff \xff myself"):
        assert node_slots_of(reply) == NodeSlots()


def test_after_a_fork(cluster: LocalCluster) -> None:
    fastresp.mass_insert((("SET", number, 1) for number in range(100)), server=cluster.url)
    pages = Scan(Server(cluster.url, Requirements(reading=True, nodes=True)), 5, "*").pages()
    keys = next(pages)
    child = os.fork()
    if child == 0:
        try:
            list(pages)
        except fastresp.TransportError as error:
            os._exit(0 if "belongs to the parent process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    keys += [key for page in pages for key in page]
    assert len(keys) == 100


def test_slot_that_keeps_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastresp.replies.scan.MAX_RESTARTS", 0)
    with LocalCluster() as cluster:
        slot = load(cluster)
        with pytest.raises(fastresp.TransportError, match="and keep moving"):
            found(cluster, lambda: moved(cluster, slot))
