"""Memory of a client for 10,000,000 items: mass_insert and ListBuffer.

Table ``memory``. Each row is a separate Python process, which reports its memory at the start and
its peak (``VmRSS`` and ``VmHWM`` of ``/proc/self/status``; ``ru_maxrss`` would include the peak of
its parent process).

- ``fastresp mass_insert, redis-cli`` and ``fastresp mass_insert, socket``: 10,000,000 LPUSHes of
  small values from a generator. The value is the growth from the start, with fastresp imported.
  redis-cli, a separate process with a few blocks of 16 KiB, is not included.
- ``fastresp ListBuffer, push and drain``: as many items pushed, then drained. The value is the peak
  of the whole process, including Python. The items are counted, and their checksum compared.

The metadata has ``start``, ``peak`` and ``above`` in bytes, and the ``seconds``. The server's own
memory, up to 1 GB, is not included.

    python bench/memory.py -o memory.json        # about 3 minutes
    python bench/memory.py --fast --items 100000
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import psutil
import redis
from results import Result, save
from rich.console import Console
from rich.table import Table
from turns import arguments, cpu_seconds, print_goals, show

from fastresp.server.local_server import LocalServer

ITEMS = 10_000_000
FAST_ITEMS = 1_000_000
MIB = 1 << 20
KEY = "key"

# The start and end of each program. argv: the URL, the number of items, and the transport.
BEGIN = """
import json, sys, zlib
import fastresp
from fastresp import *  # the modules of its names: not what is measured

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

url, count, transport = sys.argv[1], int(sys.argv[2]), sys.argv[3]
start = memory("VmRSS")
"""
INSERT = """
commands = (("LPUSH", "key", index) for index in range(count))
report = fastresp.mass_insert(commands, server=url, transport=transport)
done, checksum = report.replies - report.failed, 0
"""
BUFFER = """
items = ("%016d" % index for index in range(count))
done = checksum = 0
with fastresp.ListBuffer("key", server=url) as buffer:
    assert buffer.push(items).length == count
    for batch in buffer.drain():
        done += len(batch)
        checksum = zlib.crc32(b"".join(batch), checksum)
"""
END = """
facts = {"start": start, "peak": memory("VmHWM"), "done": done, "checksum": checksum}
print(json.dumps(facts))
"""
# By row: the middle of the program, its transport, and whether to report the whole process.
ROWS: dict[str, tuple[str, str, bool]] = {
    "fastresp mass_insert, redis-cli": (INSERT, "redis-cli", False),
    "fastresp mass_insert, socket": (INSERT, "socket", False),
    "fastresp ListBuffer, push and drain": (BUFFER, "", True),
}


def checksum_of(items: int) -> int:
    """Return the checksum of ListBuffer's items."""
    checksum = 0
    for first in range(0, items, 10_000):
        last = min(items, first + 10_000)
        checksum = crc32(b"".join(b"%016d" % index for index in range(first, last)), checksum)
    return checksum


def run(row: str, items: int, server: LocalServer) -> dict[str, Any]:
    """Run a row's process; return what it reports."""
    middle, transport, _ = ROWS[row]
    program = [sys.executable, "-c", BEGIN + middle + END]
    command = [*program, server.url, str(items), transport]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def check(row: str, facts: dict[str, Any], left: int, items: int, checksum: int) -> None:
    """End the program unless all items were pushed, and by ListBuffer also popped."""
    expected = (items, 0, checksum) if ROWS[row][0] is BUFFER else (items, items, 0)
    found = facts["done"], left, facts["checksum"]
    if found != expected:
        sys.exit(f"{row}: items, items left, checksum are {found} instead of {expected}")


def print_memory(results: list[Result], items: int) -> None:
    """Print the peaks: the greatest of the rounds."""
    title = f"memory of the client for {items:,} items, MiB"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for column in ("greatest", "start", "peak"):
        table.add_column(column, justify="right")
    for result in results:
        if not result.values:
            print(f"{result.row}: not available: {result.reason}")
            continue
        worst = max(range(len(result.values)), key=lambda index: result.values[index])
        facts = result.details[worst]
        sizes = result.values[worst], facts["start"], facts["peak"]
        table.add_row(result.row, *(f"{size / MIB:.1f}" for size in sizes))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print()
    console.print(table)


def main() -> None:
    """Measure, print the peaks, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=3, fast_rounds=1)
    parser.add_argument(
        "--items", type=int, help=f"number of items: {ITEMS:,}, or {FAST_ITEMS:,} with --fast"
    )
    args = parsed()
    items = args.items if args.items is not None else FAST_ITEMS if args.fast else ITEMS
    if items < 1:
        parser.error("--items must be 1 or more")
    results = {row: Result("memory", row, "", items, unit="byte") for row in ROWS}
    if not Path("/proc/self/status").exists():
        for result in results.values():
            result.reason = "only Linux reports the peak of a single process"
    checksum = checksum_of(items)
    with LocalServer() as server, redis.Redis.from_url(server.url, socket_timeout=None) as client:
        process = psutil.Process(server.process.pid)
        for number in range(args.rounds):
            for row, result in results.items():
                if result.reason:
                    continue
                show(f"round {number + 1} of {args.rounds}: {row}")
                client.flushall()
                before, begun = cpu_seconds(process)[0], perf_counter()
                facts = run(row, items, server)
                seconds, server_cpu = perf_counter() - begun, cpu_seconds(process)[0] - before
                check(row, facts, client.llen(KEY), items, checksum)
                start, peak = facts["start"], facts["peak"]
                result.add(
                    peak if ROWS[row][-1] else peak - start,
                    start=start,
                    peak=peak,
                    above=peak - start,
                    seconds=seconds,
                    server_cpu=server_cpu,
                )
    show("")
    print_memory(list(results.values()), items)
    print_goals(list(results.values()))
    if args.output:
        save(args.output, results.values())


if __name__ == "__main__":
    main()
