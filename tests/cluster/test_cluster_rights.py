"""Permissions of users of a cluster: what a load needs, and messages about missing ones."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from local_cluster import LocalCluster
from moving_lists import KEY, half_moved, move

import fastresp
from fastresp import Template
from fastresp.cli.exit_codes import Exit
from fastresp.load.dry_run import dry_run

PASSWORD = "s3cret-pass"
USERS = [{"id": str(i), "name": f"name {i}"} for i in range(100)]
HSET = "HSET user:{id} {**}"
# Without INFO, so that a cluster is detected in another way.
FEW = ("-@all", "+cluster|slots", "+hset", "+hmget", "+scan", "+rpush", "+llen", "+lpop")


@pytest.fixture
def allow(cluster: LocalCluster) -> Iterator[Callable[..., str]]:
    """Return a function that creates a user with permissions on nodes, and returns the URL."""

    def allow(*rules: str, nodes: int = 3) -> str:
        for client in cluster.clients[:nodes]:
            words = ("reset", "on", f">{PASSWORD}", "~*", *rules)
            client.execute_command("ACL", "SETUSER", "loader", *words)
        return f"redis://loader:{PASSWORD}@127.0.0.1:{cluster.ports[0]}"

    yield allow
    for client in cluster.clients:
        client.execute_command("ACL", "DELUSER", "loader")


def calls(url: str) -> dict[str, Callable[[], Any]]:
    """Return the calls that read or write, by name."""

    def buffer() -> None:
        with fastresp.ListBuffer(KEY, server=url) as buffer:
            buffer.push([1])
            buffer.pop(1)

    return {
        "load": lambda: fastresp.mass_insert(USERS, HSET, server=url),
        "replies": lambda: [*fastresp.iter_replies(USERS, "HMGET user:{id} name", server=url)],
        "fetch": lambda: [*fastresp.fetch_hashes("user:{id}", ["name"], server=url)],
        "list": buffer,
    }


def refusal(call: Callable[[], Any]) -> str:
    """Return the message of a refused call, whose traceback does not show the password."""
    with pytest.raises(fastresp.TransportError) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert PASSWORD not in shown
    return str(caught.value)


def test_few_permissions_are_enough(cluster: LocalCluster, allow: Callable[..., str]) -> None:
    url = allow(*FEW)
    assert fastresp.mass_insert(USERS, HSET, server=url).replies == 100
    assert min(cluster.sizes()) > 10
    fetched = fastresp.fetch_hashes("user:{id}", ["name"], server=url)
    assert sorted(map(str, fetched)) == sorted(map(str, USERS))
    with fastresp.ListBuffer(KEY, server=url) as buffer:
        buffer.push(range(10))
        move(cluster)
        assert len(buffer) == 10
    replies = fastresp.iter_replies([(KEY,)] * 5, "RPUSH {0} 1", server=url)
    assert list(replies) == [11, 12, 13, 14, 15]
    found = dry_run(USERS, Template(HSET), url)
    assert (found.problems, len(found.nodes)) == ([], 3)


@pytest.mark.parametrize("name", ["load", "replies", "fetch", "list"])
@pytest.mark.parametrize("rules", [("+@all", "-cluster"), ("-@all", *FEW[2:])])
def test_without_cluster_slots(
    allow: Callable[..., str], rules: tuple[str, ...], name: str
) -> None:
    """No call presents the data of one node as the whole cluster."""
    words = refusal(calls(allow(*rules))[name])
    assert "can't use the cluster at 127.0.0.1:" in words
    assert "ACL SETUSER ... +cluster|slots" in words


def test_without_cluster_slots_on_the_command_line(
    cluster: LocalCluster, allow: Callable[..., str], tmp_path: Path
) -> None:
    fastresp.mass_insert(USERS, HSET, server=cluster.url)
    url = allow("-@all", *FEW[2:])
    unload = run("unload", "user:{id}", "--fields", "name", "--server", url)
    tried = run(
        "load", "-", "SET {0} 1", "--format", "lines", "--dry-run", stdin=b"a\n", REDIS_URL=url
    )
    for done in (unload, tried):
        assert done.returncode != Exit.OK
        assert "+cluster|slots" in " ".join((done.stdout + done.stderr).split())
        assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("rules", [("+@all", "-asking"), FEW])
def test_without_asking(
    cluster: LocalCluster, allow: Callable[..., str], rules: tuple[str, ...]
) -> None:
    """While a slot is being moved, the user needs ASKING."""
    url = allow(*rules)
    rows = [(KEY, i) for i in range(3)]
    with half_moved(cluster, arrived=False):  # without keys: new keys are created on the other node
        for call in (
            lambda: fastresp.mass_insert(rows, "RPUSH {0} {1}", server=url),
            lambda: list(fastresp.iter_replies(rows, "RPUSH {0} {1}", server=url)),
        ):
            assert "with ACL SETUSER ... +asking" in refusal(call)
        for client in cluster.clients:
            client.execute_command("ACL", "SETUSER", "loader", "+asking")
        assert fastresp.mass_insert(rows, "RPUSH {0} {1}", server=url).replies == 3


@pytest.mark.parametrize("name", ["load", "replies", "fetch"])
def test_user_of_one_node(
    cluster: LocalCluster, allow: Callable[..., str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = refusal(calls(allow("+@all", nodes=1))[name])
    assert any(f"can't use the server at 127.0.0.1:{port}:" in words for port in cluster.ports[1:])
    assert "each node of a cluster has its own users" in words
    assert PASSWORD not in caplog.text


def test_wrong_password(cluster: LocalCluster, allow: Callable[..., str]) -> None:
    url = allow("+@all").replace(PASSWORD, f"not-{PASSWORD}")
    for call in calls(url).values():
        assert "check the user and the password" in refusal(call)
