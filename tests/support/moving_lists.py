"""Slots of a cluster that move, mostly that of one list, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from local_cluster import LocalCluster

__all__ = [
    "KEY",
    "half_moved",
    "holder",
    "move",
    "moved_later",
    "moving",
    "moving_once",
    "moving_slots",
    "slot_of",
]

KEY = "{q}"


def slot_of(cluster: LocalCluster, key: str = KEY) -> int:
    number: int = cluster.clients[0].execute_command("CLUSTER", "KEYSLOT", key)
    return number


def holder(cluster: LocalCluster, key: str = KEY) -> int:
    """Return the number of the node that serves a key."""
    slot = slot_of(cluster, key)
    return next(each for each in range(cluster.primaries) if cluster.serves(each, slot))


def move(cluster: LocalCluster, key: str = KEY) -> None:
    """Move the slot of a key to the next node."""
    cluster.move_slot(slot_of(cluster, key), (holder(cluster, key) + 1) % 3)


@contextmanager
def moving_slots(cluster: LocalCluster, keys: Iterable[str]) -> Iterator[list[str]]:
    """Move the slots of keys, one after another, in a thread; yield the list of keys so far."""
    over = threading.Event()
    moved: list[str] = []

    def work() -> None:
        for key in keys:
            if over.is_set():
                break
            move(cluster, key)
            moved.append(key)

    mover = threading.Thread(target=work)
    mover.start()
    try:
        yield moved
    finally:
        over.set()
        mover.join()
    assert moved


@contextmanager
def moving(cluster: LocalCluster) -> Iterator[list[int]]:
    """Move the list's slot from node to node in a thread; yield the list of moves so far."""
    over = threading.Event()
    moves: list[int] = []

    def work() -> None:
        while not over.wait(0.05):
            move(cluster)
            moves.append(1)

    mover = threading.Thread(target=work)
    mover.start()
    try:
        yield moves
    finally:
        over.set()
        mover.join()


@contextmanager
def half_moved(cluster: LocalCluster, *, arrived: bool) -> Iterator[Callable[[], None]]:
    """Begin to move the list's slot, and its keys if ``arrived``; yield a function that ends it."""
    slot, source = slot_of(cluster), holder(cluster)
    target = (source + 1) % 3
    ids = [client.execute_command("CLUSTER", "MYID") for client in cluster.clients]
    here, there = cluster.clients[source], cluster.clients[target]
    cluster.agree()
    there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    keys = here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
    completed = []

    def migrate() -> None:
        if keys:
            port = cluster.ports[target]
            here.execute_command("MIGRATE", cluster.host, port, "", 0, 5000, "KEYS", *keys)

    def complete() -> None:
        completed.append(slot)
        if not arrived:
            migrate()
        for number in (target, source, 3 - target - source):
            cluster.clients[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    if arrived:
        migrate()
    yield complete
    if not completed:
        complete()


@contextmanager
def moved_later(cluster: LocalCluster, after_s: float = 0.4) -> Iterator[None]:
    """Move the list's slot, its keys only at the end, after this number of seconds."""
    with half_moved(cluster, arrived=False) as complete:
        timer = threading.Timer(after_s, complete)
        timer.start()
        yield
        timer.join()


@contextmanager
def moving_once(cluster: LocalCluster) -> Iterator[None]:
    """Move the slot once, in a thread: the slot must not return while items are in flight."""
    mover = threading.Thread(target=move, args=(cluster,))
    mover.start()
    try:
        yield
    finally:
        mover.join()
