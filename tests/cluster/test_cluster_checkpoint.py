"""Checkpoints of loads into a cluster: each slot has a marker, beside its data."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import preloaded
import pytest
import redis
from cluster_events import Events
from loads import Insert
from local_cluster import LocalCluster
from resumed_loads import NAME, failing
from server_programs import WHEEL_SERVERS, located, need
from waiting import until

import fastresp
from fastresp.load.checkpoint import feature
from fastresp.resp.slots import SLOTS, tags
from fastresp.server.options import Checkpoint, grouped

PUSH = "RPUSH list:{0} {1}"
COUNT = 60_000
ROWS = [(number % 3_000, number) for number in range(COUNT)]
LOADER = """
import sys
import fastresp
url, template, keys, count, rate = sys.argv[1:]
rows = [(i % int(keys), i) for i in range(int(count))]
print(fastresp.mass_insert(rows, template, server=url,
                           checkpoint=fastresp.Checkpoint("jobs", resume=True),
                           rate_limit=float(rate) or None, timeout=10))
"""


def stored(client: Any, key: str) -> Any:
    kind = client.type(key)
    if kind == b"list":
        return [int(item) for item in client.lrange(key, 0, -1)]
    if kind == b"stream":
        return [int(fields[b"n"]) for _, fields in client.xrange(key)]
    if kind == b"hash":
        return sorted(int(field) for field in client.hkeys(key))
    return int(client.get(key) or 0)


def check(client: Any, template: str = PUSH, keys: int = 3_000, count: int = COUNT) -> None:
    """Check that all rows ran once, and the rows of each key in order."""
    for key in range(keys):
        numbers = [*range(key, count, keys)]
        found = stored(client, template.split()[1].replace("{0}", str(key)))
        assert found in (numbers, sum(numbers)), key


def markers(client: Any, nodes: LocalCluster) -> dict[bytes, bytes]:
    """Return all markers that were set."""
    keys = [key for each in nodes.clients[:3] for key in each.scan_iter(f"fastresp:*:{NAME}:row")]
    return {key: client.get(key) for key in keys}


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("connections", [1, 2])
def test_resumes_after_the_source_has_failed(
    insert_singly: Insert,
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    mode: str,
    connections: int,
) -> None:
    options: dict[str, Any] = {
        "server": cluster.url, "checkpoint": NAME, "source_id": "numbers", "mode": mode,
        "connections": connections, "resume": True,
    }  # fmt: skip
    replies = 0
    for at in (1, 4_999, 12_345, 12_345, 45_000):
        with pytest.raises(OSError, match="the source has failed") as caught:
            insert_singly(failing(ROWS, at), PUSH, **grouped(options))
        replies += caught.value.report.replies  # type: ignore[attr-defined]
        assert replies == at
    report = insert_singly(iter(ROWS), PUSH, **grouped(options))
    assert (report.rows, report.replies) == (COUNT - 45_000, COUNT - 45_000)
    check(cluster_client)
    report = insert_singly(iter(ROWS), PUSH, **grouped(options))
    assert (report.rows, report.commands, report.resumed_at) == (0, 0, COUNT)
    check(cluster_client)


@pytest.mark.few(0)
@pytest.mark.parametrize("template", [PUSH, "HSET hash:{0} {1} x"])
def test_all_markers_are_set_periodically(
    cluster: LocalCluster,
    cluster_client: redis.RedisCluster,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
) -> None:
    """A resumed load doesn't restart at the first row, even if some slots have no keys."""
    monkeypatch.setattr(feature, "DRAINED_S", 0.0)
    options: dict[str, Any] = {
        "server": cluster.url, "checkpoint": NAME, "source_id": "numbers", "resume": True,
    }  # fmt: skip
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing(ROWS, 40_000, 25_000), template, **grouped(options))
    monkeypatch.undo()
    found = markers(cluster_client, cluster)
    assert len(found) == SLOTS
    reached = min(int(value.partition(b":")[2]) for value in found.values())
    assert 0 < reached < 40_000
    report = fastresp.mass_insert(iter(ROWS), template, **grouped(options))
    assert report.resumed_at == reached
    assert report.rows == COUNT - (40_000 if template == PUSH else reached)
    check(cluster_client, template)


def test_markers_are_in_their_slots() -> None:
    from redis.crc import key_slot

    for slot, tag in enumerate(tags()):
        assert key_slot(b"fastresp:{%s}:x:row" % tag) == slot


@pytest.mark.slow
def test_new_load_ignores_old_markers(
    cluster: LocalCluster, cluster_client: redis.RedisCluster
) -> None:
    """Markers of a forgotten load are not counted."""
    options: dict[str, Any] = {"server": cluster.url, "checkpoint": NAME}
    fastresp.mass_insert(ROWS, PUSH, **grouped(options))
    with pytest.raises(fastresp.CheckpointError, match="ended at row 60,000"):
        fastresp.mass_insert(ROWS, PUSH, **grouped(options))
    for key in range(3_000):
        cluster_client.delete(f"list:{key}")
    report = fastresp.mass_insert(ROWS, PUSH, **grouped(options | {"checkpoint_clear": True}))
    assert report.rows == COUNT
    check(cluster_client)


