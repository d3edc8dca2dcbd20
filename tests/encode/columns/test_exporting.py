"""Values that each library's export loses: kept, or refused by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columns import Stream, dumped

import fastresp
from fastresp import SourceError, TemplateError, pack, pack_many

NAMES = {"name": ["Ann", "Bo"]}
INDEXED: dict[str, Callable[[], Any]] = {
    "RangeIndex": lambda: pd.DataFrame(NAMES, index=pd.RangeIndex(1, 3, name="id")),
    "set_index": lambda: pd.DataFrame({"id": [1, 2], **NAMES}).set_index("id"),
    "read_csv": lambda: pd.read_csv(io.StringIO("id,name\n1,Ann\n2,Bo\n"), index_col="id"),
    "Index": lambda: pd.DataFrame(NAMES, index=pd.Index(np.array([1, 2]), name="id")),
    "MultiIndex": lambda: (
        pd.DataFrame({"id": [1, 2], "x": [0, 0], **NAMES})
        .set_index(["id", "x"])
        .rename_axis(["id", None])
    ),
    "two frames": lambda: [INDEXED["RangeIndex"]()[:1], INDEXED["set_index"]()[1:]],
    "a column that is no Arrow": lambda: INDEXED["RangeIndex"]().assign(o=[object(), 1]),
}


@pytest.mark.parametrize("name", INDEXED)
def test_named_indexes_are_columns(name: str) -> None:
    wanted = pack_many([("HSET", "u:1", "name", "Ann"), ("HSET", "u:2", "name", "Bo")])
    template = "HSET u:{id} {**-o}" if name == "a column that is no Arrow" else "HSET u:{id} {**}"
    assert dumped(INDEXED[name](), template) == wanted


def test_indexes_named_like_a_column() -> None:
    frame = pd.DataFrame({"id": [1, 2], **NAMES}).set_index("id", drop=False)
    wanted = pack_many([("HSET", 1, "name", "Ann"), ("HSET", 2, "name", "Bo")])
    assert dumped(frame, "HSET {id} {**}") == wanted
    with pytest.raises(SourceError, match=r"an index and a column .* are named 'id', with other"):
        dumped(frame.assign(id=[3, 4]), "HSET {id} {**}")


def test_unnamed_index() -> None:
    frame = pd.DataFrame(NAMES, index=["a", "b"])
    assert dumped(frame[:1], "HSET k {**}") == pack("HSET", "k", "name", "Ann")
    with pytest.raises(TemplateError, match=r"columns are name; its index has no .*reset_index"):
        dumped(frame, "HSET {id} {**}")


@pytest.mark.parametrize("frame", [pd.DataFrame(), pl.DataFrame(), pa.table({})])
def test_empty_frames_have_no_rows(frame: Any) -> None:
    assert dumped(frame, "HSET u:{id} {**}") == b""


STRUCTS = [{"kind": "click", "x": 10}, {"kind": "key", "x": None}]
SINGLE: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"e": STRUCTS})["e"],
    "polars": lambda: pl.Series("e", STRUCTS),
    "Array": lambda: pa.array(STRUCTS),
    "Array slice": lambda: pa.array([None, *STRUCTS])[1:],
    "ChunkedArray": lambda: pa.chunked_array([pa.array(STRUCTS)]),
}


@pytest.mark.parametrize("name", SINGLE)
def test_structs_are_values_of_a_single_column(name: str) -> None:
    data = SINGLE[name]()
    texts = [json.dumps(each, separators=(",", ":")) for each in STRUCTS]
    assert dumped(data, "RPUSH k {0!json}") == pack_many([("RPUSH", "k", text) for text in texts])
    assert dumped(data, "RPUSH k {0.kind}") == dumped(STRUCTS, "RPUSH k {kind}")
    assert dumped(data, "HSET k {*0}", nulls="skip") == dumped(STRUCTS, "HSET k {**}", nulls="skip")
    assert dumped(data, "HSET k {**}", nulls="skip") == dumped(STRUCTS, "HSET k {**}", nulls="skip")
    with pytest.raises(TemplateError, match=r"single column is of type struct, .*\{0!json\}"):
        dumped(data, "RPUSH k {0}")
    with pytest.raises(TemplateError, match=r"no column \{1\}"):
        dumped(data, "RPUSH k {1}")


def test_null_structs_of_a_single_column() -> None:
    data = pa.array([None, {"a": 1}])
    assert dumped(data, "RPUSH k {0!json}") == pack_many(
        [("RPUSH", "k", "null"), ("RPUSH", "k", '{"a":1}')]
    )
    assert dumped(data, "RPUSH k {0.a}", nulls="skip") == pack("RPUSH", "k", 1)
    assert dumped(data, "HSET k {*0}", nulls="skip") == pack("HSET", "k", "a", 1)
    with pytest.raises(fastresp.EncodeError, match="the row itself is null"):
        dumped(data, "HSET k {**}")


NUL = "a\0b"
PLAIN = pa.table({"id": [1], NUL: ["x"], "a\0c": [{NUL: 1, "a": 2}]})


def files(folder: Path) -> dict[str, Any]:
    pq.write_table(PLAIN, folder / "n.parquet")
    with pa.ipc.new_file(folder / "n.arrow", PLAIN.schema) as file:
        file.write_table(PLAIN)
    row = json.dumps(PLAIN.to_pylist()[0])
    (folder / "n.jsonl").write_text(row + "\n")
    return {name: fastresp.read(folder / f"n.{name}") for name in ("parquet", "arrow", "jsonl")}


def test_names_with_nul(tmp_path: Path) -> None:
    wanted = pack("HSET", "k", NUL, "x", "a\0c", '{"a\\u0000b":1,"a":2}')
    sources = {
        "rows": PLAIN.to_pylist(),
        "Table": PLAIN,
        "RecordBatch": PLAIN.to_batches()[0],
        "reader": PLAIN.to_reader(),
        "StructArray": PLAIN.to_struct_array().chunk(0),
        "several": [PLAIN[:0], PLAIN.to_batches()[0]],
        "pandas": pd.DataFrame(PLAIN.to_pylist()),
        "pandas chunks": [pd.DataFrame(PLAIN.to_pylist())],
        **files(tmp_path),
        "two files": fastresp.read([tmp_path / "n.parquet", tmp_path / "n.arrow"]),
    }
    template = "HSET k {**-id!json}"
    for name, source in sources.items():
        times = 2 if name == "two files" else 1
        assert dumped(source, template) == wanted * times, name
    (tmp_path / "n.csv").write_text("id,a\0b\n1,x\n")
    assert dumped(fastresp.read(tmp_path / "n.csv"), "HSET k {**-id}") == pack(
        "HSET", "k", NUL, "x"
    )
    kinds = pa.table(
        {NUL: pa.DictionaryArray.from_arrays([0], pa.array([{NUL: 1}])), "l": [[{NUL: 2}]]}
    )
    assert b'{"a\\u0000b":1}' in dumped(kinds, "HSET k {**!json}")
    assert b'[{"a\\u0000b":2}]' in dumped(kinds, "HSET k {**!json}")
    for how in ({"sql": "FROM source"}, {"sort_by": "id"}):
        with pytest.raises(SourceError, match="no NUL in names"):
            dumped(fastresp.read(tmp_path / "n.arrow", **how), template)
    pq.write_table(PLAIN.select(["id", NUL]), tmp_path / "n.parquet")
    ordered = fastresp.read(tmp_path / "n.parquet", sort_by="id")
    assert dumped(ordered, "HSET k {**-id}") == pack("HSET", "k", NUL, "x")


@pytest.mark.parametrize(
    "frame",
    [pl.DataFrame({NUL: [1]}), pl.DataFrame({"a": [[{NUL: 1}]]}), pl.Series(NUL, [1]),
     pl.Series("a", [{NUL: 1}]), pl.LazyFrame({NUL: [1]})],
    ids=["column", "field", "Series", "Series of structs", "LazyFrame"],
)  # fmt: skip
def test_names_that_polars_would_abort_at(frame: Any) -> None:
    with pytest.raises(SourceError, match=r"'a\\x00b' can't be the name .*rename it"):
        dumped(frame, "SET k {0}")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "value",
    ["(1::UHUGEINT << 127)", "'12:00:00+05:30'::TIMETZ", "'0101'::BIT", "['0101'::BIT]",
     "{'b': 1::UHUGEINT}", "MAP {'a': ['01'::BIT]}"],
)  # fmt: skip
def test_values_of_duckdb_that_arrow_lacks(value: str) -> None:
    query = f"SELECT 1 AS id, {value} AS v"
    for data in (duckdb.sql(query), fastresp.read(query), [duckdb.sql(query)]):
        for template in ("SET k {v!json}", "HSET k {**!json}", "SET k {*!json}"):
            with pytest.raises(TemplateError, match=r"column 'v' is of DuckDB's type .* cast it"):
                dumped(data, template)
        assert dumped(data, "SET {id} v") == pack("SET", 1, "v")
    text = f"SELECT ({value})::VARCHAR AS v"
    shown = duckdb.sql(text).fetchall()[0][0]
    assert dumped(duckdb.sql(text), "SET k {v}") == pack("SET", "k", shown)


def test_a_stream_of_unknown_origin_is_a_table() -> None:
    assert dumped(Stream(PLAIN.select(["id"])), "SET k {id}") == pack("SET", "k", 1)


def maps(kind: pa.DataType, *pairs: tuple[Any, Any]) -> pa.Array:
    return pa.array([list(pairs)], pa.map_(kind, pa.int64()))


KEYS = {
    "list": maps(pa.list_(pa.int64()), ([1], 2)),
    "struct": maps(pa.struct([("a", pa.int64())]), ({"a": 1}, 2)),
    "map": maps(pa.map_(pa.string(), pa.int64()), ([("a", 1)], 2)),
    "struct of two fields": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_values_without_json_form(name: str) -> None:
    for values in (KEYS[name], pa.ListArray.from_arrays([0, 1], KEYS[name])):
        table = pa.table({"id": [1], "m": values})
        for template in ("SET k {m!json}", "SET k {*!json}", "HSET k {**!json}"):
            with pytest.raises(TemplateError, match=r"'m' is of type .*, which has no JSON form"):
                dumped(table, template)
        assert dumped(table, "HSET k {**-m!json}") == pack("HSET", "k", "id", 1)


@pytest.mark.parametrize("n", [2, 3000])
def test_maps_with_a_duplicate_key(n: int) -> None:
    keys = [*range(n), n - 1]
    table = pa.table({"m": maps(pa.int64(), *((key, key) for key in keys))})
    with pytest.raises(fastresp.EncodeError, match=r"row 0, .*a map has a duplicate key"):
        dumped(table, "SET k {m!json}")
    table = pa.table({"m": maps(pa.int64(), *((key, key) for key in keys[:-1]))})
    text = json.dumps({str(key): key for key in keys[:-1]}, separators=(",", ":"))
    assert dumped(table, "SET k {m!json}") == pack("SET", "k", text)
