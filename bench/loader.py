"""One loader process for ``scale.py``: load SETs from a source of any length, and report the cost.

The source repeats a block of rows, so it needs no more memory for 10^8 commands than for 10^5:
existing tuples, or one Arrow batch that a RecordBatchReader returns repeatedly. Each key is
``key:`` and 8 digits. A first load of 1,000 commands imports the modules that a load needs and is
not measured. Then the program prints ``ready``, and begins when it reads a line or the end of its
input.

At the end it prints JSON of all measured loads together: ``seconds`` (wall time), ``cpu`` (seconds
of this process, all threads), ``commands`` and ``bytes`` that were acknowledged, and on Linux
``start`` and ``peak``, the memory before the loads and its peak, in bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice, repeat
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from turns import Timed

import fastresp

# Rows in a block: an Arrow batch of usual size.
BLOCK = 100_000
FIRST = 1_000
SOURCES = ("rows", "columns")
DETAILS = (
    "start", "peak", "command_bytes", "server_cpu", "node_cpu", "all_cpu", "key_bytes",
)  # fmt: skip


class Loader:
    """Start a loader process, and wait until it is ready.

    Args:
        url: the URL of the server, or of a cluster node.
        source: ``"rows"`` or ``"columns"``.
        commands: number of commands in each load.
        **options: options of the program: ``value``, ``block``, ``loads``.
    """

    def __init__(self, url: str, source: str, commands: int, **options: int) -> None:
        named = [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [sys.executable, __file__, url, source, str(commands), *named],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self) -> dict[str, Any]:
        """Start its loads; return its report.

        Raises:
            SystemExit: it failed.
        """
        printed, complaint = self._process.communicate("\n")
        if self._process.returncode:
            raise SystemExit(f"the loader failed: {complaint.strip()[-500:]}")
        return json.loads(printed)


def timed(value: float, facts: dict[str, Any]) -> Timed:
    """Return a value with the report of a loader and the servers' CPU times, of one load."""
    details = {name: facts[name] for name in DETAILS if name in facts}
    return Timed(value, details | {"client_cpu": facts["cpu"]})


def rows(count: int, value_bytes: int) -> list[tuple[str, str]]:
    return [(f"key:{number:08}", "x" * value_bytes) for number in range(count)]


def source(kind: str, block: int, value_bytes: int) -> tuple[str, Callable[[int], Any]]:
    """Return the template, and a function that makes a source of this number of commands."""
    ready = rows(block, value_bytes)
    if kind == "rows":
        return "SET {0} {1}", lambda count: islice(chain.from_iterable(repeat(ready)), count)
    import pyarrow as pa

    keys, values = zip(*ready, strict=True)
    batch = pa.record_batch({"key": keys, "value": values})

    def batches(count: int) -> Iterator[Any]:
        yield from repeat(batch, count // block)
        yield batch.slice(0, count % block)

    return "SET {key} {value}", lambda count: pa.RecordBatchReader.from_batches(
        batch.schema, batches(count)
    )


def memory(name: str) -> int:
    """Return a size of this process in bytes, such as VmHWM; 0 if the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", help="URL of a server, or of a node of a cluster")
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("commands", type=int, help="commands in each load")
    parser.add_argument("--value", type=int, default=129, help="bytes in a value")
    parser.add_argument("--block", type=int, default=BLOCK, help="rows that are repeated")
    parser.add_argument("--loads", type=int, default=1, help="loads, one after another")
    args = parser.parse_args()
    template, make = source(args.source, min(args.block, args.commands), args.value)

    def load(count: int) -> fastresp.Report:
        return fastresp.mass_insert(make(count), template, server=args.server, transport="socket")

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    start = memory("VmRSS")
    load(min(FIRST, args.commands))
    print("ready", flush=True)
    sys.stdin.readline()
    facts = {"seconds": 0.0, "cpu": 0.0, "commands": 0, "bytes": 0}
    for _ in range(args.loads):
        gc.collect()  # objects of the last load refer to each other
        begun, used = perf_counter(), process_time()
        report = load(args.commands)
        facts["seconds"] += perf_counter() - begun
        facts["cpu"] += process_time() - used
        facts["commands"] += report.replies
        facts["bytes"] += report.bytes_sent
    if start:
        facts |= {"start": start, "peak": memory("VmHWM")}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
