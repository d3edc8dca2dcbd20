"""Rules about the server: its settings, memory and machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..load.paused_settings import before_pause, restoring_commands
from ..load.server_warnings import Expected, forecast_of, length_text
from ..outcome.report import counted, size_text
from ..server.known_faults import PAYLOADS, FoundFault, faults_of
from .facts import Facts, Slow
from .rules import Findings, Grade, Rule, Verdict, gain_of
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

# Shares of maxmemory in use. Above the first, a large load may reach the limit. Above the second,
# almost any load does.
MEMORY_HIGH, MEMORY_NEAR = 0.75, 0.9
# If fewer keys than this share have an expiry, a volatile-* policy soon has no key to evict.
MIN_EXPIRING_SHARE = 0.1
# Minimum evictions per command for a problem. A cache that mostly answers reads has fewer.
MIN_EVICTED_SHARE = 0.1
# With less memory in use, code and buffers make the fragmentation ratio meaningless.
SWAP_MEMORY_BYTES = 64 << 20
SWAP_RATIO = 0.9
MIN_SWAPPED_BYTES = 1 << 20
# Minimum share of the process's memory in swap for a problem: a kernel may swap out a small part
# that is never used.
MIN_SWAPPED_SHARE = 0.05
# The default of min-replicas-max-lag; and the default soft limit of client-output-buffer-limit for
# replicas. A replica that exceeds this limit for a minute is disconnected. Source: redis.conf.
MAX_LAG_S = 10
MAX_LAG_BYTES = 64 << 20
# Bytes sent to a replica for one SET of the doctor.
REPLICATED_BYTES = 200
MIN_SPIKE_MS = 20
SLOW_MS, SLOW_TIMES, SLOW_TOTAL_MS = 100, 3, 30
# Minimum share of the watched time that slow commands take, for a problem.
MIN_SLOW_SHARE = 0.1
REPLACEMENTS = {
    "KEYS": "SCAN instead of KEYS: it iterates in small steps",
    "SMEMBERS": "SSCAN instead of SMEMBERS, or SMISMEMBER for some members",
    "HGETALL": "HMGET for the fields that you need, or HSCAN, instead of HGETALL",
    "LRANGE": "LRANGE with a smaller range, not on a whole long list",
    "ZRANGE": "ZRANGE with a smaller range, or with LIMIT",
    "DEL": "UNLINK instead of DEL: it frees large values in another thread",
    "FLUSHALL": "FLUSHALL ASYNC, which frees the memory in another thread",
    "FLUSHDB": "FLUSHDB ASYNC, which frees the memory in another thread",
    "SAVE": "BGSAVE instead of SAVE",
    "SORT": "SORT_RO on a replica, or sort in the client",
    **dict.fromkeys(
        ("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO"),
        "shorter scripts and functions: each blocks the server while it runs",
    ),
}
OLD_VERSIONS = {"Redis": (7, 0), "Valkey": (8, 0)}
MIN_CORES_FOR_THREADS = 4
# Length of the load whose forks are predicted, and its commands per second if no rate was measured.
LOAD_S, ASSUMED_RATE = 600, 100_000.0
# Minimum length of a save to mention.
MIN_SAVE_S = 1.0
# Minimum share of the load's time during which a save runs, for advice.
MIN_SAVING_SHARE = 0.1
BUSY_SHARE = 0.8


def aof_always(found: Findings) -> Verdict | None:
    facts, measured = found.facts, found.measured
    if facts.number("aof_enabled") != 1 or facts.config.get("appendfsync") != "always":
        return None
    figure, expected, gain = "appendonly yes, appendfsync always", "depends on the disk", None
    if measured and measured.command == "SET" and measured.ready:
        ping = measured.depths.get(1)
        gain = gain_of(ping, measured.ready)
        if gain and ping:
            figure += f"; one at a time, {measured.ready:,.0f} SETs per second, {ping:,.0f} PINGs"
            expected = f"up to {gain:.1f}x for single writes, less in pipelines"
    return Verdict(
        "aof-always", "problem", "Every write waits for the disk",
        figure,
        "CONFIG SET appendfsync everysec, if you can afford to lose the last second of writes in "
        "a crash; or send large pipelines, which share one sync.",
        expected, PERSISTENCE, gain,
    )  # fmt: skip


def saves_paused(found: Findings) -> Verdict | None:
    before = before_pause(found.facts.config)
    if not before:
        return None
    return Verdict(
        "saves-paused", "advice", "The server's saves are paused",
        ", ".join(f"{name} {found.facts.config[name]}" for name in before),
        "If no load with --pause-saves is running, one was killed: run "
        f"{restoring_commands(before)}.",
        "not measured", PERSISTENCE,
    )  # fmt: skip


def memory(found: Findings) -> Verdict | None:
    """Check whether memory is close to maxmemory, and what happens when it is full."""
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
    if policy == "noeviction" or (expiring is not None and expiring < MIN_EXPIRING_SHARE):
        # A volatile-* policy with no key to evict acts as noeviction.
        certain = policy == "noeviction" or not expiring
        grade: Grade = "problem" if share >= MEMORY_NEAR and certain else "advice"
        return Verdict(
            "maxmemory-near", grade, "Memory is nearly full: writes will be refused (OOM)",
            figure,
            f"Raise maxmemory before a load of more than {size_text(max(0.0, left))}, or delete "
            "keys; fastresp load --dry-run estimates how much memory a load needs.",
            "the load succeeds", EVICTION,
        )  # fmt: skip
    evicted = facts.number("evicted_keys")
    if evicted:
        rate = evicted / max(1.0, facts.number("uptime_in_seconds") or 1.0)
        keys = counted(int(evicted), "key")
        figure += f"; {keys} evicted since the server started, {rate:,.1f}/s"
    what = "keys with an expiry" if policy.startswith("volatile") else "other keys"
    return Verdict(
        "eviction-near", "note", f"Memory is nearly full: writes will evict {what}",
        figure,
        "Nothing, if this is a cache. To keep all keys of a load, raise maxmemory by what the "
        "load needs (see fastresp load --dry-run), or set maxmemory-policy noeviction, and writes "
        "fail instead.",
        "none for a cache", EVICTION,
    )  # fmt: skip


def evicted(found: Findings) -> Verdict | None:
    """Check whether keys were evicted during a watch; earlier evictions may be irrelevant."""
    use = found.use
    if use is None or not use.watched or not use.evicted:
        return None
    share = use.evicted / max(1, use.commands)
    return Verdict(
        "evicted", "advice" if share >= MIN_EVICTED_SHARE else "note",
        "Keys are being evicted (maxmemory reached)",
        f"{counted(use.evicted, 'key')} evicted in {use.seconds:,.1f} s, {min(1.0, share):.0%} of "
        f"the commands; policy {found.facts.info.get('maxmemory_policy', 'unknown')}",
        "Raise maxmemory if you need these keys: part of the loaded data is gone. Each eviction "
        "also slows a write down.",
        "more reads find their key", EVICTION,
    )  # fmt: skip


def swap(found: Findings) -> Verdict | None:
    """Check whether server memory is in swap, as the kernel reports or INFO suggests."""
    facts = found.facts
    advice = (
        "Free memory on the server's machine, or lower maxmemory below its RAM: reading a page "
        "from disk takes as long as thousands of commands."
    )
    if facts.swapped is not None and facts.swapped >= MIN_SWAPPED_BYTES:
        resident = facts.number("used_memory_rss") or facts.number("used_memory") or 0.0
        share = facts.swapped / (resident + facts.swapped)
        few = share < MIN_SWAPPED_SHARE
        return Verdict(
            "swap", "note" if few else "problem",
            f"A {'small ' if few else ''}part of the server's memory is in swap",
            f"{size_text(facts.swapped)} of process {facts.info.get('process_id')} (VmSwap), "
            f"{share:.1%} of it",
            "Nothing, while the amount is small: these pages are not in use."
            if few
            else advice,
            "none" if few else "the rate without swap", LATENCY,
        )  # fmt: skip
    ratio, used = facts.number("mem_fragmentation_ratio"), facts.number("used_memory")
    if ratio is None or used is None or used < SWAP_MEMORY_BYTES or not 0 < ratio < SWAP_RATIO:
        return None
    if facts.swapped is not None:
        return None  # the kernel's figure shows no swap, whatever the ratio suggests
    return Verdict(
        "swap", "advice", "A part of the server's memory may be in swap",
        f"mem_fragmentation_ratio {ratio:.2f}: less memory is resident than in use "
        f"({size_text(used)})",
        "Check VmSwap in /proc/<pid>/status on the server's machine. " + advice,
        "the rate without swap", INFO,
    )  # fmt: skip


def io_threads(found: Findings) -> Verdict | None:
    """Check for more I/O threads than cores, and for a server whose only thread is busy."""
    facts, use = found.facts, found.use
    threads = int(facts.config.get("io-threads", 0) or 0)
    if not threads or not facts.cores:
        return None
    if threads > max(1, facts.cores):
        return Verdict(
            "io-threads-many", "advice", "The server has more I/O threads than cores",
            f"io-threads {threads}, {counted(facts.cores, 'core')}",
            f"Set io-threads to {max(1, facts.cores - 1)} in redis.conf and restart: threads that "
            "wait for each other take the core from the one that runs commands.",
            "not measured", REDIS_CONF,
        )  # fmt: skip
    busy = use is not None and use.watched and use.cpu is not None and use.cpu / use.seconds
    if threads == 1 and facts.cores >= MIN_CORES_FOR_THREADS and busy and busy >= BUSY_SHARE:
        return Verdict(
            "io-threads-one", "advice", "The server's only thread is busy",
            f"{busy:.0%} of a core; io-threads 1, {counted(facts.cores, 'core')}",
            f"Set io-threads to {min(8, facts.cores - 1)} in redis.conf and restart.",
            "up to 2x, over several connections", REDIS_CONF, 2.0,
        )  # fmt: skip
    return None


def replicas(found: Findings) -> Verdict | None:
    """Report the replicas, and check whether they keep up with the writes."""
    facts = found.facts
    count = int(facts.number("connected_slaves") or 0)
    if not count:
        return None
    copying, late = [], []
    end, limit = facts.number("master_repl_offset") or 0.0, _replica_limit(facts)
    for name, text in facts.info.items():
        if not re.fullmatch(r"slave\d+", name):
            continue
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        address = f"{fields.get('ip')}:{fields.get('port')}"
        lag, behind = int(fields.get("lag") or 0), end - float(fields.get("offset") or end)
        if fields.get("state", "online") != "online":
            copying.append(f"{address} is in state {fields['state']}")
        elif lag > MAX_LAG_S or behind > limit:
            late.append(f"{address} is {lag} s and {size_text(behind)} behind")
    backlog = facts.number("repl_backlog_size") or 0.0
    figure = f"{counted(count, 'replica')}, backlog {size_text(backlog)}"
    figure = "; ".join((figure + _backlog_lasts(found, backlog), *late, *copying))
    title = "Every write is sent to replicas"
    grade: Grade = "note"
    advice = (
        "Nothing, while they keep up. A replica that is disconnected for longer than the backlog "
        "lasts needs a full resync, for which the server forks; if that happens, raise "
        "repl-backlog-size."
    )
    if late:
        title, grade = "A replica does not keep up", "problem"
        advice = (
            "Check its machine and the network. Beyond client-output-buffer-limit for replicas "
            "the server closes the connection, and the replica needs a full resync."
        )
    elif copying:
        title, grade = "A replica is receiving a full copy of the data", "advice"
        advice = "Delay a large load until it is online: the server has forked to copy its data."
    return Verdict(
        "replicas", grade, title, figure, advice, "not measured",
        REDIS_CONF if late else REPLICATION,
    )  # fmt: skip


def _replica_limit(facts: Facts) -> float:
    """Return how many bytes a replica may be behind: the soft limit or, if 0, the hard limit."""
    text = facts.config.get("client-output-buffer-limit", "")
    limits = re.search(r"(?:slave|replica) (\d+) (\d+)", text)
    if limits is None:
        return MAX_LAG_BYTES
    hard, soft = map(int, limits.groups())
    return soft or hard or float("inf")


def _backlog_lasts(found: Findings, backlog: float) -> str:
    use, measured = found.use, found.measured
    if use is not None and use.watched and use.per_second(use.replicated) >= 1:
        return f": {backlog / use.per_second(use.replicated):,.1f} s at the watched write rate"
    if measured and measured.load:
        lasts = backlog / (measured.load * REPLICATED_BYTES)
        return f": {lasts:,.2f} s at the measured load rate"
    return ""


def replica_nagle(found: Findings) -> Verdict | None:
    facts = found.facts
    delayed = facts.config.get("repl-disable-tcp-nodelay") == "yes"
    if not delayed or not facts.number("connected_slaves"):
        return None
    return Verdict(
        "replica-nagle", "note", "Writes reach replicas late, in fewer packets",
        "repl-disable-tcp-nodelay yes",
        "CONFIG SET repl-disable-tcp-nodelay no, unless bandwidth to the replicas is scarce.",
        "writes reach replicas, and WAIT returns, up to 40 ms earlier", REDIS_CONF,
    )  # fmt: skip


def replica(found: Findings) -> Verdict | None:
    """Check whether the server is a replica.

    This is only a note if the server was only watched, and is connected to its primary.
    """
    facts, watched = found.facts, found.measured is None
    if not facts.replica:
        return None
    primary = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
    link = facts.info.get("master_link_status", "up")
    figure = f"replica of {primary}; the link to it is {link}"
    if facts.primary_down:
        return Verdict(
            "is-replica", "problem", "This server is a replica, and its primary can't be reached",
            figure,
            "If a load with mode=\"replicate\" was killed, or the primary will not return: "
            "REPLICAOF NO ONE.",
            "the server accepts writes", REPLICATION,
        )  # fmt: skip
    return Verdict(
        "is-replica", "note" if watched and link == "up" else "problem",
        "This server is a replica: load into its primary", figure,
        f"Load into its primary, {primary}.",
        "the load succeeds", REPLICATION,
    )  # fmt: skip


def slow_commands(found: Findings) -> Verdict | None:
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
    figure += f", sent by {row.client}" if row.client else ""
    figure += f"; {row.complexity}" if row.complexity else ""
    if len(rows) > 1:
        figure += "; also " + ", ".join(f"{each.name} ({each.times})" for each in rows[1:4])
    share = _share(use, {each.name.lower() for each in rows})
    often = watched or any(each.times >= SLOW_TIMES for each in rows)
    grade: Grade = "advice" if often else "note"
    gain = None
    if share is not None:
        figure += (
            f"; {share:.1%} of the {'watched time' if watched else 'time since the server started'}"
        )
        # Unless the server was watched, the entries may be old, or the server mostly idle.
        if watched and share >= MIN_SLOW_SHARE:
            grade, gain = "problem", 1 / (1 - min(0.9, share))
    advice = "; ".join(dict.fromkeys(map(_instead, rows[:4])))
    return Verdict(
        "slow-commands", grade, "Slow commands block all others", figure,
        f"{advice[0].upper()}{advice[1:]}.",
        "other commands no longer wait"
        + (f", up to {gain:.1f}x the rate" if gain else "")
        + ("" if watched else "; --watch shows how much time they take now"),
        LATENCY, gain,
    )  # fmt: skip


def _instead(row: Slow) -> str:
    if row.name in REPLACEMENTS:
        return f"use {REPLACEMENTS[row.name]}"
    if row.complexity.startswith("O("):
        return f"use {row.name} with fewer elements per call"
    return f"check why {row.name} is slow"


def _share(use: Use | None, names: set[str]) -> float | None:
    """Return the share of time that these commands took; None if INFO does not report it."""
    if use is None or not use.calls:
        return None
    # INFO counts a subcommand as command|subcommand.
    taken = sum(u for name, (_, u) in use.calls.items() if name.partition("|")[0] in names)
    return taken / (use.seconds * 1e6)


def spikes(found: Findings) -> Verdict | None:
    """Check the server's latency monitor for spikes that commands did not cause."""
    events = {
        name: ms for name, ms in found.facts.latency.items()
        if ms >= MIN_SPIKE_MS and not name.endswith("command")
    }  # fmt: skip
    if not events:
        return None
    name = max(events, key=lambda each: events[each])
    return Verdict(
        "latency-spikes", "advice", f"The server was blocked by {name}",
        "longest in the last 24 hours: "
        + ", ".join(f"{each} {events[each]:,.0f} ms" for each in sorted(events)),
        "Run LATENCY DOCTOR on the server: it explains these events.",
        "not measured",
        f"Redis documentation, latency monitoring: {MANAGEMENT}optimization/latency-monitor/",
    )  # fmt: skip


