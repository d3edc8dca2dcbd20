"""The rules about the server: its settings, its memory, its machine. Facts in, verdicts out."""

from __future__ import annotations

import re

from ..outcome.report import size_text
from .facts import Facts
from .findings import Findings, Rule, gain_of
from .logs import Slow
from .verdict import Grade, Verdict
from .watch import Use

__all__ = ["SERVER_RULES"]

MANAGEMENT = "https://redis.io/docs/latest/operate/oss_and_stack/management/"
PERSISTENCE = f"Redis documentation, persistence: {MANAGEMENT}persistence/"
LATENCY = f"Redis documentation, latency: {MANAGEMENT}optimization/latency/"
REPLICATION = f"Redis documentation, replication: {MANAGEMENT}replication/"
EVICTION = (
    "Redis documentation, key eviction: https://redis.io/docs/latest/develop/reference/eviction/"
)
INFO = "Redis documentation, INFO: https://redis.io/docs/latest/commands/info/"
REDIS_CONF = f"the comments in redis.conf: {MANAGEMENT}config-file/"
RELEASES = {
    "Redis": "the release notes of Redis 7.0: https://github.com/redis/redis/releases/tag/7.0-rc1",
    "Valkey": (
        "the release notes of Valkey 8.0: https://github.com/valkey-io/valkey/releases/tag/8.0.0"
    ),
}

# Of maxmemory: from here on a load of some size will meet the limit; and soon.
MEMORY_HIGH, MEMORY_NEAR = 0.75, 0.9
# With fewer keys that have an expiry a volatile-* policy soon has none left to evict.
EXPIRING_FEW = 0.1
# More evictions than this, of the commands, are no cache that mostly answers reads.
EVICTED_SHARE = 0.1
# Smaller servers hold buffers and code that make the ratio meaningless.
SWAP_MEMORY_BYTES = 64 << 20
SWAP_RATIO = 0.9
SWAPPED_BYTES = 1 << 20
# Of the process: less are the pages that nobody touches, which a kernel moves out sooner or later.
SWAPPED_SHARE = 0.05
# min-replicas-max-lag by default; and the soft limit of client-output-buffer-limit for replicas,
# behind which the server gives one up after a minute. Source of both: redis.conf.
LAG_S = 10
BEHIND_BYTES = 64 << 20
# What replicas get of a SET of the doctor's.
REPLICATED_BYTES = 200
SPIKE_MS = 20
SLOW_MS, SLOW_TIMES, SLOW_TOTAL_MS = 100, 3, 30
# Of the time that was watched.
SLOW_SHARE = 0.1
INSTEAD = {
    "KEYS": "SCAN instead of KEYS: it goes through the keys in parts",
    "SMEMBERS": "SSCAN instead of SMEMBERS, or SMISMEMBER for some members",
    "HGETALL": "HMGET of the fields that are needed, or HSCAN, instead of HGETALL",
    "LRANGE": "LRANGE of a part, not of a whole long list",
    "ZRANGE": "ZRANGE of a part, or with LIMIT",
    "DEL": "UNLINK instead of DEL: it frees large values in another thread",
    "FLUSHALL": "FLUSHALL ASYNC, which frees the memory in another thread",
    "FLUSHDB": "FLUSHDB ASYNC, which frees the memory in another thread",
    "SAVE": "BGSAVE instead of SAVE",
    "SORT": "SORT_RO on a replica, or sort in the client",
    **dict.fromkeys(
        ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO"),
        "shorter scripts and functions: nothing else runs while one does",
    ),
}
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
        ping = measured.depths.get(1)
        gain = gain_of(ping, measured.ready)
        if gain and ping:
            figure += f"; {measured.ready:,.0f} SETs a second one at a time, {ping:,.0f} PINGs"
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
    if share < MEMORY_HIGH:
        return None
    policy = facts.info.get("maxmemory_policy", "noeviction")
    figure = f"{size_text(most - left)} of {size_text(most)} in use ({share:.0%}), policy {policy}"
    expiring = facts.expiring if policy.startswith("volatile") else None
    if expiring is not None:
        figure += f", {expiring:.0%} of the keys have an expiry"
    if policy == "noeviction" or (expiring is not None and expiring < EXPIRING_FEW):
        # A volatile-* policy without a key to evict is noeviction.
        certain = policy == "noeviction" or not expiring
        grade: Grade = "problem" if share >= MEMORY_NEAR and certain else "advice"
        return Verdict(
            "maxmemory-near", grade, "The memory is nearly full: writes will be refused (OOM)",
            figure,
            f"Raise maxmemory before a load of more than {size_text(max(0.0, left))}, or delete "
            "what is not needed; fastresp load --dry-run says how much a load takes.",
            "the load goes through", EVICTION,
        )  # fmt: skip
    evicted = facts.number("evicted_keys")
    if evicted:
        rate = evicted / max(1.0, facts.number("uptime_in_seconds") or 1.0)
        figure += f"; {evicted:,.0f} keys evicted since the server started, {rate:,.1f}/s"
    what = "keys with an expiry" if policy.startswith("volatile") else "other keys"
    return Verdict(
        "eviction-near", "note", f"What you write pushes out {what}, as in a cache",
        figure,
        "Nothing, for a cache. If all of a load is to stay, raise maxmemory by what it takes "
        "(fastresp load --dry-run says), or set maxmemory-policy noeviction: writes fail instead.",
        "none for a cache", EVICTION,
    )  # fmt: skip


