"""Rules and their verdicts; the rules about clients: how they connect, send and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..outcome.report import counted
from .facts import Facts
from .measure import PIPELINE, UNIX_DEPTH, Measured
from .watch import Use

__all__ = [
    "CLIENT_RULES", "GRADES", "Findings", "Grade", "Rule", "Verdict", "gain_of", "in_order",
]  # fmt: skip

Grade: TypeAlias = Literal["problem", "advice", "note"]
GRADES: tuple[Grade, ...] = ("problem", "advice", "note")

BOOK = (
    "Redis in Action, section 4.6, table 4.5: https://redis.com/ebook/part-2-core-concepts/"
    "chapter-4-keeping-data-safe-and-ensuring-performance/4-6-performance-considerations/"
)
PIPELINING = (
    "Redis documentation, pipelining: "
    "https://redis.io/docs/latest/develop/using-commands/pipelining/"
)
BENCHMARKS = (
    "Redis documentation, benchmarks: "
    "https://redis.io/docs/latest/operate/oss_and_stack/management/optimization/benchmarks/"
)
HIREDIS = "the README of hiredis-py, benchmarks: https://github.com/redis/hiredis-py"
NAGLE = (
    "RFC 896 (Nagle) and RFC 1122, 4.2.3.2 (delayed acknowledgements): "
    "https://www.rfc-editor.org/rfc/rfc1122#section-4.2.3.2"
)
ERRORS = "Redis documentation, INFO: https://redis.io/docs/latest/commands/info/"

# Expected gains with redis-py: from reusing connections, and from pipelines. Source: BOOK, a table
# from 2013.
RECONNECTING_GAIN = 2.0
PIPELINE_GAIN = 5.0
# Expected gain from hiredis for SET and GET. It is 2.7 for LRANGE of 10 items, and 16 for LRANGE of
# 100 items. Source: hiredis-py's README.
HIREDIS_GAIN = 1.1
# A smaller gain from a unix socket does not justify a change.
UNIX_GAIN = 1.1

# Minimum number of closed connections that still occupy a local port, to conclude that connections
# are not reused.
MIN_TIME_WAIT = 1_000
# Connections count as not reused below this number of commands per connection.
MIN_COMMANDS_PER_CONNECTION = 10
MIN_CONNECTIONS = 20
MIN_CONNECTIONS_PER_S = 2.0
# Minimum number of commands to judge how commands are sent.
MIN_COMMANDS = 100
# Minimum share of time that the busiest connection waits for replies. Below this share, pipelines
# gain little.
MIN_WAIT_SHARE = 0.3
# Maximum plausible estimate of the share of time that a connection waits. The estimate may exceed
# 1, since a PING may take 4 times as long as a client's command (measured on a busy machine). Above
# the maximum, the client must be closer to the server than the doctor.
MAX_WAIT_SHARE = 5.0
MIN_COMMANDS_PER_READ = 1.5
# Below this number of commands per read, small commands arrive in pieces.
MIN_READ_SHARE = 0.75
SMALL_BYTES = 4096
# Linux delays acknowledgements by 40 ms, so about 25 commands per second are sent.
DELAYED_PER_S = (15, 27)
NAGLE_GAIN = 40.0
ERROR_SHARE = 0.01
MIN_ERRORS = 10


@dataclass(frozen=True)
class Verdict:
    """One finding.

    Attributes:
        code: a stable name for programs, such as ``"aof-always"``.
        grade: ``"problem"``: costs much throughput, or puts data at risk; ``"advice"``: throughput
            can be gained; ``"note"``: information, nothing to change.
        title: the finding in a few words.
        figure: the evidence, measured or read from the server.
        advice: what to do.
        gain: the expected throughput, as a multiple of the current throughput; None if the finding
            is not about speed, or the gain is unknown.
        expected: the gain in words.
        source: the publication that supports the rule.
        nodes: the affected nodes of a cluster; empty if the finding is about a single server, or
            about the whole cluster.
    """

    code: str
    grade: Grade
    title: str
    figure: str
    advice: str
    expected: str
    source: str
    gain: float | None = None
    nodes: tuple[str, ...] = ()


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort verdicts: problems of unknown gain first, then by falling gain, notes last."""
    return sorted(verdicts, key=_place)


