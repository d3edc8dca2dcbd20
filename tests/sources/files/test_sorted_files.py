"""read(sort_by=): the rows of files and queries, sorted."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import redis
from peak import PEAK
from pyarrow import parquet
from tables import as_text, csv_bytes, failure, rows_of, write, write_ipc

import fastresp
from fastresp.server.local_server import LocalServer

MIXED = [{"id": (number * 37) % 10, "n": number} for number in range(100)]
SORTED = sorted(MIXED, key=lambda row: row["id"])  # stable: keeps the order of equal ids


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "jsonl", "parquet", "arrow", "arrows"])
def test_sorting_is_stable(tmp_path: Path, suffix: str) -> None:
    table = fastresp.read(write(tmp_path / f"x.{suffix}", MIXED), sort_by="id")
    expected = as_text(SORTED) if suffix.startswith(("csv", "tsv")) else SORTED
    assert [pa.table(table).to_pylist() for _ in range(2)] == [expected] * 2
    assert table.rows == (100 if suffix in ("parquet", "arrow") else None)
    assert table.place(1) == ("", 1)


@pytest.mark.parametrize("sort_by", ["id", ["id"], ("id",)])
def test_queries(tmp_path: Path, sort_by: Any) -> None:
    path = write(tmp_path / "x.csv", MIXED)
    assert rows_of(f"FROM '{path}'", sort_by=sort_by) == as_text(SORTED)
    for query in ("FROM source", "SELECT * FROM source;", "WITH s AS (FROM source) FROM s -- end"):
        assert rows_of(path, sql=query, sort_by=sort_by) == as_text(SORTED)
        assert rows_of(io.BytesIO(csv_bytes(MIXED)), sql=query, sort_by=sort_by) == as_text(SORTED)


def test_rows_with_equal_values_keep_the_order_of_the_query(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", MIXED)
    expected = sorted(MIXED, key=lambda row: (row["id"], -row["n"]))
    assert rows_of(path, sql="FROM source ORDER BY n DESC", sort_by="id") == expected


def test_column_names_that_differ_only_in_case() -> None:
    rows = rows_of("SELECT i AS ID, -i AS id FROM range(3) t(i)", sort_by="id")
    assert rows == [{"ID": at, "id": -at} for at in (2, 1, 0)]


def test_several_columns_and_nulls(tmp_path: Path) -> None:
    values = [(2, "b"), (None, "a"), (1, "b"), (2, None), (1, "a"), (None, None), (-1, "")]
    table = pa.Table.from_pylist([{"x": x, "y": y} for x, y in values])
    parquet.write_table(table, tmp_path / "x.parquet")
    rows = rows_of(tmp_path / "x.parquet", sort_by=["x", "y"])
    assert [tuple(row.values()) for row in rows] == [
        (-1, ""), (1, "a"), (1, "b"), (2, "b"), (2, None), (None, "a"), (None, None)
    ]  # fmt: skip
    rows = rows_of(tmp_path / "x.parquet", sort_by=["y"], limit=3)
    assert [row["y"] for row in rows] == ["", "a", "a"]


NAMES = ["a.b", 'it"s', "it's", "ID", "id", "c0", "place", "", "größe", "select", "{x}"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_names_of_columns(tmp_path: Path, name: str) -> None:
    columns = {each: [at, 9, 9] for at, each in enumerate(NAMES)} | {name: [2, 0, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    table = pa.table(fastresp.read(tmp_path / "x.parquet", sort_by=name))
    assert table.column_names == NAMES
    assert table[name].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"sql": "FROM source"}])
def test_columns_that_do_not_exist(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "x.csv", MIXED)
    said = failure(path, sort_by=["id", "key"], **options)
    assert said == "can't sort by 'key': no column has this name; the columns are id, n"
    assert "the columns are id, n" in failure(path, sort_by="ID", **options)


@pytest.mark.parametrize("options", [{"sort_by": "none"}, {"sql": "SELECT none FROM source"}])
def test_an_error_closes_the_file(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "x.jsonl", MIXED)
    table = fastresp.read(path, **options)
    with pytest.raises(fastresp.SourceError):
        pa.table(table)
    assert path not in {os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()}


def test_duplicate_column_names(tmp_path: Path) -> None:
    table = pa.Table.from_arrays(
        [pa.array([2, 1]), pa.array([1, 2]), pa.array([3, 4])], list("aab")
    )
    write_ipc(tmp_path / "x.arrow", table)
    said = failure(tmp_path / "x.arrow", sort_by="a")
    assert said == "can't sort by 'a': two columns have this name; the columns are a, a, b"
    found = pa.table(fastresp.read(tmp_path / "x.arrow", sort_by="b"))
    assert found.column_names == ["a", "a", "b"]


def test_text_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b'id,v\n10,1.10\n9,\n010,""\n,true\n\xff,\xe4\n9,"a\nb"\n')
    with fastresp.read(tmp_path / "x.csv", sort_by="id") as table:
        found = pa.table(table)
    rows = zip(*(column.cast(pa.binary()).to_pylist() for column in found.columns), strict=True)
    assert [*rows] == [
        (b"010", b""), (b"10", b"1.10"), (b"9", None), (b"9", b"a\nb"), (b"\xff", b"\xe4"),
        (None, b"true"),
    ]  # fmt: skip


def test_options_for_text_files(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("2;é\n-;a\n1;b\n3;c;d\n", encoding="latin-1")
    table = fastresp.read(
        tmp_path / "x.csv",
        delimiter=";",
        columns=["id", "v"],
        encoding="latin-1",
        null_values=["-"],
        bad_rows="skip",
        sort_by="id",
    )
    assert pa.table(table).to_pylist() == [
        {"id": "1", "v": "b"}, {"id": "2", "v": "é"}, {"id": None, "v": "a"}
    ]  # fmt: skip
    assert table.bad_rows == 1
    lines = io.BytesIO(b"b\na\n\xff")
    assert rows_of(lines, format="lines", sort_by="line") == [
        {"line": b"a"}, {"line": b"b"}, {"line": b"\xff"}
    ]  # fmt: skip


def sent(source: Any, template: str, **options: Any) -> bytes:
    file = io.BytesIO()
    fastresp.dump(fastresp.read(source, **options), template, file)
    return file.getvalue()


def test_json_numbers_keep_their_text_and_sort_as_numbers() -> None:
    rows = [
        '{"id": 10, "v": 1.10, "w": [0.5, 1]}', '{"id": 9.50, "v": 1e2, "w": [1, 2]}',
        '{"id":  123456789012345678901, "v": 0.30, "w": [1, 2]}',
    ]  # fmt: skip
    rows.insert(1, rows[0].replace("10,", "1e1,"))
    order = [rows[2], rows[0], rows[1], rows[3]]
    for template in (
        "SET {id} {v}",
        "HSET {id} {**-w}",
        "SET x {*!json}",
        "SET x {v}",
        "SET {id} {w!f32}",
    ):
        said = sent(io.BytesIO("\n".join(rows).encode()), template, format="jsonl", sort_by="id")
        assert said == sent(io.BytesIO("\n".join(order).encode()), template, format="jsonl")


def test_json_without_rows() -> None:
    table = fastresp.read(io.BytesIO(b"[]"), format="jsonl", sort_by="id")
    assert fastresp.dump(table, "SET {id} x", io.BytesIO()) == 0


def test_several_files(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / "1.csv", MIXED[:50]),
        write(tmp_path / "2.csv", [{"n": row["n"], "id": row["id"]} for row in MIXED[50:]]),
    ]
    assert rows_of(parts, sort_by="id") == as_text(SORTED)
    assert rows_of(str(tmp_path / "?.csv"), sort_by="id") == as_text(SORTED)
    (tmp_path / "2.csv").write_text("id,m\n1,2\n")
    assert "2.csv has the columns id, m" in failure(parts, sort_by="id")


TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "times in ns": (pa.timestamp("ns", "Europe/Oslo"), lambda at: at * 1_001),
    "times of the day": (pa.time64("ns"), lambda at: at * 1_001),
    "seconds": (pa.time32("s"), lambda at: at),
    "durations": (pa.duration("ns"), lambda at: np.timedelta64(at * 1_001, "ns")),
    "dates": (pa.date64(), lambda at: at * 86_400_000),
    "decimals": (pa.decimal64(12, 2), lambda at: Decimal(at) / 100),
    "long text": (pa.large_string(), lambda at: f"{at:02}" * 20),
    "text views": (pa.string_view(), lambda at: f"{at:02}" * 20),
    "bytes": (pa.binary(2), lambda at: b"%02d" % at),
    "categories": (pa.dictionary(pa.int8(), pa.string()), lambda at: f"{at:02}"),
    "lists": (pa.large_list(pa.string()), lambda at: [f"{at:02}", None]),
    "vectors": (pa.list_(pa.float32(), 2), lambda at: [at, 0.5]),
    "structs": (
        pa.struct([("a", pa.int8()), ("b", pa.timestamp("ns", "UTC"))]),
        lambda at: {"a": at, "b": at * 1_001},
    ),
    "maps": (pa.map_(pa.string(), pa.int32()), lambda at: [(f"{at:02}", at)]),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", TYPES)
def test_no_type_changes_a_value(tmp_path: Path, name: str) -> None:
    kind, value = TYPES[name]
    order = [3, 10, 0, 7]
    column = pa.array([None if at == 7 else value(at) for at in order], kind)
    table = pa.table({"x": column, "n": order})
    write_ipc(tmp_path / "x.arrow", table)
    plain = (
        table.cast(pa.schema([("x", pa.string()), ("n", pa.int64())]))
        if pa.types.is_dictionary(kind)
        else table
    )
    for by, places in (("n", [2, 0, 3, 1]), ("x", [2, 0, 1, 3])):
        found = pa.table(fastresp.read(tmp_path / "x.arrow", sort_by=by))
        assert found.equals(pa.concat_tables([plain.slice(at, 1) for at in places]))


def test_types_that_duckdb_lacks(tmp_path: Path) -> None:
    table = pa.table({"n": [1], "x": pa.array([[1.5]], pa.list_(pa.float16()))})
    write_ipc(tmp_path / "x.arrow", table)
    said = failure(tmp_path / "x.arrow", sort_by="n")
    assert said.startswith("can't sort rows with column 'x' of type list<item: halffloat>; ")


def test_maps_that_duckdb_lacks(tmp_path: Path) -> None:
    column = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8()))
    table = pa.table({"n": [1], "x": column})
    write_ipc(tmp_path / "x.arrow", table)
    assert "sorting the rows failed: Invalid Input Error: Arrow map contains duplicate key" in (
        failure(tmp_path / "x.arrow", sort_by="n")
    )


def test_faults_name_their_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,v\n2,a\n1,b,c\n")
    assert "row 1, line 3 has 3 fields for 2 columns" in failure(tmp_path / "x.csv", sort_by="id")


def test_options_that_conflict(tmp_path: Path) -> None:
    (tmp_path / "x.resp").write_bytes(b"")
    with pytest.raises(ValueError, match="sort_by= is for columns, but this file contains"):
        fastresp.read(str(tmp_path / "x.resp"), sort_by="id")


def test_serialize_needs_adjacent_rows_of_a_key(
    tmp_path: Path, server: LocalServer, client: redis.Redis
) -> None:
    path = write(tmp_path / "x.csv", MIXED)
    options: dict[str, Any] = {"server": server.url, "mode": "serialize"}
    with pytest.raises(fastresp.EncodeError, match=r"by key with read\(\) and sort_by\n"):
        fastresp.mass_insert(fastresp.read(path), "RPUSH list:{id} {n}", **options)
    client.flushall()
    table = fastresp.read(path, sort_by="id")
    assert fastresp.mass_insert(table, "RPUSH list:{id} {n}", **options).commands == 100
    assert client.dbsize() == 10
    expected = [b"%d" % row["n"] for row in MIXED if row["id"] == 7]
    assert client.lrange("list:7", 0, -1) == expected


@pytest.mark.parametrize("options", [{"sort_by": "id"}, {"sql": "FROM source ORDER BY id"}])
def test_errors_of_sorted_files_name_no_file(
    tmp_path: Path, server: LocalServer, client: redis.Redis, options: dict[str, Any]
) -> None:
    client.set("0", "text")
    parts = [write(tmp_path / f"{at}.csv", MIXED[at * 50 :][:50]) for at in range(2)]
    table = fastresp.read(parts, **options)
    report = fastresp.mass_insert(
        table, "RPUSH {id} {n}", server=server.url, on_error="collect", transport="socket"
    )
    assert [(error.row, error.file) for error in report.errors] == [(at, None) for at in range(10)]
    Path(parts[1]).write_text("id,n\n1,\n")
    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.mass_insert(fastresp.read(parts, **options), "SET {n} x", server=server.url)
    assert not any("of " in note for note in getattr(caught.value, "__notes__", []))


MEMORY_CODE = (
    PEAK
    + """
