"""Whole merged loads: permissions, limits, lost connections, transports; counts stay exact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from local_cluster import free_port
from needed import imported
from twice import as_file, calls
from waiting import until

import fastresp
import fastresp.aio
from fastresp.resp.buffer import Chunk
from fastresp.resp.merge import Merger
from fastresp.resp.split import CommandSplitter
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped
from fastresp.sink import Sink
from fastresp.transports.window import Window

LARGE = "x" * (1 << 20)


def pushes(count: int, key: str = "list") -> Iterator[tuple[Any, ...]]:
    for number in range(count):
        yield "RPUSH", key, number


def sets(count: int) -> list[tuple[Any, ...]]:
    return [("SET", f"key:{number}", number) for number in range(count)]


def merged(
    server: LocalServer, data: Any, *template: str, at: str | None = None, **options: Any
) -> fastresp.Report:
    options = {"server": at or server.url, "mode": "merge", "on_error": "collect", **options}
    return fastresp.mass_insert(data, *template, **grouped(options))


def one_chunk(data: Iterable[tuple[Any, ...]]) -> Chunk:
    chunk = CommandSplitter().feed(fastresp.pack_many(data))
    assert chunk is not None
    return chunk


class TestPermissions:
    """Without permission for all keys, or for MSET, errors are the same as for single commands."""

    @pytest.fixture
    def url(self, server: LocalServer, client: redis.Redis) -> Iterator[Callable[..., str]]:
        def url(*rules: str) -> str:
            client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", *rules)
            client.config_resetstat()
            return f"{server.url}?username=limited&password=secret"

        yield url
        client.execute_command("ACL", "DELUSER", "limited")

    def test_mset_without_set(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        report = merged(server, sets(10), at=url("~*", "+@all", "-set"))
        assert report.errors_by_code == {"NOPERM": 10}
        assert client.dbsize() == 0

    def test_many_keys_and_a_selector(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        """One selector must allow all keys of MSET; each SET may use another."""
        server_ = url("~[0-9a-f]*", "+@all", "(~* +set +get)")
        data = [("SET", key, 1) for key in ("1", "a", "x", "b", "z")]
        assert merged(server, data, at=server_).failed == 0
        assert (client.dbsize(), calls(client, "mset")) == (5, 0)

    @pytest.mark.parametrize("rules", [("~a*", "+@all"), ("~*", "+@all", "-mset")])
    def test_mset(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis, rules: Any
    ) -> None:
        data = [("SET", key, 1) for key in ("a1", "a2", "b1", "a3", "b2")]
        report = merged(server, data, at=url(*rules))
        refused = [2, 4] if rules[0] == "~a*" else []
        assert [error.index for error in report.errors] == refused
        assert {error.code for error in report.errors} <= {"NOPERM"}
        assert client.dbsize() == 5 - len(refused)
        assert calls(client, "mset") == 0

    def test_delete(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        client.mset({"a1": 1, "a2": 1, "b1": 1})
        data = [("DEL", "a1"), ("DEL", "b1"), ("UNLINK", "a2"), ("UNLINK", "b1")]
        report = merged(server, data, at=url("~a*", "+@all"))
        assert [error.index for error in report.errors] == [1, 3]
        assert client.keys() == [b"b1"]

    def test_without_permission_to_check(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        client.config_resetstat()
        report = merged(server, sets(10), at=url("~*", "+set", "+ping"))
        assert (report.replies, report.failed, client.dbsize()) == (10, 0, 10)
        assert calls(client, "set") == 10

    def test_permissions_are_only_checked_when_needed(
        self, url: Callable[..., str], server: LocalServer, client: redis.Redis
    ) -> None:
        """A refused MSET would be noted in the log of the ACL."""
        client.acl_log_reset()
        rows = [(number,) for number in range(10)]
        report = merged(server, rows, "RPUSH a {0}", at=url("~a*", "+@all"))
        assert (report.replies, report.failed) == (10, 0)
        assert client.acl_log() == []


def test_full_memory(server: LocalServer, client: redis.Redis) -> None:
    """Items not reported as failed are in the list."""
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", used + (8 << 20))
    try:
        data = [("RPUSH", "list", "x" * 1000)] * 30_000
        report = merged(server, data, max_errors=10**6)
    finally:
        client.config_set("maxmemory", 0)
    assert report.commands == report.replies == 30_000
    assert 0 < report.failed < 30_000
    assert report.errors_by_code == {"OOM": report.failed}
    assert client.llen("list") == 30_000 - report.failed


def test_order_and_count(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    client.config_resetstat()
    report = merged(server, as_file(pushes(100_000), tmp_path))
    assert (report.rows, report.commands, report.replies, report.failed) == (100_000,) * 3 + (0,)
    assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(100_000)]
    # At most 1,000 items; a merged command ends with its chunk.
    assert 100 <= calls(client, "rpush") < 120
    assert report.bytes_sent < 1_300_000


@pytest.mark.parametrize(("items", "most"), [(10, None), (None, 500)])
def test_limits(
    server: LocalServer, client: redis.Redis, tmp_path: Path, items: int | None, most: int | None
) -> None:
    client.config_resetstat()
    merged(server, as_file(pushes(1000), tmp_path), merge_items=items, merge_bytes=most)
    assert client.llen("list") == 1000
    # An item has at most 9 bytes, a header with a key 30.
    expected = range(100, 101) if items else range(1000 // 70, 1000 // 50)
    assert calls(client, "rpush") in expected


def test_rate_limit(server: LocalServer, client: redis.Redis) -> None:
    client.config_resetstat()
    report = merged(server, pushes(600), rate_limit=2000)
    assert (report.replies, client.llen("list")) == (600, 600)
    assert 30 <= calls(client, "rpush") < 600  # at most 20 per command
    assert report.seconds > 0.2


def test_several_connections(server: LocalServer, client: redis.Redis) -> None:
    rows = ((f"key:{number}", number) for number in range(200_000))
    report = merged(server, rows, "SET {0} {1}", connections=4)
    assert (report.commands, report.replies, report.failed) == (200_000, 200_000, 0)
    assert client.dbsize() == 200_000


def test_redis_cli(server: LocalServer, client: redis.Redis) -> None:
    """Without errors its counts are exact; a merged command counts as one error."""
    report = merged(server, sets(50_000), transport="redis-cli")
    assert (report.commands, report.replies, report.failed) == (50_000, 50_000, 0)
    assert (report.transport, client.dbsize()) == ("redis-cli", 50_000)
    data = [*pushes(10), *pushes(500, "key:1"), *pushes(10)]
    report = merged(server, data, transport="redis-cli")
    assert (report.commands, report.replies, report.failed) == (520, 520, 1)
    assert client.llen("list") == 20


def test_cluster(start_server: Callable[..., LocalServer], tmp_path: Path) -> None:
    """Commands for keys of different slots are not merged."""
    port = free_port()  # the cluster bus uses this port plus 10,000
    server = start_server("--cluster-enabled", "yes", "--port", str(port))
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        data = as_file([*sets(100), *pushes(100)], tmp_path)
        report = merged(server, data, transport="socket")
        assert (report.replies, report.failed) == (200, 0)
        assert (calls(client, "set"), calls(client, "mset"), calls(client, "rpush")) == (100, 0, 1)


class TestTransactions:
    def test_over_several_chunks(self, server: LocalServer, client: redis.Redis) -> None:
        client.config_resetstat()
        data = [("MULTI",), *pushes(60_000), ("EXEC",), *pushes(10)]
        report = merged(server, data)
        assert (report.replies, report.failed) == (60_012, 0)
        assert client.llen("list") == 60_010
        assert calls(client, "rpush") == 60_001

    def test_next_to_large_values(self, server: LocalServer, client: redis.Redis) -> None:
        """Chunks with large values are not merged, and a transaction may start or end there."""
        client.config_resetstat()
        data = [
            *sets(3), ("MULTI",), ("SET", "large", LARGE), *sets(3), ("SET", "larger", LARGE),
            *sets(3), ("EXEC",), ("SET", "largest", LARGE), *pushes(30_000),
        ]  # fmt: skip
        report = merged(server, data)
        assert (report.replies, report.failed) == (len(data), 0)
        assert client.strlen("largest") == len(LARGE)
        assert client.llen("list") == 30_000
        assert calls(client, "set") >= 9
        assert calls(client, "rpush") < 30_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_source_raises(server: LocalServer, client: redis.Redis, error: type) -> None:
    """Encoded commands are sent and counted."""

    def broken() -> Iterator[tuple[Any, ...]]:
        yield from pushes(70_001)
        raise error

    with pytest.raises(error) as caught:
        merged(server, broken())
    report = caught.value.report  # type: ignore[attr-defined]
    assert (report.rows, report.commands, report.replies) == (70_001,) * 3
    assert client.llen("list") == 70_001


def test_bad_row(server: LocalServer, client: redis.Redis) -> None:
    with pytest.raises(fastresp.EncodeError) as caught:
        merged(server, [*pushes(20), ("RPUSH", "list", object())])
    assert caught.value.row == 20
    assert client.llen("list") == 20


def test_asyncio(server: LocalServer, client: redis.Redis) -> None:
    async def rows() -> AsyncIterator[tuple[Any, ...]]:
        for row in pushes(50_000):
            yield row
            if row[2] % 9_999 == 0:
                await asyncio.sleep(0.01)

    client.config_resetstat()
    report = asyncio.run(fastresp.aio.mass_insert(rows(), server=server.url, mode="merge"))
    assert (report.commands, report.replies, report.failed) == (50_000, 50_000, 0)
    assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(50_000)]
    assert calls(client, "rpush") < 2_500


def test_rejects_are_interrupted(server: LocalServer, client: redis.Redis) -> None:
    """Each failed command is rejected once, even after a Ctrl-C."""
    client.set("list", "in the way")
    seen: list[int | None] = []

    def note(error: fastresp.CommandError) -> None:
        seen.append(error.index)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        merged(server, pushes(3000), rejects=note)
    report = caught.value.report  # type: ignore[attr-defined]
    assert seen == list(range(report.failed))
    assert report.errors_by_code == {"WRONGTYPE": report.failed}


def test_answered_chunks_that_are_still_held(server: LocalServer) -> None:
    """As after an interruption between reply and release."""
    merger = Merger(1000, 65536)
    window = Window()
    writer = fastresp.Writer(None)
    for chunk in writer.chunks(pushes(60_000)):
        window.add(merger.merge(chunk))
    while window.sending is not None:
        window.sending.written.append(window.sending.size - window.sending.at)
    assert (window.sent_commands, window.in_doubt, window.unsent) == (60_000, 60_000, 0)
    counts = []
    for replies in range(window.made + 1):
        window.acknowledged = replies
        counts.append(window.in_doubt)
    assert counts == sorted(counts, reverse=True)
    assert (counts[1], counts[-1], window.within(59_999)) == (59_000, 0, window.made - 1)


@pytest.mark.parametrize("failing", range(1, 30))
def test_no_memory(failing: int) -> None:
    """No command is lost."""
    testcapi = imported("_testcapi")
    merger = Merger(1000, 65536)
    chunk = one_chunk(pushes(100))
    wanted = bytes(chunk)
    testcapi.set_nomemory(failing, failing + 1)
    try:
        made = merger.merge(chunk)
    finally:
        testcapi.remove_mem_hooks()
    rest = [made.command(at, part) for at in range(len(made.ends)) for part in made.parts(at)]
    assert b"".join(rest) == wanted


@pytest.mark.parametrize("most", [1, 40, 41, 42, 100, 1000])
def test_no_merged_command_is_larger(most: int) -> None:
    for data in ([*pushes(300)], sets(300), [(*each, "PX", 90) for each in sets(300)]):
        made = Merger(1000, most).merge(one_chunk(data))
        start = 0
        for at, end in enumerate(made.ends):
            assert len(made.parts(at)) == 1 or end - start <= most
            start = end


def test_max_errors(server: LocalServer, client: redis.Redis) -> None:
    """Commands count, not replies."""
    client.set("list", "in the way")
    report = merged(server, [*pushes(500), *sets(200_000)], max_errors=499)
    assert report.failed == 500
    assert report.stopped.startswith("stopped after more than 499 error")


def test_command_line(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id\n" + "".join(f"{number}\n" for number in range(5000)))
    client.config_resetstat()
    how = ("--server", server.url, "--mode", "merge", "--json")
    result = invoke("load", path, "SADD users {id}", *how)
    assert json.loads(result.stdout)["commands"] == 5000
    assert client.scard("users") == 5000
    assert calls(client, "sadd") == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "both"}, "mode must be 'commands', .*, a Merge, .* or a Replicate, not 'both'"),
        ({"mode": fastresp.Merge}, "mode must be"),
        ({"mode": "merge", "merge_items": 0}, "^items must be a whole number of 1 or more, not 0"),
        ({"mode": "merge", "merge_bytes": 1.5}, "^bytes must be a whole number of 1 or more"),
        ({"mode": "merge", "merge_items": "error"}, "^items must be a whole number of 1 or more"),
        ({"mode": "serialize", "max_payload_bytes": 0}, "^max_bytes must be a whole number of 1"),
        ({"mode": "serialize", "exists": "no"}, "^exists must be 'error', 'replace' or 'skip'"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fastresp.mass_insert([], **grouped(options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"mode": "merge", "merge_items": 0},
            "merge_items must be a whole number of 1 or more, not 0",
        ),
        ({"merge_items": 10}, "merge_items is for mode='merge'"),
        ({"merge_bytes": "error"}, "merge_bytes is for mode='merge'"),
        ({"exists": "skip"}, "exists is for mode='serialize'"),
        ({"mode": "merge", "exists": "skip"}, "exists must be 'update' or 'replace', not"),
    ],
)
def test_bad_flat_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        Sink(None, "SET {a} {b}", **options)
