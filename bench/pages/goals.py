"""The project's goals: what is measured, and the bound of each."""

from __future__ import annotations

from .goal import Goal
from .measures import (
    Measure,
    beyond_engine,
    by_rdb_file,
    by_server_cpu,
    cost_of_more,
    cpu_ratio,
    each,
    faster,
    growth,
    longer,
    megabytes,
    more_time,
    peak,
    rate,
    whole_cluster,
)


def at_most(
    area: str, what: str, measure: Measure, bound: float, unit: str = "x", operations: int = 0
) -> Goal:
    return Goal(area, what, measure, bound, unit, True, operations)


READY = "against the ready-made file"
PARQUET = "Parquet, 5,000,000 rows of 10 columns"
MILLION = 1_000_000
KINDS = ("SET", "LPUSH")
PERCENT, HIREDIS = ("substitution %", "`%`"), ("hiredis.pack_command", "`hiredis.pack_command`")
NAMED = ("format, named fields", "`str.format` with named fields")
MEMCPY = ("memcpy", "`memcpy` of the same bytes between two large buffers")
PACKER = ("redis-py pack_commands", "redis-py's packer")

ENCODE = [
    Goal(
        "Encode",
        f"{kind}, rows of tuples, against {name}",
        faster("encode", f"{kind} fastresp rows", f"{kind} {row}"),
        bound,
    )
    for kind in KINDS
    for (row, name), bound in ((PERCENT, 9), (NAMED, 30), (HIREDIS, 12))
]
COLUMNS = [
    Goal(
        "Arrow columns",
        f"{kind}, against {name}",
        faster("columns", f"{kind} fastresp columns", f"{kind} {row}"),
        bound,
    )
    for kind, (row, name), bound in (
        ("strings", PERCENT, 18),
        ("strings", HIREDIS, 28),
        ("strings", MEMCPY, 1),
        ("ints", PERCENT, 15),
        ("floats", PERCENT, 8),
        ("embedding", PACKER, 20),
    )
]


def push(over: str, file: str, kind: str, bounds: dict[str, float]) -> list[Goal]:
    """Return the goals of whole loads by transport, and of what they cost the server."""
    area, socket, ready = f"Push, {over}", f"{kind} fastresp socket", f"{kind} no generation"
    rates = [
        Goal(
            area,
            f"{kind}, `mass_insert` through {transport}, {READY}",
            faster(file, f"{kind} fastresp {transport}", ready),
            bound,
        )
        for transport, bound in bounds.items()
    ]
    what = f"{kind}, wall time / server CPU time over the socket"
    goals = [*rates, at_most(area, what, by_server_cpu(file, socket), 1.03)]
    if over == "TCP":
        what = f"{kind}, client CPU time with encoding, against redis-cli's alone"
        cpu = cpu_ratio(file, socket, ready, detail="client_cpu")
        goals.append(at_most(area, what, cpu, 0.6))
    return goals


PUSH = [
    *push("unix socket", "push", "SET", {"redis-cli": 0.97, "socket": 1.0}),
    *push("unix socket", "push", "LPUSH", {"redis-cli": 0.97, "socket": 1.2}),
    *(goal for kind in KINDS for goal in push("TCP", "push-tcp", kind, {"socket": 1.0})),
]

PAST = "Past the ready-made file"
MERGED = {"LPUSH": 2.2, "RPUSH": 2.2, "SADD": 1.25, "SET": 1.15}
SERIALISED = {
    "hashes of 10": ("200,000 hashes of 10 fields", 1.8),
    "hashes of 30": ("200,000 hashes of 30 fields", 3.0),
    "SADD": ("one set of 1,000,000", 4.0),
    "ZADD": ("one sorted set of 1,000,000", 4.0),
    "HSET": ("one hash of 1,000,000", 3.0),
}
# By row of past.py: what it is called, and the bound.
LOADS = {
    **{
        (kind, f"merged, {source}"): (kind, bound)
        for kind, bound in MERGED.items()
        for source in ("rows", "columns")
    },
    **{(kind, "serialised, columns"): named for kind, named in SERIALISED.items()},
}
PAST_GOALS = [
    *(
        Goal(
            PAST,
            f"{what}, {mode.replace(', ', ', from ')}, {READY}",
            faster("past", f"{kind} fastresp {mode}", f"{kind} no generation"),
            bound,
        )
        for (kind, mode), (what, bound) in LOADS.items()
    ),
    *(
        at_most(
            PAST,
            f"{what}, {mode.replace(', ', ', from ')}, client CPU time / server CPU time",
            by_server_cpu("past", f"{kind} fastresp {mode}", "client_cpu"),
            1.0,
        )
        for (kind, mode), (what, _) in LOADS.items()
        if mode.endswith("columns")
    ),
    *(
        at_most(
            PAST,
            f"{kind}, PING's 99th percentile during a merged load / during single commands",
            longer("stall", "stall", f"{kind} merge", f"{kind} commands"),
            2.0,
        )
        for kind in ("RPUSH", "SADD", "HSET", "SET")
    ),
]

