"""Latency of other clients during a load: PING, once per ms, while 1,000,000 rows are loaded.

The loads are RPUSH on one list, SADD to one set, HSET of one hash and SET with distinct keys, as
single commands, merged and, but for SET, serialised (the list and the hash are RESTOREd up to
32 MiB), from rows, over a unix socket. They take turns; RPUSH, the shortest, loads the rows five
times. The PINGs are sent by another process over its own connection. A value is the 99th
percentile of their times in one load; the metadata has the longest as ``longest`` and their number
as ``pings``.

    python bench/stall.py -o stall.json        # about 3 minutes
    python bench/stall.py --fast --rows 100000
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from past import KINDS, ROWS
from results import Result
from turns import arguments, finish, show

from fastresp import mass_insert
from fastresp.cli.demo.methods import Workbench

# The number of consecutive loads: with fewer PINGs, the 99th percentile would be random.
LOADS = {"RPUSH": 5, "SADD": 1, "HSET": 1, "SET": 1}
EVERY_S = 0.001


def ping(path: str, end: Connection) -> None:
    """Time PINGs until stopped; send back the times in seconds."""
    taken = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        end.send("ready")
        stopped = False
        while not stopped:  # at least once, however short the load is
            start = perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(16)
            taken.append(perf_counter() - start)
            stopped = end.poll(EVERY_S)
    end.send(taken)


def during(loads: Iterable[Callable[[], object]], path: str) -> list[float]:
    """Return the times of the PINGs during loads, sorted."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=ping, args=(path, theirs))
    process.start()
    try:
        ours.recv()
        for load in loads:
            load()
        ours.send("stop")
        taken: list[float] = ours.recv()
    finally:
        process.terminate()
        process.join()
    return sorted(taken)


def compare(workbench: Workbench, kind: str, count: int, rounds: int) -> list[Result]:
    """Load in each mode, in turn."""
    client: Any = workbench.client
    template, make, modes = KINDS[kind]
    rows = [make(number) for number in range(count)]
    results = {mode: Result("stall", f"{kind} {mode}", "", 1) for mode in ("commands", *modes)}
    for number in range(1, rounds + 1):
        for mode, result in results.items():
            show(f"round {number} of {rounds}: {result.row}")
            client.execute_command("FLUSHALL", "SYNC")
            options: Any = {"server": workbench.url, "transport": "socket", "mode": mode}
            if mode == "serialize":
                options["exists"] = "replace"
            load = partial(mass_insert, rows, template, **options)
            taken = during([load] * LOADS[kind], str(workbench.server.socket))
            late = taken[len(taken) * 99 // 100]
            result.add(late, round=number, longest=taken[-1], pings=len(taken))
    return [*results.values()]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=7, fast_rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows in each load")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    results: list[Result] = []
    for kind in LOADS:
        with Workbench.open() as workbench:
            results += compare(workbench, kind, args.rows, args.rounds)
    show("")
    finish(results, args.output)


if __name__ == "__main__":
    main()