def _place(verdict: Verdict) -> tuple[bool, float, int]:
    gain = verdict.gain
    if gain is None:
        gain = float("inf") if verdict.grade == "problem" else 1.0
    return verdict.grade == "note", -gain, GRADES.index(verdict.grade)


@dataclass(frozen=True)
class Findings:
    """Everything that the doctor knows about a server.

    Attributes:
        facts: the settings and state that the server reported.
        measured: the measurements; None if the server was only watched.
        use: how clients used the server while it was watched, or since it started; None if the
            server refuses INFO.
    """

    facts: Facts
    measured: Measured | None = None
    use: Use | None = None


Rule: TypeAlias = Callable[[Findings], Verdict | None]


def gain_of(rate: float | None, other: float | None) -> float | None:
    """Return ``rate`` divided by ``other``; None if either was not measured, or is 0."""
    return rate / other if rate and other else None


def hiredis(found: Findings) -> Verdict | None:
    if found.facts.hiredis:
        return None
    figure, measured = "redis-py parses replies in Python", found.measured
    if measured and measured.read_items:
        figure += f": {measured.read_items:,.0f} list items per second"
    return Verdict(
        "no-hiredis", "advice", "redis-py runs without hiredis", figure,
        "Run pip install 'redis[hiredis]'; redis-py then uses it without any setting.",
        "not measured here; its README reports 1.1x for SET and GET, 2.7x for lists of 10 items, "
        "16x for lists of 100",
        HIREDIS, HIREDIS_GAIN,
    )  # fmt: skip


def connections(found: Findings) -> Verdict | None:
    use, measured, facts = found.use, found.measured, found.facts
    figures = []
    serious = facts.time_wait >= MIN_TIME_WAIT or (use is not None and use.watched)
    if use is not None and _reconnects(use):
        figures.append(
            f"{use.connections:,} connections opened {_when(use)}, "
            f"{use.commands / use.connections:.1f} commands per connection"
        )
    if facts.time_wait >= MIN_TIME_WAIT:
        figures.append(
            f"{facts.time_wait:,} of {facts.local_ports:,} local ports are held by closed "
            "connections to this server; when no port is free, clients fail with "
            "'Cannot assign requested address'"
        )
    if not figures:
        return None
    gain, expected = RECONNECTING_GAIN, "about 2x (from 25-30% to 50-60% of redis-benchmark)"
    if measured and (times := gain_of(measured.redis_py, measured.reconnecting)):
        gain = times
        expected = (
            f"{gain:.1f}x: {measured.redis_py:,.0f} commands per second over one connection, "
            f"{measured.reconnecting:,.0f} with a connection for each"
        )
    return Verdict(
        "connection-per-command", "problem" if serious else "advice",
        "Clients open a connection for every command or every few commands", "; ".join(figures),
        "Reuse connections: create one redis.Redis() for the whole program (it has a pool), not "
        "one for each request.",
        expected, BOOK, gain,
    )  # fmt: skip


def _reconnects(use: Use) -> bool:
    return (
        use.connections >= MIN_CONNECTIONS
        and use.per_second(use.connections) >= MIN_CONNECTIONS_PER_S
        and use.commands < MIN_COMMANDS_PER_CONNECTION * use.connections
    )


def _when(use: Use) -> str:
    return f"in {use.seconds:,.1f} s" if use.watched else "since the server started"


