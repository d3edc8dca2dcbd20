"""The rules about clients: how they connect, send and read. Facts in, verdicts out."""

from __future__ import annotations

from .findings import Findings, Rule, gain_of
from .measure import PIPELINE, UNIX_DEPTH
from .verdict import Verdict
from .watch import Use

__all__ = ["CLIENT_RULES"]

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

# What a table of symptoms of 2013 says of redis-py, and what it has from a pipeline.
RECONNECTING_GAIN = 2.0
PIPELINE_GAIN = 5.0
# For SET and GET; 2.7 for LRANGE of 10 items, 16 for 100. Source: the README of hiredis-py.
HIREDIS_GAIN = 1.1
# A unix socket that brings less is not worth a change.
UNIX_GAIN = 1.1

# Closed connections that hold a local port: a program that keeps its connections has a few.
WAITING = 1_000
# Connections with fewer commands than this were not worth opening.
PER_CONNECTION = 10
CONNECTIONS = 20
CONNECTIONS_A_SECOND = 2.0
# Fewer commands than this are no load, and say nothing of how they were sent.
COMMANDS = 100
# Of its time, that the busiest connection waits for replies; who waits less has little to gain.
WAITS = 0.3
# No connection waits for longer than all of its time: beyond what a PING may be slower (measured on
# a busy machine: 4 times) it is nearer to the server than we are.
NEARER = 5.0
PER_READ = 1.5
# A command that needs several reads though it is smaller than the buffer of one (16 KiB).
PIECES_PER_READ = 0.75
SMALL_BYTES = 4096
# A delayed acknowledgement is 40 ms on Linux; from 25 a second to a round trip of a millisecond.
DELAYED_A_SECOND = (15, 27)
NAGLE_GAIN = 40.0
ERROR_SHARE = 0.01
ERRORS_SEEN = 10


def hiredis(found: Findings) -> Verdict | None:
    """redis-py without its C parser."""
    if found.facts.hiredis:
        return None
    figure, measured = "redis-py reads replies in Python", found.measured
    if measured and measured.read_items:
        figure += f": {measured.read_items:,.0f} items of a list a second"
    return Verdict(
        "no-hiredis", "advice", "redis-py runs without hiredis", figure,
        "pip install 'redis[hiredis]': redis-py finds it by itself.",
        "not measured here; in its README 1.1 times for SET and GET, 2.7 for lists of 10 items, "
        "16 for lists of 100",
        HIREDIS, HIREDIS_GAIN,
    )  # fmt: skip


def connections(found: Findings) -> Verdict | None:
    """A connection for each command, or a few."""
    use, measured, facts = found.use, found.measured, found.facts
    figures = []
    if use is not None and _reconnects(use):
        assert use.commands_per_connection is not None
        figures.append(
            f"{use.connections:,} connections opened {_when(use)}, "
            f"{use.commands_per_connection:.1f} commands each"
        )
    watched = use is not None and use.watched
    if facts.time_wait >= WAITING:
        figures.append(
            f"{facts.time_wait:,} closed connections to this server still hold one of "
            f"{facts.local_ports:,} local ports; when all do, clients get "
            "'Cannot assign requested address'"
        )
    if not figures:
        return None
    gain, expected = RECONNECTING_GAIN, "about twice (25-30% of redis-benchmark become 50-60%)"
    if measured and (times := gain_of(measured.redis_py, measured.reconnecting)):
        gain = times
        expected = (
            f"{gain:.1f} times: {measured.redis_py:,.0f} commands a second over one connection, "
            f"{measured.reconnecting:,.0f} with one for each"
        )
    serious = watched or facts.time_wait >= WAITING
    return Verdict(
        "connection-per-command", "problem" if serious else "advice",
        "A client opens a connection for every command or few", "; ".join(figures),
        "Reuse connections: one redis.Redis() for the whole program, which has a pool; not one "
        "for each request.",
        expected, BOOK, gain,
    )  # fmt: skip


def _reconnects(use: Use) -> bool:
    return (
        use.connections >= CONNECTIONS
        and use.per_second(use.connections) >= CONNECTIONS_A_SECOND
        and use.commands < PER_CONNECTION * use.connections
    )


def _when(use: Use) -> str:
    return f"in {use.seconds:,.0f} s" if use.watched else "since the server started"


