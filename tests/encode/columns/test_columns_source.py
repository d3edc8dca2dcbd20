"""Columns of any library, taken through the PyCapsule protocol, and let go of on every path."""

from __future__ import annotations

import asyncio
import gc
import io
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
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
from columns import Array, Counted, Stream, capsule_of, dumped

import fastresp
import fastresp.aio
from fastresp import (
    EncodeError,
    SourceError,
    TemplateError,
    TransportError,
    pack_many,
)
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter
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
    """Of every library, everywhere that rows can go."""
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


def test_types_of_polars() -> None:
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


# What a source gives is released, whatever happens.


def batches(count: int = 3, rows: int = 2) -> list[pa.RecordBatch]:
    return [
        pa.record_batch({"id": range(i * rows, i * rows + rows), "v": ["x" * 50] * rows})
        for i in range(count)
    ]


def assert_released(source: Counted) -> None:
    """At once, not when the garbage is collected."""
    assert source.streams == source.streams_released == 1
    assert source.open == 0


def mass_insert(source: Any, url: str, **options: Any) -> Any:
    return fastresp.mass_insert(source, "SET {id} {v}", server=url, **options)


def by_socket(source: Any, url: str, **options: Any) -> Any:
    return mass_insert(source, url, transport="socket", **options)


def execute(source: Any, url: str) -> Any:
    return list(fastresp.iter_replies(source, "SET {id} {v}", server=url))


def by_aio(source: Any, url: str) -> Any:
    return asyncio.run(fastresp.aio.mass_insert(source, "SET {id} {v}", server=url))


def execute_by_aio(source: Any, url: str) -> Any:
    async def replies() -> list[Any]:
        found = fastresp.aio.iter_replies(source, "SET {id} {v}", server=url)
        return [reply async for reply in found]

    return asyncio.run(replies())


def dump(source: Any, url: str) -> Any:
    return fastresp.dump(source, "SET {id} {v}", io.BytesIO())


LOADS = [mass_insert, by_socket, execute, by_aio, execute_by_aio]


@pytest.mark.parametrize("load", [*LOADS, dump])
def test_released_at_the_end(load: Any, server: LocalServer) -> None:
    source = Counted(batches())
    load(source, server.url)
    assert source.given == 3
    assert_released(source)


def test_bad_template() -> None:
    for template in ("SET {nothing} 1", "SET {*id} 1", "SET {id!f32} 1"):
        source = Counted(batches())
        with pytest.raises(TemplateError):
            fastresp.dump(source, template, io.BytesIO())
        assert (source.given, source.streams_released) == (0, 1)
        gc.collect()
        assert source.open == 0
    source = Counted(batches())
    with pytest.raises(TemplateError):
        fastresp.dump(source, "SET {id", io.BytesIO())
    with pytest.raises(ValueError, match="nulls is"):
        fastresp.dump(source, "SET {id} 1", io.BytesIO(), nulls="no")  # type: ignore[arg-type]
    gc.collect()
    assert source.open == 0


@pytest.mark.parametrize("load", [*LOADS, dump])
def test_value_that_cannot_be_sent(load: Any, server: LocalServer, client: redis.Redis) -> None:
    """What came before is loaded; the batch goes at once, though the traceback is held."""
    parts = batches(3)
    parts.insert(2, pa.record_batch({"id": pa.array([8, None]), "v": ["a", "b"]}))
    source = Counted(parts)
    with pytest.raises(EncodeError, match=r"row 5, command 5, column 'id'.*null") as caught:
        load(source, server.url)
    if load is not dump:
        assert caught.value.report.replies == 5  # type: ignore[attr-defined]
        assert sorted(client.scan_iter()) == [b"0", b"1", b"2", b"3", b"8"]
    assert source.given == 3
    assert_released(source)


@pytest.mark.parametrize("fail_at", [-1, 0, 2])
@pytest.mark.parametrize("load", LOADS)
def test_source_that_fails(
    load: Any, fail_at: int, server: LocalServer, client: redis.Redis
) -> None:
    source = Counted(batches(), fail_at)
    with pytest.raises(SourceError, match="source of the columns failed: the disk is \ufffd full"):
        load(source, server.url)
    assert client.dbsize() == max(0, 2 * fail_at)
    assert_released(source)


