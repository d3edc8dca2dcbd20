"""Checkpoints of clusters when something happens between two steps of a load."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import preloaded
import pytest
import redis
from local_cluster import LocalCluster
from resumed_loads import NAME, check_lists, failing, restart
from server_programs import need

import fastresp
from fastresp.load.checkpoint import feature
from fastresp.load.checkpoint.checkpoint import StoredCheckpoint
from fastresp.resp.slots import SLOTS, tags
from fastresp.server.options import grouped
from fastresp.server.preflight import Requirements
from fastresp.server.settings import as_server
from fastresp.sources.chunks import Chunks

PUSH = "RPUSH list:{0} {1}"
COUNT, KEYS = 12_000, 1_000
ROWS = [(number % KEYS, number) for number in range(COUNT)]
OPTIONS: dict[str, Any] = {"checkpoint": NAME, "source_id": "numbers", "resume": True}
# It freezes itself when it is about to set all markers: at its first level, or at its end.
FROZEN = f"""
import os
import signal
import sys
import time
import fastresp
from fastresp.load.checkpoint import feature
from fastresp.load.checkpoint import markers

feature.DRAINED_S = float(sys.argv[2])
level = markers.Markers.level

def freeze(self, row):
    if row == 0:  # before anything is sent
        return level(self, row)
    markers.Markers.level = level
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return level(self, row)

def rows():
    for number in range({COUNT}):
        if number % 500 == 0:
            time.sleep(0.02)
        yield number % {KEYS}, number

markers.Markers.level = freeze
fastresp.mass_insert(rows(), "{PUSH}", server=sys.argv[1], timeout=10,
                     checkpoint=fastresp.Checkpoint("{NAME}", source_id="numbers"))
"""


def markers(nodes: LocalCluster) -> dict[bytes, bytes]:
    """Return all markers that were set."""
    found: dict[bytes, bytes] = {}
    for client in nodes.clients:
        keys = [*client.scan_iter(f"fastresp:*:{NAME}:row", count=SLOTS)]
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.get(key)
            found.update(zip(keys, pipeline.execute(), strict=True))
    return found


def fail(nodes: LocalCluster, at: int, pause: int = 0, **options: Any) -> None:
    """Load up to a row, until all earlier rows have run."""
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(
            failing(ROWS, at, pause), PUSH, server=nodes.url, **grouped(OPTIONS | options)
        )


def load(nodes: LocalCluster, **options: Any) -> fastresp.Report:
    """Load the remaining rows."""
    return fastresp.mass_insert(iter(ROWS), PUSH, server=nodes.url, **grouped(OPTIONS | options))


def test_nodes_have_other_addresses_elsewhere(cluster: LocalCluster) -> None:
    """As behind NAT: the first loader's connections are found by the nodes' run IDs."""
    first, second = (
        StoredCheckpoint(as_server(cluster.url, Requirements(nodes=True)), NAME, 10) for _ in "ab"
    )
    for each in (first, second):
        each.open(1, batched=True)
    first.claim({"source": "a"}, fastresp.Checkpoint(NAME, resume=True))
    key = f"fastresp:{{{NAME}}}"
    home = cluster.client_of(key)
    clients = [["127.0.0.1:1", run, ids] for _, run, ids in json.loads(home.hget(key, "clients"))]
    home.hset(key, "clients", json.dumps(clients))
    second.claim({"source": "a"}, fastresp.Checkpoint(NAME, resume=True, take_over=True))
    left = [each for client in cluster.clients for each in client.client_list(_type="normal")]
    assert sum(each["name"] == f"fastresp:{NAME}" for each in left) == len(clients)
    for each in (first, second):
        each.close()


def test_periodic_update_never_sets_a_marker_back(
    cluster: LocalCluster, cluster_client: redis.RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that lost its data makes a load restart at row 0; the other markers are ahead."""
    fail(cluster, 9_000)
    home = cluster.client_of(f"fastresp:{{{NAME}}}")
    next(client for client in cluster.clients if client is not home).flushall()
    monkeypatch.setattr(feature, "DRAINED_S", 0.0)
    fail(cluster, 6_000, pause=3_000)
    monkeypatch.undo()
    rows = [int(value.partition(b":")[2]) for value in markers(cluster).values()]
    assert len(rows) == SLOTS
    assert 0 < min(rows) < 6_000
    assert max(rows) == 9_000
    load(cluster)
    check_lists(cluster_client, KEYS, COUNT)