def pipelining(found: Findings) -> Verdict | None:
    """Commands that come one a read: each waits for the reply to the last."""
    use, measured = found.use, found.measured
    if use is None or use.commands - use.blocking < COMMANDS or _reconnects(use):
        return None
    rate = use.commands_per_read
    if rate is None or rate >= PER_READ or _in_pieces(use):
        return None
    # One connection's rate says whether it waits for its replies; many slow ones do no harm.
    waits = use.per_second(_busiest(use)) * (use.round_trip_s or 0.0)
    if use.watched and waits < WAITS:
        return None
    nearer = waits > NEARER and not found.facts.local
    figure = f"{rate:.2f} commands a read, of {use.commands:,} commands {_when(use)}"
    if use.watched and use.busiest is not None:
        figure += f"; {use.per_second(use.busiest):,.0f}/s of them by {use.busiest_name}"
    if use.watched and use.round_trip_s is not None:
        figure += f"; a PING takes {use.round_trip_s * 1000:.3f} ms: "
        figure += (
            "less over there, or they could not send so many"
            if nearer
            else f"one connection waits {min(1.0, waits):.0%} of the time"
        )
    gain, expected = PIPELINE_GAIN, "about 5 times, and more over a network"
    if measured and (times := gain_of(measured.pipeline, measured.redis_py)):
        gain = times
        expected = f"{gain:.1f} times, as measured with redis-py and {PIPELINE:,} at once"
    return Verdict(
        "no-pipeline", "advice" if use.watched and not nearer else "note",
        "Commands are sent one at a time" if use.watched else "Hardly anybody uses pipelines",
        figure,
        "Send many at once where their replies are not needed in between: "
        "client.pipeline(transaction=False), or mass_insert() of fastresp for a load.",
        expected, PIPELINING, gain,
    )  # fmt: skip


def _busiest(use: Use) -> int:
    """Commands of the connection that sent the most; else of each, on average.

    Those that block, and connections that wait in one, are left out.
    """
    if use.busiest is not None:
        return use.busiest
    senders = use.clients - 1 if use.senders is None else use.senders  # one of them is ours
    return (use.commands - use.blocking) // max(1, senders)


def _in_pieces(use: Use) -> bool:
    per_read, size = use.commands_per_read, use.bytes_per_command
    if per_read is None or size is None:
        return False
    return use.commands >= ERRORS_SEEN and per_read < PIECES_PER_READ and size <= SMALL_BYTES


def pieces(found: Findings) -> Verdict | None:
    """Small commands that take several reads: they are written in parts."""
    use = found.use
    # Who connects anew for each command has reads of other kinds.
    if use is None or not use.watched or not _in_pieces(use) or _reconnects(use):
        return None
    assert use.commands_per_read is not None and use.bytes_per_command is not None
    one = use.per_second(_busiest(use))
    figure = (
        f"{1 / use.commands_per_read:.1f} reads a command of {use.bytes_per_command:,.0f} bytes; "
        f"{one:,.0f} commands a second by one connection"
    )
    delayed = DELAYED_A_SECOND[0] <= one <= DELAYED_A_SECOND[1]
    figure += ", what Nagle's algorithm makes of it (40 ms each)" if delayed else ""
    return Verdict(
        "commands-in-pieces", "problem", "Commands arrive in pieces (Nagle's algorithm)", figure,
        "Let the client write a command, or a pipeline, in one call, and set TCP_NODELAY: without "
        "it the second piece waits for the acknowledgement of the first, up to 40 ms. The server "
        "can't tell whether it is set.",
        "from 25 commands a second to what a round trip allows" if delayed else "up to twice",
        NAGLE, NAGLE_GAIN if delayed else 2.0,
    )  # fmt: skip


def nagle(found: Findings) -> Verdict | None:
    """The client's own connection without TCP_NODELAY."""
    facts, measured = found.facts, found.measured
    if facts.nodelay is not False:
        return None
    figure, gain = "TCP_NODELAY is off for the connections of this client", None
    if measured and measured.split_ms is not None and measured.round_trip_ms is not None:
        figure += (
            f"; a PING written in two parts takes {measured.split_ms:.1f} ms, "
            f"in one {measured.round_trip_ms:.2f} ms"
        )
        gain = gain_of(measured.split_ms, measured.round_trip_ms)
    return Verdict(
        "nagle", "problem", "Nagle's algorithm is on", figure,
        "Set TCP_NODELAY in the client's connection class or socket options, as redis-py does by "
        "itself: without it a second small write waits for the acknowledgement of the first.",
        "none for whole commands; up to 40 ms for each that is written in parts", NAGLE, gain,
    )  # fmt: skip