@pytest.mark.parametrize("load", LOADS)
def test_server_that_is_not_there(load: Any, port: int) -> None:
    source = Counted(batches())
    with pytest.raises(TransportError):
        load(source, f"redis://127.0.0.1:{port}")
    assert (source.given, source.open) == (0, 0)


@pytest.mark.parametrize("load", LOADS)
def test_server_killed_in_mid_load(load: Any, start_server: Callable[..., LocalServer]) -> None:
    server = start_server()

    def kill(index: int) -> None:
        if index == 20:
            server.process.kill()

    source = Counted(batches(200, 1000), on_batch=kill)
    with pytest.raises(TransportError):
        load(source, server.url)
    assert source.streams_released == 1
    gc.collect()
    assert source.open == 0


@pytest.mark.parametrize("load", [mass_insert, by_socket])
def test_interrupted_by_progress(load: Any, server: LocalServer) -> None:
    """As by a Ctrl-C between two chunks."""

    def interrupt(report: fastresp.Report) -> None:
        raise KeyboardInterrupt

    source = Counted(batches(100, 5000))
    with pytest.raises(KeyboardInterrupt):
        load(source, server.url, progress=interrupt)
    assert source.streams_released == 1
    gc.collect()
    assert source.open == 0


CTRL_C = """
import sys, duckdb, fastresp
data = duckdb.sql("select range id, 'x' v from range(100000000000)")
try:
    fastresp.mass_insert(
        data, "SET {id} {v}", server=sys.argv[1], transport=sys.argv[2],
        progress=lambda report: print(report.commands, flush=True),
    )
except KeyboardInterrupt as error:
    print("interrupted", error.report.commands > 0, flush=True)
"""


@pytest.mark.parametrize("transport", ["redis-cli", "socket"])
def test_ctrl_c(transport: str, server: LocalServer) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, server.url, transport],
        stdout=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert child.stdout is not None
    while int(child.stdout.readline()) < 100_000:
        pass
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert output.splitlines()[-1] == "interrupted True"


