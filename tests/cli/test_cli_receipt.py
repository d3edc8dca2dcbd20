"""``fastresp load --receipt``, ``send --receipt`` and ``verify --receipt``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis
from command_line import invoke
from receipts import HSET, receipt, write_users

import fastresp
from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("server", "url_in_environment")

ROWS = [{"id": str(i), "name": f"name {i}"} for i in range(100)]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipt.json"


def test_verification(client: redis.Redis, users: Path, path: Path) -> None:
    done = invoke("load", users, HSET, "--receipt", path, "--verify")
    assert done.exit_code == Exit.OK
    found = receipt(path)["verification"]
    assert found["same"] and found["values"] == 1000 and "differences" not in found
    done = invoke("verify", "--receipt", path)
    assert done.exit_code == Exit.OK and "nothing differs" in done.stderr
    client.delete("user:1")
    done = invoke("verify", "--receipt", path, "--json")
    assert done.exit_code == Exit.ERRORS and json.loads(done.stdout)["differing"] == 1
    done = invoke("verify", "--receipt", path, "--log", "json")
    assert done.exit_code == Exit.ERRORS and '"event": "start"' in done.stderr
    with users.open("a") as file:
        file.write("1,2\n")
    done = invoke("verify", "--receipt", path)
    assert done.exit_code == Exit.CHANGED
    assert "the source has changed since the load of" in done.stderr


def test_wrong_usage(users: Path, path: Path) -> None:
    for arguments, message in (
        (("load", users, HSET, "--receipt", "-"), "--receipt - would write to stdout"),
        (("verify",), "a source is missing"),
        (("verify", users, "--receipt", path), "leave them out"),
        (("verify", "--receipt", path, "--format", "csv"), "leave them out"),
        (("verify", "--receipt", path), "No such file or directory"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == Exit.USAGE and message in done.stderr, arguments


def test_send_and_rejects(client: redis.Redis, tmp_path: Path, path: Path) -> None:
    resp, rejects = tmp_path / "users.resp", tmp_path / "rejects.jsonl"
    fastresp.dump(ROWS, HSET, resp)
    client.set("user:1", "x")
    done = invoke("send", resp, "--receipt", path, "--rejects", rejects)
    assert done.exit_code == Exit.ERRORS and receipt(path)["rejects"]["count"] == 1
    client.delete("user:1")
    done = invoke("load", rejects, "--from-rejects", "--receipt", path, "--yes")
    assert done.exit_code == Exit.OK
    assert receipt(path)["source"]["read"] == {"source": str(rejects), "format": "rejects"}
    assert invoke("verify", "--receipt", path).exit_code == Exit.OK


def test_lineage(users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query is sent without its credentials."""
    events = tmp_path / "events.jsonl"
    for name, value in (("TYPE", "file"), ("LOG_FILE_PATH", str(events)), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    query = "SELECT id, 'password=secret' AS name FROM source"
    done = invoke("load", users, HSET, "--lineage", "--sql", query)
    assert done.exit_code == Exit.OK
    last = json.loads(events.read_text().splitlines()[-1])
    assert last["job"]["facets"]["sql"]["query"].startswith("SELECT id, ")
    assert "secret" not in events.read_text()
