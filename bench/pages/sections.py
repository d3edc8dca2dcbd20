"""The tables of the page, an entry for each: its columns and its results."""

from __future__ import annotations

from statistics import median

from results import Result

from .data import Group, Section
from .parts import PARTS, row_named
from .ratios import (
    connections_then,
    generation,
    of_redis_benchmark,
    parser_gain,
    ping_then,
    profiles,
    python_to_c,
    redis_benchmark_name,
    section_gain,
    workflow,
)
from .scale import SCALE
from .source_figures import (
    PING,
    PING_RUBY,
    POP,
    PUSH,
    REDIS_BENCHMARK,
)
from .tables import (
    CLIENT_CPU,
    SERVER,
    SOURCE_LIKE,
    TURNS,
    WAITING,
    Column,
    against,
    listing,
    median_time,
    pivot,
    source_columns,
    source_like,
)

__all__ = ["GROUPS"]

# Rows of hashes per second, compared with the closest peer's.
AGAINST_ADBC = against("rate / adbc_ingest", row_named("adbc_ingest, Arrow table"))
# Documents per second, compared with RedisVL's.
AGAINST_REDISVL = against("rate / RedisVL", row_named("RedisVL, SearchIndex.load"))


def mebibytes(size: float) -> float:
    """Convert bytes to MiB."""
    return size / 2**20


LATE = median_time(1e3, "99th percentile ms", 2, False)
LONGEST = Column("longest ms", lambda row: f"{median(row.of('longest')) * 1e3:,.1f}")
ITEMS = Column("items", lambda row: f"{row.operations:,}")
GREATEST = Column("greatest MiB", lambda row: f"{mebibytes(max(row.values)):,.1f}")


def _of_greatest(detail: str) -> Column:
    """Return a column of a detail, in bytes, of the greatest value."""

    def cell(row: Result) -> str:
        worst = row.values.index(max(row.values))
        known = row.details[worst].get(detail)
        return "-" if known is None else f"{mebibytes(known):,.1f}"

    return Column(f"its {detail}, MiB", cell)


ONE_CORE = "The server and all contenders share one core."


def depth(over: str) -> Section:
    """Return the table of pipeline depths."""
    return Section(
        f"Depth of a pipeline over {'a unix socket' if over == 'unix' else over}",
        ("pipelining",),
        pivot(f"003 depth, {over}", ["pipelining"], first="commands in a pipeline", name=_depth),
        "The source has a graph without figures: almost linear at first, and at the end ten times "
        "the rate without pipelines. fastresp bounds what is in flight itself, so it needs no "
        f"depth. Rates are from median times. {ONE_CORE}",
    )


def _depth(name: str) -> str:
    return name.removeprefix("depth ")


def _then_2013(name: str) -> str:
    found = REDIS_BENCHMARK.get(redis_benchmark_name(name))
    return f"{found:,.0f}" if found else "-"


BUFFER = ("buffer", "redis_benchmark")

REPORT_2018 = Group(
    "The 2018 report: a list as a buffer",
    "This project began with a benchmark report of 2018: how fast can Python fill and empty a "
    "Redis list, with redis-py, hiredis, and generators that feed `redis-cli --pipe`? The tables "
    "repeat its work: 100,000 LPUSHes of 129 bytes and 100,000 pops, 1,000 of each in turn, over a "
    "unix socket. Two rows differ: `fastresp mass_insert` loads everything first, and "
    "redis-benchmark either pushes or pops.",
    sources=("000",),
    sections=(
        Section(
            "Pushing: LPUSH",
            BUFFER,
            listing("000 push", BUFFER, source_columns(PUSH, "2018", True), expected=list(PUSH)),
            "`op / server CPU s` is the ceiling: the rate if the server never waited for the "
            "client. With redis-cli the server does most of its work during the pops, as in 2018. "
            "So these rows show the cost of writing; the table of pushes and pops together shows "
            "the whole cost. ListBuffer and `1,000 per command` send 1,000 items with each LPUSH, "
            "the others one. `fastresp mass_insert` includes the time to connect. `naive`, and "
            "redis-benchmark without `-P`, share one core with the server.",
        ),
        Section(
            "Popping: RPOP, or LRANGE and LTRIM",
            BUFFER,
            listing("000 pop", BUFFER, source_columns(POP, "2018", False), expected=list(POP)),
            "`LRANGE_100` of redis-benchmark reads the same 100 items again and again; its "
            "operations are requests, not items.",
        ),
        Section(
            "Pushing and popping together",
            ("buffer",),
            listing("000 both", ["buffer"], [*SOURCE_LIKE, *SERVER]),
            "Each push and each pop is an operation; rows are named after their pushes. "
            "redis-cli's rows pop with the LRANGE trick, `mass_insert` pops with ListBuffer. No "
            "row can exceed its ceiling, because all of the server's work is included.",
        ),
        Section(
            "Python compared with C",
            ("buffer", "lists"),
            python_to_c,
            about="A Python client's rate / the C client's: the median of the rounds, with the "
            "range. In 2018 the last of the four figures is for PythonParser, the others are for "
            "HiredisParser. `fastresp mass_insert` is one load, so it is compared with the C "
            "client of `lists.py`: both push all items onto an empty list.",
        ),
        Section(
            "What hiredis gains",
            ("buffer", "shares"),
            parser_gain,
            about="Rate with HiredisParser / rate with PythonParser, minus one: the median of the "
            "rounds, with the range. The gain of 2018 is from a profile: processing the messages "
            "is the same work with both parsers, so the gain is the ratio of its shares of the CPU "
            "time, minus one. Our gain from a profile uses the shares below, without waiting.",
        ),
        Section(
            "What each method gains over the previous one",
            ("shares", "buffer"),
            section_gain,
            about="In the tables of 2018 these are the rows `Gain compare to 2.2` and so on: the "
            "share of processing / the share in the previous section, minus one. Ours is computed "
            "the same way from the shares below, without the CPU time of redis-cli. The last "
            "column compares the rates of pushes and pops together: the median of the rounds, with "
            "the range.",
        ),
        Section(
            "What generating the protocol costs",
            ("buffer", "push"),
            generation,
            about="How much slower each row is than `redis-cli --pipe` with a ready stream: for "
            "the pushes alone, as in 2018 (the server does its work during the pops); for pushes "
            "and pops together; and for a load of 1,000,000 LPUSHes by push.py, up to the last "
            "reply. The loss of 2018 is from a profile; computed from the rates of 2018 it is "
            "71.87, 67.58 and 54.41%. The gain, cumulative in 2018, is over the row above.",
        ),
        Section(
            "Where the CPU time goes",
            ("shares",),
            profiles,
            "Shares of the client's CPU time, from a profiler. The shares of 2018 do not add up to "
            "100%, and its section 2.6 has only two classes.",
        ),
    ),
)

