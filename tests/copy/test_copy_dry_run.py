"""copy(dry_run=True): what it predicts, and that it writes nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from local_cluster import LocalCluster

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

TARGET = "valkey-8.1"


def prepare(client: redis.Redis) -> None:
    client.execute_command("VADD", "vectors", "VALUES", 2, 1, 2, "a")


def path_of(client: redis.Redis) -> str:
    path: str = client.connection_pool.connection_kwargs["path"]
    return path


def plan_of(source: Any, target: Any, **options: Any) -> fastresp.CopyPlan:
    report = fastresp.copy(source, target, dry_run=True, **options)
    assert (report.rows, str(report)) == (0, str(report.plan))
    return report.plan


def test_plan(source: redis.Redis, target: redis.Redis) -> None:
    plan = plan_of(source, target, field_ttl="drop")
    keys = source.keys()
    count = len(keys)
    assert (plan.keys, plan.keys_basis, plan.sample_keys) == (count, "counted", count)
    assert plan.bytes == plan.sample_bytes == sum(len(source.dump(key)) for key in keys)
    assert plan.memory == pytest.approx(sum(source.memory_usage(key) for key in keys), 1)
    assert plan.source.startswith("Redis 8.2.3 at ")
    assert plan.target.startswith("Valkey 8.1.8 at ")
    assert sum(plan.encodings.values()) == count
    assert plan.encodings["stream, version 3"] == 4
    assert plan.converted == {
        "hash with times to live of fields": 1,
        "hash with times to live of fields, as a listpack": 1,
    }
    assert plan.expiries_dropped == 352
    assert plan.modules == {"vectorset": 1}
    assert (plan.dump_allowed, plan.restore_allowed) == (True, True)
    assert any(note.startswith("SCAN is no snapshot") for note in plan.notes)
    [problem] = plan.problems
    assert "values of modules (vectorset), and the target has no modules" in problem
    assert target.dbsize() == 0


def test_times_to_live_of_fields(source: redis.Redis, target: redis.Redis) -> None:
    plan = plan_of(source, target, match="hash*")
    assert (plan.keys, plan.refused) == (5, 2)
    [problem] = plan.problems
    assert problem.startswith("2 keys of the sample can't be copied, the first: key b'hash:exp")


@pytest.mark.parametrize(("exists", "problems"), [("error", 1), ("skip", 0), ("replace", 0)])
def test_existing_keys(
    source: redis.Redis, target: redis.Redis, exists: str, problems: int
) -> None:
    target.mset({"new:string": 1, "string": 1})
    options = {"type": "string", "rename": "string* -> new:string*", "exists": exists}
    plan = plan_of(source, target, **options)
    assert (plan.existing, len(plan.problems)) == (1, problems)
    if problems:
        assert plan.problems[0] == (
            'BUSYKEY for 1 key of the sample: "new:string"; delete what exists, or use '
            "exists='replace' or exists='skip'"
        )


def test_memory(source: redis.Redis, target: redis.Redis) -> None:
    used = target.info("memory")["used_memory"]
    try:
        target.config_set("maxmemory", used + 100_000)
        [problem] = plan_of(source, target, match="[lsz]*").problems
    finally:
        target.config_set("maxmemory", 0)
    assert "the data needs about" in problem
    assert "raise its maxmemory" in problem


def test_permissions(source: redis.Redis, target: redis.Redis) -> None:
    for client, commands in ((source, "-dump"), (target, "-restore")):
        client.execute_command("ACL", "SETUSER", "limited", "on", "nopass", "~*", "+@all", commands)
    limited = [
        redis.Redis(unix_socket_path=path_of(each), username="limited", password="x")
        for each in (source, target)
    ]
    plan = plan_of(*limited)
    assert (plan.dump_allowed, plan.restore_allowed) == (False, False)
    assert len(plan.problems) == 2
    source.execute_command("ACL", "SETUSER", "limited", "+dump")
    target.execute_command("ACL", "SETUSER", "limited", "+restore", "resetkeys", "~a*")
    plan = plan_of(*limited, match="list")
    assert (plan.dump_allowed, plan.restore_allowed) == (True, False)
    assert "no permissions to access the 'list' key" in plan.problems[0]
    for client in limited:
        client.close()


def test_same_database(source: redis.Redis) -> None:
    [problem] = plan_of(source, source, match="list", exists="skip").problems
    assert "are the same database" in problem


def test_unreachable_target(source: redis.Redis, port: int) -> None:
    plan = plan_of(source, f"redis://127.0.0.1:{port}", match="list")
    assert (plan.target, plan.keys) == ("", 1)
    assert f"127.0.0.1:{port}" in plan.problems[0]


def test_many_keys(target: redis.Redis, server: LocalServer) -> None:
    """Numbers are estimated from a sample."""
    fastresp.mass_insert(range(20_000), "SET a:{0} {0}", server.url)
    fastresp.mass_insert(range(20_000), "SET b:{0} {0}", server.url)
    plan = plan_of(server.url, target)
    assert (plan.keys, plan.keys_basis, plan.sample_keys) == (40_000, "from DBSIZE", 1_000)
    assert plan.problems == []
    plan = plan_of(server.url, target, match="a:*")
    assert plan.keys == pytest.approx(20_000, rel=0.2)
    assert plan.keys_basis.startswith("estimated: ")
    assert plan.sample_keys == 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.mark.slow
def test_cluster(cluster: LocalCluster, target: redis.Redis) -> None:
    fastresp.mass_insert(range(3_000), "SET a:{0} {0}", cluster.url)
    plan = plan_of(cluster.url, target)
    assert (plan.keys, plan.sample_keys, plan.problems) == (3_000, 1_000, [])
    assert plan.source.endswith("3 primaries")
    target.set("a:1", 1)
    plan = plan_of(target, cluster.url)
    assert (plan.keys, plan.existing, len(plan.problems)) == (1, 1, 1)


def test_command_line(source: redis.Redis, target: redis.Redis) -> None:
    urls = [f"unix://{path_of(each)}" for each in (source, target)]
    command = [sys.executable, "-m", "fastresp", "copy", *urls, "--dry-run"]
    ended = subprocess.run([*command, "--type", "list"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Keys: 4 (counted)" in ended.stderr
    assert ended.stderr.endswith("This was a dry run: nothing was written.\n")
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True)
    fields = json.loads(ended.stdout)
    assert (ended.returncode, fields["exit_code"], fields["refused"]) == (1, 1, 2)
    assert "--field-ttl drop" in fields["problems"][0]


def test_asyncio(source: redis.Redis, target: redis.Redis) -> None:
    report = asyncio.run(fastresp.aio.copy(source, target, match="list", dry_run=True))
    assert (report.plan.keys, report.plan.problems) == (1, [])


def test_snapshot(source: redis.Redis, target: redis.Redis) -> None:
    """With from_replica, SCAN only finds the sample."""
    plan = plan_of(source, target, from_replica=True, follow=True, field_ttl="drop")
    assert (plan.keys, plan.notes, target.dbsize()) == (source.dbsize(), [], 0)


def test_file(target: redis.Redis, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dry_run=True needs a server as the source"):
        fastresp.copy(tmp_path / "dump.rdb", target, dry_run=True)
