"""``fastresp copy``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import redis
from command_line import invoke

from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer


def test_copy(
    server: LocalServer, client: redis.Redis, start_server: Callable[..., LocalServer],
    tmp_path: Path,
) -> None:  # fmt: skip
    client.mset({f"user:{number}": number for number in range(100)} | {"other": 1})
    target = start_server()
    arguments = ("copy", server.url, target.url, "--match", "user:*")
    done = invoke(*arguments, "--rename", "user:* -> u:*", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["rows"], found["failed"], found["gone"]) == (Exit.OK, 100, 0, 0)
    with redis.Redis.from_url(target.url) as copied:
        assert copied.get("u:99") == b"99"
        assert copied.dbsize() == 100
        copied.rename("u:99", "user:99")
        rejects = tmp_path / "rejects"
        done = invoke(*arguments, "--rejects", rejects)
        assert done.exit_code == Exit.ERRORS
        assert "1 x BUSYKEY" in done.stderr
        assert json.loads(rejects.read_text())["arguments"][1] == "user:99"
        done = invoke(*arguments, "--exists", "skip")
        assert done.exit_code == Exit.OK
        assert "100 commands skipped because the key exists" in done.stderr


def test_wrong_options(server: LocalServer) -> None:
    done = invoke("copy", server.url, server.url, "--rename", "a")
    assert (done.exit_code, "--rename must be two prefixes" in done.stderr) == (Exit.USAGE, True)
    done = invoke("copy", server.url, server.url, "--changed")
    assert (done.exit_code, "--changed needs --exists replace" in done.stderr) == (Exit.USAGE, True)
    done = invoke("copy", "nowhere", server.url)
    assert (done.exit_code, "can't read this server URL" in done.stderr) == (Exit.USAGE, True)


def test_delete(
    server: LocalServer, client: redis.Redis, start_server: Callable[..., LocalServer]
) -> None:
    """Without a terminal for the question, nothing is copied; --yes answers it."""
    client.set("a", 1)
    target = start_server()
    with redis.Redis.from_url(target.url) as copied:
        copied.set("b", 1)
        done = invoke("copy", server.url, target.url, "--delete")
        assert done.exit_code == Exit.USAGE
        assert "add --yes if that is what you want" in done.stderr
        assert copied.keys() == [b"b"]
        done = invoke("copy", server.url, target.url, "--delete", "--yes", "--json")
        assert (done.exit_code, json.loads(done.stdout)["deleted"]) == (Exit.OK, 1)
        assert copied.keys() == [b"a"]