def test_ctrl_c_while_all_rows_are_left_out() -> None:
    code = (
        "import duckdb, fastresp\n"
        "data = duckdb.sql('select null::int v from range(100000000000)')\n"
        "print(1, flush=True)\n"
        "fastresp.dump(data, 'GET {v}', '/dev/null', nulls='skip')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
def test_cancelled(after_s: float, server: LocalServer, client: redis.Redis) -> None:
    """Between batches, and while the source lets wait for one, which goes on in its thread."""
    waits = threading.Event()

    def pause(index: int) -> None:
        if index == 5:
            waits.set()
            time.sleep(1.0)

    async def cancelled() -> None:
        task = asyncio.create_task(
            fastresp.aio.mass_insert(source, "SET {id} {v}", server=server.url)
        )
        await asyncio.sleep(after_s)
        while after_s == 0.2 and not waits.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    source = Counted(batches(10, 10), on_batch=pause)
    asyncio.run(cancelled())
    gc.collect()
    assert source.open == 0
    if after_s == 0.2:
        assert source.given < 10


def test_aio_does_not_block_for_a_batch(server: LocalServer) -> None:
    """Each batch comes only when others have had some turns."""
    turns = 0

    async def clock() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    def wait_for_turns(index: int) -> None:
        until, deadline = turns + 10, time.monotonic() + 30
        while turns < until:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    async def main() -> fastresp.Report:
        ticking = asyncio.create_task(clock())
        source = Counted(batches(2), on_batch=wait_for_turns)
        report = await fastresp.aio.mass_insert(source, "SET {id} {v}", server=server.url)
        ticking.cancel()
        return report

    report = asyncio.run(main())
    assert report.replies == report.rows > 0


def test_batches_go_before_one_that_is_waited_for(server: LocalServer, client: redis.Redis) -> None:
    seen = []

    # The first batch that is waited for has not yet shown that the source is slow.
    def pause(index: int) -> None:
        if index:
            time.sleep(0.3)
        if index == 3:
            deadline = time.monotonic() + 30
            while client.dbsize() < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(client.dbsize())

    source = Counted(batches(4), on_batch=pause)
    fastresp.mass_insert(source, "SET {id} {v}", server=server.url, transport="socket")
    assert seen[-1] >= 4


def test_execute_is_left(server: LocalServer) -> None:
    source = Counted(batches(100, 1000))
    replies = fastresp.iter_replies(source, "SET {id} {v}", server=server.url)
    assert source.given == 0
    assert next(replies) == b"OK"
    replies.close()  # type: ignore[attr-defined]
    assert_released(source)
    assert source.given < 100

    source = Counted(batches(3))
    replies = fastresp.iter_replies(source, "SET {id} {v}", server=server.url)
    del replies
    assert_released(source)

    async def leave() -> None:
        found = fastresp.aio.iter_replies(source, "SET {id} {v}", server=server.url)
        async with aclosing(found) as replies:  # type: ignore[type-var]
            assert await anext(replies) == b"OK"

    source = Counted(batches(100, 1000))
    asyncio.run(leave())
    assert_released(source)


def test_chunks_are_left() -> None:
    source = Counted(batches(100, 1000))
    stream = ArrowStream(source)
    chunks = ColumnWriter(fastresp.Template("SET {id} {v}"), stream, chunk_bytes=100).chunks(stream)
    next(chunks)
    del stream, chunks
    assert_released(source)


def test_stream_is_released_only_after_the_batch_that_another_thread_waits_for() -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait(index: int) -> None:
        began.set()
        go_on.wait(60)
        assert source.streams_released == 0

    source = Counted(batches(), on_batch=wait)
    stream = ArrowStream(source)
    writer = ColumnWriter(fastresp.Template("SET {id} {v}"), stream)
    thread = threading.Thread(target=writer.fill, args=(stream,))
    thread.start()
    began.wait(60)
    stream.release_columns()
    assert source.streams_released == 0
    go_on.set()
    thread.join(60)
    assert source.streams_released == 1
    assert not writer.fill(stream)
    del writer, stream
    gc.collect()
    assert source.open == 0


# Sources that are not what they should be.


def test_columns_that_were_already_taken() -> None:
    class Twice:
        """Gives the same capsules again and again."""

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
        with pytest.raises(SourceError, match="already taken"):
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


def test_reader_whose_rows_raise(server: LocalServer, client: redis.Redis) -> None:
    def rows() -> Any:
        yield from batches(2)
        raise ZeroDivisionError("of the source")

    reader = pa.RecordBatchReader.from_batches(batches(1)[0].schema, rows())
    with pytest.raises(SourceError, match="ZeroDivisionError: of the source"):
        fastresp.mass_insert(reader, "SET {id} {v}", server=server.url)
    assert client.dbsize() == 4


def test_async_iterables_are_rows(server: LocalServer) -> None:
    async def rows() -> AsyncIterator[tuple[int, int]]:
        yield 1, 1

    assert (
        asyncio.run(fastresp.aio.mass_insert(rows(), "SET {0} {1}", server=server.url)).replies == 1
    )


def test_path(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    """A path is read, everywhere that data can be given; so is a query."""
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
    """What came before is loaded, and no value is converted."""
    other, words = TABLES_THAT_DIFFER[name]
    with pytest.raises(SourceError, match=words):
        fastresp.mass_insert([TABLE, other], "SET {id} x", server=server.url)
    assert client.dbsize() == 3


def test_tables_are_streamed() -> None:
    """The next chunk is read when the last was taken."""
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
    with pytest.raises(SourceError, match="there is no table"):
        dumped(Frames([]), "SET {id} x")


@pytest.mark.parametrize("command", ["HSET u:{id} {**}", None])
def test_tables_as_rows_are_advised(command: str | None) -> None:
    """An iterator of tables can't be told from one of rows before it begins."""
    with pytest.raises(EncodeError, match="a list of tables, or load them one by one"):
        dumped((frame for frame in [FRAME]), command)
