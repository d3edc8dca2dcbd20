"""Time to encode commands as RESP: fastresp, the report's generators, hiredis and redis-py.

The work is the same for every contender: 100,000 commands, ready Python tuples of three str,
become RESP in bytes, joined to chunks of about 1 MiB that are ready to be written and then thrown
away. (``pack_many`` makes one piece of all. ``template, dicts`` starts from ready dicts.) Rows
named ``alone`` leave out the joining and encoding into chunks: each result is thrown away at once.

Before it measures, the script checks that all contenders make the same bytes.

    python bench/encode.py -o encode.json
    python bench/encode.py --fast
    python -m pyperf compare_to before.json after.json

Times are those of one command. The table at the end gives for each contender how many times its
time is that of ``fastresp rows`` in this run, from medians, with the middle half of the ratios
(its lower quartile by the upper one of ``fastresp rows``, and the reverse).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import starmap
from operator import itemgetter
from typing import Any

import hiredis
import pyperf
import redis
from common import KINDS, commands, print_ratios, timed
from redis.connection import PythonRespSerializer

from fastresp import Template, Writer, pack_many
from fastresp.cli.demo.generators import AS_LISTED, GENERATORS, chunks

COMMANDS = 100_000
BASE = "fastresp rows"
# What redis-py's connections give their packer: longer buffers are not joined.
REDIS_PY_CUTOFF = 6_000

Encoder = Callable[[Any], Iterable[Any]]

cached_commands = cache(commands)


@cache
def dicts(kind: str, count: int) -> list[dict[str, str]]:
    """The commands' keys and values as dicts."""
    return [{"key": key, "value": value} for _, key, value in cached_commands(kind, count)]


def by_f_string(command: Sequence[str]) -> str:
    """Write a command of three arguments with an f-string, which the report of 2018 has not."""
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
    """By name: an encoder, and what makes its rows."""
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
    # Commands this short come as a list of one piece.
    encoders["redis-py packer"] = lambda rows: chunks(itemgetter(0), starmap(packer.pack, rows))
    encoders["redis-py packer alone"] = lambda rows: starmap(packer.pack, rows)
    return {
        name: (encode, dicts if name.endswith("dicts") else cached_commands)
        for name, encode in encoders.items()
    }


def encoded(encode: Encoder, make_rows: Callable[[str, int], Any], kind: str) -> Iterable[Any]:
    return encode(make_rows(kind, COMMANDS))


def check_equal(kind: str) -> None:
    """Stop unless all contenders make the same bytes."""
    digests = {
        name: digest(encode(make(kind, 1_000))) for name, (encode, make) in contenders(kind).items()
    }
    different = [name for name, made in digests.items() if made != digests[BASE]]
    if different:
        raise SystemExit(f"{kind}: not the bytes of {BASE}: {', '.join(different)}")


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


def main() -> None:
    """Run all benchmarks; in the end print the ratios."""
    runner = pyperf.Runner()
    args = runner.parse_args()
    if not args.worker:
        for kind in KINDS:
            check_equal(kind)
    runner.metadata["description"] = "Encode 100,000 commands as RESP, time a command"
    runner.metadata["hiredis_version"] = hiredis.__version__
    runner.metadata["redis_py_version"] = redis.__version__
    results: dict[str, dict[str, pyperf.Benchmark]] = {}
    for kind in KINDS:
        results[kind] = {}
        for name, (encode, make_rows) in contenders(kind).items():
            result = runner.bench_time_func(
                f"{kind} {name}",
                timed,
                partial(encoded, encode, make_rows, kind),
                inner_loops=COMMANDS,
            )
            if result is not None and result.get_nvalue():
                results[kind][name] = result
    if not args.worker:
        for kind in KINDS:
            if BASE in results[kind]:
                print_ratios(kind, results[kind], BASE)


if __name__ == "__main__":
    main()
