"""``retry`` on a single server: lost connections are reopened, and no command is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import Insert, insert_sync
from local_cluster import free_port
from waiting import until

import fastresp
import fastresp.aio
from fastresp import pack
from fastresp.resp.buffer import Chunk
from fastresp.resp.idempotent import may_resend
from fastresp.server.cluster_view import Process, may_lack_data
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Serialize
from fastresp.transports import nodes
from fastresp.transports.ledger import Ledger
from fastresp.transports.resend import PendingCommand, Request, ResendUnit

ROWS = 21_000
KEYS = 100
IN_PART = r"Protocol error: invalid bulk length \(to row 1, which was sent in part\)"
CLOSED = r"closed 3 connections in a row .* of row 1:"


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server that writes each command to disk before it answers."""
    with LocalServer("--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


def rows(happening: Callable[[], object], every: int) -> Iterator[tuple[int, str]]:
    """Yield long values: fewer rows fill as many chunks."""
    for i in range(ROWS):
        if i % every == every - 1:
            happening()
        yield i % KEYS, f"{i:060}"


def cut(client: redis.Redis) -> None:
    """Close all connections but this one."""
    client.client_kill_filter(_type="normal", skipme=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_connections_that_are_closed(
    insert: Insert, server: LocalServer, connections: int, mode: str
) -> None:
    with redis.Redis.from_url(server.url) as client:
        report = insert(
            rows(lambda: cut(client), 7_000), "HSET hash:{0} f{1} {1}", server=server.url,
            retry="idempotent", connections=connections, mode=mode,
        )  # fmt: skip
        assert (report.rows, report.commands, report.replies) == (ROWS,) * 3
        assert (report.failed, report.in_doubt, report.unsent) == (0, 0, 0)
        assert sum(client.hlen(f"hash:{key}") for key in range(KEYS)) == ROWS


@pytest.mark.parametrize("connections", [1, 3])
def test_source_that_raises_while_connections_are_lost(
    insert: Insert, server: LocalServer, connections: int
) -> None:
    """The commands of all earlier rows are resent before the exception is raised."""
    count, failure = 6_001, ValueError("of the source")

    def source() -> Iterator[tuple[int, int]]:
        yield from zip(range(count), range(count), strict=True)
        cut(client)
        raise failure

    with redis.Redis.from_url(server.url) as client:
        with pytest.raises(ValueError, match="of the source") as caught:
            insert(
                source(), "SET key:{0} {1}", server=server.url, retry="idempotent",
                connections=connections,
            )  # fmt: skip
        assert caught.value is failure
        report: fastresp.Report = failure.report  # type: ignore[attr-defined]
        assert (report.rows, report.commands, report.replies) == (count,) * 3
        assert (report.in_doubt, report.unsent, client.dbsize()) == (0, 0, count)


@pytest.mark.few(1)
@pytest.mark.parametrize("connections", [1, 3])
def test_in_doubt(server: LocalServer, connections: int) -> None:
    """Commands that are not idempotent run at most once, in order; the report names rows."""
    with redis.Redis.from_url(server.url) as client:
        report = insert_sync(
            rows(lambda: cut(client), 7_000), "RPUSH list:{0} {1}", server=server.url,
            retry="idempotent", connections=connections, on_error="collect",
        )  # fmt: skip
        doubtful = set(report.rows_in_doubt)
        assert report.in_doubt == len(report.rows_in_doubt) == len(doubtful)
        assert (report.rows, report.commands, report.unsent) == (ROWS, ROWS, 0)
        for key in range(KEYS):
            stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
            assert stored == sorted(set(stored))
            assert set(range(key, ROWS, KEYS)) - set(stored) <= doubtful


def test_server_that_restarts(insert: Insert, server: LocalServer) -> None:
    def restart() -> None:
        server.process.kill()
        server.process.wait()
        server.start()

    report = insert(rows(restart, 14_000), "SET key:{1} {1}", server=server.url, retry="idempotent")
    assert (report.rows, report.replies, report.in_doubt, report.unsent) == (ROWS, ROWS, 0, 0)
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == ROWS


def serve_all_slots(server: LocalServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))


def test_server_that_comes_back_empty(
    insert: Insert, start_server: Callable[..., LocalServer]
) -> None:
    """It has no persistence, so acknowledged commands are lost."""
    server = start_server()

    def restart() -> None:
        with redis.Redis.from_url(server.url) as client:
            # before it answers, nothing is lost
            until(lambda: client.dbsize())
        server.stop()
        server.start()

    with pytest.raises(
        fastresp.TransportError, match="acknowledged commands may be lost"
    ) as caught:
        insert(rows(restart, 14_000), "SET key:{1} {1}", server=server.url, retry="idempotent")
    report = caught.value.report
    assert report is not None
    assert (report.rows, report.replies) == (ROWS, ROWS)
    [words] = report.restarts
    assert words.endswith("was restarted or replaced, and is empty")
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() < ROWS


@pytest.mark.parametrize(
    ("now", "lacks"),
    [
        ({}, False),
        ({"run_id": "b"}, True),
        ({"run_id": "b", "aof": True}, False),
        ({"run_id": "b", "aof": True, "keys": False}, True),
        ({"run_id": "b", "uptime_s": 100, "histories": frozenset("xy")}, False),
        ({"run_id": "b", "uptime_s": 100, "histories": frozenset("x")}, True),
        ({"run_id": "b", "uptime_s": 5, "histories": frozenset("xy")}, True),
    ],
)
def test_may_lack_data(now: dict[str, Any], lacks: bool) -> None:
    """A promoted replica was running before, and shares the replication history."""
    before = Process("a", frozenset("y"), 0, aof=False, keys=True)
    assert may_lack_data(before, before._replace(**now), 10.0) == lacks


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("cluster", "retry", "setting", "words"),
    [
        ("no", None, "proto-max-bulk-len", IN_PART),
        ("no", "idempotent", "proto-max-bulk-len", IN_PART),
        ("yes", None, "proto-max-bulk-len", IN_PART),
        ("no", "idempotent", "client-query-buffer-limit", CLOSED),
        ("yes", None, "client-query-buffer-limit", CLOSED),
    ],
)
def test_command_that_closes_the_connection(
    start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch, cluster: str,
    retry: Any, setting: str, words: str,
) -> None:  # fmt: skip
    """It is not resent forever: the error has the server's message, if any, and the row."""
    monkeypatch.setattr(nodes, "MAX_FRUITLESS", 3)
    server = start_server("--cluster-enabled", cluster, "--port", str(free_port()))
    with redis.Redis.from_url(server.url) as client:
        if cluster == "yes":
            serve_all_slots(server)
        client.execute_command("ACL SETUSER loader on >pw ~* +@all -config")
        client.config_set(setting, 1 << 20)
        before = client.info("stats")["total_connections_received"]
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            fastresp.mass_insert(
                [("a", "x"), ("b", "x" * (30 << 20)), ("c", "x")], "SET {0} {1}", retry=retry,
                server=server.url.replace("unix://", "unix://loader:pw@"), transport="socket",
            )  # fmt: skip
        assert caught.value.report is not None
        assert client.get("a") == b"x"
        assert client.info("stats")["total_connections_received"] - before < 12