def unix_socket(found: Findings) -> Verdict | None:
    """TCP to a server on the same machine that has a unix socket."""
    facts, measured = found.facts, found.measured
    if facts.way == "unix" or not facts.unix_socket:
        return None
    gain, expected = 1.5, "about 1.5 times"
    figure = f"connected over {facts.way.upper()}; the server also listens at {facts.unix_socket}"
    if measured and measured.unix:
        gain = measured.unix / measured.depths[1]
        expected = f"{gain:.2f} times one at a time"
        if measured.unix_deep:
            deep = measured.unix_deep / measured.depths[UNIX_DEPTH]
            expected += f", {deep:.2f} times with {UNIX_DEPTH} in flight"
            gain = max(gain, deep)
        figure += (
            f"; {measured.depths[1]:,.0f} PINGs a second one at a time, there {measured.unix:,.0f}"
        )
    little = gain < UNIX_GAIN
    return Verdict(
        "unix-socket", "note" if little else "advice",
        "A unix socket would bring little here"
        if little
        else "TCP is used where a unix socket would do",
        figure,
        "Nothing: here TCP is as fast."
        if little
        else f"Connect to unix://{facts.unix_socket} from this machine.",
        expected, BENCHMARKS, gain,
    )  # fmt: skip


def errors(found: Findings) -> Verdict | None:
    """Error replies: work that was for nothing."""
    use = found.use
    if use is None or use.errors is None or use.errors < ERRORS_SEEN:
        return None
    share = use.error_share
    if share is None or share < ERROR_SHARE:
        return None
    codes = sorted(use.error_codes.items(), key=lambda pair: -pair[1])[:4]
    told = ", ".join(f"{code} {count:,}" for code, count in codes)
    return Verdict(
        "error-replies", "problem" if use.watched else "advice",
        "Commands are answered with errors",
        f"{use.errors:,} errors {_when(use)}, {share:.0%} of the commands: {told}",
        "Look at what the clients do with errors: WRONGTYPE and ERR are mistakes in commands, "
        "OOM, READONLY and MISCONF a state of the server, MOVED a client that knows no cluster.",
        "the share of commands that fail", ERRORS, 1 / max(0.1, 1 - share),
    )  # fmt: skip


def refused(found: Findings) -> Verdict | None:
    """Connections beyond maxclients."""
    use = found.use
    if use is None or not use.watched or not use.rejected:
        return None
    return Verdict(
        "connections-refused", "problem", "The server refuses connections",
        f"{use.rejected:,} {_when(use)}; {use.clients:,} are open, "
        f"maxclients {found.facts.info.get('maxclients', 'not told')}",
        "Close what is not used, bound the pools of the clients, or raise maxclients.",
        "clients can connect", ERRORS,
    )  # fmt: skip


def writes_refused(found: Findings) -> Verdict | None:
    """A server that does not take a write, for a reason that is not known otherwise."""
    measured = found.measured
    reason = measured.reading_only if measured else ""
    if not reason.startswith("the server refuses"):
        return None
    permission = "NOPERM" in reason or "permissions" in reason
    return Verdict(
        "writes-refused", "note" if permission else "problem",
        "The doctor may not write" if permission else "The server takes no writes",
        reason,
        "To have writes measured, too, allow the user SET, and the keys fastresp:doctor:*."
        if permission
        else "See to what its words say; until then a load will fail as well.",
        "all is measured" if permission else "the load goes through", "the server's own words",
    )  # fmt: skip


def pipelines_pay(found: Findings) -> Verdict | None:
    """What a pipeline brings here; good to know on a healthy server, too."""
    measured = found.measured
    gain = measured and gain_of(measured.pipeline, measured.redis_py)
    if not measured or not gain or pipelining(found) is not None:
        return None
    return Verdict(
        "pipelines-pay", "note", "What a pipeline brings here",
        f"redis-py: {measured.redis_py:,.0f} commands a second one at a time, "
        f"{measured.pipeline:,.0f} in pipelines of {PIPELINE:,}",
        "Where a program sends one command at a time, use client.pipeline(transaction=False).",
        f"{gain:.1f} times", PIPELINING, gain,
    )  # fmt: skip


CLIENT_RULES: tuple[Rule, ...] = (
    connections, pipelining, pieces, nagle, hiredis, unix_socket, errors, refused, writes_refused,
    pipelines_pay,
)  # fmt: skip
