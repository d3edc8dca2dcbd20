"""Cost of key slots, throughput of one loader process, and loads of whole local clusters.

Each load runs in a new process, ``loader.py``, on the last core; sinks and servers share the other
cores. During each load, the sinks must receive exactly the commands and bytes counted by the
loader.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import redis
from c_programs import compiled
from cores import CpuTimes, Places, apart
from loader import BLOCK, SOURCES, Loader, source, timed
from results import Result
from scale_cluster import ROWS, Setup, measure_cluster
from script import run_script
from servers import running
from sinks import SINK, Sinks
from turns import Entry, NotAvailable, Timed, entries, measure, show

from fastresp.encode.writer import CHUNK_BYTES
from fastresp.resp.route import Router
from fastresp.resp.slots import SLOTS
from fastresp.server.options import Options
from fastresp.sources.chunks import ROUTED_BYTES
from fastresp.sources.source import encoding

COMMANDS, FAST_COMMANDS = 5_000_000, 1_000_000
MOST, FAST_MOST = 10**8, 10**7
LEAST = 10**5
REPEAT = 10**7
PARTS = ("slots", "lanes", "commands", "cluster")
# Nodes of a cluster of sinks; 0 for a server without a cluster.
LANES = (0, 1, 2, 4, 8, 100)
# Loads into this many nodes have a fifth of the commands.
MANY_LANES = 100
SIZES = SHORT, LONG = 8, 129
# Commands that are encoded; nodes of the cluster, 0 for no slots, and their names in the rows.
ENCODED = 1_000_000
NODES = {0: "without slots", 1: "1 node", 3: "3 nodes"}


def encode(kind: str, size: int, nodes: int) -> Timed:
    """Encode a source of SETs, and route them to nodes if there are any; return the CPU time."""
    template, make = source(kind, BLOCK, size)
    writer, data = encoding(make(ENCODED), template, Options())
    router = None
    if nodes:
        of_slots = [slot * nodes // SLOTS for slot in range(SLOTS)]
        router = Router(nodes, ROUTED_BYTES // nodes, CHUNK_BYTES // 2, of_slots=of_slots)
    count, begun = 0, process_time()
    for chunk in writer.chunks(data):
        made = [chunk] if router is None else router.route(chunk)
        count += sum(each.commands for each in made)
    if router is not None:
        count += sum(each.commands for each in router.flush())
    used = process_time() - begun
    if count != ENCODED:
        raise SystemExit(f"{kind}: {count:,} commands were made instead of {ENCODED:,}")
    return Timed(used, {"client_cpu": used})


def measure_slots(rounds: int) -> list[Result]:
    runs = {
        f"{kind}, {size} bytes, {name}": partial(encode, kind, size, nodes)
        for kind in SOURCES
        for size in SIZES
        for nodes, name in NODES.items()
    }
    return measure(entries("scale slots", runs, ENCODED), rounds)


def load_sinks(
    sinks: Sinks, places: Places, source: str, commands: int, **options: int
) -> dict[str, Any]:
    """Load into sinks; check the received commands, and return the loader's report."""
    loader = Loader(sinks.url, source, commands, **options)
    before, times = sinks.received(), CpuTimes(sinks.pids, places)
    facts = loader.run() | times.since()
    found = tuple(now - then for now, then in zip(sinks.received(), before, strict=True))
    counted = facts["commands"], facts["bytes"]
    if found != counted or counted[0] != commands * options.get("loads", 1):
        raise SystemExit(
            f"the loader counts {counted} commands and bytes, the sinks {found}, of {commands:,} "
            f"commands from {source}"
        )
    return facts | {"command_bytes": facts["bytes"] / facts["commands"]}


