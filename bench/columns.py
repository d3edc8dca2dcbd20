"""Time to encode Arrow columns as RESP: fastresp, ``%`` formatting, hiredis, redis-py.

Every contender produces the same bytes, in chunks. fastresp starts from an Arrow table. The other
contenders start from Python tuples, created beforehand, or for embeddings from a NumPy matrix.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import hiredis
import numpy as np
import pyarrow as pa
import redis
from commands import commands
from encoders import Encoder, measure_encoders
from results import Result
from script import run_script

from fastresp import Template
from fastresp.cli.demo.methods import by_substitution, chunks
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter
from fastresp.encode.writer import CHUNK_BYTES

COMMANDS = 500_000
VECTORS = 20_000
DIMENSIONS = 384
FIRST_KEY = 1_000_000
TEMPLATES = {
    "strings": Template("SET {key} {value}"),
    "ints": Template("SET {key} {value}"),
    "floats": Template("SET {key} {value}"),
    "embedding": Template("HSET doc:{key} vector {value!f32}"),
}


@cache
def table(kind: str, count: int) -> pa.Table:
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


def copied(kind: str, count: int, piece: int | None = None) -> Callable[[], Iterator[memoryview]]:
    """Return a function that copies the RESP of a kind from one large buffer to another.

    Args:
        piece: the number of bytes to copy at a time, into one buffer that is reused.
    """
    source = np.frombuffer(b"".join(map(bytes, by_columns(kind, count))), np.uint8).copy()
    piece = piece or len(source)
    target = np.zeros(piece, np.uint8)

    def copy() -> Iterator[memoryview]:
        for start in range(0, len(source), piece):
            size = min(piece, len(source) - start)
            ctypes.memmove(target.ctypes.data, source.ctypes.data + start, size)
            yield target.data[:size]

    return copy


def encoders(kind: str, count: int) -> dict[str, Encoder]:
    copy = cache(copied)
    made: dict[str, Encoder] = {
        "fastresp columns": lambda: by_columns(kind, count),
        "memcpy": lambda: copy(kind, count)(),
        "memcpy, warm buffer": lambda: copy(kind, count, CHUNK_BYTES)(),
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


def compare(args: argparse.Namespace) -> list[Result]:
    results = []
    for kind in TEMPLATES:
        count = args.vectors if kind == "embedding" else args.commands
        results += measure_encoders("columns", kind, partial(encoders, kind), count, args.rounds)
        for made in (table, matrix, rows):
            made.cache_clear()
    return results


if __name__ == "__main__":
    commands_of = ("commands to encode", COMMANDS)
    run_script(__doc__, compare, 50, 8, commands=commands_of, vectors=("vectors", VECTORS))
