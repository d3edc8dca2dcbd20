"""``mirror`` in a cluster: keys are deleted on each node."""

from __future__ import annotations

import redis
from loads import Insert
from local_cluster import LocalCluster

import fastresp


def test_mirrored(
    insert: Insert, cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    rows = [{"id": n, "name": f"name {n}", "city": "Bern"} for n in range(600)]
    insert(rows, "HSET user:{id} {**}", server=cluster.url)
    cluster_client.set("other", "stays")
    rows = [{"id": n, "name": f"name {n}"} for n in range(300)]
    mirror = fastresp.Mirror("user:*", limit="100%")
    report = insert(rows, "HSET user:{id} {**}", server=cluster.url, mirror=mirror)
    assert (report.deleted, report.deleted_fields) == (300, 300)
    keys = {key for client in cluster.clients for key in client.scan_iter(count=1000)}
    assert keys == {b"other", *(b"user:%d" % n for n in range(300))}
    assert fastresp.verify(
        rows, "HSET user:{id} {**}", cluster.url, exact=True, mirror="user:*"
    ).same
