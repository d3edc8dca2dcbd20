"""Replace hashes on yodb: HSET, HIMPORT, and serialised, from Arrow columns.

yodb is another implementation of Redis' commands, in Rust: its times are not the times of Redis
8.10, which also has HIMPORT. Only the bytes and the client's time are the same with Redis.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import servers  # noqa: F401  # adds tests/support to the path
from himport_server import running_yodb, yodb
from results import Result
from script import run_script
from turns import NotAvailable, Timed, cpu_seconds, entries, measure, need

from fastresp import Merge, Serialize, mass_insert

ROWS = 200_000
FIELDS = (10, 30, 51)
TEMPLATE = "HSET row:{id} {**-id}"
MODES = {
    "HSET": None,
    "HIMPORT": Merge(exists="replace"),
    "serialised": Serialize(exists="replace"),
}


def table(fields: int, count: int) -> pa.Table:
    columns: dict[str, list[str]] = {"id": [f"{number:08}" for number in range(count)]}
    for field in range(fields):
        columns[f"field_{field:02}"] = [
            f"{number * (field + 7) % 1_000_003}" for number in range(count)
        ]
    return pa.table(columns)


def server_cpu(process: int) -> float:
    """Return the CPU time of all threads of a process so far."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def load(url: str, process: int, data: pa.Table, mode: Any) -> Timed:
    before, (_, client_before) = server_cpu(process), cpu_seconds(None)
    report = mass_insert(data, TEMPLATE, server=url, mode=mode)
    used, (_, client_after) = server_cpu(process) - before, cpu_seconds(None)
    need(report.replies, data.num_rows, "replies")
    details = {"server_cpu": used, "client_cpu": client_after - client_before}
    return Timed(report.seconds, details | {"bytes": report.bytes_sent})


def replace(program: str, fields: int, args: argparse.Namespace) -> list[Result]:
    """Replace hashes of a number of fields with each mode, in turn."""
    data = table(fields, args.rows)
    with running_yodb(program) as (client, process):

        def check(result: Result) -> None:
            """Compare the number of keys and one hash with the table."""
            need(client.dbsize(), data.num_rows, "keys")
            row = data.slice(data.num_rows // 2, 1).to_pylist()[0]
            wanted = {name.encode(): value.encode() for name, value in row.items() if name != "id"}
            need(client.hgetall(f"row:{row['id']}"), wanted, "hash")

        url = f"unix://{client.connection_pool.connection_kwargs['path']}"
        runs = {name: partial(load, url, process, data, mode) for name, mode in MODES.items()}
        rows = entries("himport", runs, args.rows, prefix=f"yodb, {fields} fields, ")
        return measure(rows, args.rounds, before=lambda _: client.flushall(), after=check)


def compare(args: argparse.Namespace) -> list[Result]:
    program = yodb()
    if program is None:
        raise NotAvailable("yodb is not installed: cargo install yo-cli --version 0.3.33 --locked")
    return [row for fields in FIELDS for row in replace(program, fields, args)]


if __name__ == "__main__":
    run_script(__doc__, compare, 7, 3, rows=("rows in each load", ROWS))
