"""The identity of a source does not depend on its name, its repr, or addresses of objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastresp
from fastresp.encode.template import as_template
from fastresp.load.checkpoint.identity import identity
from fastresp.server.options import Options

COLUMNS = {f"column_{number}": [*range(300)] for number in range(30)}
KINDS: list[Any] = [pd.DataFrame, pl.DataFrame, pa.table]
WIDE = "HSET key:{column_0} {**}"


class Thing:
    """An object whose repr contains its address."""

    def __init__(self, number: int) -> None:
        self.number = number


def source_of(data: Any, template: str = WIDE, **options: Any) -> dict[str, str]:
    return identity(data, as_template(template), Options(**options))


def test_columns_named_like_attributes() -> None:
    columns = {"slice": [1, 2], "iloc": [3, 4], "num_rows": [5, 6]}
    template = "SET {slice} {iloc}{num_rows}"
    found = {source_of(kind(columns), template)["source"] for kind in KINDS}
    assert len(found) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_width_of_the_terminal_is_ignored(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = source_of(kind(COLUMNS))
    monkeypatch.setenv("COLUMNS", "400")
    with pd.option_context("display.width", 400, "display.max_columns", 40), pl.Config(tbl_cols=40):
        assert source_of(kind(COLUMNS)) == narrow
    for change in (0, 150, 299):  # the middle is not compared
        other = COLUMNS | {"column_9": [*COLUMNS["column_9"]]}
        other["column_9"][change] = -1
        assert (source_of(kind(other)) == narrow) == (change == 150)
    assert source_of(kind(COLUMNS | {"more": [1] * 300})) != narrow


def test_addresses_of_objects_are_ignored() -> None:
    def default(value: Any) -> Any:
        return value.number

    def rows(first: int) -> list[Any]:
        return [(first + number, Thing(number)) for number in range(300)]

    found = source_of(rows(0), "SET {0} {1}", default=default)
    assert source_of(rows(0), "SET {0} {1}", default=default) == found
    assert source_of(rows(1), "SET {0} {1}", default=default) != found


def test_rows_that_cannot_be_encoded() -> None:
    """Earlier rows are loaded; the error is raised at their turn."""
    rows: list[Any] = [(0, 1), (1, None)]
    assert source_of(rows, "SET {0} {1}") == source_of([*rows], "SET {0} {1}")
    assert source_of(rows, "SET {0} {1}") != source_of(rows[::-1], "SET {0} {1}")


def test_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("column_0\n1\n")
    found = source_of(fastresp.read(path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to(path)
    assert source_of(fastresp.read("rows.csv")) == found
    assert source_of(fastresp.read("link.csv")) == found
    os.utime(path, (1, 1))
    assert source_of(fastresp.read(path))["source"] != found["source"]


def test_error_names_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("column_0\n1\n")
    found = source_of(fastresp.read(path))
    limited = source_of(fastresp.read(path, limit=1))
    assert {name for name in found if found[name] != limited[name]} == {"limit"}
    queried = source_of(fastresp.read(path, sql="SELECT * FROM source"))
    assert {name for name in found if found[name] != queried[name]} == {"query"}


@pytest.mark.parametrize(
    ("sql", "other"),
    [
        ("SELECT * FROM source JOIN 'OTHER' USING (column_0)", "other.csv"),
        ("SELECT * FROM source WHERE column_0 IN (FROM read_csv('OTHER'))", r"read_csv\(\)"),
        ("WITH t AS (FROM source) SELECT * FROM t, 'OTHER'", "other.csv"),
        ("FROM query('FROM range(3)'), source", r"query\(\)"),
        ("SELECT column_0, random() AS r FROM source", r"random\(\)"),
        ("FROM source ORDER BY gen_random_uuid()", r"gen_random_uuid\(\)"),
        ("SELECT * FROM source USING SAMPLE 50%", "a sample"),
        ("WITH t AS (FROM source TABLESAMPLE 3 ROWS) FROM t", "a sample"),
        ("PIVOT 'OTHER' ON column_0 USING count(*)", "what PIVOT names"),
    ],
)
def test_queries_over_other_files(tmp_path: Path, sql: str, other: str) -> None:
    """They may change without notice."""
    for name in ("rows.csv", "other.csv"):
        (tmp_path / name).write_text("column_0\n1\n")
    sql = sql.replace("OTHER", str(tmp_path / "other.csv"))
    with pytest.raises(fastresp.SourceError, match=f"whether .*{other}, which this query reads"):
        source_of(fastresp.read(tmp_path / "rows.csv", sql=sql))


def test_queries_over_the_source(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("column_0\n1\n")
    sql = "WITH t AS (FROM source) FROM t JOIN source USING (column_0), range(2)"
    assert source_of(fastresp.read(path, sql=sql))["query"] == sql
