"""Find out how clients use a server, from changes of its counters.

A Use is the difference between the Counters at two moments.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from ..outcome.errors import FastrespError, TransportError
from ..resp.values import pack
from ..server.reply_parser import parse_info, stats_of
from .facts import Facts, read_facts

if TYPE_CHECKING:
    from ..server.settings import Server
    from .connections import StateReader
    from .measure import Announce

__all__ = [
    "Counters", "Use", "Watcher", "use_between", "use_since_start", "wait",
]  # fmt: skip

# Commands that set up a connection.
SETUP = frozenset(("client", "hello", "auth", "select", "quit", "reset", "readonly"))
# Error replies per connection of redis-py. It sends CLIENT SETINFO twice, which servers before 7.2
# refuse. Since redis-py 8.0, it also sends CLIENT MAINT_NOTIFICATIONS over TCP, which only Redis
# Enterprise accepts.
SETINFO_ERRORS = 2
MAINTENANCE_ERRORS = 1
SETINFO_VERSION = (7, 2)
REFUSED_UNCOUNTED_VERSION = (7, 0)
# Maximum number of clients for CLIENT LIST, which would block the server for too long.
MAX_CLIENTS_LISTED = 5_000
WAIT_STEP_S = 0.2
PINGS, PINGS_S, PAUSE_S = 20, 0.2, 0.002
# A client in one of these commands waits for other clients, not for the server. XREAD is included,
# although it need not block, since INFO does not show which XREADs block.
BLOCKING = frozenset((
    "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin", "wait",
    "waitaof", "xread", "xreadgroup",
))  # fmt: skip
# Maximum seconds of silence: a proxy or firewall may close a silent connection.
MAX_SILENCE_S = 30.0


@dataclass(frozen=True)
class Counters:
    """A server's counters at one moment.

    Attributes:
        seconds: the time, from a monotonic clock.
        info: the fields of INFO.
        clients: the lines of CLIENT LIST, by client ID; None if not requested, or refused.
        own: (commands, bytes) that the doctor itself has sent since the previous Counters.
    """

    seconds: float
    info: Mapping[str, str]
    clients: Mapping[str, Mapping[str, str]] | None = None
    own: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Use:
    """How a server was used in a period. A field is None if the server does not report it.

    Attributes:
        watched: whether the doctor watched the server; if not, the period is the time since the
            server's start.
        seconds: length of the period.
        commands: number of commands that ran, except for connection setup.
        connections: number of connections opened.
        reads: number of reads from sockets.
        bytes: number of bytes received.
        errors: number of error replies, except for connection setup.
        error_codes: number of error replies of each code.
        calls: for each command, the number of calls and their total microseconds.
        cpu: CPU seconds of the server.
        clients: number of connections at the end of the period.
        active: number of connections that sent commands.
        senders: number of active connections whose last command is not in BLOCKING.
        busiest: number of commands of the busiest sender.
        busiest_name: the name or address of the busiest sender.
        round_trip_s: median round trip of the doctor's PINGs in seconds; None if not watched.
        evicted: number of evicted keys.
        rejected: number of refused connections.
        replicated: number of bytes sent to each replica.
    """

    watched: bool
    seconds: float
    commands: int = 0
    connections: int = 0
    reads: int | None = None
    bytes: int = 0
    errors: int | None = None
    error_codes: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cpu: float | None = None
    clients: int = 0
    active: int | None = None
    senders: int | None = None
    busiest: int | None = None
    busiest_name: str = ""
    round_trip_s: float | None = None
    evicted: int = 0
    rejected: int = 0
    replicated: int = 0

    @property
    def commands_per_read(self) -> float | None:
        return self.commands / self.reads if self.reads else None

    @property
    def commands_per_connection(self) -> float | None:
        return self.commands / self.connections if self.connections else None

    @property
    def bytes_per_command(self) -> float | None:
        return self.bytes / self.commands if self.commands else None

    @property
    def error_share(self) -> float | None:
        """Share of commands that got an error, at most 1.

        Refused and unknown commands add to ``errors``, but not to ``commands``.
        """
        if self.errors is None or not self.commands + self.errors:
            return None
        return min(1.0, self.errors / max(self.commands, self.errors))

    @property
    def blocking(self) -> int:
        """Number of calls of commands in BLOCKING."""
        return sum(count for name, (count, _) in self.calls.items() if name in BLOCKING)

    def per_second(self, count: float) -> float:
        return count / self.seconds


class Watcher:
    """Watches one server: reads its counters at the start and at the end.

    Args:
        server: the server.
        reader: asks the server, over an open connection.
    """

    def __init__(self, server: Server, reader: StateReader) -> None:
        self._server = server
        self._reader = reader
        self._own, self._own_bytes = 0, 0  # counts of the doctor's commands since begin()

    def begin(self) -> None:
        reader = self._reader
        self._last = max((int(entry[0]) for entry in reader.slow_log()), default=-1)
        self._own_id = reader.ask("CLIENT", "ID")  # server 5.0 and later
        clients = _clients(reader, self._own_id)
        self._silence = _silence(reader)
        self._round_trip = _round_trip(reader)
        info = reader.info()
        self._first = Counters(time.monotonic(), info, clients)
        self._say_info("all")  # the final INFO counts the INFO just sent
        if "total_commands_processed" not in self._first.info:
            reason = reader.unread.get("INFO", "it has no total_commands_processed")
            raise TransportError(
                f"can't watch {self._server} without INFO: {reason} (allow the user this command: "
                "ACL SETUSER ... +info)"
            )

    def beat(self) -> None:
        """Send a command if the connection was silent for long, so that nothing closes it."""
        if time.monotonic() - self._spoken > self._silence:
            self._reader.ask("INFO", "server")
            self._say_info("server")

    def _say_info(self, section: str) -> None:
        self._own += 1
        self._own_bytes += len(pack("INFO", section))
        self._spoken = time.monotonic()

    def end(self) -> tuple[Facts, Use]:
        """Read the counters at the end; return the server's facts, and how it was used.

        Raises:
            FastrespError: the counters were reset during the watch.
            TransportError: the server was restarted, or the connection was lost.
        """
        reader, first = self._reader, self._first
        info = reader.info()
        now = time.monotonic()
        clients = None if first.clients is None else _clients(reader, self._own_id)
        use = use_between(first, Counters(now, info, clients, (self._own, self._own_bytes)))
        use = replace(use, round_trip_s=self._round_trip)
        log = [entry for entry in reader.slow_log() if int(entry[0]) > self._last]
        return read_facts(self._server, reader, info, log), use


def _silence(reader: StateReader) -> float:
    """Return the longest allowed silence in seconds: less than the server's idle ``timeout``."""
    reply = reader.ask("CONFIG", "GET", "timeout")
    most = int(reply[1]) if reply else 0
    return min(MAX_SILENCE_S, most / 2) if most else MAX_SILENCE_S


