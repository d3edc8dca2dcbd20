"""The rules about the server: its settings, its memory, its machine. Facts in, verdicts out."""

from __future__ import annotations

from ..report import size_text
from .facts import Facts
from .findings import Findings, Rule
from .verdict import Grade, Verdict

__all__ = ["SERVER_RULES"]

MANAGEMENT = "https://redis.io/docs/latest/operate/oss_and_stack/management/"
PERSISTENCE = f"Redis documentation, persistence: {MANAGEMENT}persistence/"
LATENCY = f"Redis documentation, latency: {MANAGEMENT}optimization/latency/"
REPLICATION = f"Redis documentation, replication: {MANAGEMENT}replication/"
EVICTION = (
    "Redis documentation, key eviction: https://redis.io/docs/latest/develop/reference/eviction/"
)
INFO = "Redis documentation, INFO: https://redis.io/docs/latest/commands/info/"
REDIS_CONF = "the comments on io-threads in redis.conf"

# Of maxmemory: from here on a load of some size will meet the limit; and soon.
MEMORY_HIGH, MEMORY_NEAR = 0.75, 0.9
# Smaller servers hold buffers and code that make the ratio meaningless.
SWAP_MEMORY_BYTES = 64 << 20
SWAP_RATIO = 0.9
SWAPPED_BYTES = 1 << 20
LAG_S = 10
SPIKE_MS = 20
SLOW_MS, SLOW_TIMES, SLOW_TOTAL_MS = 100, 3, 30
OLD = {"Redis": (7, 0), "Valkey": (8, 0)}
THREADS_WANT_CORES = 4
BUSY = 0.8


def aof_always(found: Findings) -> Verdict | None:
    """AOF with a write to disk for each turn of the event loop."""
    facts, measured = found.facts, found.measured
    if facts.number("aof_enabled") != 1 or facts.config.get("appendfsync") != "always":
        return None
    figure, expected, gain = "appendonly yes, appendfsync always", "depends on the disk", None
    if measured and measured.command == "SET" and measured.ready:
        gain = max(1.0, measured.ping / measured.ready)
        figure += f"; {measured.ready:,.0f} SETs a second one at a time, {measured.ping:,.0f} PINGs"
        expected = f"up to {gain:.1f} times for single writes; less in pipelines"
    return Verdict(
        "aof-always", "problem", "Every write waits for the disk",
        figure,
        "CONFIG SET appendfsync everysec, if the loss of the last second is bearable when the "
        "machine fails; or send large pipelines, which share one write to disk.",
        expected, PERSISTENCE, gain,
    )  # fmt: skip


def memory(found: Findings) -> Verdict | None:
    """How near maxmemory is, and what happens then."""
    facts = found.facts
    most, left = facts.number("maxmemory"), facts.memory_left
    if not most or left is None:
        return None
    share = 1 - left / most
    policy = facts.info.get("maxmemory_policy", "noeviction")
    figure = f"{size_text(most - left)} of {size_text(most)} in use ({share:.0%}), policy {policy}"
    if share < MEMORY_HIGH:
        return None
    grade: Grade = "problem" if share >= MEMORY_NEAR else "advice"
    if policy == "noeviction":
        return Verdict(
            "maxmemory-near", grade, "The memory is nearly full: writes will be refused (OOM)",
            figure,
            f"Raise maxmemory before a load of more than {size_text(max(0.0, left))}, or delete "
            "what is not needed; fastresp load --dry-run says how much a load takes.",
            "the load goes through", EVICTION,
        )  # fmt: skip
    what = "keys with an expiry" if policy.startswith("volatile") else "keys"
    return Verdict(
        "eviction-near", grade,
        f"The memory is nearly full: the server will drop {what} for what you load",
        figure,
        f"Raise maxmemory before a load of more than {size_text(max(0.0, left))}, or set "
        "maxmemory-policy noeviction, so that a write fails instead of other data being lost.",
        "no data is lost", EVICTION,
    )  # fmt: skip


