"""copy(follow=True, checkpoint=): resume from the offset in the source's history."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

import preloaded
import pytest
import redis
from command_line import PROGRAM
from every_encoding import contents, differences, fill
from proxy import UP, Fault, Proxy
from server_programs import WHEEL_SERVERS, located
from test_follow import OPTIONS, StartServer, Writer, digests, stops_after, wait_for

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

NAME = "move"
KEY = "fastresp:{move}:follow"
RESUMED = fastresp.Checkpoint(NAME, resume=True)
Two = tuple[LocalServer, LocalServer, redis.Redis, redis.Redis]


@pytest.fixture
def two(start_server: StartServer) -> Iterator[Two]:
    """A source and a target, and their clients."""
    # On a busy machine, a killed copy takes longer to resume than 1 MiB of commands, the default.
    source = start_server(*OPTIONS, "--repl-backlog-size", "64mb")
    target = start_server(*OPTIONS)
    with redis.Redis.from_url(source.url) as client, redis.Redis.from_url(target.url) as copied:
        yield source, target, client, copied


def follow(source: str, target: str, **options: object) -> fastresp.Report:
    return fastresp.copy(source, target, from_replica=True, follow=True, **options)


def check_same(client: redis.Redis, copied: redis.Redis) -> None:
    copied.delete(KEY)
    assert differences(contents(client), contents(copied)) == []
    assert len(digests(client, copied)) == 1


def check_killed(two: Two, kills: list[float]) -> None:
    """Kill the copy several times while a client writes; then resume it."""
    source, target, client, copied = two
    fill(client)
    options = ["--from-replica", "--follow", "--checkpoint", NAME, "--resume"]
    with Writer(client, sum(kills) + 1, 20_000) as writer:
        for seconds in kills:
            command = [*PROGRAM, "copy", source.url, target.url, *options]
            with preloaded.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
                assert wait_for(lambda: (copied.get(KEY) or b"snapshot") != b"snapshot")
                time.sleep(seconds)
                assert process.poll() is None
                process.kill()
        with stops_after(writer, client) as show:
            report = follow(source.url, target.url, checkpoint=RESUMED, progress=show)
    assert report.offset == client.info("replication")["master_repl_offset"]
    check_same(client, copied)


def test_killed(two: Two) -> None:
    check_killed(two, [0.2, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_any_time(two: Two, seed: int) -> None:
    source = random.Random(seed)
    check_killed(two, [source.random() / 2 for _ in range(5)])


def test_lost_target(two: Two) -> None:
    source, target, client, copied = two
    with (
        Writer(client, 1, 20_000) as writer,
        Proxy(str(target.socket), Fault("cut", UP, at=300_000)) as proxy,
        stops_after(writer, client) as show,
    ):
        with pytest.raises(fastresp.TransportError):
            follow(source.url, proxy.url, checkpoint=NAME, progress=show)
        with pytest.raises(fastresp.CheckpointError, match="resume it with"):
            follow(source.url, proxy.url, checkpoint=NAME)
        follow(source.url, proxy.url, checkpoint=RESUMED, progress=show)
    check_same(client, copied)


def test_a_snapshot_that_was_not_completed(two: Two) -> None:
    source, target, client, copied = two
    client.set("a", 1)
    copied.set("a", 1)
    with pytest.raises(fastresp.LoadErrors):
        follow(source.url, target.url, checkpoint=NAME)
    with pytest.raises(fastresp.CheckpointError, match=r"not copied completely.*empty the target"):
        follow(source.url, target.url, checkpoint=RESUMED)
    copied.delete("a")
    cleared = fastresp.Checkpoint(NAME, clear=True)
    assert follow(source.url, target.url, checkpoint=cleared, until_lag=0).rows == 1
    report = follow(source.url, target.url, checkpoint=RESUMED, until_lag=0)
    assert (report.rows, report.lag_bytes) == (0, 0)
    check_same(client, copied)


def test_another_history(two: Two) -> None:
    source, target, client, copied = two
    follow(source.url, target.url, checkpoint=NAME, until_lag=0)
    client.execute_command("DEBUG", "CHANGE-REPL-ID")
    with pytest.raises(fastresp.SourceError, match="no longer has the commands after replication"):
        follow(source.url, target.url, checkpoint=RESUMED)
    copied.set(KEY, "nonsense")
    with pytest.raises(fastresp.CheckpointError, match="is damaged: delete the key"):
        follow(source.url, target.url, checkpoint=RESUMED)


def test_another_database(two: Two) -> None:
    """A resumed copy has the database of the first one, however it was chosen."""
    source, target, client, copied = two
    client.set("a", 1)
    follow(source.url, target.url, checkpoint=NAME, until_lag=0)
    with redis.Redis.from_url(f"{source.url}?db=1") as first:
        first.set("b", 1)
    for url, db in ((source.url, 1), (f"{source.url}?db=1", None)):
        with pytest.raises(fastresp.CheckpointError, match=r"of a copy of database 0.* db=0"):
            follow(url, target.url, checkpoint=RESUMED, until_lag=0, db=db)
    follow(f"{source.url}?db=1", target.url, checkpoint=RESUMED, until_lag=0, db=0)
    assert sorted(copied.keys()) == [b"a", KEY.encode()]


def test_a_checkpoint_in_the_source(two: Two) -> None:
    """It would be a command to follow."""
    source, _, client, _ = two
    client.set("a", 1)
    first = f"{source.url}?db=1"
    with pytest.raises(ValueError, match=r"the same server.*leave out checkpoint"):
        follow(source.url, first, checkpoint=NAME, until_lag=0)
    assert (client.dbsize(), client.info("keyspace").keys()) == (1, {"db0"})
    assert follow(source.url, first, until_lag=0).rows == 1


def test_a_refused_command_is_not_passed_over(two: Two) -> None:
    source, target, client, copied = two

    def show(report: fastresp.Report) -> None:
        if report.offset is not None and not client.exists("list"):
            copied.set("list", "text")
            client.rpush("list", 1)

    with pytest.raises(fastresp.LoadErrors, match="WRONGTYPE") as caught:
        follow(source.url, target.url, checkpoint=NAME, progress=show)
    assert "applied to replication offset" in "".join(caught.value.__notes__)
    copied.delete("list")
    with pytest.raises(fastresp.CheckpointError, match="refused a command, so its keys differ"):
        follow(source.url, target.url, checkpoint=RESUMED)


def test_cancelled_in_an_event_loop(two: Two) -> None:
    """A cancelled copy has applied whole commands, and resumes after them."""
    source, target, client, copied = two
    client.set("a", 1)
    options = {"from_replica": True, "follow": True}

    async def cancelled() -> fastresp.Report:
        copy = fastresp.aio.copy(source.url, target.url, checkpoint=NAME, **options)
        task = asyncio.create_task(copy)
        while not task.done() and (copied.get(KEY) or b"snapshot") == b"snapshot":
            await asyncio.sleep(0.01)
        while not task.done() and not copied.exists("b"):
            client.pipeline().incr("b").rpush("list", "x").execute()
            await asyncio.sleep(0.01)
        assert task.cancel(), task.exception()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.report

    report = asyncio.run(cancelled())
    client.incr("b")
    resumed = fastresp.aio.copy(source.url, target.url, checkpoint=RESUMED, until_lag=0, **options)
    found = asyncio.run(resumed)
    assert (report.rows, found.rows) == (1, 0)
    assert report.followed > 0
    assert report.offset < found.offset
    check_same(client, copied)


@pytest.mark.parametrize("error", [asyncio.CancelledError, fastresp.LoadErrors])
def test_ended_in_an_event_loop(two: Two, error: type[BaseException]) -> None:
    """A cancellation once the source has a replica, and an error reply."""
    source, target, client, copied = two
    client.set("a", 1)
    if error is fastresp.LoadErrors:
        copied.set("a", 1)

    async def copy() -> None:
        copy = fastresp.aio.copy(source.url, target.url, from_replica=True, follow=True)
        task = asyncio.create_task(copy)
        while error is asyncio.CancelledError and not task.done():
            if client.info("replication")["connected_slaves"]:
                task.cancel()
                break
            await asyncio.sleep(0.01)
        await task

    with pytest.raises(error):
        asyncio.run(copy())
    assert wait_for(lambda: not client.info("replication")["connected_slaves"])


def test_a_failover_of_the_source(two: Two, start_server: StartServer, port: int) -> None:
    """A replica that was promoted has the history of its primary."""
    _, target, _, copied = two
    primary, replica = start_server(*OPTIONS, "--port", str(port)), start_server(*OPTIONS)
    with (
        redis.Redis.from_url(primary.url) as client,
        redis.Redis.from_url(replica.url) as promoted,
    ):
        promoted.execute_command("REPLICAOF", "127.0.0.1", port)
        assert wait_for(lambda: promoted.info("replication")["master_link_status"] == "up")
        client.rpush("list", 1)
        follow(primary.url, target.url, checkpoint=NAME, until_lag=0)
        client.rpush("list", 2)
        assert wait_for(lambda: promoted.llen("list") == 2)
        promoted.execute_command("REPLICAOF", "NO", "ONE")
        promoted.rpush("list", 3)
        report = follow(replica.url, target.url, checkpoint=RESUMED, until_lag=0)
        assert (report.rows, report.followed) == (0, 2)
        # The old primary has another history now.
        client.rpush("list", 4)
        with pytest.raises(fastresp.SourceError, match="no longer has the commands after"):
            follow(primary.url, target.url, checkpoint=RESUMED, until_lag=0)
        check_same(promoted, copied)


@pytest.mark.parametrize("imported", [True, False])
def test_time_to_live_extended_after_expiry(
    start_server: StartServer, imported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A target in import mode waits for the source to delete a key, as a replica does."""
    source = start_server(*OPTIONS)
    valkey = located("valkey-8.1", WHEEL_SERVERS)
    with (
        LocalServer("--import-mode", "yes", program=valkey) as target,
        redis.Redis.from_url(source.url) as client,
        redis.Redis.from_url(target.url) as copied,
    ):
        options: dict[str, Any] = {"import_source": imported, "until_lag": 0}
        follow(source.url, target.url, checkpoint=NAME, **options)
        ends = client.time()[0] * 1000 + 1100
        with client.pipeline() as transaction:
            transaction.set("count", 1, pxat=ends).append("count", "0").persist("count")
            transaction.execute()
        assert wait_for(lambda: copied.time()[0] * 1000 > ends)
        follow(source.url, target.url, checkpoint=RESUMED, **options)
        assert client.get("count") == b"10"
        assert copied.get("count") == (b"10" if imported else b"0")
    warned = [each.getMessage() for each in caplog.records]
    assert len([text for text in warned if "import_source=True" in text]) == (0 if imported else 2)
