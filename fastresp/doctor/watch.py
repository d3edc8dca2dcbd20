"""How a server is used: the difference of two looks at its counters, without the doctor's own."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ..outcome.errors import FastrespError, TransportError
from ..resp.values import pack
from ..server.answers import parse_info
from ..server.settings import Server
from .facts import Facts, read_facts
from .logs import new_entries
from .measure import Announce
from .questions import Questions

__all__ = ["Look", "Use", "look", "use_between", "use_since_start", "watch_server"]

# What a client sends to set up a connection, and not for its own sake.
SETUP = frozenset(("client", "hello", "auth", "select", "quit", "reset", "readonly"))
# redis-py sends CLIENT SETINFO twice, which servers before 7.2 answer with an error, and since 8.0
# over TCP CLIENT MAINT_NOTIFICATIONS, which only Redis Enterprise knows.
SETINFO_ERRORS = 2
MAINTENANCE_ERRORS = 1
SETINFO_VERSION = (7, 2)
COUNTS_NO_REFUSED = (7, 0)
# A longer list of clients would hold up the server.
CLIENTS_LISTED = 5_000
BEAT_S = 0.2
PINGS, PINGS_S, PAUSE_S = 20, 0.2, 0.002
# Who waits in these waits for others, and not for a reply; of XREAD nobody tells whether it does.
BLOCKING = frozenset((
    "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin", "wait",
    "waitaof", "xread", "xreadgroup",
))  # fmt: skip
# What is between us and the server may close a connection that is silent for longer.
SILENCE_S = 30.0


@dataclass(frozen=True)
class Look:
    """A server's counters at a moment.

    Attributes:
        seconds: when, by a clock that does not jump.
        info: of INFO.
        clients: of CLIENT LIST, by id; None where it was not asked or not told.
        own: commands of ours since the look before, and their bytes.
    """

    seconds: float
    info: Mapping[str, str]
    clients: Mapping[str, Mapping[str, str]] | None = None
    own: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Use:
    """How a server was used for some time.

    Attributes:
        watched: by us, for these seconds; else since it started.
        seconds: how long.
        commands: that it ran, without those that set up connections.
        connections: that were opened.
        reads: from sockets; None where the server does not tell.
        bytes: that came in.
        errors: replies, without those that a client gets as it connects; None where it is not told.
        error_codes: how many of each code.
        calls: of each command: how many, and microseconds in all.
        cpu: seconds of the server's processor; None where it is not told.
        clients: connected at the end.
        active: connections that did something; None where it is not known.
        senders: of these, those whose last command is none of BLOCKING; None where it is not known.
        busiest: commands of the sender that sent the most; None where it is not told.
        busiest_name: what it is called, or where it comes from.
        round_trip_s: of a PING of ours; None where it was not watched.
        evicted, rejected: keys that were dropped for room, connections that were refused.
        replicated: bytes of writes, as replicas get them.
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
        """Of the commands, those that a server did not know or refused among them."""
        if self.errors is None or not self.commands + self.errors:
            return None
        return min(1.0, self.errors / max(self.commands, self.errors))

    @property
    def blocking(self) -> int:
        """How many of the commands are of BLOCKING."""
        return sum(count for name, (count, _) in self.calls.items() if name in BLOCKING)

    def per_second(self, count: float) -> float:
        return count / self.seconds


def watch_server(
    server: Server, questions: Questions, seconds: float, announce: Announce
) -> tuple[Facts, Use]:
    """Look, wait, and look again; changes nothing.

    Raises:
        FastrespError: the counters were set back meanwhile.
        TransportError: the server does not tell its counters, or was lost.
    """
    last = max((int(entry[0]) for entry in questions.slow_log()), default=-1)
    own_id = questions.ask("CLIENT", "ID")  # from 5.0 on
    clients = _clients(questions, own_id)
    silence = _silence(questions)
    round_trip = _round_trip(questions)
    first = look(questions, clients)
    if "total_commands_processed" not in first.info:
        words = questions.unread.get("INFO", "it has no total_commands_processed")
        raise TransportError(
            f"{server} does not tell INFO, and so nothing can be watched: {words} (ask for the "
            "right to it: ACL SETUSER ... +info)"
        )
    own = _wait(questions, seconds, silence, announce)
    second = look(questions)
    clients = None if clients is None else _clients(questions, own_id)
    use = use_between(first, replace(second, clients=clients, own=own))
    use = replace(use, round_trip_s=round_trip)
    log = new_entries(questions.slow_log(), last)
    return read_facts(server, questions, second.info, log), use


