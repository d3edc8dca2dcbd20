"""read(): queries as columns."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tables import ROWS, csv_bytes, failure, rows_of, run, write

import fastresp


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "csv.gz", "parquet", "arrow"])
def test_a_query_over_a_source(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"it's.{suffix}")
    with fastresp.read(path, sql="SELECT name, id FROM source WHERE id::INT > 97") as table:
        assert table.rows is None
        assert table.fraction() is None
        text = suffix.startswith(("csv", "tsv"))
        assert pa.table(table).to_pylist() == [
            {"name": "user 98", "id": "98" if text else 98},
            {"name": "user 99", "id": "99" if text else 99},
        ]
        assert table.place(1) == ("", 1)
        with pytest.raises(LookupError):
            table.place(2)


def test_query_over_formats_that_duckdb_does_not_read(tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM source"
    assert rows_of(write(tmp_path / "users.csv.bz2"), sql=sql) == [{"n": 100}]
    assert rows_of(write(tmp_path / "users[1].csv"), sql=sql) == [{"n": 100}]
    assert rows_of(io.BytesIO(csv_bytes(ROWS)), sql="SELECT id FROM source LIMIT 1") == [
        {"id": "0"}
    ]
    twice = "FROM source a JOIN source b USING (id)"
    said = failure(io.BytesIO(csv_bytes(ROWS)), sql=f"SELECT count(*) AS n {twice}")
    assert "start it with WITH s AS MATERIALIZED (FROM source)" in said
    once = f"WITH s AS MATERIALIZED (FROM source) SELECT count(*) AS n {twice}"
    once = once.replace("source a", "s a").replace("source b", "s b")
    assert rows_of(io.BytesIO(csv_bytes(ROWS)), sql=once) == [{"n": 100}]
    assert "row 0, line 2 has 1 field for 2 columns" in failure(
        io.BytesIO(b"a,b\n1\n"), sql="FROM source"
    )


def json_file(path: Path, *rows: str) -> Path:
    text = ",\n".join(rows) if path.suffix == ".json" else "\n".join(rows)
    path.write_text(f"[{text}]" if path.suffix == ".json" else text)
    return path


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
@pytest.mark.parametrize("form", [Path, Path.open, str, lambda path: [path]])
def test_no_query_over_json_changes_numbers(tmp_path: Path, name: str, form: Any) -> None:
    """Lines and arrays, from a path, a list of paths, and a file object."""

    def source(*rows: str) -> Any:
        path = json_file(tmp_path / name, *rows)
        return io.BytesIO(path.read_bytes()) if form is Path.open else form(path)

    ids = [9223372036854775808, 9223372036854775809, 2**126, 10**38 - 1]
    rows = [f'{{"id": {number}}}' for number in ids]
    found = rows_of(source(*rows), sql="SELECT id FROM source")
    assert [int(row["id"]) for row in found] == ids
    sent = io.BytesIO()
    fastresp.dump(fastresp.read(source(*rows), sql="FROM source"), "SET {id} x", sent)
    assert all(b"%d\r\n" % number in sent.getvalue() for number in ids)
    said = failure(source('{"v": 9007199254740993}', '{"v": 1.5}'), sql="FROM source")
    assert "a float can't represent 9007199254740993; write it as a string" in said
    said = failure(source(f'{{"id": {10**38}}}'), sql="FROM source")
    assert "row 0, line 1: Column(/id) has integers of up to 38 digits" in said
    assert "too large" in failure(source('{"v": 1.5}', '{"v": 1e400}'), sql="FROM source")
    assert rows_of(source('{"v": 9007199254740993}', '{"v": null}'), sql="FROM source") == [
        {"v": 9007199254740993}, {"v": None}
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.bz2", "x.csv.bz2"])
def test_a_query_that_uses_a_source_of_paths_twice(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    query = "SELECT count(*) AS n FROM source a JOIN source b USING (id)"
    assert rows_of(path, sql=query) == [{"n": 100}]
    table = fastresp.read(path, sql=query, bad_rows="skip")
    assert [pa.table(table).to_pylist() for _ in range(2)] == [[{"n": 100}]] * 2
    assert "WITH s AS MATERIALIZED" in failure(path, sql=query, bad_rows=tmp_path / "bad")
    once = "WITH s AS MATERIALIZED (FROM source) SELECT count(*) AS n FROM s JOIN s b USING (id)"
    assert rows_of(path, sql=once, bad_rows=tmp_path / "bad") == [{"n": 100}]


def test_bad_rows_of_a_query_are_counted_once(tmp_path: Path) -> None:
    path = json_file(tmp_path / "x.jsonl", '{"a": 1}', "{", '{"a": 2}')
    table = fastresp.read(path, sql="FROM source JOIN source b USING (a)", bad_rows="skip")
    assert pa.table(table).num_rows == 2
    assert table.bad_rows == 1


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_query_over_json_without_rows(text: str) -> None:
    said = failure(io.BytesIO(text.encode()), sql="FROM source", format="jsonl")
    assert (
        said == "the query failed: the file object has no rows, so no columns; leave out the query"
    )


@pytest.mark.parametrize(
    "query", ["SELECT 1 AS a", " with x AS (SELECT 1 AS a) FROM x", "VALUES(1)"]
)
def test_text_that_is_a_query(query: str) -> None:
    assert [list(row.values()) for row in rows_of(query)] == [[1]]


def test_a_path_that_looks_like_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "from here.csv")
    assert len(rows_of("from here.csv")) == 100
    with pytest.raises(FileNotFoundError):
        fastresp.read("from.csv")


def test_times_of_queries_are_in_utc(tmp_path: Path) -> None:
    code = (
        "import fastresp, pyarrow, sys; sys.modules['pytz'] = None\n"
        "query = \"SELECT TIMESTAMPTZ '2020-06-01 12:00:00+02' AS t\"\n"
        "table = pyarrow.table(fastresp.read(query))\n"
        "print(table.cast(pyarrow.schema([('t', pyarrow.string())])).to_pylist())"
    )
    said = run(code, env={**os.environ, "TZ": "America/New_York"})
    assert said.stdout.startswith("[{'t': '2020-06-01 10:00:00")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nothing", "the query failed: Binder Error: .*nothing"),
        ("SELECT 1 FROM", "the query failed: Parser Error"),
        ("SELECT 1; SELECT 2", "a query must be one SELECT, not 'SELECT 1; SELECT 2'"),
        ("WITH x AS (SELECT 1) INSERT INTO y FROM x", "a query must be one SELECT|failed"),
        ("FROM 'none.parquet'", "the query failed: IO Error: No files found"),
        ("SELECT error('boom')::INT + i FROM range(9) t(i)", "the query failed: .*boom"),
        ("FROM ROWS", "the query failed: Catalog Error"),
    ],
)
def test_faults_of_queries(query: str, words: str) -> None:
    assert re.search(words, failure(query))


def test_queries_only_read(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    with pytest.raises(FileNotFoundError):
        fastresp.read(f"COPY (SELECT 1) TO '{target}'")
    path = write(tmp_path / "users.csv")
    assert "must be one SELECT, not" in failure(path, sql=f"COPY source TO '{target}'")
    assert not target.exists()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "text",
    [
        "order,total\n#1001,9.50\n1002,007\n,1e5\n",
        "price\n5\n#REF!\ntrue\n",
        'id,n\n1,""\n2,NULL\n3,\n4,nan\n5,2020-01-01T00:00\n',
        "a,b\n" + "1,x\n" * 3000 + '" 2 ","y\n,"\n',
        "1,2\n3,4\n",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_queries_over_csv_have_the_rows_and_values_of_the_file(
    tmp_path: Path, suffix: str, text: str
) -> None:
    """This holds for comments, preambles, headers, nulls and types of DuckDB's own reader."""
    path = tmp_path / f"x{suffix}"
    data = (text.replace(",", "\t") if suffix == ".tsv" else text).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    rows = rows_of(path)
    lines = csv.reader(io.StringIO(text)) if suffix != ".tsv" else text.splitlines()
    assert len(rows) == len(list(lines)) - 1
    assert rows_of(path, sql="FROM source") == rows
    assert rows_of(f"SELECT * FROM '{path}'") == rows
    assert rows_of(f"WITH s AS (FROM '{tmp_path}/*{suffix}') SELECT * FROM s AS s2") == rows


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '{}' PIVOT (count(*) FOR code IN ('#1'))",
        "FROM (PIVOT '{}' ON code IN ('#1') USING count(*))",
        "WITH s AS (SELECT n, (SELECT count(*) FROM '{}' WHERE code = '#1') AS a FROM '{}') FROM s",
    ],
)
def test_csv_anywhere_in_a_query_is_read_as_in_a_load(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text("code,n\n#1,01\n#1,01\n")
    assert next(row["n"] for row in rows_of(sql.replace("{}", str(path)))) == "01"


@pytest.mark.parametrize("sql", ["FROM source", "FROM 'x.csv'"])
@pytest.mark.parametrize(
    "text", ["a,b\n1,x\n2,y,z\n", 'a,b\n1,"x\n', "a;b\n1;2\n", "a,a\n1,2\n", ""]
)
def test_queries_over_csv_fail_as_a_load_of_the_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(text)
    said = failure(sql) if "x.csv" in sql else failure("x.csv", sql=sql)
    assert said == failure("x.csv")


def test_numbers_of_csv_are_text_in_a_query(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,price\n9,1.10\n10,2.50\n")
    query = "SELECT sum(price{}) AS n FROM source"
    said = failure(tmp_path / "x.csv", sql=query.format(""))
    assert said.endswith("; the columns of CSV are text: cast them, such as price::DOUBLE")
    assert rows_of(tmp_path / "x.csv", sql=query.format("::DOUBLE")) == [{"n": 3.6}]


def test_csv_with_different_columns_is_combined_by_a_query(tmp_path: Path) -> None:
    for n, text in enumerate(("id,a\n01,x\n", "b,id\ny,2\n", "id\n3\n")):
        (tmp_path / f"{n}.csv").write_text(text)
    assert rows_of(tmp_path / "?.csv", sql="FROM source") == [
        {"id": "01", "a": "x", "b": None},
        {"id": "2", "a": None, "b": "y"},
        {"id": "3", "a": None, "b": None},
    ]


def test_names_that_a_query_changes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,ID\n1,2\n")
    parquet.write_table(pa.table({"id": [1], "ID": [2]}), tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        said = failure(tmp_path / name, sql="FROM source")
        assert "a query can't tell column 'ID' from column 'id'; rename it, or leave" in said
    source = io.BytesIO(b'id,""\n1,2\n')
    said = failure(source, sql="FROM source", format="csv")
    assert "a query can't use a column whose name is empty" in said
    (tmp_path / "X.csv").write_text("id\n1\n")
    said = failure(f"FROM '{tmp_path}/X.csv' JOIN '{tmp_path}/x.csv' USING (id)")
    assert "a query can't tell" in said


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([10**50], pa.decimal256(60, 3)), "rounds to 64-bit floats"),
        (pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.duration("us"))]))), "plain numbers"),
    ],
    ids=["decimal", "duration"],
)
def test_parquet_columns_that_duckdb_would_change(
    tmp_path: Path, column: pa.Array, words: str
) -> None:
    """They are refused only if the query uses them."""
    path = tmp_path / "day=1" / "x.parquet"
    path.parent.mkdir()
    parquet.write_table(pa.table({"n": [1], "v": column}), path)
    assert rows_of(path, sql="SELECT n, day FROM source WHERE n = 1") == [{"n": 1, "day": "1"}]
    said = failure(path, sql="FROM source")
    assert said.startswith("the query failed: Invalid Input Error: column 'v' is ")
    assert words in said


