"""Time to load commands into a real server: ``mass_insert`` against plain ``redis-cli --pipe``.

The methods are from the 2018 report's push table: each of its generators piped into redis-cli
in chunks of 1 MiB; a ready-made file (``redis-cli --pipe < file``); and ``mass_insert`` through
redis-cli, over the socket, and over the socket in asyncio. All start from the same ready list of
tuples, SET with distinct keys or LPUSH with one key, and a value of 129 bytes. The server is
started for the run, on a unix socket or with ``--tcp`` on the loopback, and emptied before each
load.

The methods take turns within a round, so that other work on the machine slows all of them alike. A
value is the wall time of one whole load. The CPU times of the server and the clients are in the
metadata ``server_cpu`` and ``client_cpu``. The table is ``push``, or with ``--tcp`` ``push-tcp``.

    python bench/push.py -o push.json
    python bench/push.py --tcp --only "no generation,fastresp socket"
    python bench/push.py --fast --commands 100000
    python -m pyperf compare_to before.json after.json
"""

from __future__ import annotations

import asyncio
from typing import Any

import psutil
from common import KINDS, commands
from results import Result
from turns import Contender, arguments, finish, measure

from fastresp import (
    FastrespError,
    aio,
    dump,
    mass_insert,
)
from fastresp.cli.demo.methods import FASTRESP, Workbench


def methods(workbench: Workbench, kind: str, count: int) -> dict[str, Contender]:
    """Return by name the functions that load the same commands."""
    ready, url = commands(kind, count), workbench.url
    dump(ready, None, workbench.ready_file)
    return workbench.plain_methods(lambda: ready) | {
        f"{FASTRESP} redis-cli": lambda: mass_insert(ready, server=url, transport="redis-cli"),
        f"{FASTRESP} socket": lambda: mass_insert(ready, server=url, transport="socket"),
        f"{FASTRESP} asyncio": lambda: asyncio.run(aio.mass_insert(ready, server=url)),
    }


def compare(workbench: Workbench, kind: str, args: Any) -> list[Result]:
    """Load with each method, in rounds, each time into an empty server."""
    client: Any = workbench.client
    made = {
        name: (Result("push-tcp" if args.tcp else "push", f"{kind} {name}", "", args.commands), run)
        for name, run in methods(workbench, kind, args.commands).items()
        if not args.only or name in args.only
    }

    def check(row: Result) -> None:
        held = client.dbsize() if kind == "SET" else client.llen("key")
        if held != args.commands:
            raise FastrespError(f"{row.row}: the server has {held:,} of {args.commands:,}")

    # SYNC, so that old data is not freed in a thread during the load.
    measure(
        [*made.values()],
        args.rounds,
        psutil.Process(workbench.server.process.pid),
        between=lambda: client.execute_command("FLUSHALL", "SYNC"),
        after=check,
    )
    return [result for result, _ in made.values()]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=12, fast_rounds=5, only=True)
    parser.add_argument("--tcp", action="store_true", help="use TCP instead of a unix socket")
    parser.add_argument("--commands", type=int, default=1_000_000, help="commands in each load")
    args = parsed()
    if args.commands < 1:
        parser.error("--commands must be 1 or more")
    results: list[Result] = []
    for kind in KINDS:
        with Workbench.open(tcp=args.tcp) as workbench:
            results += compare(workbench, kind, args)
    finish(results, args.output)


if __name__ == "__main__":
    main()
