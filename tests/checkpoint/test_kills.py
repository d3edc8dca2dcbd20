"""Loads killed at any moment and resumed: every row runs exactly once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
import redis
from local_cluster import free_port
from resumed_loads import Loads
from waiting import until, until_loaded

from fastresp.server.local_server import LocalServer

TEMPLATES = ["RPUSH list:{0} {1}", "INCRBY sum:{0} {1}", "XADD stream:{0} * n {1}"]
AOF = ("--appendonly", "yes", "--appendfsync")
Start = Callable[..., LocalServer]
MANY = 67


def restart(loads: Loads) -> None:
    """Kill the server, and restart it with the data on its disk."""
    loads.server.process.kill()
    loads.server.process.wait()
    loads.server.start()
    with loads.client() as client:
        until_loaded(client)


class Replicated:
    """A primary and its replica, which is promoted when the primary dies."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.port = free_port()
        self.server = start("--port", str(self.port))
        self._add_replica()

    def _add_replica(self) -> None:
        port = free_port()
        self.replica = self._start(
            "--port", str(port), "--replicaof", f"127.0.0.1 {self.port}",
            "--repl-diskless-sync-delay", "0",
        )  # fmt: skip
        self.port = port
        with redis.Redis.from_url(self.replica.url) as client:
            until(lambda: client.info("replication")["master_link_status"] == "up")

    def fail_over(self, loads: Loads) -> None:
        """Kill the primary while its replica lags behind; then load into the replica."""
        self.replica.process.send_signal(signal.SIGSTOP)
        time.sleep(0.02)
        self.server.process.kill()
        self.server.process.wait()
        self.replica.process.send_signal(signal.SIGCONT)
        loads.server = self.server = self.replica
        with loads.client() as client:
            client.replicaof("NO", "ONE")
        self._add_replica()


def close_connections(loads: Loads) -> None:
    with loads.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)


def check(loads: Loads, happening: Callable[[Loads], object], most: int) -> None:
    ended_early = loads.run(happening)
    assert most - 1 <= ended_early <= most, loads.printed
    loads.check()


@pytest.mark.few(1)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kills", [2, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", [0])
class TestKills:
    def test_loader(self, start_server: Start, template: str, kills: int, seed: int) -> None:
        check(Loads(start_server(), template, seed + kills, kills), Loads.kill_loader, kills)

    def test_connections(self, start_server: Start, template: str, kills: int, seed: int) -> None:
        check(Loads(start_server(), template, seed + kills + 1, kills), close_connections, kills)

    @pytest.mark.few(0)
    @pytest.mark.parametrize("fsync", ["always", "everysec"])
    def test_server(
        self, start_server: Start, template: str, kills: int, seed: int, fsync: str
    ) -> None:
        server = start_server(*AOF, fsync)
        check(Loads(server, template, seed + kills + 2, kills), restart, kills)

    @pytest.mark.few(0)
    def test_primary(self, start_server: Start, template: str, kills: int, seed: int) -> None:
        replicated = Replicated(start_server)
        loads = Loads(replicated.server, template, seed + kills + 3, kills)
        check(loads, replicated.fail_over, kills)
