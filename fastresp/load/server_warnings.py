"""Warnings before a load: known faults of the server, forks during the load, paused saves.

A server forks to save its data, to rewrite its append-only file, and to synchronize a replica. A
fork blocks the server while the kernel copies its page table, and then needs memory for each page
that is written to before the child ends (copy-on-write).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..outcome.messages import Hint, Message
from ..outcome.report import counted, size_text
from ..server.known_faults import ServerState, faults_of
from ..server.options import FSYNC, Rate, Serialize
from ..sources.source import Entries
from ..transports.driver import Steps
from .commands import command_names
from .load import Feature, Load
from .paused_settings import before_pause, restoring_commands

__all__ = [
    "SETTINGS", "Expected", "Forecast", "Place", "ServerWarnings", "fork_warnings", "forecast_of",
    "length_text", "save_rules", "uses_of", "warnings_of",
]  # fmt: skip

# Maximum number of nodes of a cluster whose forks are described, and maximum number to name.
NODES_SHOWN = 3
NODES_NAMED = 10
# The settings that decide when a server forks.
SETTINGS = ("save", "auto-aof-rewrite-percentage", "auto-aof-rewrite-min-size")
# Time of a load in the server, per command and per byte, if no rate limit applies. Measured with
# Redis 7.0 over a unix socket: SET of 129 bytes 1.4 us, HSET of 10 fields (330 bytes) 3.3 us.
COMMAND_S, BYTE_S = 0.5e-6, 8e-9
# Speed of a save, in bytes of used memory, if the server's last save took less than a second.
# Measured on a busy machine: 40 MB/s with Redis 7.0, 65 with 8.2, 205 with Valkey 9.1.
SAVE_BYTES_S = 100e6
# Size of a snapshot / size of the commands that created its data. Measured: 1,000,000 hashes of 10
# fields, 208 MB / 330 MB.
SNAPSHOT_SHARE = 0.6
# Maximum number of rewrites to count.
MAX_REWRITES = 1000
# Time of a fork, per byte of memory, if the server has not forked yet. Source: Redis documentation,
# latency.
FORK_S_PER_BYTE = 10e-3 / 1e9
# Minimum length of a fork to mention.
MIN_FORK_S = 1e-3


@dataclass(frozen=True)
class Expected:
    """What a load is expected to do to a server.

    Attributes:
        commands: number of commands.
        size: bytes of RESP.
        memory: bytes of memory in the server.
        seconds: length of the load.
    """

    commands: int
    size: int
    memory: int
    seconds: float

    @classmethod
    def of(cls, commands: float, size: float, memory: float, rate: Rate | None = None) -> Expected:
        """Return the expectations for a load with this rate limit."""
        seconds = commands * COMMAND_S + size * BYTE_S
        if rate is not None:
            seconds = max(seconds, (size if rate.in_bytes else commands) / rate.per_second)
        return cls(round(commands), round(size), round(memory), seconds)


@dataclass(frozen=True)
class Forecast:
    """The forks of a server during a load.

    Attributes:
        saves: number of saves by ``save`` rules.
        rule: the ``save`` rule that is met first, such as ``"60 10000"``; empty if there is none.
        rewrites: number of rewrites of the append-only file.
        replicas: number of replicas that would need a full synchronization after a reconnect.
        save_seconds: about how long a save takes.
        fork_seconds: about how long a fork blocks the server.
        memory: maximum bytes of additional memory during a save.
        last_memory: bytes of additional memory during the last save; 0 if unknown.
    """

    saves: int
    rule: str
    rewrites: int
    replicas: int
    save_seconds: float
    fork_seconds: float
    memory: int
    last_memory: int


def number(fields: Mapping[str, str], name: str) -> float:
    """Return a number in INFO or CONFIG; 0 if it is missing, below 1, or not a number."""
    try:
        found = float(fields.get(name, ""))
    except ValueError:
        return 0.0
    return found if 1 <= found < 1e18 else 0.0


def save_rules(text: str) -> list[tuple[int, int]]:
    """Parse the setting ``save``: pairs of seconds and number of changes."""
    try:
        numbers = [int(each) for each in text.split()]
    except ValueError:
        return []
    rules = zip(numbers[::2], numbers[1::2], strict=False)
    return [rule for rule in rules if min(rule) > 0 and max(rule) < 1 << 53]


def forecast_of(
    info: Mapping[str, str], config: Mapping[str, str], load: Expected, now: float
) -> Forecast:
    """Predict the forks of a server during a load.

    Args:
        info: the fields of INFO.
        config: the SETTINGS that the server returned; without them, no fork is predicted.
        load: the load.
        now: the time, in seconds since 1970, if the server does not report its own.
    """
    used = number(info, "used_memory")
    after = used + load.memory
    growth = after / used if used else 1.0
    last = number(info, "rdb_last_bgsave_time_sec")
    # The average of the saves at the start and at the end of the load.
    save_seconds = (1 + growth) / 2 * (last or used / SAVE_BYTES_S)
    fork = number(info, "latest_fork_usec") / 1e6 * growth or after * FORK_S_PER_BYTE
    saves, rule = _saves(info, config, load, now, save_seconds)
    backlog = number(info, "repl_backlog_size")
    return Forecast(
        saves=saves,
        rule=rule,
        rewrites=_rewrites(info, config, load),
        replicas=int(number(info, "connected_slaves")) if load.size > backlog > 0 else 0,
        save_seconds=save_seconds,
        fork_seconds=fork,
        memory=round(after),
        last_memory=round(number(info, "rdb_last_cow_size")),
    )


def _saves(
    info: Mapping[str, str],
    config: Mapping[str, str],
    load: Expected,
    now: float,
    save_seconds: float,
) -> tuple[int, str]:
    """Return the number of saves, and the rule that is met first.

    A rule is met when more than its number of whole seconds has passed since the last save, and its
    number of changes was made. Each command makes at least one change. Source: serverCron() of
    Redis.
    """
    rules = save_rules(config.get("save", ""))
    if not rules or not load.commands:
        return 0, ""
    now = number(info, "server_time_usec") / 1e6 or now
    age = max(0.0, now - (number(info, "rdb_last_save_time") or now))
    changed = number(info, "rdb_changes_since_last_save")
    rate = load.commands / load.seconds
    first, rule = min(
        (max(seconds + 1 - age, (changes - changed) / rate, 0.0), (seconds, changes))
        for seconds, changes in rules
    )
    if first > load.seconds:
        return 0, ""
    # Changes during a save count for the next.
    period = min(save_seconds + max(s + 1, c / rate - save_seconds) for s, c in rules)
    return 1 + math.floor((load.seconds - first) / period), f"{rule[0]} {rule[1]}"


def _rewrites(info: Mapping[str, str], config: Mapping[str, str], load: Expected) -> int:
    """Return how often the append-only file is rewritten, from its growth by the load's bytes."""
    factor = 1 + number(config, "auto-aof-rewrite-percentage") / 100
    if info.get("aof_enabled") != "1" or factor == 1:
        return 0
    least = number(config, "auto-aof-rewrite-min-size")
    base = max(number(info, "aof_base_size"), 1.0)
    current, left = max(number(info, "aof_current_size"), base), float(load.size)
    commands = base / SNAPSHOT_SHARE + current - base  # bytes of commands for all the data
    for rewrites in range(MAX_REWRITES):
        growth = max(0.0, base * factor - current, least - current)
        if growth > left:
            return rewrites
        left, commands = left - growth, commands + growth
        base = current = commands * SNAPSHOT_SHARE
    return MAX_REWRITES


