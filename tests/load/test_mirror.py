"""``mirror``: delete what the source lacks, after a load without errors."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from loads import Insert, lost_at
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp import Mirror, mass_insert
from fastresp.cli.exit_codes import Exit
from fastresp.encode.template import as_template
from fastresp.load.mirror import stale_keys
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options, grouped
from fastresp.testing import Connection, Misbehaving

WHOLE = "HSET user:{id} {**}"
ALL = Mirror("user:*", limit="100%")
Hashes = dict[str, dict[str, str]]


def stored(client: redis.Redis, glob: str = "user:*") -> Hashes:
    """Return the hashes of a pattern."""
    keys = list(client.scan_iter(glob, count=1000))
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.hgetall(key)
        values = pipe.execute()
    return {
        key.decode(): {name.decode(): each.decode() for name, each in value.items()}
        for key, value in zip(keys, values, strict=True)
    }


def rows_of(hashes: Hashes) -> Iterator[dict[str, str]]:
    return ({"id": key.removeprefix("user:"), **value} for key, value in hashes.items())


def users(*numbers: int, **values: str) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}", **values} for number in numbers]


def test_keys_and_fields(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Keys and fields that the source lacks are deleted; other keys, and checkpoints, stay."""
    insert(users(*range(20), city="Bern"), WHOLE, server=server.url)
    client.set("fastresp:{user:}", "a checkpoint")
    client.set("other:1", "stays")
    client.sadd("user:old", "a set")
    report = insert(users(*range(18)), WHOLE, server=server.url, mirror=ALL)
    assert (report.deleted, report.deleted_fields, report.not_mirrored) == (3, 18, "")
    assert "3 keys deleted: not in the source" in str(report)
    assert "18 fields deleted: not in the source" in str(report)
    assert stored(client) == {f"user:{n}": {"name": f"name {n}"} for n in range(18)}
    assert client.exists("fastresp:{user:}", "other:1") == 2
    report = insert(users(*range(18)), WHOLE, server=server.url, mirror="user:*")
    assert (report.deleted, report.deleted_fields) == (0, 0)


