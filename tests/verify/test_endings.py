"""Refusals, lost servers, interruptions, concurrent writers, repairs and limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from peak import PEAK
from waiting import until

import fastresp
import fastresp.aio
from fastresp.load.verifying import verify as module
from fastresp.load.verifying.differences import Differences
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
Load = Callable[..., fastresp.Report]
ROWS = [(i, f"v{i}") for i in range(1000)]
SCRIPT = fastresp.Script("return redis.call('SET', KEYS[1], ARGV[1])")


def test_began_in_the_future(verify: Verify) -> None:
    """Any time to live would be accepted."""
    with pytest.raises(ValueError, match="since is in the future: 2"):
        verify(ROWS, "SET k:{0} {1} EX 10", since=time.time() + 60, server="redis://127.0.0.1:1")


@pytest.mark.parametrize(
    "template",
    [
        "XADD k * a {1}", "INCR k", ["SET k:{0} 1", "INCRBY k 1"], "PFADD k {1}",
        SCRIPT.command("k:{0}", "{1}"), "LSET k 0 {1}", "HLEN k 1", "GET k", "APPEND k {1}",
    ],
    ids=str,
)  # fmt: skip
def test_refused_templates(template: Any, verify: Verify, server: LocalServer) -> None:
    """Refused before a connection is opened."""
    with pytest.raises(fastresp.TemplateError, match="can't be verified; SET, HSET"):
        verify(ROWS, template, server="redis://127.0.0.1:1")


@pytest.mark.parametrize(
    "command",
    [
        ("INCR", "k"), ("SET", "k", 1, "NX"), ("SET", "k", 1, "EX"), ("SET", "k", 1, "EX", "x"),
        ("ZADD", "k", "NX", 1, "a"), ("ZADD", "k", "CH", "INCR", 1, "a"), ("ZADD", "k", 1),
        ("ZADD", "k", "CH"), ("ZADD", "k", "CH", "CH", 1, "a"), ("ZADD", "k", "NX", "CH"),
        ("HSET", "k", "a"), ("EXPIRE", "k", 1, "NX"), ("EXPIRE", "k", "1" + "0" * 17),
        ("JSON.SET", "k", "$", "1", "NX"), ("SET", "k"), ("GET", "k"), ("LSET", "k", 0, 1),
        ("HLEN", "k", 1), ("NO.SUCH", "k"), ("PERSIST", "k", 1), ("MSET", "k"), ("SADD", "k"),
        ("SETEX", "k", "x", 1), ("DEL",), ("x" * 100, "k"),
    ],
    ids=str,
)  # fmt: skip
def test_refused_commands(
    command: tuple[Any, ...], load: Load, verify: Verify, client: redis.Redis
) -> None:
    """Earlier commands are compared; the error names the row."""
    client.set("a", 1)
    for rows in (
        [command],
        [("SET", "a", 1), command],
        [("SET", "a", 1), command, ("SET", "a", 1)],
    ):
        with pytest.raises(fastresp.EncodeError, match="can't be verified") as caught:
            verify(rows)
        assert (caught.value.row, caught.value.command) == (len(rows[:2]) - 1,) * 2
        if len(rows) > 1:
            report: Any = caught.value.report  # type: ignore[attr-defined]
            assert report.values == 1 and not report.same


def test_list_that_grows_at_both_ends(verify: Verify) -> None:
    rows = [("RPUSH", "k", 1), ("LPUSH", "j", 1), ("LPUSH", "k", 2)]
    with pytest.raises(fastresp.EncodeError, match=r"row 2, command 2: LPUSH .* at the other end"):
        verify(rows)


def test_refused_resp_files(verify: Verify, tmp_path: Path) -> None:
    path = tmp_path / "x.resp"
    fastresp.dump([("SET", "a", 1), ("XADD", "s", "*", "a", "b")], None, path)
    with pytest.raises(fastresp.EncodeError, match="XADD can't be verified"):
        verify(path, server="redis://127.0.0.1:1")


def test_lists_are_not_repaired(verify: Verify, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="repair=True can't be used with RPUSH: items would"):
        verify(ROWS, "RPUSH k {1}", repair=True, server="redis://127.0.0.1:1")
    with pytest.raises(fastresp.EncodeError, match=r"row 1, .* can't be repaired"):
        verify([("SET", "k", 1), ("LPUSH", "l", 1)], repair=True)
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_differences": 0}, {"max_differences": True}, {"exact": True, "sample": "1%"},
        {"since": float("nan")}, {"since": -1},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_options(options: dict[str, Any], verify: Verify) -> None:
    with pytest.raises(ValueError, match=r"number of 1 or more|leave out sample|since"):
        verify(ROWS, "SET k:{0} {1}", **options)


async def write_later(difference: fastresp.Difference) -> None:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize("target", [[], b"differences.jsonl", 1, write_later])
def test_differences_without_a_valid_target(target: Any, verify: Verify) -> None:
    with pytest.raises(TypeError, match="differences must be a path or a"):
        verify(ROWS, "SET k:{0} {1}", differences=target)


def test_refused_reads(verify: Verify, start_server: Callable[..., LocalServer]) -> None:
    """An error reply other than for the type ends the comparison, and names the command."""
    server = start_server("--rename-command", "HMGET", "")
    with pytest.raises(fastresp.CommandError, match="unknown command") as caught:
        verify(ROWS, "HSET k:{0} a {1}", server=server.url)
    assert caught.value.arguments == (b"HMGET", b"k:0", b"a")
    assert caught.value.row == 0


def test_server_that_does_not_run(verify: Verify) -> None:
    with pytest.raises(fastresp.TransportError, match="Connection refused"):
        verify(ROWS, "SET k:{0} {1}", server="redis://127.0.0.1:1")


def test_server_that_dies(verify: Verify, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def rows() -> Iterator[tuple[int, str]]:
        for i in range(100_000):
            if i == 20_000:
                server.process.kill()
            yield i, f"v{i}" * 10

    with pytest.raises(fastresp.TransportError, match="lost the connection") as caught:
        verify(rows(), "SET k:{0} {1}", server=server.url)
    report: Any = caught.value.report
    assert 0 < report.values < 100_000 and report.by_kind == {"missing": report.differing}
    assert report.stopped == "not all rows were compared, and no differences were rechecked"
    assert not report.same


@pytest.mark.few(1)
def test_frozen_server(verify: Verify, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def rows() -> Iterator[tuple[int, str]]:
        for i in range(40_000):
            if i == 20_000:
                server.process.send_signal(signal.SIGSTOP)
            yield i, f"v{i}" * 10

    try:
        with pytest.raises(fastresp.TransportTimeout, match=r"no progress for 0.5 s"):
            verify(rows(), "SET k:{0} {1}", server=server.url, timeout=0.5)
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_source_that_fails(load: Load, verify: Verify, client: redis.Redis) -> None:
    def rows() -> Iterator[tuple[int, str]]:
        yield from ROWS
        raise OverflowError("mine")

    load(ROWS, "SET k:{0} {1}")
    with pytest.raises(OverflowError, match="mine") as caught:
        verify(rows(), "SET k:{0} {1}")
    report: Any = caught.value.report  # type: ignore[attr-defined]
    assert report.values == 1000
    # The report does not claim that nothing differs.
    assert "rows/s): no difference was found\nnot all rows were compared" in str(report)


def test_interruption(load: Load, server: LocalServer) -> None:
    """Ctrl-C ends it immediately, with the report; the connection is closed."""

    def rows() -> Iterator[tuple[int, str]]:
        for i in range(10**9):
            if i == 30_000:
                os.kill(os.getpid(), signal.SIGINT)
            yield i, f"v{i}"

    with pytest.raises(KeyboardInterrupt) as caught:
        fastresp.verify(rows(), "SET k:{0} {1}", server=server.url)
    report: Any = caught.value.report  # type: ignore[attr-defined]
    assert 0 < report.values <= 30_001 and report.stopped
    with redis.Redis.from_url(server.url) as client:
        until(lambda: len(client.client_list(_type="normal")) <= 1)


def test_cancellation(server: LocalServer) -> None:
    async def main() -> None:
        def rows() -> Iterator[tuple[int, str]]:
            for i in range(10**9):
                if i == 30_000:
                    task.cancel()
                yield i, f"v{i}"

        task = asyncio.create_task(fastresp.aio.verify(rows(), "SET k:{0} {1}", server=server.url))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_no_more_than_max_differences(load: Load, verify: Verify, client: redis.Redis) -> None:
    """Later rows are still read, since they overwrite values, so the report is correct."""
    rows = [*ROWS, *((i, "new") for i in range(100))]
    load(rows, "SET k:{0} {1}")
    for i in range(1000):
        client.setrange(f"k:{i}", 0, "?")
    report = verify(rows, "SET k:{0} {1}", max_differences=300)
    assert 0 < report.differing <= 300 and not report.same
    assert {each.row for each in report.differences} <= set(range(100, 1000))
    assert "no values were compared after" in str(report)
    assert "(a larger max_differences" in str(report)
    assert report.rows == 1100


def test_no_more_keys_with_extra_items_than_max_differences(load: Load, verify: Verify) -> None:
    load([(i,) for i in range(100)], "HSET k:{0} a 1 b 2")
    report = verify([(i,) for i in range(100)], "HSET k:{0} a 1", exact=True, max_differences=30)
    assert (report.by_kind, report.same) == ({"extra": 30}, False)
    assert "70 more keys have items" in report.stopped


def test_extra_items_are_not_counted_after_max_differences(
    load: Load, verify: Verify, client: redis.Redis
) -> None:
    """Later rows could name them."""
    rows = [("SADD", "k", "a"), *(("SET", f"k:{i}", 1) for i in range(10)), ("SADD", "k", "b")]
    rows += [("RPUSH", "l", "x"), *(("SET", f"j:{i}", 1) for i in range(10)), ("RPUSH", "l", "y")]
    load(rows)
    assert verify(rows, exact=True).same
    for i in range(10):
        client.set(f"k:{i}", 2)
    report = verify(rows, exact=True, max_differences=5)
    assert report.by_kind == {"value": report.differing} and report.stopped


def test_written_meanwhile(
    load: Load, verify: Verify, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that another client corrects before the recheck is no difference; a change is one."""
    load(ROWS, "SET k:{0} {1}")
    client.delete("k:1", "k:2", "k:3")
    client.set("k:4", "other")
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        client.mset({"k:1": "v1", "k:2": "v2", "k:4": "more"})

    monkeypatch.setattr(module.time, "sleep", pause)
    report = verify(ROWS, "SET k:{0} {1}")
    monkeypatch.undo()
    assert pauses == [module.PAUSE_S]
    assert report.written_meanwhile == 2
    assert [(each.row, each.kind, each.changed) for each in report.differences] == [
        (3, "missing", False),
        (4, "value", True),
    ]
    assert report.differences[1].found == b"more"
    assert "2 values differed at first, but not when rechecked" in str(report)


