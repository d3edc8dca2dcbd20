"""Cost of key slots, throughput of one loader process, and loads of whole local clusters.

- ``scale slots``: see ``scale_slots.py``.
- ``scale lanes``: SETs with values of 8 and of 129 bytes, from rows and from Arrow columns, into
  sinks (``sink.c``): servers that count commands and keep nothing, so that the client is the limit.
  They are a cluster of 1, 2, 4, 8 or 100 nodes, or a single server without a cluster. A value is
  the wall time of a load of 5,000,000 commands, into 100 nodes of 1,000,000.
- ``scale commands``: 10^5 to 10^8 SETs of 8 bytes, from Arrow columns, into one sink, and into one
  real server with 100,000 keys repeatedly, so that its memory does not grow. A value is the
  CPU time of the loader; small loads are repeated up to 10,000,000 commands in all (``--repeat``).
  Larger loads take place in every third round.
- ``scale cluster``: see ``scale_cluster.py``.

Each load runs in a new process, ``loader.py``. It has the last core; sinks and servers share the
other cores, with two cores the first. During each load the sinks must receive exactly the commands
and bytes counted by the loader. The memory of the loader is in the metadata, ``start`` before the
load and ``peak``.

    python bench/scale.py -o scale.json          # about 20 minutes, 2 GB of memory
    python bench/scale.py --fast --commands 200000 --most 1000000 --rows 20000
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import redis
from compiling import NotAvailable, compiled
from cores import CpuTimes, Places, apart, placement
from loader import BLOCK, SOURCES, Loader, add
from results import Result, save
from scale_cluster import ROWS, Setup, free_port, measure_clusters
from scale_slots import measure_slots
from scale_tables import print_tables
from sinks import SINK, Sinks
from turns import arguments, print_goals, show

from fastresp.server.local_server import LocalServer

COMMANDS, FAST_COMMANDS = 5_000_000, 1_000_000
MOST, FAST_MOST = 10**8, 10**7
LEAST = 10**5
REPEAT = 10**7
PARTS = ("slots", "lanes", "commands", "cluster")
# Nodes of a cluster of sinks; 0 for a server without a cluster.
LANES = (0, 1, 2, 4, 8, 100)
# Loads into this many nodes have a fifth of the commands.
MANY_LANES = 100
SHORT, LONG = 8, 129


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


def measure_lanes(program: Path, commands: int, rounds: int) -> list[Result]:
    """Load into one sink, and into clusters of them, in rounds."""
    counts = {nodes: max(1, commands // 5 if nodes >= MANY_LANES else commands) for nodes in LANES}
    made = {
        (source, size, nodes): Result(
            "scale lanes", lane_row(source, size, nodes), "", counts[nodes]
        )
        for source in SOURCES
        for size in (SHORT, LONG)
        for nodes in LANES
    }
    for number in range(1, rounds + 1):
        for (source, size, nodes), result in made.items():
            show(f"round {number} of {rounds}: {result.row}")
            with Sinks(program, nodes) as sinks, apart(sinks.pids) as places:
                facts = load_sinks(sinks, places, source, counts[nodes], value=size)
            add(result, number, facts["seconds"], facts)
    return [*made.values()]


def lane_row(source: str, size: int, nodes: int) -> str:
    """Return the name of a row, such as ``columns, 8 bytes, 4 nodes``."""
    where = {0: "no cluster", 1: "1 node"}.get(nodes, f"{nodes} nodes")
    return f"{source}, {size} bytes, {where}"


def measure_sizes(program: Path, most: int, repeat: int, rounds: int) -> list[Result]:
    """Load more and more commands into a sink and into a real server, in rounds."""
    sizes = [10**power for power in range(5, 19) if LEAST < 10**power <= most]
    sizes = [min(LEAST, most), *sizes]
    port = free_port()
    with (
        Sinks(program) as sinks,
        LocalServer("--port", str(port)) as server,
        redis.Redis(port=port) as client,
        apart([server.process.pid, *sinks.pids]) as places,
    ):
        times = partial(CpuTimes, [server.process.pid], places)
        ways = {
            "a sink": partial(load_sinks, sinks, places, "columns"),
            "a server": partial(load_server, client, f"redis://127.0.0.1:{port}", times),
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
                for name in ("seconds", "cpu", "server_cpu", "node_cpu", "all_cpu"):
                    facts[name] /= loads
                add(result, number, facts["cpu"], facts)
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


def numbers(text: str) -> list[int]:
    """Read an option such as ``3,6``."""
    return [int(each) for each in text.split(",")]


def options() -> argparse.Namespace:
    """Read the options."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=6, fast_rounds=2, only=True)
    for name, full, fast, what in (
        ("commands", COMMANDS, FAST_COMMANDS, "commands of a load into sinks"),
        ("most", MOST, FAST_MOST, "most commands of a load into one sink and one server"),
    ):
        words = f"{what}: {full:,}, or {fast:,} with --fast"
        parser.add_argument(f"--{name}", type=int, help=words)
    parser.add_argument("--repeat", type=int, default=REPEAT, help="repeat smaller loads up to it")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a load into a real cluster")
    parser.add_argument("--primaries", type=numbers, help="of clusters: 3,6,9,12, or 3 with --fast")
    parser.add_argument("--free", action="store_true", help="let the system place cluster and load")
    args = parsed()
    args.commands = args.commands or (FAST_COMMANDS if args.fast else COMMANDS)
    args.most = args.most or (FAST_MOST if args.fast else MOST)
    args.primaries = args.primaries or ([3] if args.fast else [3, 6, 9, 12])
    if min(args.commands, args.most, args.rows, args.repeat, *args.primaries) < 1:
        parser.error("numbers must be 1 or more")
    if unknown := set(args.only or ()) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    return args


def main() -> None:
    """Measure, print the tables, write the results."""
    args = options()
    chosen = args.only or PARTS
    results: list[Result] = []
    if "slots" in chosen:
        results += measure_slots(args.rounds)
    try:
        with compiled(SINK) as program:
            if "lanes" in chosen:
                results += measure_lanes(program, args.commands, args.rounds)
            if "commands" in chosen:
                results += measure_sizes(program, args.most, args.repeat, args.rounds)
    except NotAvailable as error:
        results += [Result("scale lanes", "sinks", reason=str(error))]
    if "cluster" in chosen:
        setups = [Setup(3, 1), *map(Setup, args.primaries)]
        results += measure_clusters(setups, args.rows, args.rounds, free=args.free)
    show("")
    for result in results:
        result.settle()
    print(f"kept apart: {placement()}{'; the real cluster is not' if args.free else ''}")
    print_tables(results)
    print_goals(results)
    if args.output:
        save(args.output, results)


if __name__ == "__main__":
    main()
