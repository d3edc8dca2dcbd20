"""Examine the primaries of a cluster: read or watch them in parallel, and measure them in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

from ..outcome.errors import TransportError
from ..server.threads import in_parallel
from .cluster import REACH_S, Cluster, Primary, open_slots
from .facts import Facts, read_facts
from .findings import Findings
from .measure import Announce, measure
from .questions import Questions, understanding
from .watch import Use, Watching, use_since_start, wait

__all__ = ["MEASURING_S", "examine", "watch_all"]

# After this many seconds, no further node is measured.
MEASURING_S = 20.0

T = TypeVar("T")
Examined: TypeAlias = tuple[Cluster, Mapping[str, Findings]]


class Seen(NamedTuple):
    """What was read from a node: facts, use, and the slots that are being moved."""

    facts: Facts
    use: Use | None
    moving: Sequence[int]


def examine(cluster: Cluster, announce: Announce) -> Examined:
    """Read the state of all primaries, and measure as many as time allows.

    Returns:
        The cluster, in which unusable nodes are noted; and the findings about all other nodes.

    Raises:
        TransportError: a connection was lost during measurements.
    """
    announce("reading")
    cluster, seen = _of_all(cluster, _read)
    found = {}
    end = time.monotonic() + MEASURING_S
    for primary, (facts, use, _) in seen.items():
        measured = None
        if time.monotonic() < end:
            server = primary.server

            def announced(text: str, place: str = primary.place) -> None:
                announce(f"{place}: {text}")

            with understanding(server):
                measured = measure(server, facts, announced, primary.slots)
        found[primary.place] = Findings(facts, measured, use)
    return _with_moves(cluster, seen), found


def watch_all(cluster: Cluster, seconds: float, announce: Announce) -> Examined:
    """Watch all primaries at the same time.

    Returns:
        As for ``examine()``.

    Raises:
        FastrespError: the counters of a node were reset during the watch.
        TransportError: a node was restarted, or its connection was lost.
    """
    opened: list[Questions] = []
    moves: dict[str, Sequence[int]] = {}

    def begin(primary: Primary) -> Watching:
        questions = _questions(primary)
        opened.append(questions)
        with understanding(primary.server):
            moves[primary.place] = open_slots(questions)
            watching = Watching(primary.server, questions)
            watching.begin()
        return watching

    def end(primary: Primary) -> Seen:
        with understanding(primary.server):
            facts, use = watched[primary].end()
            return Seen(_of_node(facts), use, moves[primary.place])

    try:
        announce("reading")
        cluster, watched = _of_all(cluster, begin)
        wait(list(watched.values()), seconds, announce)
        ended = in_parallel(list(watched), end)
    finally:
        for each in opened:
            each.connection.disconnect()
    seen = {}
    for primary, result in zip(watched, ended, strict=True):
        if isinstance(result, TransportError):
            raise result
        seen[primary] = result
    found = {each.place: Findings(facts, None, use) for each, (facts, use, _) in seen.items()}
    return _with_moves(cluster, seen), found


def _of_all(cluster: Cluster, function: Callable[[Primary], T]) -> tuple[Cluster, dict[Primary, T]]:
    """Call a function for all primaries in parallel; return its results, by primary.

    If a call raises TransportError, the returned Cluster lists the primary as unreachable.
    """
    results = in_parallel(cluster.primaries, function)
    good: dict[Primary, T] = {}
    bad: dict[str, str] = {}
    for primary, result in zip(cluster.primaries, results, strict=True):
        if isinstance(result, TransportError):
            bad[primary.place] = str(result)
        else:
            good[primary] = result
    return replace(cluster, unreachable=bad), good


def _read(primary: Primary) -> Seen:
    server = primary.server
    questions = _questions(primary)
    try:
        with understanding(server):
            info = questions.info()
            moving = open_slots(questions)
            facts = read_facts(server, questions, info, questions.slow_log())
    finally:
        questions.connection.disconnect()
    use = use_since_start(info) if "total_commands_processed" in info else None
    return Seen(_of_node(facts), use, moving)


def _of_node(facts: Facts) -> Facts:
    """Return the facts without the unix socket, which clients of a cluster can't use."""
    return replace(facts, unix_socket="")


def _questions(primary: Primary) -> Questions:
    """Connect to a node, and return a Questions object that uses the connection.

    Raises:
        TransportError: the node can't be reached.
    """
    return Questions(primary.server, primary.server.connect(REACH_S))


def _with_moves(cluster: Cluster, seen: Mapping[Primary, Seen]) -> Cluster:
    moving = {primary.place: found.moving for primary, found in seen.items() if found.moving}
    return replace(cluster, moving=moving)
