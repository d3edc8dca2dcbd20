"""Time to load commands into a real server: ``mass_insert`` against plain ``redis-cli --pipe``.

The methods are from the 2018 report's push table; all start from the same existing list of tuples.
The server is started for the run, on a unix socket or with ``--tcp`` on the loopback. A value is
the wall time of one whole load. The table is ``push``, or with ``--tcp`` ``push-tcp``.
"""

from __future__ import annotations

import argparse
import asyncio

from commands import KINDS, commands
from results import Result
from script import run_script
from servers import Server, running
from turns import Contender, entries, measure, need

from fastresp import aio, dump, mass_insert


def methods(server: Server, kind: str, args: argparse.Namespace) -> dict[str, Contender]:
    ready, address = commands(kind, args.commands), server.tcp if args.tcp else server.unix
    workbench, url = server.workbench(address), address.url
    dump(ready, None, workbench.ready_file)
    return workbench.plain_methods(lambda: ready) | {
        "fastresp redis-cli": lambda: mass_insert(ready, server=url, transport="redis-cli"),
        "fastresp socket": lambda: mass_insert(ready, server=url, transport="socket"),
        "fastresp asyncio": lambda: asyncio.run(aio.mass_insert(ready, server=url)),
    }


def compare(kind: str, args: argparse.Namespace) -> list[Result]:
    with running() as server:
        runs = {
            name: run
            for name, run in methods(server, kind, args).items()
            if not args.only or name in args.only
        }

        def check(row: Result) -> None:
            held = server.client.dbsize() if kind == "SET" else server.client.llen("key")
            need(held, args.commands, f"{row.row}, values in the server")

        table = "push-tcp" if args.tcp else "push"
        contenders = entries(table, runs, args.commands, prefix=f"{kind} ")
        return measure(contenders, args.rounds, server.process, before=server.empty, after=check)


def both(args: argparse.Namespace) -> list[Result]:
    return [row for kind in KINDS for row in compare(kind, args)]


def add_tcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tcp", action="store_true", help="use TCP instead of a unix socket")


if __name__ == "__main__":
    commands_of = ("commands in each load", 1_000_000)
    run_script(__doc__, both, 12, 5, only=True, add=add_tcp, commands=commands_of)
