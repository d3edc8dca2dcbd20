"""The tables of the report, an entry each: what it shows, of which results, with which chart."""

from __future__ import annotations

from results import Result

from .data import Group, Section
from .parts import PARTS
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
    WAITING,
    Column,
    against,
    listing,
    pivot,
    source_columns,
    source_like,
)

__all__ = ["GROUPS", "PICTURE"]

ITEMS = Column("items", lambda row: f"{row.operations:,}")
GREATEST = Column("greatest MiB", lambda row: f"{mebibytes(max(row.values)):,.1f}")


def _of_greatest(detail: str) -> Column:
    """What was noted, in bytes, with the greatest value."""

    def cell(row: Result) -> str:
        worst = row.values.index(max(row.values))
        known = row.details[worst].get(detail)
        return "-" if known is None else f"{mebibytes(known):,.1f}"

    return Column(f"its {detail}, MiB", cell)


ONE_CORE = "The server and all contenders share one core."


def depth(over: str) -> tuple[Section, Section]:
    """The tables of the depth of pipelines."""
    table = f"003 depth, {over}"
    title = f"Depth of a pipeline over {'a unix socket' if over == 'unix' else over}"
    return (
        Section(
            title,
            ("pipelining",),
            pivot(table, ["pipelining"], first="commands in a pipeline", name=_depth),
            depth_chart(title, table),
            "The source has this as a graph without figures: almost linear at first, in the end "
            "ten times the rate without pipelines. fastresp keeps what is in flight within bounds "
            f"by itself: there is no depth to choose. Rates are by median times. {ONE_CORE}",
        ),
        Section(
            f"{title}: worst, best, average",
            ("pipelining",),
            listing(table, ["pipelining"], SOURCE_LIKE),
            about="The same values, each with its time, and why one was not measured.",
        ),
    )


def _depth(name: str) -> str:
    return name.removeprefix("depth ")


def _then_2013(name: str) -> str:
    found = REDIS_BENCHMARK.get(redis_benchmark_name(name))
    return f"{found:,.0f}" if found else "-"


BUFFER = ("buffer", "redis_benchmark")

REPORT_2018 = Group(
    "The report of 2018: a list as a buffer",
    "100,000 LPUSH of 129 bytes and as many pops, in turns of 1,000, over a unix socket. Not in "
    "turns: `fastresp mass_insert` is one load of all, which is popped afterwards, and "
    "redis-benchmark either pushes onto a list or pops off a full one.",
    sources=("000",),
    sections=(
        Section(
            "Pushing: LPUSH",
            BUFFER,
            listing("000 push", BUFFER, source_columns(PUSH, "2018", True), expected=list(PUSH)),
            bars("Pushing: LPUSH", "000 push", BUFFER, figures=PUSH, then="2018", server=True),
            "Operations by server CPU are the ceiling: what the server could have done if it had "
            "never waited for the client. Through redis-cli most of the server's work falls into "
            "the times of the pops, as in 2018: these rows say what the writing costs, and the "
            "table of both together what it all takes. ListBuffer sends a thousand items with "
            "each LPUSH, as `a thousand a command` does; all others one. `fastresp mass_insert` is "
            "one load of 100,000, not in turns with pops, and its connecting is timed; the rows of "
            "redis-benchmark have no pops between the pushes either. What is naive, and "
            "redis-benchmark without `-P`, shares one core with the server, as below.",
        ),
        Section(
            "Popping: RPOP, or LRANGE and LTRIM",
            BUFFER,
            listing("000 pop", BUFFER, source_columns(POP, "2018", False), expected=list(POP)),
            bars("Popping", "000 pop", BUFFER, figures=POP, then="2018"),
            "`LRANGE_100` of redis-benchmark reads the same 100 items again and again; one "
            "operation is a request, not an item. No row of redis-benchmark has pushes between.",
        ),
        Section(
            "Pushing and popping together",
            ("buffer",),
            listing("000 both", ["buffer"], [*SOURCE_LIKE, *SERVER]),
            bars("Pushing and popping together", "000 both", ("buffer",), server=True),
            "Each push and each pop is an operation; rows are named by their pushes. Through "
            "redis-cli, and after `mass_insert` as well, the items are popped as the row of that "
            "name, `LRANGE trick` or `fastresp ListBuffer`, pops them. No row can exceed its "
            "ceiling here: all of the server's work is in it.",
        ),
        Section(
            "Python by C",
            ("buffer", "lists"),
            python_to_c,
            about="The rate of a Python client in percent of the C client's. Of the four figures "
            "of 2018 the last is by PythonParser, the others by HiredisParser. Those of fastresp "
            "have the median of the ratios, round by round where the rounds took turns. "
            "`fastresp mass_insert` is one load, not in turns with pops, and so it is compared "
            "with the C client of `lists.py`: both push all items into an empty list.",
        ),
        Section(
            "What the parser in C gains",
            ("buffer", "shares"),
            parser_gain,
            about="Rate with HiredisParser by that with PythonParser, less one, of average times. "
            "redis-cli's pops are in its pushes, and those of the LRANGE trick are pipelined. The "
            "gain of 2018 is of a profile: the processing of the messages is the same work, so its "
            "share of the CPU time, by that with the other parser, less one, is what the client "
            "gains. Ours beside it is of the shares below, and waiting is no part of them.",
        ),
        Section(
            "What each way gains over the one before",
            ("shares", "buffer"),
            section_gain,
            about="`Gain compare to 2.2` and so on, of the tables of 2018: the share of the "
            "processing by that of the section before, less one. Ours is the same of our shares, "
            "below, which leave out what redis-cli computes. Beside it is the rate of pushes and "
            "pops together by that of the way before, less one, of average times.",
        ),
        Section(
            "What generating the protocol costs",
            ("buffer", "push"),
            generation,
            about="Rates of the pushes alone, as in 2018, while the server's work falls into the "
            "times of the pops; of pushes and pops together; and of a load of 1,000,000 LPUSHes by "
            "push.py, that ends with the last reply. The losses are against `redis-cli --pipe` "
            "with a ready stream; that of 2018 is of a profile, and by its table of rates it would "
            "be 71.87, 67.58 and 54.41%. The gain that 2018 calls cumulative is that over the row "
            "above; so it is here.",
        ),
        Section(
            "Where the CPU time goes",
            ("shares",),
            profiles,
            shares_chart,
            "Shares of the client's CPU time, by a profiler. Those of 2018 don't add up to 100%; "
            "of its section 2.6 there are two classes only.",
        ),
    ),
)

