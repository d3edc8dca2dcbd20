"""Cost of a checkpoint for the server.

1,000,000 rows of an Arrow table are loaded into an empty server on a unix socket, without a
checkpoint and with one, in turn. A value is wall time; the server's CPU time is in the metadata.

- INCRBY, RPUSH, HSETNX: with a checkpoint in transactions of about 2,000 commands, which also set
  the marker; and in scripts, as a user without permission to close connections;
- HSET: idempotent, so the commands are sent without transactions, and the marker is set once a
  second;
- the same into a cluster of three nodes, where each transaction has keys of one slot.

    python bench/checkpoint.py -o checkpoint.json   # about 6 minutes
    python bench/checkpoint.py --rows 100000 --rounds 1
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import count
from pathlib import Path

import psutil
import pyarrow as pa
import redis
from results import Result
from turns import Contender, arguments, finish, measure, show

import fastresp
from fastresp.server.local_server import LocalServer

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from local_cluster import LocalCluster

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


def load(table: pa.Table, template: str, url: str, *, kept: bool) -> None:
    """Load, with a checkpoint if ``keep`` is set."""
    name = f"load-{next(NUMBERS)}" if kept else None
    report = fastresp.mass_insert(table, template, server=url, transport="socket", checkpoint=name)
    if report.replies != table.num_rows:
        raise SystemExit(f"{template}: {report.replies:,} of {table.num_rows:,} rows were loaded")


def compare(rows: int, rounds: int) -> list[Result]:
    """Load in rounds; return two rows for each template."""
    table = pa.table({"id": range(rows), "key": [number % KEYS for number in range(rows)]})
    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        process = psutil.Process(server.process.pid)
        client.execute_command("ACL", "SETUSER", USER, "on", ">pass", "~*", "+@all", WITHOUT)
        made = in_turn(table, "", server.url, rounds, [process], client.flushall, scripts=True)
    with LocalCluster(3) as cluster:
        processes = [psutil.Process(node.process.pid) for node in cluster.nodes]
        return made + in_turn(
            table, " into a cluster", cluster.url, rounds, processes, cluster.empty
        )


def in_turn(
    table: pa.Table,
    where: str,
    url: str,
    rounds: int,
    servers: list[psutil.Process],
    between: Contender,
    *,
    scripts: bool = False,
) -> list[Result]:
    """Load each template with and without a checkpoint, and in scripts."""
    made = []
    for name, template in TEMPLATES.items():
        without, with_it = (
            Result("checkpoint", f"{name}{where}{words}", "", table.num_rows)
            for words in ("", ", checkpoint")
        )
        run = partial(load, table, template, url)
        contenders = [(without, partial(run, kept=False)), (with_it, partial(run, kept=True))]
        made += [without, with_it]
        if scripts and name != "HSET":
            made.append(Result("checkpoint", f"{name}{where}, scripts", "", table.num_rows))
            user = f"{url}?username={USER}&password=pass"
            contenders.append((made[-1], partial(load, table, template, user, kept=True)))
        measure(contenders, rounds, servers, between=between)
    return made


def main() -> None:
    """Measure, print, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=10, fast_rounds=3)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    made = compare(args.rows, args.rounds)
    show("")
    finish(made, args.output)


if __name__ == "__main__":
    main()
