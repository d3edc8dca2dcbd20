"""Memory of a client for 10,000,000 items: mass_insert and ListBuffer.

Each row is a separate Python process, which reports its memory at the start and its peak (``VmRSS``
and ``VmHWM`` of ``/proc/self/status``; ``ru_maxrss`` would include the peak of its parent process).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

from results import Result
from script import run_script
from servers import running
from turns import Contender, NotAvailable, Timed, measure, need

ITEMS = 10_000_000
FAST_ITEMS = 1_000_000
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
    checksum = 0
    for first in range(0, items, 10_000):
        last = min(items, first + 10_000)
        checksum = crc32(b"".join(b"%016d" % index for index in range(first, last)), checksum)
    return checksum


def run(row: str, items: int, url: str) -> dict[str, Any]:
    """Run a row's process; return what it reports."""
    if not Path("/proc/self/status").exists():
        raise NotAvailable("only Linux reports the peak of a single process")
    middle, transport, _ = ROWS[row]
    command = [sys.executable, "-c", BEGIN + middle + END, url, str(items), transport]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def compare(args: argparse.Namespace) -> list[Result]:
    """Run each row's process, in turn; check that all items were pushed and popped."""
    checksum = checksum_of(args.items)
    with running() as server:

        def contender(row: str) -> Contender:
            middle, _, whole = ROWS[row]
            expected = (
                (args.items, 0, checksum) if middle is BUFFER else (args.items, args.items, 0)
            )

            def measured() -> Timed:
                facts = run(row, args.items, server.url)
                found = facts["done"], server.client.llen(KEY), facts["checksum"]
                need(found, expected, f"{row}, (items, items left, checksum)")
                start, peak = facts["start"], facts["peak"]
                return Timed(peak if whole else peak - start, {"start": start, "peak": peak})

            return measured

        contenders = [
            (Result("memory", row, "", args.items, unit="byte"), contender(row)) for row in ROWS
        ]
        return measure(contenders, args.rounds, server.process, before=server.empty, warm_up=False)


if __name__ == "__main__":
    run_script(__doc__, compare, 3, 1, items=("number of items", ITEMS, FAST_ITEMS))
