"""Texts and tables, made from the published run, that other pages quote.

A page has ``<!-- published: NAME -->``, the text of that name, and ``<!-- end -->``; readers of the
page do not see the comments. A ratio is the median of the rounds, with its range.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from statistics import median

from results import Result

from .data import NotMeasured, NotRun, Results
from .figures import Claim, GridCell, grid, table
from .measures import Measure, by_server_cpu, cpu_ratio, each, faster, peak, rate, whole

BASE = "redis-py pipeline"
WAYS = {
    BASE: "redis-py, pipelines of 1,000",
    "substitution %": "`redis-cli --pipe`, fed by Python's `%` formatting",
    "no generation": "`redis-cli --pipe`, from a ready-made file",
    "fastresp, socket": "**fastresp, from dicts**",
    "fastresp, columns": "**fastresp, from Arrow columns**",
}
MERGED = {
    "RPUSH": "RPUSH onto one list",
    "LPUSH": "LPUSH onto one list",
    "SADD": "SADD to one set",
    "HSET": "HSET of one hash",
    "SET": "SET of many keys",
    "ZADD": "ZADD to one sorted set",
}
SERIALISED = {
    "hashes of 3": "hashes of 3 fields",
    "hashes of 10": "hashes of 10 fields",
    "hashes of 30": "hashes of 30 fields",
    "RPUSH": "one list of 1,000,000 elements of 129 bytes",
    "HSET": "one hash of 1,000,000 fields",
    "SADD": "one set of 1,000,000 numbers",
    "ZADD": "one sorted set of 1,000,000 members",
}
SOURCES = ("rows", "columns")


def ways() -> Claim:
    """Return the table of whole loads, which most readers look for."""
    headings = ("rows per second", "SET, 129 bytes", "vs redis-py", "HSET, 5 fields", "vs redis-py")

    def cells(kind: str, way: str) -> list[GridCell]:
        ratio: GridCell = "1" if way == BASE else [(against_redis_py(kind, way), "x")]
        return [[(rate("ways", f"{kind} {way}"), "rate")], ratio]

    return grid(
        headings, {words: cells("SET", way) + cells("HSET", way) for way, words in WAYS.items()}
    )


def past(mode: str, kinds: dict[str, str], heading: str) -> Claim:
    """Return a table of merged or serialised loads, against redis-cli with a ready-made file."""
    rows = {
        words: [[(against_file(kind, f"{mode}, {source}"), "x")] for source in SOURCES]
        for kind, words in kinds.items()
    }
    return grid((heading, "from dicts", "from Arrow columns"), rows)


def redis_py() -> Claim:
    """Return the table of redis-py with another packer."""

    def cell(part: str, other: str) -> GridCell:
        if part == "execute in asyncio" and "hiredis" in other:
            return "packs in Python"
        slower = f"{part}, {other}"
        ratio = faster("redis_py", f"{part}, fastresp", slower)
        return [(each("redis_py", slower), "us"), (ratio, "x")]

    parts = {
        "pack_commands": "`pack_commands`",
        "execute": "`execute()` as a whole",
        "execute in asyncio": "`execute()` in asyncio",
    }
    rows = {
        words: [
            cell(part, "redis-py, Python"),
            cell(part, "redis-py, hiredis"),
            [(each("redis_py", f"{part}, fastresp"), "us")],
        ]
        for part, words in parts.items()
    }
    return grid(("per command", "redis-py", "redis-py with hiredis", "fastresp"), rows)


def checkpoints() -> Claim:
    """Return the table of the server's CPU time with a checkpoint."""

    def cell(row: str) -> GridCell:
        return [(cpu_ratio("checkpoint", f"{row}, checkpoint", row), "x")]

    names = {"INCRBY": "INCRBY", "RPUSH": "RPUSH", "HSETNX": "HSETNX"}
    names["HSET"] = "HSET, no transactions"
    rows = {words: [cell(name), cell(f"{name} into a cluster")] for name, words in names.items()}
    return grid(("", "one server", "three nodes"), rows)


def against_redis_py(kind: str, way: str) -> Measure:
    return faster("ways", f"{kind} {way}", f"{kind} redis-py pipeline")


def against_file(kind: str, way: str) -> Measure:
    return faster("past", f"{kind} fastresp {way}", f"{kind} no generation")


def pops(ours: str, native: str = "pop C lrange 1000") -> Measure:
    return faster("lists", ours, native)


def peers(row: str) -> Measure:
    """Return the measure: rate / rate of a redis-py pipeline, for SETs over a unix socket."""
    return faster("peers", row, "redis-py, pipeline of 1,000", "peers SET")


