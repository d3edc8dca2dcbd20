"""The tables of the report, an entry each: what it shows, of which results, with which chart."""

from __future__ import annotations

from .data import Group, Section
from .parts import PARTS
from .plots import bars, commands_chart, depth_chart, mebibytes, shares_chart
from .ratios import (
    generation,
    parser_gain,
    ping_then,
    profiles,
    python_to_c,
    redis_benchmark_name,
    workflow,
    workflow_bars,
)
from .source_figures import PING, POP, PUSH, REDIS_BENCHMARK
from .tables import (
    AVERAGE_RATES,
    SERVER,
    SOURCE_LIKE,
    TURNS,
    Column,
    listing,
    pivot,
    source_columns,
)

__all__ = ["GROUPS"]

MIB = Column("MiB", lambda row: f"{mebibytes(row):,.1f}")


def depth(over: str) -> Section:
    """A table of the depth of pipelines."""
    table = f"003 depth, {over}"
    title = f"Depth of a pipeline over {'a unix socket' if over == 'unix' else over}"
    return Section(
        title,
        ("pipelining",),
        pivot(table, ["pipelining"], first="commands in a pipeline", name=_depth),
        depth_chart(title, table),
        "The source has this as a graph without figures: almost linear at first, in the end ten "
        "times the rate without pipelines. fastresp keeps what is in flight within bounds by "
        "itself: there is no depth to choose.",
    )


def _depth(name: str) -> str:
    return name.removeprefix("depth ")


def _then_2013(name: str) -> str:
    found = REDIS_BENCHMARK.get(redis_benchmark_name(name))
    return f"{found:,.0f}" if found else "-"


BUFFER = ("buffer", "redis_benchmark")

REPORT_2018 = Group(
    "The report of 2018: a list as a buffer",
    "100,000 LPUSH of 129 bytes and as many pops, in turns of 1,000, over a unix socket.",
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
            "each LPUSH, as `a thousand a command` does; all others one.",
        ),
        Section(
            "Popping: RPOP, or LRANGE and LTRIM",
            BUFFER,
            listing("000 pop", BUFFER, source_columns(POP, "2018", False), expected=list(POP)),
            bars("Popping", "000 pop", BUFFER, figures=POP, then="2018"),
            "`LRANGE_100` of redis-benchmark reads the same 100 items again and again; one "
            "operation is a request, not an item.",
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
            ("buffer",),
            python_to_c,
            about="The rate of a Python client in percent of the C client's. Of the four figures "
            "of 2018 the last is by PythonParser, the others by HiredisParser. Those of fastresp "
            "have the median of the ratios, round by round where the rounds took turns.",
        ),
        Section(
            "What the parser in C gains",
            ("buffer",),
            parser_gain,
            about="Rate with HiredisParser by that with PythonParser, less one, of average times. "
            "redis-cli's pops are in its pushes, and those of the LRANGE trick are pipelined.",
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
            "Shares of the client's CPU time, by a profiler. Those of 2018 don't add up to 100%.",
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
            "One connection, no pipeline. In brackets: redis-py's rate by redis-benchmark's.",
        ),
        Section(
            "A connection for each command",
            ("redis_benchmark",),
            listing("001 connections", ["redis_benchmark"], SOURCE_LIKE),
            bars("A connection for each command", "001 connections", ("redis_benchmark",)),
        ),
    ),
)  # fmt: skip

PIPELINES = Group(
    "Pipelines: pings, depth, scripts, users",
    "What three texts about pipelines measured: 10,000 pings, the depth of a pipeline, and 10,000 "
    "users. By the Ruby client on a Mac, 10,000 pings took 1.185 s, and 0.251 s in a pipeline.",
    sources=("002", "003", "004"),
    sections=(
        Section(
            "Ten thousand pings",
            ("pipelining",),
            listing(
                "002 ping",
                ["pipelining"],
                [*AVERAGE_RATES[:2], Column("then: s", lambda row: ping_then(row, PING))],
            ),
            bars("Ten thousand pings", "002 ping", ("pipelining",), axis="pings a second"),
        ),
        depth("unix"),
        depth("TCP"),
        Section(
            "Pipelines and scripts",
            ("pipelining",),
            listing("003 scripting", ["pipelining"], AVERAGE_RATES),
            bars("Pipelines and scripts", "003 scripting", ("pipelining",)),
        ),
        Section(
            "A busy loop",
            ("pipelining",),
            listing("003 busy loop", ["pipelining"], AVERAGE_RATES),
            bars("A busy loop", "003 busy loop", ("pipelining",)),
            "The silliest thing that can be done, says the source: one SET after another, each "
            "waited for.",
        ),
        Section(
            "Ten thousand users, with and without pipelines",
            ("workflow",),
            workflow,
            workflow_bars,
            "Created, updated, retrieved and deleted; the least of seven, as the source has it.",
        ),
    ),
)

OTHERS = Group(
    "Other clients, and memory",
    "The same load by other clients of Redis for Python, and what loads of any size take.",
    sections=(
        Section(
            "SET by other clients",
            ("peers",),
            listing("peers SET", ["peers"], [*AVERAGE_RATES[:2], *SERVER, *TURNS[3:]]),
            bars("SET by other clients", "peers SET", ("peers",), server=True),
        ),
        Section(
            "Memory",
            ("memory",),
            listing("memory", ["memory"], [MIB]),
            bars("Memory", "memory", ("memory",), axis="MiB: less is better", value=mebibytes),
        ),
    ),
)

GROUPS = (REPORT_2018, IN_ACTION, PIPELINES, OTHERS, PARTS)
