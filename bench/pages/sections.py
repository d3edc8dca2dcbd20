"""The tables of the page, an entry for each: its columns, its results, its chart."""

from __future__ import annotations

from statistics import median

from results import Result

from .data import Group, Section
from .parts import PARTS, row_named
from .plots import (
    bars,
    commands_chart,
    depth_chart,
    mebibytes,
    shares_chart,
)
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
    workflow_bars,
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
    speed,
)

__all__ = ["GROUPS", "PICTURE"]

# Rows of hashes per second, compared with the closest peer's.
AGAINST_ADBC = against("rate / adbc_ingest", row_named("adbc_ingest, Arrow table"))
# Documents per second, compared with RedisVL's.
AGAINST_REDISVL = against("rate / RedisVL", row_named("RedisVL, SearchIndex.load"))
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


def depth(over: str) -> tuple[Section, Section]:
    """Return the tables of pipeline depths."""
    table = f"003 depth, {over}"
    title = f"Depth of a pipeline over {'a unix socket' if over == 'unix' else over}"
    return (
        Section(
            title,
            ("pipelining",),
            pivot(table, ["pipelining"], first="commands in a pipeline", name=_depth),
            depth_chart(title, table),
            "In the source this is a graph without figures: almost linear at first, in the end "
            "ten times the rate without pipelines. fastresp bounds what is in flight itself, so "
            f"there is no depth to choose. Rates are from median times. {ONE_CORE}",
        ),
        Section(
            f"{title}: worst, best, average",
            ("pipelining",),
            listing(table, ["pipelining"], SOURCE_LIKE),
            about="The same rows with their times, and the reasons of those not measured.",
        ),
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
    "Redis list, with redis-py, hiredis, and generators that feed `redis-cli --pipe`? Here is the "
    "same work: 100,000 LPUSHes of 129 bytes and as many pops, 1,000 of each in turn, over a unix "
    "socket. Exceptions: `fastresp mass_insert` loads everything first, and redis-benchmark either "
    "pushes or pops.",
    sources=("000",),
    sections=(
        Section(
            "Pushing: LPUSH",
            BUFFER,
            listing("000 push", BUFFER, source_columns(PUSH, "2018", True), expected=list(PUSH)),
            bars("Pushing: LPUSH", "000 push", BUFFER, figures=PUSH, then="2018", server=True),
            "`op / server CPU s` is the ceiling: the rate if the server never waited for the "
            "client. Through redis-cli the server does most of its work during the pops, as in "
            "2018, so these rows show the cost of writing; the table of both together shows all "
            "of it. ListBuffer and `1,000 per command` send 1,000 items with each LPUSH, all "
            "others one. `fastresp mass_insert` includes its connecting. `naive`, and "
            "redis-benchmark without `-P`, share one core with the server.",
        ),
        Section(
            "Popping: RPOP, or LRANGE and LTRIM",
            BUFFER,
            listing("000 pop", BUFFER, source_columns(POP, "2018", False), expected=list(POP)),
            bars("Popping", "000 pop", BUFFER, figures=POP, then="2018"),
            "`LRANGE_100` of redis-benchmark reads the same 100 items again and again; an "
            "operation is a request there, not an item.",
        ),
        Section(
            "Pushing and popping together",
            ("buffer",),
            listing("000 both", ["buffer"], [*SOURCE_LIKE, *SERVER]),
            bars("Pushing and popping together", "000 both", ("buffer",), server=True),
            "Each push and each pop is an operation; rows are named by their pushes. The rows of "
            "redis-cli pop with the LRANGE trick, `mass_insert` with ListBuffer. No row can exceed "
            "its ceiling: all of the server's work is included.",
        ),
        Section(
            "Python compared with C",
            ("buffer", "lists"),
            python_to_c,
            about="A Python client's rate / the C client's: the median of the rounds, with the "
            "range. The last of the four figures of 2018 is for PythonParser, the others for "
            "HiredisParser. `fastresp mass_insert` is one load, so it is compared with the C "
            "client of `lists.py`: both push all items onto an empty list.",
        ),
        Section(
            "What hiredis gains",
            ("buffer", "shares"),
            parser_gain,
            about="Rate with HiredisParser / rate with PythonParser, less one: the median of the "
            "rounds, with the range. The gain of 2018 is from a profile: processing the messages "
            "is the same work with both, so the ratio of its shares of the CPU time, less one, is "
            "the gain. Ours from a profile uses the shares below, without waiting.",
        ),
        Section(
            "What each method gains over the one before",
            ("shares", "buffer"),
            section_gain,
            about="`Gain compare to 2.2` and so on in the tables of 2018: the share of processing "
            "/ that of the section before, less one. Ours is computed the same way from the shares "
            "below, without the CPU time of redis-cli. The last column compares the rates of "
            "pushes and pops together: the median of the rounds, with the range.",
        ),
        Section(
            "What generating the protocol costs",
            ("buffer", "push"),
            generation,
            about="How much slower each row is than `redis-cli --pipe` with a ready stream: for "
            "the pushes alone, as in 2018 (the server does its work during the pops); for pushes "
            "and pops together; and for a load of 1,000,000 LPUSHes by push.py, up to the last "
            "reply. The loss of 2018 is from a profile; from its own rates it would be 71.87, "
            "67.58 and 54.41%. The gain, which 2018 calls cumulative, is over the row above.",
        ),
        Section(
            "Where the CPU time goes",
            ("shares",),
            profiles,
            shares_chart,
            "Shares of the client's CPU time, from a profiler. Those of 2018 do not add up to "
            "100%, and its section 2.6 has only two classes.",
        ),
    ),
)

