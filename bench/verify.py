"""Verification of Arrow columns, compared with the load of the same columns.

Before the measurement, the script changes one value, and checks that ``verify`` finds this
difference and no other.
"""

from __future__ import annotations

import argparse
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from results import Result
from script import run_script
from servers import running
from turns import Contender, entries, measure, need

import fastresp

ROWS = 1_000_000
# The template of each table, and a command that changes the value of row 0.
TEMPLATES: dict[str, tuple[str, tuple[str | int, ...]]] = {
    "SET": ("SET k:{id} {a}", ("SETRANGE", "k:0", 3, "?")),
    "SET EX": ("SET k:{id} {a} EX 100000", ("SETRANGE", "k:0", 3, "?")),
    "HSET": ("HSET k:{id} a {a} b {b} id {id}", ("HSET", "k:0", "b", "?")),
    "SADD": ("SADD k:{group} {a}", ("SREM", "k:0")),
    "ZADD": ("ZADD k:{group} {score} {a}", ("ZINCRBY", "k:0", "1e-9")),
    "RPUSH": ("RPUSH k:{group} {a}", ("LSET", "k:0", 0, "?")),
}


def columns(rows: int) -> pa.Table:
    ids = pa.array(range(rows))
    text = pc.binary_join_element_wise("value ", pc.cast(ids, "string"), "x" * 47, "")
    columns = {"id": ids, "a": text, "b": pc.cast(ids, "string"), "score": pc.divide(ids, 7.0)}
    return pa.table({**columns, "group": pc.divide(ids, 100)})


def check(table: pa.Table, template: str, change: tuple[str | int, ...], url: str) -> None:
    """Change one value; check that verify finds it."""
    found: list[int] = []
    if change[0] in ("SREM", "ZINCRBY"):
        change = (*change, table["a"][0].as_py())
    fastresp.execute(*change, server=url)
    fastresp.verify(table, template, server=url, differences=lambda each: found.append(each.row))
    need(found, [0], f"{template}, rows that differ")


def compare(args: argparse.Namespace) -> list[Result]:
    made = []
    table = columns(args.rows)
    with running() as server:

        def empty(row: Result) -> None:
            if row.row == "load":
                server.empty()

        for name, (template, change) in TEMPLATES.items():
            load = partial(
                fastresp.mass_insert, table, template, server=server.url, transport="socket"
            )
            verify = partial(fastresp.verify, table, template, server=server.url)
            runs: dict[str, Contender] = {"load": load, "verify": verify}
            server.empty()
            load()
            check(table, template, change, server.url)
            contenders = entries(f"verify {name}", runs, args.rows)
            made += measure(contenders, args.rounds, server.process, before=empty)
    return made


if __name__ == "__main__":
    run_script(__doc__, compare, 6, 2, rows=("rows of the table", ROWS))
