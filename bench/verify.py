"""verify from columns, compared with the load of the same columns.

1,000,000 rows of an Arrow table are loaded into an empty server on a unix socket by `mass_insert`,
and then compared by `verify`, in turn. Before it measures, the script changes one byte of one value
and checks that `verify` finds this difference, and no other.

- SET: a value of 60 bytes per key;
- SET EX: the same with a time to live, which is also compared;
- HSET: three fields per key;
- SADD, ZADD, RPUSH: 100 rows per key.

    python bench/verify.py -o verify.json        # about 3 minutes
    python bench/verify.py --rows 100000 --rounds 1
"""

from __future__ import annotations

from functools import partial

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import redis
from results import Result
from turns import arguments, finish, show, take

import fastresp
from fastresp.server.local_server import LocalServer

ROWS = 1_000_000
# The template of each table, and a command that changes one byte of row 0.
TEMPLATES = {
    "SET": ("SET k:{id} {a}", ("SETRANGE", "k:0", 3, "?")),
    "SET EX": ("SET k:{id} {a} EX 100000", ("SETRANGE", "k:0", 3, "?")),
    "HSET": ("HSET k:{id} a {a} b {b} id {id}", ("HSET", "k:0", "b", "?")),
    "SADD": ("SADD k:{group} {a}", ("SREM", "k:0")),
    "ZADD": ("ZADD k:{group} {score} {a}", ("ZINCRBY", "k:0", "1e-9")),
    "RPUSH": ("RPUSH k:{group} {a}", ("LSET", "k:0", 0, "?")),
}


def columns(rows: int) -> pa.Table:
    """Return the table."""
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
    if found != [0]:
        raise SystemExit(f"{template}: verify found rows {found}, and one value of row 0 differs")


def compare(rows: int, rounds: int) -> list[Result]:
    """Load and verify, in rounds; return two rows for each template."""
    made = []
    table = columns(rows)
    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        process = psutil.Process(server.process.pid)
        for name, (template, change) in TEMPLATES.items():
            load, verify = (Result(f"verify {name}", each, "", rows) for each in ("load", "verify"))
            made += [load, verify]
            loading = partial(
                fastresp.mass_insert, table, template, server=server.url, transport="socket"
            )
            verifying = partial(fastresp.verify, table, template, server=server.url)
            for number in range(rounds + 1):
                show(f"verify {name}, round {number} of {rounds}")
                client.flushall()
                take(load, loading, process, keep=number > 0)
                take(verify, verifying, process, keep=number > 0)
                if number == 0:
                    check(table, template, change, server.url)
    return made


def main() -> None:
    """Measure, print, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=6, fast_rounds=2)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    made = compare(args.rows, args.rounds)
    show("")
    finish(made, args.output)


if __name__ == "__main__":
    main()
