"""The tables of the page, by the titles of their sections in ``benchmarks.md``."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from results import Result

from . import ratios, tables
from .data import Entry, Results, Table
from .goals import CHECKPOINTS, ENGINES, SLOTS, VERIFIED, beside
from .source_figures import PING, PING_RUBY, POP, PUSH, REDIS_BENCHMARK
from .tables import SOURCE_LIKE, TURNS, Column, against, listing, median_time, pivot, speed


def _mebibytes(heading: str, detail: str = "") -> Column:
    """Return a column of the maximum of all rounds, of the values or of a detail."""

    def cell(row: Result) -> str:
        sizes = row.by_round(detail).values() if detail else row.values
        return f"{max(sizes) / 2**20:,.{digits}f}" if sizes else "-"

    digits = 0 if detail == "peak_bytes" else 1
    return Column(heading, cell)


def _of_greatest(detail: str) -> Column:
    """Return a column of a detail, in bytes, of the round with the maximum value."""

    def cell(row: Result) -> str:
        known = row.details[row.values.index(max(row.values))].get(detail)
        return "-" if known is None else f"{known / 2**20:,.1f}"

    return Column(f"its {detail}, MiB", cell)


def _each(heading: str, detail: str) -> Column:
    """Return a column of a detail, in nanoseconds per command."""
    return Column(heading, lambda row: f"{median(row.of(detail)) / row.operations * 1e9:,.0f}")


def _then_2013(name: str) -> str:
    found = REDIS_BENCHMARK.get(ratios.redis_benchmark_name(name))
    return f"{found:,.0f}" if found else "-"


NS, US, MS = median_time(1e9, "ns"), median_time(1e6, "µs", 3), median_time(1e3, "ms", 1, False)
LATE = median_time(1e3, "99th percentile ms", 2, False)
LONGEST = Column("longest ms", lambda row: f"{median(row.of('longest')) * 1e3:,.1f}")
ITEMS = Column("items", lambda row: f"{row.operations:,}")
PEAK = _mebibytes("peak MiB", "peak_bytes")
FILE_SPEED = Column(
    "MB/s",
    lambda row: f"{median(of) / median(row.values) / 1e6:,.0f}" if (of := row.of("bytes")) else "-",
)
SINK_SPEED = Column(
    "MB/s", lambda row: f"{median(row.of('command_bytes')) * speed(row) / 1e6:,.0f}"
)
RATE = Column("commands/s", lambda row: f"{speed(row):,.0f}")
LOADER = _each("loader CPU ns", "client_cpu")
SLOWEST = Column("slowest node CPU s", lambda row: f"{median(row.of('node_cpu')):.3f}")
WITH_SERVER = [*SOURCE_LIKE, *tables.SERVER]
PEERS = [*WITH_SERVER, tables.WAITING, tables.CLIENT_CPU]
BUFFER = "buffer redis_benchmark"
OBJECTS = {
    "One list, LPUSH": "LPUSH",
    "One list, RPUSH": "RPUSH",
    "One set of numbers": "SADD",
    "One sorted set": "ZADD",
    "One hash": "HSET",
    "Strings of 129 bytes": "SET",
    **{f"Hashes of {fields} fields": f"hashes of {fields}" for fields in (3, 10, 30)},
}


def _turns(file: str, kind: str, heading: str, base: str) -> Entry:
    """Return a table of loads of a kind, with their rates relative to one of them."""
    ratio = against(f"rate / {heading}", f"{kind} {base}")
    return listing(file, [*TURNS, ratio], prefix=f"{kind} ")


def _times(file: str, kind: str, time: Column, heading: str, base: str) -> Entry:
    """Return a table of times, and their ratios to one of them."""
    ratio = against(f"time / {heading}", f"{kind}{base}", time=True)
    return listing(file, [time, ratio], prefix=kind)


def verified(results: Results) -> Table:
    """Return one table of the rows of verify.py, which has a table for each command."""
    joined = Results()
    for row in results:
        if row.table.startswith("verify "):
            name = f"{row.table.removeprefix('verify ')}, {row.row}"
            joined.add("verify", replace(row, table="verify", row=name))
    # Goals are computed from the results as they were measured, not from the joined rows.
    return listing("verify", [*TURNS, beside("rate / load", VERIFIED)(results)]).build(joined)


KINDS = ("SET", "LPUSH")
TABLES: dict[str, Entry] = {
    **{
        f"Ways to load rows with {kind}": _turns("ways", kind, "redis-py", "redis-py pipeline")
        for kind in ("SET", "HSET")
    },
    "SET with other clients, over a unix socket": listing("peers", PEERS, table="peers SET"),
    "SET with other clients, over TCP": listing("peers", PEERS, table="peers SET, TCP"),
    "Hashes from an Arrow table, over TCP": listing(
        "peers",
        [*TURNS, against("rate / adbc_ingest", "adbc_ingest, Arrow table")],
        table="peers HSET, TCP",
    ),
    "Vectors into a search index, over TCP": listing(
        "peers",
        [*TURNS, against("rate / RedisVL", "RedisVL, SearchIndex.load")],
        table="peers vectors, TCP",
    ),
    "Memory": listing(
        "memory", [ITEMS, _mebibytes("greatest MiB"), _of_greatest("start"), _of_greatest("peak")]
    ),
    **{
        title: _turns("past", kind, "ready-made file", "no generation")
        for title, kind in OBJECTS.items()
    },
    "Other clients during a load": listing("stall", [LATE, LONGEST]),
    **{
        f"Encode {kind} commands": _times(
            "encode", f"{kind} ", NS, "fastresp rows", "fastresp rows"
        )
        for kind in KINDS
    },
    **{
        f"Encode Arrow columns: {kind}": _times(
            "columns", f"{kind} ", NS, "fastresp", "fastresp columns"
        )
        for kind in ("strings", "ints", "floats", "embedding")
    },
    "Replies, counted": listing("replies", [NS]),
    **{
        f"Load {kind} commands over {over}": _turns(file, kind, "ready-made file", "no generation")
        for file, over in (("push", "a unix socket"), ("push-tcp", "TCP"))
        for kind in KINDS
    },
    **{
        f"A list as a buffer: {kind}": _turns("lists", kind, base, base)
        for kind, base in (("pop", "C lrange 1000"), ("push", "C lpush-pipeline"))
    },
    "Files and embeddings, whole loads": listing("load", [*TURNS, PEAK]),
    "An RDB file from Parquet": listing("rdb", [*TURNS, PEAK, FILE_SPEED]),
    "Hashes replaced, on yodb": listing(
        "himport",
        [
            *TURNS,
            Column("bytes/row", lambda row: f"{median(row.of('bytes')) / row.operations:,.0f}"),
        ],
    ),
    "An RDB file of hashes, read": listing("snapshots", [*TURNS, PEAK, FILE_SPEED]),
    "Copy from Redis 8.2 to Valkey 8.1": listing(
        "copying",
        [
            *(RATE, _each("client CPU ns", "client_cpu")),
            *(_each("source CPU ns", "server_cpu"), _each("target CPU ns", "node_cpu")),
        ],
    ),
    "The cost of a checkpoint": listing(
        "checkpoint", [*TURNS, beside("server CPU / without", CHECKPOINTS)]
    ),
    "Verify a load": Entry(("verify",), verified),
    "Spark": listing("engines", [*TURNS, beside("against its goal", ENGINES)]),
    "Start of the command line": listing(
        "load",
        [MS, against("time / Python's", "start, python -c pass", time=True)],
        table="load start",
        prefix="start, ",
    ),
    "Ten thousand users back, five fields each": listing(
        "users", [MS, against("rate / redis-py", "redis-py")]
    ),
    **{
        f"redis-py with another packer: {part}": _times(
            "redis_py", f"{part}, ", US, "fastresp", "fastresp"
        )
        for part in ("pack_commands", "execute", "execute in asyncio")
    },
    "The cost of key slots": listing(
        "scale",
        [_each("CPU ns", "client_cpu"), beside("more than without slots", SLOTS)],
        table="scale slots",
    ),
    "One loader process into sinks": listing(
        "scale", [RATE, SINK_SPEED, LOADER, _each("sinks CPU ns", "all_cpu")], table="scale lanes"
    ),
    "The cost of more commands": listing(
        "scale",
        [
            *(LOADER, _each("server CPU ns", "server_cpu")),
            *(_mebibytes("start MiB", "start"), _mebibytes("peak MiB", "peak")),
        ],
        table="scale commands",
    ),
    "A whole cluster on this machine": listing("scale", [*TURNS, SLOWEST], table="scale cluster"),
    "Pushing: LPUSH": listing(
        BUFFER,
        [*tables.source_columns(PUSH), *tables.SERVER],
        table="000 push",
        expected=list(PUSH),
    ),
    "Popping: RPOP, or LRANGE and LTRIM": listing(
        BUFFER, tables.source_columns(POP), table="000 pop", expected=list(POP)
    ),
    "Pushing and popping together": listing("buffer", WITH_SERVER, table="000 both"),
    "Python compared with C": Entry(("buffer", "lists"), ratios.python_to_c),
    "What hiredis gains": Entry(("buffer", "shares"), ratios.parser_gain),
    "What each method gains over the previous one": Entry(
        ("shares", "buffer"), ratios.section_gain
    ),
    "What generating the protocol costs": Entry(("buffer", "push"), ratios.generation),
    "Where the CPU time goes": Entry(("shares",), ratios.profiles),
    "redis-benchmark and redis-py, command by command": pivot(
        "redis_benchmark",
        "001 redis-benchmark",
        "command",
        base="redis-benchmark",
        extra=[("redis-benchmark in 2013", _then_2013)],
    ),
    "A connection for each command": listing(
        "redis_benchmark",
        [
            *SOURCE_LIKE,
            against(
                "rate / redis-benchmark, one connection", ratios.of_redis_benchmark, percent=True
            ),
            Column("2013", ratios.connections_then),
        ],
        table="001 connections",
    ),
    "Ten thousand pings": listing(
        "pipelining",
        [
            *(*SOURCE_LIKE, tables.CLIENT_CPU),
            Column("then: CPU s", lambda row: ratios.ping_then(row, PING)),
            Column("redis.io, Ruby: s", lambda row: ratios.ping_then(row, PING_RUBY)),
        ],
        table="002 ping",
    ),
    **{
        f"Depth of a pipeline over {title}": pivot(
            "pipelining", f"003 depth, {over}", "commands in a pipeline", prefix="depth "
        )
        for title, over in (("a unix socket", "unix"), ("TCP", "TCP"))
    },
    "Pipelines and scripts": listing("pipelining", WITH_SERVER, table="003 scripting"),
    "A busy loop": listing(
        "pipelining",
        tables.source_like("µs per SET", lambda seconds: f"{seconds * 1e6:,.2f}"),
        table="003 busy loop",
    ),
    "Ten thousand users, with and without pipelines": Entry(("workflow",), ratios.workflow),
}