def busy(server: LocalServer) -> None:
    """Run a script that takes longer than the server's limit."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("lua-time-limit", 20)
        words = "local t = redis.call('TIME') local function ms() local n = redis.call('TIME') "
        words += "return (n[1] - t[1]) * 1000 + (n[2] - t[2]) / 1000 end "
        client.eval(words + "while ms() < 400 do end", 0)


def setting(name: str, value: int) -> Callable[[LocalServer], None]:
    def change(server: LocalServer) -> None:
        with redis.Redis.from_url(server.url) as client:
            client.config_set(name, value)
            time.sleep(0.3)
            client.config_set(name, 0)

    return change


def demote(server: LocalServer) -> None:
    """Make the server a replica for a while."""
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", 1)
        time.sleep(0.3)
        client.replicaof("NO", "ONE")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("code", "happening", "cluster"),
    [
        ("BUSY", busy, "no"),
        ("BUSY", busy, "yes"),
        ("OOM", setting("maxmemory", 1), "no"),
        ("NOREPLICAS", setting("min-replicas-to-write", 1), "no"),
        ("READONLY", demote, "no"),
    ],
)
def test_refusals_that_pass(
    start_server: Callable[..., LocalServer], code: str,
    happening: Callable[[LocalServer], None], cluster: str,
) -> None:  # fmt: skip
    """The load waits for them or ends, since the rest of the source would also be refused."""
    count = 60_000  # for longer than the server refuses
    options = ("--cluster-enabled", "yes", "--port", str(free_port())) if cluster == "yes" else ()
    server = start_server(*options)
    if cluster == "yes":
        serve_all_slots(server)
    for retry in ["idempotent", None] if cluster == "no" else [None]:
        refusing = threading.Thread(target=happening, args=(server,))

        def source(refusing: threading.Thread = refusing) -> Iterator[tuple[int, int]]:
            for i in range(count):
                if i == 5_000:
                    refusing.start()
                if i % 100 == 0:
                    time.sleep(0.001)
                yield i, i

        report = insert_sync(
            source(), "SET key:{0} {1}", server=server.url, retry=retry, on_error="collect"
        )
        refusing.join()
        with redis.Redis.from_url(server.url) as client:
            if retry is not None or cluster == "yes":
                assert (report.replies, report.failed, report.stopped) == (count, 0, "")
                assert client.dbsize() == count
                client.flushall()
            else:
                assert report.errors_by_code == {code: report.failed}
                assert f"because of the server's state: {code} (" in report.stopped
                assert report.rows < count
                assert client.dbsize() == report.replies - report.failed


def test_refusal_that_does_not_pass(start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--maxmemory", "1")
    with pytest.raises(
        fastresp.TransportError, match=r"refused for 0\.5 s, the first of row 0;"
    ) as e:
        insert_sync([(1, 2)], "SET {0} {1}", server=server.url, retry="idempotent", timeout=0.5)
    assert "OOM command not allowed" in str(e.value)
    assert "(raise its maxmemory, or free memory)" in str(e.value)


def test_failover_behind_one_address(
    start_server: Callable[..., LocalServer], port: int, tmp_path: Path
) -> None:
    """The load reconnects to the server that now has the address."""
    before = start_server("--port", str(port))
    after = start_server("--replicaof", f"127.0.0.1 {port}", "--repl-diskless-sync-delay", "0")
    place = tmp_path / "socket"
    place.symlink_to(before.url.removeprefix("unix://"))
    with redis.Redis.from_url(before.url) as former, redis.Redis.from_url(after.url) as latter:
        until(lambda: latter.info("replication")["master_link_status"] == "up")

        def swap() -> None:
            former.config_set(
                "min-replicas-to-write", 1
            )  # so that nothing runs after the next line
            former.wait(1, 5_000)
            latter.replicaof("NO", "ONE")
            place.unlink()
            place.symlink_to(after.url.removeprefix("unix://"))
            former.replicaof("127.0.0.1", 1)

        moments = [int] * 6 + [swap] + [int] * 14
        report = insert_sync(
            rows(lambda: moments.pop(0)(), 1_000), "SET key:{1} {1}", server=f"unix://{place}",
            retry="idempotent", on_error="collect",
        )  # fmt: skip
        assert (report.replies, report.failed, report.stopped) == (ROWS, 0, "")
        assert latter.dbsize() > ROWS // 2
        assert former.dbsize() < ROWS // 2


def test_server_that_does_not_come_back(insert: Insert, server: LocalServer) -> None:
    with pytest.raises(fastresp.TransportError, match=r"was not back after 0\.8 s") as caught:
        insert(
            rows(server.stop, 7_000), "SET key:{1} {1}", server=server.url, retry="always",
            timeout=0.8,
        )  # fmt: skip
    report = caught.value.report
    assert report is not None
    assert report.replies + report.in_doubt == report.commands
    assert report.unsent > 0


def test_source_waits_meanwhile(server: LocalServer) -> None:
    """While the server is down, the source is read only as far as there is room."""
    moment, rows_then = 5_000, 0

    def many() -> Iterator[tuple[int, str]]:
        nonlocal rows_then
        for i in range(100_000):
            if i == moment:
                server.process.kill()
                server.process.wait()
                threading.Timer(0.5, start).start()
            rows_then += not started.is_set()
            yield i, "x" * 1000

    def start() -> None:
        started.set()
        server.start()

    started = threading.Event()
    report = insert_sync(many(), "SET key:{0} {1}", server=server.url, retry="idempotent")
    assert (report.replies, report.in_doubt, report.unsent) == (100_000, 0, 0)
    assert rows_then < moment + 20_000  # 8 MiB are in flight


def test_cancelled_while_it_waits(server: LocalServer) -> None:
    """A task that waits for a server ends, and its report counts what was answered."""

    async def cancelled() -> None:
        task = asyncio.create_task(
            fastresp.aio.mass_insert(
                rows(server.stop, 7_000), "SET key:{1} {1}", server=server.url, retry="always",
                timeout=60,
            )
        )  # fmt: skip
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        report = caught.value.report  # type: ignore[attr-defined]
        assert report.replies + report.in_doubt == report.commands
        assert report.unsent > 0

    asyncio.run(cancelled())


def test_never_is_the_default(server: LocalServer) -> None:
    with (
        redis.Redis.from_url(server.url) as client,
        pytest.raises(fastresp.TransportError, match="lost the connection") as caught,
    ):
        insert_sync(rows(lambda: cut(client), 17_500), "SET key:{1} {1}", server=server.url)
    report = caught.value.report
    assert report is not None
    assert report.commands < ROWS


@pytest.mark.few(0)
def test_transactions(server: LocalServer) -> None:
    """Each ran whole or not at all, and at most once."""
    with redis.Redis.from_url(server.url) as client:
        report = insert_sync(
            rows(lambda: cut(client), 3_000), "MULTI; INCR a:{0}; INCR b:{0}; EXEC",
            server=server.url, retry="idempotent", on_error="collect",
        )  # fmt: skip
        assert (report.rows, report.commands, report.failed) == (ROWS, 4 * ROWS, 0)
        total = 0
        for key in range(KEYS):
            a, b = client.mget(f"a:{key}", f"b:{key}")
            assert a == b
            total += int(a)
        assert ROWS - len(set(report.rows_in_doubt)) <= total <= ROWS


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ([("SELECT", 1), ("SET", "a", 1)], "retry='always' needs the command names beforehand"),
        (["SELECT 1", "SET {a} 1"], "can't be used with SELECT"),
    ],
)
def test_commands_that_change_the_connection(
    server: LocalServer, commands: Any, words: str
) -> None:
    data, template = (commands, None)
    if isinstance(commands[0], str):
        data, template = ([{"a": 1}], commands)
    with pytest.raises(ValueError, match=words):
        insert_sync(data, template, server=server.url, retry="always")


def test_durable_on_replicas(insert: Insert, port: int) -> None:
    """A command counts when the replica has it; without a replica the load ends."""
    with LocalServer("--port", str(port), "--repl-diskless-sync-delay", "0") as primary:
        with LocalServer("--replicaof", "127.0.0.1", str(port)) as replica:
            report = insert(
                rows(lambda: None, ROWS), "SET key:{1} {1}", server=primary.url, durable=1
            )
            assert (report.commands, report.replies, report.in_doubt) == (ROWS, ROWS, 0)
            with redis.Redis.from_url(replica.url) as client:
                assert client.dbsize() == ROWS
        with pytest.raises(fastresp.TransportTimeout) as caught:
            insert_sync(
                rows(lambda: None, ROWS), "SET key:{1} {1}", server=primary.url, durable=1,
                timeout=0.5,
            )  # fmt: skip
        report = caught.value.report
        assert report is not None
        assert report.replies == 0
        assert report.in_doubt == report.commands > 0
        assert "fewer than 1 replica has the commands (WAIT)" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("SET", "k", "v"), True),
        (("set", "k", "v", "EX", 5), True),
        (("HSET", "k", "f", "v"), True),
        (("ZADD", "k", "GT", 1, "m"), True),
        (("ZADD", "k", "incr", 1, "m"), False),
        (("RESTORE", "k", 0, "x"), False),
        (("RESTORE", "k", 0, "x", "REPLACE"), True),
        (("RPUSH", "k", "v"), False),
        (("INCR", "k"), False),
        (("XADD", "k", "1-1", "f", "v"), False),
        (("EVAL", "return 1", 0), False),
        (("JSON.SET", "k", "$", "1"), True),
        (("UNHEARD", "k"), False),
    ],
)
def test_may_resend(command: tuple[Any, ...], expected: bool) -> None:
    assert may_resend([[pack(*command)]]) == [expected]


@pytest.mark.parametrize(
    ("sent", "original", "expected"),
    [
        ("RESTORE k 0 x REPLACE", "RPUSH k v", True),
        ("RESTORE k 0 x", "HSET k f v", False),
        ("HIMPORT SET k fields v", "HSET k f v", True),
        ("EVAL script 1 k f v", "HSET k f v", True),
        ("EVAL script 1 k f v", "EVAL script 1 k f v", False),
    ],
)
def test_whether_a_request_in_doubt_may_be_resent(sent: str, original: str, expected: bool) -> None:
    ledger = Ledger(None, "idempotent", transactions=False, cluster=False)
    command = PendingCommand(0, 0, pack(*original.split()))
    unit = ResendUnit(0, [Request(pack(*sent.split()), [command])])
    assert ledger.may_resend([unit]) == [expected]


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["SET k 1", "INCR k", "SET k 2"], "+-+"),
        # If all have run, rerunning the first one has an effect.
        (["ZADD k XX 5 m", "ZADD k NX 3 m", "SET l 1"], "--+"),
        (["EXPIRE k 9", "HSET k f v"], "--"),
        (["HSET k f v", "EXPIRE k 9", "HSET k f w", "EXPIRE k 9"], "++++"),
        (["SADD k a", "EXPIRE k 9", "SREM k a"], "---"),
        (["ZADD k GT 5 m", "ZADD k GT 3 n"], "++"),
        (["EXPIRE a 9", "MSET a 1 b 2", "SETNX c 1", "DEL c b"], "----"),
    ],
)
def test_commands_of_a_key_together(commands: list[str], expected: str) -> None:
    units = [[pack(*command.split())] for command in commands]
    assert "".join("+" if each else "-" for each in may_resend(units)) == expected


@pytest.mark.parametrize("exists", ["error", "replace", "skip"])
def test_large_keys_of_serialised_loads(server: LocalServer, exists: str) -> None:
    """A connection is lost before the reply to the start of a key."""
    with redis.Redis.from_url(server.url) as client:
        count = 0

        def many() -> Iterator[tuple[int, int]]:
            nonlocal count
            for count in range(ROWS):
                if count % 4_200 == 4_199:
                    cut(client)
                yield count // 3_000, count

        report = insert_sync(
            many(), "RPUSH list:{0} {1}", server=server.url, retry="idempotent", timeout=5,
            mode=Serialize(max_bytes=1000, exists=exists), on_error="collect",
        )  # fmt: skip
        assert (report.rows, report.commands, report.unsent) == (ROWS, ROWS, 0)
        doubtful = set(report.rows_in_doubt)
        failed = report.failed + report.existing
        for key in range(ROWS // 3_000):
            stored = [int(item) for item in client.lrange(f"list:{key}", 0, -1)]
            assert stored == sorted(set(stored))
            missing = set(range(3_000 * key, 3_000 * (key + 1))) - set(stored) - doubtful
            failed -= len(missing)
        assert failed >= 0


@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_newest_value_wins(server: LocalServer, mode: str) -> None:
    """Resent merged commands have the keys of one connection."""
    with redis.Redis.from_url(server.url) as client:
        report = insert_sync(
            rows(lambda: cut(client), 17_500), "SET key:{0} {1}", server=server.url,
            retry="idempotent", connections=4, mode=mode,
        )  # fmt: skip
        assert (report.replies, report.in_doubt) == (ROWS, 0)
        newest = [f"{ROWS - KEYS + key:060}".encode() for key in range(KEYS)]
        assert client.mget([f"key:{key}" for key in range(KEYS)]) == newest


@pytest.mark.slow
def test_connections_that_were_lost_need_no_memory(server: LocalServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        mass = Counted(server, client)
        report = insert_sync(
            mass.rows(), "SET key:{0} {1}", server=server.url, retry="idempotent", connections=2,
            progress=mass.note,
        )  # fmt: skip
    assert report.replies == report.commands == report.rows
    assert mass.most < 40 << 20


class Counted:
    """Yield rows, close the connections 30 times, and record the memory of all held chunks."""

    def __init__(self, server: LocalServer, client: redis.Redis) -> None:
        self.client = client
        self.most = 0

    def rows(self) -> Iterator[tuple[int, str]]:
        for i in range(30 * 2_000):
            if i % 2_000 == 1_999:
                cut(self.client)
            yield i, "x" * 500

    def note(self, report: fastresp.Report) -> None:
        chunks = (each for each in gc.get_objects() if isinstance(each, Chunk))
        self.most = max(self.most, sum(chunk.memory for chunk in chunks))