def _round_trip(reader: StateReader) -> float:
    """Return the median round trip of a PING in seconds; an error reply counts as a reply.

    A pipeline saves round trips and also the client's own work per command. To cover both, there is
    a pause before each PING. Without pauses, a PING took 12-35 us, but a client needed 55 us per
    command.
    """
    known, taken = dict(reader.unread), list[float]()
    while not taken or (len(taken) < PINGS and sum(taken) < PINGS_S):
        time.sleep(PAUSE_S)
        begin = time.perf_counter()
        reader.ask("PING")
        taken.append(time.perf_counter() - begin)
    reader.unread = known
    return median(taken)


def wait(servers: Sequence[Watcher], seconds: float, announce: Announce) -> None:
    """Wait while servers are watched, and keep their connections open."""
    begin = time.monotonic()
    while (left := begin + seconds - time.monotonic()) > 0:
        announce(f"watching, {left:.0f} s more")
        time.sleep(min(WAIT_STEP_S, left))
        for each in servers:
            each.beat()


def _clients(reader: StateReader, own_id: int | None) -> dict[str, dict[str, str]] | None:
    """Return the fields of CLIENT LIST by client ID, without our own connection.

    None if the server refuses CLIENT ID or CLIENT LIST, or has too many clients.
    """
    if own_id is None:
        return None
    counts = parse_info(reader.ask("INFO", "clients"))
    if int(counts.get("connected_clients", 0)) > MAX_CLIENTS_LISTED:
        return None
    reply = reader.ask("CLIENT", "LIST")
    if reply is None:
        return None
    lines = reply.decode(errors="replace").splitlines()
    found = [dict(part.partition("=")[::2] for part in line.split(" ")) for line in lines]
    return {each["id"]: each for each in found if each["id"] != str(own_id)}


def use_between(first: Counters, second: Counters) -> Use:
    """Return how the server was used between two moments.

    Raises:
        FastrespError: the counters were reset.
        TransportError: the server was restarted.
    """
    a, b = first.info, second.info
    if a.get("run_id") != b.get("run_id"):
        raise TransportError("the server restarted while it was watched; watch it again")
    use = _use(a, b, second.seconds - first.seconds, second.own, watched=True)
    if use.commands < 0 or use.connections < 0:
        raise FastrespError("the server's counters were reset (CONFIG RESETSTAT); watch it again")
    return replace(use, **_connections(first, second))


