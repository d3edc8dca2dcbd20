"""The texts and tables of other pages that quote the run.

A page has ``<!-- published: NAME -->``, the text of that name, and ``<!-- end -->``; the comments
are invisible when the page is shown. A ratio is the median of the rounds, with its range.
"""

from __future__ import annotations

from collections.abc import Callable

from .data import NotMeasured, Results
from .figures import Claim, table
from .measures import Measure, by_server_cpu, cpu_ratio, each, faster, longer, peak, rate, whole
from .plan import lanes, largest, plan

WAYS = {
    "redis-py pipeline": "redis-py, pipelines of 1,000",
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
    """Return the table of whole loads: the one that readers look for first."""
    rows, figures = [], {}
    for number, (way, words) in enumerate(WAYS.items()):
        cells = [words]
        for kind in ("SET", "HSET"):
            figures[f"{kind}{number}"] = rate("ways", f"{kind} {way}")
            figures[f"{kind}{number}x"] = against_redis_py(kind, way)
            cells += [f"{{{kind}{number}:rate}}", f"{{{kind}{number}x:x}}" if number else "1"]
        rows.append(cells)
    headings = ("rows per second", "SET, 129 bytes", "vs redis-py", "HSET, 5 fields", "vs redis-py")
    return Claim(table(headings, rows), figures)


def past(mode: str, kinds: dict[str, str], heading: str) -> Claim:
    """Return a table of merged or serialised loads, against redis-cli with a ready-made file."""
    figures = {
        f"{kind}-{source}": against_file(kind, f"{mode}, {source}")
        for kind in kinds
        for source in SOURCES
    }
    rows = [
        [words, *(f"{{{kind}-{source}:x}}" for source in SOURCES)] for kind, words in kinds.items()
    ]
    return Claim(table((heading, "from dicts", "from Arrow columns"), rows), figures)


def redis_py() -> Claim:
    """Return the table of redis-py with another packer."""
    parts = {
        "pack_commands": "`pack_commands`",
        "execute": "`execute()` as a whole",
        "execute in asyncio": "`execute()` in asyncio",
    }
    others = {"redis-py, Python": "redis-py", "redis-py, hiredis": "redis-py with hiredis"}
    rows, figures = [], {}
    for part, words in parts.items():
        cells = [words]
        for number, other in enumerate(others):
            if part == "execute in asyncio" and "hiredis" in other:
                cells.append("packs in Python")
                continue
            figures[f"{part}{number}"] = each("redis_py", f"{part}, {other}")
            pair = f"{part}, {other}", f"{part}, fastresp"
            figures[f"{part}{number}x"] = longer("redis_py", "redis_py", *pair)
            cells.append(f"{{{part}{number}:us}}, {{{part}{number}x:x}}")
        figures[part] = each("redis_py", f"{part}, fastresp")
        rows.append([*cells, f"{{{part}:us}}"])
    return Claim(table(("per command", *others.values(), "fastresp"), rows), figures)


def checkpoints() -> Claim:
    """Return the table of the server's CPU time with a checkpoint."""
    names = ("INCRBY", "RPUSH", "HSETNX", "HSET")
    places = ("", " into a cluster")
    figures = {
        f"{name}{place}": cpu_ratio("checkpoint", f"{name}{place}, checkpoint", f"{name}{place}")
        for name in names
        for place in places
    }
    rows = [
        ["HSET, no transactions" if name == "HSET" else name]
        + [f"{{{name}{place}:x}}" for place in places]
        for name in names
    ]
    return Claim(table(("", "one server", "three nodes"), rows), figures)


def against_redis_py(kind: str, way: str) -> Measure:
    return faster("ways", f"{kind} {way}", f"{kind} redis-py pipeline")


def against_file(kind: str, way: str) -> Measure:
    return faster("past", f"{kind} fastresp {way}", f"{kind} no generation")


def pops(ours: str, native: str = "pop C lrange 1000") -> Measure:
    return faster("lists", ours, native)


def peers(row: str) -> Measure:
    """Return what computes a rate / that of a redis-py pipeline, of SETs over a unix socket."""
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
        "`adbc_ingest` took {adbc:s}, and `HSET users:{{id}} {{**}}` {ours:s}: {ratio:x} as long, "
        "with {server:x} the server's CPU time and {client:x} the client's.",
        {
            "adbc": whole("peers", ADBC[0], "peers HSET, TCP"),
            "ours": whole("peers", ADBC[1], "peers HSET, TCP"),
            "ratio": faster("peers", ADBC[1], ADBC[0], "peers HSET, TCP"),
            "server": cpu_ratio("peers", *ADBC, "peers HSET, TCP"),
            "client": cpu_ratio("peers", *ADBC, "peers HSET, TCP", "client_cpu"),
        },
    ),
    "pops": Claim(
        table(
            ("", "vs LRANGE and LTRIM of 1,000 in C"),
            [
                ["`pop(1000)`: one request at a time", "{pop:x}"],
                ["`pop_arrow(1000)`", "{pop_arrow:x}"],
                ["`drain()`: several requests in flight", "{drain:x}"],
            ],
        ),
        {name: pops(f"pop fastresp {name}") for name in ("pop", "pop_arrow", "drain")},
    ),
    "pop-ratio": Claim("{ratio:x}", {"ratio": pops("pop fastresp pop", "pop C lrange 100")}),
    "push-ratio": Claim("{ratio:x}", {"ratio": PUSHES}),
    "redis-py-packer": redis_py(),
    "checkpoints": checkpoints(),
    "checkpoints-in-a-cluster": Claim(
        "{INCRBY:plain} (INCRBY), {RPUSH:plain} (RPUSH) and {HSETNX:plain} (HSETNX)",
        {
            name: longer(
                "checkpoint",
                "checkpoint",
                f"{name} into a cluster, checkpoint",
                f"{name} into a cluster",
            )
            for name in ("INCRBY", "RPUSH", "HSETNX")
        },
    ),
    "lanes": lanes,
    "largest-load": largest,
    "plan": plan,
}

# The main results, below the charts of the benchmarks' page: the name of a text, and its sentence.
FINDINGS = {
    "server-limit": "**Loads**: the server is the limit. Wall time / the server's CPU time is {}.",
    "merged-ratio": "**Merged**, vs `redis-cli --pipe` with a ready-made file: {}.",
    "serialised-ratio": "**Serialised**, vs the same: {}.",
    "encode": "**Encoding** a SET of 129 bytes takes {}.",
    "queues": "**Queues**: {}.",
    "memory": "**Memory** grows by {}.",
}
