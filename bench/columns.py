"""Time to encode Arrow columns as RESP: fastresp, the generators of the report, hiredis, redis-py.

The work is the same for every contender: 500,000 commands ``SET key value`` become RESP in bytes,
in chunks that are ready to be written and then thrown away. fastresp starts from an Arrow table,
with one template; the others from ready Python tuples, whose making costs them nothing here.

- strings: values of 129 bytes, distinct keys, all of them strings;
- ints: both the key and the value an int64;
- floats: the key an int64, the value a float64 without a pattern (17 digits);
- embedding: 20,000 commands ``HSET doc:{key} vector {value}``, the value a vector of 384 float32
  as its bytes; the others start from a NumPy matrix, and make a key and call ``tobytes()`` for
  each.

Two rows copy the same bytes of RESP out of one large buffer. ``memcpy`` copies them into another
as large: of strings, each has 85 MB. ``memcpy, warm buffer`` copies them piece by piece into one
buffer of a chunk's 512 KiB: fastresp, too, writes a chunk where the last one was.

    python bench/columns.py -o columns.json
    python bench/columns.py --fast

Before it measures, the script checks that all contenders make the same bytes. The table at the end
gives for each contender how many times its time is that of ``fastresp columns`` in this run, from
medians, with the middle half of the ratios.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import hiredis
import numpy as np
import pyarrow as pa
import pyperf
import redis
from common import commands, print_ratios, timed

from fastresp import Template
from fastresp.cli.demo.generators import by_substitution, chunks
from fastresp.encode.chunk_writer import CHUNK_BYTES
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter

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
    """The columns."""
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
    """The vectors, one a row."""
    shape = count, DIMENSIONS
    return np.random.default_rng(2).random(shape, dtype=np.float32)


@cache
def rows(kind: str, count: int) -> list[tuple[Any, ...]]:
    """The same as commands of Python objects."""
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
    """Commands as a loop over the rows of a matrix makes them."""
    for key, vector in enumerate(matrix(count), FIRST_KEY):
        yield "HSET", f"doc:{key}", "vector", vector.tobytes()


def copied(kind: str, count: int) -> Callable[[], list[bytes]]:
    """A function that copies the RESP of a kind from one large buffer to another."""
    made = b"".join(map(bytes, by_columns(kind, count)))
    source, target = np.frombuffer(made, np.uint8).copy(), np.zeros(len(made), np.uint8)

    def copy() -> list[bytes]:
        ctypes.memmove(target.ctypes.data, source.ctypes.data, len(made))
        return [target.data]

    return copy


def copied_warm(kind: str, count: int) -> Callable[[], Iterator[memoryview]]:
    """A function that copies the same into one buffer of the size of a chunk, again and again."""
    source = np.frombuffer(b"".join(map(bytes, by_columns(kind, count))), np.uint8).copy()
    target = np.zeros(CHUNK_BYTES, np.uint8)

    def copy() -> Iterator[memoryview]:
        for start in range(0, len(source), CHUNK_BYTES):
            size = min(CHUNK_BYTES, len(source) - start)
            ctypes.memmove(target.ctypes.data, source.ctypes.data + start, size)
            yield target.data[:size]

    return copy


def contenders(kind: str, count: int) -> dict[str, Callable[[], Iterable[Any]]]:
    """By name: what makes pieces of RESP."""
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
        raise SystemExit(f"{kind}: not the bytes of {BASE}: {', '.join(different)}")


def main() -> None:
    """Run all benchmarks; in the end print the ratios."""
    runner = pyperf.Runner()
    args = runner.parse_args()
    if not args.worker:
        for kind in TEMPLATES:
            check_equal(kind)
    runner.metadata["description"] = "Encode Arrow columns as RESP, time a command"
    runner.metadata["pyarrow_version"] = pa.__version__
    runner.metadata["hiredis_version"] = hiredis.__version__
    runner.metadata["redis_py_version"] = redis.__version__
    for kind in TEMPLATES:
        count = VECTORS if kind == "embedding" else COMMANDS
        results: dict[str, pyperf.Benchmark] = {}
        for name, make in contenders(kind, count).items():
            result = runner.bench_time_func(f"{kind} {name}", timed, make, inner_loops=count)
            if result is not None and result.get_nvalue():
                results[name] = result
        if not args.worker and BASE in results:
            print_ratios(kind, results, BASE)


if __name__ == "__main__":
    main()