def test_concurrent_writers(load: Load, verify: Verify, server: LocalServer) -> None:
    """A writer that deletes keys and writes them again causes no lasting differences."""
    load(ROWS, "HSET k:{0} a {1}")
    over = threading.Event()

    def write() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not over.is_set():
                for i in range(0, 1000, 10):
                    client.delete(f"k:{i}")
                    client.hset(f"k:{i}", "a", f"v{i}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [verify(ROWS * 20, "HSET k:{0} a {1}") for _ in range(3)]
    finally:
        over.set()
        writer.join()
    for report in reports:
        # It may be in the middle of a pair both times.
        assert report.differing <= 1
    assert verify(ROWS, "HSET k:{0} a {1}").same


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "case", ["first item popped", "another type", "keys in turn", "expired", "documents"]
)
def test_many_differences_of_a_key(server: LocalServer, client: redis.Redis, case: str) -> None:
    """The time is linear: it once took 60 times as long for 8 times as many rows."""
    if case == "documents":
        differences = Differences(1 << 20)

        def check(count: int) -> None:
            for row in range(count):
                path = b"$.f%d" % row
                differences.update_document(b"k", path, b"1")
                differences.add("missing", row, b"k", "document", path, b"1", None, 0)
            assert len(differences) == count
            differences.erase(b"k", keeps_ttl=False)
    else:
        template, options, differing = {
            "first item popped": ("RPUSH k {0}", {}, 1),
            "another type": ("LPUSH k {0}", {}, 1),
            "keys in turn": ("SADD k {0}; HSET h {0} x", {}, 2),
            "expired": ("HSET k {0} x; EXPIRE k 1", {"since": time.time() - 100}, 1),
        }[case]

        def check(count: int) -> None:
            client.flushall()
            if case == "first item popped":
                fastresp.mass_insert(range(count), template, server=server.url)
                client.lpop("k")
            elif case != "keys in turn":
                client.set("k", "x")
            report = fastresp.verify(range(count), template, server=server.url, **options)
            assert report.differing >= count * differing

    seconds = []
    for count in (2_000, 16_000):
        began = time.process_time()
        check(count)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 25 * seconds[0] + 1


