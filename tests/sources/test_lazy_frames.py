"""LazyFrames of polars: streamed in bounded memory, with all rows or the query's error."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import preloaded
import pytest
import redis
from loads import Insert
from peak import PEAK

import fastresp
from fastresp import EncodeError, SourceError, TemplateError
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Checkpoint

ROWS = 300_000


def counted(rows: int) -> pl.LazyFrame:
    """Return a LazyFrame that polars makes in parts: ids from 0 on, in any order."""
    tens = pl.LazyFrame({"a": range(rows // 1000)}).join(
        pl.LazyFrame({"b": range(1000)}), how="cross"
    )
    return tens.select(id=pl.col("a") * 1000 + pl.col("b"))


def dumped(data: Any, template: str) -> bytes:
    file = io.BytesIO()
    fastresp.dump(data, template, file, nulls="empty")
    return file.getvalue()


def test_rows_of_a_file(tmp_path: Path) -> None:
    """All rows are loaded in order, in many batches; the query runs anew each time."""
    path = tmp_path / "x.parquet"
    pl.select(id=pl.int_range(ROWS)).write_parquet(path, row_group_size=20_000)
    frame = pl.scan_parquet(path).filter(pl.col("id") % 7 != 3).with_columns(v=pl.col("id") / 4)
    wanted = dumped(frame.collect(), "SET k:{id} {v}")
    assert wanted.count(b"SET") == ROWS - ROWS // 7
    for _ in range(2):
        assert dumped(frame, "SET k:{id} {v}") == wanted


TYPES = {
    "categorical": pl.format("c{}", pl.col("id") % 7).cast(pl.Categorical),
    "enum": pl.format("c{}", pl.col("id") % 3).cast(pl.Enum(["c0", "c1", "c2"])),
    "decimal": (pl.col("id") / 100).cast(pl.Decimal(12, 2)),
    "list": pl.concat_list(pl.col("id"), pl.col("id") + 1),
    "struct": pl.struct(x=pl.col("id"), y=pl.lit("é")),
    "datetime": pl.datetime(2020, 1, 1) + pl.duration(seconds=pl.col("id")),
    "null": pl.lit(None),
    "binary": pl.format("b{}", pl.col("id")).cast(pl.Binary),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", TYPES)
def test_types(name: str) -> None:
    """Every batch has the columns of the first one."""
    frame = counted(ROWS).with_columns(v=TYPES[name])
    template = {"list": "SET {id} {v!json}", "struct": "SET {id} {v!json}"}.get(
        name, "SET {id} {v}"
    )

    def values(data: Any) -> list[bytes]:
        return sorted(dumped(data, template).split(b"*3\r\n"))

    assert values(frame) == values(frame.collect())


def test_no_rows(insert: Insert, server: LocalServer) -> None:
    """The columns are known, although no batch exists."""
    frame = counted(ROWS).filter(pl.col("id") < 0)
    assert insert(frame, "SET k:{id} x", server=server.url).rows == 0
    with pytest.raises(TemplateError, match=r"no column \{other\}: its columns are id"):
        insert(frame, "SET k:{other} x", server=server.url)


def test_query_that_fails(insert: Insert, server: LocalServer, client: redis.Redis) -> None:
    """Before its first batch, or after others, the load ends with polars' error."""
    frame = counted(ROWS)
    bad = pl.when(pl.col("id") == ROWS - 1).then(pl.lit("x")).otherwise(pl.lit("1"))
    with pytest.raises(pl.exceptions.InvalidOperationError) as caught:
        insert(frame.with_columns(v=bad.cast(pl.Int64)), "SET k:{id} {v}", server=server.url)
    assert caught.value.report.rows < ROWS  # type: ignore[attr-defined]
    assert client.dbsize() == caught.value.report.rows  # type: ignore[attr-defined]
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="other"):
        insert(frame.select("other"), "SET k:{id} x", server=server.url)


def test_python_objects_are_refused() -> None:
    """Arrow gets only the objects' memory addresses."""
    frame = pl.DataFrame({"id": [1], "o": pl.Series([object()], dtype=pl.Object)})
    for data in (frame.lazy(), [frame, frame], (frame,)):
        with pytest.raises(TemplateError, match="'o' is of type Object"):
            dumped(data, "SET k:{id} {o}")


def test_several_are_refused() -> None:
    """The error says how to combine them."""
    lazy = pl.LazyFrame({"id": [1, 2]})
    frame = pl.DataFrame({"id": [3]})
    several: list[Any] = [[lazy, lazy], (lazy,), [frame, lazy]]
    for data in several:
        words = rf"a {type(data).__name__} with LazyFrames can't be loaded; .* pl.concat\(frames\)"
        with pytest.raises(SourceError, match=words):
            dumped(data, "SET k:{id} x")
    assert dumped(pl.concat([frame.lazy(), lazy]), "SET k:{id} x").count(b"SET") == 3


