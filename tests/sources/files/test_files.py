"""read(): files of every format, and queries, as columns."""

from __future__ import annotations

import gzip
import io
import lzma
import operator
import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet
from tables import PACKERS, ROWS, as_text, csv_bytes, failure, rows_of, write

import fastresp

TEXT = [f"{suffix}{packing}" for suffix in ("csv", "tsv") for packing in PACKERS]
JSON = [f"{suffix}{packing}" for suffix in ("jsonl", "ndjson", "json") for packing in PACKERS]
TYPED = ["parquet", "pq", "arrow", "ipc", "feather", "arrows"]


@pytest.mark.parametrize("suffix", [*TEXT, *JSON, *TYPED])
def test_every_format_by_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"users.{suffix}")
    table = fastresp.read(path)
    assert pa.table(table).to_pylist() == (as_text(ROWS) if suffix in TEXT else ROWS)
    assert table.fraction() == 1.0
    assert table.place(99) == (path, 99)


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "arrow", "arrows"])
@pytest.mark.parametrize("seekable", [True, False])
def test_format_is_detected_from_the_first_bytes(
    tmp_path: Path, suffix: str, packing: str, seekable: bool
) -> None:
    data = PACKERS[packing](Path(write(tmp_path / f"users.{suffix}")).read_bytes())
    source: Any = io.BytesIO(data) if seekable else Piped(data)
    with fastresp.read(source) as table:
        assert pa.table(table).to_pylist() == (as_text(ROWS) if suffix == "csv" else ROWS)
        assert table.fraction() == (1.0 if seekable else None)
        assert table.place(3) == ("the file object", 3)
        with pytest.raises(fastresp.SourceError, match=r"can't be read twice; pass a path"):
            pa.table(table)
    assert not source.closed


