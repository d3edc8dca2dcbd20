"""The user loses permission for the marker during a load."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from loads import Insert
from resumed_loads import MARKER, NAME

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.server.options import grouped

COUNT = 10_000
RIGHTS = ("resetkeys", "~list*")


@pytest.fixture
def loader(server: LocalServer, client: redis.Redis) -> Any:
    """Options of a load by a user with all permissions."""
    client.execute_command("ACL", "SETUSER", "loader", "on", ">secret", "~*", "+@all")
    yield {
        "server": f"{server.url}?username=loader&password=secret", "checkpoint": NAME,
        "source_id": "numbers",
    }  # fmt: skip
    client.acl_deluser("loader")


@pytest.mark.parametrize("wrong", [0, 1])
def test_between_its_command_and_exec(
    insert_singly: Insert, client: redis.Redis, loader: dict[str, Any], wrong: int
) -> None:
    """The rows ran; the error names them, and how to resume. A server checks permissions at EXEC.

    A transaction of the load revokes the permission: any other way would race within microseconds.
    """
    template = "ACL {1} {2} {3} {4}; HSET list{5} f {0}; RPUSH list {0}"
    harmless = ("SETUSER", "loader", "+@all", "on")
    rows = [
        (
            number, *(("SETUSER", "loader", *RIGHTS) if number == 2_100 else harmless),
            # A key of another type.
            "" if wrong and number == 2_100 else "of",
        )
        for number in range(COUNT)
    ]  # fmt: skip
    with pytest.raises(fastresp.TransportError, match="the checkpoint could not be") as caught:
        insert_singly(rows, template, **grouped(loader))
    stored = [int(item) for item in client.lrange("list", 0, -1)]
    first, last = int(client.get(MARKER) or b""), len(stored) - 1
    assert stored == [*range(last + 1)]
    assert first <= 2_100 <= last < COUNT - 1
    words = f"rows {first:,} to {last:,} ran, but the checkpoint could not be written: NOPERM"
    assert words in str(caught.value)
    assert f"unless you run SET {MARKER} {last + 1})" in str(caught.value)
    report = caught.value.report
    assert report is not None
    assert (report.rows, report.replies) == (last + 1, 3 * (last + 1))
    assert (report.in_doubt, report.failed) == (0, wrong)
    assert report.unsent > 0
    # Follow its advice.
    client.execute_command("ACL", "SETUSER", "loader", "~*")
    client.set(MARKER, last + 1)
    report = insert_singly(rows, template, **grouped(loader | {"resume": True}))
    assert (report.resumed_at, report.rows) == (last + 1, COUNT - last - 1)
    assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(COUNT)]


def test_before_its_command(
    insert_singly: Insert, client: redis.Redis, loader: dict[str, Any]
) -> None:
    """The server refuses the whole transaction, none of which runs."""

    def rows() -> Any:
        for number in range(COUNT):
            if number == COUNT // 2:
                client.execute_command("ACL", "SETUSER", "loader", *RIGHTS)
            yield number

    with pytest.raises(fastresp.TransportError, match=r"ran none of them|could not be written"):
        insert_singly(rows(), "RPUSH list {0}", **grouped(loader))
    stored = [int(item) for item in client.lrange("list", 0, -1)]
    assert stored == [*range(len(stored))]
