"""copy() from and to clusters."""

from __future__ import annotations

import threading
import time

import pytest
import redis
from every_encoding import contents, differences, fill
from local_cluster import LocalCluster
from waiting import until

import fastresp


def test_to_a_cluster_and_back(cluster: LocalCluster, client: redis.Redis) -> None:
    fill(client)
    client.mset({f"key:{number}": number for number in range(2000)})
    expected = contents(client)
    report = fastresp.copy(client, cluster.url, connections=2)
    assert (report.replies, report.failed) == (len(expected), 0)
    assert min(cluster.sizes()) > 0
    report = fastresp.copy(client, cluster.url, exists="replace", changed=True)
    assert report.rows + report.unchanged == len(expected)
    assert report.rows < 20  # large sets and hashes are in another order
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as nodes:
        nodes.mset_nonatomic({f"gone:{number}": 1 for number in range(50)})
    report = fastresp.copy(client, cluster.url, exists="skip", delete=True)
    assert (report.deleted, sum(cluster.sizes())) == (50, len(expected))
    client.flushall()
    other_node = cluster.url_of(cluster.ports[1])
    with pytest.raises(ValueError, match="the same database"):
        fastresp.copy(cluster.url, other_node)
    report = fastresp.copy(cluster.url, client)
    assert report.replies == len(expected)
    assert differences(contents(client), expected) == []


@pytest.mark.few(1)
def test_snapshots_of_all_nodes(cluster: LocalCluster, client: redis.Redis) -> None:
    fill(client)
    expected = contents(client)
    fastresp.copy(client, cluster.url)
    client.flushall()
    report = fastresp.copy(cluster.url, client, from_replica=True, verify=True)
    assert report.verification.same
    assert report.rows == len(expected)
    assert differences(expected, contents(client)) == []
    assert fastresp.copy(cluster.url, client, from_replica=True, exists="skip", match="x*").rows < 9
    with pytest.raises(fastresp.SourceError, match="can't be followed; leave out follow"):
        fastresp.copy(cluster.url, client, from_replica=True, follow=True)
    # A node sees the end of its connection only after the copy.
    for node in cluster.clients:
        until(lambda node=node: not node.info("replication")["connected_slaves"])


@pytest.mark.few(1)
def test_snapshots_while_slots_move(cluster: LocalCluster, client: redis.Redis) -> None:
    fastresp.mass_insert(range(1000), "SET {0} {0}", cluster.url)
    slot = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", "x")
    owner = slot * cluster.primaries // 16384
    other = (owner + 1) % cluster.primaries
    ids = [each.execute_command("CLUSTER", "MYID") for each in cluster.clients]
    importing = cluster.clients[other]
    importing.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner])
    try:
        with pytest.raises(fastresp.SourceError, match="moved while its nodes began"):
            fastresp.copy(cluster.url, client, from_replica=True)
        assert client.dbsize() == 0
    finally:
        importing.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    assert fastresp.copy(cluster.url, client, from_replica=True).rows == 1000


@pytest.mark.few(1)
def test_following(cluster: LocalCluster, client: redis.Redis) -> None:
    """Commands over several keys, and transactions, are applied key by key."""
    client.config_set("repl-diskless-sync-delay", 0)
    client.config_set("repl-ping-replica-period", 1)
    keys = [f"key:{number}" for number in range(100)]
    pinged = time.monotonic() + 2.5  # the source has sent PING at least once

    def show(report: fastresp.Report) -> None:
        if report.followed < 1:
            client.mset(dict.fromkeys(keys, 1))
            client.delete(*keys[:10])
            pipeline = client.pipeline()
            for key in keys[10:]:
                pipeline.incr(key).append(f"text:{key}", "a")
            pipeline.execute()
        elif time.monotonic() > pinged and report.lag_bytes == 0:
            raise KeyboardInterrupt

    client.set("before", 1)
    report = fastresp.copy(client, cluster.url, from_replica=True, follow=True, progress=show)
    assert report.followed > 200
    expected = contents(client)
    client.flushall()
    fastresp.copy(cluster.url, client)
    assert differences(contents(client), expected) == []


@pytest.mark.few(1)
def test_following_a_command_over_several_slots(cluster: LocalCluster, client: redis.Redis) -> None:
    client.config_set("repl-diskless-sync-delay", 0)

    def show(report: fastresp.Report) -> None:
        if report.offset is not None and not client.exists("b"):
            client.mset({"a": 1, "b": 2, "{a}b": 3})
            client.rename("{a}b", "{a}c")
            client.rename("a", "b")

    expected = (
        r"the source ran RENAME before replication offset \d.*several slots.*empty the target"
    )
    with pytest.raises(fastresp.SourceError, match=expected):
        fastresp.copy(client, cluster.url, from_replica=True, follow=True, progress=show)
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as copied:
        assert copied.mget_nonatomic("a", "b", "{a}c") == [b"1", b"2", b"3"]


@pytest.mark.slow
def test_to_another_cluster_while_slots_move(cluster: LocalCluster) -> None:
    """Slots of both clusters move; every key arrives."""
    keys = 20_000
    fastresp.mass_insert(
        (("HSET", f"key:{number}", "a", number) for number in range(keys)), server=cluster.url
    )
    with LocalCluster(2) as other:

        def move() -> None:
            for slot in range(60):
                cluster.move_slot(slot, 1, keys_at_once=1, pause=0.02)
                other.move_slot(slot, 1, keys_at_once=1, pause=0.02)

        moving = threading.Thread(target=move)

        def start(report: fastresp.Report) -> None:
            if report.rows and not moving.ident:
                moving.start()

        report = fastresp.copy(
            cluster.url, other.url, exists="replace", rate_limit=10_000, progress=start
        )
        assert moving.ident
        moving.join()
        assert report.failed == 0
        assert sum(other.sizes()) == keys
        with redis.RedisCluster("127.0.0.1", other.ports[0]) as client:
            assert client.hget("key:77", "a") == b"77"


@pytest.mark.slow
def test_checkpoint_of_a_cluster(
    cluster: LocalCluster, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is stopped resumes, even if slots moved in between."""
    monkeypatch.setattr("fastresp.load.copying.stored_copy.SAVE_S", 0)
    keys = {f"key:{number}": number for number in range(60_000)}
    fastresp.mass_insert((("SET", *pair) for pair in keys.items()), server=cluster.url)

    def stop(report: fastresp.Report) -> None:
        if report.rows > 30_000:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fastresp.copy(
            cluster.url, client, checkpoint="moved", exists="skip", progress=stop, rate_limit="2MB"
        )
    first = client.dbsize()
    for slot in (0, 1, 16_000):
        cluster.move_slot(slot, 1)
    again = fastresp.Checkpoint("moved", resume=True)
    report = fastresp.copy(cluster.url, client, checkpoint=again, exists="skip")
    assert report.rows < len(keys) - first + 10_000
    client.delete("fastresp:{moved}:copy")
    assert client.dbsize() == len(keys)
