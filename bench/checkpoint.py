"""Cost of a checkpoint for the server.

Rows of an Arrow table are loaded into an empty server, and into a cluster, without a checkpoint and
with one, in turn.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import count

import pyarrow as pa
from results import Result
from script import run_script
from servers import LocalCluster, processes, running
from turns import Contender, Servers, entries, measure, need

import fastresp

ROWS = 1_000_000
KEYS = 10_000
TEMPLATES = {
    "INCRBY": "INCRBY n:{key} {id}",
    "RPUSH": "RPUSH l:{key} {id}",
    "HSETNX": "HSETNX h:{key} f{id} {id}",
    "HSET": "HSET h:{key} f{id} {id}",
}
# A user without permission to close connections.
USER, WITHOUT = "scripts", "-client|kill"
# Each load has its own checkpoint.
NUMBERS = count()


def load(table: pa.Table, template: str, url: str, *, checkpoint: bool = True) -> None:
    name = f"load-{next(NUMBERS)}" if checkpoint else None
    report = fastresp.mass_insert(table, template, server=url, transport="socket", checkpoint=name)
    need(report.replies, table.num_rows, f"{template}, loaded rows")


def compare(args: argparse.Namespace) -> list[Result]:
    table = pa.table({"id": range(args.rows), "key": [row % KEYS for row in range(args.rows)]})

    def in_turn(
        where: str, url: str, servers: Servers, empty: Contender, user: str = ""
    ) -> list[Result]:
        made = []
        for name, template in TEMPLATES.items():
            run = partial(load, table, template)
            runs = {"": partial(run, url, checkpoint=False), ", checkpoint": partial(run, url)}
            if user and name != "HSET":
                runs[", scripts"] = partial(run, url + user)
            contenders = entries("checkpoint", runs, args.rows, prefix=f"{name}{where}")
            made += measure(contenders, args.rounds, servers, before=lambda _: empty())
        return made

    with running() as server:
        server.client.execute_command("ACL", "SETUSER", USER, "on", ">pass", "~*", "+@all", WITHOUT)
        user = f"?username={USER}&password=pass"
        made = in_turn("", server.url, server.process, server.empty, user)
    with LocalCluster(3) as cluster:
        where = " into a cluster"
        return made + in_turn(where, cluster.url, processes(cluster), cluster.empty)


if __name__ == "__main__":
    run_script(__doc__, compare, 10, 3, rows=("rows of the table", ROWS))