def use_since_start(info: Mapping[str, str]) -> Use | None:
    """Return how the server was used since it started; None if it refuses INFO."""
    if "total_commands_processed" not in info:
        return None
    seconds = max(1.0, float(info.get("uptime_in_seconds", 1)))
    return _use({}, info, seconds, (0, 0), watched=False)


def _use(
    a: Mapping[str, str],
    b: Mapping[str, str],
    seconds: float,
    own: tuple[int, int],
    *,
    watched: bool,
) -> Use:
    def grown(name: str) -> int:
        return int(b.get(name, 0)) - int(a.get(name, 0))

    before = defaultdict(lambda: (0, 0), _calls(a))
    calls = {
        name: (count - before[name][0], usec - before[name][1])
        for name, (count, usec) in _calls(b).items()
        if count > before[name][0]
    }
    if calls.get("info", (0, 0))[0] <= own[0]:
        calls.pop("info", None)  # INFO of the doctor
    setup = sum(count for name, (count, _) in calls.items() if name.partition("|")[0] in SETUP)
    connections = grown("total_connections_received")
    codes = _error_codes(b) - _error_codes(a)
    # Error replies to redis-py's own commands, which are not the user's.
    version = tuple(map(int, re.findall(r"\d+", b.get("redis_version", "9.9"))[:2]))
    of_each = MAINTENANCE_ERRORS + (SETINFO_ERRORS if version < SETINFO_VERSION else 0)
    forgiven = min(of_each * connections, codes["ERR"])
    codes["ERR"] -= forgiven
    reads = None
    if "total_reads_processed" in b:
        # The end of a connection also counts as a read, as does each command that sets up the
        # connection. 7.0 and later do not count refused commands as calls.
        setup_reads = setup + (forgiven if version >= REFUSED_UNCOUNTED_VERSION else 0)
        reads = max(0, grown("total_reads_processed") - connections - setup_reads - own[0])
    return Use(
        watched=watched,
        seconds=seconds,
        commands=grown("total_commands_processed") - setup - own[0],
        connections=connections,
        reads=reads,
        bytes=grown("total_net_input_bytes") - own[1],
        errors=grown("total_error_replies") - forgiven if "total_error_replies" in b else None,
        error_codes=dict(+codes),
        calls=calls,
        cpu=_cpu(b) - _cpu(a) if "used_cpu_sys" in b else None,
        clients=int(b.get("connected_clients", 0)),
        evicted=grown("evicted_keys"),
        rejected=grown("rejected_connections"),
        replicated=grown("master_repl_offset"),
    )


def _cpu(info: Mapping[str, str]) -> float:
    """Return the CPU seconds of the thread that runs commands; if unknown, of the process."""
    for suffix in ("_main_thread", ""):
        if f"used_cpu_sys{suffix}" in info:
            return float(info[f"used_cpu_sys{suffix}"]) + float(info[f"used_cpu_user{suffix}"])
    return 0.0


def _calls(info: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    stats = stats_of(info, "cmdstat_")
    return {name.lower(): (int(each["calls"]), int(each["usec"])) for name, each in stats.items()}


def _error_codes(info: Mapping[str, str]) -> Counter[str]:
    stats = stats_of(info, "errorstat_")
    return Counter({code: int(each["count"]) for code, each in stats.items()})


def _connections(first: Counters, second: Counters) -> dict[str, Any]:
    """Return fields of Use: numbers of active connections and senders, and the busiest sender."""
    if first.clients is None or second.clients is None:
        return {}
    window = second.seconds - first.seconds
    # Replicas and primaries are not clients. Connections that were idle all the time sent nothing.
    clients = [each for each in second.clients.values() if not set("SM") & set(each["flags"])]
    active = [each for each in clients if _within(each.get("idle", "0"), window)]
    senders = [each for each in active if each.get("cmd") not in BLOCKING]
    counted: Sequence[tuple[int, Mapping[str, Any]]] = [
        (int(each["tot-cmds"]) - int(first.clients.get(each["id"], {}).get("tot-cmds", 0)), each)
        for each in senders
        if each.get("tot-cmds", "").isdigit()
        # If an older connection is missing in the first list, its commands may be older.
        and (each["id"] in first.clients or _within(each.get("age", "0"), window))
    ]
    most, client = max(counted, key=lambda pair: pair[0], default=(None, {}))
    return {
        "active": len(active),
        "senders": len(senders),
        "busiest": most,
        "busiest_name": client.get("name") or client.get("addr", ""),
    }


def _within(seconds: str, window: float) -> bool:
    """Return whether a time in CLIENT LIST may be less than ``window``.

    The server subtracts two times in whole seconds, so it may report 0.1 s as 1.
    """
    return int(seconds) - 1 < window
