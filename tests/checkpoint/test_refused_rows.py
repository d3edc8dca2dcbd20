"""A checkpoint never passes rows that the server refused because of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import run
from loads import Insert
from resumed_loads import MARKER, NAME

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

COUNT = 40_000
ROWS = [(number, "x" * 400) for number in range(COUNT)]
TEMPLATES = ["SET key:{0} {1}", "HSET key:{0} value {1}"]


def all_there(client: redis.Redis) -> bool:
    return len(list(client.scan_iter("key:*", count=10_000))) == COUNT


@pytest.mark.parametrize("mode", ["commands", "merge"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_full_server_ends_the_load(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, template: str, mode: str
) -> None:
    """Even if errors are only collected; the resumed load starts with the refused rows."""
    options: dict[str, Any] = {
        "server": server.url, "checkpoint": NAME, "mode": mode, "on_error": "collect",
    }  # fmt: skip
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", used + 14_000_000)
    try:
        words = r"refused row [\d,]+: OOM .*raise its maxmemory.*then resume the load"
        with pytest.raises(fastresp.TransportError, match=words) as caught:
            insert_singly(ROWS, template, **grouped(options))
    finally:
        client.config_set("maxmemory", 0)
    report = caught.value.report
    reached = int(client.get(MARKER) or b"")
    assert report is not None
    assert 0 < reached < COUNT
    assert (report.failed, report.errors) == (0, [])
    assert report.replies <= reached
    report = insert_singly(ROWS, template, **grouped(options | {"resume": True}))
    assert (report.resumed_at, report.rows, report.failed) == (reached, COUNT - reached, 0)
    assert all_there(client)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_refused_marker(server: LocalServer, client: redis.Redis, template: str) -> None:
    """A server that stays full keeps the old marker, so the rows after it run again."""
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "source_id": "rows"}

    def rows() -> Iterator[Any]:
        for row in ROWS:
            if row[0] == COUNT // 2:
                client.config_set("maxmemory", 1)
            yield row

    try:
        with pytest.raises(fastresp.TransportError, match="OOM"):
            fastresp.mass_insert(rows(), template, **grouped(options))
    finally:
        client.config_set("maxmemory", 0)
    reached = int(client.get(MARKER) or b"")  # 0, unless the first half has taken a second
    assert reached <= COUNT // 2
    report = fastresp.mass_insert(ROWS, template, **grouped(options | {"resume": True}))
    assert (report.resumed_at, report.rows) == (reached, COUNT - reached)
    assert all_there(client)


@pytest.mark.parametrize("template", TEMPLATES)
def test_several_connections(server: LocalServer, client: redis.Redis, template: str) -> None:
    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "connections": 3}
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 14_000_000)
    try:
        with pytest.raises(fastresp.TransportError, match="OOM"):
            fastresp.mass_insert(ROWS, template, **grouped(options))
    finally:
        client.config_set("maxmemory", 0)
    report = fastresp.mass_insert(ROWS, template, **grouped(options | {"resume": True}))
    assert report.failed == 0
    assert all_there(client)


def test_a_replica(server: LocalServer, start_server: Callable[..., LocalServer]) -> None:
    """A server that becomes a replica refuses all rows, and none counts as loaded."""
    other = start_server()
    with redis.Redis.from_url(other.url) as client:

        def rows() -> Any:
            for number, row in enumerate(ROWS):
                if number == COUNT // 2:
                    client.execute_command("REPLICAOF", "127.0.0.1", "1")
                yield row

        options: dict[str, Any] = {"server": other.url, "checkpoint": NAME, "source_id": "rows"}
        with pytest.raises(fastresp.FastrespError, match=r"READONLY|replica"):
            fastresp.mass_insert(rows(), TEMPLATES[0], **grouped(options))
        client.execute_command("REPLICAOF", "NO", "ONE")
        reached = int(client.get(MARKER) or b"0")
        assert reached <= COUNT // 2
        report = fastresp.mass_insert(
            iter(ROWS), TEMPLATES[0], **grouped(options | {"resume": True})
        )
        assert report.resumed_at == reached
        assert all_there(client)


@pytest.mark.parametrize("template", ["HSET key:{0} field {1}", "RPUSH key:{0} {1}"])
def test_earlier_errors_are_raised(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, template: str
) -> None:
    """They count once, whatever ended the earlier load, and in each later load."""
    for number in (10, 20, 30_000):
        client.set(f"key:{number}", "no hash")

    def rows(to: int) -> Any:
        yield from ROWS[:to]
        if to < COUNT:
            raise OSError("the source has failed")

    options: dict[str, Any] = {"server": server.url, "checkpoint": NAME, "source_id": "rows"}
    with pytest.raises(OSError, match="the source has failed"):
        insert_singly(rows(20_000), template, **grouped(options))
    for failed, before in [(1, 2), (0, 3), (0, 3)]:
        with pytest.raises(fastresp.LoadErrors) as caught:
            insert_singly(rows(COUNT), template, **grouped(options | {"resume": True}))
        report = caught.value.report
        assert (report.failed, report.failed_before) == (failed, before)
    report = insert_singly(
        rows(COUNT), template, on_error="collect", **grouped(options | {"resume": True})
    )
    assert report.failed_before == 3


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "SELECT 1; RPUSH list {0}",
            "with commands that change the connection or remove all keys: SELECT",
        ),
        ("DISCARD; RPUSH list {0}", "keys: DISCARD"),
        ("WATCH a; RPUSH list {0}", "keys: WATCH"),
        ("FLUSHALL; RPUSH list {0}", "keys: FLUSHALL"),
        ("MULTI; RPUSH list {0}; EXEC", "leave them out"),
        ("{1} list {0}", "command names that depend on the rows"),
    ],
)
def test_commands_that_would_break_the_checkpoint(
    server: LocalServer, client: redis.Redis, template: str, words: str
) -> None:
    """They would be lost before the marker, or run without it, so nothing is sent."""
    with pytest.raises(fastresp.CheckpointError, match=words):
        fastresp.mass_insert([(1, "RPUSH")], template, server=server.url, checkpoint=NAME)
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("source", "template", "name", "words"),
    [
        ("rows.csv", "RPUSH {k} {v}", "a b", "must be 1 to 200 letters"),
        ("rows.csv", "FLUSHALL; RPUSH {k} {v}", NAME, "remove all keys: FLUSHALL"),
        ("-", "RPUSH {k} {v}", NAME, "needs a source that can be read again"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_wrong_use_is_named(
    server: LocalServer, tmp_path: Path, source: str, template: str, name: str, words: str,
    dry: bool,
) -> None:  # fmt: skip
    """Even in a dry run, which would otherwise accept what the load refuses."""
    (tmp_path / "rows.csv").write_text("k,v\n1,a\n")
    path = "-" if source == "-" else str(tmp_path / source)
    options = ["--format", "csv", "--server", server.url, "--checkpoint", name, "--yes"]
    ended = run("load", path, template, *options, *["--dry-run"] * dry, stdin=b"k,v\n1,a\n")
    assert (ended.returncode, words in ended.stderr) == (64, True), ended.stderr


def test_exit_codes(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """Errors of earlier loads exit with 1, an active loader with 3, and wrong use with 64."""
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n1,a\n2,b\n")
    client.set("key:1", "no hash")
    begin = ["load", str(path), "HSET key:{k} v {v}", "--server", server.url, "--checkpoint", NAME]
    for more, code in [((), 1), (("--resume",), 1), ((), 64)]:
        assert run(*begin, *more).returncode == code, more
    dry = run(*begin, "--dry-run")
    assert (dry.returncode, "ignores the checkpoint" in dry.stderr) == (1, True)
    key = f"fastresp:{{{NAME}}}"
    client.hset(key, mapping={"ended": "", "lease": client.time()[0] + 60})
    with redis.Redis.from_url(server.url) as other:
        numbers = [["", client.info("server")["run_id"], [other.client_id()]]]
        client.hset(key, "clients", str(numbers).replace("'", '"'))
        ended = run(*begin, "--resume")
        assert (ended.returncode, "is using checkpoint" in ended.stderr) == (3, True)