class TestRepair:
    def test_each_command(self, load: Load, verify: Verify, client: redis.Redis) -> None:
        template = [
            "SET s:{0} {1} EX 1000", "HSET h:{0} a {1} b {1}", "EXPIRE h:{0} 2000", "SADD t {1} x",
            "ZADD z {0} {1}", "DEL gone:{0}", "HDEL h:{0} c", "MSET m:{0} {1} n:{0} {1}",
        ]  # fmt: skip
        load(ROWS, template)
        client.delete("s:1", "h:2", "m:3")
        client.setrange("s:4", 0, "?")
        client.persist("s:5")
        client.hset("h:6", mapping={"a": "?", "c": 1})
        client.srem("t", "v7", "x")
        client.zadd("z", {"v8": 1.5})
        client.set("gone:9", 1)
        client.delete("n:10")
        client.sadd("n:10", 1)
        client.expire("h:11", 9000)
        report = verify(ROWS, template, repair=True)
        assert report.differing == report.repaired > 10 and report.same, report
        assert all(each.repaired for each in report.differences)
        assert verify(ROWS, template).differing == 0
        assert 990 < client.ttl("s:1") <= 1000 and 990 < client.ttl("s:4") <= 1000
        assert 1990 < client.ttl("h:2") <= 2000 and 1990 < client.ttl("h:11") <= 2000

    def test_repairs_only_the_last_write(
        self, load: Load, verify: Verify, client: redis.Redis
    ) -> None:
        rows = [("HSET", "k", "a", 1, "b", 1), ("SET", "s", 1), ("HSET", "k", "a", 2),
                ("EXPIRE", "s", 50)]  # fmt: skip
        load(rows)
        client.hdel("k", "b")
        client.setrange("s", 0, "?")
        assert verify(rows, repair=True).repaired == 2
        assert client.hgetall("k") == {b"a": b"2", b"b": b"1"}
        assert (client.get("s"), 0 < client.ttl("s") <= 50) == (b"1", True)

    def test_what_cannot_be_repaired(self, load: Load, verify: Verify, client: redis.Redis) -> None:
        load(ROWS, "HSET k:{0} a {1}")
        client.delete("k:1", "k:2")
        client.set("k:1", "other")
        client.hset("k:3", "more", 1)
        report = verify(ROWS, "HSET k:{0} a {1}", repair=True, exact=True)
        assert [(each.row, each.kind, each.repaired) for each in report.differences] == [
            (1, "type", False),
            (2, "missing", True),
            (3, "extra", False),
        ]
        assert not report.same and client.get("k:1") == b"other"
        assert "1 value repaired; 2 values could not be repaired" in str(report)
        assert (report.unrepaired, report.repair_errors) == (2, {})

    @pytest.mark.parametrize(
        ("command", "other"),
        [
            ("HSET k:{0} a {1}", ("SET", "x")), ("SADD k:{0} {1}", ("HSET", "a", "x")),
            ("ZADD k:{0} 1 {1}", ("SADD", "x")),
        ],
    )  # fmt: skip
    def test_what_depends_on_a_key_of_another_type(
        self, load: Load, verify: Verify, client: redis.Redis, command: str, other: tuple[str, ...]
    ) -> None:
        """It gets no time to live, no index entry, and no mark is removed."""
        template = f"{command}; EXPIRE k:{{0}} 2000; SADD index {{0}}; DEL mark:{{0}}"
        load(ROWS, template)
        client.srem("index", 1, 2)
        client.mset({"mark:1": "x", "mark:2": "x"})
        client.delete("k:1", "k:2")
        name, *words = other
        client.execute_command(name, "k:1", *words)
        before = client.dump("k:1")
        report = verify(ROWS, template, repair=True)
        assert report.unrepaired == sum(each.row == 1 for each in report.differences) == 4
        assert report.repaired == sum(each.row == 2 for each in report.differences) == 3
        assert (client.dump("k:1"), client.ttl("k:1")) == (before, -1)
        assert (client.sismember("index", 1), client.exists("mark:1", "mark:2")) == (0, 1)
        assert client.sismember("index", 2)

    def test_no_time_to_live_for_what_was_refused(
        self, load: Load, verify: Verify, client: redis.Redis, server: LocalServer
    ) -> None:
        template = "HSET k:{0} a {1}; EXPIRE k:{0} 2000"
        load(ROWS[:2], template)
        client.hset("k:1", "a", "other")
        client.persist("k:1")
        client.execute_command("ACL", "SETUSER", "some", "on", ">hush", "~*", "+@all", "-hset")
        url = f"{server.url}?username=some&password=hush"
        report = verify(ROWS[:2], template, server=url, repair=True)
        client.acl_deluser("some")
        assert (report.repaired, report.repair_errors) == (0, {"NOPERM": 1})
        assert (client.hgetall("k:1"), client.ttl("k:1")) == ({b"a": b"other"}, -1)

    def test_nothing_could_be_repaired(
        self, load: Load, verify: Verify, client: redis.Redis, server: LocalServer
    ) -> None:
        """The report says so, and why."""
        load(ROWS, "SET k:{0} {1}")
        client.delete("k:1", "k:2")
        client.acl_setuser(
            "reader", enabled=True, passwords=["+hush"], keys=["*"],
            categories=["+@read", "+@connection"],
        )  # fmt: skip
        try:
            url = f"{server.url}?username=reader&password=hush"
            report = verify(ROWS, "SET k:{0} {1}", server=url, repair=True)
        finally:
            client.acl_deluser("reader")
        assert (report.repaired, report.unrepaired) == (0, 2) and not report.same
        assert "0 values repaired; 2 values could not be repaired (2 x NOPERM)" in str(report)

    def test_nothing_to_repair(self, load: Load, verify: Verify) -> None:
        load(ROWS, "SET k:{0} {1}")
        report = verify(ROWS, "SET k:{0} {1}", repair=True)
        assert report.unrepaired == 0 and "repaired" not in str(report)
        assert verify(ROWS, "SET k:{0} {1}").unrepaired is None


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk(load: Load, verify: Verify) -> None:
    """The differences are in the error's report."""
    load(ROWS[:-2], "SET k:{0} {1}")
    with pytest.raises(OSError, match="were not written: '/dev/full'") as caught:
        verify(ROWS, "SET k:{0} {1}", differences="/dev/full")
    assert caught.value.report.by_kind == {"missing": 2}  # type: ignore[attr-defined]
    assert caught.value.report.stopped == ""  # type: ignore[attr-defined]