def pipelining(found: Findings) -> Verdict | None:
    use, measured = found.use, found.measured
    if use is None or use.commands - use.blocking < MIN_COMMANDS or _reconnects(use):
        return None
    rate = use.commands_per_read
    if rate is None or rate >= MIN_COMMANDS_PER_READ or _in_pieces(use):
        return None
    # Judge by the busiest connection, since many slow connections do no harm.
    waits = use.per_second(_busiest(use)) * (use.round_trip_s or 0.0)
    if use.watched and waits < MIN_WAIT_SHARE:
        return None
    nearer = waits > MAX_WAIT_SHARE and not found.facts.local
    figure = f"{rate:.2f} commands per read, {use.commands:,} commands {_when(use)}"
    if use.watched and use.busiest is not None:
        figure += f"; {use.per_second(use.busiest):,.0f}/s of them from {use.busiest_name}"
    if use.watched and use.round_trip_s is not None:
        figure += f"; a PING takes {use.round_trip_s * 1000:.3f} ms: "
        figure += (
            "the clients must be closer to the server than the doctor to send this many"
            if nearer
            else f"one connection waits {min(1.0, waits):.0%} of the time"
        )
    gain, expected = PIPELINE_GAIN, "about 5x, more over a network"
    if measured and (times := gain_of(measured.pipeline, measured.redis_py)):
        gain = times
        expected = f"{gain:.1f}x, measured with redis-py and pipelines of {PIPELINE:,}"
    return Verdict(
        "no-pipeline", "advice" if use.watched and not nearer else "note",
        "Commands are sent one at a time" if use.watched else "Hardly any command is pipelined",
        figure,
        "Send commands in pipelines if you don't need each reply before the next command: "
        "client.pipeline(transaction=False), or fastresp.mass_insert() for a load.",
        expected, PIPELINING, gain,
    )  # fmt: skip


def _busiest(use: Use) -> int:
    """Return the number of commands of the busiest connection; if unknown, the average.

    Blocking commands, and connections blocked in such a command, are excluded.
    """
    if use.busiest is not None:
        return use.busiest
    senders = use.clients - 1 if use.senders is None else use.senders  # one sender is ours
    return (use.commands - use.blocking) // max(1, senders)


def _in_pieces(use: Use) -> bool:
    return (
        use.commands >= MIN_ERRORS
        and use.reads is not None
        and use.commands < MIN_READ_SHARE * use.reads
        and use.bytes <= SMALL_BYTES * use.commands
    )


def pieces(found: Findings) -> Verdict | None:
    """Check whether small commands take several reads, because clients write them in parts."""
    use = found.use
    # If clients reconnect for each command, many reads are not of commands.
    if use is None or not use.watched or not _in_pieces(use) or _reconnects(use):
        return None
    assert use.commands_per_read is not None and use.bytes_per_command is not None
    one = use.per_second(_busiest(use))
    figure = (
        f"{1 / use.commands_per_read:.1f} reads per command of "
        f"{counted(round(use.bytes_per_command), 'byte')}; "
        f"{counted(round(one), 'command')} per second from one connection"
    )
    delayed = DELAYED_PER_S[0] <= one <= DELAYED_PER_S[1]
    figure += ", typical of Nagle's algorithm (40 ms each)" if delayed else ""
    return Verdict(
        "commands-in-pieces", "problem", "Commands arrive in pieces (Nagle's algorithm)", figure,
        "Make the client write each command, or each pipeline, in one call, and set TCP_NODELAY: "
        "without it the second piece waits up to 40 ms for the acknowledgement of the first. The "
        "server can't see whether a client has set it.",
        "from 25 commands per second to one per round trip" if delayed else "up to 2x",
        NAGLE, NAGLE_GAIN if delayed else 2.0,
    )  # fmt: skip


def nagle(found: Findings) -> Verdict | None:
    """Check whether redis-py's connection with the user's settings lacks TCP_NODELAY."""
    facts, measured = found.facts, found.measured
    if facts.nodelay is not False:
        return None
    figure, gain = "TCP_NODELAY is off for the connections of this client", None
    if measured and measured.split_ms is not None and measured.round_trip_ms is not None:
        figure += (
            f"; a PING written in two parts takes {measured.split_ms:.1f} ms, "
            f"in one part {measured.round_trip_ms:.2f} ms"
        )
        gain = gain_of(measured.split_ms, measured.round_trip_ms)
    return Verdict(
        "nagle", "problem", "Nagle's algorithm is on", figure,
        "Set TCP_NODELAY in the client's connection class or socket options, as redis-py does by "
        "default: without it a second small write waits for the acknowledgement of the first.",
        "none for commands written in one call; up to 40 ms for each written in parts", NAGLE, gain,
    )  # fmt: skip


