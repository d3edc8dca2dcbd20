"""A cluster on this machine, for tests: primaries, each with replicas, on free ports."""

from __future__ import annotations

import itertools
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import redis
from waiting import until

from fastresp.outcome.errors import TransportError
from fastresp.server.local_server import LocalServer

__all__ = ["SLOTS", "LocalCluster", "free_port"]

SLOTS = 16384
URL = "redis://127.0.0.1:{port}"
READY_S = 20.0
PROMOTED_S = 40.0  # seconds for a planned failover
# The cluster bus uses the port plus 10,000. Both ports are below the system's ephemeral ports, so
# that no connection occupies them when a node restarts. Each process of a test run has its own
# ports, and reuses the one that it used least recently.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = range(10_000 + WORKER, 20_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
UNUSED = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))


def free_port() -> int:
    """Return a port that is free, and whose bus port is free."""
    while True:
        port = next(UNUSED)
        with socket.socket() as probe, socket.socket() as bus, suppress(OSError):
            probe.bind(("", port))
            bus.bind(("", port + 10_000))
            return port


class Node(NamedTuple):
    """A node that owns slot 0, and knows no other node."""

    port: int
    server: LocalServer
    client: redis.Redis


# Nodes started in advance for the next cluster, since a primary refuses commands for 2 s after its
# start (CLUSTER_WRITABLE_DELAY), and for the node timeout after a time without slots.
SPARES: list[Node] = []
MAX_SPARES = 6 if "pytest" in sys.modules else 0  # none beside a benchmark


def end_spares() -> None:
    while SPARES:
        node = SPARES.pop()
        node.client.close()
        node.server.__exit__()


def no_options(port: int) -> Sequence[str]:
    return ()