def conditions(results: Results) -> str:
    """Say what was loaded where, and when."""
    run = results.machine.get("runs", {}).get("ways")
    if run is None:
        raise NotMeasured("machine.json does not have the run of ways.py")
    machine, count = results.machine, results.find("ways", "SET redis-py pipeline").operations
    return (
        f"{count:,} rows, Redis {run['versions']['redis-server']}, unix socket, "
        f"{machine['cores']} cores ({machine['cpu']}), {run['started'][:10]}. "
        "Ratios: median (range) of all rounds; rates: median of three groups' best rounds."
    )


KINDS = [f"{source}, {size} bytes" for source in ("rows", "columns") for size in (8, 129)]
PRIMARIES = 3
PLAN = """\
from math import ceil

# Measured by bench/scale.py.
node = {node:_}  # commands per second of a node, on its core
replicated = {replicated:_}  # the same, of a node with a replica
process = {process:_}  # commands per second of a process, into 100 nodes
command = {command:_}  # bytes of a command
key = {key:_}  # bytes of memory of a key

keys, nodes = 10**10, 100
rate = nodes * node
print(f"The nodes take {{keys / rate:,.0f}} s,")
print(f"with a replica each {{keys / nodes / replicated:,.0f}} s.")
print(f"{{ceil(rate / process)}} processes feed them.")
print(f"One process takes {{keys / process / 3600:,.1f}} hours.")
print(f"The network carries {{keys * command / 1e12:,.2f}} TB,")
print(f"{{rate * command * 8 / 1e9:,.0f}} Gbit/s in all,")
print(f"{{node * command * 8 / 1e9:,.2f}} Gbit/s to each node.")
print(f"Each node needs {{keys * key / nodes / 1e9:,.1f}} GB of memory.")
"""


def lanes(results: Results) -> str:
    """Return the table of the rates of one loader process, by number of nodes."""
    first = f"{KINDS[0]}, "
    rows = []
    results.find("scale", f"{first}100 nodes", table="scale lanes")
    for row in results.rows("scale lanes", "scale"):
        if row.row.startswith(first):
            nodes = row.row.removeprefix(first)
            rows.append([nodes, *(_lane(results, f"{kind}, {nodes}") for kind in KINDS)])
    return table(("Nodes", *KINDS), rows)


def _lane(results: Results, name: str) -> str:
    row = results.find("scale", name, table="scale lanes")
    speed = _by_loader(row)
    return f"{speed / 1e6:.3g} M/s, {speed * median(row.of('command_bytes')) / 1e6:,.0f} MB/s"


def _by_loader(row: Result) -> float:
    """Return the commands / the CPU time of the loader: its rate if it has a core of its own."""
    return row.operations / median(row.of("client_cpu"))


def largest(results: Results) -> str:
    if "scale" not in results:
        raise NotRun("scale.py was not run")
    most = max(results.rows("scale commands", "scale"), key=lambda row: row.operations)
    if not most.values:
        raise NotMeasured(most.reason)
    peaks = most.by_round("peak").values()
    return f"{most.operations:,} commands needs {max(peaks) / 2**20:,.0f} MiB"


def plan(results: Results) -> str:
    """Return a program that computes the cost of 10^10 keys, and its output."""
    lane = results.find("scale", "columns, 129 bytes, 100 nodes", table="scale lanes")
    alone, replicated = (
        results.find("scale", f"{setup} fastresp columns", table="scale cluster")
        for setup in ("3+0", "3+3")
    )
    found = {
        "node": _by_node(alone),
        "replicated": _by_node(replicated),
        "process": _by_loader(lane),
        "command": median(lane.of("command_bytes")),
        "key": median(alone.of("key_bytes")),
    }
    code = PLAN.format(**{name: int(float(f"{number:.3g}")) for name, number in found.items()})
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    return f"```python\n{code}```\n\n```text\n{printed.getvalue()}```"


def _by_node(row: Result) -> float:
    """Return the commands of a node / the CPU time of the slowest node."""
    return row.operations / PRIMARIES / median(row.of("node_cpu"))


PUSHES = pops("push fastresp push", "push C lpush-pipeline")
ADBC = "adbc_ingest, Arrow table", "fastresp mass_insert, Arrow table"