def _silence(questions: Questions) -> float:
    """How long to be silent: the server's ``timeout`` closes what is idle for longer."""
    reply = questions.ask("CONFIG", "GET", "timeout")
    most = int(reply[1]) if reply else 0
    return min(SILENCE_S, most / 2) if most else SILENCE_S


def _round_trip(questions: Questions) -> float:
    """The seconds that a PING takes, the median; one that is refused takes as long.

    With a pause before each. Without, it took 12-35 us, when a client needed 55 us for a command:
    its own work for each, which a pipeline saves as well, would be left out.
    """
    known, taken = dict(questions.unread), list[float]()
    while not taken or (len(taken) < PINGS and sum(taken) < PINGS_S):
        time.sleep(PAUSE_S)
        begin = time.perf_counter()
        questions.ask("PING")
        taken.append(time.perf_counter() - begin)
    questions.unread = known
    return median(taken)


def _wait(
    questions: Questions, seconds: float, silence: float, announce: Announce
) -> tuple[int, int]:
    """Wait; return how many commands of ours the server has counted since the look before."""
    own, size = 1, len(pack("INFO", "all"))  # that of the look
    begin = spoken = time.monotonic()
    while (left := begin + seconds - time.monotonic()) > 0:
        announce(f"watching, {left:.0f} s more")
        time.sleep(min(BEAT_S, left))
        if time.monotonic() - spoken > silence:
            questions.ask("INFO", "server")
            own, size, spoken = own + 1, size + len(pack("INFO", "server")), time.monotonic()
    return own, size


def look(questions: Questions, clients: Mapping[str, Mapping[str, str]] | None = None) -> Look:
    info = questions.info()
    return Look(time.monotonic(), info, clients)


def _clients(questions: Questions, own_id: int | None) -> dict[str, dict[str, str]] | None:
    """The connections by their id, without ours; None where there are too many, or none told."""
    if own_id is None:
        return None
    told = parse_info(questions.ask("INFO", "clients"))
    if int(told.get("connected_clients", 0)) > CLIENTS_LISTED:
        return None
    reply = questions.ask("CLIENT", "LIST")
    if reply is None:
        return None
    lines = reply.decode(errors="replace").splitlines()
    found = [dict(part.partition("=")[::2] for part in line.split(" ")) for line in lines]
    return {each["id"]: each for each in found if each["id"] != str(own_id)}


def use_between(first: Look, second: Look) -> Use:
    """What happened between two looks.

    Raises:
        FastrespError: the counters were set back.
        TransportError: it is not the same server any more.
    """
    a, b = first.info, second.info
    if a.get("run_id") != b.get("run_id"):
        raise TransportError("the server was started anew while it was watched; watch it again")
    use = _use(a, b, second.seconds - first.seconds, second.own, watched=True)
    if use.commands < 0 or use.connections < 0:
        raise FastrespError("the counters were set back (CONFIG RESETSTAT); watch it again")
    return replace(use, **_connections(first, second))


