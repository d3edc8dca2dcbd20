"""A silent server gets a PING, which changes nothing else."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import LocalCluster
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.testing import Connection, HangUp, Misbehaving

pytestmark = pytest.mark.few(1)
SET = "SET key:{0} {1}"
VALUE = "x" * 50
ROWS = [(number, VALUE) for number in range(2_500)]
PING = b"*1\r\n$4\r\nPING\r\n"


def stopped(server: LocalServer, seconds: float) -> None:
    """Stop a server's process, and continue it after some seconds."""
    os.kill(server.process.pid, signal.SIGSTOP)
    threading.Timer(seconds, server.process.send_signal, [signal.SIGCONT]).start()


def rows_then(happening: Callable[[], object]) -> Iterator[tuple[int, str]]:
    """Yield rows; before the last row, call a function."""
    yield from ROWS[:-1]
    happening()
    yield ROWS[-1]


def is_before_the_load(connection: Connection, command: list[bytes]) -> bool:
    return command[-1] != VALUE.encode()


def pings(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        calls: int = client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]
    return calls


def account(report: fastresp.Report) -> tuple[Any, ...]:
    return report.rows, report.commands, report.replies, report.in_doubt, report.unsent


WHOLE = (len(ROWS), len(ROWS), len(ROWS), 0, 0)


def test_server_that_reads_once_a_byte_comes(
    insert: Insert, server: LocalServer, client: redis.Redis
) -> None:
    began = time.monotonic()
    with Misbehaving(
        "reads nothing until a new byte comes", server.url, honest=is_before_the_load
    ) as stubborn:
        report = insert(ROWS, SET, server=stubborn.url, timeout=20)
    assert account(report) == WHOLE
    assert client.dbsize() == len(ROWS)
    assert time.monotonic() - began < 15  # without the PING, 20