def evicted(found: Findings) -> Verdict | None:
    """Keys that have been dropped."""
    use = found.use
    if use is None or not use.evicted:
        return None
    policy = found.facts.info.get("maxmemory_policy", "")
    when = f"in {use.seconds:,.0f} s" if use.watched else "since the server started"
    return Verdict(
        "evicted", "problem" if use.watched else "advice",
        "The server has dropped keys for want of memory",
        f"{use.evicted:,} keys evicted {when}, policy {policy}",
        "Raise maxmemory if these keys were wanted: what was loaded is not all there. Each "
        "eviction also takes time from a write.",
        "no data is lost", EVICTION,
    )  # fmt: skip


def swap(found: Findings) -> Verdict | None:
    """Memory on disk: what the kernel says of the process, else the server's own hint."""
    facts = found.facts
    advice = (
        "Free memory on the server's machine, or lower maxmemory below what it has: a page from "
        "disk takes as long as thousands of commands."
    )
    if facts.swapped is not None and facts.swapped >= SWAPPED_BYTES:
        return Verdict(
            "swap", "problem", "A part of the server's memory is in swap",
            f"{size_text(facts.swapped)} of process {facts.info.get('process_id')} (VmSwap)",
            advice, "the rate without swap", LATENCY,
        )  # fmt: skip
    ratio, used = facts.number("mem_fragmentation_ratio"), facts.number("used_memory")
    if ratio is None or used is None or used < SWAP_MEMORY_BYTES or not 0 < ratio < SWAP_RATIO:
        return None
    if facts.swapped is not None:
        return None  # the kernel knows better: pages may never have been touched
    return Verdict(
        "swap", "advice", "A part of the server's memory may be in swap",
        f"mem_fragmentation_ratio {ratio:.2f}: less memory is resident than in use "
        f"({size_text(used)})",
        "Look at VmSwap in /proc/<pid>/status there. " + advice, "the rate without swap", INFO,
    )  # fmt: skip


def io_threads(found: Findings) -> Verdict | None:
    """More I/O threads than cores; or one, where cores are idle and it is all that works."""
    facts, use = found.facts, found.use
    threads = int(facts.config.get("io-threads", 0) or 0)
    if not threads or not facts.cores:
        return None
    if threads > max(1, facts.cores):
        return Verdict(
            "io-threads-many", "advice", "The server has more I/O threads than cores",
            f"io-threads {threads}, {facts.cores} cores",
            f"Set io-threads to {max(1, facts.cores - 1)} in redis.conf and restart: threads that "
            "wait for each other in turn keep the one that runs commands from its core.",
            "not measured", REDIS_CONF,
        )  # fmt: skip
    busy = use is not None and use.watched and use.cpu is not None and use.cpu / use.seconds
    if threads == 1 and facts.cores >= THREADS_WANT_CORES and busy and busy >= BUSY:
        return Verdict(
            "io-threads-one", "advice", "One thread reads, runs and answers, and it is busy",
            f"{busy:.0%} of a core; io-threads 1, {facts.cores} cores",
            f"Set io-threads to {min(8, facts.cores - 1)} in redis.conf and restart.",
            "up to twice, over several connections", REDIS_CONF, 2.0,
        )  # fmt: skip
    return None


def replicas(found: Findings) -> Verdict | None:
    """Replicas: every write is sent to each of them once more."""
    facts, measured = found.facts, found.measured
    count = int(facts.number("connected_slaves") or 0)
    if not count:
        return None
    lags = []
    for number in range(count):
        text = facts.info.get(f"slave{number}", "")
        state = dict(part.partition("=")[::2] for part in text.split(","))
        lags.append((state.get("state", ""), int(state.get("lag") or 0)))
    late = [state for state, lag in lags if state != "online" or lag > LAG_S]
    backlog = facts.number("repl_backlog_size") or 0.0
    figure = f"{count} replica{'s' if count > 1 else ''}, backlog {size_text(backlog)}"
    if measured and measured.load:
        figure += f": {backlog / (measured.load * 150):.2f} s of the load that was measured"
    if late:
        figure += f"; {len(late)} not online or more than {LAG_S} s behind"
    return Verdict(
        "replicas", "problem" if late else "advice",
        "Every write is sent to replicas as well" + (", and they do not keep up" if late else ""),
        figure,
        "For a large load attach them afterwards, or raise repl-backlog-size and "
        "client-output-buffer-limit replica: a replica that falls behind further copies "
        "everything anew, and the server forks for it.",
        "not measured", REPLICATION,
    )  # fmt: skip


