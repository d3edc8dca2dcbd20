"""The tables of fastresp's parts: each compares a part with what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from results import Result

from .beside import beside
from .data import Group, Results, Section
from .goals_of_loads import CHECKPOINTS, ENGINES
from .plots import bars
from .tables import (
    TURNS,
    Column,
    against,
    listing,
    median_time,
    speed,
)
from .verification import VERIFICATION

__all__ = ["PARTS", "row_named"]

PEAK = Column(
    "peak MiB",
    lambda row: f"{max(p) / 2**20:,.0f}" if (p := row.by_round("peak_bytes").values()) else "-",
)
FILE_SPEED = Column(
    "MB/s",
    lambda row: (
        f"{median(sizes) / median(row.values) / 1e6:,.0f}" if (sizes := row.of("bytes")) else "-"
    ),
)
NS, US, MS = median_time(1e9, "ns"), median_time(1e6, "µs", 3), median_time(1e3, "ms", 1, False)


# Measured once, with the same commands.
ELSEWHERE = "On a faster machine `%` took 11.7x as long as fastresp for SET, and hiredis 9.0x."


def row_named(name: str) -> Callable[[Results, Result], Result | None]:
    """Return what finds a row of the same table, for a column of ratios."""
    return lambda results, row: next(
        (
            each
            for each in results.rows(row.table, row.table.partition(" ")[0])
            if each.row == name and each.table == row.table
        ),
        None,
    )


def encoding(kind: str) -> Section:
    """Return a table of encode.py."""
    base = against("time / fastresp rows", row_named(f"{kind} fastresp rows"), time=True)
    title = f"Encode {kind} commands"
    return Section(
        title,
        ("encode",),
        listing("encode", ["encode"], [NS, base], prefix=f"{kind} ", parser=False),
        bars(
            title, "encode", ("encode",), prefix=f"{kind} ", axis="commands per second", value=speed
        ),
        "Ready tuples of three text values, the last of 129 bytes, become RESP in chunks of 1 MiB, "
        "without a server. Times are per command; every 100,000 commands start with a new Writer. "
        "Rows named `alone`, not in the chart, throw each result away instead of joining chunks. "
        + ELSEWHERE,
    )


def columns(kind: str, what: str) -> Section:
    """Return a table of columns.py."""
    base = against("time / fastresp", row_named(f"{kind} fastresp columns"), time=True)
    title = f"Encode Arrow columns: {kind}"
    return Section(
        title,
        ("columns",),
        listing("columns", ["columns"], [NS, base], prefix=f"{kind} ", parser=False),
        bars(
            title,
            "columns",
            ("columns",),
            prefix=f"{kind} ",
            axis="commands per second",
            value=speed,
        ),
        what,
    )


def loading(kind: str, file: str, over: str) -> Section:
    """Return a table of push.py."""
    base = against("rate / ready file", row_named(f"{kind} no generation"))
    title = f"Load {kind} commands over {over}"
    prefix = f"{kind} "
    return Section(
        title,
        (file,),
        listing(file, [file], [*TURNS, base], prefix=prefix, parser=False),
        bars(
            title,
            file,
            (file,),
            prefix=prefix,
            axis="commands per second",
            value=speed,
            server=True,
        ),
        "Whole loads from the same ready list, from the client's start to the last reply. "
        "`no generation` is `redis-cli --pipe` reading a ready file.",
    )


def lists(kind: str, base: str, about: str) -> Section:
    """Return a table of lists.py."""
    title = f"A list as a buffer: {kind}"
    ratio = against(f"rate / {base}", row_named(f"{kind} {base}"))
    return Section(
        title,
        ("lists",),
        listing("lists", ["lists"], [*TURNS, ratio], prefix=f"{kind} ", parser=False),
        bars(
            title,
            "lists",
            ("lists",),
            prefix=f"{kind} ",
            axis="items per second",
            value=speed,
            server=True,
        ),
        about,
    )


def redis_py(part: str, about: str) -> Section:
    """Return a table of redis_py.py."""
    ratio = against("time / fastresp", row_named(f"{part}, fastresp"), time=True)
    title = f"redis-py with another packer: {part}"
    return Section(
        title,
        ("redis_py",),
        listing("redis_py", ["redis_py"], [US, ratio], prefix=f"{part}, ", parser=False),
        bars(
            title,
            "redis_py",
            ("redis_py",),
            prefix=f"{part}, ",
            axis="commands per second",
            value=speed,
        ),
        about,
    )


PARTS = Group(
    "The parts of fastresp, one by one",
    "Each part beside what it replaces.",
    sections=(
        encoding("SET"),
        encoding("LPUSH"),
        columns(
            "strings",
            "500,000 SETs with text of 129 bytes, from an Arrow table. `memcpy` copies the same "
            "bytes between two buffers of 85 MB each; with a warm buffer, into the same 512 KiB "
            "again and again, as fastresp reuses a chunk.",
        ),
        columns("ints", "500,000 SETs, key and value are int64."),
        columns("floats", "500,000 SETs, the value is a float64 of 17 digits."),
        columns("embedding", "20,000 vectors of 384 float32 into a hash each."),
        Section(
            "Replies, counted",
            ("replies",),
            listing("replies", ["replies"], [NS], parser=False),
            bars(
                "Replies, counted",
                "replies",
                ("replies",),
                axis="replies per second",
                value=speed,
            ),
            "fastresp's scanner counts replies and keeps errors; hiredis makes an object of each.",
        ),
        loading("SET", "push", "a unix socket"),
        loading("LPUSH", "push", "a unix socket"),
        loading("SET", "push-tcp", "TCP"),
        loading("LPUSH", "push-tcp", "TCP"),
        lists("pop", "C lrange 1000", "From a full list until it is empty; items of 129 bytes."),
        lists("push", "C lpush-pipeline", "The same items onto an empty list."),
        Section(
            "Files and embeddings, whole loads",
            ("load",),
            listing("load", ["load"], [*TURNS, PEAK], parser=False),
            bars(
                "Files and embeddings", "load", ("load",), axis="rows per second",
                value=speed, server=True,
            ),
            "`fastresp load`, a process: a Parquet file of 10 columns into hashes, CSV into SETs. "
            "Vectors of 384 float32: `mass_insert` and a redis-py pipeline.",
        ),
        Section(
            "An RDB file from Parquet",
            ("rdb",),
            listing("rdb", ["rdb"], [*TURNS, PEAK, FILE_SPEED], parser=False),
            bars(
                "An RDB file from Parquet", "rdb", ("rdb",), axis="rows per second", value=speed,
            ),
            "The same Parquet file as RDB: written by `fastresp pack --format rdb`, a process; "
            "read by a server at start, up to a PONG; and `fastresp load` of the same rows.",
        ),
        Section(
            "The cost of a checkpoint",
            ("checkpoint",),
            listing(
                "checkpoint", ["checkpoint"],
                [*TURNS, beside("server CPU / without", CHECKPOINTS)], parser=False,
            ),
            bars(
                "The cost of a checkpoint", "checkpoint", ("checkpoint",), axis="rows per second",
                value=speed, server=True,
            ),
            "1,000,000 rows from Arrow columns. INCRBY, RPUSH and HSETNX with a checkpoint are in "
            "transactions of about 2,000 commands. In a cluster, here of three nodes on one "
            "machine, each has keys of one slot.",
        ),
        VERIFICATION,
        Section(
            "Spark",
            ("engines",),
            listing(
                "engines", ["engines"], [*TURNS, beside("against its goal", ENGINES)], parser=False,
            ),
            bars(
                "Spark", "engines", ("engines",), axis="rows per second", value=speed, server=True,
            ),
            "A DataFrame of 2,000,000 rows and 10 columns in `local[2]`, into hashes and back, in "
            "two partitions. Spark and the servers share the two cores.",
        ),
        Section(
            "Start of the command line",
            ("load",),
            listing(
                "load start", ["load"],
                [MS, against("time / Python's", row_named("start, python -c pass"), time=True)],
                prefix="start, ", parser=False,
            ),
            bars(
                "Start of the command line", "load start", ("load",), prefix="start, ",
                axis="starts per second", value=speed,
            ),
            "Whole processes, from their start to their end; a value is the median of 5.",
        ),
        Section(
            "Ten thousand users back, five fields each",
            ("users",),
            listing(
                "users", ["users"],
                [MS, against("rate / redis-py", row_named("redis-py"))], parser=False,
            ),
            bars(
                "Ten thousand users back", "users", ("users",), axis="users per second",
                value=speed,
            ),
            "fastresp's are `iter_replies`, and Arrow columns: `columns` from a list of keys, "
            "`pattern` from a pattern.",
        ),
        redis_py("pack_commands", "A pipeline of 10,000 SETs of 129 bytes, only packed."),
        redis_py("execute", "The same, sent and answered. No goal: the rest is redis-py's."),
        redis_py("execute in asyncio", "The same in asyncio, where redis-py packs in Python."),
    ),
)  # fmt: skip
