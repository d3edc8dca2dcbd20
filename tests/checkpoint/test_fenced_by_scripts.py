"""Loads without permission for CLIENT KILL: scripts compare the marker before they run."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from loads import Insert
from module_server import module_options
from resumed_loads import MARKER, NAME, Loads, check_lists, failing
from server_programs import WHEEL_SERVERS, located
from waiting import until

import fastresp
from fastresp.load.checkpoint import feature
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint, Merge, grouped

Start = Callable[..., LocalServer]
USER = "?username=some&password=secret"
COUNT = 20_000
ROWS = [(number % 10, number) for number in range(COUNT)]
PUSH = "RPUSH list:{0} {1}"
TEMPLATES = [PUSH, "INCRBY sum:{0} {1}", "XADD stream:{0} * n {1}"]
TAKEN = "another loader has taken over"


def add_user(client: redis.Redis, *rights: str) -> None:
    client.execute_command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", *rights)


@pytest.fixture
def url(server: LocalServer, client: redis.Redis) -> Iterator[str]:
    """The server for a user with all permissions except CLIENT KILL."""
    add_user(client, "-client|kill")
    client.config_resetstat()
    yield server.url + USER
    client.acl_deluser("some")


def calls(client: redis.Redis, name: str) -> int:
    found = client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})
    return int(found["calls"])


def marker(client: redis.Redis) -> int:
    value = client.get(MARKER)
    assert isinstance(value, bytes)
    fence, _, rows = value.partition(b":")
    assert len(fence) == 16
    return int(rows)


@pytest.mark.parametrize(
    ("template", "kills"),
    [
        (PUSH, 2),
        *[pytest.param(template, 6, marks=pytest.mark.slow) for template in TEMPLATES],
        *[pytest.param(template, 67, marks=pytest.mark.long) for template in TEMPLATES],
    ],
)
def test_kills(start_server: Start, template: str, kills: int) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        add_user(client, "-client|kill")
        server.url += USER
        loads = Loads(server, template, kills, kills)
        ended_early = loads.run(Loads.kill_loader)
        assert kills - 1 <= ended_early <= kills, loads.printed
        loads.check()
        assert calls(client, "eval") > loads.count // 2_000


class TestTwoLoaders:
    @pytest.fixture
    def loads(self, server: LocalServer, url: str) -> Iterator[Loads]:
        before, server.url = server.url, url
        yield Loads(server, PUSH, 1, 3)
        server.url = before

    @pytest.mark.parametrize("frozen", [True, False])
    def test_second_takes_over(self, loads: Loads, client: redis.Redis, frozen: bool) -> None:
        """Commands that the first loader has in flight, or sends when it wakes up, do nothing."""
        rows = [(number % 20, number) for number in range(loads.count)]
        options: dict[str, Any] = {
            "server": loads.server.url, "checkpoint": NAME, "template": PUSH, "timeout": 10,
        }  # fmt: skip
        with loads.process(200_000) as first:
            until(lambda: client.get(MARKER) is not None and marker(client))
            if frozen:
                first.send_signal(signal.SIGSTOP)
                with pytest.raises(fastresp.CheckpointError, match="is using checkpoint"):
                    fastresp.mass_insert(rows, **grouped(options | {"resume": True}))
            report = fastresp.mass_insert(rows, **grouped(options | {"take_over": True}))
            first.send_signal(signal.SIGCONT)
            printed, _ = first.communicate()
        assert first.returncode != 0
        assert f"CheckpointError: {TAKEN}" in printed
        assert 0 < report.resumed_at < loads.count
        loads.check()
        assert calls(client, "client|kill") == 0


@pytest.mark.parametrize("connections", [1, 3])
def test_a_script_detects_another_owner(
    insert_singly: Insert,
    client: redis.Redis,
    url: str,
    connections: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease is not renewed, since a renewal could detect the other owner first."""
    monkeypatch.setattr(feature, "RECORDED_S", math.inf)
    monkeypatch.setattr(feature, "RENEWED_S", math.inf)
    options: dict[str, Any] = {
        "server": url, "checkpoint": NAME, "source_id": "numbers", "connections": connections,
    }  # fmt: skip

    def rows() -> Iterator[Any]:
        for row in ROWS:
            yield row
            if row[1] == COUNT // 2:
                fastresp.mass_insert(iter(ROWS), PUSH, **grouped(options | {"take_over": True}))

    with pytest.raises(fastresp.CheckpointError, match=TAKEN) as caught:
        insert_singly(rows(), PUSH, **grouped(options))
    check_lists(client, 10, COUNT)
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.replies + report.in_doubt + report.unsent <= COUNT
    assert report.failed == 0
    assert "the marker has another value" in str(caught.value.__cause__)
    report = insert_singly(iter(ROWS), PUSH, **grouped(options | {"resume": True}))
    assert (report.rows, report.resumed_at) == (0, COUNT)


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3), (3, 2)])
def test_another_loader_starts_over_with_other_markers(
    insert_singly: Insert, client: redis.Redis, url: str, first: int, second: int
) -> None:
    """No marker remains that the first loader's scripts expect."""
    options: dict[str, Any] = {"server": url, "checkpoint": NAME, "source_id": "numbers"}
    counts: list[int] = []

    def count() -> int:
        return sum(client.llen(f"before:{key}") for key in range(10))

    def rows() -> Iterator[Any]:
        for row in ROWS:
            yield row
            if row[1] == COUNT // 2:
                fastresp.mass_insert(
                    iter(ROWS), PUSH, connections=second,
                    **grouped(options | {"checkpoint_clear": True, "take_over": True}),
                )  # fmt: skip
                counts.append(count())

    with pytest.raises(fastresp.CheckpointError, match=TAKEN):
        insert_singly(rows(), "RPUSH before:{0} {1}", connections=first, **grouped(options))
    assert [count()] == counts
    check_lists(client, 10, COUNT)
    markers = [MARKER] if second == 1 else [f"{MARKER}:{number}" for number in range(second)]
    assert sorted(client.keys(f"{MARKER}*")) == [key.encode() for key in markers]