def test_json_named_in_a_query_keeps_its_numbers(tmp_path: Path) -> None:
    numbers = [9223372036854775808, 9223372036854775809]
    path = json_file(tmp_path / "x.jsonl", *[f'{{"id": {number}}}' for number in numbers])
    assert [int(row["id"]) for row in rows_of(f"SELECT id FROM '{path}'")] == numbers


@pytest.mark.few(5)
@pytest.mark.parametrize("sort_by", [(), "id"])
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT id, T FROM 'berlin.parquet'", "2024-07-01T02:00:00+02:00"),
        ("SELECT id, max(t) AS t FROM 'tokyo.parquet' GROUP BY id", "2024-07-01T09:00:00+09:00"),
        ("SELECT id, t AS moment FROM 'tokyo.parquet'", "2024-07-01T00:00:00+00:00"),
        ("SELECT id, a.t FROM 'berlin.parquet' a JOIN 'tokyo.parquet' USING (id)",
         "2024-07-01T00:00:00+00:00"),
        ("SELECT id, t::TEXT AS t FROM 'berlin.parquet'", "2024-07-01 00:00:00+00"),
    ],
)  # fmt: skip
def test_time_zones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, text: str, sort_by: str
) -> None:
    """A result keeps the zone of its source column, by name; UTC if sources disagree."""
    monkeypatch.chdir(tmp_path)
    for name, zone in (("berlin", "Europe/Berlin"), ("tokyo", "Asia/Tokyo")):
        times = pa.array([1_719_792_000_000_000], pa.timestamp("us", zone))
        parquet.write_table(pa.table({"id": [1], "t": times}), f"{name}.parquet")
    made = io.BytesIO()
    fastresp.dump(fastresp.read(query, sort_by=sort_by), "RPUSH {id} {**-id}", made)
    assert made.getvalue().endswith(f"\r\n{text}\r\n".encode())
