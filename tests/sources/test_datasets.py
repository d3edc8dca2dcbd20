"""pyarrow Datasets: no value changes silently."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset as ds
from pyarrow import parquet

import fastresp


def sent(data: Any) -> list[bytes]:
    """Return the values of a load."""
    output = io.BytesIO()
    fastresp.dump(data, "SADD {v}", output)
    return output.getvalue().split(b"\r\n")[4::5]


def test_files_of_a_dataset_with_other_types(tmp_path: Path) -> None:
    """They are refused if a value would change, unless a Scanner is passed; CSV text is cast."""
    for name, column in (("a", [1]), ("b", ["007"])):
        parquet.write_table(pa.table({"v": column}), tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.csv").write_text(f"v\n{column[0]}\n")
    files = ds.dataset([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(fastresp.SourceError, match=r"b\.parquet is string, and the Dataset casts"):
        sent(files)
    assert sent(files.scanner()) == [b"1", b"7"]
    parquet.write_table(pa.table({"v": pa.array([2], pa.int8())}), tmp_path / "b.parquet")
    assert sent(ds.dataset([tmp_path / "a.parquet", tmp_path / "b.parquet"])) == [b"1", b"2"]
    text = ds.dataset([tmp_path / "a.csv"], schema=pa.schema({"v": pa.string()}), format="csv")
    assert sent(text) == [b"1"]


def test_int96_of_a_dataset(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"v": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))})
    parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    with pytest.raises(fastresp.SourceError, match="has INT96 timestamps, which the Dataset"):
        sent(ds.dataset(path))
    form = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    assert sent(ds.dataset(path, format=form)) == [b"9999-12-31T00:00:00"]


def test_checksums_of_a_dataset(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"v": [f"{n * 7}.00" for n in range(1000)]})
    parquet.write_table(
        table, path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    path.write_bytes(path.read_bytes().replace(b"3500.00", b"3508.00"))
    with pytest.raises(fastresp.SourceError, match="could not verify page integrity"):
        sent(ds.dataset(path))