def old_version(found: Findings) -> Verdict | None:
    facts: Facts = found.facts
    numbers = facts.version_numbers
    if not numbers or numbers >= OLD_VERSIONS[facts.product]:
        return None
    missing = "hashes and lists as listpacks, a multi-part AOF that is not written twice (7.0)"
    if facts.product == "Valkey":
        missing = "I/O threads that also parse and write (8.0)"
    elif numbers < (6, 2):
        missing = "LPOP and RPOP with a count (6.2), " + missing
    if facts.product == "Redis" and numbers < (6, 0):
        missing = "I/O threads (6.0), " + missing
    return Verdict(
        "old-version", "advice", "The server's version is old",
        f"{facts.product} {facts.version}", f"Upgrade. It lacks: {missing}.", "not measured",
        RELEASES[facts.product],
    )  # fmt: skip


def faults(found: Findings) -> Verdict | None:
    """Check for known faults that affect any load."""
    known = [each for each in faults_of(found.facts.info, found.facts.config) if each.affects(())]
    if not known:
        return None
    certain = any(not each.unknown for each in known)
    return Verdict(
        "known-faults", "problem" if certain else "note",
        "Loads hit a known fault of this version",
        *_described(known, "loads don't hang or fail"),
    )  # fmt: skip


def command_faults(found: Findings) -> Verdict | None:
    """Check for known faults that affect only loads with certain commands."""
    every = faults_of(found.facts.info, found.facts.config)
    known = [each for each in every if not each.affects(())]
    if not known:
        return None
    return Verdict(
        "faulty-commands", "note", "Some commands have known faults in this version",
        *_described(known, "none for other commands"),
    )  # fmt: skip


