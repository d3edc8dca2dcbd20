"""Loads with a checkpoint: where they resume, what they refuse, and what they report."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from loads import Insert
from local_cluster import free_port
from pyarrow import parquet
from resumed_loads import MARKER, NAME, Loads, check_lists, failing
from waiting import until

import fastresp
from fastresp.load.commands import is_idempotent
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint, grouped

StartServer = Callable[..., LocalServer]
PUSH = "RPUSH list:{0} {1}"
ROWS = [(number % 10, number) for number in range(20_000)]


def marker(client: redis.Redis) -> int:
    value = client.get(MARKER)
    assert isinstance(value, bytes)
    return int(value)


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize(
    "template", ["ZADD z:{k} INCR {*v}", "ZADD z:{k} INCR {*v}; INCRBY sum:{k} {n}"]
)
def test_rows_without_items(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, mode: str, template: str
) -> None:
    """The server would not queue their commands, and would refuse the whole transaction."""
    rows = [{"k": i % 3, "n": 1, "v": [i, "m"] if i % 7 else []} for i in range(1_000)]
    options: dict[str, Any] = {"server": server.url, "mode": mode, "on_error": "collect"}
    expected = insert_singly(rows, template, **grouped(options))
    stored = {key: client.dump(key) for key in client.scan_iter()}
    client.flushall()
    report = insert_singly(rows, template, checkpoint=NAME, **grouped(options))
    assert {key: client.dump(key) for key in stored} == stored
    assert (report.commands, report.failed) == (expected.commands, expected.failed)
    assert report.failed == 143
    first, other = report.errors[0], expected.errors[0]
    assert first.text == "ERR wrong number of arguments for 'zadd' command"
    for part in ("row", "index", "text", "arguments"):
        assert getattr(first, part) == getattr(other, part)
    assert report.errors_by_code == expected.errors_by_code


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("connections", [2, 5])
def test_several_connections(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, connections: int, mode: str
) -> None:
    """Each has its own marker, since one may be ahead of the others."""
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "source_id": "numbers", "mode": mode,
        "connections": connections, "resume": True,
    }  # fmt: skip
    rows, replies = [(number % 1_000, number) for number in range(20_000)], 0
    for at in (1, 4_999, 12_345):
        with pytest.raises(OSError, match="the source has failed") as caught:
            insert_singly(failing(rows, at), PUSH, **grouped(options))
        replies += caught.value.report.replies  # type: ignore[attr-defined]
        assert replies == at
    with pytest.raises(fastresp.CheckpointError, match=f"'of {connections} connections' and"):
        insert_singly(iter(rows), PUSH, **grouped(options | {"connections": 3}))
    report = insert_singly(iter(rows), PUSH, **grouped(options))
    assert (report.rows, report.replies) == (20_000 - 12_345, 20_000 - 12_345)
    check_lists(client, 1_000, len(ROWS))


def test_several_connections_with_idempotent_commands(
    server: LocalServer, client: redis.Redis
) -> None:
    """A single marker suffices, and the number of connections may change."""
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "source_id": "numbers"}
    for connections, at in ((3, 4_000), (1, 9_000), (7, 12_345)):
        with pytest.raises(OSError, match="the source has failed"):
            fastresp.mass_insert(
                failing(ROWS, at), "SADD set:{0} {1}", connections=connections,
                **grouped(options | {"resume": True}),
            )  # fmt: skip
    fastresp.mass_insert(
        iter(ROWS), "SADD set:{0} {1}", connections=2, **grouped(options | {"resume": True})
    )
    assert marker(client) == len(ROWS)
    assert sum(client.scard(f"set:{key}") for key in range(10)) == len(ROWS)


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("at", [1, 4_999, 12_345])
def test_resumes_after_the_source_has_failed(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, at: int, mode: str
) -> None:
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "source_id": "numbers", "mode": mode,
    }  # fmt: skip
    with pytest.raises(OSError, match="the source has failed"):
        insert_singly(failing(ROWS, at), PUSH, **grouped(options))
    assert marker(client) == at
    report = insert_singly(iter(ROWS), PUSH, **grouped(options | {"resume": True}))
    rows = len(ROWS) - at
    assert (report.rows, report.replies, report.resumed_at) == (rows, rows, at)
    check_lists(client, 10, len(ROWS))
    report = insert_singly(iter(ROWS), PUSH, **grouped(options | {"resume": True}))
    assert (report.rows, report.commands, report.resumed_at) == (0, 0, len(ROWS))
    assert "20,000 rows were loaded before, until 20" in str(report)
    check_lists(client, 10, len(ROWS))


@pytest.mark.few(3)
@pytest.mark.parametrize("start", [0, 1, 29_999, 30_000, 59_999, 75_000, 99_999])
def test_columns_and_files_resume_at_a_row(
    server: LocalServer, client: redis.Redis, tmp_path: Path, start: int
) -> None:
    """Earlier row groups and files are not read."""
    table = pa.table({"id": range(100_000)})
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        parquet.write_table(table.slice(number * 60_000, 60_000), path, row_group_size=10_000)
    csv = tmp_path / "numbers.csv"
    csv.write_text("id\n" + "\n".join(map(str, range(100_000))))
    for source in (table, paths, csv):
        client.flushall()
        options: dict[str, Any] = {"server": server.url, "checkpoint": NAME}
        with pytest.raises(fastresp.LoadErrors):
            # Stops early, since the server refuses it.
            client.set("list:", "no list")
            fastresp.mass_insert(source, "RPUSH list: {id}", on_error="stop", **grouped(options))
        client.delete("list:")
        client.set(MARKER, start)
        report = fastresp.mass_insert(
            source, "RPUSH list: {id}", on_error="collect", **grouped(options | {"resume": True})
        )
        assert (report.rows, report.resumed_at, report.failed) == (100_000 - start, start, 0)
        stored = [int(item) for item in client.lrange("list:", 0, -1)]
        assert stored == [*range(start, 100_000)]


def test_files_have_the_columns_of_the_first_file(
    server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """In the same order, even if a load resumes in another file; each file has its own types."""
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    parquet.write_table(pa.table({"a": [1, 2], "b": [1, 2]}), paths[0])
    parquet.write_table(pa.table({"b": [3.0, 4.0], "a": [3, 4]}), paths[1])
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "source_id": "files"}
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(
            failing([{"a": 1}, {"a": 2}, {}], 2), "RPUSH list {**}", **grouped(options)
        )
    client.delete("list")
    fastresp.mass_insert(paths, "RPUSH list {**}", **grouped(options | {"resume": True}))
    assert client.lrange("list", 0, -1) == [b"a", b"3", b"b", b"3.0", b"a", b"4", b"b", b"4.0"]


def test_source_shorter_than_the_marker(server: LocalServer, client: redis.Redis) -> None:
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "source_id": "numbers"}
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing([{"a": 1}] * 10, 10), "RPUSH list {a}", **grouped(options))
    with pytest.raises(fastresp.CheckpointError, match="has 3 rows, but 10 were loaded before"):
        fastresp.mass_insert(
            pa.table({"a": [1] * 3}), "RPUSH list {a}", **grouped(options | {"resume": True})
        )
    with pytest.raises(fastresp.CheckpointError, match="has fewer than 10 rows, which were loaded"):
        fastresp.mass_insert(
            iter([{"a": 1}] * 3), "RPUSH list {a}", **grouped(options | {"resume": True})
        )
    assert marker(client) == 10
    assert client.llen("list") == 10


def test_server_closes_idle_connections(start_server: StartServer) -> None:
    """The checkpoint's connection is idle until the end."""
    server = start_server("--timeout", "1")

    def rows() -> Iterator[tuple[int, int]]:
        end = time.monotonic() + 3
        for number in range(1_000_000):
            if time.monotonic() > end:
                return
            time.sleep(0.001)
            yield 0, number

    report = fastresp.mass_insert(
        rows(), PUSH, server=server.url, checkpoint=Checkpoint(NAME, source_id="numbers")
    )
    with redis.Redis.from_url(server.url) as client:
        assert marker(client) == report.rows == client.llen("list:0")
        assert client.hexists(f"fastresp:{{{NAME}}}", "ended")