@pytest.mark.parametrize("retry", ["idempotent", "always"])
def test_connection_is_lost_at_the_ping(
    server: LocalServer, client: redis.Redis, retry: Any
) -> None:
    """The commands are resent, and the PING is not."""
    cuts = []

    def cut(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        if not cuts:
            connection.wait_for_more()
            cuts.append(command)
            raise HangUp
        return honest

    with Misbehaving(cut, server.url, honest=is_before_the_load) as stubborn:
        report = insert_sync(ROWS, SET, server=stubborn.url, retry=retry)
    assert cuts
    assert account(report) == WHOLE
    assert client.dbsize() == len(ROWS)


def test_timeout_is_not_restarted(insert: Insert, server: LocalServer) -> None:
    """Only the load's commands are in doubt."""
    os.kill(server.process.pid, signal.SIGCONT)

    def freeze() -> None:
        os.kill(server.process.pid, signal.SIGSTOP)

    try:
        with pytest.raises(fastresp.TransportTimeout, match=r"no progress for 0\.5 s") as caught:
            insert(rows_then(freeze), SET, server=server.url, timeout=0.5)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    report = caught.value.report
    assert report is not None
    assert report.commands == len(ROWS) == report.replies + report.in_doubt


def test_server_that_loses_a_reply(server: LocalServer) -> None:
    """Replies to PING are no progress."""

    def lose(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        return b"" if command[1] == b"key:7" else honest

    with (
        Misbehaving(lose, server.url, honest=is_before_the_load) as lossy,
        pytest.raises(fastresp.TransportTimeout, match=r"no progress for 0\.4 s"),
    ):
        insert_sync(ROWS[:50], SET, server=lossy.url, timeout=0.4)


def test_busy_server(insert: Insert, server: LocalServer) -> None:
    """It gets a few PINGs, which the report does not count."""
    before = pings(server.url)
    healthy = insert(ROWS, SET, server=server.url)
    calm = pings(server.url)
    report = insert(rows_then(partial(stopped, server, 0.6)), SET, server=server.url)
    assert account(report) == account(healthy) == WHOLE
    assert 0 <= pings(server.url) - calm - (calm - before) <= 3
    assert report.bytes_sent == healthy.bytes_sent


@pytest.mark.parametrize("template", [["MULTI", SET, "EXEC"], None, "{0} {1} {2}"])
def test_no_ping_where_it_might_be_queued(server: LocalServer, template: Any) -> None:
    """Inside MULTI, a PING would be in the reply to EXEC."""
    names = [("SET", *row) for row in ROWS]
    rows = ROWS if isinstance(template, list) else names

    def source() -> Iterator[Any]:
        yield from rows
        stopped(server, 0.6)

    healthy = insert_sync(rows, template, server=server.url)
    before = pings(server.url)
    report = insert_sync(source(), template, server=server.url)
    assert account(report) == account(healthy)
    assert report.bytes_sent == healthy.bytes_sent
    assert pings(server.url) - before == 1  # the check when the connection was opened


def test_user_without_permission(server: LocalServer, client: redis.Redis) -> None:
    """The load does not count the errors."""
    client.execute_command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", "-ping")
    client.execute_command("ACL", "LOG", "RESET")
    url = f"{server.url}?username=some&password=secret"
    report = insert_sync(rows_then(partial(stopped, server, 0.6)), SET, server=url)
    assert account(report) == WHOLE
    assert report.failed == 0
    [denied] = client.acl_log()
    assert denied["object"] == "ping"
    assert 1 < int(denied["count"]) <= 4  # the check when the connection was opened, and PINGs


def test_ping_is_refused_once(server: LocalServer) -> None:
    """After BUSY, which a script causes, the next silence is followed by a PING again."""
    sets = []

    def busy(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        if command[0] == b"PING":
            return b"-BUSY Redis is busy running a script\r\n"
        sets.append(command)
        connection.wait_for_more()
        return honest

    def is_handled(connection: Connection, command: list[bytes]) -> bool:
        return is_before_the_load(connection, command) and not (sets and command[0] == b"PING")

    with (
        Misbehaving(busy, server.url, honest=is_handled) as stubborn,
        fastresp.loader(SET, server=stubborn.url, timeout=20) as load,
    ):
        began = time.monotonic()
        for row in ROWS[:2]:
            load.write(row)
            load.flush()
        assert time.monotonic() - began < 15  # without the second PING, 20
    assert (load.report.replies, load.report.failed) == (2, 0)


def test_no_ping_while_waitaof_waits() -> None:
    """It is not silence if the server syncs once a second."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    with LocalServer(*options, program=located("valkey-8.1", WHEEL_SERVERS)) as server:
        before = pings(server.url)
        report = insert_sync(ROWS, SET, server=server.url, durable="fsync")
        assert account(report) == WHOLE
        assert report.durable == len(ROWS)
        assert pings(server.url) - before == 1


@pytest.mark.parametrize("template", ["RPUSH list {1}", SET])
def test_checkpoint(server: LocalServer, client: redis.Redis, template: str) -> None:
    def source() -> Iterator[Any]:
        for number, row in enumerate(ROWS):
            if number in (1_000, 2_400):
                stopped(server, 0.4)
            yield row

    kept = fastresp.Checkpoint("jobs", source_id="rows")
    report = insert_sync(source(), template, server=server.url, checkpoint=kept)
    assert account(report) == WHOLE
    assert client.llen("list") == len(ROWS) if "RPUSH" in template else True


def test_exec_waits_for_a_reply_that_is_held_back(server: LocalServer, client: redis.Redis) -> None:
    """The rest of the next transaction, up to EXEC, makes the server reply."""
    loading: set[Connection] = set()
    order: list[bytes] = []

    def hold_back(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        connection.wait_for_more()
        return honest

    def is_honest(connection: Connection, command: list[bytes]) -> bool:
        if connection not in loading and is_before_the_load(connection, command):
            return True
        loading.add(connection)
        order.append(command[0])
        return command[0] != b"EXEC"

    began = time.monotonic()
    with Misbehaving(hold_back, server.url, honest=is_honest) as stubborn:
        kept = fastresp.Checkpoint("jobs", source_id="rows", clear=True)
        report = insert_sync(
            ROWS[:1_700], "RPUSH list {1}", server=stubborn.url, timeout=20, checkpoint=kept
        )
    assert time.monotonic() - began < 15  # without the nudge, 20
    assert (report.replies, report.in_doubt, client.llen("list")) == (1_700, 0, 1_700)
    at = [number for number, name in enumerate(order) if name == b"EXEC"]
    assert len(at) > 1
    assert {order[number - 1] for number in at} == {b"SET"}  # PING would be in the reply to EXEC


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_pauses(start_server: Callable[..., LocalServer], seed: int) -> None:
    """A load has the same account with pauses of its server as without."""
    draw = random.Random(seed)
    name = draw.choice(["redis-server", *WHEEL_SERVERS])
    debug = () if name == "redis-6.2" else ("--enable-debug-command", "yes")
    server = start_server(*debug, program=located(name, WHEEL_SERVERS))
    script = fastresp.Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")
    template = draw.choice(
        [SET, "RPUSH list:{1} {0}", ["SET {0} {1}", "INCRBY sum {0}"],
         ["MULTI", "SET {0} 1", "INCR {0}", "EXEC"], "LPUSH key:7 {0}",
         script.command("list:{1}", "{0}")]
    )  # fmt: skip
    ways: list[dict[str, Any]] = [{}, {"connections": 3}, {"rate_limit": 40_000}]
    if isinstance(template, str):
        ways += [{"mode": "merge"}, {"retry": "always"}]
        ways += [{"checkpoint": fastresp.Checkpoint("job", source_id="a", clear=True)}] * 2
    options = {"on_error": "collect", "server": server.url, **draw.choice(ways)}
    rows = [(number, draw.randrange(5)) for number in range(30_000)]
    at = {draw.randrange(len(rows)) for _ in range(4)} | {len(rows) - 1}

    threads: list[threading.Thread] = []

    def pause(client: redis.Redis) -> None:
        seconds = draw.choice([0.25, 0.5, 1.3])
        kind = draw.choice(["stop", "sleep", "pause", "forget"])
        if kind == "stop":
            stopped(server, seconds)
        elif kind == "sleep":
            words = ("DEBUG", "SLEEP", seconds)
            threads.append(threading.Thread(target=client.execute_command, args=words))
            threads[-1].start()
        elif kind == "pause":
            client.client_pause(int(1000 * seconds))
        else:
            client.script_flush()

    def paused(client: redis.Redis) -> Iterator[Any]:
        for number, row in enumerate(rows):
            if number in at:
                pause(client)
            yield row

    found = []
    for calm in (True, False):
        with redis.Redis.from_url(server.url, socket_timeout=60) as client:
            client.flushall()
            client.set("key:7", 1)
            report = insert_sync(rows if calm else paused(client), template, **options)
            for thread in threads:
                thread.join()
            lists = [client.lrange(f"list:{number}", 0, -1) for number in range(5)]
            if isinstance(template, fastresp.Template):  # forgotten scripts are resent later
                lists = [sorted(each) for each in lists]
            data = client.dbsize(), client.get("sum"), lists
            found.append((account(report), report.failed, report.errors_by_code, data))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_moving_slots(seed: int) -> None:
    """A PING never comes between ASKING and its command."""
    draw = random.Random(seed)
    rows = [(number % 40, number) for number in range(200_000)]
    ending = threading.Event()
    with LocalCluster() as cluster:

        def pause() -> None:
            while not ending.wait(0.5):
                stopped(draw.choice(cluster.nodes), 0.4)

        def move() -> None:
            while not ending.is_set():
                slot = cluster.clients[0].cluster("KEYSLOT", f"key:{draw.randrange(40)}")
                cluster.move_slot(slot, draw.randrange(3), keys_at_once=1, pause=0.02)

        threads = [threading.Thread(target=each) for each in (pause, move)]
        for thread in threads:
            thread.start()
        try:
            report = insert_sync(rows, "SADD key:{0} {1}", server=cluster.url, rate_limit=50_000)
        finally:
            ending.set()
            for thread in threads:
                thread.join()
        assert (report.commands, report.replies, report.failed) == (len(rows), len(rows), 0)
        for key in range(40):
            stored = fastresp.execute("SCARD", f"key:{key}", server=cluster.url)
            assert stored == len(rows) // 40