def use_since_start(info: Mapping[str, str]) -> Use:
    """What happened since the server was started."""
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

    before, after = _calls(a), _calls(b)
    calls = {
        name: (count - before.get(name, (0, 0))[0], usec - before.get(name, (0, 0))[1])
        for name, (count, usec) in after.items()
        if count > before.get(name, (0, 0))[0]
    }
    if calls.get("info", (0, 0))[0] <= own[0]:
        calls.pop("info", None)  # ours
    setup = sum(count for name, (count, _) in calls.items() if name.partition("|")[0] in SETUP)
    connections = grown("total_connections_received")
    codes = _error_codes(a, b)
    # Answered with an error that is no fault of the user's.
    version = tuple(map(int, re.findall(r"\d+", b.get("redis_version", "9.9"))[:2]))
    of_each = MAINTENANCE_ERRORS + (SETINFO_ERRORS if version < SETINFO_VERSION else 0)
    forgiven = min(of_each * connections, codes.get("ERR", 0))
    if forgiven:
        codes["ERR"] -= forgiven
    reads = None
    if "total_reads_processed" in b:
        # The end of a connection is a read, too; and so is each command that sets one up, also
        # one that is refused, which 7.0 does not count among the calls.
        setup_reads = setup + (forgiven if version >= COUNTS_NO_REFUSED else 0)
        reads = max(0, grown("total_reads_processed") - connections - setup_reads - own[0])
    return Use(
        watched=watched,
        seconds=seconds,
        commands=grown("total_commands_processed") - setup - own[0],
        connections=connections,
        reads=reads,
        bytes=grown("total_net_input_bytes") - own[1],
        errors=grown("total_error_replies") - forgiven if "total_error_replies" in b else None,
        error_codes={code: count for code, count in codes.items() if count},
        calls=calls,
        cpu=_cpu(b) - _cpu(a) if "used_cpu_sys" in b else None,
        clients=int(b.get("connected_clients", 0)),
        evicted=grown("evicted_keys"),
        rejected=grown("rejected_connections"),
        replicated=grown("master_repl_offset"),
    )


def _cpu(info: Mapping[str, str]) -> float:
    """Of the thread that runs commands, where it is told apart."""
    for suffix in ("_main_thread", ""):
        if f"used_cpu_sys{suffix}" in info:
            return float(info[f"used_cpu_sys{suffix}"]) + float(info[f"used_cpu_user{suffix}"])
    return 0.0


def _fields(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))


def _calls(info: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    prefix = "cmdstat_"
    found = {}
    for name, text in info.items():
        if name.startswith(prefix):
            values = _fields(text)
            found[name[len(prefix) :].lower()] = (int(values["calls"]), int(values["usec"]))
    return found


def _error_codes(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, int]:
    prefix = "errorstat_"
    found = {}
    for name, text in b.items():
        if name.startswith(prefix):
            before = int(_fields(a.get(name, "count=0"))["count"])
            found[name[len(prefix) :]] = int(_fields(text)["count"]) - before
    return found


def _connections(first: Look, second: Look) -> dict[str, Any]:
    """How many connections did something, and which sent the most: fields of Use."""
    if first.clients is None or second.clients is None:
        return {}
    window = second.seconds - first.seconds
    # Replicas and masters are no clients; whoever is idle for longer did nothing.
    clients = [each for each in second.clients.values() if not set("SM") & set(each["flags"])]
    active = [each for each in clients if _within(each.get("idle", "0"), window)]
    senders = [each for each in active if each.get("cmd") not in BLOCKING]
    told: Sequence[tuple[int, Mapping[str, Any]]] = [
        (int(each["tot-cmds"]) - int(first.clients.get(each["id"], {}).get("tot-cmds", 0)), each)
        for each in senders
        if each.get("tot-cmds", "").isdigit()
        # One that was not listed before, though it is older, did not do all that in this time.
        and (each["id"] in first.clients or _within(each.get("age", "0"), window))
    ]
    found = {"active": len(active), "senders": len(senders)}
    if not told:
        return found
    most, client = max(told, key=lambda pair: pair[0])
    return found | {"busiest": most, "busiest_name": client.get("name") or client.get("addr", "")}


def _within(told: str, window: float) -> bool:
    """Whether an ``idle`` or ``age`` of CLIENT LIST may lie within the last ``window`` seconds.

    A server takes it from clocks of whole seconds: 0.1 s across the full second are told as 1.
    """
    return int(told) - 1 < window
