"""Time to encode Arrow columns as RESP: fastresp, ``%`` formatting, hiredis, redis-py.

Every contender does the same work: 500,000 commands ``SET key value`` become RESP, in chunks that
are ready to be written and then thrown away. fastresp starts from an Arrow table, with one
template; the others start from Python tuples, which are made beforehand.

- strings: values of 129 bytes, distinct keys, all of them strings;
- ints: both the key and the value an int64;
- floats: the key an int64, the value a random float64 (17 digits);
- embedding: 20,000 commands ``HSET doc:{key} vector {value}``, the value a vector of 384 float32
  as its bytes; the others start from a NumPy matrix, and make a key and call ``tobytes()`` for
  each row.

Two rows copy the same bytes of RESP out of one large buffer. ``memcpy`` copies them into another
as large: for strings, each has 85 MB. ``memcpy, warm buffer`` copies them piece by piece into one
buffer of 512 KiB, the size of a chunk: fastresp also reuses the memory of a chunk.

The contenders take turns within a round. A value is the time per command; a fast contender repeats
its work, so that a turn lasts 100 ms or more. Before it measures, the script checks that all
contenders make the same bytes.

    python bench/columns.py -o columns.json      # about 4 minutes
    python bench/columns.py --fast               # about 1 minute

The tables at the end show each contender's time divided by that of ``fastresp columns``: the
median of the ratios of each round, and their range.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import hiredis
import numpy as np
import pyarrow as pa
import redis
from common import commands, finish_encoding, repeated
from results import Result
from turns import arguments, measure

from fastresp import Template
from fastresp.cli.demo.generators import by_substitution, chunks
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter
from fastresp.encode.writer import CHUNK_BYTES

COMMANDS = 500_000
VECTORS = 20_000
DIMENSIONS = 384
FIRST_KEY = 1_000_000
BASE = "fastresp columns"
CHECKED = 1_000
TEMPLATES = {
    "strings": Template("SET {key} {value}"),
    "ints": Template("SET {key} {value}"),
    "floats": Template("SET {key} {value}"),
    "embedding": Template("HSET doc:{key} vector {value!f32}"),
}


@cache
def table(kind: str, count: int) -> pa.Table:
    """Return the columns."""
    random = np.random.default_rng(1)
    if kind == "strings":
        _, keys, values = zip(*commands("SET", count), strict=True)
        return pa.table({"key": keys, "value": values})
    keys = np.arange(count) + FIRST_KEY
    if kind == "ints":
        return pa.table({"key": keys, "value": random.integers(-(2**40), 2**40, count)})
    if kind == "floats":
        return pa.table({"key": keys, "value": random.random(count)})
    vectors = pa.array(matrix(count).reshape(-1))
    return pa.table({"key": keys, "value": pa.FixedSizeListArray.from_arrays(vectors, DIMENSIONS)})


@cache
def matrix(count: int) -> Any:
    """Return the vectors, one per row."""
    shape = count, DIMENSIONS
    return np.random.default_rng(2).random(shape, dtype=np.float32)


@cache
def rows(kind: str, count: int) -> list[tuple[Any, ...]]:
    """Return the same data as commands of Python objects."""
    columns = table(kind, count)
    keys = columns["key"].to_pylist()
    return list(zip(["SET"] * count, keys, columns["value"].to_pylist(), strict=True))


def by_columns(kind: str, count: int) -> Iterator[Any]:
    stream = ArrowStream(table(kind, count))
    return ColumnWriter(TEMPLATES[kind], stream).chunks(stream)


def substituted(command: tuple[Any, ...]) -> bytes:
    """Write a command of numbers with ``%``."""
    name, key, value = command
    key, value = b"%d" % key, b"%a" % value
    return b"*3\r\n$3\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        name.encode(), len(key), key, len(value), value,
    )  # fmt: skip


def embeddings(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield commands, in a loop over the rows of the matrix."""
    for key, vector in enumerate(matrix(count), FIRST_KEY):
        yield "HSET", f"doc:{key}", "vector", vector.tobytes()


def copied(kind: str, count: int) -> Callable[[], list[bytes]]:
    """Return a function that copies the RESP of a kind from one large buffer to another."""
    made = b"".join(map(bytes, by_columns(kind, count)))
    source, target = np.frombuffer(made, np.uint8).copy(), np.zeros(len(made), np.uint8)

    def copy() -> list[bytes]:
        ctypes.memmove(target.ctypes.data, source.ctypes.data, len(made))
        return [target.data]

    return copy


def copied_warm(kind: str, count: int) -> Callable[[], Iterator[memoryview]]:
    """Return a function that copies the same bytes into one buffer of a chunk's size, reused."""
    source = np.frombuffer(b"".join(map(bytes, by_columns(kind, count))), np.uint8).copy()
    target = np.zeros(CHUNK_BYTES, np.uint8)

    def copy() -> Iterator[memoryview]:
        for start in range(0, len(source), CHUNK_BYTES):
            size = min(CHUNK_BYTES, len(source) - start)
            ctypes.memmove(target.ctypes.data, source.ctypes.data + start, size)
            yield target.data[:size]

    return copy


def contenders(kind: str, count: int) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return by name: a function that makes pieces of RESP."""
    copy, copy_warm = cache(copied), cache(copied_warm)
    made: dict[str, Callable[[], Iterable[Any]]] = {
        BASE: lambda: by_columns(kind, count),
        "memcpy": lambda: copy(kind, count)(),
        "memcpy, warm buffer": lambda: copy_warm(kind, count)(),
    }
    if kind == "embedding":
        connection = redis.Connection()
        made["hiredis.pack_command"] = lambda: chunks(hiredis.pack_command, embeddings(count))
        made["redis-py pack_commands"] = lambda: connection.pack_commands(embeddings(count))
        return made
    substitute = by_substitution if kind == "strings" else substituted
    made["substitution %"] = lambda: chunks(substitute, rows(kind, count))
    made["hiredis.pack_command"] = lambda: chunks(hiredis.pack_command, rows(kind, count))
    return made


def check_equal(kind: str) -> None:
    """Stop unless all contenders make the same bytes."""
    digests = {
        name: hashlib.sha256(b"".join(map(bytes, make()))).digest()
        for name, make in contenders(kind, CHECKED).items()
    }
    different = [name for name, made in digests.items() if made != digests[BASE]]
    if different:
        raise SystemExit(f"{kind}: other bytes than {BASE}: {', '.join(different)}")


def compare(kind: str, count: int, rounds: int) -> list[Result]:
    """Time all contenders in turn."""

    def work(make: Callable[[], Iterable[Any]]) -> Callable[[], object]:
        return lambda: deque(make(), maxlen=0)

    made = [
        (Result("columns", f"{kind} {name}"), repeated(work(make), count))
        for name, make in contenders(kind, count).items()
    ]
    measure(made, rounds)
    return [result for result, _ in made]


def main() -> None:
    """Measure, print the tables, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=50, fast_rounds=8)
    parser.add_argument("--commands", type=int, default=COMMANDS, help="commands to encode")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="vectors to encode")
    args = parsed()
    if args.commands < 1 or args.vectors < 1:
        parser.error("--commands and --vectors must be 1 or more")
    groups = []
    for kind in TEMPLATES:
        check_equal(kind)
        count = args.vectors if kind == "embedding" else args.commands
        groups.append(compare(kind, count, args.rounds))
        for made in (table, matrix, rows):
            made.cache_clear()
    finish_encoding(groups, "command", args.output)


if __name__ == "__main__":
    main()
