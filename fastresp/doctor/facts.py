"""A server's settings and state, and its log entries of the last day."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from ..server.answers import primary_down
from ..server.reply_parser import fields_of, parse_info, stats_of
from ..server.settings import Server
from .connections import StateReader, text_of, usable_socket

__all__ = [
    "Facts", "KEY_PREFIX", "SMALL_BYTES", "Slow", "WRITES", "WRITING_S", "is_full",
    "latency_spikes", "no_writing", "read_facts", "slow_commands",
]  # fmt: skip

# Prefix of all keys of the doctor.
KEY_PREFIX = "fastresp:doctor:"
# Log entries older than this are ignored.
AGE_S = 24 * 3600
# Commands that read the server's state, as the doctor does. If such a command is slow, the cause is
# the machine.
READ_COMMANDS = frozenset((
    "ACL", "AUTH", "CLIENT", "COMMAND", "CONFIG", "ECHO", "EXEC", "HELLO", "INFO", "LATENCY",
    "MEMORY", "MULTI", "PING", "PSYNC", "REPLCONF", "SELECT", "SLOWLOG", "SYNC",
))  # fmt: skip
# Commands of constant cost without the flag "fast". Servers before 7.0 do not report a command's
# complexity.
CONSTANT = frozenset(("SET", "SETEX", "PSETEX", "GETSET", "APPEND", "UNLINK"))
# The settings that the rules use. Servers before 7.0 accept only one setting per CONFIG GET.
PARAMETERS = (
    "appendfsync", "auto-aof-rewrite-min-size", "auto-aof-rewrite-percentage",
    "client-output-buffer-limit", "io-threads", "repl-disable-tcp-nodelay", "save", "unixsocket",
)  # fmt: skip
TIME_WAIT = "06"

# Maximum number of changes that the doctor makes, including DEL, and their maximum time.
WRITES = 8_500
WRITING_S = 30.0
# Write nothing to a server with more than LARGE_BYTES of data. With less than SMALL_BYTES, a save
# is fast and harmless.
LARGE_BYTES = 4 << 30
SMALL_BYTES = 256 << 20
# Write nothing if less memory than this is left below maxmemory: a write could evict keys, or be
# refused.
ROOM_BYTES = 8 << 20
ROOM_SHARE = 0.1


@dataclass(frozen=True)
class Slow:
    """A summary of one command's entries in the slow log.

    Attributes:
        name: name of the command, without its arguments, which may be private.
        times: number of entries.
        longest_ms: duration of the longest entry, in milliseconds.
        total_ms: total duration of all entries, in milliseconds.
        complexity: the complexity from COMMAND DOCS, such as ``O(N)``; empty if unknown.
        client: the name or address of the client with the longest entry.
    """

    name: str
    times: int
    longest_ms: float
    total_ms: float
    complexity: str
    client: str


def slow_commands(reader: StateReader, log: Sequence[Any], now: float) -> list[Slow]:
    """Summarise the last day of a slow log by command.

    Commands of constant or logarithmic cost are omitted.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for entry in log:
        name, *arguments = [text_of(each) for each in entry[3]]
        own = any(argument.startswith(KEY_PREFIX) for argument in arguments[:2])
        if not own and name.upper() not in READ_COMMANDS and now - entry[1] < AGE_S:
            found[name.upper()].append(entry)
    rows = []
    for name, entries in found.items():
        constant, complexity = _cost(reader, name)
        if constant:
            continue
        worst = max(entries, key=lambda entry: entry[2])
        client = next((text_of(each) for each in worst[5:3:-1] if each), "")  # name, then address
        total = sum(entry[2] for entry in entries) / 1000
        rows.append(Slow(name, len(entries), worst[2] / 1000, total, complexity, client))
    return sorted(rows, key=lambda row: -row.total_ms)


def _cost(reader: StateReader, name: str) -> tuple[bool, str]:
    """Return (cheap, complexity) of a command.

    ``cheap`` is True if the cost is at most logarithmic. The complexity is the server's text; empty
    if unknown.
    """
    if name in CONSTANT:
        return True, ""
    known = dict(reader.unread)
    docs = reader.ask("COMMAND", "DOCS", name)  # server 7.0 and later
    described = fields_of(fields_of(docs).get(name.lower().encode()))
    # Assumptions follow a comma, such as "O(N), under the assumption that ...".
    complexity = text_of(described.get(b"complexity", "")).partition(",")[0].rstrip(".")
    if complexity:
        return complexity.startswith(("O(1)", "O(log")), complexity
    info = reader.ask("COMMAND", "INFO", name)
    reader.unread = known if info else reader.unread
    flags = {text_of(each) for each in info[0][2]} if info and info[0] else set()
    return "fast" in flags, ""


