"""All ways to load a data set: from rows, columns or files, and by each function and mode."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import duckdb
import nanoarrow
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
from arro3.core import Table as Arro3Table
from command_line import invoke
from data_sets import DataSet, Mixed
from pyarrow import feather, parquet
from redis import Redis

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer
from fastresp.sink import Sink

__all__ = ["METHODS", "SOURCES", "Method", "Source", "counts"]

ISO_TEXT = (date, datetime, time, timedelta, Decimal)


@dataclass(frozen=True)
class Source:
    """A form in which a data set can be loaded.

    Attributes:
        make: returns the data for ``mass_insert``; may write files into a folder.
        families: groups of sources; a data set that has one of them in ``without`` is skipped.
        fits: returns whether this form can represent a data set.
        keyed: whether a row can lack a key instead of having a null; columns can't.
    """

    make: Callable[[DataSet, Path], Any]
    families: Collection[str] = ()
    fits: Callable[[DataSet], bool] = lambda data: True
    keyed: bool = False

    def carries(self, data: DataSet) -> bool:
        held = self.keyed or not isinstance(data, Mixed)
        return held and not set(self.families) & data.without.keys() and self.fits(data)


def rows(data: DataSet, folder: Path) -> list[dict[str, Any]]:
    return data.rows()


def thirds(data: DataSet) -> list[range]:
    """Return the numbers of the rows in three parts, of which the first is empty."""
    count = data.table.num_rows
    return [range(0), range(count // 2), range(count // 2, count)]


def parts(data: DataSet) -> list[pa.Table]:
    return [data.table.slice(part.start, len(part)) for part in thirds(data)]


def batches(data: DataSet, folder: Path) -> list[Any]:
    return [batch for part in parts(data) for batch in part.to_batches()] or [data.table]


def relation(data: DataSet, folder: Path) -> Any:
    return duckdb.connect().from_arrow(data.table)


def pandas_arrow(data: DataSet, folder: Path) -> pd.DataFrame:
    return data.table.to_pandas(types_mapper=pd.ArrowDtype)


def parquet_file(data: DataSet, folder: Path) -> str:
    path = folder / "data.parquet"
    parquet.write_table(data.table, path)
    return str(path)


def parquet_parts(data: DataSet, folder: Path) -> str:
    for number, part in enumerate(parts(data)):
        parquet.write_table(part, folder / f"part-{number}.parquet")
    return str(folder / "part-*.parquet")


def parquet_object(data: DataSet, folder: Path) -> Any:
    return fastresp.read(io.BytesIO(Path(parquet_file(data, folder)).read_bytes()))


def parquet_hive(data: DataSet, folder: Path) -> str:
    """Write a file for each row, in a folder named by the row's id, far below a similar folder."""
    folder = folder / "far=above" / "data"
    for number in range(data.table.num_rows):
        place = folder / f"id={number}"
        place.mkdir(parents=True)
        parquet.write_table(data.table[number : number + 1].drop_columns("id"), place / "p.parquet")
    return str(folder / "*" / "p.parquet")


def relative_hive(data: DataSet, folder: Path) -> str:
    return os.path.relpath(parquet_hive(data, folder))


def arrow(suffix: str) -> Callable[[DataSet, Path], str]:
    def write(data: DataSet, folder: Path) -> str:
        path = folder / f"data.{suffix}"
        opened = pa.ipc.new_stream if suffix == "arrows" else pa.ipc.new_file
        with opened(path, data.table.schema) as file:
            file.write_table(data.table, max_chunksize=2)
        return str(path)

    return write


def feather_file(data: DataSet, folder: Path) -> str:
    path = folder / "data.feather"
    feather.write_feather(data.table, str(path))
    return str(path)


def lines(data: DataSet, numbers: Sequence[int] | None = None) -> Iterator[list[Any]]:
    """Yield the names, then the texts of each row."""
    yield ["id", *data.texts]
    for number in range(data.table.num_rows) if numbers is None else numbers:
        yield [str(number), *(texts[number] for texts in data.texts.values())]


def quoted(data: DataSet, numbers: Sequence[int] | None = None) -> bytes:
    """Return CSV in which every field except nulls is quoted."""

    def cell(text: str | bytes | None) -> bytes:
        if text is None:
            return b""
        return b'"%b"' % (text.encode() if isinstance(text, str) else text).replace(b'"', b'""')

    return b"".join(b",".join(map(cell, line)) + b"\n" for line in lines(data, numbers))


def saved(path: Path, contents: str | bytes) -> str:
    """Write a file, text as UTF-8; return its path."""
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return str(path)


def csv_file(data: DataSet, folder: Path) -> str:
    return saved(folder / "data.csv", quoted(data))