def replica(found: Findings) -> Verdict | None:
    """A server that takes no load."""
    facts = found.facts
    if not facts.replica:
        return None
    master = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
    return Verdict(
        "is-replica", "problem", "This is a replica: it takes no load",
        f"role slave of {master}",
        f"Load into its master, {master}.",
        "the load goes through", REPLICATION,
    )  # fmt: skip


def slow_commands(found: Findings) -> Verdict | None:
    """Commands whose cost grows with the data, and for which all others wait."""
    rows = [
        row for row in found.facts.slow
        if row.longest_ms >= SLOW_MS
        or (row.times >= SLOW_TIMES and row.total_ms >= SLOW_TOTAL_MS)
    ]  # fmt: skip
    if not rows:
        return None
    row = rows[0]
    figure = f"{row.name}: {row.times} in the slow log, up to {row.longest_ms:,.0f} ms"
    figure += f", by {row.client}" if row.client else ""
    figure += f"; {row.complexity}" if row.complexity else ""
    if len(rows) > 1:
        figure += "; also " + ", ".join(f"{each.name} ({each.times})" for each in rows[1:4])
    use = found.use
    gain = None
    if use is not None and use.watched:
        share = min(0.9, sum(each.total_ms for each in rows) / 1000 / use.seconds)
        gain = 1 / (1 - share)
        figure += f"; {share:.0%} of the time that was watched"
    return Verdict(
        "slow-commands", "problem", "Slow commands hold up all others", figure,
        "Ask for less at once: SCAN instead of KEYS, HSCAN and SSCAN, a range instead of a whole "
        "list, UNLINK instead of DEL; or ask a replica.",
        "others no longer wait" + (f", {gain:.1f} times the rate" if gain else ""), LATENCY,
        gain,
    )  # fmt: skip


def spikes(found: Findings) -> Verdict | None:
    """What the server's latency monitor has seen, commands aside."""
    events = {
        name: ms for name, ms in found.facts.latency.items()
        if ms >= SPIKE_MS and not name.endswith("command")
    }  # fmt: skip
    if not events:
        return None
    name = max(events, key=lambda each: events[each])
    return Verdict(
        "latency-spikes", "advice", f"The server was held up by {name}",
        ", ".join(f"{each} {events[each]:,.0f} ms" for each in sorted(events)),
        "Ask the server itself: LATENCY DOCTOR explains each of these events.",
        "not measured",
        f"Redis documentation, latency monitoring: {MANAGEMENT}optimization/latency-monitor/",
    )  # fmt: skip


def old_version(found: Findings) -> Verdict | None:
    """A version that later ones are faster than."""
    facts: Facts = found.facts
    numbers = facts.version_numbers
    if not numbers or numbers >= OLD[facts.product]:
        return None
    missing = "hashes and lists as listpacks, an AOF in parts that is not written twice (7.0)"
    if facts.product == "Valkey":
        missing = "I/O threads that also parse and write (8.0)"
    elif numbers < (6, 2):
        missing = "LPOP and RPOP of many items (6.2), " + missing
    if facts.product == "Redis" and numbers < (6, 0):
        missing = "I/O threads (6.0), " + missing
    return Verdict(
        "old-version", "advice", "The server is old", f"{facts.product} {facts.version}",
        f"Update it. It lacks: {missing}.", "not measured",
        f"the release notes of {facts.product} {OLD[facts.product][0]}.0",
    )  # fmt: skip


SERVER_RULES: tuple[Rule, ...] = (
    aof_always, memory, evicted, swap, io_threads, replicas, replica, slow_commands, spikes,
    old_version,
)  # fmt: skip