def test_errors_are_reported_once(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    """A failed command counts as processed; its row and arguments are in the report."""
    client.set("list:3", "no list")
    rejects = tmp_path / "rejects"
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "on_error": "collect", "rejects": rejects,
    }  # fmt: skip
    report = insert_singly(ROWS, PUSH, **grouped(options))
    assert (report.replies, report.failed) == (20_000, 2_000)
    assert report.errors_by_code == {"WRONGTYPE": 2_000}
    assert [error.row for error in report.errors[:3]] == [3, 13, 23]
    assert report.errors[2].arguments == (b"RPUSH", b"list:3", b"23")
    assert len(rejects.read_text().splitlines()) == 2_000
    assert marker(client) == len(ROWS)


def test_full_memory(insert_singly: Insert, server: LocalServer, client: redis.Redis) -> None:
    """The load stops at the first refused transaction, none of whose commands has run."""
    rows = [(number % 10, number, "x" * 1000) for number in range(20_000)]
    template = "RPUSH list:{0} {1}; SETRANGE large:{1} 0 {2}; INCR count"
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME}
    client.config_set("maxmemory", client.info("memory")["used_memory"] + (8 << 20))
    try:
        with pytest.raises(fastresp.TransportError, match="ran none of them: OOM") as caught:
            insert_singly(rows, template, **grouped(options))
    finally:
        client.config_set("maxmemory", 0)
    done = marker(client)
    report = caught.value.report
    assert report is not None
    assert 0 < done < 20_000
    assert (report.rows, report.commands, report.replies) == (done, 3 * done, 3 * done)
    assert (report.in_doubt, report.failed) == (0, 0)
    assert report.unsent > 0
    check_lists(client, 10, done)
    assert client.get("count") == b"%d" % done
    insert_singly(rows, template, **grouped(options | {"resume": True}))
    check_lists(client, 10, len(ROWS))
    assert client.get("count") == b"20000"