def csv_of_python(data: DataSet, folder: Path) -> str:
    """Write CSV that has quotes only where they are needed."""
    path = folder / "data.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines(data))
    return str(path)


def csv_gzip(data: DataSet, folder: Path) -> str:
    return saved(folder / "data.csv.gz", gzip.compress(quoted(data)))


def csv_parts(data: DataSet, folder: Path) -> str:
    for number, part in enumerate(thirds(data)):
        saved(folder / f"part-{number}.csv", quoted(data, part))
    return str(folder / "part-*.csv")


def tsv_file(data: DataSet, folder: Path) -> str:
    """Write TSV in which quotes are text."""
    texts = ("\t".join(each or "" for each in line) + "\n" for line in lines(data))
    return saved(folder / "data.tsv", "".join(texts))


def documents(data: DataSet) -> Iterator[str]:
    """Yield a JSON document for each row."""

    def value(name: str, row: dict[str, Any]) -> Any:
        special = isinstance(row[name], ISO_TEXT) or row[name] in (float("inf"), float("-inf"))
        return data.texts[name][row["id"]] if special else row[name]

    for row in data.rows():
        given = {name: value(name, row) for name in row}
        yield json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def jsonl_file(data: DataSet, folder: Path) -> str:
    return saved(folder / "data.jsonl", "".join(each + "\n" for each in documents(data)))


def jsonl_parts(data: DataSet, folder: Path) -> str:
    found = list(documents(data))
    for number, part in enumerate(thirds(data)):
        saved(folder / f"part-{number}.jsonl", "".join(found[at] + "\n" for at in part))
    return str(folder / "part-*.jsonl")


def json_array(data: DataSet, folder: Path) -> str:
    return saved(folder / "data.json", "[" + ",\n".join(documents(data)) + "]")


def reading(write: Callable[[DataSet, Path], str], **options: Any) -> Callable[..., Any]:
    return lambda data, folder: fastresp.read(write(data, folder), **options)


def has_no_empty_text(data: DataSet) -> bool:
    """Return whether no text is empty: Python's csv module writes an empty text like a null."""
    return "" not in data.texts and all(
        isinstance(text, str | None) and text != ""
        for column in data.texts.values()
        for text in column
    )


def fits_tsv(data: DataSet) -> bool:
    return has_no_empty_text(data) and not any(
        set(text or "") & set("\t\r\n") for line in lines(data) for text in line
    )


def fits_json(data: DataSet) -> bool:
    """Return whether JSON Lines can represent the data: some rows, and no short floats."""
    short = {pa.float16(), pa.float32()} & {each.type for each in data.table.schema}
    return data.table.num_rows > 0 and not short


def has_few_rows(data: DataSet) -> bool:
    return 0 < data.table.num_rows < 20


ALL = "SELECT * FROM source"
SOURCES = {
    "rows": Source(rows, ["rows"], keyed=True),
    "generator": Source(lambda data, folder: iter(rows(data, folder)), ["rows"], keyed=True),
    "pyarrow": Source(lambda data, folder: data.table),
    "batches": Source(batches),
    "nanoarrow": Source(lambda data, folder: nanoarrow.ArrayStream(data.table), ["capsule"]),
    "arro3": Source(lambda data, folder: Arro3Table.from_arrow(data.table), ["capsule"]),
    "dataset": Source(lambda data, folder: pyarrow.dataset.dataset(data.table)),
    "polars": Source(lambda data, folder: pl.DataFrame(data.table), ["polars"]),
    "LazyFrame": Source(lambda data, folder: pl.DataFrame(data.table).lazy(), ["polars"]),
    "pandas": Source(pandas_arrow),
    "pandas, index": Source(lambda data, folder: pandas_arrow(data, folder).set_index("id")),
    "pandas, NumPy": Source(
        lambda data, folder: data.table.to_pandas(), ["numpy"], lambda data: not data.nested
    ),
    "DuckDB": Source(relation, ["duckdb", "relation"]),
    "Parquet": Source(parquet_file, ["parquet"]),
    "Parquet, parts": Source(parquet_parts, ["parquet"]),
    "Parquet, file object": Source(parquet_object, ["parquet"]),
    "Parquet, hive": Source(parquet_hive, ["parquet"], has_few_rows),
    "Parquet, hive, sql": Source(
        reading(relative_hive, sql=ALL), ["parquet", "duckdb"], has_few_rows
    ),
    "Parquet, sql": Source(reading(parquet_file, sql=ALL), ["parquet", "duckdb"]),
    "Parquet, sort_by": Source(reading(parquet_file, sort_by="id"), ["parquet", "sorted"]),
    "Arrow file": Source(arrow("arrow")),
    "Arrow stream": Source(arrow("arrows")),
    "Feather": Source(feather_file),
    "CSV": Source(csv_file),
    "CSV of Python": Source(csv_of_python, fits=has_no_empty_text),
    "CSV, gzip": Source(csv_gzip),
    "CSV, parts": Source(csv_parts),
    "CSV, sql": Source(reading(csv_file, sql=ALL), ["duckdb_names"]),
    "CSV, sort_by": Source(reading(csv_file, sort_by="id"), fits=lambda data: len(data.table) < 10),
    "TSV": Source(tsv_file, fits=fits_tsv),
    "TSV, sql": Source(reading(tsv_file, sql=ALL), ["duckdb_names"], fits_tsv),
    "JSON Lines": Source(jsonl_file, ["json"], fits_json, keyed=True),
    "JSON Lines, parts": Source(jsonl_parts, ["json"], fits_json, keyed=True),
    "JSON array": Source(json_array, ["json"], fits_json, keyed=True),
    "JSON Lines, sort_by": Source(reading(jsonl_file, sort_by="id"), ["json", "sorted"], fits_json),
}