def measure_lanes(program: Path | NotAvailable, commands: int, rounds: int) -> list[Result]:
    """Load into one sink, and into clusters of them, in turn."""

    def entry(source: str, size: int, nodes: int) -> Entry:
        count = max(1, commands // 5 if nodes >= MANY_LANES else commands)

        def load() -> Timed:
            with Sinks(program, nodes) as sinks, apart(*sinks.pids) as places:
                facts = load_sinks(sinks, places, source, count, value=size)
            return timed(facts["seconds"], facts)

        where = {0: "no cluster", 1: "1 node"}.get(nodes, f"{nodes} nodes")
        return Result("scale lanes", f"{source}, {size} bytes, {where}", "", count), load

    contenders = [
        entry(source, size, nodes)
        for source in SOURCES
        for size in (SHORT, LONG)
        for nodes in LANES
    ]
    return measure(contenders, rounds, warm_up=False)


def measure_sizes(
    program: Path | NotAvailable, most: int, repeat: int, rounds: int
) -> list[Result]:
    """Load increasing numbers of commands into a sink and into a real server, in turn."""
    sizes = [10**power for power in range(5, 19) if LEAST < 10**power <= most]
    sizes = [min(LEAST, most), *sizes]
    with (
        Sinks(program) as sinks,
        running() as server,
        apart(server.process.pid, *sinks.pids) as places,
    ):
        times = partial(CpuTimes, [server.process.pid], places)
        ways = {
            "a sink": partial(load_sinks, sinks, places, "columns"),
            "a server": partial(load_server, server.client, server.tcp.url, times),
        }
        made = {
            (size, way): Result("scale commands", f"{size:,} into {way}", "", size)
            for size in sizes
            for way in ways
        }
        for number in range(1, rounds + 1):
            for (size, way), result in made.items():
                if size > repeat and number % 3 != 1:
                    continue
                show(f"round {number} of {rounds}: {result.row}")
                loads = max(1, repeat // size)
                facts = ways[way](size, value=SHORT, loads=loads)
                for name in ("cpu", "server_cpu", "node_cpu", "all_cpu"):
                    facts[name] /= loads
                value, details = timed(facts["cpu"], facts)
                result.add(value, round=number, **details)
    return [*made.values()]


def load_server(
    client: redis.Redis, url: str, times: partial[CpuTimes], commands: int, **options: int
) -> dict[str, Any]:
    """Load into a real server; check the executed commands, and return the loader's report."""
    client.execute_command("FLUSHALL", "SYNC")
    loader = Loader(url, "columns", commands, **options)
    client.execute_command("CONFIG", "RESETSTAT")
    used = times()
    facts = loader.run() | used.since()
    info: Any = client.info("commandstats")
    calls, keys = info["cmdstat_set"]["calls"], client.dbsize()
    if not facts["commands"] == calls == commands * options["loads"] or keys > BLOCK:
        raise SystemExit(
            f"the loader counts {facts['commands']:,} commands, the server {calls:,}; {keys:,} keys"
        )
    return facts


def add_options(parser: argparse.ArgumentParser) -> None:
    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    parser.add_argument("--primaries", type=numbers, help="of clusters: 3,6,9,12, or 3 with --fast")
    parser.add_argument("--free", action="store_true", help="let the system place cluster and load")


def compare(args: argparse.Namespace) -> list[Result]:
    chosen = args.only or PARTS
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(f"unknown: {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    results: list[Result] = []
    if "slots" in chosen:
        results += measure_slots(args.rounds)
    with compiled(SINK) as program:
        if isinstance(program, NotAvailable):
            chosen = set(chosen) - {"lanes", "commands"}
            results += [Result("scale lanes", "sinks", reason=str(program))]
        if "lanes" in chosen:
            results += measure_lanes(program, args.commands, args.rounds)
        if "commands" in chosen:
            results += measure_sizes(program, args.most, args.repeat, args.rounds)
    if "cluster" in chosen:
        primaries = args.primaries or ([3] if args.fast else [3, 6, 9, 12])
        for setup in (Setup(3, 1), *map(Setup, primaries)):
            results += measure_cluster(setup, args.rows, args.rounds, free=args.free)
    return results


if __name__ == "__main__":
    run_script(
        __doc__,
        compare,
        6,
        2,
        only=True,
        add=add_options,
        commands=("commands of a load into sinks", COMMANDS, FAST_COMMANDS),
        most=("most commands of a load into one sink and one server", MOST, FAST_MOST),
        repeat=("commands up to which smaller loads are repeated", REPEAT),
        rows=("rows of a load into a real cluster", ROWS),
    )
