"""Time to encode commands as RESP: fastresp, the generators of the 2018 report, hiredis, redis-py.

Every contender does the same work: 100,000 ready commands, tuples of three str, become RESP,
joined to chunks of about 1 MiB, ready to be written and then thrown away. (``pack_many`` makes one
piece of all; ``template, dicts`` starts from ready dicts.) Rows named ``alone`` neither join nor
encode text: each result is thrown away immediately.

The contenders take turns within a round. A value is the time per command; a fast contender repeats
its work, so that a turn lasts 100 ms or more. Before it measures, the script checks that all
contenders make the same bytes.

    python bench/encode.py -o encode.json        # about 5 minutes
    python bench/encode.py --fast                # about 1 minute
    python -m pyperf compare_to before.json after.json

The tables at the end show each contender's time divided by that of ``fastresp rows``: the median of
the ratios of each round, and their range.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import starmap
from operator import itemgetter
from typing import Any

import hiredis
import redis
from common import KINDS, commands, finish_encoding, repeated
from redis.connection import PythonRespSerializer
from results import Result
from turns import arguments, measure

from fastresp import Template, Writer, pack_many
from fastresp.cli.demo.generators import AS_LISTED, GENERATORS, chunks

COMMANDS = 100_000
BASE = "fastresp rows"
# The limit of redis-py's connections: longer buffers are not joined.
REDIS_PY_CUTOFF = 6_000

Encoder = Callable[[Any], Iterable[Any]]

cached_commands = cache(commands)


@cache
def dicts(kind: str, count: int) -> list[dict[str, str]]:
    """Return the commands' keys and values as dicts."""
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


def joining(generate: Callable[[Any], Any]) -> Encoder:
    return lambda rows: chunks(generate, rows)


def alone(generate: Callable[[Any], Any]) -> Encoder:
    return lambda rows: map(generate, rows)


def contenders(kind: str) -> dict[str, tuple[Encoder, Callable[[str, int], Any]]]:
    """Return by name: an encoder, and the function that makes its rows."""
    by_position, by_name = Template(f"{kind} {{1}} {{2}}"), Template(f"{kind} {{key}} {{value}}")
    packer = PythonRespSerializer(REDIS_PY_CUTOFF, redis.Connection().encoder.encode)
    encoders: dict[str, Encoder] = {
        BASE: lambda rows: Writer().chunks(rows),
        "fastresp template, tuples": lambda rows: Writer(by_position).chunks(rows),
        "fastresp template, dicts": lambda rows: Writer(by_name).chunks(rows),
        "fastresp pack_many": lambda rows: [pack_many(rows)],
    }
    for name, generate in (GENERATORS | AS_LISTED | {"f-string": by_f_string}).items():
        encoders[name] = joining(generate)
        encoders[f"{name} alone"] = alone(generate)
    encoders["hiredis.pack_command"] = joining(hiredis.pack_command)
    encoders["hiredis.pack_command alone"] = alone(hiredis.pack_command)
    # A command this short is a list of one piece.
    encoders["redis-py packer"] = lambda rows: chunks(itemgetter(0), starmap(packer.pack, rows))
    encoders["redis-py packer alone"] = lambda rows: starmap(packer.pack, rows)
    return {
        name: (encode, dicts if name.endswith("dicts") else cached_commands)
        for name, encode in encoders.items()
    }


def check_equal(kind: str) -> None:
    """Stop unless all contenders make the same bytes."""
    digests = {
        name: digest(encode(make(kind, 1_000))) for name, (encode, make) in contenders(kind).items()
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


def compare(kind: str, count: int, rounds: int) -> list[Result]:
    """Time all contenders in turn."""

    def work(encode: Encoder, make_rows: Callable[[str, int], Any]) -> Callable[[], object]:
        return lambda: deque(encode(make_rows(kind, count)), maxlen=0)

    made = [
        (Result("encode", f"{kind} {name}"), repeated(work(encode, make_rows), count))
        for name, (encode, make_rows) in contenders(kind).items()
    ]
    measure(made, rounds)
    return [result for result, _ in made]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=50, fast_rounds=8)
    parser.add_argument("--commands", type=int, default=COMMANDS, help="commands to encode")
    args = parsed()
    if args.commands < 1:
        parser.error("--commands must be 1 or more")
    for kind in KINDS:
        check_equal(kind)
    groups = [compare(kind, args.commands, args.rounds) for kind in KINDS]
    finish_encoding(groups, "command", args.output)


if __name__ == "__main__":
    main()
