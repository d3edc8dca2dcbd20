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


def test_objects_that_are_not_sent_are_allowed() -> None:
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
    """pyarrow's error becomes a SourceError that names the column if pyarrow does."""
    frame = pd.DataFrame({"name": pd.Series(values)})
    with pytest.raises(SourceError, match=r"this DataFrame can't be converted to Arrow: .*convert"):
        fastresp.dump(frame, "SET k {name}", io.BytesIO())


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
