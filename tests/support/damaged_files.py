"""Load files of every format with damage at random offsets, one after another.

``python damaged_files.py KIND FIRST COUNT`` loads COUNT files, one for each seed from FIRST on, and
prints a line for each file that is neither loaded nor refused with an error of fastresp. The
current seed is written to the file ``at`` in the current folder, in case the process crashes.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import random
import resource
import struct
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import fastresp
from fastresp.resp.split import CommandSplitter

KINDS = ("arrow", "arrows", "parquet", "csv", "jsonl", "resp")
REFUSALS = (
    fastresp.SourceError, fastresp.EncodeError, fastresp.TemplateError, fastresp.ProtocolError,
)  # fmt: skip
# A limit for the memory that damaged lengths request. AddressSanitizer reserves more for itself.
MEMORY_BYTES = 4 << 30
INJECTED = "\r\n*1\r\n$8\r\nFLUSHALL\r\n"
NUMBERS = (
    0, 1, -1, 2, 7, 127, 255, 256, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63),
)  # fmt: skip
TEMPLATES = (
    "SET {id} {text}",
    "SET user:{large}:{id} {view}",
    "SET {id} {*!json}",
    "RPUSH {id} {*items}",
    "RPUSH {id} {*views}",
    "HSET {id} {*pairs}",
    "HSET {id} {*fields}",
    "SET {id} {vector!f32}",
    "HSET {id} word {word} run {run} when {when} amount {amount} day {day} uuid {uuid} raw {raw}",
    "SET {0} {1}",
    "HSET {id} {**}",
    "HSET {id} {**!json}",
)


def columns(rows: int) -> dict[str, pa.Array]:
    """Return columns of many types, with text that looks like commands."""
    texts = [f"text {row} {INJECTED * (row % 5)}" if row % 7 else None for row in range(rows)]
    words = [INJECTED if row % 3 else "word" for row in range(rows)]
    lists = [[f"item {item}" for item in range(row % 4)] for row in range(rows)]
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    return {
        "id": pa.array(range(rows)),
        "text": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "view": pa.array(texts, pa.string_view()),
        "items": pa.array(lists),
        "views": pa.array(lists, pa.list_view(pa.string())),
        "pairs": pa.array([[(item, "x") for item in each] for each in lists],
                          pa.map_(pa.string(), pa.string())),
        "fields": pa.array([{"a": row, "b": text} for row, text in enumerate(texts)]),
        "vector": pa.array([[1.5, 2, row] for row in range(rows)], pa.list_(pa.float32(), 3)),
        "word": pa.array(words).dictionary_encode(),
        "run": pc.run_end_encode(pa.array(words)),
        "when": pa.array([noon] * rows, pa.timestamp("us", "Europe/Berlin")),
        "amount": pa.array([decimal.Decimal("1.50")] * rows, pa.decimal128(9, 2)),
        "day": pa.array([noon.date()] * rows),
        "uuid": pa.array([uuid.UUID(int=row).bytes for row in range(rows)], pa.uuid()),
        "raw": pa.array([INJECTED.encode()] * rows),
        "half": pa.array(np.arange(rows, dtype="f2")),
        "yes": pa.array([True] * rows),
    }  # fmt: skip


# Types that Parquet lacks, or that {*!json} and {**} refuse: in separate files.
NOT_PARQUET = ("views", "run", "view")
PLAIN = ("id", "text", "word", "half", "yes", "when")
JSON = (*PLAIN, "items", "fields", "pairs")


def whole_files(kind: str) -> list[bytes]:
    """Return the files to damage."""
    everything = columns(20)
    if kind in ("csv", "jsonl"):
        rows = pa.table({name: everything[name] for name in ("id", "text")}).to_pylist()
        if kind == "csv":
            lines = ["id,text", *(f'{row["id"]},"{row["text"] or ""}"' for row in rows)]
            return ["\n".join(lines).encode()]
        nested = [{**row, "items": [row["id"]], "fields": {"a": row["text"]}} for row in rows]
        return ["".join(json.dumps(row) + "\n" for row in each).encode() for each in (rows, nested)]
    if kind == "resp":
        file = io.BytesIO()
        fastresp.dump([(row, INJECTED) for row in range(30)], "HSET {0} field {1}", file)
        return [file.getvalue()]
    found = []
    for names in (tuple(everything), JSON, PLAIN):
        table = pa.table({
            name: array for name, array in everything.items()
            if name in names and not (kind == "parquet" and name in NOT_PARQUET)
        })  # fmt: skip
        found += packed(kind, table)
    return found


def packed(kind: str, table: pa.Table) -> Iterator[bytes]:
    """Yield a table as files of a format: plain and compressed."""
    if kind == "parquet":
        for options in (
            {"compression": "none", "use_dictionary": False},
            {"compression": "none", "data_page_version": "2.0", "row_group_size": 7},
            {"compression": "snappy"},
            {"compression": "zstd", "use_dictionary": False},
        ):
            file = io.BytesIO()
            parquet.write_table(table, file, **options)
            yield file.getvalue()
        return
    make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
    for compression in (None, "lz4", "zstd"):
        file = io.BytesIO()
        with make(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as w:
            w.write_table(table, max_chunksize=8)
        yield file.getvalue()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes after random changes, removals, repetitions and insertions."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(found) or 1)
        width = chance.choice((1, 4, 4, 8))
        piece = struct.pack("<q", chance.choice(NUMBERS))[:width]
        match chance.randrange(8):
            case 0 | 1 | 2:  # another number at an aligned offset
                at -= at % width
                found[at : at + width] = piece
            case 3:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 4:
                found[at : at + 1] = bytes([found[at] ^ 1 << chance.randrange(8)]) if found else b""
            case 5:
                del found[at : at + chance.choice((1, 8, 100, len(found)))]
            case 6:
                found[at:at] = found[at : at + chance.choice((1, 8, 64))]
            case 7:
                other = chance.randrange(len(found) or 1)
                found[at : at + 8] = found[other : other + 8]
    return bytes(found)


def dumped(path: Path, kind: str, data: bytes, template: str, out: io.BytesIO) -> None:
    path.write_bytes(data)
    source: Any = fastresp.read(path, format="arrow" if kind == "arrows" else None)
    fastresp.dump(source, None if kind == "resp" else template, out, nulls="empty")


def loads(path: Path, kind: str, data: bytes, template: str) -> bool:
    """Return whether a template fits an undamaged file."""
    try:
        dumped(path, kind, data, template, io.BytesIO())
    except (fastresp.EncodeError, fastresp.TemplateError):
        return False
    return True


def begins_with(data: bytes, commands: bytes) -> bool:
    """Return whether RESP begins with these commands, ignoring empty lines between them."""
    at = start = 0
    while start < len(commands):
        end = commands.index(b"\n", start) + 1
        for _ in range(int(commands[start + 1 : end])):
            header = commands.index(b"\n", end) + 1
            end = header + int(commands[end + 1 : header]) + 2
        while data[at : at + 1] in (b"\r", b"\n"):
            at += 1
        if not data.startswith(commands[start:end], at):
            return False
        at, start = at + end - start, end
    return True


def wrong_with(path: Path, kind: str, data: bytes, template: str) -> str | None:
    """Load a file; return what is wrong with the outcome, or None."""
    out = io.BytesIO()
    try:
        dumped(path, kind, data, template, out)
    except REFUSALS:
        pass
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    written = out.getvalue()
    if kind == "resp":
        return None if begins_with(data, written) else "other bytes than the file's"
    splitter = CommandSplitter(count_names=True)
    if written:
        splitter.feed(written)
    if splitter.fault is not None or splitter.pending:
        return f"no whole commands: {splitter.fault}"
    foreign = set(splitter.names) - {template.split()[0]}
    return f"commands that {template} does not make: {foreign}" if foreign else None


def main(kind: str, first: int, count: int) -> None:
    if not os.environ.get("LD_PRELOAD"):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    path = Path(f"damaged.{kind}")
    whole = [
        (data, [each for each in TEMPLATES if loads(path, kind, data, each)])
        for data in whole_files(kind)
    ]
    with open("at", "w") as at:
        for seed in range(first, first + count):
            at.seek(0)
            at.write(f"{seed:<12}")
            at.flush()
            chance = random.Random(f"{kind} {seed}")
            data, templates = chance.choice(whole)
            data = damaged(data, chance)
            if wrong := wrong_with(path, kind, data, chance.choice(templates)):
                print(f"{kind} {seed}: {wrong}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
