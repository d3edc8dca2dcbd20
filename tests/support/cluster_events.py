"""Random events in a cluster during a load, from a seed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import redis
from local_cluster import READY_S, SLOTS, LocalCluster
from server_programs import need

__all__ = ["Events"]


def slots_of(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {slot for first, last in ranges for slot in range(first, last + 1)}


class Events:
    """Cause events one after another: moved slots, failovers, and killed or frozen nodes.

    Args:
        cluster: a cluster with replicas.
        seed: the seed of the random choices.
        slots: slots of the keys that the load writes.
    """

    def __init__(self, cluster: LocalCluster, seed: int, slots: list[int]) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.slots = slots
        self.done: list[str] = []
        self.failed: list[BaseException] = []
        self._thread = threading.Thread()

    def between(self, rows: Iterator[Any], count: int, kinds: list[str]) -> Iterator[Any]:
        """Yield rows; start events at random rows, while the load continues.

        An event waits until the previous event has ended.

        Args:
            rows: the rows to yield.
            count: number of rows; events start in the first half.
            kinds: names of methods, one for each event.
        """
        moments = sorted(self.random.sample(range(count // 2), len(kinds)))
        left = list(zip(moments, kinds, strict=True))
        for number, row in enumerate(rows):
            if left and number >= left[0][0] and not self._thread.is_alive():
                self._begin(left.pop(0)[1])
            yield row
        for _, kind in left:
            self.join()
            self._begin(kind)
        self.join()

    def _begin(self, kind: str) -> None:
        self._thread = threading.Thread(target=self._happen, args=(kind,))
        self._thread.start()

    def join(self) -> None:
        """Wait for the last event."""
        if self._thread.ident is not None:
            self._thread.join()

    def _happen(self, kind: str) -> None:
        try:
            time.sleep(self.random.random() / 10)
            happening: Callable[[], None] = getattr(self, kind)
            happening()
            self.heal()
            self.done.append(kind)
        except BaseException as error:
            self.failed.append(error)

    def masters(self) -> dict[int, list[tuple[int, int]]]:
        """Return the ranges of slots of each primary, by the primary's number."""
        while True:
            for number in range(len(self.cluster.ports)):
                with suppress(redis.RedisError):
                    return self._masters(number)

    def _masters(self, asked: int) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for first, last, (_, port, *_), *_ in self.cluster._slots(asked):
            found.setdefault(self.cluster.ports.index(port), []).append((first, last))
        return found

    def heal(self) -> None:
        """Wait until all nodes agree that the cluster is complete, with all replicas connected."""
        began = time.monotonic()
        while not self._whole():
            if time.monotonic() > began + READY_S:
                raise AssertionError(f"the cluster does not heal\n{self._state()}")
            if time.monotonic() > began + READY_S / 4:
                with suppress(redis.RedisError):
                    self._assign()
            time.sleep(0.02)

    def _nodes(self, asked: int) -> list[list[str]]:
        """Return the lines of CLUSTER NODES, split into words."""
        connection = self.cluster.clients[asked].connection_pool.get_connection()
        try:
            connection.send_command("CLUSTER", "NODES")
            text: bytes = connection.read_response()
        finally:
            self.cluster.clients[asked].connection_pool.release(connection)
        return [line.split() for line in text.decode().splitlines()]

    def _state(self) -> str:
        """Return the CLUSTER NODES of each reachable node, and the end of each node's log."""
        lines = []
        for number, node in enumerate(self.cluster.nodes):
            lines.append(f"node {number}, port {self.cluster.ports[number]}, {node.process.pid}")
            with (
                suppress(redis.RedisError),
                redis.Redis(port=self.cluster.ports[number], socket_timeout=1) as client,
            ):
                connection = client.connection_pool.get_connection()
                connection.send_command("CLUSTER", "NODES")
                lines.append(connection.read_response().decode())
            lines.append(node.log.read_text(errors="replace")[-2000:])
        return "\n".join(lines)

    def _epochs(self, asked: int) -> dict[str, str]:
        """Return the epoch of each primary, according to one node.

        A primary doesn't vote for a replica whose epoch is older than the epoch that the primary
        knows for the replica's slots.
        """
        return {words[0]: words[6] for words in self._nodes(asked) if "master" in words[2]}

    def _whole(self) -> bool:
        try:
            numbers = range(len(self.cluster.ports))
            views = [self._masters(number) for number in numbers]
            epochs = [self._epochs(number) for number in numbers]
            roles = [client.info("replication") for client in self.cluster.clients]
        except (redis.RedisError, ValueError):
            return False
        primaries = set(views[0])
        return (
            all(view == views[0] for view in views)
            and all(epoch == epochs[0] for epoch in epochs)
            and sum(last + 1 - first for all_ in views[0].values() for first, last in all_) == SLOTS
            and all(
                (role["role"] == "master") == (number in primaries)
                and role.get("master_link_status", "up") == "up"
                for number, role in enumerate(roles)
            )
            and all(int(roles[number]["connected_slaves"]) > 0 for number in primaries)
        )

    def _assign(self) -> None:
        """Assign slots to a primary if all other nodes say that it owns them.

        With Redis 7.0, a replica that took over after slots were moved forgets one of these slots
        when its predecessor is restarted; see https://github.com/redis/redis/issues/3122.
        """
        views = [self._masters(number) for number in range(len(self.cluster.ports))]
        for number, own in enumerate(views):
            others = [view for other, view in enumerate(views) if other != number]
            wanted = others[0].get(number, [])
            if all(view.get(number, []) == wanted for view in others):
                left = slots_of(wanted) - slots_of(chain.from_iterable(own.values()))
                if left:
                    self.cluster.clients[number].execute_command("CLUSTER", "ADDSLOTS", *left)

    def move(self) -> None:
        """Move the slot of a key, key by key."""
        self.cluster.agree()
        slot = self.random.choice(self.slots)
        masters = self.masters()
        source = next(
            number
            for number, ranges in masters.items()
            if any(first <= slot <= last for first, last in ranges)
        )
        target = self.random.choice([number for number in masters if number != source])
        self.cluster.move_slot_between(slot, source, target, [*masters])

    def fail_over(self) -> None:
        """Start a planned failover."""
        replicas = [
            number for number in range(len(self.cluster.ports)) if number not in self.masters()
        ]
        self.cluster.promote(self.cluster.clients[self.random.choice(replicas)])

    def kill(self) -> None:
        """Kill a primary; restart it when a replica has taken over."""
        number = self.random.choice([*self.masters()])
        node = self.cluster.nodes[number]
        node.process.kill()
        node.process.wait()
        try:
            self._until_gone(number)
        finally:
            node.start()

    def freeze(self) -> None:
        """Stop a primary until a replica has taken over."""
        number = self.random.choice([*self.masters()])
        process = self.cluster.nodes[number].process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            self._until_gone(number)
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def reshard(self) -> None:
        """Move slots as an administrator does, with many keys."""
        self.cluster.agree()
        masters = [*self.masters()]
        source, target = self.random.sample(masters, 2)
        ids = [
            client.execute_command("CLUSTER", "MYID").decode() for client in self.cluster.clients
        ]
        done = subprocess.run(
            [
                need("cli"), "--cluster", "reshard", f"127.0.0.1:{self.cluster.ports[source]}",
                "--cluster-from", ids[source], "--cluster-to", ids[target],
                "--cluster-slots", "100", "--cluster-yes",
            ],
            capture_output=True, timeout=60, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def forget(self) -> None:
        """Remove a replica from the cluster, and add it again."""
        masters = self.masters()
        numbers = range(len(self.cluster.ports))
        number = self.random.choice([each for each in numbers if each not in masters])
        client, others = self.cluster.clients[number], [*self.cluster.clients]
        others.remove(client)
        primary = client.info("replication")["master_port"]
        own = client.execute_command("CLUSTER", "MYID").decode()
        for other in others:
            other.execute_command("CLUSTER", "FORGET", own)
        client.execute_command("CLUSTER", "RESET", "HARD")
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", primary)
        replicated = self.cluster.clients[self.cluster.ports.index(primary)]
        name = replicated.execute_command("CLUSTER", "MYID").decode()
        deadline = time.monotonic() + READY_S
        while True:
            try:
                client.execute_command("CLUSTER", "REPLICATE", name)
                return
            except redis.ResponseError:
                assert time.monotonic() < deadline, "the replica does not know its primary"
                time.sleep(0.05)

    def _until_gone(self, number: int) -> None:
        other = (number + 1) % len(self.cluster.ports)
        deadline = time.monotonic() + READY_S
        while number in self._masters(other):
            if time.monotonic() > deadline:
                raise AssertionError(f"no replica takes over {number}\n{self._state()}")
            time.sleep(0.02)
