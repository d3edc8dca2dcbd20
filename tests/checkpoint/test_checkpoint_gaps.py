"""Checkpoints on a single server with events between two steps of a load."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis
from resumed_loads import NAME, check_lists, failing, restart
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped
from fastresp.sources.chunks import Chunks

PUSH = "RPUSH list:{0} {1}"
COUNT, KEYS = 12_000, 300
ROWS = [(number % KEYS, number) for number in range(COUNT)]
OPTIONS: dict[str, Any] = {"checkpoint": NAME, "source_id": "numbers", "resume": True}
APPENDED = ("--appendonly", "yes", "--appendfsync", "always")
# The permissions in the guide, without +info.
RIGHTS = [
    "+client|id", "+client|setname", "+client|kill", "+client|list", "+watch", "+unwatch", "+multi",
    "+exec", "+discard", "+hset", "+hget", "+hgetall", "+set", "+get", "+del", "+exists", "+time",
    "+rpush", "+zadd",
]  # fmt: skip
FEW = "ERR wrong number of arguments for 'zadd' command"
Start = Callable[..., LocalServer]


def fail(url: str, at: int, **options: Any) -> None:
    """Load up to a row, so that all earlier rows have run."""
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing(ROWS, at), PUSH, server=url, **grouped(OPTIONS | options))


def load(url: str, **options: Any) -> fastresp.Report:
    """Load the remaining rows."""
    return fastresp.mass_insert(iter(ROWS), PUSH, server=url, **grouped(OPTIONS | options))


def check(server: LocalServer, count: int = COUNT) -> None:
    with redis.Redis.from_url(server.url) as client:
        check_lists(client, KEYS, count)


@pytest.mark.parametrize("connections", [1, 3])
def test_missing_description(server: LocalServer, client: redis.Redis, connections: int) -> None:
    """Only the markers exist."""
    fail(server.url, 9_000, connections=connections)
    client.delete(f"fastresp:{{{NAME}}}")
    with pytest.raises(
        fastresp.CheckpointError, match=r"description of checkpoint .* is gone.*clear=True"
    ):
        load(server.url, connections=connections)
    check(server, 9_000)
    client.delete(*[f"list:{key}" for key in range(KEYS)])
    report = load(server.url, connections=connections, checkpoint_clear=True, resume=False)
    assert report.rows == COUNT
    check(server)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seen", ""), ("failed", "-4"), ("lease", "nan"), ("ended", "9" * 18), ("totals", "{"),
        ("totals", "[]"), ("totals", '{"rows": 1e400}'), ("unknown", "[1]"), ("clients", "5"),
        ("clients", "[" * 9_999), ("clients", '[["", 1]]'), ("clients", '[["", "x", [1e400]]]'),
        ("generation", ""), ("fence", "x"), ("markers", "x"), (None, "no hash"),
    ],
)  # fmt: skip
def test_description_key_of_another_program(
    server: LocalServer, client: redis.Redis, field: str | None, value: str
) -> None:
    key = f"fastresp:{{{NAME}}}"
    fail(server.url, 9_000)
    if field is None:
        client.set(key, value)
    else:
        client.hset(key, field, value)
    words = "not a checkpoint description" + (f".*field '{field}'" if field else "")
    for options in ({}, {"take_over": True}, {"checkpoint_clear": True, "resume": False}):
        with pytest.raises(fastresp.CheckpointError, match=words):
            load(server.url, **options)
    check(server, 9_000)


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("value", ["x", "-5", "1" * 30, "1.5", "", None])
def test_marker_key_of_another_program(
    server: LocalServer, client: redis.Redis, connections: int, value: str | None
) -> None:
    fail(server.url, 9_000, connections=connections)
    key = f"fastresp:{{{NAME}}}:row" + (":0" if connections > 1 else "")
    generation, colon, _ = (client.get(key) or b"").decode().rpartition(":")
    client.delete(key)
    if value is None:
        client.rpush(key, "x")
    else:
        client.set(key, generation + colon + value)
    words = rf"marker {re.escape(key)} .* is not a number of rows.*clear=True"
    with pytest.raises(fastresp.CheckpointError, match=words):
        load(server.url, connections=connections)
    check(server, 9_000)


@pytest.mark.parametrize("value", [None, "garbage", "00000000:5"])
@pytest.mark.parametrize("rights", ["+@all", "-client|kill"])
def test_one_of_several_markers_is_missing(
    server: LocalServer, client: redis.Redis, value: str | None, rights: str
) -> None:
    """Or another key has its name. It does not count as having run no rows."""
    client.execute_command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", rights)
    url = server.url + "?username=some&password=secret"
    fail(url, 9_000, connections=3)
    key = f"fastresp:{{{NAME}}}:row:2"
    client.delete(key)
    if value is not None:
        client.set(key, value)
    for _ in range(2):
        with pytest.raises(fastresp.CheckpointError, match=rf"{re.escape(key)} .* is missing"):
            load(url, connections=3)
    check(server, 9_000)
    client.acl_deluser("some")


@pytest.mark.parametrize("connections", [1, 3])
def test_server_restarts_after_its_markers_were_read(
    start_server: Start, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    """Nothing is sent, since the markers may have changed."""
    server = start_server()
    fail(server.url, 6_000, connections=connections)
    with redis.Redis.from_url(server.url) as client:
        client.save()
    fail(server.url, 9_000, connections=connections)
    before: Callable[[Chunks], Any] = Chunks.open

    def open_late(chunks: Chunks) -> Any:
        restart(server)
        return before(chunks)

    monkeypatch.setattr(Chunks, "open", open_late)
    with pytest.raises(fastresp.CheckpointError, match="was restarted") as caught:
        load(server.url, connections=connections)
    assert caught.value.again
    monkeypatch.undo()
    check(server, 6_000)
    report = load(server.url, connections=connections)
    assert report.replies == COUNT - 6_000
    check(server)


def test_other_clients_have_the_same_ids(start_server: Start) -> None:
    """Without INFO a restart is not detected; other clients now have the first loader's IDs."""
    server = start_server(
        *APPENDED, "--user", "u", "on", ">p", "~list:*", "~fastresp:*", *RIGHTS
    )  # fmt: skip
    url = server.url.replace("unix://", "unix://u:p@")
    with ExitStack() as stack:
        connect(stack, server, 10)
        fail(url, 9_000)
        with redis.Redis.from_url(server.url) as client:
            [[_, _, numbers]] = json.loads(client.hget(f"fastresp:{{{NAME}}}", "clients") or "")
    restart(server)
    with ExitStack() as stack:
        others = connect(stack, server, max(numbers))
        assert others.keys() >= set(numbers)
        assert load(url).replies == COUNT - 9_000
        with redis.Redis.from_url(server.url) as client:
            assert others.keys() <= {int(each["id"]) for each in client.client_list()}
    check(server)


