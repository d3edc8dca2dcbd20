"""``mirror`` with a checkpoint: a resumed load also completes the deletion."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from loads import lost_at
from local_cluster import LocalCluster

import fastresp
from fastresp import Checkpoint, Mirror, mass_insert
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, Misbehaving

WHOLE = "HSET user:{id} {**}"
ALL = Mirror("user:*", limit="100%")
RESUMED = Checkpoint("nightly", resume=True)
OLD = 4000
# Loads a file until the end; prints "go" once it may be killed.
PROGRAM = """
import json, sys
import fastresp
url, path, limit, options = sys.argv[1:]
print("go", flush=True)
report = fastresp.mass_insert(
    path, ["HSET user:{id} {**-id}", "INCRBY count:{id} 1"], url,
    checkpoint=fastresp.Checkpoint("nightly", resume=True),
    mirror=fastresp.Mirror("user:*", limit=limit), **json.loads(options))
print(report)
"""


def users(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}"} for number in numbers]


def write(path: Path, numbers: range) -> Path:
    """Write a CSV file with a user per number."""
    path.write_text("id,name\n" + "".join(f"{n},name {n}\n" for n in numbers))
    return path


def test_limit_with_a_checkpoint(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """The load is complete only after the deletion, which a resumed load repeats."""
    mass_insert(users(*range(10)), WHOLE, server.url)
    path = tmp_path / "users.csv"
    path.write_text("id,name\n1,name 1\n")
    with pytest.raises(fastresp.SourceError, match=r"and resume with .*resume=True"):
        mass_insert(path, WHOLE, server.url, checkpoint="nightly", mirror="user:*")
    resumed = Checkpoint("nightly", resume=True)
    with pytest.raises(fastresp.SourceError, match="9 of the 10 keys"):
        mass_insert(path, WHOLE, server.url, checkpoint=resumed, mirror="user:*")
    report = mass_insert(path, WHOLE, server.url, checkpoint=resumed, mirror=ALL)
    assert (report.commands, report.resumed_at, report.deleted) == (0, 1, 9)
    report = mass_insert(path, WHOLE, server.url, checkpoint=resumed, mirror=ALL)
    assert (report.deleted, "clear the checkpoint" in str(report)) == (0, True)


def test_resumed(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """A resumed load also keeps the keys of the rows that were loaded before."""
    mass_insert(users(*range(12_000)), WHOLE, server.url)
    path = tmp_path / "users.csv"
    path.write_text("id,name\n" + "".join(f"{n},name {n}\n" for n in range(100, 12_000)))
    checkpoint = Checkpoint("nightly", resume=True)

    class Stop(Exception):
        pass

    def stop(report: fastresp.Report) -> None:
        if report.commands > 3_000:
            raise Stop

    with pytest.raises(Stop):
        mass_insert(path, WHOLE, server.url, checkpoint=checkpoint, mirror=ALL, progress=stop)
    assert client.exists("user:1")
    report = mass_insert(path, WHOLE, server.url, checkpoint=checkpoint, mirror=ALL)
    assert report.resumed_at > 0
    assert (report.deleted, report.not_mirrored) == (100, "")
    assert client.dbsize() == 11_900 + 2  # with the checkpoint
    report = mass_insert(path, WHOLE, server.url, checkpoint=checkpoint, mirror=ALL)
    wanted = "the load was complete before; clear the checkpoint to load again"
    assert report.not_mirrored == wanted


def test_resumed_source_that_is_read_once(server: LocalServer, client: redis.Redis) -> None:
    def load(**more: Any) -> fastresp.Report:
        checkpoint = Checkpoint("once", source_id="tonight", **more)
        return mass_insert(iter(users(1, 2)), WHOLE, server.url, checkpoint=checkpoint, mirror=ALL)

    client.set("user:3", "old")
    assert load().deleted == 1
    with pytest.raises(fastresp.CheckpointError, match="the source can be read only once"):
        load(resume=True)


def test_lost_while_deleting(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """The resumed load deletes the rest, and loads nothing."""
    mass_insert(users(*range(100)), WHOLE, server.url)
    path = write(tmp_path / "users.csv", range(1))
    with (
        Misbehaving(lost_at(b"UNLINK", 11), server.url, listen=tmp_path / "proxy") as proxy,
        pytest.raises(fastresp.TransportError) as caught,
    ):
        mass_insert(path, WHOLE, proxy.url, mirror=ALL, timeout=5, checkpoint="nightly")
    assert 0 < caught.value.report.deleted < 99
    report = mass_insert(path, WHOLE, server.url, mirror=ALL, checkpoint=RESUMED)
    assert (report.commands, report.resumed_at, report.not_mirrored) == (0, 1, "")
    assert client.keys("user:*") == [b"user:0"]


def test_taken_over_while_deleting(
    server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """The loader that was taken over does not complete the checkpoint."""
    mass_insert(users(*range(100)), WHOLE, server.url)
    path = write(tmp_path / "users.csv", range(1))
    reports: list[fastresp.Report] = []

    def takes_over(connection: Connection, command: list[bytes], reply: bytes) -> bytes:
        if command[:1] == [b"UNLINK"] and command[1].startswith(b"user:") and not reports:
            again = Checkpoint("nightly", take_over=True)
            reports.append(mass_insert(path, WHOLE, server.url, mirror=ALL, checkpoint=again))
        return reply

    with (
        Misbehaving(takes_over, server.url, listen=tmp_path / "proxy") as proxy,
        pytest.raises(fastresp.CheckpointError, match="taken over"),
    ):
        mass_insert(path, WHOLE, proxy.url, mirror=ALL, checkpoint="nightly")
    assert [report.not_mirrored for report in reports] == [""]
    assert client.keys("user:*") == [b"user:0"]
    report = mass_insert(path, WHOLE, server.url, mirror=ALL, checkpoint=RESUMED)
    assert report.ended_before


def test_limit_in_a_cluster(tmp_path: Path) -> None:
    """Each slot has a marker of the checkpoint."""
    path = write(tmp_path / "users.csv", range(300))
    templates = [WHOLE, "INCR count:{id}"]
    with LocalCluster(2) as cluster:
        mass_insert(users(*range(400)), WHOLE, cluster.url)
        with pytest.raises(fastresp.SourceError, match="100 of the 400 keys"):
            mass_insert(path, templates, cluster.url, mirror="user:*", checkpoint="nightly")
        report = mass_insert(path, templates, cluster.url, mirror=ALL, checkpoint=RESUMED)
        assert (report.commands, report.deleted, report.not_mirrored) == (0, 100, "")
        with redis.RedisCluster.from_url(cluster.url) as client:
            assert len(client.keys("user:*", target_nodes="primaries")) == 300
            assert {client.get(f"count:{n}") for n in range(300)} == {b"1"}


def kill_and_resume(
    server: LocalServer, path: Path, seed: random.Random, limits: Sequence[str] = ("100%",)
) -> int:
    """Kill a load at random moments, then resume it; return how often a deletion was killed.

    Args:
        limits: the limit of each load that is killed.
    """
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.flushall()
        with client.pipeline(transaction=False) as pipe:
            for n in range(OLD):
                pipe.hset(f"user:{n}", mapping={"name": "old", "city": "Bern"})
            pipe.execute()
        first, count = seed.randrange(OLD // 2), seed.randrange(1, OLD // 2)
        write(path, range(first, first + count))
        options = json.dumps(seed.choice([{}, {"connections": 3}, {"mode": "merge"}]))
        words = [sys.executable, "-c", PROGRAM, server.url, str(path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        killed = 0
        for limit in limits:
            with preloaded.Popen([*words, limit, options], **pipes) as load:
                assert load.stdout is not None and load.stdout.readline()
                keys = client.dbsize()
                while load.poll() is None and (now := client.dbsize()) >= keys:
                    keys = now  # until the deletion has begun
                time.sleep(seed.random() * 0.02)
                load.send_signal(signal.SIGKILL)
                load.communicate()
            killed += count < len(client.keys("user:*")) < OLD
        with preloaded.Popen([*words, "100%", options], **pipes) as load:
            printed = load.communicate()[0]
            assert load.returncode == 0, printed
        keys = client.keys("user:*")
        found = dict(zip(keys, map(client.hgetall, keys), strict=True))
        assert found == {f"user:{n}": {"name": f"name {n}"} for n in range(first, first + count)}
        counts = [client.get(f"count:{n}") for n in range(first, first + count)]
        assert set(counts) == {"1"} and len(client.keys("count:*")) == count
        return killed


def test_killed_while_deleting(server: LocalServer, tmp_path: Path) -> None:
    kill_and_resume(server, tmp_path / "users.csv", random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_kills(server: LocalServer, tmp_path: Path, seed: int) -> None:
    """After each, the server has exactly the source."""
    chosen, path = random.Random(seed), tmp_path / "users.csv"
    limits = [chosen.choices(["100%", "0%"], [3, 1], k=3) for _ in range(10)]
    assert sum(kill_and_resume(server, path, chosen, each) for each in limits) >= 5
