"""Latency of other clients during a load: PING, once per ms, while 1,000,000 rows are loaded.

A value is the 99th percentile of the times of the PINGs in one load.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

from past import KINDS, ROWS
from results import Result
from script import run_script
from servers import running
from turns import Contender, Timed, entries, measure

from fastresp import Serialize, mass_insert

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


def during(loads: Iterable[Callable[[], object]], path: Path) -> list[float]:
    """Return the times of the PINGs during loads, sorted."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=ping, args=(str(path), theirs))
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


def compare(kind: str, count: int, rounds: int) -> list[Result]:
    template, make, modes = KINDS[kind]
    rows = [make(number) for number in range(count)]
    with running() as server:

        def loading(mode: Any) -> Contender:
            load = partial(
                mass_insert,
                rows,
                template,
                server=server.url,
                transport="socket",
                mode=Serialize(exists="replace") if mode == "serialize" else mode,
            )

            def run() -> Timed:
                taken = during([load] * LOADS[kind], server.local.socket)
                late = taken[len(taken) * 99 // 100]
                return Timed(late, {"longest": taken[-1], "pings": len(taken)})

            return run

        runs = {mode: loading(mode) for mode in ("commands", *modes)}
        contenders = entries("stall", runs, prefix=f"{kind} ")
        return measure(contenders, rounds, before=server.empty, warm_up=False)


def compare_all(args: argparse.Namespace) -> list[Result]:
    return [row for kind in LOADS for row in compare(kind, args.rows, args.rounds)]


if __name__ == "__main__":
    run_script(__doc__, compare_all, 7, 3, rows=("rows in each load", ROWS))