@pytest.mark.parametrize("rights", [["+client|kill"], ["+eval", "+command|info"]])
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize(
    "name", [None, *[pytest.param(name, marks=pytest.mark.slow) for name in WHEEL_SERVERS]]
)
def test_rows_without_items_need_no_other_permissions(
    start_server: Start, name: str | None, connections: int, rights: list[str]
) -> None:
    """Such as permission for PING."""
    others = [right for right in RIGHTS if right != "+client|kill"]
    server = start_server(
        "--user", "u", "on", ">p", "~list:*", "~fastresp:*", *others, *rights,
        program=None if name is None else located(name, WHEEL_SERVERS),
    )  # fmt: skip
    rows = [{"key": number % 9, "v": [1, number][: number % 4 * 2]} for number in range(4_000)]
    report = fastresp.mass_insert(
        rows, "ZADD list:{key} INCR {*v}", server=server.url.replace("unix://", "unix://u:p@"),
        checkpoint=NAME, connections=connections, on_error="collect",
    )  # fmt: skip
    assert report.failed == 1_000
    assert {each.text for each in report.errors} == {FEW}
    with redis.Redis.from_url(server.url) as client:
        stored = [int(each) for key in range(9) for each in client.zrange(f"list:{key}", 0, -1)]
    assert sorted(stored) == [number for number in range(4_000) if number % 4]


def connect(stack: ExitStack, server: LocalServer, highest: int) -> dict[int, redis.Redis]:
    """Open connections until one has this CLIENT ID; return all by ID."""
    opened: dict[int, redis.Redis] = {}
    while max(opened, default=0) < highest:
        client = redis.Redis.from_url(server.url, single_connection_client=True)
        opened[int(stack.enter_context(client).client_id())] = client
    return opened


@pytest.mark.parametrize("program", [None, *WHEEL_SERVERS])
def test_truncated_transaction_on_disk(cli: str, program: str | None) -> None:
    """A crash truncates the last transaction; the server appends the next and may run both."""
    with LocalServer(*APPENDED, program=program and located(program, WHEEL_SERVERS)) as server:
        fail(server.url, 9_000)
        restart(server, partial(add_half, server))
        check(server, 9_000)
        assert load(server.url).replies == COUNT - 9_000
        restart(server)
        check(server)


def add_half(server: LocalServer) -> None:
    """Append the start of the last transaction to the file on disk."""
    place = server.folder
    [file] = [*place.glob("appendonlydir/*.incr.aof")] or [place / "appendonly.aof"]
    content = file.read_bytes()
    cut = content.rindex(b"list:")
    begin = content.rindex(b"*1\r\n$5\r\nMULTI\r\n", 0, cut)
    file.write_bytes(content + content[begin:cut])