IN_ACTION = Group(
    "Redis in Action: redis-benchmark and a Python client",
    "Section 4.6 of the book has a listing of redis-benchmark, and a rule: redis-py reaches 50 to "
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
            commands_chart,
            "One connection, no pipeline; rates are from median times, and in brackets is "
            "redis-py's rate / redis-benchmark's. Server and client share one core. On two cores "
            "each command waits for two wake-ups, which take up to 100 µs on a virtual machine and "
            "make redis-py look closer to redis-benchmark; the table of connections has such "
            "rows. redis-benchmark no longer has `LRANGE_450`: until 2021 its LRANGE_500 read 450 "
            "(redis/redis#8872); here it was given that command. In 2013 the LPUSH needed for "
            "LRANGE was called `LPUSH (again, in order to bench LRANGE)`.",
        ),
        Section(
            "The same commands: worst, best, average",
            ("redis_benchmark",),
            listing(
                "001 redis-benchmark",
                ["redis_benchmark"],
                [
                    *SOURCE_LIKE,
                    against("rate / redis-benchmark", of_redis_benchmark, percent=True),
                    Column("redis-benchmark in 2013", lambda row: _then_2013(row.row)),
                ],
            ),
            about="The same rows with their times and the range of redis-py's percentages, and "
            "the reasons of those not measured.",
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
            bars("A connection for each command", "001 connections", ("redis_benchmark",)),
            "SETs. Percentages are of redis-benchmark's rate over one connection of the same kind; "
            "those of 2013 are the source's rule. Server and client share one core, except in the "
            "rows of two cores.",
        ),
    ),
)  # fmt: skip

PIPELINES = Group(
    "Pipelines: pings, depth, scripts, users",
    "Three articles about pipelines measured 10,000 pings, the depth of a pipeline, and 10,000 "
    "users. Here is the same work.",
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
            bars("Ten thousand pings", "002 ping", ("pipelining",), axis="pings per second"),
            "The post used `time.clock()` of Python 2, which counts the client's CPU time: compare "
            "its figures with that column. Those of redis.io are wall time, with the Ruby client "
            f"on a Mac. {ONE_CORE}",
        ),
        *depth("unix"),
        *depth("TCP"),
        Section(
            "Pipelines and scripts",
            ("pipelining",),
            listing("003 scripting", ["pipelining"], [*SOURCE_LIKE, *SERVER]),
            bars("Pipelines and scripts", "003 scripting", ("pipelining",)),
            "10,000 counters are read, changed and written. The source says that scripts are "
            f"better than pipelines for this, without figures. {ONE_CORE}",
        ),
        Section(
            "A busy loop",
            ("pipelining",),
            listing(
                "003 busy loop",
                ["pipelining"],
                source_like("µs per SET", lambda seconds: f"{seconds * 1e6:,.2f}"),
            ),
            bars("A busy loop", "003 busy loop", ("pipelining",)),
            "For one second one SET after another, each waiting for its reply, which the source "
            "advises against, without figures. `fastresp mass_insert` waits only at the end. "
            f"{ONE_CORE}",
        ),
        Section(
            "Ten thousand users, with and without pipelines",
            ("workflow",),
            workflow,
            workflow_bars,
            "Created, updated, retrieved and deleted. The source has the best of seven rounds. "
            f"{ONE_CORE}",
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
        bars(title, table, ("peers",), server=True),
        "100,000 SETs of 129 bytes with distinct keys. Each client uses its fastest documented "
        "way, 1,000 commands at a time unless it chooses the number itself.",
    )