def fork_warnings(forecast: Forecast, load: Expected) -> list[Message]:
    """Describe the forks, and recommend ``pause_saves`` if there are several."""
    texts: list[Message] = []
    advice: tuple[str | Hint, ...] = ()
    if forecast.saves + forecast.rewrites > 1:
        advice = "; load with ", Hint("pause_saves", True), " to avoid these forks"
    during = f"during this load (about {length_text(load.seconds)})"
    if forecast.saves:
        times = "once" if forecast.saves == 1 else f"about {forecast.saves:,} times"
        text = f"save {forecast.rule}: the server forks {times} {during}{_cost(forecast)}"
        texts.append(Message(text, *advice))
    if forecast.rewrites:
        times = counted(forecast.rewrites, "time")
        text = f"the server forks about {times} {during} to rewrite its append-only file"
        cost = "" if forecast.saves else _cost(forecast)
        texts.append(Message(f"{text}{cost}", *(() if forecast.saves else advice)))
    if forecast.replicas:
        replicas = counted(forecast.replicas, "replica")
        texts.append(
            Message(
                f"the server has {replicas}, and a replication backlog smaller than this load: a "
                "replica that loses its connection needs a full synchronization, for which the "
                "server forks; raise repl-backlog-size before the load"
            )
        )
    return texts


def _cost(forecast: Forecast) -> str:
    """Describe what a save costs."""
    blocked = ""
    if forecast.fork_seconds >= MIN_FORK_S:
        blocked = f"blocks the server for about {length_text(forecast.fork_seconds)}, "
    last = f", {size_text(forecast.last_memory)} in the last save" if forecast.last_memory else ""
    return (
        f"; each fork {blocked}saves for about {length_text(forecast.save_seconds)}, and needs up "
        f"to {size_text(forecast.memory)} more memory (copy-on-write{last})"
    )