@pytest.mark.few(1)
def test_waits_for_replicas(insert_singly: Insert, start_server: StartServer) -> None:
    """EXEC does not wait for them, so they confirm several transactions together."""
    port = free_port()
    server = start_server("--port", str(port))
    replica = start_server("--replicaof", f"127.0.0.1 {port}", "--repl-diskless-sync-delay", "0")
    with redis.Redis.from_url(replica.url) as client:
        until(lambda: client.info("replication")["master_link_status"] == "up")
        report = insert_singly(ROWS, PUSH, server=server.url, checkpoint=NAME, durable=1)
        assert (report.replies, report.in_doubt) == (len(ROWS), 0)
        check_lists(client, 10, len(ROWS))
        assert marker(client) == len(ROWS)


def test_nothing_runs_after_a_refused_transaction(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """Later transactions are already sent, and would be accepted."""
    rights = ("~list", f"~fastresp:{{{NAME}}}*", "+@all")
    client.execute_command("ACL", "SETUSER", "loader", "on", ">secret", *rights)
    rows = [("other" if number == 2_600 else "list", number) for number in range(20_000)]
    url = f"{server.url}?username=loader&password=secret"
    with pytest.raises(fastresp.TransportError, match=r"ran none of them: .*NOPERM"):
        insert_singly(rows, "RPUSH {0} {1}", server=url, checkpoint=NAME)
    client.acl_deluser("loader")
    assert marker(client) <= 2_600
    stored = [int(item) for item in client.lrange("list", 0, -1)]
    assert stored == [*range(marker(client))]


def test_nothing_is_lost_with_idempotent_commands(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    """Without transactions, the row is stored periodically and at the end."""
    client.config_resetstat()
    with pytest.raises(OSError, match="the source has failed"):
        insert_singly(
            failing(ROWS, 5_000), "HSET hash:{0} {1} {1}", server=server.url,
            checkpoint=Checkpoint(NAME, source_id="numbers"),
        )  # fmt: skip
    assert 0 <= marker(client) <= 5_000
    report = insert_singly(
        iter(ROWS), "HSET hash:{0} {1} {1}", server=server.url,
        checkpoint=Checkpoint(NAME, source_id="numbers", resume=True),
    )  # fmt: skip
    assert report.rows + report.resumed_at == len(ROWS)
    assert sum(client.hlen(f"hash:{key}") for key in range(10)) == len(ROWS)
    assert marker(client) == len(ROWS)
    assert client.info("commandstats")["cmdstat_exec"]["calls"] < 10


@pytest.mark.parametrize(
    ("template", "twice"),
    [
        ("SET {k} {v}", True), ("SET {k} {v} EX 10", True), ("SET {k} {v} {option}", False),
        ("SET {k} {v} NX", False), ("SETEX {k} {t} {v}", True), ("HSET {k} {**}", True),
        ("SADD {k} {v} {w}", True), ("ZADD {k} {s} {m}", True), ("ZADD {k} NX {s} {m}", False),
        ("ZADD {k} {o} {s} {m}", False), ("DEL {k}", True), ("HSET {k} a 1; EXPIRE {k} 10", True),
        ("EXPIRE {k} 10; HSET {k} a 1", False), ("DEL {k}; HSET {k} a 1", False),
        ("HSET {k} a 1; EXPIRE {j} 10", False), ("RPUSH {k} {v}", False), ("INCR {k}", False),
        ("XADD {k} * a 1", False), ("HSET {k} a 1; INCR n", False), ("{c} {k} {v}", False),
        ("HINCRBY {k} a 1", False), ("RENAME a b", False),
        ("SET {k} {*v}", False), ("SADD {k} {*v}", True), ("JSON.SET {k} $ {v}", True),
        ("JSON.SET {k} {p} {v}", False), ("JSON.SET {k} $.a[?(@.b==1)].c {v}", False),
        ("JSON.SET {k}", False), ("JSON.SET {k} $..a {v}", False), ("ZADD {k} {*v}", False),
        ("ZADD {k} {**}", False),
    ],
)  # fmt: skip
def test_which_templates_are_idempotent(template: str, twice: bool) -> None:
    assert is_idempotent(fastresp.Template(template)) is twice


def test_options_in_a_row(server: LocalServer, client: redis.Redis) -> None:
    """Items may start with INCR, so ZADD with items needs transactions."""
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "source_id": "scores", "resume": True,
    }  # fmt: skip
    rows = [("scores", ["INCR", 1, "member"])] * 9
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing(rows, 5), "ZADD {0} {*1}", **grouped(options))
    assert marker(client) == 5
    fastresp.mass_insert(iter(rows), "ZADD {0} {*1}", **grouped(options))
    assert client.zscore("scores", "member") == 9


