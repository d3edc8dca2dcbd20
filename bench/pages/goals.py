"""The project's goals, what was measured for each, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass

from .data import NotMeasured, Results
from .goal import Goal
from .goals_of_loads import CHECKPOINTS, ENGINES, VERIFIED, scale_goals
from .measures import (
    Measured,
    by_rdb_file,
    by_server_cpu,
    client_cpu,
    faster,
    longer,
    megabytes,
    nanoseconds,
    of_server_cpu,
    peak,
)

__all__ = ["GOALS", "HELD", "MARKS", "Goal", "Verdict", "judge"]

# How the cells of verdicts are marked.
MARKS = {"reached": "reached", "missed": "missed", "not measured": "open", "no goal": ""}


@dataclass(frozen=True)
class Verdict:
    """A goal, judged: ``word`` is ``"reached"``, ``"missed"`` or ``"not measured"``.

    For a measured figure without a bound it is ``"no goal"``.
    """

    goal: Goal
    word: str
    measured: Measured | None = None
    reason: str = ""


def judge(goal: Goal, results: Results) -> Verdict:
    """Judge a goal: by the median, and for memory by the greatest value."""
    try:
        measured = goal.measure(results)
    except NotMeasured as error:
        return Verdict(goal, "not measured", reason=str(error))
    if 1 < measured.operations < goal.operations:
        reason = f"measured with {measured.operations:,} operations, needs {goal.operations:,}"
        return Verdict(goal, "not measured", reason=reason)
    if goal.bound is None:
        return Verdict(goal, "no goal", measured)
    figure = measured.figure
    good = figure <= goal.bound if goal.at_most else figure >= goal.bound
    return Verdict(goal, "reached" if good else "missed", measured)


FILE = "the ready-made file"
_PARQUET = "Parquet, 5,000,000 rows of 10 columns"


def encode_goals() -> list[Goal]:
    named = {
        "substitution %": ("`%`", 9),
        "format, named fields": ("`str.format` with named fields", 30),
        "hiredis.pack_command": ("`hiredis.pack_command`", 12),
    }
    return [
        Goal(
            "Encode",
            f"{kind}, rows of tuples, against {name}",
            "encode",
            faster("encode", f"{kind} fastresp rows", f"{kind} {row}"),
            bound,
        )
        for kind in ("SET", "LPUSH")
        for row, (name, bound) in named.items()
    ]


def push_goals() -> list[Goal]:
    goals = []
    for file, over in (("push", "unix socket"), ("push-tcp", "TCP")):
        for kind in ("SET", "LPUSH"):
            area, ready = f"Push, {over}", f"{kind} no generation"
            bounds = {"socket": 1.0}
            if file == "push":
                bounds = {"redis-cli": 0.97, "socket": 1.2 if kind == "LPUSH" else 1.0}
            for transport, bound in bounds.items():
                rate = faster(file, f"{kind} fastresp {transport}", ready)
                what = f"{kind}, `mass_insert` through {transport}, against {FILE}"
                goals.append(Goal(area, what, file, rate, bound))
            socket = f"{kind} fastresp socket"
            what = f"{kind}, wall time / server CPU time over the socket"
            goals.append(Goal(area, what, file, by_server_cpu(file, socket), 1.03, at_most=True))
            if file == "push-tcp":
                what = f"{kind}, client CPU time with encoding, against redis-cli's alone"
                cpu = client_cpu(file, socket, ready)
                goals.append(Goal(area, what, file, cpu, 0.6, at_most=True))
    return goals


def columns_goals() -> list[Goal]:
    wanted = (
        ("strings", "substitution %", "`%`", 18),
        ("strings", "hiredis.pack_command", "`hiredis.pack_command`", 28),
        ("strings", "memcpy", "`memcpy` of the same bytes between two large buffers", 1),
        ("ints", "substitution %", "`%`", 15),
        ("floats", "substitution %", "`%`", 8),
        ("embedding", "redis-py pack_commands", "redis-py's packer", 20),
    )
    return [
        Goal(
            "Arrow columns",
            f"{kind}, against {name}",
            "columns",
            faster("columns", f"{kind} fastresp columns", f"{kind} {row}"),
            bound,
        )
        for kind, row, name, bound in wanted
    ]


def past_goals() -> list[Goal]:
    area = "Past the ready-made file"
    bounds = {"LPUSH": 2.2, "RPUSH": 2.2, "SADD": 1.25, "SET": 1.15}
    rates = [
        Goal(
            area,
            f"{kind}, merged, from {source}, against {FILE}",
            "past",
            faster("past", f"{kind} fastresp merged, {source}", f"{kind} no generation"),
            bound,
        )
        for kind, bound in bounds.items()
        for source in ("rows", "columns")
    ]
    whole = {
        "hashes of 10": ("200,000 hashes of 10 fields", 1.8),
        "hashes of 30": ("200,000 hashes of 30 fields", 3.0),
        "SADD": ("one set of 1,000,000", 4.0),
        "ZADD": ("one sorted set of 1,000,000", 4.0),
        "HSET": ("one hash of 1,000,000", 3.0),
    }
    rates += [
        Goal(
            area,
            f"{what}, serialised, from columns, against {FILE}",
            "past",
            faster("past", f"{kind} fastresp serialised, columns", f"{kind} no generation"),
            bound,
        )
        for kind, (what, bound) in whole.items()
    ]
    cpu = [
        Goal(
            area,
            f"{kind}, merged, from columns, client CPU time / server CPU time",
            "past",
            of_server_cpu("past", f"{kind} fastresp merged, columns"),
            1.0,
            at_most=True,
        )
        for kind in bounds
    ]
    cpu += [
        Goal(
            area,
            f"{what}, serialised, from columns, client CPU time / server CPU time",
            "past",
            of_server_cpu("past", f"{kind} fastresp serialised, columns"),
            1.0,
            at_most=True,
        )
        for kind, (what, _) in whole.items()
    ]
    late = [
        Goal(
            area,
            f"{kind}, PING's 99th percentile during a merged load / during single commands",
            "stall",
            longer("stall", "stall", f"{kind} merge", f"{kind} commands"),
            2.0,
            at_most=True,
        )
        for kind in ("RPUSH", "SADD", "HSET", "SET")
    ]
    return rates + cpu + late


def rdb_goals() -> list[Goal]:
    area = "RDB file"
    peaks = peak("rdb", "written", "peak_bytes")
    ratio = "written and read at start, against `fastresp load` into a running server"
    return [
        Goal(area, f"{_PARQUET}, written", "rdb", megabytes, 200, "MB/s", operations=5_000_000),
        Goal(area, f"{_PARQUET}, peak memory", "rdb", peaks, 256, "MiB", True, 5_000_000),
        Goal(area, f"{_PARQUET}, {ratio}", "rdb", by_rdb_file, 2, operations=5_000_000),
    ]


def lists_goals() -> list[Goal]:
    # The goals are for batches of 1,000, against a C client that waits for each; ten in flight are
    # compared with ten in flight, and have no goal.
    wanted: tuple[tuple[str, str, str, float | None], ...] = (
        ("pop", "pop", "C lrange 100", 3.0),
        ("pop", "pop", "C lrange 1000", 1.1),
        ("pop", "pop 10000", "C lrange 10x1000", None),
        ("pop", "pop_arrow", "C lrange 1000", 1.25),
        ("pop", "pop_arrow 10000", "C lrange 10x1000", None),
        ("push", "push", "C lpush-pipeline", 2.5),
    )
    names = {
        "pop": "pop, one request of 1,000 at a time",
        "pop 10000": "pop, ten requests of 1,000 in flight",
        "pop_arrow": "pop_arrow, one request of 1,000 at a time",
        "pop_arrow 10000": "pop_arrow, ten requests of 1,000 in flight",
        "push": "push",
        "C lrange 100": "LRANGE and LTRIM of 100 in C",
        "C lrange 1000": "LRANGE and LTRIM of 1,000 in C",
        "C lrange 10x1000": "LRANGE and LTRIM of 1,000 in C, ten in flight",
        "C lpush-pipeline": "LPUSH in C, 1,000 in a pipeline",
    }
    return [
        Goal(
            "Lists",
            f"{names[ours]}, against {names[other]}",
            "lists",
            faster("lists", f"{kind} fastresp {ours}", f"{kind} {other}"),
            bound,
        )
        for kind, ours, other, bound in wanted
    ]


_EMBEDDINGS = faster("load", "embedding fastresp", "embedding redis-py pipeline")
_PACKING = faster("redis_py", "pack_commands, fastresp", "pack_commands, redis-py, hiredis")
_PEAK = peak("load", "parquet", "peak_bytes")

GOALS: tuple[Goal, ...] = (
    *encode_goals(),
    *columns_goals(),
    Goal(
        "Replies",
        "one `+OK`, counted",
        "replies",
        nanoseconds("replies", "+OK fastresp"),
        3,
        "ns",
        at_most=True,
    ),
    *push_goals(),
    *past_goals(),
    Goal(
        "Load",
        f"{_PARQUET}, wall time / server CPU time",
        "load",
        by_server_cpu("load", "parquet"),
        1.05,
        at_most=True,
        operations=5_000_000,
    ),
    Goal("Load", f"{_PARQUET}, peak memory", "load", _PEAK, 256, "MiB", True, 5_000_000),
    *rdb_goals(),
    Goal("Load", "embeddings of 384 float32, against a redis-py pipeline", "load", _EMBEDDINGS, 4),
    Goal(
        "Load",
        "CSV, 1,000,000 rows by the command line, wall time / server CPU time",
        "load",
        by_server_cpu("load", "csv"),
        1.15,
        at_most=True,
        operations=1_000_000,
    ),
    # 0.15 s and 0.25 s where ``python -c pass`` takes 0.02 s.
    *(
        Goal(
            "Start",
            f"`{what}`, against `python -c pass`",
            "load",
            longer("load", "load start", f"start, {what}", "start, python -c pass"),
            bound,
            at_most=True,
        )
        for what, bound in (("fastresp --help", 7.5), ("fastresp load, one row", 12.5))
    ),
    *lists_goals(),
    *CHECKPOINTS.values(),
    *VERIFIED.values(),
    *ENGINES.values(),
    *scale_goals(),
    Goal(
        "Users",
        "10,000 users by `iter_replies`, against a redis-py pipeline with hiredis",
        "users",
        faster("users", "iter_replies", "redis-py"),
        2,
    ),
    Goal(
        "Users",
        "10,000 users as Arrow columns, against the same pipeline",
        "users",
        faster("users", "columns", "redis-py"),
        4,
    ),
    Goal(
        "redis-py",
        "`pack_commands` of 10,000 SETs, against redis-py with hiredis",
        "redis_py",
        _PACKING,
        20,
    ),
    *(
        Goal(
            "Memory",
            f"10,000,000 commands by `mass_insert` through {transport}, growth from the start",
            "memory",
            peak("memory", f"fastresp mass_insert, {transport}"),
            32,
            "MiB",
            True,
            10_000_000,
        )
        for transport in ("redis-cli", "socket")
    ),
    Goal(
        "Memory",
        "10,000,000 items pushed and drained by `ListBuffer`, the whole process",
        "memory",
        peak("memory", "fastresp ListBuffer, push and drain"),
        64,
        "MiB",
        True,
        10_000_000,
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