def _described(known: Sequence[FoundFault], expected: str) -> tuple[str, str, str, str]:
    """Return the figure, the advice, the gain and the source of a verdict on faults."""
    figures, advice = [], []
    for each in known:
        fault = each.fault
        unknown = f"; {each.unknown} could not be read" if each.unknown else ""
        figures.append(
            f"{'copies: ' if fault.uses == PAYLOADS else ''}{fault.effect} "
            f"({fault.code}, {each.name}{unknown})"
        )
        text = str(each.advice()) or f"read {fault.code}"
        advice.append(text[0].upper() + text[1:] + ".")
    first = known[0].fault
    source = f"{first.code}: {first.source}"
    return "; ".join(figures), " ".join(dict.fromkeys(advice)), expected, source


def forks(found: Findings) -> Verdict | None:
    """Check how often the server would fork during a load."""
    facts, measured = found.facts, found.measured
    rate = (measured.load if measured else None) or ASSUMED_RATE
    load = Expected(round(rate * LOAD_S), round(rate * LOAD_S * REPLICATED_BYTES), 0, LOAD_S)
    forecast = forecast_of(facts.info, facts.config, load, facts.now)
    times = forecast.saves + forecast.rewrites
    if times < 2 or forecast.save_seconds < MIN_SAVE_S:
        return None
    share = times * forecast.save_seconds / LOAD_S
    causes = [f"save {forecast.rule}"] if forecast.saves else []
    causes += ["auto-aof-rewrite-percentage"] if forecast.rewrites else []
    length, last = length_text(forecast.save_seconds), forecast.last_memory
    return Verdict(
        "forks", "advice" if share >= MIN_SAVING_SHARE else "note",
        "The server would fork several times during a load",
        f"{' and '.join(causes)}: about {times} forks in a load of {LOAD_S // 60} minutes with "
        f"{rate:,.0f} commands per second; each saves for about {length} and "
        f"needs up to {size_text(forecast.memory)} more memory (copy-on-write"
        + (f", {size_text(last)} in the last save)" if last else ")"),
        "fastresp load --pause-saves switches these saves off during the load. After the load, run "
        "BGSAVE.",
        "not measured", PERSISTENCE,
    )  # fmt: skip


SERVER_RULES: tuple[Rule, ...] = (
    faults, aof_always, saves_paused, memory, evicted, swap, io_threads, replicas, replica_nagle,
    replica, slow_commands, spikes, forks, old_version, command_faults,
)  # fmt: skip