class Piped(io.RawIOBase):
    """A non-seekable stream that returns a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        piece = self._file.read(min(len(into), 7))
        into[: len(piece)] = piece
        return len(piece)


def test_parquet_of_file_objects(tmp_path: Path) -> None:
    data = Path(write(tmp_path / "users.parquet")).read_bytes()
    file = io.BytesIO(b"before" + data)
    file.seek(0)
    assert rows_of(io.BytesIO(data)) == ROWS
    assert rows_of(io.BytesIO(data), format="parquet") == ROWS
    assert "Parquet, which has its index at the end and can't be read from a pipe" in failure(
        Piped(data)
    )


class Raw(io.FileIO):
    """A raw file that returns fewer bytes than requested."""

    def read(self, size: int | None = -1) -> bytes | None:
        return super().read(min(size, 500) if size and size > 0 else 500)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow", "arrows"])
def test_short_reads_of_a_raw_file(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"users.{suffix}")
    with Raw(path) as file:
        found = rows_of(file)
    assert found == rows_of(path)


DAYS = [datetime(*day) for day in ((1, 1, 1), (1600, 2, 29), (2024, 1, 1), (9999, 12, 31))]


FORMS: list[dict[str, Any]] = [{}, {"sort_by": "id"}, {"sql": "FROM source ORDER BY id"}]


@pytest.mark.parametrize("form", FORMS)
def test_int96_has_all_years(tmp_path: Path, form: dict[str, Any]) -> None:
    """Spark, Hive and Impala write INT96; file objects are read the same way."""
    path = tmp_path / "x.parquet"
    table = pa.table({"id": range(4), "at": pa.array(DAYS, pa.timestamp("us"))})
    parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    for source in (path, io.BytesIO(path.read_bytes())):
        assert [row["at"] for row in rows_of(source, **form)] == DAYS


def test_checksums_of_pages(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"id": range(1000), "text": [f"{n * 7}.00" for n in range(1000)]})
    parquet.write_table(
        table, path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    assert rows_of(path, sql="FROM source") == rows_of(path)
    path.write_bytes(path.read_bytes().replace(b"3500.00", b"3508.00"))
    for form in FORMS:
        assert "x.parquet can't be read as Parquet: could not verify page integrity" in failure(
            path, **form
        )


def test_feather_version_1(tmp_path: Path) -> None:
    (tmp_path / "x.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    assert "it is Feather version 1, which has no batches; read it with pyarrow" in failure(
        tmp_path / "x.feather"
    )


def test_text_files_are_refused(tmp_path: Path) -> None:
    with open(write(tmp_path / "users.csv")) as file, pytest.raises(TypeError, match="'rb'"):
        fastresp.read(file)  # type: ignore[call-overload]


def test_a_closed_file_object() -> None:
    source = io.BytesIO(b"id\n1\n")
    table = fastresp.read(source, format="csv")
    source.close()
    with pytest.raises(fastresp.SourceError, match=r"^the file object is closed; open it"):
        fastresp.dump(table, "SET {id} x", io.BytesIO())


@pytest.mark.parametrize(
    ("head", "kind", "words"),
    [
        (
            lzma.compress(b"id\n1\n"),
            "csv",
            "compressed with xz, which is not supported; decompress",
        ),
        (lzma.compress(b"1\n"), "lines", "it is compressed with xz, which is not supported"),
        (b"\x04\x22\x4d\x18 LZ4", "jsonl", "it is an LZ4 file, which is not supported; decompress"),
        (b"PAR1\x15\x04", "csv", "it is Parquet; use format='parquet'"),
        (b"PK\x03\x04 xlsx", "tsv", "it is a zip archive, as Excel writes it; convert it"),
        ('{"id": 1}\n'.encode("utf-16"), "jsonl", "it is UTF-16; use encoding='utf-16'"),
        ('{"id": 1}\n'.encode("utf-16-be"), "jsonl", "it is UTF-16; use encoding='utf-16-be'"),
    ],
)
def test_files_in_another_format_than_named(
    tmp_path: Path, head: bytes, kind: str, words: str
) -> None:
    for data in (head, gzip.compress(head)):
        (tmp_path / "x").write_bytes(data)
        assert words in failure(tmp_path / "x", format=kind)
        assert words in failure(io.BytesIO(data), format=kind)


def test_zstandard_that_begins_with_a_skippable_frame() -> None:
    """pzstd writes it like this, with several frames in a row."""
    frames = zstandard.compress(b"id\n1\n") + zstandard.compress(b"2\n")
    data = b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + frames
    assert rows_of(io.BytesIO(data), format="csv") == [{"id": "1"}, {"id": "2"}]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["status", "mounts", "limits"])
def test_files_of_proc_are_read(name: str) -> None:
    path = Path("/proc/self", name)
    assert len(rows_of(path, format="lines")) == len(path.read_bytes().splitlines())


def test_a_pipe_as_a_path(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(csv_bytes(ROWS),))
    writer.start()
    assert rows_of(path) == as_text(ROWS)
    writer.join()


def test_format_overrides_the_name(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "users.csv")).rename(tmp_path / "users.data")
    with pytest.raises(ValueError, match=r"users.data from its name; .* 'csv', 'tsv'"):
        fastresp.read(path)
    assert rows_of(path, format="csv") == as_text(ROWS)
    with pytest.raises(ValueError, match="format must be one of 'csv'"):
        fastresp.read(path, format="xml")  # type: ignore[arg-type]


def test_compressed_formats_that_are_refused(tmp_path: Path) -> None:
    for name in ("x.resp.gz", "x.parquet.zst"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ValueError, match=rf"{name} can't be read compressed; decompress it"):
            fastresp.read(tmp_path / name)


@pytest.mark.parametrize("delimiter", [";", "|", "\t", "'", "^"])
def test_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "x.csv"
    text = f"a,b{delimiter}c\n1,0{delimiter}x\n"
    path.write_text(text)
    rows = [{"a,b": "1,0", "c": "x"}]
    assert rows_of(path, delimiter=delimiter) == rows
    assert rows_of(io.BytesIO(text.encode()), delimiter=delimiter) == rows
    assert rows_of(path, delimiter=delimiter, sql="SELECT * FROM source") == rows
    stream = io.BytesIO(text.encode())
    assert rows_of(stream, delimiter=delimiter, sql="SELECT * FROM source") == rows


def test_missing_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for other in ";|\t":
        path.write_text(f"a{other}b\n1{other}2\n")
        words = failure(path)
        give = "format='tsv'" if other == "\t" else "delimiter="
        assert f"x.csv: the first line has no comma but {other!r}; use {give}" in words
        assert rows_of(path, delimiter=",") == [{f"a{other}b": f"1{other}2"}]
    for wrong in ("", ";;", "é", '"', "\n", "\0"):
        words = "delimiter must be one ASCII character other than a quote, a line end or NUL, not"
        with pytest.raises(ValueError, match=words):
            fastresp.read(path, delimiter=wrong)


def test_compression_is_detected_whatever_the_name(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(gzip.compress(csv_bytes(ROWS[:50])) + gzip.compress(csv_bytes(ROWS[50:])))
    assert len(rows_of(path)) == 101  # the second header is an ordinary row
    path.write_bytes(gzip.compress(csv_bytes(ROWS))[:-20])
    assert "can't be read as CSV: Truncated compressed stream" in failure(path)


# CSV: fields are read exactly as in the file.


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"a,b\n00123,1.10\n", [{"a": "00123", "b": "1.10"}]),
        (b"a,b\n2013-01-01,true\n", [{"a": "2013-01-01", "b": "true"}]),
        (b'a,b\n,""\n', [{"a": None, "b": ""}]),
        (b"a,b\nNULL,nan\n", [{"a": "NULL", "b": "nan"}]),
        (b'a,b\n"x\ny","""q"""\r\n1,2', [{"a": "x\ny", "b": '"q"'}, {"a": "1", "b": "2"}]),
        (b"a,b\r1,2\r", [{"a": "1", "b": "2"}]),
        (b'\xef\xbb\xbf"a",b\n1,2\n', [{"a": "1", "b": "2"}]),
        (b'"a\nb","c,""d"\n1,2\n', [{"a\nb": "1", 'c,"d': "2"}]),
        (b"a,b\n\n1,x\0y\n\n", [{"a": "1", "b": "x\0y"}]),
        (b"\na\n1\n", [{"a": "1"}]),
        (b"a,b", []),
        (b"a,b\r\n\r\n", []),
        (b"\xc3\xa4\n\xe2\x82\xac\n", [{"ä": "€"}]),
    ],
)
def test_csv_is_text_as_in_the_file(text: bytes, rows: list[dict[str, Any]]) -> None:
    assert rows_of(io.BytesIO(text), format="csv") == rows


def test_csv_need_not_be_utf8() -> None:
    table = pa.table(fastresp.read(io.BytesIO(b"a,b\n1,caf\xe9\n2,\xff\xfe\n")))
    assert table["b"].cast(pa.binary()).to_pylist() == [b"caf\xe9", b"\xff\xfe"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it is empty; the first line must name the columns"),
        (b"\n\n", "it is empty; the first line must name the columns"),
        (b"a,b,a\n", "two columns are named 'a' in the first line; rename one"),
        (b"\xe9\n", "is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "it is UTF-16; use encoding='utf-16'"),
        ("a,b\n1,2\n".encode("utf-16-le"), "it is UTF-16; use encoding='utf-16-le'"),
        (b'a,b\n\n1,"2\n"\n\n3,4,5\n', "row 1, line 6 has 3 fields for 2 columns: '3,4,5'"),
        (b'"a\nb",c\n1\n', "row 0, line 3 has 1 field for 2 columns: '1'"),
        (
            b"a,b\n" + b"1,2\n" * 900_000 + b"3\n",
            "row 900,000, line 900,002 has 1 field for 2 columns",
        ),
        (b"a,b\n1,2\n3," + b"x" * (5 << 20), "from row 1 on: a row is larger than 2 MiB"),
    ],
)
def test_faults_of_csv(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "faulty.csv"
    path.write_bytes(text)
    said = failure(path)
    assert words in said
    assert str(path) in said


# Files without rows, and several files.


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow", "arrows"])
def test_files_without_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"none.{suffix}"
    schema = pa.schema([("id", pa.int64())])
    if suffix == "parquet":
        parquet.write_table(schema.empty_table(), path)
    elif suffix == "csv":
        path.write_text("id\n")
    elif suffix == "jsonl":
        path.write_text("\n")
    else:
        kind = pa.ipc.new_stream if suffix == "arrows" else pa.ipc.new_file
        kind(path, schema).close()
    table = fastresp.read(path)
    assert pa.table(table).num_rows == 0
    assert table.fraction() == 1.0


def test_files_one_after_another(tmp_path: Path) -> None:
    for name, rows in (("b", ROWS[30:]), ("a", ROWS[:30])):
        write(tmp_path / f"{name}.jsonl", rows)
    (tmp_path / "0.jsonl").write_text("")
    table = fastresp.read(tmp_path / "*.jsonl")
    assert table.files == [str(tmp_path / f"{name}.jsonl") for name in "0ab"]
    assert pa.table(table).to_pylist() == ROWS
    assert table.place(29) == (str(tmp_path / "a.jsonl"), 29)
    assert table.place(30) == (str(tmp_path / "b.jsonl"), 0)
    assert table.place(99) == (str(tmp_path / "b.jsonl"), 69)
    for row in (-1, 100):
        with pytest.raises(LookupError):
            table.place(row)
    paths: list[Any] = [tmp_path / "b.jsonl", str(tmp_path / "a.jsonl")]
    assert rows_of(paths) == ROWS[30:] + ROWS[:30]


def test_columns_in_another_order(tmp_path: Path) -> None:
    turned = [dict(reversed(row.items())) for row in ROWS]
    for suffix in ("csv", "parquet"):
        paths = [write(tmp_path / f"{n}.{suffix}", rows) for n, rows in enumerate((ROWS, turned))]
        rows = as_text(ROWS) if suffix == "csv" else ROWS
        table = pa.table(fastresp.read(paths))
        assert table.to_pylist() == rows + rows
        assert table.column_names == ["id", "name", "note"]


def test_other_columns_and_other_types(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", [{"id": 1, "name": "ann"}])
    second = write(tmp_path / "2.parquet", [{"id": 2, "mail": "x"}])
    said = failure([first, second])
    assert said.startswith(f"{second} has the columns id, mail, but {first} has id, name; load")
    parquet.write_table(pa.table({"name": ["bo"], "id": pa.array([2], pa.int8())}), second)
    assert rows_of([first, second])[1] == {"id": 2, "name": "bo"}
    parquet.write_table(pa.table({"name": ["bo"], "id": ["two"]}), second)
    said = failure([first, second])
    assert said.startswith(f"column 'id' is int64 in {first} and string in {second}; ")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        fastresp.read(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        fastresp.read([tmp_path / "none.csv"])
    with pytest.raises(FileNotFoundError, match="no file matches"):
        fastresp.read(tmp_path / "*.csv")
    with pytest.raises(IsADirectoryError, match=r"name its files, such as .*/\*.parquet"):
        fastresp.read(tmp_path)
    with pytest.raises(ValueError, match="list of paths is empty"):
        fastresp.read([])


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_files_in_another_format(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"users.{suffix}"
    path.write_bytes(b"nonsense, and more of it" * 10)
    assert "check that the file is complete and in this format" in failure(path)


# Attributes of a table.


def test_rows_and_limit(tmp_path: Path) -> None:
    counted = [write(tmp_path / f"users.{suffix}") for suffix in ("parquet", "arrow")]
    for path in counted:
        assert fastresp.read(path).rows == 100
        assert operator.length_hint(fastresp.read(path, limit=3), -1) == 3
    other = fastresp.read(write(tmp_path / "users.csv"), limit=3)
    assert other.rows is None
    assert operator.length_hint(other, -1) == -1
    assert pa.table(other).to_pylist() == as_text(ROWS[:3])
    for limit in (0, 1, 99, 100, 101):
        table = fastresp.read([counted[0], counted[0]], limit=limit)
        assert pa.table(table).to_pylist() == (ROWS + ROWS)[:limit]
        assert rows_of("FROM range(100) t(i)", limit=limit) == [
            {"i": number} for number in range(min(limit, 100))
        ]
    with pytest.raises(ValueError, match="limit must be 0 rows or more"):
        fastresp.read(counted[0], limit=-1)


def test_a_table_of_paths_is_read_again(tmp_path: Path) -> None:
    table = fastresp.read(write(tmp_path / "users.parquet"))
    assert pa.table(table) == pa.table(table)
    table = fastresp.read([table.files[0]] * 1000)
    first = pa.RecordBatchReader.from_stream(table)
    table.close()
    with pytest.raises(pa.ArrowInvalid, match="the table was closed while it was read"):
        first.read_all()
    table = fastresp.read(table.files[0])
    assert repr(table) == f"<fastresp.Table of {table.files[0]}>"
    with pytest.raises(LookupError):
        fastresp.read(table.files[0]).place(0)


def test_column_without_a_name() -> None:
    """pandas writes its index like this."""
    table = pa.table(fastresp.read(io.BytesIO(b",b,\n1,2,3\n"), format="csv"))
    assert table.to_pylist() == [{"column_1": "1", "b": "2", "column_3": "3"}]