@pytest.mark.parametrize("version", ["1.20.0", "1.33.1", "1.34.0b2", "1.37.1", "0.20.31"])
def test_old_polars(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.34 to 1.36 would end at an error of the query as if there were no more rows."""
    monkeypatch.setattr(pl, "__version__", version)
    words = f"needs polars 1.38 or later, and this is {version}; upgrade polars, or pass frame.coll"
    with pytest.raises(SourceError, match=words):
        dumped(counted(ROWS), "SET k:{id} x")
    assert dumped(counted(1000).collect(), "SET k:{id} x")


def test_error_in_the_middle(insert: Insert, server: LocalServer) -> None:
    """The load raises it, whatever polars is doing at that moment."""
    value = pl.when(pl.col("id") != ROWS // 2).then(pl.col("id"))
    frame = counted(ROWS).with_columns(v=value)
    with pytest.raises(EncodeError, match=r"column 'v'.*cannot send a null"):
        insert(frame, "SET k:{id} {v}", server=server.url)
    with pytest.raises(fastresp.CommandError, match="wrong number of arguments"):
        insert(frame, "HSET k:{id} x", server=server.url, nulls="skip", on_error="stop")


# A query that counts its batches; one batch sends SIGINT, or has a null.
ENDS = """
import asyncio, os, signal, sys
import polars as pl
import fastresp, fastresp.aio

how, form, url = sys.argv[1:]
seen = 0


def look(column):
    global seen
    seen += 1
    if seen == 20 and how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    return column if seen != 20 or how != "null" else pl.Series(column.name, [None] * len(column))


pl.Config.set_streaming_chunk_size(5_000)
frame = pl.LazyFrame({"a": range(5_000)}).join(pl.LazyFrame({"b": range(1000)}), how="cross")
frame = frame.select(pl.col("a").map_batches(look, pl.Int64, is_elementwise=True))
try:
    if form == "sync":
        fastresp.mass_insert(frame, "SET k:{a} x", server=url, transport="socket")
    else:
        asyncio.run(fastresp.aio.mass_insert(frame, "SET k:{a} x", server=url))
except BaseException as error:
    print(type(error).__name__, seen)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["sync", "asyncio"])
@pytest.mark.parametrize("how", ["interrupt", "null"])
def test_query_ends_with_the_load(how: str, form: str, server: LocalServer) -> None:
    """The remaining batches are not computed, and the process ends."""
    done = preloaded.run(
        [sys.executable, "-c", ENDS, how, form, server.url],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    name, seen = done.stdout.split()
    assert name == {"interrupt": "KeyboardInterrupt", "null": "EncodeError"}[how]
    assert 20 <= int(seen) < 500  # of 1,000


MEMORY = (
    PEAK
    + """
import sys
import polars as pl
import fastresp

rows, width, chunk, url = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if chunk:
    pl.Config.set_streaming_chunk_size(chunk)
frame = pl.LazyFrame({"a": range(rows // 1000)}).join(pl.LazyFrame({"b": range(1000)}), how="cross")
frame = frame.select(pl.col("b"), v=pl.format("{}" + "x" * width, pl.col("a")))
before = peak()
report = fastresp.mass_insert(frame, "SET k:{b} {v}", server=url, transport="socket")
print(report.replies, peak() - before)
"""
)


def kilobytes(*arguments: object) -> tuple[int, int]:
    """Return the replies of a load, and its peak memory."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *map(str, arguments)],
        capture_output=True, text=True, timeout=250, check=True,
    )  # fmt: skip
    replies, peak = done.stdout.split()
    return int(replies), int(peak)


@pytest.mark.few(0)
def test_memory(server: LocalServer) -> None:
    """The frame would take 1.2 GB. Measured: 188 to 198 MiB, and 147 MiB for a twentieth."""
    replies, peak = kilobytes(4_000_000, 300, 10_000, server.url)
    assert replies == 4_000_000
    assert peak < 300_000


@pytest.mark.long
def test_memory_of_twenty_million_rows(server: LocalServer) -> None:
    """With polars' default batches; the frame would take 1.6 GB."""
    replies, peak = kilobytes(20_000_000, 50, 0, server.url)
    assert replies == 20_000_000
    assert peak < 600_000


def test_checkpoint_needs_a_source_id(server: LocalServer, client: redis.Redis) -> None:
    """A query may return other rows when it runs again."""
    query = pl.LazyFrame({"id": [1, 2]})
    with pytest.raises(fastresp.CheckpointError, match="a stream of tables can be read only once"):
        fastresp.mass_insert(query, "INCRBY n:{id} 1", server=server.url, checkpoint="lazy")
    fastresp.mass_insert(
        query,
        "INCRBY n:{id} 1",
        server=server.url,
        checkpoint=Checkpoint("lazy", source_id="today"),
    )
    assert client.mget(["n:1", "n:2"]) == [b"1", b"1"]
