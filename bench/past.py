"""Past the ready-made file: merged and serialised loads compared with ``redis-cli --pipe``.

The rows are loaded by redis-cli from a file of single commands, which runs at the server's own
speed; by fastresp as single commands; and by merged and serialised loads, from rows and from Arrow
columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from results import Result
from script import run_script
from servers import Server, running
from turns import Contender, entries, measure, need

from fastresp import dump, mass_insert
from fastresp.cli.demo.methods import PAYLOAD, READY_FILE

ROWS = 1_000_000
HASHES = ROWS // 5
BOTH = ("merge", "serialize")
WORDS = {"merge": "merged", "serialize": "serialised"}


def hashes(fields: int) -> Kind:
    """Return the kind of load that stores each row as a hash."""

    def make(i: int) -> dict[str, Any]:
        return {"id": i, **{f"field{n}": f"value {i} of {n}" for n in range(fields)}}

    return "HSET user:{id} {**-id}", make, ("serialize",)


# The template of each kind, the columns of row number i, and the modes besides "commands".
Kind: TypeAlias = tuple[str, Callable[[int], dict[str, Any]], tuple[str, ...]]
KINDS: dict[str, Kind] = {
    "LPUSH": ("LPUSH key {a}", lambda i: {"a": PAYLOAD}, BOTH),
    "RPUSH": ("RPUSH key {a}", lambda i: {"a": PAYLOAD}, BOTH),
    "SADD": ("SADD key {a}", lambda i: {"a": str(i)}, BOTH),
    "ZADD": ("ZADD key {a} {b}", lambda i: {"a": i * 7_919 % ROWS, "b": f"member:{i:07}"}, BOTH),
    "HSET": ("HSET key {a} {b}", lambda i: {"a": f"field:{i:07}", "b": f"value {i}"}, BOTH),
    "SET": ("SET {a} {b}", lambda i: {"a": f"key:{i:08}", "b": PAYLOAD}, ("merge",)),
    "hashes of 3": hashes(3),
    "hashes of 10": hashes(10),
    "hashes of 30": hashes(30),
}


def ways(server: Server, kind: str, count: int) -> dict[str, Contender]:
    template, make, modes = KINDS[kind]
    rows = [make(number) for number in range(count)]
    table = pa.Table.from_pylist(rows)
    workbench = server.workbench(server.unix)
    dump(rows, template, workbench.ready_file)

    def load(data: Any, mode: Any) -> Contender:
        return lambda: mass_insert(data, template, server=server.url, transport="socket", mode=mode)

    return {
        READY_FILE: workbench.plain_methods(lambda: ())[READY_FILE],
        "fastresp, rows": load(rows, "commands"),
        **{
            f"fastresp {WORDS[mode]}, {source}": load(data, mode)
            for mode in modes
            for source, data in (("rows", rows), ("columns", table))
        },
    }


def compare(kind: str, rows: int, rounds: int) -> list[Result]:
    count = min(rows, HASHES) if kind.startswith("hashes") else rows
    with running() as server:
        contenders = entries("past", ways(server, kind, count), count, prefix=f"{kind} ")
        digests: list[bytes] = []

        def check(row: Result) -> None:
            if len(digests) == len(contenders):  # a digest can take longer than the load
                return
            digests.append(server.digest())
            need(digests[-1], digests[0], f"{row.row}, DEBUG DIGEST")

        return measure(contenders, rounds, server.process, before=server.empty, after=check)


def compare_all(args: argparse.Namespace) -> list[Result]:
    return [row for kind in args.only or KINDS for row in compare(kind, args.rows, args.rounds)]


if __name__ == "__main__":
    run_script(__doc__, compare_all, 9, 3, only=True, rows=("rows in each load", ROWS))