ONE, TEN = "one request of 1,000 at a time", "ten requests of 1,000 in flight"
BY_100, BY_1000 = (f"LRANGE and LTRIM of {items} in C" for items in ("100", "1,000"))
# The goals are for batches of 1,000, against a C client that waits for each; ten in flight are
# compared with ten in flight, and have no goal.
BY_TEN = ("pop C lrange 10x1000", f"{BY_1000}, ten in flight", None)
LISTS = [
    Goal(
        "Lists",
        f"{what}, against {other}",
        faster("lists", f"{native.partition(' ')[0]} fastresp {row}", native),
        bound,
    )
    for row, what, (native, other, bound) in (
        ("pop", f"pop, {ONE}", ("pop C lrange 100", BY_100, 3.0)),
        ("pop", f"pop, {ONE}", ("pop C lrange 1000", BY_1000, 1.1)),
        ("pop 10000", f"pop, {TEN}", BY_TEN),
        ("pop_arrow", f"pop_arrow, {ONE}", ("pop C lrange 1000", BY_1000, 1.25)),
        ("pop_arrow 10000", f"pop_arrow, {TEN}", BY_TEN),
        ("push", "push", ("push C lpush-pipeline", "LPUSH in C, 1,000 in a pipeline", 2.5)),
    )
]

# By the name of their row, for the columns of other tables.
CHECKPOINTS = {
    f"{name}, checkpoint": at_most(
        "Checkpoints",
        f"{name} with a checkpoint, server's CPU time",
        cpu_ratio("checkpoint", f"{name}, checkpoint", name),
        bound,
        operations=MILLION,
    )
    for name, bound in {"INCRBY": 1.15, "RPUSH": 1.10, "HSETNX": 1.10, "HSET": 1.01}.items()
}
VERIFIED = {
    f"{name}, verify": Goal(
        "Verification",
        f"{name} from columns, rate / rate of the load",
        faster("verify", "verify", "load", f"verify {name}"),
        0.5,
        operations=MILLION,
    )
    for name in ("SET", "SET EX", "HSET", "SADD", "ZADD", "RPUSH")
}
DROPPED = "Spark to a sink that drops it"
WRITTEN = {
    "Spark into one server": DROPPED,
    "Spark into 3+3 nodes": f"{DROPPED}, beside the cluster",
}
ENGINES = {
    row: at_most(
        "Engines",
        f"{row}, time / (servers' CPU time + time of a sink that drops all)",
        beyond_engine(row, dropped),
        1.15,
        operations=2 * MILLION,
    )
    for row, dropped in WRITTEN.items()
} | {
    "Spark reads, fastresp": Goal(
        "Engines",
        "Spark reads hashes, rate / a redis-py pipeline in mapPartitions",
        faster("engines", "Spark reads, fastresp", "Spark reads, redis-py in mapPartitions"),
        3,
        operations=2 * MILLION,
    )
}
SLOTS = {
    f"{kind}, 8 bytes, 3 nodes": at_most(
        "Scale",
        f"what the slots of 3 nodes cost an encoder, SET of 8 bytes from {kind}",
        more_time(f"{kind}, 8 bytes, 3 nodes", f"{kind}, 8 bytes, without slots"),
        *(12, "ns", 1),
    )
    for kind in ("rows", "columns")
}
FLOOR = "CPU time of the slowest node, or time of three `redis-cli --pipe`"
SIZES = "100,000,000 into a sink", "1,000,000 into a sink"
SCALE = [
    *(
        at_most(
            "Scale",
            f"1,000,000 {kind} into 3+3 nodes of a cluster, time / {FLOOR}",
            whole_cluster(f"3+3 fastresp {kind}", "3+3 redis-cli --pipe"),
            1.05,
            operations=MILLION,
        )
        for kind in ("rows", "columns")
    ),
    *SLOTS.values(),
    at_most(
        "Scale",
        "CPU time per command, 100,000,000 commands against 1,000,000",
        cost_of_more(*SIZES),
        1.05,
        operations=1,
    ),
    at_most(
        "Scale",
        "greatest memory, 100,000,000 commands less 1,000,000",
        growth(*SIZES),
        *(8, "MiB", 1),
    ),
    *(
        Goal(
            "Scale",
            f"SET of 8 bytes from columns into sinks, {where}",
            rate("scale", f"columns, 8 bytes, {where}", "scale lanes", 1e-6),
            *(10, "million/s"),
            operations=MILLION,
        )
        for where in ("no cluster", "1 node", "2 nodes", "4 nodes", "8 nodes")
    ),
]
BY_MASS_INSERT = "10,000,000 commands by `mass_insert` through {}, growth from the start"
MEMORY = {
    "mass_insert, redis-cli": (BY_MASS_INSERT.format("redis-cli"), 32),
    "mass_insert, socket": (BY_MASS_INSERT.format("socket"), 32),
    "ListBuffer, push and drain": (
        "10,000,000 items pushed and drained by `ListBuffer`, the whole process",
        64,
    ),
}