IN_ACTION = Group(
    "Redis in Action: redis-benchmark and a Python client",
    "The listing and the rule of section 4.6: redis-py reaches 50 to 60% of what redis-benchmark "
    "does with one connection, or 25 to 30% if it connects for each command.",
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
            "One connection, no pipeline; rates by median times, and in brackets the median of "
            "redis-py's rate by redis-benchmark's, line by line in turn. Server and client share "
            "one core: from one core to another each command waits for two wake-ups, and on a "
            "virtual machine these take anything up to 100 µs. They are the same for all, so that "
            "with them redis-py seems closer to redis-benchmark; the table of connections has "
            "such rows. `LRANGE_450` is no line of redis-benchmark any more: what it calls "
            "LRANGE_500 read 450 until 2021 (redis/redis#8872); here it was given the command. "
            "The LPUSH needed for LRANGE is what was called LPUSH again, in order to bench LRANGE.",
        ),
        Section(
            "The same commands: worst, best, average",
            ("redis_benchmark",),
            listing(
                "001 redis-benchmark",
                ["redis_benchmark"],
                [
                    *SOURCE_LIKE,
                    against("by redis-benchmark", of_redis_benchmark, percent=True),
                    Column("redis-benchmark in 2013", lambda row: _then_2013(row.row)),
                ],
            ),
            about="The same values, each with its time, the range of redis-py's percentages, and "
            "why a line was not measured.",
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
                        "by redis-benchmark, one connection", of_redis_benchmark, percent=True
                    ),
                    Column("2013", connections_then),
                ],
            ),
            bars("A connection for each command", "001 connections", ("redis_benchmark",)),
            "SETs. Percentages are of redis-benchmark's rate over one connection, by the same way "
            "to the server; those of 2013 are the rule of the source. Server and client share one "
            "core, and have one each in the rows that say two.",
        ),
    ),
)  # fmt: skip

PIPELINES = Group(
    "Pipelines: pings, depth, scripts, users",
    "What three texts about pipelines measured: 10,000 pings, the depth of a pipeline, and 10,000 "
    "users.",
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
            bars("Ten thousand pings", "002 ping", ("pipelining",), axis="pings a second"),
            "The clock of the post, `time.clock()` of Python 2, counts the client's CPU time: "
            "compare its figures with that column. Those of redis.io are wall time, by its Ruby "
            f"client on a Mac. {ONE_CORE}",
        ),
        *depth("unix"),
        *depth("TCP"),
        Section(
            "Pipelines and scripts",
            ("pipelining",),
            listing("003 scripting", ["pipelining"], [*SOURCE_LIKE, *SERVER]),
            bars("Pipelines and scripts", "003 scripting", ("pipelining",)),
            "10,000 counters read, computed with and written. The source says that scripts do "
            f"better than pipelines there, and has no figures. {ONE_CORE}",
        ),
        Section(
            "A busy loop",
            ("pipelining",),
            listing(
                "003 busy loop",
                ["pipelining"],
                source_like("µs a SET", lambda seconds: f"{seconds * 1e6:,.2f}"),
            ),
            bars("A busy loop", "003 busy loop", ("pipelining",)),
            "The silliest thing that can be done, says the source: for one second one SET after "
            "another, each waited for; but `fastresp mass_insert` waits for none before the end. "
            f"The source has no figures. {ONE_CORE}",
        ),
        Section(
            "Ten thousand users, with and without pipelines",
            ("workflow",),
            workflow,
            workflow_bars,
            "Created, updated, retrieved and deleted; the source has the least of seven. "
            f"{ONE_CORE}",
        ),
    ),
)


def peers(over: str, table: str) -> Section:
    """A table of peers.py."""
    title = f"SET by other clients, over {over}"
    return Section(
        title,
        ("peers",),
        listing(table, ["peers"], [*SOURCE_LIKE, *SERVER, WAITING, CLIENT_CPU]),
        bars(title, table, ("peers",), server=True),
        "100,000 SETs of 129 bytes with distinct keys, each client by its best way in bulk; of "
        "1,000 commands, or as it chooses itself.",
    )


OTHERS = Group(
    "Other clients, and memory",
    "The same load by other clients of Redis for Python, and what loads of any size take.",
    sections=(
        peers("a unix socket", "peers SET"),
        peers("TCP", "peers SET, TCP"),
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
            "Of the client's process alone, the greatest of all rounds. The rows have different "
            "quantities: of `mass_insert` the peak above the start, when fastresp is imported; of "
            "`ListBuffer` the peak of the whole process, Python itself included. Beside it are the "
            "start and the peak of the same round.",
        ),
    ),
)  # fmt: skip

# What the README shows.
PICTURE = bars(
    "SETs of 129 bytes a second, over a unix socket",
    "peers SET",
    ("peers",),
    axis="SET commands a second",
    server=True,
)

GROUPS = (REPORT_2018, IN_ACTION, PIPELINES, OTHERS, PARTS)