# Returns rows, skipped commands and nulls left out, if the load reports them.
Load: TypeAlias = Callable[[Any, str, str, Path], tuple[int, int, int] | None]


def counts(report: Any) -> tuple[int, int, int]:
    return report.rows, report.skipped, report.nulls_skipped


def by_options(**options: Any) -> Load:
    return lambda data, template, url, folder: counts(
        fastresp.mass_insert(data, template, server=url, **options)
    )


def by_aio(data: Any, template: str, url: str, folder: Path) -> tuple[int, int, int]:
    return counts(asyncio.run(fastresp.aio.mass_insert(data, template, server=url)))


def by_loader(data: Any, template: str, url: str, folder: Path) -> tuple[int, int, int]:
    with fastresp.loader(template, url) as load:
        for row in data:
            load.write(row)
    return counts(load.report)


def by_dump(data: Any, template: str, url: str, folder: Path) -> None:
    path = folder / "commands.resp"
    fastresp.dump(data, template, path)
    fastresp.mass_insert(str(path), server=url)


def by_rdb(data: Any, template: str, url: str, folder: Path) -> None:
    """Start a server with an RDB file, and copy its keys."""
    with LocalServer() as server, Redis.from_url(url) as client:
        server.stop()
        fastresp.dump(data, template, server.folder / "dump.rdb", format="rdb")
        server.start()
        with Redis.from_url(server.url) as started:
            for key in started.scan_iter():
                client.restore(key, 0, started.dump(key))


def by_sink(data: Any, template: str, url: str, folder: Path) -> tuple[int, int, int]:
    return counts(Sink(url, template).load(data.to_batches(), 0))


def by_command_line(data: Any, template: str, url: str, folder: Path) -> tuple[int, int, int]:
    result = invoke("load", data, template, "--server", url, "--json")
    assert result.exit_code == 0, result.output
    return counts(SimpleNamespace(**json.loads(result.stdout)))


@dataclass(frozen=True)
class Method:
    """A function or a mode that loads, and the source with which it is tested."""

    source: Source
    load: Load


ROWS, COLUMNS = SOURCES["rows"], SOURCES["pyarrow"]
METHODS = {
    "aio, rows": Method(ROWS, by_aio),
    "aio, columns": Method(COLUMNS, by_aio),
    "aio, hive": Method(SOURCES["Parquet, hive"], by_aio),
    "loader": Method(ROWS, by_loader),
    "redis-cli": Method(COLUMNS, by_options(transport="redis-cli")),
    "connections": Method(COLUMNS, by_options(connections=3)),
    "merge, rows": Method(ROWS, by_options(mode="merge")),
    "merge, columns": Method(COLUMNS, by_options(mode="merge")),
    "serialize, rows": Method(ROWS, by_options(mode="serialize")),
    "serialize, columns": Method(COLUMNS, by_options(mode="serialize")),
    "checkpoint": Method(COLUMNS, by_options(checkpoint="job")),
    "dump, rows": Method(ROWS, by_dump),
    "dump, columns": Method(COLUMNS, by_dump),
    "RDB, rows": Method(ROWS, by_rdb),
    "RDB, columns": Method(COLUMNS, by_rdb),
    "Sink": Method(COLUMNS, by_sink),
    "command line, Parquet": Method(SOURCES["Parquet"], by_command_line),
    "command line, hive": Method(Source(relative_hive, ["parquet"], has_few_rows), by_command_line),
    "command line, CSV": Method(SOURCES["CSV"], by_command_line),
    "command line, JSON Lines": Method(SOURCES["JSON Lines"], by_command_line),
}