IN_ACTION = Group(
    "Redis in Action: redis-benchmark and a Python client",
    "Section 4.6 of the book has the output of redis-benchmark, and a rule: redis-py reaches 50 to "
    "60% of its rate over one connection, and 25 to 30% if it connects for each command.",
    sources=("001",),
    sections=(
        Section(
            "redis-benchmark and redis-py, command by command",
            ("redis_benchmark",),
            pivot(
                "001 redis-benchmark",
                ["redis_benchmark"],
                first="command",
                base="redis-benchmark",
                extra=[("redis-benchmark in 2013", _then_2013)],
            ),
            "One connection, no pipeline. Rates are from median times; redis-py's rate / "
            "redis-benchmark's is in brackets. Server and client share one core. On two cores each "
            "command waits for two wake-ups, which take up to 100 µs on a virtual machine and make "
            "redis-py look closer to redis-benchmark: the table of connections has such rows. "
            "redis-py has no inline commands. redis-benchmark no longer has `LRANGE_450` (until "
            "2021 its LRANGE_500 read 450 items, redis/redis#8872), so it was given that command. "
            "In 2013 the LPUSH that LRANGE needs was called `LPUSH (again, in order to bench "
            "LRANGE)`.",
        ),
        Section(
            "A connection for each command",
            ("redis_benchmark",),
            listing(
                "001 connections",
                ["redis_benchmark"],
                [
                    *SOURCE_LIKE,
                    against(
                        "rate / redis-benchmark, one connection", of_redis_benchmark, percent=True
                    ),
                    Column("2013", connections_then),
                ],
            ),
            "SETs. Percentages are of redis-benchmark's rate over one connection of the same kind; "
            "the percentages of 2013 are the book's rule. Server and client share one core, except "
            "in rows named `two cores`.",
        ),
    ),
)  # fmt: skip

PIPELINES = Group(
    "Pipelines: pings, depth, scripts, users",
    "Three articles about pipelines measured 10,000 pings, the depth of a pipeline, and 10,000 "
    "users. The tables repeat their work.",
    sources=("002", "003", "004"),
    sections=(
        Section(
            "Ten thousand pings",
            ("pipelining",),
            listing(
                "002 ping",
                ["pipelining"],
                [
                    *SOURCE_LIKE,
                    CLIENT_CPU,
                    Column("then: CPU s", lambda row: ping_then(row, PING)),
                    Column("redis.io, Ruby: s", lambda row: ping_then(row, PING_RUBY)),
                ],
            ),
            "The post used `time.clock()` of Python 2, which counts the client's CPU time: compare "
            "its figures with that column. redis.io has wall times of its Ruby client on a Mac. "
            f"{ONE_CORE}",
        ),
        depth("unix"),
        depth("TCP"),
        Section(
            "Pipelines and scripts",
            ("pipelining",),
            listing("003 scripting", ["pipelining"], [*SOURCE_LIKE, *SERVER]),
            "10,000 counters are read, changed and written. The source recommends scripts instead "
            f"of pipelines, without figures. {ONE_CORE}",
        ),
        Section(
            "A busy loop",
            ("pipelining",),
            listing(
                "003 busy loop",
                ["pipelining"],
                source_like("µs per SET", lambda seconds: f"{seconds * 1e6:,.2f}"),
            ),
            "SETs for one second, each of which waits for its reply; the source advises against "
            "it, without figures. `fastresp mass_insert` waits only at the end. "
            f"{ONE_CORE}",
        ),
        Section(
            "Ten thousand users, with and without pipelines",
            ("workflow",),
            workflow,
            "Users are created, updated, read and deleted. The source has the best of seven "
            f"rounds. {ONE_CORE}",
        ),
    ),
)