@pytest.mark.parametrize("template", [PUSH, "SET string:{0} {1}"])
def test_lost_marker(
    cluster: LocalCluster, cluster_client: redis.RedisCluster, template: str
) -> None:
    """The node was not restarted, so rows of this slot would run twice."""
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing(ROWS, 9_000), template, server=cluster.url, **grouped(OPTIONS))
    name = template.split()[1].format(7)
    tag = tags()[cluster_client.keyslot(name)]
    cluster_client.delete(f"fastresp:{{{tag.decode()}}}:{NAME}:row")
    for _ in range(2):
        with pytest.raises(fastresp.CheckpointError, match=f"{tag.decode()}.*is missing"):
            fastresp.mass_insert(iter(ROWS), template, server=cluster.url, **grouped(OPTIONS))
    report = fastresp.mass_insert(
        iter(ROWS),
        template,
        server=cluster.url,
        **grouped(OPTIONS | {"checkpoint_clear": True, "resume": False}),
    )
    assert (report.rows, report.resumed_at) == (COUNT, 0)


@pytest.mark.few(0)
@pytest.mark.parametrize("levelled_s", [0.1, 1_000])
def test_frozen_before_it_sets_the_markers(cluster: LocalCluster, levelled_s: float) -> None:
    """Another loader has started over meanwhile; the first leaves its markers alone."""
    with preloaded.Popen(
        [sys.executable, "-c", FROZEN, cluster.url, str(levelled_s)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "frozen\n"
        try:
            fail(cluster, 9_000, take_over=True, checkpoint_clear=True, resume=False)
            before = markers(cluster)
        finally:
            first.send_signal(signal.SIGCONT)
        printed, _ = first.communicate(timeout=60)
    assert first.returncode != 0
    assert markers(cluster) == before
    assert "CheckpointError" in printed, printed


@pytest.mark.slow
def test_lost_description(cluster: LocalCluster, cluster_client: redis.RedisCluster) -> None:
    """As after the loss of the node that stores it: the other nodes' markers still exist."""
    fail(cluster, 9_000)
    cluster_client.delete(f"fastresp:{{{NAME}}}")
    with pytest.raises(
        fastresp.CheckpointError, match=r"description of checkpoint .* is gone.*clear=True"
    ):
        load(cluster)
    check_lists(cluster_client, KEYS, 9_000)
    for key in range(KEYS):
        cluster_client.delete(f"list:{key}")
    assert load(cluster, checkpoint_clear=True, resume=False).rows == COUNT
    check_lists(cluster_client, KEYS, COUNT)


def test_command_for_all_nodes_is_refused(cluster: LocalCluster) -> None:
    """It has no slot, so it has no marker."""
    with pytest.raises(fastresp.FastrespError) as caught:
        fastresp.mass_insert(
            [("return 1",)], "SCRIPT LOAD {0}", server=cluster.url, checkpoint=NAME
        )
    assert "SCRIPT" in str(caught.value)
    assert not cluster.clients[0].script_exists("e0e1f9fabfc9d4800c877a703b823ac0578ff8db")[0]


def test_markers_after_a_refused_row_of_two_slots(
    cluster: LocalCluster, cluster_client: redis.RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused row and later rows were not sent, although the source has yielded them."""
    template = "EVAL \"redis.call('RPUSH', KEYS[1], ARGV[1])\" 2 {0} {1} {2}"
    rows = [(f"list:{key}", f"list:{key}", number) for key, number in ROWS]
    options = OPTIONS | {"server": cluster.url}
    broken = list(rows)
    broken[6_000] = ("list:0", "list:1", 6_000)
    monkeypatch.setattr(feature, "DRAINED_S", 0.0)
    with pytest.raises(fastresp.FastrespError, match="slots"):
        fastresp.mass_insert(iter(broken), template, **grouped(options))
    monkeypatch.undo()
    fastresp.mass_insert(iter(rows), template, **grouped(options))
    check_lists(cluster_client, KEYS, COUNT)


@pytest.fixture(scope="module")
def killed() -> Iterator[LocalCluster]:
    """A cluster whose nodes are killed."""
    need("server")
    with LocalCluster() as cluster:
        yield cluster


class TestNodeIsRestarted:
    """One node loses the writes since its last save."""

    @pytest.fixture
    def nodes(self, killed: LocalCluster) -> LocalCluster:
        killed.empty()
        return killed

    def node(self, nodes: LocalCluster, home: bool) -> int:
        """Return the number of the node with the description, or of another node."""
        client = nodes.client_of(f"fastresp:{{{NAME}}}")
        return (nodes.clients.index(client) + (not home)) % 3

    def restart(
        self, nodes: LocalCluster, number: int, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        restart(nodes.nodes[number], meanwhile)
        nodes.until(lambda client: nodes.state(client, "cluster_state") == "ok")

    def check(self, nodes: LocalCluster) -> None:
        with redis.RedisCluster("127.0.0.1", nodes.ports[0]) as client:
            check_lists(client, KEYS, COUNT)

    @pytest.mark.slow
    def test_after_the_end(self, nodes: LocalCluster) -> None:
        """Lost rows are loaded again, although the description says that all were loaded."""
        other = self.node(nodes, home=False)
        fail(nodes, 9_000)
        nodes.clients[other].save()
        load(nodes)
        assert load(nodes).rows == 0
        self.restart(nodes, other)
        report = load(nodes)
        assert 0 < report.replies < COUNT - 9_000
        self.check(nodes)
        assert load(nodes).rows == 0

    @pytest.mark.slow
    def test_with_half_a_transaction_on_its_disk(self) -> None:
        """Another node recorded the end; the missing rows are loaded again."""
        need("server")
        appended = ("--appendonly", "yes", "--appendfsync", "always")
        with LocalCluster(2, options=lambda port: appended) as nodes:
            home = nodes.clients.index(nodes.client_of(f"fastresp:{{{NAME}}}"))
            other = 1 - home
            place = nodes.nodes[other].folder

            def cut() -> None:
                [file] = [*place.glob("appendonlydir/*.incr.aof")] or [place / "appendonly.aof"]
                content = file.read_bytes()
                file.write_bytes(content[: content.rindex(b"list:")])

            load(nodes)
            self.restart(nodes, other, cut)
            assert load(nodes).replies > 0
            self.restart(nodes, other)
            self.check(nodes)

    @pytest.mark.few(0)
    @pytest.mark.parametrize("home", [False, True])
    def test_after_its_markers_were_read(
        self, nodes: LocalCluster, monkeypatch: pytest.MonkeyPatch, home: bool
    ) -> None:
        """Nothing is sent, as the node no longer has the rows that its markers record."""
        number = self.node(nodes, home=home)
        fail(nodes, 6_000)
        nodes.clients[number].save()
        fail(nodes, 9_000)
        before: Callable[[Chunks], Any] = Chunks.open

        def open_late(chunks: Chunks) -> Any:
            self.restart(nodes, number)
            return before(chunks)

        monkeypatch.setattr(Chunks, "open", open_late)
        with pytest.raises(fastresp.CheckpointError, match="was restarted"):
            load(nodes)
        monkeypatch.undo()
        with redis.RedisCluster("127.0.0.1", nodes.ports[0]) as client:
            lengths = [client.llen(f"list:{key}") for key in range(KEYS)]
        assert sorted(set(lengths)) == [6, 9]
        load(nodes)
        self.check(nodes)


@pytest.mark.slow
def test_another_primary() -> None:
    """The load ends immediately: a take-over could not close connections to a new node."""
    with LocalCluster(3, 1) as nodes:

        def rows() -> Iterator[Any]:
            for number, row in enumerate(ROWS):
                if number == COUNT // 2:
                    nodes.take_over()
                yield row

        template = "HSET hash:{0} {1} {1}"
        with pytest.raises(fastresp.TransportError, match="has become a primary since the load"):
            fastresp.mass_insert(rows(), template, server=nodes.url, **grouped(OPTIONS))
        report = fastresp.mass_insert(iter(ROWS), template, server=nodes.url, **grouped(OPTIONS))
        assert report.failed == report.in_doubt == 0
        with redis.RedisCluster.from_url(nodes.url) as client:
            assert sum(client.hlen(f"hash:{key}") for key in range(KEYS)) == COUNT