def length_text(seconds: float) -> str:
    """Return a length of time as text."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds:,.0f} s" if seconds >= 1 else f"{seconds * 1000:,.0f} ms"


class Place(NamedTuple):
    """A server, or a node of a cluster, before a load.

    Attributes:
        name: host and port of a node; empty for a single server.
        info: the fields of INFO; if it was refused, there are no warnings.
        config: the settings that the server returned.
        load: the expectations for the load; None if its size is unknown.
    """

    name: str
    info: Mapping[str, str]
    config: Mapping[str, str]
    load: Expected | None = None


def warnings_of(
    places: Sequence[Place], uses: Collection[str], *, pause_saves: bool = False
) -> list[Message]:
    """Return the warnings before a load: known faults, forks, and saves that are still paused.

    Args:
        places: the server, or the nodes of the cluster.
        uses: the commands of the load; see ``uses_of()``.
        pause_saves: whether the load pauses saves and rewrites of the append-only file.
    """
    states = [
        ServerState(place.name, faults_of(place.info, place.config), place.config)
        for place in places
    ]
    of_saves = [
        Message(f"{place.name}: " if place.name else "", text)
        for place in places
        if place.load is not None and place.info
        for text in fork_warnings(
            forecast_of(place.info, {} if pause_saves else place.config, place.load, time.time()),
            place.load,
        )
    ]
    if not pause_saves:
        of_saves += pause_warnings(states)
    return fault_warnings(states, uses) + _shortened(of_saves, len(places))


def _shortened(texts: list[Message], nodes: int) -> list[Message]:
    """Return the warnings about a number of nodes; if there are many, only the first."""
    more = len(texts) - NODES_SHOWN
    if nodes <= NODES_SHOWN or more <= 0:
        return texts
    return [*texts[:NODES_SHOWN], Message(f"{counted(more, 'more warning')} about nodes")]


def fault_warnings(
    states: Sequence[ServerState], uses: Collection[str], *, limits: bool = True
) -> list[Message]:
    """Return a warning for each fault, which names its nodes unless all of them have the fault.

    Args:
        states: the server, or the nodes of the cluster.
        uses: the commands of the load; see ``uses_of()``.
        limits: whether the transport limits the bytes in flight.
    """
    faulty: dict[Message, list[str]] = {}
    for state in states:
        for found in state.faults:
            if found.affects(uses):
                faulty.setdefault(found.message(limits=limits), []).append(state.node)
    return [
        text if len(names) == len(states) else Message(f"{_names(names)}: ", text)
        for text, names in faulty.items()
    ]


def _names(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_NAMED
    others = f" and {counted(more, 'more node')}" if more > 0 else ""
    return ", ".join(nodes[:NODES_NAMED]) + others


def pause_warnings(states: Iterable[ServerState]) -> list[Message]:
    """Return a warning for each server whose saves are paused by a load, running or killed."""
    return [
        Message(
            f"{state.node}: " if state.node else "",
            "the saves of the server are paused by a load with ", Hint("pause_saves", True),
            f"; if no such load is running, one was killed: run {restoring_commands(before)}, or "
            "load with ", Hint("pause_saves", True), ", which restores them",
        )
        for state in states
        if (before := before_pause(state.config))
    ]  # fmt: skip


def uses_of(names: Collection[str], mode: object, durable: str | int) -> set[str]:
    """Return the commands of a load: the template's commands, and commands that options add."""
    uses = {"RESTORE"} if isinstance(mode, Serialize) else set(names)
    return uses | ({"WAITAOF"} if durable == FSYNC else set())


class ServerWarnings(Feature):
    """Adds warnings to the report: known faults that affect the load, and saves that are paused."""

    def connected(self, load: Load) -> Steps[None]:
        yield from ()
        transport, chunks = load.transport, load.chunks
        if transport is None or transport.answers is None:
            return
        template = chunks.template  # without one, the commands are known only when they are sent
        names = () if template is None else command_names(chunks.data, template) or ()
        uses = uses_of(names, load.options.mode, load.options.durable)
        if isinstance(chunks.data, Entries):
            uses.add("DUMP")
        if load.start is not None and load.start.batched:
            uses.add("MULTI")
        states = transport.answers.states
        warnings = fault_warnings(states, uses, limits=transport.lanes is not None)
        if not load.options.pause_saves:  # this load restores them, and says so
            warnings += _shortened(pause_warnings(states), len(states))
        transport.live_report.warnings += warnings