def latency_spikes(reader: StateReader, now: float) -> dict[str, float]:
    """Return the longest latency spike of each event in the last day, in milliseconds.

    A server keeps only the last 160 spikes of each event, so earlier spikes may be missing.
    """
    found = {}
    for event in reader.ask("LATENCY", "LATEST") or []:
        if now - event[1] < AGE_S:
            history = reader.ask("LATENCY", "HISTORY", text_of(event[0])) or [event[1:3]]
            found[text_of(event[0])] = float(max(ms for at, ms in history if now - at < AGE_S))
    return found


@dataclass(frozen=True)
class Facts:
    """A server's settings and state, and the connection to the server.

    Attributes:
        place: the server's address, without a password.
        way: the kind of connection: ``"unix"``, ``"tcp"`` or ``"tls"``.
        local: whether the server is on this machine.
        hiredis: whether redis-py parses replies with hiredis.
        nodelay: whether redis-py's connection has TCP_NODELAY; None for a unix socket.
        info: the fields of INFO.
        now: when INFO was read, in seconds since 1970.
        config: the settings in PARAMETERS that CONFIG GET returned.
        latency: the longest latency spike of each event in the last day, in milliseconds.
        slow: commands in the slow log of the last day, except commands of constant or logarithmic
            cost.
        cores: number of CPU cores that the server may use; None if unknown, for example because
            the server is on another machine.
        swapped: bytes of the server's memory in swap; None if unknown.
        unix_socket: the path of the server's unix socket; empty if the socket can't be used from
            here.
        time_wait: number of closed connections to the server that still occupy a local port.
        local_ports: number of local ports for outgoing connections.
        unread: the server's error replies to refused commands, by the first word of the command.
        moving: slots that are being moved to or from a node of a cluster.
        primary_down: whether the server is a replica whose primary can't be reached.
    """

    place: str
    way: Literal["unix", "tcp", "tls"]
    local: bool
    hiredis: bool = True
    nodelay: bool | None = None
    info: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0
    config: Mapping[str, str] = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)
    slow: Sequence[Slow] = ()
    cores: int | None = None
    swapped: int | None = None
    unix_socket: str = ""
    time_wait: int = 0
    local_ports: int = 0
    unread: Mapping[str, str] = field(default_factory=dict)
    moving: Sequence[int] = ()
    primary_down: bool = False

    def number(self, name: str) -> float | None:
        """Return a field of INFO as a number; None if it is missing or not a number."""
        try:
            return float(self.info[name])
        except (KeyError, ValueError):
            return None

    @property
    def product(self) -> str:
        return "Valkey" if "valkey_version" in self.info else "Redis"

    @property
    def version(self) -> str:
        return self.info.get("valkey_version") or self.info.get("redis_version") or ""

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """Major and minor version; empty if unknown."""
        parts = self.version.split(".")[:2]
        return tuple(int(part) for part in parts) if all(p.isdigit() for p in parts) else ()

    @property
    def replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def save_points(self) -> list[tuple[int, int]]:
        """The ``save`` setting: pairs of seconds and number of changes; empty if off or unknown."""
        numbers = [int(each) for each in self.config.get("save", "").split()]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    @property
    def expiring(self) -> float | None:
        """The share of keys with an expiry, in all databases; None if INFO reports no keys."""
        stats = [each for name, each in stats_of(self.info, "db").items() if name.isdigit()]
        keys = sum(int(each.get("keys", 0)) for each in stats)
        return sum(int(each.get("expires", 0)) for each in stats) / keys if keys else None

    @property
    def memory_left(self) -> float | None:
        """Number of bytes left below maxmemory; None if unknown, or if there is no limit."""
        most, used = self.number("maxmemory"), self.number("used_memory")
        if not most or used is None:
            return None
        return most - (used - (self.number("mem_not_counted_for_evict") or 0.0))