@pytest.mark.parametrize("connections", [1, 3])
def test_a_user_without_permission_to_fence_changes_nothing(
    insert_singly: Insert, client: redis.Redis, url: str, connections: int
) -> None:
    """The previous loader stays the owner of the checkpoint, and resumes."""
    options: dict[str, Any] = {
        "server": url, "checkpoint": NAME, "source_id": "numbers", "connections": connections,
    }  # fmt: skip
    with pytest.raises(OSError, match="the source has failed"):
        insert_singly(failing(ROWS, COUNT // 2), PUSH, **grouped(options))
    before = client.hgetall(f"fastresp:{{{NAME}}}")
    add_user(client, "-client|kill", "-set")
    words = r"can't be written: .*(can't run|permission)"
    with pytest.raises(fastresp.CheckpointError, match=words):
        insert_singly(iter(ROWS), PUSH, **grouped(options | {"resume": True}))
    assert client.hgetall(f"fastresp:{{{NAME}}}") == before
    add_user(client, "-client|kill", "+set")
    report = insert_singly(iter(ROWS), PUSH, **grouped(options | {"resume": True}))
    assert report.resumed_at > 0
    check_lists(client, 10, COUNT)


@pytest.mark.parametrize(
    "name", [None, *[pytest.param(name, marks=pytest.mark.slow) for name in WHEEL_SERVERS]]
)
def test_errors_inside_a_reply(start_server: Start, tmp_path: Path, name: str | None) -> None:
    """A partially failed command counts as failed."""
    program = None if name is None else located(name, WHEEL_SERVERS)
    server = start_server(*module_options(tmp_path, "bloom"), program=program)
    rows = [{"f": number % 3, "v": [number, -number - 1]} for number in range(900)]
    options: dict[str, Any] = {"on_error": "collect", "checkpoint": NAME}
    found = []
    with redis.Redis.from_url(server.url) as client:
        add_user(client, "-client", "+client|id", "+client|setname", "+client|list")
        for url in (server.url, server.url + USER):
            client.flushdb()
            client.execute_command("BF.RESERVE", "filter:1", 0.01, 2, "NONSCALING")
            client.set("filter:2", "of another type")
            rejects: list[fastresp.CommandError] = []
            report = fastresp.mass_insert(
                rows,
                "BF.MADD filter:{f} {*v}",
                server=url,
                rejects=rejects.append,
                **grouped(options),
            )
            errors = [(each.row, each.index, each.text, each.arguments) for each in rejects]
            found.append((report.replies, report.failed, report.errors_by_code, errors))
        assert calls(client, "eval") > 0
    assert found[0] == found[1]
    assert {row % 3 for row, *_ in errors} == {1, 2}


@pytest.mark.parametrize("template", [PUSH, "GEOADD list:{0} 1 2 {1}"])
@pytest.mark.parametrize("connections", [1, 3])
def test_merged_commands_are_not_too_long_for_scripts(
    client: redis.Redis, url: str, template: str, connections: int
) -> None:
    report = fastresp.mass_insert(
        [(0, number) for number in range(COUNT)], template, server=url, checkpoint=NAME,
        mode=Merge(items=COUNT, bytes=10 * 1024 * 1024), connections=connections,
    )  # fmt: skip
    assert report.replies == COUNT
    count = client.llen("list:0") if template == PUSH else client.zcard("list:0")
    assert count == COUNT
    assert calls(client, "eval") > 1


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("mode", ["commands", "merge"])
def test_errors_are_the_same_as_in_transactions(
    server: LocalServer, client: redis.Redis, url: str, mode: str, connections: int
) -> None:
    """Each is reported once, with its row and its command."""
    template = "RPUSH list:{k} {*v}; INCRBY {{list:{k}}}:sum {n}"
    rows = [
        {"k": i % 5, "n": "x" if i % 100 == 3 else i, "v": [] if i % 70 == 5 else [i]}
        for i in range(6_000)
    ]
    found = []
    for where in (server.url, url):
        client.flushdb()
        client.set("list:4", "of another type")
        client.config_resetstat()
        rejects: list[fastresp.CommandError] = []
        report = fastresp.mass_insert(
            rows, template, server=where, checkpoint=NAME, mode=mode,  # type: ignore[arg-type]
            connections=connections, on_error="collect", rejects=rejects.append,
        )  # fmt: skip
        errors = sorted((each.row, each.index, each.text, each.arguments) for each in rejects)
        stored = {key: client.dump(key) for key in client.scan_iter("*list*")}
        found.append(
            (report.commands, report.replies, report.failed, report.errors_by_code, errors, stored)
        )
    assert found[0] == found[1]
    assert calls(client, "eval") > 2
    assert report.failed > 1_200


def test_resumes_over_several_connections(
    insert_singly: Insert, client: redis.Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even after all markers were set to the same row."""
    monkeypatch.setattr(feature, "DRAINED_S", 0.0)
    options: dict[str, Any] = {
        "server": url, "checkpoint": NAME, "source_id": "numbers", "connections": 3,
        "resume": True,
    }  # fmt: skip
    for at, pause in ((1, 0), (7_000, 4_000), (7_000, 0), (19_000, 12_000)):
        with pytest.raises(OSError, match="the source has failed"):
            insert_singly(failing(ROWS, at, pause), PUSH, **grouped(options))
    report = insert_singly(iter(ROWS), PUSH, **grouped(options))
    assert report.resumed_at >= 12_000
    check_lists(client, 10, COUNT)


@pytest.mark.parametrize("state", ["full", "replica"])
def test_refused_rows_are_not_lost(
    insert_singly: Insert, client: redis.Redis, url: str, state: str
) -> None:
    """Even if the server accepts some commands, which need no memory."""
    template = "HDEL hash {1}; RPUSH list:{0} {1}; DEL other"
    options: dict[str, Any] = {"server": url, "checkpoint": NAME, "source_id": "numbers"}

    def rows() -> Iterator[Any]:
        for row in ROWS:
            # Gathered rows are sent while the source is slow.
            if COUNT // 4 <= row[1] < COUNT // 2 and row[1] % 100 == 0 and marker(client) == 0:
                time.sleep(0.2)
            if row[1] == COUNT // 2 and state == "full":
                client.config_set("maxmemory", 1)
            elif row[1] == COUNT // 2:
                client.execute_command("REPLICAOF", "127.0.0.1", "1")
            yield row

    try:
        words = r"refused rows [\d,]+ to [\d,]+, and ran none of them: (OOM|READONLY) "
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            insert_singly(rows(), template, on_error="collect", **grouped(options))
    finally:
        client.config_set("maxmemory", 0)
        client.execute_command("REPLICAOF", "NO", "ONE")
    report = caught.value.report
    assert report is not None
    assert (report.failed, report.errors) == (0, [])
    reached = marker(client)
    assert 0 < reached <= COUNT // 2
    assert sum(client.llen(f"list:{key}") for key in range(10)) == reached
    report = insert_singly(iter(ROWS), template, **grouped(options | {"resume": True}))
    assert (report.resumed_at, report.rows, report.failed) == (reached, COUNT - reached, 0)
    check_lists(client, 10, COUNT)


def test_any_bytes(insert_singly: Insert, client: redis.Redis, url: str) -> None:
    """Including values that are not copied; the server may forget its scripts at any time."""
    rng = random.Random(7)
    sizes = [0, 1, 3, 900, 130_000, 600_000, 3_000_000, 1, 2, 600_000] * 3
    values = [rng.randbytes(size) for size in sizes]

    def rows() -> Iterator[bytes]:
        for number, value in enumerate(values):
            if number % 8 == 0:
                client.script_flush()
            yield value

    insert_singly(
        rows(), "RPUSH list {0}", server=url, checkpoint=Checkpoint(NAME, source_id="values")
    )
    assert client.lrange("list", 0, -1) == values
    assert marker(client) == len(values)


def test_too_many_arguments_for_a_script(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, url: str
) -> None:
    """The load ends, and resumes with transactions once the user has permission."""
    rows = [{"v": [*range(size)]} for size in (1, 6_998, 3, 20_000, 4)]
    options: dict[str, Any] = {"checkpoint": NAME, "resume": True}
    insert_singly(rows[:3], "RPUSH list {*v}", server=url, checkpoint="other")
    client.delete("list")
    for _ in range(2):
        words = r"row 3 has a command of 20,002 arguments.*\+client\|kill"
        with pytest.raises(fastresp.CheckpointError, match=words):
            insert_singly(rows, "RPUSH list {*v}", server=url, **grouped(options))
        # A slow machine sends the first rows in a batch of their own; each row runs as a whole.
        assert client.llen("list") in (0, 1, 6_999, 7_002)
    insert_singly(rows, "RPUSH list {*v}", server=server.url, **grouped(options))
    stored = [int(item) for item in client.lrange("list", 0, -1)]
    assert stored == [number for row in rows for number in row["v"]]


@pytest.mark.parametrize(
    ("template", "rights"),
    [
        (PUSH, ["-command"]),
        (PUSH, ["-eval"]),
        (fastresp.Script("redis.call('RPUSH', KEYS[1], ARGV[1])").command("list:{0}", "{1}"), []),
    ],
)
def test_transactions_where_scripts_are_impossible(
    client: redis.Redis, url: str, template: Any, rights: list[str]
) -> None:
    add_user(client, *rights)
    fastresp.mass_insert(ROWS, template, server=url, checkpoint=NAME)
    check_lists(client, 10, COUNT)
    assert client.get(MARKER) == b"%d" % COUNT
    assert calls(client, "exec") > COUNT // 2_000


@pytest.mark.slow
@pytest.mark.parametrize("name", WHEEL_SERVERS)
def test_all_servers(start_server: Start, name: str) -> None:
    """Error codes are the same as outside of scripts; a full server refuses the whole batch."""
    server = start_server(program=located(name, WHEEL_SERVERS))
    options: dict[str, Any] = {"server": server.url + USER, "resume": True}
    with redis.Redis.from_url(server.url) as client:
        # Redis 6.2 can't revoke a subcommand.
        add_user(client, "-client", "+client|id", "+client|setname", "+client|list", "-append")
        client.set("list:3", "of another type")
        report = fastresp.mass_insert(
            ROWS, PUSH, on_error="collect", **grouped(options | {"checkpoint": "a"})
        )
        assert calls(client, "eval") > 10
        assert report.errors_by_code == {"WRONGTYPE": COUNT // 10}
        assert report.errors[0].text.startswith("WRONGTYPE Operation against a key")
        client.delete(*client.keys("list:*"))
        client.config_set("maxmemory", 1)
        with pytest.raises(fastresp.FastrespError, match="used memory > 'maxmemory'"):
            fastresp.mass_insert(ROWS, PUSH, **grouped(options | {"checkpoint": NAME}))
        assert not client.keys("list:*")
        client.config_set("maxmemory", 0)

        def rows() -> Iterator[Any]:
            for row in ROWS:
                if row[1] == COUNT // 2:
                    client.config_set("maxmemory", 1)
                yield row

        load = partial(
            fastresp.mass_insert, template="DEL x; " + PUSH,
            **grouped(options | {"checkpoint": NAME, "source_id": "numbers"}),
        )  # fmt: skip
        with pytest.raises(fastresp.TransportError, match="ran none of them: OOM command not"):
            load(rows())
        client.config_set("maxmemory", 0)
        load(iter(ROWS))
        check_lists(client, 10, COUNT)


# More rows than the loaders of a test can load.
MANY = 1_200_000
PROGRAM = f"""
import sys
import fastresp
url, connections = sys.argv[1:]
rows = [(i % 20, i) for i in range({MANY})]
print(fastresp.mass_insert(rows, "RPUSH list:{{0}} {{1}}", server=url,
                           checkpoint=fastresp.Checkpoint("{NAME}", take_over=True),
                           rate_limit=200_000, connections=int(connections)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("connections", [1, 3])
def test_many_loaders(start_server: Start, connections: int) -> None:
    """With and without permission, frozen at any moment; each resumes at any other moment."""
    server, rng = start_server(), random.Random(connections)
    frozen: list[subprocess.Popen[str]] = []
    with redis.Redis.from_url(server.url) as client:
        add_user(client, "-client|kill")
        for _ in range(12):
            may_kill = rng.random() < 0.3
            before = client.hget(f"fastresp:{{{NAME}}}", "owner")
            loader = preloaded.Popen(
                [sys.executable, "-c", PROGRAM, server.url + ("" if may_kill else USER),
                 str(connections)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            until(lambda before=before: client.hget(f"fastresp:{{{NAME}}}", "owner") != before)
            time.sleep(rng.random() / 2)
            if may_kill:  # the next loader may lack permission
                loader.kill()
            else:
                loader.send_signal(signal.SIGSTOP)
            if frozen and rng.random() < 0.5:
                rng.choice(frozen).send_signal(signal.SIGCONT)
            frozen.append(loader)
        for loader in frozen:
            loader.send_signal(signal.SIGCONT)
        printed = [loader.communicate(timeout=60)[0] for loader in frozen]
        assert any(TAKEN in words for words in printed), printed
        rows = [(number % 20, number) for number in range(MANY)]
        fastresp.mass_insert(
            rows,
            PUSH,
            server=server.url,
            checkpoint=Checkpoint(NAME, take_over=True),
            connections=connections,
        )
        check_lists(client, 20, MANY)