CLAIMS: dict[str, Claim | Callable[[Results], str]] = {
    "conditions": conditions,
    "ways": ways(),
    "redis-py-ratio": Claim(
        "{set:x} for SET, {hset:x} for HSET, from dicts",
        {
            "set": against_redis_py("SET", "fastresp, socket"),
            "hset": against_redis_py("HSET", "fastresp, socket"),
        },
    ),
    "merged-ratio": Claim(
        "RPUSH {columns:x} from Arrow columns, {rows:x} from dicts",
        {source: against_file("RPUSH", f"merged, {source}") for source in SOURCES},
    ),
    "serialised-ratio": Claim(
        "hashes of 30 fields {columns:x} from Arrow columns, {rows:x} from dicts",
        {source: against_file("hashes of 30", f"serialised, {source}") for source in SOURCES},
    ),
    "server-limit": Claim(
        "{set:x} for SET, {hset:x} for HSET, from dicts",
        {
            "set": by_server_cpu("ways", "SET fastresp, socket"),
            "hset": by_server_cpu("ways", "HSET fastresp, socket"),
        },
    ),
    "encode": Claim(
        "{ours:ns} from tuples; `hiredis.pack_command` takes {hiredis:x} as long, formatting with "
        "`%` {percent:x}",
        {
            "ours": each("encode", "SET fastresp rows"),
            "hiredis": faster("encode", "SET fastresp rows", "SET hiredis.pack_command"),
            "percent": faster("encode", "SET fastresp rows", "SET substitution %"),
        },
    ),
    "queues": Claim(
        "`ListBuffer.pop(1000)` has {pop:x} the rate of LRANGE and LTRIM of 1,000 in C, `push` "
        "{push:x} the rate of pipelined LPUSH in C",
        {"pop": pops("pop fastresp pop"), "push": PUSHES},
    ),
    "memory": Claim(
        "{memory:MiB} for 10,000,000 rows",
        {"memory": peak("memory", "fastresp mass_insert, socket")},
    ),
    "merged": past("merged", MERGED, "1,000,000 rows"),
    "serialised": past("serialised", SERIALISED, "Data"),
    "peers": Claim(
        "valkey-glide {glide:x}, with its mset {glide_mset:x}; redis-py's mset {mset:x}; "
        "coredis {coredis:x}; fastresp {ours:x}",
        {
            "glide": peers("valkey-glide, asyncio, batch of 1,000"),
            "glide_mset": peers("valkey-glide, asyncio, mset of 1,000"),
            "mset": peers("redis-py, mset of 1,000"),
            "coredis": peers("coredis, asyncio, pipeline of 1,000"),
            "ours": peers("fastresp mass_insert, socket"),
        },
    ),
    "adbc": Claim(
        "`HSET users:{{id}} {{**}}` took {ours:s}, and `adbc_ingest` {adbc:s}. `adbc_ingest` took "
        "{ratio:x} as long, and used {server:x} the server's and {client:x} the client's CPU time.",
        {
            "adbc": whole("peers", ADBC[0], "peers HSET, TCP"),
            "ours": whole("peers", ADBC[1], "peers HSET, TCP"),
            "ratio": faster("peers", ADBC[1], ADBC[0], "peers HSET, TCP"),
            "server": cpu_ratio("peers", *ADBC, "peers HSET, TCP"),
            "client": cpu_ratio("peers", *ADBC, "peers HSET, TCP", "client_cpu"),
        },
    ),
    "pops": grid(
        ("", "vs LRANGE and LTRIM of 1,000 in C"),
        {
            "`pop(1000)`: one request at a time": [[(pops("pop fastresp pop"), "x")]],
            "`pop_arrow(1000)`": [[(pops("pop fastresp pop_arrow"), "x")]],
            "`drain()`: several requests in flight": [[(pops("pop fastresp drain"), "x")]],
        },
    ),
    "pop-ratio": Claim("{ratio:x}", {"ratio": pops("pop fastresp pop", "pop C lrange 100")}),
    "push-ratio": Claim("{ratio:x}", {"ratio": PUSHES}),
    "redis-py-packer": redis_py(),
    "checkpoints": checkpoints(),
    "checkpoints-in-a-cluster": Claim(
        "{INCRBY:plain} (INCRBY), {RPUSH:plain} (RPUSH) and {HSETNX:plain} (HSETNX)",
        {
            name: faster(
                "checkpoint", f"{name} into a cluster", f"{name} into a cluster, checkpoint"
            )
            for name in ("INCRBY", "RPUSH", "HSETNX")
        },
    ),
    "lanes": lanes,
    "largest-load": largest,
    "plan": plan,
}

# The main results, below the charts of the benchmarks' page: a sentence for each name in CLAIMS.
FINDINGS = {
    "server-limit": "**Loads**: the server is the limit. Wall time / the server's CPU time is {}.",
    "merged-ratio": "**Merged**, vs `redis-cli --pipe` with a ready-made file: {}.",
    "serialised-ratio": "**Serialised**, vs the same: {}.",
    "encode": "**Encoding** a SET of 129 bytes takes {}.",
    "queues": "**Queues**: {}.",
    "memory": "**Memory** grows by {}.",
}