def ways(kind: str, each: str) -> Section:
    """Return a table of ways.py."""
    title = f"Ways to load rows with {kind}"
    pipeline = against("rate / redis-py", row_named(f"{kind} redis-py pipeline"))
    return Section(
        title,
        ("ways",),
        listing("ways", ["ways"], [*TURNS, pipeline], prefix=f"{kind} ", parser=False),
        bars(title, "ways", ("ways",), prefix=f"{kind} ", axis="rows per second", value=speed,
             server=True),
        f"300,000 rows become {each}, over a unix socket. The first is a redis-py pipeline of "
        "1,000; then `redis-cli --pipe` fed by Python, and reading a ready file (`no generation`); "
        "fastresp from dicts through redis-cli, from dicts over a socket, and from Arrow columns.",
    )  # fmt: skip


def past(kind: str, what: str, rows: str = "1,000,000") -> Section:
    """Return a table of past.py."""
    title = f"Past the ready file: {what}"
    file = against("rate / ready file", row_named(f"{kind} no generation"))
    return Section(
        title,
        ("past",),
        listing("past", ["past"], [*TURNS, file], prefix=f"{kind} ",
                parser=False),
        bars(title, "past", ("past",), prefix=f"{kind} ", axis="rows per second", value=speed,
             server=True),
        f"{rows} rows, over a unix socket. `redis-cli --pipe` reads a ready file of single "
        "commands (`no generation`); fastresp sends single commands, merged ones and finished "
        "values, from dicts and from Arrow columns. DEBUG DIGEST is the same after each load.",
    )  # fmt: skip


OTHERS = Group(
    "Other clients, and memory",
    "The same load with other Python clients for Redis, and the memory that loads need.",
    sections=(
        ways("SET", "a SET of 129 bytes"),
        ways("HSET", "a hash of 5 fields"),
        past("LPUSH", "one list, LPUSH"),
        past("RPUSH", "one list, RPUSH"),
        past("SADD", "one set of numbers"),
        past("ZADD", "one sorted set"),
        past("HSET", "one hash"),
        past("SET", "strings of 129 bytes"),
        past("hashes of 3", "hashes of 3 fields", "200,000"),
        past("hashes of 10", "hashes of 10 fields", "200,000"),
        past("hashes of 30", "hashes of 30 fields", "200,000"),
        Section(
            "Other clients during a load",
            ("stall",),
            listing("stall", ["stall"], [LATE, LONGEST], parser=False),
            bars(
                "Other clients during a load", "stall", ("stall",),
                axis="99th percentile of PING in ms: less is better",
                value=lambda row: median(row.values) * 1e3,
            ),
            "PING once per ms over another connection, while 1,000,000 rows are loaded as single "
            "commands, merged and serialised. Load, server and PING share two cores.",
        ),
        peers("a unix socket", "peers SET"),
        peers("TCP", "peers SET, TCP"),
        Section(
            "Hashes from an Arrow table, over TCP",
            ("peers",),
            listing("peers HSET, TCP", ["peers"], [*TURNS, AGAINST_ADBC]),
            bars(
                "Hashes from an Arrow table, over TCP", "peers HSET, TCP", ("peers",),
                axis="rows per second", value=speed, server=True,
            ),
            "200,000 rows of 10 text columns become a hash each. `adbc_ingest` of the ADBC driver "
            "for Redis needs Python 3.12 and a server with Search; it also creates a Search index "
            "and writes a row id into each hash. fastresp loads the same table with `HSET "
            "users:{id} {**}`.",
        ),
        Section(
            "Vectors into a search index, over TCP",
            ("peers",),
            listing("peers vectors, TCP", ["peers"], [*TURNS, AGAINST_REDISVL]),
            bars(
                "Vectors into a search index, over TCP", "peers vectors, TCP", ("peers",),
                axis="documents per second", value=speed, server=True,
            ),
            "20,000 documents with a text and a vector of 384 float32 become a hash each, while a "
            "search index covers them. RedisVL and the pipeline get each vector's bytes; fastresp "
            "gets NumPy arrays or a column of lists, with `{embedding!f32}`.",
        ),
        Section(
            "Memory",
            ("memory",),
            listing(
                "memory", ["memory"],
                [ITEMS, GREATEST, _of_greatest("start"), _of_greatest("peak")],
            ),
            bars(
                "Memory", "memory", ("memory",), axis="MiB: less is better",
                value=lambda row: mebibytes(max(row.values)),
            ),
            "The client's process alone, greatest of all rounds. For `mass_insert` it is the "
            "growth from the start, with fastresp imported; for `ListBuffer` the peak of the whole "
            "process, Python included. Start and peak are of the same round.",
        ),
    ),
)  # fmt: skip

# The first chart of the page, which the README shows, too.
PICTURE = bars(
    "SETs of 129 bytes per second, over a unix socket",
    "peers SET",
    ("peers",),
    axis="SET commands per second",
    server=True,
)

GROUPS = (REPORT_2018, IN_ACTION, PIPELINES, OTHERS, SCALE, PARTS)