def unix_socket(found: Findings) -> Verdict | None:
    """Check whether the server is on this machine and has a unix socket, but TCP is used."""
    facts, measured = found.facts, found.measured
    if facts.way == "unix" or not facts.unix_socket:
        return None
    gain, expected = 1.5, "about 1.5x"
    figure = f"connected over {facts.way.upper()}; the server also listens at {facts.unix_socket}"
    if measured and measured.unix:
        gain = measured.unix / measured.depths[1]
        expected = f"{gain:.2f}x one at a time"
        if measured.unix_deep:
            deep = measured.unix_deep / measured.depths[UNIX_DEPTH]
            expected += f", {deep:.2f}x with {UNIX_DEPTH} in flight"
            gain = max(gain, deep)
        figure += (
            f"; PINGs one at a time: {measured.depths[1]:,.0f} per second over "
            f"{facts.way.upper()}, {measured.unix:,.0f} over the unix socket"
        )
    little = gain < UNIX_GAIN
    return Verdict(
        "unix-socket", "note" if little else "advice",
        "A unix socket would hardly be faster here"
        if little
        else "TCP is used, although the server has a unix socket",
        figure,
        f"Nothing: {facts.way.upper()} is as fast here."
        if little
        else f"Connect to unix://{facts.unix_socket} from this machine.",
        expected, BENCHMARKS, gain,
    )  # fmt: skip


def errors(found: Findings) -> Verdict | None:
    use = found.use
    if use is None or use.errors is None or use.errors < MIN_ERRORS:
        return None
    share = use.error_share
    if share is None or share < ERROR_SHARE:
        return None
    codes = sorted(use.error_codes.items(), key=lambda pair: -pair[1])[:4]
    counts = ", ".join(f"{code} {count:,}" for code, count in codes)
    return Verdict(
        "error-replies", "problem" if use.watched else "advice",
        "Commands fail with error replies",
        f"{use.errors:,} errors {_when(use)}, {share:.0%} of the commands: {counts}",
        "Find the clients that send these commands. WRONGTYPE and ERR mean that a command is "
        "wrong; OOM, READONLY and MISCONF that the server refuses writes; MOVED that a client "
        "lacks cluster support.",
        "the time spent on commands that fail", ERRORS, 1 / max(0.1, 1 - share),
    )  # fmt: skip


def refused(found: Findings) -> Verdict | None:
    use = found.use
    if use is None or not use.watched or not use.rejected:
        return None
    return Verdict(
        "connections-refused", "problem", "The server refuses connections",
        f"{use.rejected:,} refused {_when(use)}; {use.clients:,} open, "
        f"maxclients {found.facts.info.get('maxclients', 'unknown')}",
        "Close unused connections, limit the pools of the clients, or raise maxclients.",
        "clients can connect", ERRORS,
    )  # fmt: skip


def writes_refused(found: Findings) -> Verdict | None:
    """Check whether the server refused a write, for a reason that no other rule covers."""
    measured = found.measured
    reason = measured.reading_only if measured else ""
    if not reason.startswith("the server refuses"):
        return None
    permission = "NOPERM" in reason or "permissions" in reason
    return Verdict(
        "writes-refused", "note" if permission else "problem",
        "The doctor has no permission to write" if permission else "The server refuses writes",
        reason,
        "To measure writes, allow the user SET and the keys fastresp:doctor:*."
        if permission
        else "Fix the cause named in the error; until then, loads will also fail.",
        "writes are measured" if permission else "the load succeeds", "the server's error reply",
    )  # fmt: skip


def pipelines_pay(found: Findings) -> Verdict | None:
    """Report how much pipelines gain, even if there is no problem."""
    measured = found.measured
    gain = measured and gain_of(measured.pipeline, measured.redis_py)
    if not measured or not gain or pipelining(found) is not None:
        return None
    return Verdict(
        "pipelines-pay", "note", f"Pipelines are {gain:.1f}x faster here",
        f"redis-py: {measured.redis_py:,.0f} commands per second one at a time, "
        f"{measured.pipeline:,.0f} in pipelines of {PIPELINE:,}",
        "Where a program sends one command at a time, use client.pipeline(transaction=False).",
        f"{gain:.1f}x", PIPELINING, gain,
    )  # fmt: skip


CLIENT_RULES: tuple[Rule, ...] = (
    connections, pipelining, pieces, nagle, hiredis, unix_socket, errors, refused, writes_refused,
    pipelines_pay,
)  # fmt: skip
