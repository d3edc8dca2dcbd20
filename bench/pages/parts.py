"""The tables of fastresp's parts: each compares a part with what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from results import Result

from .data import Group, Results, Section, Table
from .goal import beside
from .goals import CHECKPOINTS, ENGINES, VERIFIED
from .tables import (
    TURNS,
    Column,
    against,
    listing,
    median_time,
)

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
        "Ready tuples of three text values, the last of 129 bytes, become RESP in chunks of 1 MiB, "
        "without a server. Times are per command; every 100,000 commands start with a new Writer. "
        "Rows named `alone` throw each result away instead of joining chunks.",
    )


def columns(kind: str, what: str) -> Section:
    """Return a table of columns.py."""
    base = against("time / fastresp", row_named(f"{kind} fastresp columns"), time=True)
    title = f"Encode Arrow columns: {kind}"
    return Section(
        title,
        ("columns",),
        listing("columns", ["columns"], [NS, base], prefix=f"{kind} ", parser=False),
        what,
    )


def loading(kind: str, file: str, over: str) -> Section:
    """Return a table of push.py."""
    base = against("rate / ready-made file", row_named(f"{kind} no generation"))
    title = f"Load {kind} commands over {over}"
    prefix = f"{kind} "
    return Section(
        title,
        (file,),
        listing(file, [file], [*TURNS, base], prefix=prefix, parser=False),
        "Whole loads from the same ready list, from the client's start to the last reply. "
        "`no generation` is `redis-cli --pipe` reading a ready-made file.",
    )


def lists(kind: str, base: str, about: str) -> Section:
    """Return a table of lists.py."""
    title = f"A list as a buffer: {kind}"
    ratio = against(f"rate / {base}", row_named(f"{kind} {base}"))
    return Section(
        title,
        ("lists",),
        listing("lists", ["lists"], [*TURNS, ratio], prefix=f"{kind} ", parser=False),
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
        about,
    )


def verified(results: Results) -> Table:
    """Return one table of the rows of verify.py, which has a table for each command."""
    joined = Results()
    for row in results:
        if row.table.startswith("verify "):
            name = f"{row.table.removeprefix('verify ')}, {row.row}"
            joined.add("verify", replace(row, table="verify", row=name))
    # Goals are computed from the results as they are.
    ratio = beside("rate / load", VERIFIED)(results)
    return listing("verify", ["verify"], [*TURNS, ratio], parser=False)(joined)


PARTS = Group(
    "The parts of fastresp, one by one",
    "Each part of fastresp beside what it replaces.",
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
            "fastresp's scanner counts replies and keeps errors; hiredis makes an object of each "
            "reply.",
        ),
        loading("SET", "push", "a unix socket"),
        loading("LPUSH", "push", "a unix socket"),
        loading("SET", "push-tcp", "TCP"),
        loading("LPUSH", "push-tcp", "TCP"),
        lists("pop", "C lrange 1000", "A list of 1,000,000 items of 129 bytes is emptied."),
        lists("push", "C lpush-pipeline", "The same items are pushed onto an empty list."),
        Section(
            "Files and embeddings, whole loads",
            ("load",),
            listing("load", ["load"], [*TURNS, PEAK], parser=False),
            "`fastresp load`, a process, loads a Parquet file of 10 columns into hashes, and CSV "
            "as SETs. `mass_insert` and a redis-py pipeline load vectors of 384 float32.",
        ),
        Section(
            "An RDB file from Parquet",
            ("rdb",),
            listing("rdb", ["rdb"], [*TURNS, PEAK, FILE_SPEED], parser=False),
            "`fastresp dump --format rdb`, a process, writes an RDB file from the same Parquet "
            "file; a server reads it at start, up to its first PONG; `fastresp load` loads the "
            "same rows.",
        ),
        Section(
            "The cost of a checkpoint",
            ("checkpoint",),
            listing(
                "checkpoint", ["checkpoint"],
                [*TURNS, beside("server CPU / without", CHECKPOINTS)], parser=False,
            ),
            "1,000,000 rows from Arrow columns. INCRBY, RPUSH and HSETNX with a checkpoint are in "
            "transactions of about 2,000 commands. In a cluster (three nodes on one machine) each "
            "transaction has the keys of one slot.",
        ),
        Section(
            "Verify a load",
            ("verify",),
            verified,
            "1,000,000 rows from Arrow columns are loaded, and then compared with the server. SET "
            "EX includes times to live; SADD, ZADD and RPUSH have 100 rows per key. First, "
            "`verify` has to find one altered byte.",
        ),
        Section(
            "Spark",
            ("engines",),
            listing(
                "engines", ["engines"], [*TURNS, beside("against its goal", ENGINES)], parser=False,
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
            "Whole processes, from start to end; a value is the median of 5.",
        ),
        Section(
            "Ten thousand users back, five fields each",
            ("users",),
            listing(
                "users", ["users"],
                [MS, against("rate / redis-py", row_named("redis-py"))], parser=False,
            ),
            "fastresp's rows are `iter_replies`, and Arrow columns from a list of keys (`columns`) "
            "and from a pattern (`pattern`).",
        ),
        redis_py("pack_commands", "A pipeline of 10,000 SETs of 129 bytes is packed, not sent."),
        redis_py("execute", "The same pipeline is sent and answered."),
        redis_py("execute in asyncio", "The same in asyncio, where redis-py packs in Python."),
    ),
)  # fmt: skip
