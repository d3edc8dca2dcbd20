"""read(): queries as columns."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from tables import ROWS, csv_bytes, failure, rows_of, run, write

import fastresp


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "csv.gz", "parquet", "arrow"])
def test_a_query_over_a_source(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"it's.{suffix}")
    with fastresp.read(path, sql="SELECT name, id FROM source WHERE id > 97") as table:
        assert table.rows is None
        assert table.fraction() is None
        assert pa.table(table).to_pylist() == [
            {"name": "user 98", "id": 98},
            {"name": "user 99", "id": 99},
        ]
        assert table.place(1) == ("", 1)
        with pytest.raises(LookupError):
            table.place(2)


def test_a_query_over_what_duckdb_does_not_read(tmp_path: Path) -> None:
    sql = "SELECT count(*) AS n FROM source"
    assert rows_of(write(tmp_path / "users.csv.bz2"), sql=sql) == [{"n": 100}]
    assert rows_of(write(tmp_path / "users[1].csv"), sql=sql) == [{"n": 100}]
    assert rows_of(io.BytesIO(csv_bytes(ROWS)), sql="SELECT id FROM source LIMIT 1") == [
        {"id": "0"}
    ]
    twice = "FROM source a JOIN source b USING (id)"
    said = failure(io.BytesIO(csv_bytes(ROWS)), sql=f"SELECT count(*) AS n {twice}")
    assert "begin it with WITH s AS MATERIALIZED (FROM source)" in said
    once = f"WITH s AS MATERIALIZED (FROM source) SELECT count(*) AS n {twice}"
    once = once.replace("source a", "s a").replace("source b", "s b")
    assert rows_of(io.BytesIO(csv_bytes(ROWS)), sql=once) == [{"n": 100}]
    assert "row 0: 1 fields" in failure(io.BytesIO(b"a,b\n1\n"), sql="FROM source")


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
        ("SELECT 1; SELECT 2", "a query is one SELECT, and 'SELECT 1; SELECT 2' is not"),
        ("WITH x AS (SELECT 1) INSERT INTO y FROM x", "a query is one SELECT|failed"),
        ("FROM 'none.parquet'", "the query failed: IO Error: No files found"),
        (
            "SELECT error('boom')::INT + i FROM range(9) t(i)",
            "the query failed: .*boom",
        ),
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
    assert "is not; run others" in failure(path, sql=f"COPY source TO '{target}'")
    assert not target.exists()