def test_one_server_and_a_cluster(cluster: LocalCluster) -> None:
    options: dict[str, Any] = {"server": cluster.url, "checkpoint": NAME}
    fastresp.mass_insert(ROWS, PUSH, **grouped(options))
    with redis.Redis.from_url(cluster.url) as client, suppress(redis.ResponseError):
        client.get("x")
    with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as client:
        client.hset(f"fastresp:{{{NAME}}}", "kind of markers", "one")
    with pytest.raises(fastresp.CheckpointError, match="another load: kind of markers was 'one'"):
        fastresp.mass_insert(ROWS, PUSH, **grouped(options | {"resume": True}))


class TestTwoLoaders:
    def start(self, cluster: LocalCluster) -> subprocess.Popen[str]:
        return preloaded.Popen(
            [sys.executable, "-c", LOADER, cluster.url, PUSH, "3000", str(COUNT), "20000"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def wait_for_rows(self, cluster: LocalCluster, loader: subprocess.Popen[str]) -> None:
        until(lambda: loader.poll() is not None or sum(cluster.sizes()) >= SLOTS + 2_000)

    def load(self, cluster: LocalCluster, **options: Any) -> fastresp.Report:
        return fastresp.mass_insert(
            ROWS,
            PUSH,
            server=cluster.url,
            **grouped({"checkpoint": NAME, "resume": True} | options),
        )

    @pytest.mark.slow
    def test_second_is_refused(
        self, cluster: LocalCluster, cluster_client: redis.RedisCluster
    ) -> None:
        with self.start(cluster) as first:
            self.wait_for_rows(cluster, first)
            with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                self.load(cluster)
            printed, _ = first.communicate(timeout=60)
        assert first.returncode == 0, printed
        check(cluster_client)

    @pytest.mark.slow
    def test_second_takes_over(
        self, cluster: LocalCluster, cluster_client: redis.RedisCluster
    ) -> None:
        """The first loader is frozen; commands it sent that have not run never run."""
        with self.start(cluster) as first:
            self.wait_for_rows(cluster, first)
            first.send_signal(signal.SIGSTOP)
            report = self.load(cluster, take_over=True)
            first.send_signal(signal.SIGCONT)
            printed, _ = first.communicate(timeout=60)
        assert first.returncode != 0
        assert "lost the connection" in printed or "has taken over" in printed
        assert 0 < report.rows < COUNT
        check(cluster_client)

    @pytest.mark.slow
    def test_first_is_killed(
        self, cluster: LocalCluster, cluster_client: redis.RedisCluster
    ) -> None:
        for _ in range(3):
            with self.start(cluster) as loader:
                self.wait_for_rows(cluster, loader)
                loader.kill()
        report = self.load(cluster)
        assert 0 < report.rows < COUNT
        check(cluster_client)


def until_done(events: Events, template: str, rows: list[Any], happenings: threading.Thread) -> int:
    """Load, and resume until all is loaded; return how many loads ended early."""
    ended_early = 0
    while True:
        try:
            fastresp.mass_insert(
                rows, template, server=events.cluster.url_of(random.choice(events.cluster.ports)),
                checkpoint=Checkpoint(NAME, resume=True), timeout=10,
                rate_limit=15_000 if happenings.is_alive() else None,
            )  # fmt: skip
        except (fastresp.TransportError, fastresp.CheckpointError):
            ended_early += 1
            time.sleep(0.1)
        else:
            return ended_early
        if events.failed:
            raise events.failed[0]


TEMPLATES = [
    (PUSH, 50), (PUSH, 5_000), ("INCRBY sum:{0} {1}", 500), ("XADD stream:{0} * n {1}", 500),
    ("HSET hash:{0} {1} x", 5_000),
]  # fmt: skip
SEEDED = [(seed, *each) for seed, each in enumerate(TEMPLATES)]


def random_events(seed: int, template: str, keys: int, kinds: list[str]) -> None:
    need("server")
    program = located("valkey-9.1", WHEEL_SERVERS) if seed % 2 else None
    rows = [(number % keys, number) for number in range(200_000)]
    with LocalCluster(3, 1, program=program) as cluster:
        name = template.split()[1].replace("{0}", "{}")
        client = cluster.clients[0]
        slots = [
            client.execute_command("CLUSTER", "KEYSLOT", name.format(key)) for key in range(keys)
        ]
        events = Events(cluster, seed, slots)
        events.random.shuffle(kinds)
        happening: Callable[[], object] = lambda: [events._happen(kind) for kind in kinds]  # noqa: E731
        happenings = threading.Thread(target=happening)
        happenings.start()
        try:
            ended_early = until_done(events, template, rows, happenings)
        finally:
            happenings.join()
        assert not events.failed
        assert sorted(events.done) == sorted(kinds)
        assert ended_early > 0
        with redis.RedisCluster("127.0.0.1", cluster.ports[0]) as everyone:
            check(everyone, template, keys, len(rows))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "template", "keys"), SEEDED)
def test_random_events(seed: int, template: str, keys: int) -> None:
    """Replicas that lag behind take over, slots are moved: every row runs exactly once."""
    random_events(seed, template, keys, ["move", "kill", "reshard", "freeze"])


@pytest.mark.long
@pytest.mark.parametrize(("seed", "template", "keys"), SEEDED)
def test_many_random_events(seed: int, template: str, keys: int) -> None:
    random_events(10 + seed, template, keys, ["move", "kill", "reshard", "fail_over", "freeze"] * 3)