def evicted(found: Findings) -> Verdict | None:
    """Keys that are dropped now; what was dropped long ago says nothing."""
    use = found.use
    if use is None or not use.watched or not use.evicted:
        return None
    share = use.evicted / max(1, use.commands)
    return Verdict(
        "evicted", "advice" if share >= EVICTED_SHARE else "note",
        "The server drops keys for want of memory",
        f"{use.evicted:,} keys evicted in {use.seconds:,.0f} s, {min(1.0, share):.0%} of the "
        f"commands; policy {found.facts.info.get('maxmemory_policy', 'not told')}",
        "Raise maxmemory if these keys were wanted: what was loaded is not all there. Each "
        "eviction also takes time from a write.",
        "more of the reads find their key", EVICTION,
    )  # fmt: skip


def swap(found: Findings) -> Verdict | None:
    """Memory on disk: what the kernel says of the process, else the server's own hint."""
    facts = found.facts
    advice = (
        "Free memory on the server's machine, or lower maxmemory below what it has: a page from "
        "disk takes as long as thousands of commands."
    )
    if facts.swapped is not None and facts.swapped >= SWAPPED_BYTES:
        resident = facts.number("used_memory_rss") or facts.number("used_memory") or 0.0
        share = facts.swapped / (resident + facts.swapped)
        few = share < SWAPPED_SHARE
        return Verdict(
            "swap", "note" if few else "problem",
            f"A {'small ' if few else ''}part of the server's memory is in swap",
            f"{size_text(facts.swapped)} of process {facts.info.get('process_id')} (VmSwap), "
            f"{share:.1%} of it",
            "Nothing, while it stays so little: they are pages that nobody touches."
            if few
            else advice,
            "none" if few else "the rate without swap", LATENCY,
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
    """Replicas: every write is sent to each of them once more; a late one may be given up."""
    facts = found.facts
    count = int(facts.number("connected_slaves") or 0)
    if not count:
        return None
    copying, late = [], []
    end, limit = facts.number("master_repl_offset") or 0.0, _replica_limit(facts)
    for name, text in facts.info.items():
        if not re.fullmatch(r"slave\d+", name):
            continue
        told = dict(part.partition("=")[::2] for part in text.split(","))
        who = f"{told.get('ip')}:{told.get('port')}"
        lag, behind = int(told.get("lag") or 0), end - float(told.get("offset") or end)
        if told.get("state", "online") != "online":
            copying.append(f"{who} is in state {told['state']}")
        elif lag > LAG_S or behind > limit:
            late.append(f"{who} is {lag} s and {size_text(behind)} behind")
    backlog = facts.number("repl_backlog_size") or 0.0
    figure = f"{count} replica{'s' if count > 1 else ''}, backlog {size_text(backlog)}"
    figure = "; ".join((figure + _backlog_lasts(found, backlog), *late, *copying))
    title = "Every write is sent to replicas as well"
    grade: Grade = "note"
    advice = (
        "Nothing, while they keep up. One that is away for longer than the backlog lasts copies "
        "everything anew, and the server forks for it: raise repl-backlog-size where that happens."
    )
    if late:
        title, grade = "A replica does not keep up", "problem"
        advice = (
            "Look at its machine and the network. Behind the limit of client-output-buffer-limit "
            "for replicas the server closes its connection, and it copies everything anew."
        )
    elif copying:
        title, grade = "A replica is being given all data", "advice"
        advice = "Wait with a large load until it is online: the server has forked for it."
    return Verdict(
        "replicas", grade, title, figure, advice, "not measured",
        REDIS_CONF if late else REPLICATION,
    )  # fmt: skip


def _replica_limit(facts: Facts) -> float:
    """How many bytes a replica may be behind: of its limits the soft one, else the hard one."""
    text = facts.config.get("client-output-buffer-limit", "")
    limits = re.search(r"(?:slave|replica) (\d+) (\d+)", text)
    if limits is None:
        return BEHIND_BYTES
    hard, soft = map(int, limits.groups())
    return soft or hard or float("inf")


def _backlog_lasts(found: Findings, backlog: float) -> str:
    use, measured = found.use, found.measured
    if use is not None and use.watched and use.per_second(use.replicated) >= 1:
        return f": {backlog / use.per_second(use.replicated):,.1f} s of what was written"
    if measured and measured.load:
        lasts = backlog / (measured.load * REPLICATED_BYTES)
        return f": {lasts:,.2f} s of the load that was measured"
    return ""


def replica_nagle(found: Findings) -> Verdict | None:
    """Writes that wait to be sent to replicas in larger packets."""
    facts = found.facts
    delayed = facts.config.get("repl-disable-tcp-nodelay") == "yes"
    if not delayed or not facts.number("connected_slaves"):
        return None
    return Verdict(
        "replica-nagle", "note", "Replicas get writes late, in fewer packets",
        "repl-disable-tcp-nodelay yes",
        "CONFIG SET repl-disable-tcp-nodelay no, unless the way to them is narrow.",
        "up to 40 ms less for a write to reach a replica, and for WAIT", REDIS_CONF,
    )  # fmt: skip


def replica(found: Findings) -> Verdict | None:
    """A server that takes no load; no fault of one that is watched, and read from."""
    facts, watched = found.facts, found.measured is None
    if not facts.replica:
        return None
    master = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
    link = facts.info.get("master_link_status", "up")
    return Verdict(
        "is-replica", "note" if watched and link == "up" else "problem",
        "This is a replica: it takes no load",
        f"role slave of {master}, the link to it is {link}",
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
    row, use = rows[0], found.use
    watched = use is not None and use.watched
    figure = f"{row.name}: {row.times} in the slow log, up to {row.longest_ms:,.0f} ms"
    figure += f", by {row.client}" if row.client else ""
    figure += f"; {row.complexity}" if row.complexity else ""
    if len(rows) > 1:
        figure += "; also " + ", ".join(f"{each.name} ({each.times})" for each in rows[1:4])
    share = _share(use, {each.name.lower() for each in rows})
    often = watched or any(each.times >= SLOW_TIMES for each in rows)
    grade: Grade = "advice" if often else "note"
    gain = None
    if share is not None:
        figure += (
            f"; {share:.1%} of the time {'that was watched' if watched else 'since the start'}"
        )
        # Since the start it may be long ago, and on a server that had nothing else to do.
        if watched and share >= SLOW_SHARE:
            grade, gain = "problem", 1 / (1 - min(0.9, share))
    advice = "; ".join(dict.fromkeys(map(_instead, rows[:4])))
    return Verdict(
        "slow-commands", grade, "Slow commands hold up all others", figure,
        f"{advice[0].upper()}{advice[1:]}.",
        "others no longer wait"
        + (f", up to {gain:.1f} times the rate" if gain else "")
        + ("" if watched else "; --watch tells how much of the time it is now"),
        LATENCY, gain,
    )  # fmt: skip


def _instead(row: Slow) -> str:
    """What to do about a slow command."""
    if row.name in INSTEAD:
        return f"use {INSTEAD[row.name]}"
    if row.complexity.startswith("O("):
        return f"use {row.name} of fewer elements at once"
    return f"look at what {row.name} does"


def _share(use: Use | None, names: set[str]) -> float | None:
    """Of the time that was watched, else of that since the start; None if not told."""
    if use is None or not use.calls:
        return None
    # A subcommand is counted as command|subcommand.
    taken = sum(u for name, (_, u) in use.calls.items() if name.partition("|")[0] in names)
    return taken / (use.seconds * 1e6)


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
        ", ".join(f"{each} {events[each]:,.0f} ms" for each in sorted(events))
        + " at the longest, in the last 24 hours",
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
        RELEASES[facts.product],
    )  # fmt: skip


SERVER_RULES: tuple[Rule, ...] = (
    aof_always, memory, evicted, swap, io_threads, replicas, replica_nagle, replica, slow_commands,
    spikes, old_version,
)  # fmt: skip
