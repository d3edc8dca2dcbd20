"""Columns of any library through the PyCapsule protocol, and refused data."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import arro3.core
import duckdb
import nanoarrow as na
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import redis
from columns import Array, Stream, batches, capsule_of, dumped

import fastresp
import fastresp.aio
from fastresp import EncodeError, SourceError, pack_many
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.server.local_server import LocalServer
from fastresp.sources.several_tables import Frames, frames_of

NAMES = ["ann", None, "dä"]
TABLE = pa.table({"id": pa.array([1, 2, 3]), "name": NAMES})
FRAME = pd.DataFrame({"id": [1, 2, 3], "name": pd.array(NAMES, dtype="string")})

CSV = "id,name\n1,ann\n2,\n3,dä\n"
CSV_TYPES = {"id": "int64", "name": "string"}


def relation() -> Any:
    return duckdb.connect().sql("from (values (1, 'ann'), (2, null), (3, 'dä')) t(id, name)")


SOURCES: dict[str, Callable[[], Any]] = {
    "Table": lambda: TABLE,
    "RecordBatch": lambda: TABLE.to_batches()[0],
    "RecordBatchReader": TABLE.to_reader,
    "ChunkedArray": lambda: pa.chunked_array([TABLE.to_struct_array().chunk(0)] * 1),
    "StructArray": lambda: TABLE.to_struct_array().chunk(0),
    "polars": lambda: pl.DataFrame({"id": [1, 2, 3], "name": NAMES}),
    "polars chunks": lambda: pl.concat(
        [pl.DataFrame({"id": [i], "name": [NAMES[i - 1]]}) for i in (1, 2, 3)], rechunk=False
    ),
    "polars struct": lambda: pl.DataFrame({"id": [1, 2, 3], "name": NAMES}).to_struct("s"),
    "pandas": lambda: FRAME,
    "pandas with an index": lambda: FRAME.set_index(pd.Index(["x", "y", "z"])),
    "duckdb": relation,
    "nanoarrow stream": lambda: na.ArrayStream(TABLE),
    "nanoarrow array": lambda: na.Array(TABLE.to_struct_array().chunk(0)),
    "arro3": lambda: arro3.core.Table.from_arrow(TABLE),
    "arro3 batch": lambda: arro3.core.RecordBatch.from_arrow(TABLE.to_batches()[0]),
    "list of batches": lambda: [TABLE.slice(0, 1), TABLE.slice(1).to_batches()[0]],
    "tuple of DataFrames": lambda: (FRAME[:2], pl.DataFrame({"id": [3], "name": ["dä"]})),
    "Dataset": lambda: pyarrow.dataset.dataset(TABLE),
    "Scanner": lambda: pyarrow.dataset.dataset(TABLE).scanner(columns=["name", "id"]),
    "LazyFrame": lambda: pl.LazyFrame({"id": [1, 2, 3], "name": NAMES}),
    "read_csv in chunks": lambda: pd.read_csv(io.StringIO(CSV), chunksize=1, dtype=CSV_TYPES),
    "any stream": lambda: Stream(TABLE),
    "any array": lambda: Array(TABLE.to_batches()[0]),
}  # fmt: skip
EXPECTED = pack_many(
    [("HSET", "u:1", "name", "ann"), ("HSET", "u:2", "name", ""), ("HSET", "u:3", "name", "dä")]
)
STORED = {b"u:1": b"ann", b"u:2": b"", b"u:3": "dä".encode()}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str, server: LocalServer, client: redis.Redis) -> None:
    """Columns of every library work wherever rows do."""
    template = "HSET u:{id} {**}"
    assert dumped(SOURCES[name](), template, nulls="empty") == EXPECTED
    for transport in ("redis-cli", "socket"):
        report = fastresp.mass_insert(
            SOURCES[name](), template, server=server.url, transport=transport, nulls="empty"
        )
        assert (report.rows, report.commands, report.replies) == (3, 3, 3)
        assert {key: client.hget(key, "name") for key in client.scan_iter()} == STORED
        client.flushall()
    report = asyncio.run(
        fastresp.aio.mass_insert(SOURCES[name](), template, server=server.url, nulls="empty")
    )
    assert (report.rows, report.replies) == (3, 3)
    assert {key: client.hget(key, "name") for key in client.scan_iter()} == STORED
    names = list(fastresp.iter_replies(SOURCES[name](), "HGET u:{id} name", server=server.url))
    assert names == list(STORED.values())

    async def replies() -> list[Any]:
        source = SOURCES[name]()
        found = fastresp.aio.iter_replies(source, "HGET u:{id} name", server=server.url)
        return [reply async for reply in found]

    assert asyncio.run(replies()) == names


SINGLE: dict[str, Callable[[], Any]] = {
    "Array": lambda: pa.array([1, 2]),
    "ChunkedArray": lambda: pa.chunked_array([[1], [2]]),
    "polars": lambda: pl.Series("x", [1, 2]),
    "pandas": lambda: pd.Series([1, 2]),
    "nanoarrow": lambda: na.Array([1, 2], na.int64()),
    "arro3": lambda: arro3.core.Array([1, 2], arro3.core.DataType.int64()),
}


@pytest.mark.parametrize("name", SINGLE)
def test_single_columns(name: str) -> None:
    assert dumped(SINGLE[name](), "GET {0}") == pack_many([("GET", 1), ("GET", 2)])


def test_polars_types() -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["a", "b", None], dtype=pl.Categorical),
            "e": pl.Series(["x", None, "y"], dtype=pl.Enum(["x", "y"])),
            "t": pl.datetime_range(
                pl.datetime(2024, 3, 31), pl.datetime(2024, 4, 2), "1d",
                time_zone="Europe/Berlin", eager=True,
            ),
            "l": [["p"], None, ["q", None]],
            "v": pl.Series([[1.0, 2.0]] * 3, dtype=pl.Array(pl.Float32, 2)),
            "d": pl.Series(["1.50"] * 3).str.to_decimal(scale=2),
        }
    )  # fmt: skip
    rows = [("a", "x", ["p"]), ("b", "", [""]), ("", "y", ["q", ""])]
    times = ["2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00", "2024-04-02T00:00:00+02:00"]
    assert dumped(frame, "CMD {c} {e} {t} {*l} {v!f32} {d}", nulls="empty") == pack_many(
        ("CMD", c, e, when, *items, b"\0\0\x80?\0\0\0@", "1.50")
        for (c, e, items), when in zip(rows, times, strict=True)
    )


BLOCKED = """
import sys, io
sys.modules["pyarrow"] = None
import fastresp
class Source:
    def __init__(self, inner): self.inner = inner
    def {dunder}(self, requested_schema=None): return self.inner.{dunder}()
{make}
file = io.BytesIO()
print(fastresp.dump(Source(source), "SADD k {{0}}", file, nulls="skip"))
assert file.getvalue() == fastresp.pack_many([("SADD", "k", "a"), ("SADD", "k", "b")])
assert not [name for name in sys.modules if name.startswith("pyarrow.")]
"""
NANOARROW = "import nanoarrow as na; source = na.Array(['a', None, 'b'], na.string())"
ARRO3 = "import arro3.core as a; source = a.Array(['a', None, 'b'], a.DataType.string())"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("dunder", "make"),
    [
        ("__arrow_c_stream__", NANOARROW),
        ("__arrow_c_array__", NANOARROW),
        ("__arrow_c_stream__", f"{ARRO3}; source = a.ChunkedArray([source])"),
        ("__arrow_c_array__", ARRO3),
        (
            "__arrow_c_stream__",
            "import polars as pl; source = pl.DataFrame({'x': ['a', None, 'b']})",
        ),
    ],
    ids=["nanoarrow stream", "nanoarrow array", "arro3 stream", "arro3 array", "polars stream"],
)
def test_without_pyarrow(dunder: str, make: str) -> None:
    code = BLOCKED.format(dunder=dunder, make=make)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr


# Sources that violate the protocol.


def test_columns_that_were_already_used() -> None:
    class Twice:
        """Return the same capsules for every call."""

        stream = TABLE.__arrow_c_stream__()
        array = TABLE.to_batches()[0].__arrow_c_array__()

        def give(self, kind: str) -> Any:
            return Array(self) if kind == "array" else Stream(self)

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.stream

        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return self.array

    for kind in ("stream", "array"):
        data = Twice().give(kind)
        assert dumped(data, "HSET u:{id} {**}", nulls="empty") == EXPECTED
        with pytest.raises(SourceError, match="already used"):
            dumped(data, "HSET u:{id} {**}", nulls="empty")


@pytest.mark.parametrize("given", [None, 5, capsule_of(1, b"arrow_schema")])
def test_not_a_capsule(given: Any) -> None:
    class Wrong:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return given

    with pytest.raises(ValueError, match="PyCapsule_GetPointer called with"):
        dumped(Wrong(), "GET {a}")


def test_dunder_that_raises() -> None:
    class Wrong:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dumped(Wrong(), "GET {a}")


def test_reader_that_raises(server: LocalServer, client: redis.Redis) -> None:
    def rows() -> Any:
        yield from batches(2)
        raise ZeroDivisionError("of the source")

    reader = pa.RecordBatchReader.from_batches(batches(1)[0].schema, rows())
    with pytest.raises(SourceError, match="ZeroDivisionError: of the source"):
        fastresp.mass_insert(reader, "SET {id} {v}", server=server.url)
    assert client.dbsize() == 4


def test_reader_that_is_interrupted() -> None:
    """Ctrl-C reaches whichever Python code runs in the main thread."""

    def rows() -> Any:
        yield from batches(2)
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_batches(batches(1)[0].schema, rows())
    with pytest.raises(KeyboardInterrupt):
        dumped(reader, "SET {id} {v}")


def test_async_iterables_are_rows(server: LocalServer) -> None:
    async def rows() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1

    assert (
        asyncio.run(fastresp.aio.mass_insert(rows(), "SET {0} {1}", server=server.url)).replies == 1
    )


def test_path(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """A path or a query is accepted wherever data is."""
    file = tmp_path / "users.parquet"
    pq.write_table(TABLE, file)
    query = f"SELECT id, name FROM '{file}' WHERE name IS NOT NULL"
    template = "HSET u:{id} {**}"
    assert dumped(file, template, nulls="empty") == EXPECTED
    for data, rows in ((file, 3), (str(file), 3), (query, 2)):
        assert fastresp.mass_insert(data, template, server=server.url, nulls="empty").rows == rows
        load = fastresp.aio.mass_insert(data, template, server=server.url, nulls="empty")
        assert asyncio.run(load).rows == rows
        names = list(fastresp.iter_replies(data, "HGET u:{id} name", server=server.url))
        assert names == [STORED[b"u:1"], b"", STORED[b"u:3"]][:: 1 if rows == 3 else 2]
    assert client.dbsize() == 3
    resp = tmp_path / "users.resp"
    fastresp.dump(file, template, resp, nulls="empty")
    assert fastresp.mass_insert(resp, server=server.url).commands == 3
    with pytest.raises(FileNotFoundError) as caught:
        fastresp.mass_insert("SET a 1", server=server.url)
    assert "[('SET', 'key', 'value')]" in caught.value.__notes__[0]


TABLES_THAT_DIFFER: dict[str, tuple[Any, str]] = {
    "names": (pa.table({"id": [4], "nam": ["x"]}), "table 2 has the columns id, nam"),
    "types": (pa.table({"id": [4.5], "name": ["x"]}), "'id' is int64 in the first table"),
}


@pytest.mark.parametrize("name", TABLES_THAT_DIFFER)
def test_tables_that_differ(name: str, server: LocalServer, client: redis.Redis) -> None:
    """Earlier tables are loaded, and no value is converted."""
    other, words = TABLES_THAT_DIFFER[name]
    with pytest.raises(SourceError, match=words):
        fastresp.mass_insert([TABLE, other], "SET {id} x", server=server.url)
    assert client.dbsize() == 3


def test_later_tables_may_have_narrower_types() -> None:
    first = pa.table({"id": pa.array([300], pa.int64()), "name": ["x"]})
    names = pa.array(["y"]).dictionary_encode()
    later = pa.table({"name": names, "id": pa.array([2], pa.uint8())})
    wanted = dumped([{"id": 300, "name": "x"}, {"id": 2, "name": "y"}], "SET {id} {name}")
    assert dumped([first, later], "SET {id} {name}") == wanted
    with pytest.raises(SourceError, match="column 'id' is uint8 in the first table and int64 in"):
        dumped([later.select(["id"]), first.select(["id"])], "SET {id} x")


def test_later_tables_may_have_lists_with_nullable_items() -> None:
    kind = pa.list_(pa.field("element", pa.string(), nullable=False))
    first = pa.table({"id": ["a"], "names": pa.array([["x"]], kind)})
    later = [pa.table({"id": ["b"], "names": names}) for names in ([["y", "z"]], [[]])]
    wanted = pack_many([("RPUSH", "a", "x"), ("RPUSH", "b", "y", "z")])
    assert dumped([first, *later], "RPUSH {id} {*names}") == wanted
    with pytest.raises(EncodeError, match=r"row 1 .*cannot send a null"):
        dumped([first, pa.table({"id": ["b"], "names": [[None]]})], "RPUSH {id} {*names}")


def test_tables_with_nested_nulls() -> None:
    """pyarrow's cast of a slice would damage them, even to the same type."""
    kinds = {
        "a": pa.struct([("x", pa.int64()), ("y", pa.null())]),
        "b": pa.list_(pa.list_view(pa.null())),
    }
    values = [{"a": {"x": row, "y": None}, "b": [[None] * row, []]} for row in range(8)]
    table = pa.Table.from_pylist(values, pa.schema(kinds))
    wanted = dumped(values, "SET k {*!json}")
    assert dumped([table[:2], table[2:3], table[3:3], table[3:]], "SET k {*!json}") == wanted


def test_tables_are_streamed() -> None:
    """The next chunk is read only after the previous one was used."""
    taken = []

    class Chunks:
        get_chunk = None

        def __iter__(self) -> Iterator[Any]:
            for number in range(5):
                taken.append(number)
                yield pa.table({"id": [number] * 10_000})

    stream = ArrowStream(frames_of(Chunks()))
    assert taken == [0]
    next(stream)
    assert taken == [0]
    next(stream)
    assert taken == [0, 1]
    stream.release_columns()
    with pytest.raises(SourceError, match="the source has no tables"):
        dumped(Frames([]), "SET {id} x")


@pytest.mark.parametrize("command", ["HSET u:{id} {**}", None])
def test_tables_passed_as_rows_get_advice(command: str | None) -> None:
    """An iterator of tables can't be told from an iterator of rows before its first item."""
    with pytest.raises(EncodeError, match="a list of tables, or load each separately"):
        dumped((frame for frame in [FRAME]), command)
