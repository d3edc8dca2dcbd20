"""The receipt of a copy: a JSON file with both servers, the options and the outcome."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import invoke
from places import ROOT
from server_programs import WHEEL_SERVERS, located

import fastresp
import fastresp.aio
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

TARGET = "valkey-8.1"
PAGE = ROOT / "docs" / "reference" / "receipt.md"


def prepare(client: redis.Redis) -> None:
    """Keep a few strings only."""
    client.flushall()
    client.mset({f"key:{n}": n for n in range(50)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipt.json"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def url_of(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}?db=0"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_fields(asynchronous: bool, source: redis.Redis, target: redis.Redis, path: Path) -> None:
    """Each documented field is there, and no others."""
    options = {"verify": True, "exists": "replace", "receipt": path}
    if asynchronous:
        report = asyncio.run(fastresp.aio.copy(url_of(source), url_of(target), **options))
    else:
        report = fastresp.copy(url_of(source), url_of(target), **options)
    found = read(path)
    section = PAGE.read_text().partition("## Receipt of a copy")[2].partition("## OpenLineage")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(found) == {name for row in rows for name in re.findall("`([a-z_]+)`", row)}
    assert found["format"] == "fastresp receipt of a copy"
    assert (found["state"], found["error"], found["errors"]) == ("complete", None, {})
    assert found["source"]["files"] == []
    for server, client in ((found["source"]["server"], source), (found["target"], target)):
        info = client.info("server")
        valkey = "valkey_version" in info
        assert server == {
            "url": url_of(client), "product": "valkey" if valkey else "redis",
            "version": info["valkey_version" if valkey else "redis_version"],
            "run_id": info["run_id"], "mode": "standalone",
        }  # fmt: skip
    assert found["options"]["exists"] == "replace" and found["options"]["verify"]
    assert found["counts"]["rows"] == report.rows == source.dbsize()
    assert found["counts"]["converted"] == report.converted
    assert found["verification"]["same"] and found["verification"]["rows"] == report.rows
    assert "differences" not in found["verification"]


def test_errors(source: redis.Redis, target: redis.Redis, path: Path) -> None:
    """Error replies, an exception, and Ctrl-C."""
    target.set("key:1", "exists")
    with pytest.raises(fastresp.LoadErrors):
        fastresp.copy(url_of(source), url_of(target), receipt=path)
    found = read(path)
    assert (found["state"], found["errors"]) == ("complete", {"BUSYKEY": 1})
    assert found["counts"]["failed"] == 1
    target.flushall()
    target.set("key:1", "exists")
    with pytest.raises(fastresp.LoadErrors):
        fastresp.copy(url_of(source), url_of(target), receipt=path, verify=True)
    found = read(path)
    assert (found["state"], found["error"], found["verification"]) == ("stopped", None, None)
    assert found["stopped"] == "keys or commands failed, so it was not verified"
    with pytest.raises(fastresp.TransportError):
        fastresp.copy(url_of(source), "unix:///nowhere/socket", receipt=path)
    found = read(path)
    assert (found["state"], found["error"]["type"]) == ("failed", "TransportError")
    assert found["target"]["version"] is None and found["source"]["server"]["version"]

    def interrupt(report: fastresp.Report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fastresp.copy(
            url_of(source), url_of(target), exists="replace", receipt=path, progress=interrupt
        )
    assert (read(path)["state"], read(path)["error"]["type"]) == (
        "interrupted", "KeyboardInterrupt",
    )  # fmt: skip


def test_differences(source: redis.Redis, target: redis.Redis, path: Path) -> None:
    """The receipt counts what the verification found, without the values."""

    def changes(report: fastresp.Report) -> None:
        if report.replies == source.dbsize():
            target.set("key:1", "secret")

    report = fastresp.copy(
        url_of(source), url_of(target), receipt=path, verify=True, progress=changes
    )
    assert report.verification is not None
    found = read(path)["verification"]
    assert found["differing"] == report.verification.differing == 1
    assert "secret" not in path.read_text()


def test_file_of_another_option(source: redis.Redis, target: redis.Redis, path: Path) -> None:
    """The receipt would replace an empty differences file, or could not be written."""
    urls, options = (url_of(source), url_of(target)), {"exists": "replace", "verify": True}
    for other in ("rejects", "differences"):
        given: dict[str, Any] = {**options, other: path}
        with pytest.raises(ValueError, match="is also the file of another option"):
            fastresp.copy(*urls, receipt=path, **given)
    outcome = invoke("copy", *urls, "--receipt", "-")
    assert outcome.exit_code == Exit.USAGE and "--receipt -" in outcome.stderr
    assert target.dbsize() == 0 and not path.exists()


def test_files(target: redis.Redis, tmp_path: Path, path: Path) -> None:
    for number in range(2):
        rows = [{"id": n, "name": "x"} for n in range(number, 40, 2)]
        fastresp.dump(
            rows, "HSET user:{id} {**-id}", file=tmp_path / f"node{number}.rdb", format="rdb"
        )
    fastresp.copy(tmp_path / "node*.rdb", url_of(target), receipt=path, match="user:*")
    found = read(path)
    assert found["source"]["server"] is None and found["options"]["match"] == "user:*"
    files = [Path(each["path"]) for each in found["source"]["files"]]
    assert files == [tmp_path / "node0.rdb", tmp_path / "node1.rdb"]
    assert [each["size"] for each in found["source"]["files"]] == [
        each.stat().st_size for each in files
    ]
    assert found["counts"]["rows"] == 40


def test_followed(path: Path) -> None:
    """The receipt is written when the copy ends, not when the snapshot is copied."""
    program = located("redis-8.2", WHEEL_SERVERS)
    at_once = ("--repl-diskless-sync-delay", "0")
    with LocalServer(*at_once, program=program) as source, LocalServer() as target:
        with redis.Redis.from_url(source.url) as client:
            client.mset({f"key:{n}": n for n in range(100)})
        fastresp.copy(
            source.url, target.url, from_replica=True, follow=True, until_lag=0, receipt=path
        )
        found = read(path)
        assert (found["state"], found["counts"]["rows"], found["counts"]["lag_bytes"]) == (
            "complete", 100, 0,
        )  # fmt: skip
        with pytest.raises(fastresp.LoadErrors):
            fastresp.copy(source.url, target.url, from_replica=True, follow=True, receipt=path)
    assert (read(path)["state"], read(path)["counts"]["failed"]) == ("stopped", 100)


def test_command_line(source: redis.Redis, target: redis.Redis, path: Path) -> None:
    source_url = url_of(source).replace("unix://", "unix://default:sesame@")
    words = ["copy", url_of(source), url_of(target), "--exists", "replace", "--receipt"]
    assert invoke(*words, str(path)).exit_code == Exit.OK
    assert read(path)["state"] == "complete"
    outcome = invoke("verify", "--receipt", str(path))
    assert outcome.exit_code == Exit.USAGE
    assert "is the receipt of a copy; to compare the servers" in outcome.stderr
    assert "--exists skip and --verify" in outcome.stderr
    assert invoke("copy", source_url, *words[2:], str(path)).exit_code == Exit.OK
    assert "sesame" not in path.read_text()
    other = path.with_name("other.json")
    other.write_text("{}")
    outcome = invoke(*words, str(other))
    assert outcome.exit_code == Exit.USAGE, outcome.stderr
    assert other.read_text() == "{}"
    assert invoke(*words, str(path), "--dry-run").exit_code == Exit.OK
