"""read(): queries as columns."""

from __future__ import annotations

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
    assert "row 0 has 1 field for 2 columns" in failure(io.BytesIO(b"a,b\n1\n"), sql="FROM source")


def json_file(path: Path, *rows: str) -> Path:
    text = ",\n".join(rows) if path.suffix == ".json" else "\n".join(rows)
    path.write_text(f"[{text}]" if path.suffix == ".json" else text)
    return path


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
    assert "row 0 (line 1): Column(/id) has integers of up to 38 digits" in said
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
    assert said == "the query failed: the source has no rows, so no columns; leave out the query"


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
    assert "must be one SELECT, not" in failure(path, sql=f"COPY source TO '{target}'")
    assert not target.exists()


@pytest.mark.parametrize(("name", "delimiter"), [("x.csv", ","), ("x.tsv", "\t"), ("x.csv", ";")])
def test_unclosed_quote_fails_a_query(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    options = {"delimiter": delimiter} if delimiter == ";" else {}
    path.write_text('id,name\n1,Ann\n2,"Bo\n3,Cy\n'.replace(",", delimiter))
    said = failure(path, sql="FROM source", **options)
    assert said.endswith("look for an unclosed quote, or a row with too many or too few fields")
    path.write_text('id,name\n1,"A ""x"""\n2,"B\no"\n'.replace(",", delimiter))
    assert rows_of(path, sql="SELECT name FROM source", **options) == [
        {"name": 'A "x"'}, {"name": "B\no"}
    ]  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
@pytest.mark.parametrize("text", ['id,name\n1,Ann\n2,"Bo\n3,Cy\n', 'id,name\n1,Ann\n2,"Bo\n'])
def test_unclosed_quote_with_a_detected_delimiter(
    tmp_path: Path, delimiter: str, text: str
) -> None:
    (tmp_path / "x.csv").write_text(text.replace(",", delimiter))
    said = failure(tmp_path / "x.csv", sql="FROM source")
    assert said.endswith("look for an unclosed quote, or a row with too many or too few fields")


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_unclosed_quote_in_the_first_line_of_a_query(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "x.csv").write_text('id,"name\n1,Ann\n'.replace(",", delimiter))
    said = failure(tmp_path / "x.csv", sql="FROM source")
    assert "the quote opened in line 1, with the column names, is never closed" in said


def test_single_columns_in_a_query(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('id\n"a,\nn"\nb c\n')
    assert rows_of(tmp_path / "x.csv", sql="FROM source") == [{"id": "a,\nn"}, {"id": "b c"}]
    (tmp_path / "x.csv").write_text('id\na\n"b\nc\n')
    assert "an unclosed quote" in failure(tmp_path / "x.csv", sql="FROM source")


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
    """Only if the query uses them."""
    path = tmp_path / "day=1" / "x.parquet"
    path.parent.mkdir()
    parquet.write_table(pa.table({"n": [1], "v": column}), path)
    assert rows_of(path, sql="SELECT n, day FROM source WHERE n = 1") == [{"n": 1, "day": "1"}]
    said = failure(path, sql="FROM source")
    assert said.startswith("the query failed: Invalid Input Error: column 'v' is ")
    assert words in said


def test_columns_of_the_same_name_in_a_query(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    assert rows_of(tmp_path / "x.csv", sql="FROM source") == [{"a": 1, "a_1": 2}]


def test_query_detects_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id;name\n1;Ann\n")
    assert rows_of(tmp_path / "x.csv", sql="FROM source") == [{"id": 1, "name": "Ann"}]