import sys
import duckdb, pyarrow.parquet, fastresp
from fastresp import *  # its modules are not what is measured
before = peak()
rows = 0
for batch in pyarrow.RecordBatchReader.from_stream(fastresp.read(sys.argv[1], sort_by="key")):
    assert batch["key"].equals(pyarrow.array(range(rows, rows + len(batch))))
    rows += len(batch)
print(rows, before, peak())
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "width", "max_mib"), [(4_000_000, 120, 320), (900_000, 1_500, 900)]
)
def test_memory_is_bounded(tmp_path: Path, rows: int, width: int, max_mib: int) -> None:
    """The rows have 540 MB and 1,360 MB in memory.

    DuckDB may use 128 MB, and 353 MB for long rows, and needs up to twice as much. 300,000 long
    rows need as much as 900,000.
    """
    path = tmp_path / "large.parquet"
    keys = np.random.default_rng(1).permutation(rows)
    schema = pa.schema({"key": pa.int64(), "text": pa.string()})
    with parquet.ParquetWriter(path, schema) as file:
        for start in range(0, rows, 50_000):
            part = pa.array(keys[start : start + 50_000])
            text = pc.utf8_lpad(part.cast(pa.string()), width, "0")
            file.write_table(pa.table([part, text], schema=schema))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CODE, path],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    found, before, peak = map(int, done.stdout.split())
    assert found == rows
    assert (peak - before) / 1024 < max_mib
    assert [*tmp_path.iterdir()] == [path]
