"""Past the ready-made file: merged and serialised loads compared with ``redis-cli --pipe``.

1,000,000 rows become LPUSH or RPUSH on one list (values of 129 bytes), SADD of numbers to one set,
ZADD to one sorted set, HSET of fields of one hash, or SET of 129 bytes with distinct keys; and
200,000 rows become hashes of 3, 10 or 30 fields. The contenders are redis-cli reading a file of the
single commands, the server's own speed for them; a load of single commands; and merged and
serialised loads of rows, and of Arrow columns. They take turns on one server, on a unix socket,
that is emptied before each load. In the first round DEBUG DIGEST must be the same after each load.
A value is the wall time of a load; the CPU times of server and clients are in the metadata.

    python bench/past.py -o past.json        # about 10 minutes
    FASTRESP_SERVER=valkey-server python bench/past.py --only SADD,ZADD
    python bench/past.py --fast --rows 50000
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import psutil
import redis
from results import Result
from turns import arguments, finish, measure

from fastresp import FastrespError, dump, mass_insert
from fastresp.cli.demo.generators import PAYLOAD
from fastresp.cli.demo.methods import READY_FILE, Workbench

ROWS = 1_000_000
HASHES = ROWS // 5
BOTH = ("merge", "serialize")
WORDS = {"merge": "merged", "serialize": "serialised"}


def hashes(fields: int) -> Kind:
    """Return the kind of load that makes one hash of a row."""

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


def ways(workbench: Workbench, kind: str, count: int) -> dict[str, Callable[[], object]]:
    """Return by name the functions that load the same rows."""
    import pyarrow as pa

    template, make, modes = KINDS[kind]
    rows = [make(number) for number in range(count)]
    table = pa.Table.from_pylist(rows)
    dump(rows, template, workbench.ready_file)

    def load(data: Any, mode: str) -> Callable[[], object]:
        return lambda: mass_insert(
            data, template, server=workbench.url, transport="socket", mode=mode
        )

    return {
        READY_FILE: workbench.plain_methods(lambda: ())[READY_FILE],
        "fastresp, rows": load(rows, "commands"),
        **{
            f"fastresp {WORDS[mode]}, {source}": load(data, mode)
            for mode in modes
            for source, data in (("rows", rows), ("columns", table))
        },
    }


def compare(workbench: Workbench, kind: str, count: int, rounds: int) -> list[Result]:
    """Load in each way, in rounds, each time into an empty server."""
    client: redis.Redis = workbench.client
    results = {
        name: (Result("past", f"{kind} {name}", "", count), run)
        for name, run in ways(workbench, kind, count).items()
    }
    digests: list[bytes] = []

    def check(row: Result) -> None:
        if len(digests) == len(results):  # a digest can take longer than the load
            return
        digests.append(client.execute_command("DEBUG", "DIGEST"))
        if digests[-1] != digests[0]:
            raise FastrespError(f"{row.row}: the server does not have the same data")

    measure(
        [*results.values()],
        rounds,
        psutil.Process(workbench.server.process.pid),
        between=lambda: client.execute_command("FLUSHALL", "SYNC"),
        after=check,
    )
    return [result for result, _ in results.values()]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=9, fast_rounds=3, only=True)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows in each load")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    results: list[Result] = []
    for kind in args.only or KINDS:
        with Workbench.open() as workbench:
            count = min(args.rows, HASHES) if kind.startswith("hashes") else args.rows
            results += compare(workbench, kind, count, args.rounds)
    finish(results, args.output)


if __name__ == "__main__":
    main()
