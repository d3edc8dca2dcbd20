"""The tables of scale.py: loads into sinks, large loads, and loads of a whole cluster."""

from __future__ import annotations

from statistics import median

from results import Result

from .beside import beside
from .data import Group, Section
from .goals_of_loads import SLOTS
from .plots import bars
from .tables import TURNS, Column, listing, median_time, speed

__all__ = ["SCALE"]


def _each(heading: str, detail: str) -> Column:
    """Return a column of a detail, in nanoseconds per command."""
    return Column(heading, lambda row: f"{median(row.of(detail)) / row.operations * 1e9:,.0f}")


def _megabytes(row: Result) -> str:
    return f"{median(row.of('command_bytes')) * speed(row) / 1e6:,.0f}"


def _greatest(detail: str) -> Column:
    """Return a column of the greatest value of a detail, in MiB."""

    def cell(row: Result) -> str:
        sizes = row.by_round(detail).values()
        return f"{max(sizes) / 2**20:,.1f}" if sizes else "-"

    return Column(f"{detail} MiB", cell)


RATE = Column("commands/s", lambda row: f"{speed(row):,.0f}")
LOADER = _each("loader CPU ns", "client_cpu")
SECONDS = median_time(1, "s", 3, False)
SLOWEST = Column("slowest node CPU s", lambda row: f"{median(row.of('node_cpu')):.3f}")

SCALE = Group(
    "Beyond this machine",
    "What one loader process feeds, and what a large load costs: the figures from which the guide "
    "on large loads computes what 10^10 keys take. The loader has one core, sinks and servers the "
    "others; with two cores they share one.",
    sections=(
        Section(
            "The cost of key slots",
            ("scale",),
            listing(
                "scale slots", ["scale"],
                [_each("CPU ns", "client_cpu"), beside("more than without slots", SLOTS)],
                parser=False,
            ),
            about="Encoding SETs of 8 and 129 bytes, without sending them: as for one server, and "
            "each command into the chunk of its node.",
        ),
        Section(
            "One loader process into sinks",
            ("scale",),
            listing(
                "scale lanes", ["scale"],
                [RATE, Column("MB/s", _megabytes), LOADER, _each("sinks CPU ns", "all_cpu")],
                parser=False,
            ),
            bars(
                "One loader process into sinks", "scale lanes", ("scale",),
                axis="commands per second", value=speed,
            ),
            "SETs of 8 and 129 bytes from rows and from Arrow columns. A sink is a small program "
            "in C that reads commands, counts them and answers `+OK`, so the client is the limit. "
            "With 1 to 8 nodes they are a cluster, and each command goes to the node of its key. "
            "CPU times are per command.",
        ),
        Section(
            "The cost of more commands",
            ("scale",),
            listing(
                "scale commands", ["scale"],
                [LOADER, _each("server CPU ns", "server_cpu"), _greatest("start"),
                 _greatest("peak")],
                parser=False,
            ),
            about="SETs of 8 bytes from Arrow columns, in one load, into a sink and into a server "
            "with 100,000 keys that repeat. CPU times are per command; memory is that of the "
            "loader process, greatest of all rounds.",
        ),
        Section(
            "A whole cluster on this machine",
            ("scale",),
            listing("scale cluster", ["scale"], [*TURNS, SLOWEST], parser=False),
            bars(
                "A whole cluster on this machine", "scale cluster", ("scale",),
                axis="rows per second", value=speed, server=True,
            ),
            "1,000,000 SETs of 129 bytes into primaries and replicas, `3+3` for three of each: by "
            "one loader process, and by one `redis-cli --pipe` for each primary with a ready file, "
            "at the same time. The server's CPU time is that of all nodes that share the busiest "
            "core.",
        ),
    ),
)  # fmt: skip
