"""Error replies on the socket transports, sync and asyncio alike: counted, shown and rejected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from loads import Insert, commands, insert_sync
from peak import forget_peak, peak

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer


def mixed(count: int, every: int) -> Iterator[tuple[str, str, int]]:
    """Yield SETs, with a failing command at regular intervals."""
    for i in range(count):
        yield ("LPUSH", "text", i) if i % every == every - 1 else ("SET", f"key:{i}", i)


@pytest.fixture
def text(client: redis.Redis) -> None:
    """Create a key that is not a list."""
    client.set("text", "x")


@pytest.mark.usefixtures("text")
def test_each_error_has_its_command(insert: Insert, server: LocalServer) -> None:
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(mixed(100_000, 1000), server=server.url)
    report = caught.value.report
    assert (report.commands, report.replies, report.failed) == (100_000, 100_000, 100)
    assert [error.index for error in report.errors] == list(range(999, 100_000, 1000))
    for error in report.errors:
        assert error.row == error.index
        assert error.arguments == (b"LPUSH", b"text", b"%d" % error.index)
        assert (error.code, error.nested) == ("WRONGTYPE", False)
    assert "first for row 999" in str(caught.value)


@pytest.mark.usefixtures("text")
def test_rows_and_commands_are_distinguished(insert: Insert, server: LocalServer) -> None:
    rows = ({"id": i, "key": "text" if i == 7777 else f"list:{i}"} for i in range(20_000))
    report = insert(rows, "SET id:{id} 1; LPUSH {key} {id}", server=server.url, on_error="collect")
    (error,) = report.errors
    assert (error.row, error.index) == (7777, 7777 * 2 + 1)
    assert error.arguments == (b"LPUSH", b"text", b"7777")
    assert str(error).startswith("row 7,777 (key=text), command 15,555: WRONGTYPE")


@pytest.mark.usefixtures("text")
def test_errors_within_a_reply(insert: Insert, server: LocalServer) -> None:
    rows = [{"k": "a"}, {"k": "text"}]
    report = insert(
        rows, "MULTI; LPUSH {k} 1; LPUSH {k} 2; EXEC", server=server.url, on_error="collect"
    )
    assert (report.replies, report.failed) == (8, 1)
    assert [(e.index, e.row, e.nested, e.code) for e in report.errors] == [
        (7, 1, True, "WRONGTYPE")
    ] * 2


@pytest.mark.usefixtures("text")
def test_stop_at_the_first_error(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(mixed(1_000_000, 5000), server=server.url, on_error="stop")
    report = caught.value.report
    assert report.stopped.startswith("stopped at the first error reply")
    assert report.errors[0].index == 4999
    assert report.commands == report.replies < 1_000_000
    assert report.in_doubt == 0
    assert client.dbsize() == 1 + report.commands - report.failed


@pytest.mark.usefixtures("text")
@pytest.mark.parametrize(
    ("most", "words"),
    [(100, "more than 100 error"), ("100", "more than 100 error"), ("2%", "more than 2% of")],
)
def test_max_errors(insert: Insert, server: LocalServer, most: int | str, words: str) -> None:
    """A tenth of the commands fail, so both limits are exceeded soon."""
    options: dict[str, Any] = {"server": server.url, "max_errors": most}
    report = insert(mixed(1_000_000, 10), on_error="collect", **options)
    assert words in report.stopped
    assert report.failed > 100 if most != "2%" else report.failed >= 10
    assert report.commands == report.replies < 1_000_000
    with pytest.raises(fastresp.LoadErrors, match="stopped"):
        insert(mixed(1_000_000, 10), **options)


@pytest.mark.usefixtures("text")
@pytest.mark.parametrize("most", [10, "11%"])
def test_fewer_errors_than_allowed(insert: Insert, server: LocalServer, most: int | str) -> None:
    report = insert(mixed(100, 10), server=server.url, max_errors=most, on_error="collect")
    assert (report.failed, report.stopped, report.replies) == (10, "", 100)


@pytest.mark.parametrize("most", [-1, 1.5, "x", "1.5", "100%", "-1%", True, "nan%", float("inf")])
def test_bad_max_errors(insert: Insert, most: Any) -> None:
    with pytest.raises(ValueError, match="a percentage such as '1%'"):
        insert([], max_errors=most)


def test_max_errors_and_stop(insert: Insert) -> None:
    with pytest.raises(ValueError, match="leave out max_errors"):
        insert([], max_errors=5, on_error="stop")


@pytest.mark.usefixtures("text")
def test_rejects_to_a_file(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    odd = b"\xff\x00\r\n\xc3\xa9"
    rows = [(f"k{i}", i) for i in range(999)] + [("text", odd)] * 3000
    path = tmp_path / "rejects.jsonl"
    report = insert(rows, "LPUSH {0} {1}", server=server.url, rejects=path, on_error="collect")
    assert report.failed == 3000
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(999, 3999))
    assert [line["command"] for line in lines] == list(range(999, 3999))
    assert {line["code"] for line in lines} == {"WRONGTYPE"}
    assert {line["error"] for line in lines} == {report.errors[0].text}
    assert list(fastresp.read_rejects(path)) == [["LPUSH", "text", odd]] * 3000
    with pytest.raises(FileExistsError, match="earlier load"):
        insert(rows, "LPUSH {0} {1}", server=server.url, rejects=path)


@pytest.mark.usefixtures("text")
def test_rejects_are_written_as_they_happen(
    insert: Insert, server: LocalServer, tmp_path: Path
) -> None:
    path = tmp_path / "rejects.jsonl"
    seen = []

    def rows() -> Iterator[tuple[str, str, int]]:
        yield "LPUSH", "text", 1
        for i in range(300_000):
            yield "SET", f"key:{i}", i
        seen.append(path.read_text().count("\n"))

    insert(rows(), server=server.url, rejects=path, on_error="collect")
    assert seen == [1]


@pytest.mark.usefixtures("text")
def test_rejects_to_a_function(insert: Insert, server: LocalServer) -> None:
    seen: list[fastresp.CommandError] = []
    report = insert(mixed(50_000, 100), server=server.url, rejects=seen.append, on_error="collect")
    assert len(seen) == report.failed == 500
    assert [error.index for error in seen] == list(range(99, 50_000, 100))
    assert len(report.errors) == 100


@pytest.mark.usefixtures("text")
def test_rejects_that_cannot_be_written(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        insert([("SET", "a", 1)], server=server.url, rejects=tmp_path / "no" / "folder")
    assert client.get("a") is None
    with pytest.raises(OSError, match=r"No space left.* all later ones were not") as caught:
        insert(mixed(1000, 10), server=server.url, rejects="/dev/full")
    assert caught.value.report.replies == 1000

    def refuse(error: fastresp.CommandError) -> None:
        raise ZeroDivisionError(error.index)

    with pytest.raises(ZeroDivisionError, match="9") as raised:
        insert(mixed(1000, 10), server=server.url, rejects=refuse)
    assert "fastresp: " in raised.value.__notes__[0]


def test_errors_do_not_fill_the_memory(insert: Insert, server: LocalServer) -> None:
    """Error replies to large commands: the memory for their arguments is limited."""
    client = redis.Redis.from_url(server.url)
    client.set("text", 1)
    data = [("LPUSH", "text", "x" * 1_000_000)] * 50
    report = insert(data, server=server.url, on_error="collect")
    assert report.failed == len(report.errors) == 50
    kept = [error.arguments for error in report.errors if error.arguments]
    assert 1 <= len(kept) <= 8
    assert report.errors[-1].index == 49


def test_large_command_that_fails(server: LocalServer, client: redis.Redis) -> None:
    """The command is not copied if its error does not keep it."""
    client.set("text", 1)
    value = "x" * (100 << 20)
    forget_peak()
    before = peak()
    report = insert_sync([("LPUSH", "text", value)], server=server.url, on_error="collect")
    assert report.errors[0].arguments is None
    assert peak() - before < 32 << 10


@pytest.mark.usefixtures("text")
def test_many_errors(insert: Insert, server: LocalServer) -> None:
    storm = (("LPUSH", "text", i) for i in range(300_000))
    report = insert(storm, server=server.url, on_error="collect")
    assert (report.replies, report.failed, len(report.errors)) == (300_000, 300_000, 100)
    with pytest.raises(fastresp.LoadErrors):
        report.raise_for_errors()


def test_out_of_memory(insert: Insert, start_server: Callable[..., LocalServer]) -> None:
    server = start_server("--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
    report = insert(commands(200_000), server=server.url, on_error="collect", max_errors=10**6)
    assert (report.replies, report.stopped) == (200_000, "")
    assert {error.code for error in report.errors} == {"OOM"}
    client = redis.Redis.from_url(server.url)
    assert client.dbsize() == 200_000 - report.failed
    client.flushall()
    many = insert(commands(10**7), server=server.url, on_error="collect")
    assert "stopped because of the server's state: OOM (raise its max" in many.stopped
    assert many.replies == many.commands < 400_000
    assert client.dbsize() == many.replies - many.failed


def test_master_becomes_a_replica(
    insert: Insert, start_server: Callable[..., LocalServer], port: int
) -> None:
    server = start_server()
    admin = redis.Redis.from_url(server.url)
    data = commands(300_000, 200_000, lambda: admin.replicaof("127.0.0.1", port))
    report = insert(data, server=server.url, on_error="collect")
    assert 0 < report.failed < report.replies == report.commands < 300_000
    assert {error.code for error in report.errors} == {"READONLY"}
    assert "READONLY (it is a replica now: pass its primary; max_errors" in report.stopped
    assert admin.dbsize() == report.replies - report.failed


@pytest.mark.few(1)
def test_permissions_are_revoked(
    insert_singly: Insert, server: LocalServer, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "loader", "reset", "on", ">p", "~*", "+@all")

    def take() -> None:
        client.execute_command("ACL", "SETUSER", "loader", "-set")

    try:
        report = insert_singly(
            commands(300_000, 200_000, take),
            server=f"{server.url}?username=loader&password=p",
            on_error="collect",
        )
    finally:
        client.execute_command("ACL", "DELUSER", "loader")
    assert report.replies == 300_000
    assert {error.code for error in report.errors} == {"NOPERM"}
    assert client.dbsize() == 300_000 - report.failed
