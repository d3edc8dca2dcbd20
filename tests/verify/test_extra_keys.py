"""Keys that the source lacks: ``verify(mirror=)``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from command_line import invoke

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

Verify = Callable[..., fastresp.VerifyReport]
ROWS = [{"id": n, "name": f"name {n}"} for n in range(50)]
WHOLE = "HSET user:{id} {**}"


def test_extra_keys(
    verify: Verify, load: Callable[..., fastresp.Report], client: redis.Redis
) -> None:
    load(ROWS, WHOLE)
    client.set("fastresp:{user}", "a checkpoint")
    assert verify(ROWS, WHOLE, exact=True, mirror="*").same
    client.mset({"user:old": 1, "other": 1})
    client.hset("user:1", "old", "1")
    report = verify(ROWS, WHOLE, exact=True, mirror="user:*")
    assert report.by_kind == {"extra": 2}
    assert {(each.row, each.key) for each in report.differences} == {
        (1, b"user:1"), (None, b"user:old"),
    }  # fmt: skip
    assert report.rows_differing == 1
    load(ROWS, WHOLE, mirror=fastresp.Mirror("user:*", limit="100%"))
    assert verify(ROWS, WHOLE, exact=True, mirror="user:*").same


def test_deleted_meanwhile(verify: Verify, client: redis.Redis) -> None:
    """A key that expires before the recheck is no difference."""
    client.set("user:old", 1, px=30)
    report = verify([], WHOLE, mirror="user:*")
    assert (report.differing, report.written_meanwhile) in ((0, 1), (0, 0))


def test_limits(verify: Verify, load: Callable[..., fastresp.Report], client: redis.Redis) -> None:
    load(ROWS, WHOLE)
    client.mset({f"user:old{n}": 1 for n in range(20)})
    report = verify(ROWS, WHOLE, mirror="user:*", max_differences=5)
    assert report.differing == 5
    assert report.stopped == "not all keys that match user:* were compared"
    with pytest.raises(ValueError, match="mirror needs all rows"):
        verify(ROWS, WHOLE, mirror="user:*", sample="1%")
    with pytest.raises(ValueError, match="with a wildcard"):
        verify(ROWS, WHOLE, mirror="user:1")


def test_command_line(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    where = ["--server", server.url, "--mirror", "user:*"]
    client.set("user:old", 1)
    outcome = invoke(
        "load", str(path), WHOLE, *where, "--mirror-limit", "100%", "--verify", "--json"
    )
    fields = json.loads(outcome.stdout)
    assert (outcome.exit_code, fields["deleted"]) == (Exit.OK, 1)
    assert fields["verification"]["same"]
    client.set("user:old", 1)
    outcome = invoke("verify", str(path), WHOLE, *where, "--exact")
    assert outcome.exit_code == Exit.ERRORS
    assert '1 x unexpected, first: "user:old"' in outcome.stderr
