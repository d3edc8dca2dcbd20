"""Time to encode commands as RESP: fastresp, the generators of the 2018 report, hiredis, redis-py.

Every contender encodes the same existing commands, tuples of three str, to the same bytes, joined
to chunks of about 1 MiB. ``pack_many`` returns one piece; ``template, dicts`` starts from dicts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache, partial
from itertools import starmap
from operator import itemgetter

import hiredis
from commands import AS_LISTED, KINDS, commands
from encoders import Encoder, measure_encoders
from results import Result
from script import run_script
from servers import python_packer

from fastresp import Template, Writer, pack_many
from fastresp.cli.demo.methods import GENERATORS, chunks

COMMANDS = 100_000

cached_commands = cache(commands)


@cache
def dicts(kind: str, count: int) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for _, key, value in cached_commands(kind, count)]


def by_f_string(command: Sequence[str]) -> str:
    """Write a command of three arguments with an f-string, which is not in the 2018 report."""
    name, key, value = command
    name_bytes = len(name) if name.isascii() else len(name.encode())
    key_bytes = len(key) if key.isascii() else len(key.encode())
    value_bytes = len(value) if value.isascii() else len(value.encode())
    return (
        f"*3\r\n${name_bytes}\r\n{name}\r\n${key_bytes}\r\n{key}\r\n${value_bytes}\r\n{value}\r\n"
    )


def encoders(kind: str, count: int) -> dict[str, Encoder]:
    by_position, by_name = Template(f"{kind} {{1}} {{2}}"), Template(f"{kind} {{key}} {{value}}")
    rows = cached_commands(kind, count)
    made: dict[str, Encoder] = {
        "fastresp rows": lambda: Writer().chunks(rows),
        "fastresp template, tuples": lambda: Writer(by_position).chunks(rows),
        "fastresp template, dicts": lambda: Writer(by_name).chunks(dicts(kind, count)),
        "fastresp pack_many": lambda: [pack_many(rows)],
    }
    generators = GENERATORS | AS_LISTED | {"f-string": by_f_string}
    for name, generate in (generators | {"hiredis.pack_command": hiredis.pack_command}).items():
        made[name] = lambda generate=generate: chunks(generate, rows)
        made[f"{name} alone"] = lambda generate=generate: map(generate, rows)
    packer = python_packer()
    # A command this short is a list of one piece.
    made["redis-py packer"] = lambda: chunks(itemgetter(0), starmap(packer.pack, rows))
    made["redis-py packer alone"] = lambda: starmap(packer.pack, rows)
    return made


def compare(args: argparse.Namespace) -> list[Result]:
    return [
        row
        for kind in KINDS
        for row in measure_encoders(
            "encode", kind, partial(encoders, kind), args.commands, args.rounds
        )
    ]


if __name__ == "__main__":
    run_script(__doc__, compare, 50, 8, commands=("commands to encode", COMMANDS))