class LocalCluster:
    """Run a cluster, in a ``with`` statement.

    Args:
        primaries: number of nodes with slots.
        replicas: number of replicas of each primary.
        program: the server to start.
        url: URL of a node, with the placeholder ``{port}``.
        options: returns additional options of the node at a port.

    Attributes:
        host: where the nodes listen.
        nodes: the servers, the primaries first.
        ports: ports of the nodes.
        clients: a client of each node.
    """

    def __init__(
        self,
        primaries: int = 3,
        replicas: int = 0,
        *,
        program: str | None = None,
        url: str = URL,
        options: Callable[[int], Sequence[str]] = no_options,
    ) -> None:
        self.primaries = primaries
        self.replicas = replicas
        self.program = program
        self.host = str(urlsplit(url.format(port=1)).hostname)
        self._url = url
        self._options = options

    def __enter__(self) -> Self:
        usual = (self.program, self._url, self._options) == (None, URL, no_options)
        with ExitStack() as stack:
            count = self.primaries * (1 + self.replicas)
            found: list[Node] = []
            while len(found) < count:
                node = SPARES.pop(0) if usual and SPARES else self._started()
                stack.push(node.server)
                stack.enter_context(node.client)
                found.append(node)
            self.ports = [node.port for node in found]
            self.nodes = [node.server for node in found]
            self.clients = [node.client for node in found]
            self._join()
            for _ in range(min(count, MAX_SPARES - len(SPARES)) if usual else 0):
                SPARES.append(self._started())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _started(self) -> Node:
        """Start a node."""
        with ExitStack() as stack:
            for last in (False, False, True):
                port = free_port()
                server = LocalServer(
                    "--port", str(port), "--cluster-enabled", "yes",
                    "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
                    "--repl-diskless-sync-delay", "0", *self._options(port), program=self.program,
                )  # fmt: skip
                try:
                    stack.enter_context(server)
                    break
                except TransportError:  # another test was faster to take the port
                    if last:
                        raise
            client = redis.Redis.from_url(self.url_of(port), protocol=2)
            client.execute_command("CLUSTER", "ADDSLOTS", 0)
            stack.pop_all()
        return Node(port, server, client)

    def _join(self) -> None:
        for number, client in enumerate(self.clients):
            if number < self.primaries:
                first = number * SLOTS // self.primaries
                last = (number + 1) * SLOTS // self.primaries
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first or 1, last))
            if number:
                client.execute_command("CLUSTER", "DELSLOTS", 0)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for port in self.ports[:number]:
                client.execute_command("CLUSTER", "MEET", self.host, port)
        self.until(lambda client: self.state(client, "cluster_known_nodes") == str(len(self.ports)))
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self.clients]
        for number in range(self.primaries, len(self.ports)):
            replicated = ids[(number - self.primaries) % self.primaries]
            self.clients[number].execute_command("CLUSTER", "REPLICATE", replicated)
        self.until(lambda client: self.state(client, "cluster_state") == "ok")

    def until(self, reached: Any) -> None:
        """Wait until ``reached(client)`` is true for the clients of all nodes."""
        reason = "the cluster does not become ready"
        until(lambda: all(reached(client) for client in self.clients), READY_S, reason)

    def until_synced(self) -> None:
        """Wait until all replicas are in sync with their primaries."""
        self.until(lambda c: c.info("replication").get("master_link_status", "up") == "up")

    def know_replicas(self) -> None:
        """Wait until each node announces all replicas; each primary must have received a write.

        Nodes omit a replica until its pings have reported an offset above 0.
        """
        self.until(
            lambda client: all(
                len(nodes) == 1 + self.replicas
                for _, _, *nodes in self._slots(self.clients.index(client))
            )
        )

    @staticmethod
    def state(client: redis.Redis, field: str) -> str:
        """Return a field of CLUSTER INFO."""
        info: Any = client.execute_command("CLUSTER", "INFO")
        if isinstance(info, dict):
            return str(info.get(field))
        lines = bytes(info).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)[field]

    @property
    def url(self) -> str:
        """The URL of the first node."""
        return self.url_of(self.ports[0])

    def url_of(self, port: int) -> str:
        """Return the URL of the node at a port."""
        return self._url.format(port=port)

    def client_of(self, key: str) -> redis.Redis:
        """Return the client of the primary that owned a key's slot at the start."""
        slot: int = self.clients[0].execute_command("CLUSTER", "KEYSLOT", key)
        return next(
            self.clients[number]
            for number in range(self.primaries)
            if slot < (number + 1) * SLOTS // self.primaries
        )

    def move_slot(
        self, slot: int, target: int, *, keys_at_once: int = 100, pause: float = 0
    ) -> None:
        """Move a slot and its keys to another primary, as ``redis-cli --cluster reshard`` does.

        Args:
            slot: the slot.
            target: number of the primary.
            keys_at_once: number of keys moved by one command.
            pause: seconds after each of these commands.
        """
        self.agree()
        primaries = [*range(self.primaries)]
        source = next(number for number in primaries if self.serves(number, slot))
        if source != target:
            self.move_slot_between(slot, source, target, primaries, keys_at_once, pause)

    def move_slot_between(
        self,
        slot: int,
        source: int,
        target: int,
        primaries: list[int],
        keys_at_once: int = 100,
        pause: float = 0,
    ) -> None:
        """Move a slot like ``move_slot()``, between two of the primaries."""
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self.clients]
        here, there = self.clients[source], self.clients[target]
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, keys_at_once):
            port = self.ports[target]
            here.execute_command("MIGRATE", self.host, port, "", 0, 5000, "KEYS", *keys)
            time.sleep(pause)
        others = (each for each in primaries if each not in (source, target))
        for number in (target, source, *others):
            self.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    def take_over(self) -> None:
        """Swap the roles of the first primary and its replica by a planned failover."""
        clients = self.clients[0], self.clients[self.primaries]

        def roles() -> list[str]:
            return [self.role(client) for client in clients]

        deadline = time.monotonic() + READY_S
        while sorted(before := roles()) != ["master", "slave"]:
            assert time.monotonic() < deadline, "the roles do not settle"
            time.sleep(0.01)
        # A replica that is not elected retries after four of its timeouts.
        replica = clients[before.index("slave")]
        timeout = replica.config_get("cluster-node-timeout")["cluster-node-timeout"]
        replica.config_set("cluster-node-timeout", 1000)
        self.promote(replica)
        while roles() != before[::-1]:
            assert time.monotonic() < deadline + PROMOTED_S, "the old primary stays one"
            time.sleep(0.01)
        replica.config_set("cluster-node-timeout", timeout)

    def promote(self, replica: redis.Redis) -> None:
        """Make a replica the primary by a planned failover.

        A replica gives up without an error: if the primary does not answer for 5 s, or if the
        replica is not elected. Another request ends a failover in progress, so each request waits
        longer than the previous one.
        """
        deadline = time.monotonic() + PROMOTED_S
        request, wait = 0.0, 0.25
        while self.role(replica) != "master":
            assert time.monotonic() < deadline, "the replica does not take over"
            if time.monotonic() > request + wait:
                request, wait = time.monotonic(), 2 * wait
                with suppress(redis.ResponseError):  # it has just become a primary
                    replica.execute_command("CLUSTER", "FAILOVER")
            time.sleep(0.01)

    @staticmethod
    def role(client: redis.Redis) -> str:
        """Return "master" or "slave"."""
        return str(client.info("replication")["role"])

    def joined_by(self, other: LocalCluster) -> LocalCluster:
        """Add the only node of another cluster, without its slots; return the larger cluster."""
        [client] = other.clients
        client.execute_command("CLUSTER", "DELSLOTS", *range(SLOTS))
        client.execute_command("CLUSTER", "RESET", "HARD")
        self.clients[0].execute_command("CLUSTER", "MEET", self.host, other.ports[0])
        everyone = LocalCluster(self.primaries + 1)
        everyone.clients = [*self.clients, client]
        everyone.ports = [*self.ports, *other.ports]
        count = str(len(everyone.ports))
        everyone.until(lambda each: everyone.state(each, "cluster_known_nodes") == count)
        everyone.until(lambda each: everyone.state(each, "cluster_state") == "ok")
        return everyone

    def agree(self) -> None:
        """Wait until all nodes know the newest epoch.

        Otherwise, the next node that gets a slot may use an epoch that is older than the epoch of
        the slot's owner, and lose the slot again.
        """

        def epochs() -> set[str]:
            return {self.state(client, "cluster_current_epoch") for client in self.clients}

        until(lambda: len(epochs()) == 1, READY_S, "the nodes do not agree")

    def serves(self, number: int, slot: int) -> bool:
        """Return whether a node says that it serves a slot."""
        own = self.clients[number].execute_command("CLUSTER", "MYID")
        for first, last, (_, _, node, *_), *_ in self._slots(number):
            if first <= slot <= last:
                return bool(node == own)
        return False

    def _slots(self, number: int) -> Any:
        connection = self.clients[number].connection_pool.get_connection()
        try:
            connection.send_command("CLUSTER", "SLOTS")
            return connection.read_response()
        finally:
            self.clients[number].connection_pool.release(connection)

    def empty(self) -> None:
        """Delete all keys."""
        for client in self.clients[: self.primaries]:
            client.flushall()

    def sizes(self) -> list[int]:
        """Return the number of keys of each primary."""
        return [client.dbsize() for client in self.clients[: self.primaries]]
