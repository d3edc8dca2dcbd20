"""The project's goals: what is measured, and the bound of each."""

from __future__ import annotations

from .goal import Goal
from .measures import (
    beyond_engine,
    by_rdb_file,
    by_server_cpu,
    client_cpu,
    cost_of_more,
    cpu_ratio,
    faster,
    growth,
    longer,
    megabytes,
    more_time,
    nanoseconds,
    of_server_cpu,
    peak,
    rate,
    whole_cluster,
)

__all__ = ["CHECKPOINTS", "ENGINES", "GOALS", "HELD", "SLOTS", "VERIFIED"]

READY = "against the ready-made file"
PARQUET = "Parquet, 5,000,000 rows of 10 columns"
MILLION = 1_000_000

ENCODE = [
    Goal(
        "Encode",
        f"{kind}, rows of tuples, against {name}",
        faster("encode", f"{kind} fastresp rows", f"{kind} {row}"),
        bound,
    )
    for kind in ("SET", "LPUSH")
    for row, name, bound in (
        ("substitution %", "`%`", 9),
        ("format, named fields", "`str.format` with named fields", 30),
        ("hiredis.pack_command", "`hiredis.pack_command`", 12),
    )
]

COLUMNS = [
    Goal(
        "Arrow columns",
        f"{kind}, against {name}",
        faster("columns", f"{kind} fastresp columns", f"{kind} {row}"),
        bound,
    )
    for kind, row, name, bound in (
        ("strings", "substitution %", "`%`", 18),
        ("strings", "hiredis.pack_command", "`hiredis.pack_command`", 28),
        ("strings", "memcpy", "`memcpy` of the same bytes between two large buffers", 1),
        ("ints", "substitution %", "`%`", 15),
        ("floats", "substitution %", "`%`", 8),
        ("embedding", "redis-py pack_commands", "redis-py's packer", 20),
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
    return [*rates, Goal(area, what, by_server_cpu(file, socket), 1.03, at_most=True)]


def push_goals() -> list[Goal]:
    goals = push("unix socket", "push", "SET", {"redis-cli": 0.97, "socket": 1.0})
    goals += push("unix socket", "push", "LPUSH", {"redis-cli": 0.97, "socket": 1.2})
    for kind in ("SET", "LPUSH"):
        goals += push("TCP", "push-tcp", kind, {"socket": 1.0})
        what = f"{kind}, client CPU time with encoding, against redis-cli's alone"
        cpu = client_cpu("push-tcp", f"{kind} fastresp socket", f"{kind} no generation")
        goals.append(Goal("Push, TCP", what, cpu, 0.6, at_most=True))
    return goals


PAST = "Past the ready-made file"
MERGED = {"LPUSH": 2.2, "RPUSH": 2.2, "SADD": 1.25, "SET": 1.15}
SERIALISED = {
    "hashes of 10": ("200,000 hashes of 10 fields", 1.8),
    "hashes of 30": ("200,000 hashes of 30 fields", 3.0),
    "SADD": ("one set of 1,000,000", 4.0),
    "ZADD": ("one sorted set of 1,000,000", 4.0),
    "HSET": ("one hash of 1,000,000", 3.0),
}
LOADS = [
    *((kind, kind, "merged", source, bound) for kind, bound in MERGED.items()
      for source in ("rows", "columns")),
    *((kind, what, "serialised", "columns", bound) for kind, (what, bound) in SERIALISED.items()),
]  # fmt: skip
PAST_GOALS = [
    *(
        Goal(
            PAST,
            f"{what}, {mode}, from {source}, {READY}",
            faster("past", f"{kind} fastresp {mode}, {source}", f"{kind} no generation"),
            bound,
        )
        for kind, what, mode, source, bound in LOADS
    ),
    *(
        Goal(
            PAST,
            f"{what}, {mode}, from columns, client CPU time / server CPU time",
            of_server_cpu("past", f"{kind} fastresp {mode}, columns"),
            1.0,
            at_most=True,
        )
        for kind, what, mode, source, _ in LOADS
        if source == "columns"
    ),
    *(
        Goal(
            PAST,
            f"{kind}, PING's 99th percentile during a merged load / during single commands",
            longer("stall", "stall", f"{kind} merge", f"{kind} commands"),
            2.0,
            at_most=True,
        )
        for kind in ("RPUSH", "SADD", "HSET", "SET")
    ),
]

ONE, TEN = "one request of 1,000 at a time", "ten requests of 1,000 in flight"
BY_100, BY_1000 = (f"LRANGE and LTRIM of {items} in C" for items in ("100", "1,000"))
# The goals are for batches of 1,000, against a C client that waits for each; ten in flight are
# compared with ten in flight, and have no goal.
LISTS = [
    Goal(
        "Lists",
        f"{what}, against {other}",
        faster("lists", f"{native.partition(' ')[0]} fastresp {row}", native),
        bound,
    )
    for row, what, native, other, bound in (
        ("pop", f"pop, {ONE}", "pop C lrange 100", BY_100, 3.0),
        ("pop", f"pop, {ONE}", "pop C lrange 1000", BY_1000, 1.1),
        ("pop 10000", f"pop, {TEN}", "pop C lrange 10x1000", f"{BY_1000}, ten in flight", None),
        ("pop_arrow", f"pop_arrow, {ONE}", "pop C lrange 1000", BY_1000, 1.25),
        (
            "pop_arrow 10000",
            f"pop_arrow, {TEN}",
            "pop C lrange 10x1000",
            f"{BY_1000}, ten in flight",
            None,
        ),
        ("push", "push", "push C lpush-pipeline", "LPUSH in C, 1,000 in a pipeline", 2.5),
    )
]

# By the name of their row, for the columns of other tables.
CHECKPOINTS = {
    f"{name}, checkpoint": Goal(
        "Checkpoints",
        f"{name} with a checkpoint, server's CPU time",
        cpu_ratio("checkpoint", f"{name}, checkpoint", name),
        bound,
        at_most=True,
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
WRITTEN = {
    "Spark into one server": "Spark to a sink that drops it",
    "Spark into 3+3 nodes": "Spark to a sink that drops it, beside the cluster",
}
ENGINES = {
    row: Goal(
        "Engines",
        f"{row}, time / (servers' CPU time + time of a sink that drops all)",
        beyond_engine(row, dropped),
        1.15,
        at_most=True,
        operations=2_000_000,
    )
    for row, dropped in WRITTEN.items()
} | {
    "Spark reads, fastresp": Goal(
        "Engines",
        "Spark reads hashes, rate / a redis-py pipeline in mapPartitions",
        faster("engines", "Spark reads, fastresp", "Spark reads, redis-py in mapPartitions"),
        3,
        operations=2_000_000,
    )
}
SLOTS = {
    f"{kind}, 8 bytes, 3 nodes": Goal(
        "Scale",
        f"what the slots of 3 nodes cost an encoder, SET of 8 bytes from {kind}",
        more_time(f"{kind}, 8 bytes, 3 nodes", f"{kind}, 8 bytes, without slots"),
        12,
        "ns",
        at_most=True,
        operations=1,
    )
    for kind in ("rows", "columns")
}
FLOOR = "CPU time of the slowest node, or time of three `redis-cli --pipe`"
FEW, MANY = "1,000,000 into a sink", "100,000,000 into a sink"
SCALE = [
    *(
        Goal(
            "Scale",
            f"1,000,000 {kind} into 3+3 nodes of a cluster, time / {FLOOR}",
            whole_cluster(f"3+3 fastresp {kind}", "3+3 redis-cli --pipe"),
            1.05,
            at_most=True,
            operations=MILLION,
        )
        for kind in ("rows", "columns")
    ),
    *SLOTS.values(),
    Goal(
        "Scale",
        "CPU time per command, 100,000,000 commands against 1,000,000",
        cost_of_more(MANY, FEW),
        1.05,
        at_most=True,
        operations=1,
    ),
    Goal(
        "Scale",
        "greatest memory, 100,000,000 commands less 1,000,000",
        growth(MANY, FEW),
        8,
        "MiB",
        at_most=True,
        operations=1,
    ),
    *(
        Goal(
            "Scale",
            f"SET of 8 bytes from columns into sinks, {where}",
            rate("scale", "scale lanes", f"columns, 8 bytes, {where}"),
            10,
            "million/s",
            operations=MILLION,
        )
        for where in ("no cluster", "1 node", "2 nodes", "4 nodes", "8 nodes")
    ),
]

GOALS: tuple[Goal, ...] = (
    *ENCODE,
    *COLUMNS,
    Goal("Replies", "one `+OK`, counted", nanoseconds("replies", "+OK fastresp"), 3, "ns", True),
    *push_goals(),
    *PAST_GOALS,
    Goal(
        "Load",
        f"{PARQUET}, wall time / server CPU time",
        by_server_cpu("load", "parquet"),
        1.05,
        at_most=True,
        operations=5 * MILLION,
    ),
    Goal(
        "Load",
        f"{PARQUET}, peak memory",
        peak("load", "parquet", "peak_bytes"),
        256,
        "MiB",
        True,
        5 * MILLION,
    ),
    Goal("RDB file", f"{PARQUET}, written", megabytes, 200, "MB/s", operations=5 * MILLION),
    Goal(
        "RDB file",
        f"{PARQUET}, peak memory",
        peak("rdb", "written", "peak_bytes"),
        256,
        "MiB",
        True,
        5 * MILLION,
    ),
    Goal(
        "RDB file",
        f"{PARQUET}, written and read at start, against `fastresp load` into a running server",
        by_rdb_file,
        2,
        operations=5 * MILLION,
    ),
    Goal(
        "Load",
        "embeddings of 384 float32, against a redis-py pipeline",
        faster("load", "embedding fastresp", "embedding redis-py pipeline"),
        4,
    ),
    Goal(
        "Load",
        "CSV, 1,000,000 rows by the command line, wall time / server CPU time",
        by_server_cpu("load", "csv"),
        1.15,
        at_most=True,
        operations=MILLION,
    ),
    # 0.15 s and 0.25 s where ``python -c pass`` takes 0.02 s.
    *(
        Goal(
            "Start",
            f"`{what}`, against `python -c pass`",
            longer("load", "load start", f"start, {what}", "start, python -c pass"),
            bound,
            at_most=True,
        )
        for what, bound in (("fastresp --help", 7.5), ("fastresp load, one row", 12.5))
    ),
    *LISTS,
    *CHECKPOINTS.values(),
    *VERIFIED.values(),
    *ENGINES.values(),
    *SCALE,
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
        Goal("Memory", what, peak("memory", f"fastresp {row}"), bound, "MiB", True, 10 * MILLION)
        for row, what, bound in (
            *(
                (
                    f"mass_insert, {transport}",
                    f"10,000,000 commands by `mass_insert` through {transport}, "
                    "growth from the start",
                    32,
                )
                for transport in ("redis-cli", "socket")
            ),
            (
                "ListBuffer, push and drain",
                "10,000,000 items pushed and drained by `ListBuffer`, the whole process",
                64,
            ),
        )
    ),
)

# Goals that are not figures, and the test that checks each.
HELD = (
    (
        "The same bytes as `hiredis.pack_command`, for 100,000 generated commands and more",
        "tests/encode/test_encode.py::test_equal_to_hiredis",
    ),
    (
        "The same counts and errors as `hiredis.Reader`, for 100,000 generated streams of replies "
        "cut anywhere",
        "tests/resp/test_scan_hiredis.py::test_hiredis_agrees_on_100_000_streams",
    ),
    (
        "A server killed at 20 random moments of a load: acknowledged <= stored <= acknowledged + "
        "in doubt",
        "tests/transports/test_socket_lost.py::test_killed_server_sync",
    ),
    (
        "The same commands from 1,000 random Arrow tables as from their rows",
        "tests/encode/columns/test_columns_random.py::test_random_columns",
    ),
    (
        "`flights` from CSV, Parquet, pandas, polars and DuckDB: the same data in the server",
        "tests/sources/test_flights.py::test_same_data",
    ),
    (
        "8 consumers killed at random: at-least-once loses nothing, at-most-once repeats nothing",
        "tests/lists/test_lists.py::test_killed_consumers",
    ),
    (
        "10,000,000 items pushed and drained: counts and a checksum agree",
        "tests/lists/test_lists.py::test_ten_million_in_little_memory",
    ),
    (
        "`fastresp doctor` finds each of several careless clients, and nothing else",
        "tests/doctor/test_doctor_watch.py::TestWatched::test_planted",
    ),
    (
        "`fastresp doctor` finds a planted fault of a server, such as full memory",
        "tests/doctor/test_doctor.py::TestMeasured::test_memory_nearly_full",
    ),
    (
        "`fastresp doctor` finds nothing on a healthy server, of each version",
        "tests/doctor/test_doctor.py::TestMeasured::test_healthy",
    ),
    (
        "`fastresp doctor` finds nothing with a client that does well",
        "tests/doctor/test_doctor_watch.py::TestWatched::test_healthy",
    ),
)