def test_every_key_of_a_row_stays(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """A row may name several keys, in several commands; a fixed field keeps the other fields."""
    client.mset({f"user:{n}:{kind}": "old" for n in range(4) for kind in ("a", "b", "c")})
    client.hset("user:1:hash", "other", "stays")
    templates = ["MSET user:{id}:a 1 user:{id}:b 2", "HSET user:{id}:hash name {name}"]
    report = insert(users(1, 2), templates, server=server.url, mirror=ALL)
    assert report.deleted == 8
    found = {f"user:{n}:{kind}".encode() for n in (1, 2) for kind in ("a", "b", "hash")}
    assert set(client.scan_iter("user:*")) == found
    assert client.hget("user:1:hash", "other") == b"stays"


def test_rows_of_one_key(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """The fields of all rows of a key stay."""
    client.hset("user:1", mapping={"a": "old", "b": "old", "c": "old"})
    rows = [{"id": 1, "a": "new"}, {"id": 2, "a": "new"}, {"id": 1, "b": "new"}]
    assert insert(rows, WHOLE, server=server.url, mirror=ALL).deleted_fields == 1
    assert client.hgetall("user:1") == {b"a": b"new", b"b": b"new"}


def test_many_names_of_fields(server: LocalServer, client: redis.Redis) -> None:
    """More field names than have a bit of their own."""
    before = {f"user:{n}": {f"field{n + i}": "old" for i in range(90)} for n in range(30)}
    after = {key: dict(list(value.items())[::2]) for key, value in before.items()}
    mass_insert(rows_of(before), WHOLE, server.url)
    report = mass_insert(rows_of(after), WHOLE, server.url, mirror=ALL)
    assert report.deleted_fields == 30 * 45
    assert stored(client) == after


@pytest.mark.parametrize("nulls", ["auto", "skip", "empty", "delete"])
def test_nulls(nulls: Any, insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """The server has what a load into an empty server would leave."""
    rows = [{"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": None}]
    insert(rows, WHOLE, server=server.url, nulls=nulls)
    wanted = stored(client)
    for number in (1, 2, 3):
        client.hset(f"user:{number}", mapping={"a": "old", "b": "old", "c": "old"})
    insert(rows, WHOLE, server=server.url, nulls=nulls, mirror=ALL)
    assert stored(client) == wanted


def test_skipped_commands_name_nothing(server: LocalServer, client: redis.Redis) -> None:
    client.mset({"email:1": "old", "email:2": "old"})
    rows = [{"id": 1, "email": "new"}, {"id": 2, "email": None}]
    mirror = Mirror("email:*", limit=1)
    report = mass_insert(rows, "SET email:{id} {email}", server.url, nulls="skip", mirror=mirror)
    assert (report.skipped, report.deleted) == (1, 1)
    assert client.keys() == [b"email:1"]


@pytest.mark.parametrize(
    ("limit", "stale", "deleted"),
    [("10%", 10, True), ("10%", 11, False), (11, 11, True), (10, 11, False), ("0%", 1, False)],
)
def test_limit(
    limit: Any, stale: int, deleted: bool, server: LocalServer, client: redis.Redis
) -> None:
    """The limit also counts keys that lose fields."""
    mass_insert(users(*range(100)), WHOLE, server.url)
    client.hset("user:99", "extra", "1")
    rows = users(*range(stale - 1, 100))
    mirror = Mirror("user:*", limit=limit)
    if deleted:
        report = mass_insert(rows, WHOLE, server.url, mirror=mirror)
        assert (report.deleted, report.deleted_fields) == (stale - 1, 1)
        return
    with pytest.raises(fastresp.SourceError, match=r"nothing was deleted: .*the limit") as caught:
        mass_insert(rows, WHOLE, server.url, mirror=mirror)
    assert caught.value.report.not_mirrored == "too many keys are not in the source"
    assert "mirror=Mirror(..., limit=)" in str(caught.value)
    assert client.dbsize() == 100
    assert client.hexists("user:99", "extra")


def test_shares_are_exact() -> None:
    assert [Mirror("user:*", limit=f"{n}%").most(100) for n in range(101)] == list(range(101))
    assert Mirror("user:*", limit="0.1%").most(9_999) == 9


def test_no_rows(server: LocalServer, client: redis.Redis) -> None:
    client.set("user:1", "stays")
    with pytest.raises(fastresp.SourceError, match="which has no rows with keys"):
        mass_insert([], WHOLE, server.url, mirror=ALL)
    assert client.exists("user:1")


def test_errors(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """After an error, nothing is deleted."""
    client.set("user:1", "a string")
    client.set("user:3", "stays")
    report = insert(
        users(1, 2), WHOLE, server=server.url, mirror=ALL, on_error="collect", rejects=[].append
    )
    assert (report.failed, report.deleted) == (1, 0)
    assert report.not_mirrored == "1 command failed"
    assert "nothing deleted (mirror): 1 command failed" in str(report)
    with pytest.raises(fastresp.LoadErrors):
        insert(users(1, 2), WHOLE, server=server.url, mirror=ALL)
    assert client.exists("user:3")


def test_source_fails(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    client.set("user:3", "stays")

    def rows() -> Iterator[dict[str, Any]]:
        yield from users(1)
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="is gone") as caught:
        insert(rows(), WHOLE, server=server.url, mirror=ALL)
    assert caught.value.report.not_mirrored == "the load failed or was interrupted"  # type: ignore[attr-defined]
    assert client.exists("user:3")


def test_bad_rows(server: LocalServer, client: redis.Redis) -> None:
    """The keys of skipped rows are unknown."""
    client.set("user:3", "stays")
    text = io.BytesIO(b"id,name\n1,a\n2,b,c\n")
    table = fastresp.read(text, format="csv", bad_rows="skip")
    report = mass_insert(table, WHOLE, server.url, mirror=ALL)
    assert report.not_mirrored == "1 bad row skipped"
    assert client.exists("user:3")


def test_keys_of_others_stay(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Keys and fields that another client creates during the load stay."""
    client.hset("user:1", "old", "1")
    client.set("user:2", "old")

    def rows() -> Iterator[dict[str, Any]]:
        yield from users(1)
        client.hset("user:1", "by another", "stays")
        client.set("user:3", "stays")

    report = insert(rows(), WHOLE, server=server.url, mirror=ALL)
    assert (report.deleted, report.deleted_fields) == (1, 1)
    assert set(client.keys()) == {b"user:1", b"user:3"}
    assert set(client.hkeys("user:1")) == {b"name", b"by another"}


def test_columns_and_serialised(server: LocalServer, client: redis.Redis) -> None:
    import pyarrow as pa

    mass_insert(users(*range(2000), city="Bern"), WHOLE, server.url)
    table = pa.table({"id": range(100, 2000), "name": [f"name {n}" for n in range(100, 2000)]})
    wanted = {f"user:{n}": {"name": f"name {n}"} for n in range(100, 2000)}
    report = mass_insert(table, WHOLE, server.url, mirror=ALL)
    assert (report.deleted, report.deleted_fields) == (100, 1900)
    assert stored(client) == wanted
    mass_insert(users(*range(2000), city="Bern"), WHOLE, server.url)
    mode = fastresp.Serialize(exists="replace")
    assert mass_insert(table, WHOLE, server.url, mirror=ALL, mode=mode).deleted == 100
    assert stored(client) == wanted


@pytest.mark.parametrize("dry", [False, True])
def test_replaced_hashes(dry: bool, server: LocalServer, client: redis.Redis) -> None:
    """The load replaces whole hashes, so fields are neither deleted nor counted by the limit."""
    mass_insert(users(*range(20), city="Bern"), WHOLE, server.url)
    mode, mirror = fastresp.Merge(exists="replace"), Mirror("user:*", limit=1)
    rows = users(*range(19))
    if dry:
        stale = stale_keys(
            rows, as_template(WHOLE), Options(server=server.url, mode=mode, mirror=mirror)
        )
        assert (stale.keys, stale.hashes, stale.fields) == (1, 0, 0)
        return
    client.config_resetstat()
    report = mass_insert(rows, WHOLE, server.url, mode=mode, mirror=mirror)
    assert (report.deleted, report.deleted_fields, report.not_mirrored) == (1, 0, "")
    assert not {"cmdstat_hkeys", "cmdstat_hdel"} & client.info("commandstats").keys()
    assert stored(client) == {f"user:{n}": {"name": f"name {n}"} for n in range(19)}


def test_several_connections(server: LocalServer, client: redis.Redis) -> None:
    mass_insert(users(*range(3000)), WHOLE, server.url)
    report = mass_insert(users(*range(2000)), WHOLE, server.url, connections=3, mirror=ALL)
    assert report.deleted == 1000
    assert client.dbsize() == 2000


def test_databases(server: LocalServer, client: redis.Redis) -> None:
    """Only the database of the URL is mirrored."""
    client.set("user:1", "stays")
    url = f"{server.url}?db=1"
    mass_insert(users(1, 2), WHOLE, url)
    assert mass_insert(users(2), WHOLE, url, mirror=ALL).deleted == 1
    assert client.keys() == [b"user:1"]
    with pytest.raises(ValueError, match="mirror can't be used with SELECT"):
        mass_insert([(1,)], ["SELECT 1", "SET user:{0} 1"], url, mirror=ALL)
    report = mass_insert([("SELECT", "1"), ("SET", "user:1", "1")], server=url, mirror=ALL)
    assert report.not_mirrored == "it is unknown which keys SELECT writes"


def test_permissions(server: LocalServer, client: redis.Redis) -> None:
    """A missing permission is found before anything is sent."""
    url = server.url.replace("unix://", "unix://limited:secret@")
    client.hset("user:1", "old", "1")
    for command in ("unlink", "hdel", "hkeys", "scan"):
        client.acl_setuser(
            "limited", enabled=True, passwords=["+secret"], keys=["*"],
            commands=["+@all", f"-{command}"],
        )  # fmt: skip
        with pytest.raises(fastresp.FastrespError, match=f"(?i){command}"):
            mass_insert(users(2), WHOLE, url, mirror=ALL)
        assert client.keys("user:*") == [b"user:1"]
    client.acl_deluser("limited")


def test_permission_for_a_key(server: LocalServer, client: redis.Redis) -> None:
    """The error names the key that can't be deleted, not a row of the source."""
    client.mset({"user:1": "1", "user:2": "2"})
    client.acl_setuser(
        "few", enabled=True, passwords=["+few"], categories=["+@all"], keys=["user:1"]
    )
    try:
        with pytest.raises(fastresp.CommandError, match="NOPERM") as caught:
            mass_insert(
                [{"id": 1}], "SET user:{id} 1", f"unix://few:few@{server.socket}", mirror=ALL
            )
    finally:
        client.acl_deluser("few")
    assert str(caught.value).endswith("(UNLINK 'user:2')")
    assert (caught.value.row, caught.value.code) == (None, "NOPERM")
    assert client.exists("user:2")


def test_refused(server: LocalServer) -> None:
    url = server.url
    for pattern in ("user:1", "", b"user:*", "user:\udcff*"):
        with pytest.raises(ValueError, match="mirror must be a pattern of keys with a wildcard"):
            mass_insert([], WHOLE, url, mirror=pattern)  # type: ignore[arg-type]
    for limit in (-1, "101%", "few", None, True, 1.5):
        with pytest.raises(ValueError, match="limit must be a number, or a percentage"):
            Mirror("user:*", limit=limit)  # type: ignore[arg-type]
    for wrong, options in (
        ("replace", {"mode": fastresp.Serialize(exists="skip")}),
        ("replicate", {"mode": "replicate"}),
        ("redis-cli", {"transport": "redis-cli"}),
    ):
        with pytest.raises(ValueError, match=wrong):
            mass_insert([], WHOLE, url, mirror=ALL, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="can't tell hashes with all columns"):
        mass_insert([], [WHOLE, "HSET stats:{id} n {n}"], url, mirror=ALL)
    table = fastresp.read(io.BytesIO(b"id\n1\n"), format="csv", limit=1)
    with pytest.raises(ValueError, match="limit needs mirror="):
        grouped({"mirror": None, "mirror_limit": "5%"})
    with pytest.raises(ValueError, match="leave out limit"):
        mass_insert(table, WHOLE, url, mirror=ALL)


def test_lost_while_deleting(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """The next load deletes the rest."""
    mass_insert(users(*range(100)), WHOLE, server.url)
    with (
        Misbehaving(lost_at(b"UNLINK", 11), server.url, listen=tmp_path / "proxy") as proxy,
        pytest.raises(fastresp.TransportError) as caught,
    ):
        mass_insert(users(1), WHOLE, proxy.url, mirror=ALL, timeout=5)
    assert caught.value.report.deleted > 0
    assert "not everything deleted (mirror): the deletion failed" in str(caught.value.report)
    mass_insert(users(1), WHOLE, server.url, mirror=ALL)
    assert client.keys() == [b"user:1"]


def test_cancelled(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """A cancelled load deletes nothing afterwards."""
    client.set("user:1", "stays")

    async def run() -> None:
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hangs(connection: Connection, command: list[bytes], reply: bytes) -> bytes:
            if command[0] == b"SCAN":
                loop.call_soon_threadsafe(started.set)
                connection.freeze()
            return reply

        with Misbehaving(hangs, server.url, listen=tmp_path / "proxy") as proxy:
            load = asyncio.create_task(
                fastresp.aio.mass_insert(users(2), WHOLE, proxy.url, mirror=ALL)
            )
            await started.wait()
            load.cancel()
            with pytest.raises(asyncio.CancelledError):
                await load

    asyncio.run(run())
    assert client.keys() == [b"user:1"]


def test_command_line(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    mass_insert(users(*range(40), city="Bern"), WHOLE, server.url)
    path = tmp_path / "users.csv"
    path.write_text("id,name\n" + "".join(f"{n},name {n}\n" for n in range(4, 40)))
    words = ["load", str(path), WHOLE, "--server", server.url, "--mirror", "user:*"]
    outcome = invoke(*words)
    assert outcome.exit_code != Exit.OK
    assert "--mirror-limit" in outcome.stderr
    assert client.dbsize() == 40
    outcome = invoke(*words, "--dry-run", "--json")
    fields = json.loads(outcome.stdout)
    assert fields["stale"] == {"keys": 4, "fields": 36, "hashes": 36, "existing": 40, "named": 36}
    assert len(fields["problems"]) == 1
    outcome = invoke(*words, "--mirror-limit", "100%", "--dry-run")
    assert outcome.exit_code == Exit.OK
    assert "To delete after the load: 4 of the 40 keys of the pattern, and 36 " in outcome.stderr
    assert client.dbsize() == 40
    outcome = invoke(*words, "--mirror-limit", "100%", "--json")
    fields = json.loads(outcome.stdout)
    assert (fields["deleted"], fields["deleted_fields"], fields["not_mirrored"]) == (4, 36, "")
    for more in (["--limit", "3"], ["--from-rejects"]):
        assert invoke(*words, *more).exit_code == Exit.USAGE
    path.write_text("id,name\n4,name 4\n5,name,5\n")
    words += ["--mirror-limit", "100%", "--bad-rows", "skip"]
    outcome = invoke(*words, "--dry-run")
    assert "- 1 bad row skipped, so --mirror would delete nothing" in outcome.stderr
    outcome = invoke(*words)
    assert "nothing deleted (--mirror): 1 bad row skipped" in outcome.stderr
    assert outcome.exit_code == Exit.ERRORS


# Random refreshes.


def refreshed(hashes: Hashes, seed: random.Random) -> Hashes:
    """Return the hashes of the next night: keys and fields are added, removed and changed."""
    kept = {key: dict(value) for key, value in hashes.items() if seed.random() > 0.02}
    for key in seed.sample(sorted(kept), len(kept) // 10):
        value = kept[key]
        for _ in range(seed.randrange(4)):
            value[f"f{seed.randrange(80)}"] = str(seed.randrange(1000))
        for name in seed.sample(sorted(value), min(len(value) - 1, seed.randrange(3))):
            del value[name]
    for _ in range(len(hashes) - len(kept) + seed.randrange(-50, 50)):
        kept[f"user:{seed.randrange(10**9)}"] = {f"f{seed.randrange(80)}": "new"}
    items = list(kept.items())
    seed.shuffle(items)
    return dict(items)


OPTIONS: list[dict[str, Any]] = [
    {}, {"mode": "merge"}, {"connections": 3}, {"mode": fastresp.Serialize(exists="replace")},
]  # fmt: skip


def refresh(url: str, count: int, number: int) -> None:
    """Refresh hashes; compare the server with the source each time."""
    seed = random.Random(number)
    hashes: Hashes = {
        f"user:{n}": {f"f{seed.randrange(80)}": str(n) for _ in range(seed.randrange(1, 9))}
        for n in range(10_000)
    }
    for turn in range(count):
        options = OPTIONS[turn % len(OPTIONS)]
        limit = Mirror("user:*", limit="20%" if turn else "100%")
        mass_insert(rows_of(hashes), WHOLE, url, mirror=limit, **options)
        found = [*hashes]
        values = fastresp.iter_replies(found, "HGETALL {0}", server=url, decode=True)
        for key, flat in zip(found, values, strict=True):
            assert dict(zip(flat[::2], flat[1::2], strict=True)) == hashes[key], (turn, key)
        assert fastresp.execute("DBSIZE", server=url) == len(hashes), turn
        hashes = refreshed(hashes, seed)


def test_refreshes(server: LocalServer) -> None:
    refresh(server.url, 3, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_refreshes(server: LocalServer, seed: int) -> None:
    refresh(server.url, 100, seed + 1)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["valkey-8.1", "redis-8.2", "redis-6.2"])
def test_versions(program: str) -> None:
    with LocalServer(program=located(program, WHEEL_SERVERS)) as server:
        refresh(server.url, 2, 0)