def test_callable_that_raises(load: Load, verify: Verify) -> None:
    def refuse(difference: fastresp.Difference) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no") as caught:
        verify(ROWS, "SET none:{0} {1}", differences=refuse)
    assert caught.value.report.differing == 1000  # type: ignore[attr-defined]


def test_lines(load: Load, verify: Verify, client: redis.Redis, tmp_path: Path) -> None:
    rows = [(b"\xff%d" % i, b"\xfe" * i) for i in range(10)]
    load(rows, "HSET {0} f\xe9 {1}")
    client.delete(rows[3][0])
    path = tmp_path / "differences.jsonl"
    verify(rows, "HSET {0} f\xe9 {1}", differences=path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "row": 3,
            "key": {"base64": "/zM="},
            "field": "f\xe9",
            "kind": "missing",
            "wanted": {"base64": "/v7+"},
            "found": None,
        }
    ]
    with pytest.raises(FileExistsError, match="move the file away; or name another"):
        verify(rows, "HSET {0} f\xe9 {1}", differences=path)
    path.write_text("")
    verify(rows, "HSET {0} f\xe9 {1}", differences=str(path))
    assert path.read_text().count("\n") == 1


def test_progress(load: Load, verify: Verify) -> None:
    load(ROWS, "SET k:{0} {1}")
    seen: list[int] = []
    verify(ROWS, "SET k:{0} {1}", progress=lambda report: seen.append(report.values))
    assert seen == sorted(seen) and seen[-1] == 1000


@pytest.mark.slow
@pytest.mark.parametrize("template", [["SET k:{0} {1}"], ["MULTI", "SET k:{0} {1}", "EXEC"]])
@pytest.mark.parametrize("option", ["max_differences=1", "sample=1e-6", "sample=1e-9", "seed=1"])
def test_bounded_memory(option: str, template: list[str], server: LocalServer) -> None:
    """Of 1.2 GB, little is in memory, even for rows outside the sample."""
    code = f"""{PEAK}
import sys, fastresp
rows = ((i, "x" * 400) for i in range(3_000_000))
fastresp.mass_insert([(0, "x" * 400)], "SET k:{{0}} {{1}}", server=sys.argv[1])
options = dict(max_differences=1000) | dict({option})
before = peak()
report = fastresp.verify(rows, {template}, server=sys.argv[1], **options)
assert report.rows == 3_000_000, report
print(peak() - before)
"""
    command = [sys.executable, "-c", code, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100_000, done.stdout