def peers(over: str, table: str) -> Section:
    """Return a table of peers.py."""
    title = f"SET with other clients, over {over}"
    return Section(
        title,
        ("peers",),
        listing(table, ["peers"], [*SOURCE_LIKE, *SERVER, WAITING, CLIENT_CPU]),
        "100,000 SETs of 129 bytes with distinct keys. Each client uses its fastest documented "
        "method, with 1,000 commands per batch unless it chooses the number.",
    )


def ways(kind: str, what: str) -> Section:
    """Return a table of ways.py."""
    pipeline = against("rate / redis-py", row_named(f"{kind} redis-py pipeline"))
    return Section(
        f"Ways to load rows with {kind}",
        ("ways",),
        listing("ways", ["ways"], [*TURNS, pipeline], prefix=f"{kind} ", parser=False),
        f"300,000 rows become {what}, over a unix socket: with a redis-py pipeline of 1,000; with "
        "`redis-cli --pipe`, fed by each generator or reading a ready-made file (`no generation`); "
        "with fastresp through redis-cli, over a socket, and from Arrow columns.",
    )


def past(kind: str, title: str, rows: str = "1,000,000") -> Section:
    """Return a table of past.py."""
    file = against("rate / ready-made file", row_named(f"{kind} no generation"))
    return Section(
        title,
        ("past",),
        listing("past", ["past"], [*TURNS, file], prefix=f"{kind} ", parser=False),
        f"{rows} rows.",
    )


PAST = Group(
    "Merged and serialised loads",
    "Each table has `redis-cli --pipe` with a ready-made file of single commands "
    "(`no generation`), and fastresp with single commands, merged and serialised, from dicts "
    "and from Arrow columns, over a unix socket. DEBUG DIGEST is the same after each load.",
    sections=(
        past("LPUSH", "One list, LPUSH"),
        past("RPUSH", "One list, RPUSH"),
        past("SADD", "One set of numbers"),
        past("ZADD", "One sorted set"),
        past("HSET", "One hash"),
        past("SET", "Strings of 129 bytes"),
        past("hashes of 3", "Hashes of 3 fields", "200,000"),
        past("hashes of 10", "Hashes of 10 fields", "200,000"),
        past("hashes of 30", "Hashes of 30 fields", "200,000"),
        Section(
            "Other clients during a load",
            ("stall",),
            listing("stall", ["stall"], [LATE, LONGEST], parser=False),
            "Another connection sends a PING each millisecond during a load of 1,000,000 rows as "
            "single commands, merged and serialised. Load, server and PING share two cores.",
        ),
    ),
)  # fmt: skip

OTHERS = Group(
    "Other tools and clients, and memory",
    "Whole loads by redis-cli and by other Python clients, and the memory that loads need.",
    sections=(
        ways("SET", "SETs of 129 bytes"),
        ways("HSET", "hashes of 5 fields"),
        peers("a unix socket", "peers SET"),
        peers("TCP", "peers SET, TCP"),
        Section(
            "Hashes from an Arrow table, over TCP",
            ("peers",),
            listing("peers HSET, TCP", ["peers"], [*TURNS, AGAINST_ADBC]),
            "200,000 rows of 10 text columns become a hash each. `adbc_ingest` of the ADBC driver "
            "for Redis needs Python 3.12 and a server with Search; it also creates a Search index "
            "and writes a row id into each hash. fastresp loads the same table with `HSET "
            "users:{id} {**}`.",
        ),
        Section(
            "Vectors into a search index, over TCP",
            ("peers",),
            listing("peers vectors, TCP", ["peers"], [*TURNS, AGAINST_REDISVL]),
            "20,000 documents, a text and a vector of 384 float32 each, become hashes that a "
            "search index covers. RedisVL and the pipeline get the bytes of each vector; "
            "fastresp gets NumPy arrays or a column of lists, with `{embedding!f32}`.",
        ),
        Section(
            "Memory",
            ("memory",),
            listing(
                "memory", ["memory"],
                [ITEMS, GREATEST, _of_greatest("start"), _of_greatest("peak")],
            ),
            "The memory of the client's process, greatest of all rounds. For `mass_insert` it is "
            "the growth after fastresp is imported; for `ListBuffer` the peak of the whole "
            "process, Python included. Start and peak are of the same round.",
        ),
    ),
)  # fmt: skip

GROUPS = (OTHERS, PAST, PARTS, SCALE, REPORT_2018, IN_ACTION, PIPELINES)
