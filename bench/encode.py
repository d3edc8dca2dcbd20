"""Time to encode commands as RESP: fastresp, the generators of the 2018 report, hiredis, redis-py.

Every contender makes the same bytes of the same ready commands, tuples of three str, joined to
chunks of about 1 MiB; ``pack_many`` makes one piece of all, ``template, dicts`` starts from dicts.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import starmap
from operator import itemgetter
from typing import Any

import hiredis
from commands import KINDS, commands
from results import Result
from script import run_script
from servers import python_packer
from turns import entries, measure, repeated

from fastresp import Template, Writer, pack_many
from fastresp.cli.demo.generators import AS_LISTED, GENERATORS, chunks

COMMANDS = 100_000
BASE = "fastresp rows"

Encoder = Callable[[Any], Iterable[Any]]

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


def contenders(kind: str) -> dict[str, Encoder]:
    by_position, by_name = Template(f"{kind} {{1}} {{2}}"), Template(f"{kind} {{key}} {{value}}")
    encoders: dict[str, Encoder] = {
        BASE: lambda rows: Writer().chunks(rows),
        "fastresp template, tuples": lambda rows: Writer(by_position).chunks(rows),
        "fastresp template, dicts": lambda rows: Writer(by_name).chunks(rows),
        "fastresp pack_many": lambda rows: [pack_many(rows)],
    }
    generators = GENERATORS | AS_LISTED | {"f-string": by_f_string}
    for name, generate in (generators | {"hiredis.pack_command": hiredis.pack_command}).items():
        encoders[name] = lambda rows, generate=generate: chunks(generate, rows)
        encoders[f"{name} alone"] = lambda rows, generate=generate: map(generate, rows)
    packer = python_packer()
    # A command this short is a list of one piece.
    encoders["redis-py packer"] = lambda rows: chunks(itemgetter(0), starmap(packer.pack, rows))
    encoders["redis-py packer alone"] = lambda rows: starmap(packer.pack, rows)
    return encoders


def rows_for(name: str, kind: str, count: int) -> list[Any]:
    return dicts(kind, count) if name.endswith("dicts") else cached_commands(kind, count)


def check_equal(kind: str) -> None:
    digests = {
        name: digest(encode(rows_for(name, kind, 1_000)))
        for name, encode in contenders(kind).items()
    }
    different = [name for name, made in digests.items() if made != digests[BASE]]
    if different:
        raise SystemExit(f"{kind}: other bytes than {BASE}: {', '.join(different)}")


def digest(pieces: Iterable[Any]) -> str:
    made = hashlib.sha256()
    for piece in flat(pieces):
        made.update(piece.encode() if isinstance(piece, str) else piece)
    return made.hexdigest()


def flat(pieces: Iterable[Any]) -> Iterator[Any]:
    for piece in pieces:
        if isinstance(piece, list):
            yield from piece
        else:
            yield piece


def compare(args: argparse.Namespace) -> list[Result]:

    def work(name: str, kind: str, encode: Encoder) -> Callable[[], object]:
        return lambda: deque(encode(rows_for(name, kind, args.commands)), maxlen=0)

    made = []
    for kind in KINDS:
        check_equal(kind)
        runs = {
            name: repeated(work(name, kind, encode), args.commands)
            for name, encode in contenders(kind).items()
        }
        made += measure(entries("encode", runs, prefix=f"{kind} "), args.rounds)
    return made


if __name__ == "__main__":
    run_script(__doc__, compare, 50, 8, commands=("commands to encode", COMMANDS))
