"""Columns of types unknown to Arrow: refused by name, never sent as something else."""

from __future__ import annotations

import io
import pathlib
import uuid
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from columns import dumped
from raw_arrays import Raw, frame, int32, int64

import fastresp
from fastresp import SourceError, TemplateError
from fastresp.lists import ListBuffer
from fastresp.server.local_server import LocalServer

OBJECTS = [uuid.UUID(int=1), uuid.UUID(int=2)]
FRAME = pl.DataFrame({"id": [1, 2], "it's": pl.Series(OBJECTS, dtype=pl.Object)})


@pytest.mark.parametrize(
    "template",
    ["SET {id} {it's}", "SET k:{it's} {id}", "HSET {id} {**}", "SET {id} {*!json}",
     "SET {id} {it's!json}", "SET {id} {1}"],
)  # fmt: skip
def test_polars_objects(template: str) -> None:
    with pytest.raises(TemplateError, match=r"column \"it's\" is of type Object, .*addresses"):
        fastresp.dump(FRAME, template, io.BytesIO())


def test_unused_objects_are_allowed() -> None:
    file = io.BytesIO()
    fastresp.dump(FRAME, "SET {id} v", file)
    assert file.getvalue() == fastresp.pack_many([("SET", 1, "v"), ("SET", 2, "v")])


def test_objects_in_a_polars_array() -> None:
    frame = FRAME.select(a=pl.col("it's").reshape((1, 2)))
    for template in ("RPUSH k {*a}", "SET k {a!json}", "SET k {a!f32}"):
        with pytest.raises(TemplateError, match=r"'a' is of type Object"):
            fastresp.dump(frame, template, io.BytesIO())


def test_series_of_objects(server: LocalServer) -> None:
    series = FRAME["it's"]
    with pytest.raises(SourceError, match="Series contains Python objects"):
        fastresp.dump(series, "SET {0} v", io.BytesIO())
    with ListBuffer("list", server=server.url) as buffer:
        with pytest.raises(SourceError, match="Series contains Python objects"):
            buffer.push(series)
        assert len(buffer) == 0


@pytest.mark.parametrize(
    "values",
    [[pathlib.Path("/a"), object()], [1, "text"], [2**70], [1j], pd.arrays.SparseArray([0, 1]),
     [{"a": 1}, {"a": pathlib.Path("/")}], [np.array([1]), np.array([[2]])]],
    ids=["path", "mixed", "large", "complex", "sparse", "nested", "arrays"],
)  # fmt: skip
def test_pandas_objects(values: Any) -> None:
    """Only columns used by the template are refused, with pyarrow's message."""
    frame = pd.DataFrame({"id": range(len(values)), "name": pd.Series(values)})
    for template in ("SET k {name}", "HSET {id} {**}", "SET {id} {*!json}"):
        with pytest.raises(TemplateError, match=r"'name' can't be converted to Arrow: .*; cast it"):
            dumped(frame, template)
    wanted = fastresp.pack_many([("HSET", "k", "id", row) for row in range(len(values))])
    assert dumped(frame, "HSET k {**-name}") == dumped([frame], "HSET k id {id}") == wanted
    known = frame.assign(name=1)
    with pytest.raises(SourceError, match=r"table 2: column 'name' can't be .*, and not in all"):
        dumped([known, frame], "SET {id} v")


class Plain(pa.ExtensionType):
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "my.type")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


STORAGES = {
    "number": pa.array([1, 2]),
    "bytes": pa.array([b"12345678"] * 2, pa.binary(8)),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a", "b"]),
    "list": pa.array([[1], [2]]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
}


@pytest.mark.parametrize("storage", STORAGES)
def test_extension_types(storage: str) -> None:
    array = STORAGES[storage]
    known = pa.ExtensionArray.from_storage(Plain(array.type), array)
    for column in (
        known,
        pa.ListArray.from_arrays([0, 1, 2], known),
        pa.StructArray.from_arrays([known], names=["x"]),
        pa.FixedSizeListArray.from_arrays(known, 1),
    ):
        for template in ("SET k {a}", "SET k {a!json}", "SADD k {*a}", "SET k {a!f32}"):
            with pytest.raises(TemplateError, match="column 'a'"):
                fastresp.dump(pa.table({"a": column}), template, io.BytesIO())


def test_dictionary_of_an_extension_type() -> None:
    known = pa.ExtensionArray.from_storage(Plain(pa.int64()), pa.array([1, 2]))
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), known)
    for template in ("SET k {a}", "SET k {a!json}"):
        with pytest.raises(TemplateError, match="column 'a'"):
            fastresp.dump(pa.table({"a": column}), template, io.BytesIO())


UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1], pa.int8()), [pa.array([5, 6]), pa.array(["x", "y"])]
)
LISTS = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), UNION[:0])


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
def test_union_without_values_in_a_file(tmp_path: pathlib.Path, suffix: str, rows: int) -> None:
    batch = pa.record_batch({"id": [1, 2][:rows], "u": UNION[:rows], "l": LISTS[:rows]})
    new = pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream
    with new(tmp_path / f"u.{suffix}", batch.schema) as file:
        file.write_batch(batch)
    assert dumped(str(tmp_path / f"u.{suffix}"), "SADD ids {id}") == fastresp.pack_many(
        [("SADD", "ids", number) for number in (1, 2)[:rows]]
    )
    assert dumped(str(tmp_path / f"u.{suffix}"), "HSET {id} {**-u,l}") == b"" or rows
    with pytest.raises(TemplateError, match="column 'u' is of type union"):
        dumped(str(tmp_path / f"u.{suffix}"), "HSET {id} {**-l}")


@pytest.mark.parametrize("kind", ["tiM", "tiD"])
def test_intervals_without_a_pyarrow_array(tmp_path: pathlib.Path, kind: str) -> None:
    months = Raw(kind, 2, None, int32(1, 2, 3, 4))
    table = frame(2, id=Raw("l", 2, None, int64(1, 2)), span=months)
    batch = pa.record_batch(table)
    with pa.ipc.new_stream(tmp_path / "spans.arrows", batch.schema) as file:
        file.write_batch(batch)
    path = str(tmp_path / "spans.arrows")
    wanted = fastresp.pack_many([("SADD", "ids", 1), ("SADD", "ids", 2)])
    assert dumped(path, "SADD ids {id}") == dumped(table, "SADD ids {id}") == wanted
    assert len(dumped(fastresp.read([path, path]), "HSET {id} {**-span}; SADD k {id}")) > 0
    with pytest.raises(TemplateError, match="column 'span' is of type interval"):
        dumped(path, "HSET {id} {**}")
    with pytest.raises(SourceError, match="can't sort rows with column 'span'"):
        dumped(fastresp.read(path, sort_by="id"), "SADD ids {id}")
