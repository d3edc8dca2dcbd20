"""The tables of scale.py: loads into sinks, large loads, and loads of a whole cluster."""

from __future__ import annotations

from statistics import median

from results import Result

from .data import Group, Section
from .goal import beside
from .goals import SLOTS
from .tables import TURNS, Column, listing, speed

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
SLOWEST = Column("slowest node CPU s", lambda row: f"{median(row.of('node_cpu')):.3f}")

SCALE = Group(
    "Beyond this machine",
    "How many nodes one loader process feeds, and what a large load costs. The guide to large "
    "loads computes from these figures what 10^10 keys take. The loader has one core; sinks and "
    "servers share the others.",
    sections=(
        Section(
            "The cost of key slots",
            ("scale",),
            listing(
                "scale slots", ["scale"],
                [_each("CPU ns", "client_cpu"), beside("more than without slots", SLOTS)],
                parser=False,
            ),
            about="SETs of 8 and 129 bytes are encoded and not sent: for one server, and for a "
            "cluster, each command into the chunk of its node.",
        ),
        Section(
            "One loader process into sinks",
            ("scale",),
            listing(
                "scale lanes", ["scale"],
                [RATE, Column("MB/s", _megabytes), LOADER, _each("sinks CPU ns", "all_cpu")],
                parser=False,
            ),
            "SETs of 8 and 129 bytes from rows and from Arrow columns. A sink is a small program "
            "in C that reads commands, counts them and answers `+OK`, so the client is the limit. "
            "Sinks named nodes are a cluster, and each command is routed to the node of its key. "
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
            "with 100,000 keys that repeat. CPU times are per command; memory is the loader's, "
            "greatest of all rounds.",
        ),
        Section(
            "A whole cluster on this machine",
            ("scale",),
            listing("scale cluster", ["scale"], [*TURNS, SLOWEST], parser=False),
            "1,000,000 SETs of 129 bytes into primaries and replicas (`3+3`: three of each): by "
            "one loader process, and by one `redis-cli --pipe` with a ready-made file for each "
            "primary, at the same time. The server's CPU time is the sum of the nodes on the "
            "busiest core.",
        ),
    ),
)  # fmt: skip