def test_expire_without_its_command_is_not_idempotent() -> None:
    """Otherwise, a key created by a later row would get the expiry of an earlier row."""
    template = fastresp.Template("HSET {k} a {v}; EXPIRE {k} {t}")
    assert not is_idempotent(template, "skip")
    assert is_idempotent(template, "empty")


def test_forgotten_script(insert_singly: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Each transaction loads it."""
    script = fastresp.Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")

    def rows() -> Iterator[Any]:
        for row in ROWS:
            if row[1] % 3_000 == 2_000:
                client.script_flush()
            yield row

    client.set("list:wrong", "no list")
    report = insert_singly(
        rows(), [script.command("list:{0}", "{1}"), "INCR rows"], server=server.url,
        checkpoint=Checkpoint(NAME, source_id="numbers"),
    )  # fmt: skip
    assert (report.failed, report.commands) == (0, 2 * len(ROWS))
    check_lists(client, 10, len(ROWS))
    wrong = [("wrong", 1), (1, 2), ("wrong", 3)]
    report = insert_singly(
        wrong, script.command("list:{0}", "{1}"), server=server.url, checkpoint="other",
        on_error="collect",
    )  # fmt: skip
    assert [error.row for error in report.errors] == [0, 2]


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("connections", [1, 2])
def test_rate_limit(server: LocalServer, client: redis.Redis, mode: str, connections: int) -> None:
    """A transaction has at most the commands of a hundredth of a second."""
    client.config_resetstat()
    report = fastresp.mass_insert(
        ROWS, PUSH, server=server.url, checkpoint=NAME, rate_limit=20_000, mode=mode,
        connections=connections,
    )  # fmt: skip
    assert report.replies == len(ROWS)
    assert client.info("commandstats")["cmdstat_exec"]["calls"] >= len(ROWS) / 200
    check_lists(client, 10, len(ROWS))


class TestErrors:
    """Errors of rows that ran are reported once, even if the load was resumed."""

    def rows(self) -> list[Any]:
        return [("wrong" if number % 100 == 7 else number % 10, number) for number in range(9_000)]

    @pytest.mark.parametrize("connections", [1, 3])
    def test_rejects_are_continued(
        self, server: LocalServer, client: redis.Redis, tmp_path: Path, connections: int
    ) -> None:
        client.set("list:wrong", "no list")
        path = tmp_path / "rejects.jsonl"
        options: dict[str, Any] = {
            "server": server.url, "checkpoint": NAME, "source_id": "numbers", "rejects": path,
            "connections": connections, "on_error": "collect",
        }  # fmt: skip
        with pytest.raises(OSError, match="the source has failed"):
            fastresp.mass_insert(failing(self.rows(), 5_000), PUSH, **grouped(options))
        assert len(path.read_text().splitlines()) == 50
        # As if the server had lost the last rows, and the loader was killed while writing a line.
        for key in client.scan_iter("fastresp:*:row*"):
            value = client.get(key)
            assert isinstance(value, bytes)
            generation, _, _ = value.rpartition(b":")
            client.set(key, generation + b":3000" if generation else 3_000)
        with path.open("a") as file:
            file.write('{"command": 5')
        report = fastresp.mass_insert(
            iter(self.rows()), PUSH, **grouped(options | {"resume": True})
        )
        assert (report.resumed_at, report.failed) == (3_000, 60)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["row"] for line in lines] == [*range(7, 9_000, 100)]
        client.delete("list:wrong")
        again = fastresp.mass_insert(fastresp.read_rejects(path), server=server.url)
        assert (again.commands, client.llen("list:wrong")) == (90, 90)

    def test_rejects_file_that_exists_before_the_first_load(
        self, server: LocalServer, tmp_path: Path
    ) -> None:
        path = tmp_path / "rejects.jsonl"
        path.write_text("something\n")
        with pytest.raises(FileExistsError):
            fastresp.mass_insert(
                self.rows(),
                PUSH,
                server=server.url,
                checkpoint=Checkpoint(NAME, resume=True),
                rejects=path,
            )
        assert path.read_text() == "something\n"

    def test_replies_that_were_not_received(self, server: LocalServer, client: redis.Redis) -> None:
        options: dict[str, Any] = {
            "server": server.url, "checkpoint": NAME, "source_id": "numbers", "resume": True,
        }  # fmt: skip
        with pytest.raises(OSError, match="the source has failed"):
            fastresp.mass_insert(failing(ROWS, 5_000), PUSH, **grouped(options))
        assert client.hget(f"fastresp:{{{NAME}}}", "seen") == b"5000"
        # As if the loader had died before it read them.
        client.hset(f"fastresp:{{{NAME}}}", "seen", 4_000)
        with pytest.raises(OSError, match="the source has failed"):
            fastresp.mass_insert(failing(ROWS, 8_000), PUSH, **grouped(options))
        # As if this loader had also died, so that its report is lost.
        for seen, unknown in ((8_000, (4_000, 5_000)), (7_000, (4_000, 8_000))):
            client.hset(f"fastresp:{{{NAME}}}", "seen", seen)
            with pytest.raises(OSError, match="the source has failed") as caught:
                fastresp.mass_insert(failing(ROWS, 8_000), PUSH, **grouped(options))
            assert caught.value.report.errors_unknown == unknown  # type: ignore[attr-defined]
        for _ in range(2):
            report = fastresp.mass_insert(iter(ROWS), PUSH, **grouped(options))
            assert report.errors_unknown == (4_000, 8_000)
        assert report.ended_before
        assert "some of the rows 4,000 to 7,999 ran before, and their replies" in str(report)

    def test_replies_of_lost_rows_do_not_count(
        self, server: LocalServer, client: redis.Redis
    ) -> None:
        """The rows run again, and a loader that dies then has not received their replies."""
        options: dict[str, Any] = {
            "server": server.url, "checkpoint": NAME, "source_id": "numbers", "resume": True,
        }  # fmt: skip
        seen = []

        def rows() -> Iterator[Any]:
            for row in ROWS:
                if row[1] == 3_500:
                    seen.append(client.hget(f"fastresp:{{{NAME}}}", "seen"))
                yield row

        with pytest.raises(OSError, match="the source has failed"):
            fastresp.mass_insert(failing(ROWS, 5_000), PUSH, **grouped(options))
        client.set(MARKER, 3_000)
        fastresp.mass_insert(rows(), PUSH, **grouped(options))
        assert seen == [b"3000"]

    def test_killed_loader(self, server: LocalServer, client: redis.Redis) -> None:
        loads = Loads(server, PUSH, 1, 1)
        loads.run(Loads.kill_loader)
        assert "and their replies were not received" in loads.printed


class TestRefused:
    @pytest.fixture
    def begun(self, server: LocalServer) -> dict[str, Any]:
        options: dict[str, Any] = {"server": server.url, "checkpoint": NAME}
        fastresp.mass_insert(ROWS, PUSH, **grouped(options))
        return options

    def test_without_resume(self, begun: dict[str, Any], client: redis.Redis) -> None:
        with pytest.raises(fastresp.CheckpointError, match=r"ended at row 20,000: .*resume=True"):
            fastresp.mass_insert(ROWS, PUSH, **grouped(begun))
        fastresp.mass_insert(ROWS, PUSH, **grouped(begun | {"checkpoint_clear": True}))
        assert client.llen("list:0") == 4_000

    @pytest.mark.parametrize(
        ("rows", "template", "options", "what"),
        [
            (ROWS, "RPUSH other:{0} {1}", {}, "template"),
            (ROWS[:-1], PUSH, {}, "source"),
            ([*ROWS[:-1], (0, 0)], PUSH, {}, "source"),
            (ROWS, PUSH, {"mode": "merge"}, "mode"),
            (ROWS, PUSH, {"source_id": "another"}, "source"),
        ],
    )
    def test_another_load(
        self, begun: dict[str, Any], rows: Any, template: str, options: Any, what: str
    ) -> None:
        with pytest.raises(fastresp.CheckpointError, match=f"belongs to another load: {what} was"):
            fastresp.mass_insert(rows, template, **grouped(begun | options | {"resume": True}))

    def test_changed_nulls(self, server: LocalServer, client: redis.Redis) -> None:
        """Rows that ran while nulls were errors had none; after that, ``nulls`` must not change."""
        options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "resume": True}
        for template in ("RPUSH list {0}; INCRBY sum {1}", "SADD set {1}"):
            client.flushall()
            rows = [(number, None if number % 2_999 == 2_998 else 1) for number in range(6_000)]
            with pytest.raises(fastresp.EncodeError, match=r"row 2,998"):
                fastresp.mass_insert(rows, template, **grouped(options))
            report = fastresp.mass_insert(rows, template, nulls="skip", **grouped(options))
            assert (report.resumed_at, report.resumed_at + report.rows) == (2_998, 6_000)
            if template.startswith("RPUSH"):
                assert (client.llen("list"), client.get("sum")) == (6_000, b"5998")
            with pytest.raises(fastresp.CheckpointError, match="another load: nulls was 'skip'"):
                fastresp.mass_insert(rows, template, nulls="empty", **grouped(options))
        # EXPIRE without its SET is not idempotent.
        options["checkpoint"] = "other"
        with pytest.raises(fastresp.EncodeError, match=r"row 2,998"):
            fastresp.mass_insert(rows, "SET {0} {1}; EXPIRE {0} 9", **grouped(options))
        with pytest.raises(fastresp.CheckpointError, match="way of sending was 'single comm"):
            fastresp.mass_insert(
                rows, "SET {0} {1}; EXPIRE {0} 9", nulls="skip", **grouped(options)
            )

    def test_changed_file(self, server: LocalServer, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("k,v\n" + "a,1\n" * 100)
        options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "resume": True}
        fastresp.mass_insert(path, "RPUSH {k} {v}", **grouped(options))
        path.write_text("k,v\n" + "a,2\n" * 100)
        with pytest.raises(fastresp.CheckpointError, match="belongs to another load: source was"):
            fastresp.mass_insert(path, "RPUSH {k} {v}", **grouped(options))

    @pytest.mark.parametrize(
        ("source", "template", "options", "words"),
        [
            (iter(ROWS), PUSH, {}, "can be read only once"),
            ([("SET", "a", 1)], None, {}, "it needs a template"),
            (ROWS, "MULTI; RPUSH a {1}; EXEC", {}, "MULTI and EXEC; leave them out"),
            (ROWS, PUSH, {"retry": "always"}, "resume the load instead"),
            (ROWS, "RPUSH a {1}", {"mode": "serialize"}, "serialised loads"),
            (ROWS, PUSH, {"checkpoint": "a b"}, "must be 1 to 200 letters"),
            (ROWS, PUSH, {"source_id": ""}, "source_id must be a non-empty text"),
            (ROWS, PUSH, {"source_id": 5}, "source_id must be a non-empty text"),
            (ROWS, PUSH, {"source_id": "\ud800"}, "source_id must be a non-empty text"),
        ],
    )
    def test_unsupported_loads(
        self, server: LocalServer, client: redis.Redis, source: Any, template: Any, options: Any,
        words: str,
    ) -> None:  # fmt: skip
        with pytest.raises(fastresp.CheckpointError, match=words):
            fastresp.mass_insert(
                source, template, **grouped({"server": server.url, "checkpoint": NAME} | options)
            )
        assert client.dbsize() == 0

    def test_query_that_names_its_files(self, server: LocalServer, tmp_path: Path) -> None:
        """It is unknown whether they have changed."""
        (tmp_path / "rows.csv").write_text("k,v\na,1\n")
        source = fastresp.read(f"SELECT * FROM '{tmp_path}/rows.csv'")
        with pytest.raises(fastresp.SourceError, match="unknown which files this query reads"):
            fastresp.mass_insert(source, "RPUSH {k} {v}", server=server.url, checkpoint=NAME)

    def test_error_before_anything_is_sent(self, server: LocalServer, client: redis.Redis) -> None:
        """It leaves no checkpoint for another template."""
        options: dict[str, Any] = {"server": server.url, "checkpoint": NAME}
        table = pa.table({"k": ["a"], "v": [1]})
        with pytest.raises(fastresp.TemplateError):
            fastresp.mass_insert(table, "RPUSH {k} {w}", **grouped(options))
        assert client.dbsize() == 0
        assert fastresp.mass_insert(table, "RPUSH {k} {v}", **grouped(options)).replies == 1

    @pytest.mark.parametrize("key", [MARKER, f"fastresp:{{{NAME}}}"])
    def test_partially_deleted_checkpoint(
        self, begun: dict[str, Any], client: redis.Redis, key: str
    ) -> None:
        client.delete(key)
        with pytest.raises(fastresp.CheckpointError, match="is gone"):
            fastresp.mass_insert(ROWS, PUSH, **grouped(begun | {"resume": True}))

    def test_server_that_may_evict_it(self, start_server: StartServer) -> None:
        server = start_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
        with pytest.raises(fastresp.CheckpointError, match="set noeviction"):
            fastresp.mass_insert(ROWS, PUSH, server=server.url, checkpoint=NAME)


def test_command_line(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n" + "".join(f"{key},{value}\n" for key, value in ROWS))
    begin = [*preloaded.PROGRAM, "load", str(path), "RPUSH list:{k} {v}", "--server", server.url]
    named = [*begin, "--checkpoint", NAME]
    with preloaded.Popen([*named, "--rate-limit", "20000"], stderr=subprocess.PIPE) as loader:
        until(lambda: client.get(MARKER) not in (None, b"0"))
        loader.kill()
    done = marker(client)
    assert done < len(ROWS)
    refused = preloaded.run(named, capture_output=True, text=True)
    assert refused.returncode == 64
    assert "--resume continues it, --checkpoint-clear starts over" in refused.stderr
    for _ in range(2):
        resumed = preloaded.run([*named, "--resume"], capture_output=True, text=True)
        assert resumed.returncode == 0, resumed.stderr
        assert "rows were loaded before" in resumed.stderr
        check_lists(client, 10, len(ROWS))