GOALS: tuple[Goal, ...] = (
    *(*ENCODE, *COLUMNS),
    at_most("Replies", "one `+OK`, counted", each("replies", "+OK fastresp", 1e9), 3, "ns"),
    *(*PUSH, *PAST_GOALS),
    at_most(
        "Load",
        f"{PARQUET}, wall time / server CPU time",
        by_server_cpu("load", "parquet"),
        1.05,
        operations=5 * MILLION,
    ),
    at_most(
        "Load",
        f"{PARQUET}, peak memory",
        peak("load", "parquet", "peak_bytes"),
        *(256, "MiB", 5 * MILLION),
    ),
    Goal(
        "RDB file",
        f"{PARQUET}, written",
        megabytes("rdb", "written"),
        *(200, "MB/s"),
        operations=5 * MILLION,
    ),
    at_most(
        "RDB file",
        f"{PARQUET}, peak memory",
        peak("rdb", "written", "peak_bytes"),
        *(256, "MiB", 5 * MILLION),
    ),
    Goal(
        "RDB file",
        f"{PARQUET}, written and read at start, against `fastresp load` into a running server",
        by_rdb_file(),
        2,
        operations=5 * MILLION,
    ),
    Goal(
        "Load",
        "embeddings of 384 float32, against a redis-py pipeline",
        faster("load", "embedding fastresp", "embedding redis-py pipeline"),
        4,
    ),
    at_most(
        "Load",
        "CSV, 1,000,000 rows by the command line, wall time / server CPU time",
        by_server_cpu("load", "csv"),
        1.15,
        operations=MILLION,
    ),
    # 0.15 s and 0.25 s where ``python -c pass`` takes 0.02 s.
    *(
        at_most(
            "Start",
            f"`{what}`, against `python -c pass`",
            longer("load", "load start", f"start, {what}", "start, python -c pass"),
            bound,
        )
        for what, bound in (("fastresp --help", 7.5), ("fastresp load, one row", 12.5))
    ),
    *(*LISTS, *CHECKPOINTS.values(), *VERIFIED.values(), *ENGINES.values(), *SCALE),
    Goal(
        "Users",
        "10,000 users by `iter_replies`, against a redis-py pipeline with hiredis",
        faster("users", "iter_replies", "redis-py"),
        2,
    ),
    Goal(
        "Users",
        "10,000 users as Arrow columns, against the same pipeline",
        faster("users", "columns", "redis-py"),
        4,
    ),
    Goal(
        "redis-py",
        "`pack_commands` of 10,000 SETs, against redis-py with hiredis",
        faster("redis_py", "pack_commands, fastresp", "pack_commands, redis-py, hiredis"),
        20,
    ),
    *(
        at_most("Memory", what, peak("memory", f"fastresp {row}"), bound, "MiB", 10 * MILLION)
        for row, (what, bound) in MEMORY.items()
    ),
)
