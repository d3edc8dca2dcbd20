"""Commands that a node refuses for a while are resent: TRYAGAIN, CLUSTERDOWN and LOADING."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis
from cluster_reading import keys_of, until_down
from local_cluster import LocalCluster
from moving_lists import KEY, half_moved, moved_later
from reading import Execute

import fastresp
import fastresp.aio
from fastresp.replies.unresolved import Unresolved
from fastresp.resp.slots import SLOTS, Rules
from fastresp.server.cluster import Topology
from fastresp.transports.resend import PendingCommand

PAIR = f"{KEY}a", f"{KEY}b"
LARGE = 1_000_000


def commands(*others: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Yield commands of the slot, with others between them."""
    return [
        ("SET", PAIR[0], 0),
        *(("SET", f"k{i}", i) for i in range(50)),
        ("MSET", PAIR[0], 1, PAIR[1], 1),
        *others,
        *(("INCR", f"k{i}") for i in range(50)),
        ("INCR", f"{KEY}c"),
        ("INCR", f"{KEY}c"),
    ]


OTHERS = [b"OK"] * 51, [*range(1, 51), 1, 2]


def test_keys_at_both_nodes(
    execute: Execute, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """TRYAGAIN is retried, and no command overtakes another."""
    cluster_client.set(PAIR[1], 5)
    with moved_later(cluster):
        # The first key is created at the new node, so that the two keys are on different nodes.
        got = execute(commands(), server=cluster.url)
    assert got == [*OTHERS[0], b"OK", *OTHERS[1]]
    assert cluster_client.mget(*PAIR) == [b"1", b"1"]


def test_key_of_a_later_command(
    execute: Execute, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """Both run in order; if only the later one ran, the other's reply is TRYAGAIN."""
    cluster_client.set(PAIR[1], 5)
    with moved_later(cluster):
        got = execute(commands(("GET", PAIR[0])), server=cluster.url, on_error="collect")
    first = got[51]
    ran = first == b"OK"
    assert got == [*OTHERS[0], first, b"%d" % ran, *OTHERS[1]]
    assert cluster_client.get(PAIR[1]) == (b"1" if ran else b"5")
    if not ran:
        assert (first.code, first.index, first.row) == ("TRYAGAIN", 51, 51)
        assert first.arguments == (b"MSET", PAIR[0].encode(), b"1", PAIR[1].encode(), b"1")


def test_later_command_whose_reply_is_not_read(
    execute: Execute, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """It ran, but large earlier replies wait for the refused command."""
    cluster_client.set(PAIR[1], 5)
    with half_moved(cluster, arrived=False) as complete:
        slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", KEY)
        source = next(number for number in range(3) if cluster.serves(number, slot))
        small, large = keys_of(cluster, source, 2)
        cluster_client.set(large, "x" * LARGE)
        timer = threading.Timer(0.4, complete)
        timer.start()
        # After many small replies, many commands are in flight.
        commands = [("SET", PAIR[0], 0), *[("GET", small)] * 3_000]
        commands += [("MSET", PAIR[0], 1, PAIR[1], 1), *[("GET", large)] * 12, ("GET", PAIR[1])]
        got = execute(commands, server=cluster.url, on_error="collect")
        timer.join()
    first, *between, last = got[3_001:]
    assert [len(reply) for reply in between] == [LARGE] * 12
    assert last == (b"1" if first == b"OK" else b"5")


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_keys_that_stay_apart(
    execute: Execute, cluster: LocalCluster, cluster_client: redis.RedisCluster, on_error: str
) -> None:
    """After the timeout the error names the slot; earlier replies are yielded."""
    cluster_client.set(PAIR[1], 5)
    with half_moved(cluster, arrived=False):
        words = r"commands of slots [\d,]+ were refused for 1 s, the first of row 51;.*TRYAGAIN"
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            execute(commands(), server=cluster.url, timeout=1, on_error=on_error)
    report = caught.value.report
    assert report is not None
    assert report.in_doubt == 0
    assert report.unsent >= 1
    assert report.replies >= 51


@pytest.mark.parametrize("run", ["sync", "asyncio"])
def test_execute(cluster: LocalCluster, cluster_client: redis.RedisCluster, run: str) -> None:
    cluster_client.set(PAIR[1], 5)

    def mget() -> Any:
        if run == "sync":
            return fastresp.execute("MGET", *PAIR, server=cluster.url)
        return asyncio.run(fastresp.aio.execute("MGET", *PAIR, server=cluster.url))

    with moved_later(cluster):
        fastresp.execute("SET", PAIR[0], 1, server=cluster.url)
        assert mget() == [b"1", b"5"]


def test_key_named_twice(
    execute: Execute, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """A resent command may name the same key several times."""
    cluster_client.set(PAIR[1], 5)
    with moved_later(cluster):
        source = [("SET", PAIR[0], 1), ("MGET", *PAIR, *PAIR)]
        assert execute(source, server=cluster.url) == [b"OK", [b"1", b"5"] * 2]


def bring_down(cluster: LocalCluster) -> None:
    """Kill a node, and wait until the others refuse all commands."""
    cluster.nodes[2].process.kill()
    until_down(cluster, cluster.clients[:2])


def bring_up(cluster: LocalCluster) -> None:
    """Let the other nodes run commands on their slots."""
    for client in cluster.clients[:2]:
        client.config_set("cluster-require-full-coverage", "no")


@pytest.mark.few(0)
def test_cluster_that_is_down(execute: Execute) -> None:
    """CLUSTERDOWN is retried up to the timeout; refused commands run once."""
    with LocalCluster() as cluster:
        keys = [key for number in range(2) for key in keys_of(cluster, number, 20)]

        def source() -> Iterator[str]:
            for i in range(20_000):
                if i == 10_000:
                    bring_down(cluster)
                    timer = threading.Timer(0.5, bring_up, (cluster,))
                    timer.start()
                yield keys[i % len(keys)]
            timer.join()

        got = execute(source(), "INCR {0}", server=cluster.url)
        assert got == [1 + i // len(keys) for i in range(20_000)]


@pytest.mark.few(0)
def test_cluster_that_stays_down(execute: Execute) -> None:
    with LocalCluster() as cluster:
        [key] = keys_of(cluster, 0, 1)
        slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", key)
        words = rf"slots {slot:,} were refused for 2 s, the first of row 0;.*CLUSTERDOWN"

        def source() -> Iterator[str]:
            bring_down(cluster)
            yield from [key] * 100

        with pytest.raises(fastresp.TransportError, match=words) as caught:
            execute(source(), "GET {0}", server=cluster.url, timeout=2)
        report = caught.value.report
        assert report is not None
        assert (report.commands, report.replies, report.unsent) == (0, 0, 100)
        with pytest.raises(fastresp.TransportError, match=words):
            fastresp.execute("GET", key, server=cluster.url, timeout=2)


def loading(port: int) -> Sequence[str]:
    """Return options of a node that reads data from disk slowly, and answers meanwhile."""
    return (
        "--enable-debug-command", "yes", "--cluster-node-timeout", "15000",
        "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024",
    )  # fmt: skip


@pytest.mark.few(0)
def test_node_that_loads_its_data(execute: Execute) -> None:
    """LOADING is retried."""
    with LocalCluster(options=loading) as cluster:
        keys = [key for number in range(3) for key in keys_of(cluster, number, 100)]
        fastresp.mass_insert(keys, "SET {0} 7", server=cluster.url)
        reloading = threading.Thread(
            target=cluster.clients[1].execute_command, args=("DEBUG", "RELOAD")
        )

        def source() -> Iterator[str]:
            for i in range(6_000):
                if i == 3_000:
                    reloading.start()
                    time.sleep(0.1)
                yield keys[i % len(keys)]

        assert execute(source(), "GET {0}", server=cluster.url) == [b"7"] * 6_000
        reloading.join()


def refused(place: int, *command: Any) -> PendingCommand:
    return PendingCommand(place, place, fastresp.pack(*command), 0)


class Sent:
    """Records the commands that are resent over a separate connection."""

    waiting = 0

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.expected: dict[int, int] = {}

    def put(self, command: PendingCommand, slot: int, *, asking: bool) -> None:
        assert not asking
        self.expected[command.place] = slot


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        (("GET", "a"), None),
        (("SET", "b", 1), None),
        (("SET", "a", 1), "row 3 was not answered .* a later command with the same key has"),
    ],
)
def test_overtaken_commands(ran: tuple[Any, ...], words: str | None) -> None:
    """A later command of the same key that ran is noticed, unless both only read."""
    unresolved = Unresolved(30.0, Rules(), Sent)
    unresolved.defer(refused(3, "GET", "a"), "lost the connection")
    unresolved.note_run(refused(2, "SET", "a", 1))
    unresolved.note_run(refused(4, *ran))
    if words is None:
        assert unresolved.take_overtaken() == []
        assert unresolved.pause_s() == 0
        assert unresolved.pause_s() > 0
    else:
        with pytest.raises(fastresp.TransportError, match=words):
            unresolved.take_overtaken()


def test_first_command_of_each_slot_is_sent_alone() -> None:
    unresolved = Unresolved(30.0, Rules(), Sent)
    for place in (5, 3, 4):
        unresolved.defer(refused(place, "GET", place), "CLUSTERDOWN", place % 2)
    topology = Topology([("a", 1)], [0] * SLOTS)
    assert unresolved.first == 3
    assert not unresolved.nodes
    unresolved.resend(Topology())  # no node has the slots
    assert not unresolved.nodes
    unresolved.resend(topology)
    sent = unresolved.nodes["a", 1].expected
    assert sent == {3: 1, 4: 0}
    assert (unresolved.unanswered, unresolved.first, bool(unresolved)) == (3, 3, True)
    unresolved.resolve(sent.popitem()[0], 0)
    unresolved.resolve(sent.popitem()[0], 1)
    assert unresolved.first == 5
    unresolved.resend(topology)
    assert sent == {5: 1}
    unresolved.resolve(sent.popitem()[0], 1)
    assert (unresolved.unanswered, unresolved.first, bool(unresolved)) == (0, None, False)