def read_facts(
    server: Server, reader: StateReader, info: Mapping[str, str], log: Sequence[Any]
) -> Facts:
    """Read the facts from a server and this machine.

    Args:
        reader: asks the server, over an open connection.
        info: the fields of INFO.
        log: the slow log's entries to consider.
    """
    from redis.connection import DefaultParser

    raw: socket.socket = reader.connection._sock
    local = _is_local(raw)
    config: dict[str, str] = {}
    for name in PARAMETERS:
        reply = reader.ask("CONFIG", "GET", name)
        if reply is None:
            break
        if len(reply) == 2:
            config[name] = text_of(reply[1])
    pid = _server_pid(info) if local else None
    # The logs use the server's clock, which servers before 6.2 do not report.
    now = int(info.get("server_time_usec", 0)) / 1e6 or time.time()
    return Facts(
        place=str(server),
        primary_down=primary_down(info),
        way="unix" if raw.family == socket.AF_UNIX else "tls" if server.tls else "tcp",
        local=local,
        hiredis="hiredis" in DefaultParser.__name__.lower(),
        nodelay=_nodelay(raw),
        info=info,
        now=now,
        config=config,
        latency=latency_spikes(reader, now),
        slow=slow_commands(reader, log, now),
        cores=_cores(pid),
        swapped=_swapped(pid),
        unix_socket=usable_socket(server, info, config.get("unixsocket", "")) if local else "",
        time_wait=_time_wait(raw),
        local_ports=_local_ports(),
        unread=dict(reader.unread),
    )


def _is_local(raw: socket.socket) -> bool:
    if raw.family == socket.AF_UNIX:
        return True
    here, there = raw.getsockname()[0], raw.getpeername()[0]
    return bool(here == there or ip_address(there.partition("%")[0]).is_loopback)


def _nodelay(raw: socket.socket) -> bool | None:
    if raw.family == socket.AF_UNIX:
        return None
    return raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def _server_pid(info: Mapping[str, str]) -> int | None:
    """Return the server's process ID; None if no server has this ID on this machine.

    For example, a server in a container reports its ID inside the container.
    """
    pid = info.get("process_id", "")
    try:
        name = Path(f"/proc/{int(pid)}/comm").read_text()
    except (OSError, ValueError):
        return None
    return int(pid) if any(each in name for each in ("redis", "valkey", "keydb")) else None


def _swapped(pid: int | None) -> int | None:
    with suppress(OSError, KeyError, ValueError):
        status = parse_info(Path(f"/proc/{pid}/status").read_text())
        return int(status["VmSwap"].split()[0]) * 1024
    return None


def _cores(pid: int | None) -> int | None:
    with suppress(OSError, AttributeError):  # AttributeError: not on macOS
        return None if pid is None else len(os.sched_getaffinity(pid))
    return None


def _time_wait(raw: socket.socket) -> int:
    """Count connections in TIME_WAIT to the same address and port; TIME_WAIT lasts 1 minute."""
    if raw.family == socket.AF_UNIX:
        return 0
    peer = raw.getpeername()
    address, port = ip_address(peer[0].partition("%")[0]), peer[1]
    # The kernel writes addresses as 32-bit words in native byte order.
    packed = address.packed
    words = [packed[i : i + 4][::-1] for i in range(0, len(packed), 4)]
    ending = f"{b''.join(words).hex().upper()}:{port:04X}"
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table) as file:
            for line in file:
                columns = line.split(None, 4)
                found += columns[3] == TIME_WAIT and columns[2].endswith(ending)
    return found


def _local_ports() -> int:
    with suppress(OSError):
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(last) - int(first) + 1
    return 0


def no_writing(facts: Facts) -> str:
    """Return why the doctor must not try to write; empty if it may."""
    if facts.replica:
        return "the server is a replica"
    if is_full(facts):
        return "the server's memory is nearly full"
    if facts.number("rdb_bgsave_in_progress") or facts.number("aof_rewrite_in_progress"):
        return "the server is saving its data to disk"
    if (facts.number("used_memory") or 0) > LARGE_BYTES:
        # A save needs a fork, and up to twice the memory.
        return (
            f"the server has more than {LARGE_BYTES >> 30} GiB of data: writes could trigger a save"
        )
    return _saving(facts)


def _saving(facts: Facts) -> str:
    """Return why the doctor's writes would trigger a save of much data; empty if they would not.

    If other clients' changes have already reached a save point, the doctor triggers nothing.
    Source: redis.conf, and serverCron() of Redis.
    """
    changes, last = facts.number("rdb_changes_since_last_save"), facts.number("rdb_last_save_time")
    if changes is None or last is None or (facts.number("used_memory") or 0) <= SMALL_BYTES:
        return ""
    age = facts.now - last
    for seconds, most in facts.save_points:
        if changes < most <= changes + WRITES and age + WRITING_S > seconds:
            return (
                f"writes would trigger a save of all data (save {seconds} {most}; last save "
                f"{max(0.0, age):,.0f} s ago); run BGSAVE first to measure writes"
            )
    return ""


def is_full(facts: Facts) -> bool:
    """Return whether so little memory is left that writes, or even replies, could evict keys."""
    left, most = facts.memory_left, facts.number("maxmemory")
    return left is not None and most is not None and left < max(ROOM_BYTES, most * ROOM_SHARE)
