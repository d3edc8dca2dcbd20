"""CSV with unclosed quotes, and the options for text files."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tables import failure, rows_of, write

import fastresp

# Unclosed quotes.

LONG = "".join(f"{n},{'x' * 40}\n" for n in range(100_000))


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n', 3),
        ('a,b\n1,x\n2,"y\n3,z', 3),
        ('a,b\n1,"', 2),
        ('a,b\r\n1,"y\r\n3,z\r\n', 2),
        ('a,b\n"1,x\n2,y\n', 2),  # the first field swallows the rest: too few fields
        ('a,b\n1,"x\n\n""y""\n', 2),
        ('"a\nb",c\n1,"x\n', 3),
        ('a,b\n\n\n1,"x\n', 4),
        ('a,b\r1,"x\ry\r"\r1,"y\r', 5),
        (f'a,b\n{LONG}1,"x\ny\n', 100_002),
        (f'a,b\n{LONG}1,"x', 100_002),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_unclosed_quote(tmp_path: Path, text: str, line: int, pack: Any) -> None:
    words = f"the quote opened in line {line:,} is never closed, so its field runs"
    path = tmp_path / "x.csv"
    path.write_bytes(pack(text.encode()))
    for bad_rows in ("error", "skip"):
        assert words in failure(path, bad_rows=bad_rows)
        assert words in failure(io.BytesIO(path.read_bytes()), bad_rows=bad_rows, format="csv")
    path.write_bytes(pack(text.replace(",", "\t").replace('"', "'").encode()))
    assert words in failure(path, format="tsv", quote="'")
    assert words in failure([path, path], format="tsv", quote="'")


def test_unclosed_quote_in_a_single_column() -> None:
    words = "the quote opened in line 3 is never closed"
    assert words in failure(io.BytesIO(b'a\n1\n"2\n3\n'), format="csv")
    assert "quote opened in line 1" in failure(io.BytesIO(b'"a,b\n1,2\n'), format="csv")


@pytest.mark.parametrize("text", ['a,b\n1,5" x 3"\n2,y\n', 'a,b\n1,"x"\n', 'a,b\n1,"x\n""\n"'])
def test_closed_and_literal_quotes(text: str) -> None:
    assert rows_of(io.BytesIO(text.encode()), format="csv")[0]["a"] == "1"


def test_unclosed_quote_after_the_limit() -> None:
    text = b'a,b\n1,2\n3,"4\n'
    assert "line 3" in failure(io.BytesIO(text), limit=2, format="csv")
    assert len(rows_of(io.BytesIO(f'a,b\n{LONG}1,"x'.encode()), limit=9)) == 9


def test_field_with_an_unclosed_quote_is_not_sent() -> None:
    file = io.BytesIO()
    source = io.BytesIO(f'a,b\n{LONG}1,"x'.encode())
    with pytest.raises(fastresp.SourceError, match="is never closed"):
        fastresp.dump(fastresp.read(source), "SET {a} {b}", file)
    assert len(file.getvalue()) > 1_000_000
    assert file.getvalue().endswith(b"x\r\n")
    assert fastresp.pack("SET", "1", "x") not in file.getvalue()


# Quotes that are text, and quotes that swallow rows.


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        # Quotes are text, unless the first lines can only be read with quotes.
        ('id\tt\n1\t"Quick" fox\n2\tplain\n', [("1", '"Quick" fox'), ("2", "plain")]),
        ('id\tt\n1\t"All"\n2\t""\n', [("1", '"All"'), ("2", '""')]),
        ('id\tt\n1\t"Open\n2\tClosed"\n', [("1", '"Open'), ("2", 'Closed"')]),
        ('id\tt\n1\t5" x 3"\n2\t"\n', [("1", '5" x 3"'), ("2", '"')]),
        ('"id"\t"t"\n1\t"a"\n', [("1", "a")]),  # as R writes it
        ('id\tt\n1\t"say ""hi"""\n2\t"x"\n', [("1", 'say "hi"'), ("2", "x")]),
        ('id\tt\n1\t"two\nlines"\n2\t"a\tb"\n', [("1", "two\nlines"), ("2", "a\tb")]),
        ('id\tt\n1\t"say ""hi"""\n2\t"x" y\n', [("1", '"say ""hi"""'), ("2", '"x" y')]),
    ],
)
def test_tsv_has_quotes_only_if_its_first_lines_prove_it(
    tmp_path: Path, text: str, rows: list[tuple[str, str]]
) -> None:
    (tmp_path / "x.tsv").write_text(text)
    wanted = [dict(zip(("id", "t"), row, strict=True)) for row in rows]
    ways: list[Any] = [{}, {"format": "csv", "delimiter": "\t"}, {"sql": "FROM source"}]
    for options in [*ways, {"sort_by": "id"}]:
        assert rows_of(tmp_path / "x.tsv", **options) == wanted


def test_the_quote_and_the_escape_are_options() -> None:
    def rows(text: str, **options: Any) -> list[dict[str, Any]]:
        return rows_of(io.BytesIO(text.encode()), format="csv", **options)

    assert rows('a,b\n"1,2"\n', quote="") == [{"a": '"1', "b": '2"'}]
    assert rows("a,b\n'x,\n',\"2\"\n", quote="'") == [{"a": "x,\n", "b": '"2"'}]
    # Spark escapes quotes and backslashes, but only in quoted fields.
    spark = 'a,b\n"say \\"hi\\"","C:\\\\"\nC:\\dir,"\\n"\n'
    assert rows(spark, escape="\\") == [
        {"a": 'say "hi"', "b": "C:\\"}, {"a": "C:\\dir", "b": "\\n"}
    ]  # fmt: skip
    long = "a,b\n" + '"\\"","\\\\"""\n' * 500_000  # escapes at the ends of blocks
    assert rows(long, escape="\\") == [{"a": '"', "b": '\\"'}] * 500_000
    said = failure(io.BytesIO(spark.encode()), format="csv")
    assert "a quoted field in line 2 has a backslash before a quote; use escape='\\\\'" in said
    for options in ({"quote": "ab"}, {"quote": "\0"}, {"escape": "\n"}, {"escape": "é"}):
        with pytest.raises(ValueError, match="must be one ASCII character other than a line end"):
            rows(spark, **options)
    with pytest.raises(ValueError, match="escape= is for quoted fields, but this file has no"):
        rows(spark, quote="", escape="\\")


@pytest.mark.parametrize("option", ["quote", "escape"])
@pytest.mark.parametrize(
    ("character", "options"),
    [
        (",", {"format": "csv"}),
        ("\t", {"format": "tsv"}),
        (";", {"format": "csv", "delimiter": ";"}),
    ],
)
def test_quote_and_escape_are_not_the_delimiter(
    tmp_path: Path, option: str, character: str, options: dict[str, Any]
) -> None:
    said = f"{option} must not be the delimiter, which is {character!r}; change one of them"
    (tmp_path / "x").write_bytes(b"a\n1\n")
    for source in (io.BytesIO(b"a\n1\n"), tmp_path / "x"):
        with pytest.raises(ValueError, match=re.escape(said)):
            fastresp.read(source, **options, **{option: character})
    found = failure(io.BytesIO(b"a,b\n1,2\n"), quote=",")  # its first bytes show that it is CSV
    assert "quote must not be the delimiter, which is ','" in found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,t\n1,"Hello\n2,b\n3,"c"\n4,d\n', 2),
        ('id,t\n1,x\n2,"Hello\r\n3,"b" and\r\n', 3),
        ('"id\nx"y,t\n1,2\n', 1),
        ('id,t\r1,x\r2,"Hello\r3,"b" and\r', 3),
        (f'a,b\n{LONG}1,"x\n{LONG}1,"y"\n', 100_002),
        (f'a,b\n{LONG}1,"x\n{LONG}{LONG}', 100_002),
    ],
)
def test_a_quote_that_swallows_line_ends_names_its_line(text: str, line: int) -> None:
    for bad_rows in ("error", "skip"):
        said = failure(io.BytesIO(text.encode()), format="csv", bad_rows=bad_rows)
        assert f"the quote opened in line {line:,} " in said
        assert said.endswith("or use quote='' if quotes are text in this file")
    if text.startswith("a,b"):  # earlier rows are loaded
        assert len(rows_of(io.BytesIO(text.encode()), format="csv", limit=9)) == 9


def test_fields_with_line_ends_are_read() -> None:
    rows = [[f'{n}"\r\n,{"x" * (n % 50)}', 'b\n"\n', "", "c"] for n in range(60_000)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b", "c", "d"], *rows])
    read = rows_of(io.BytesIO(text.getvalue().encode()), format="csv")
    assert [[value or "" for value in row.values()] for row in read] == rows


# No header.


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("packing", [bytes, bz2.compress])
def test_files_without_a_header(delimiter: str, packing: Any) -> None:
    text = f'1{delimiter}"x{delimiter}\ny"\n2{delimiter}z\n'
    given = None if delimiter == "," else delimiter

    def source() -> io.BytesIO:
        return io.BytesIO(packing(text.encode()))

    value = f"x{delimiter}\ny"
    assert rows_of(source(), header=False, delimiter=given, format="csv") == [
        {"column_1": "1", "column_2": value},
        {"column_1": "2", "column_2": "z"},
    ]
    assert rows_of(source(), columns=["id", "v"], delimiter=given, format="csv") == [
        {"id": "1", "v": value},
        {"id": "2", "v": "z"},
    ]
    sql = "SELECT v FROM source WHERE id = '2'"
    options: Any = {"columns": ["id", "v"], "delimiter": given, "format": "csv"}
    assert rows_of(source(), sql=sql, **options) == [{"v": "z"}]


def test_columns_by_position_without_a_header() -> None:
    file = io.BytesIO()
    table = fastresp.read(io.BytesIO(b"1,x\n2,y\n"), header=False, format="csv")
    assert fastresp.dump(table, "SET k:{0} {1}", file) == 2
    assert file.getvalue() == fastresp.pack("SET", "k:1", "x") + fastresp.pack("SET", "k:2", "y")


def test_wrong_number_of_names() -> None:
    source = io.BytesIO(b"1,x\n")
    said = failure(source, columns=["a", "b", "c"], format="csv")
    assert "columns= has 3 names, but the first row has 2 fields" in said
    assert "two columns are named 'a' in columns=" in failure(
        io.BytesIO(b"1,x\n"), columns=["a", "a"], format="csv"
    )
    with pytest.raises(
        TypeError, match=r"columns must be a list of strings, not a string; use \['a'\]"
    ):
        fastresp.read(io.BytesIO(b""), columns="a")
    with pytest.raises(ValueError, match="columns must name at least one"):
        fastresp.read(io.BytesIO(b""), columns=[])
    assert rows_of(io.BytesIO(b""), columns=["a"], format="csv") == []


def test_several_files_without_a_header(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.csv").write_text(f"{n},x\n")
    rows = rows_of(tmp_path / "*.csv", columns=["id", "v"])
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    (tmp_path / "3.csv").write_text("3,x,y\n")
    assert "3.csv: columns= has 2 names, but the first row" in failure(
        tmp_path / "*.csv", columns=["id", "v"]
    )


# Headers.


def test_a_name_is_empty_only_if_it_is_quoted_and_not_the_first() -> None:
    for first in ("", '""'):  # pandas and R write their index so
        rows = rows_of(io.BytesIO(f'{first},"",,a\n1,2,3,4\n'.encode()), format="csv")
        assert rows == [{"column_1": "1", "": "2", "column_3": "3", "a": "4"}]
    said = failure(io.BytesIO(b",column_1\n1,2\n"), format="csv")
    assert "column 1 has no name, and another column has its replacement name" in said


# Headers that differ.


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_different_headers_are_found_before_the_first_row(tmp_path: Path, suffix: str) -> None:
    delimiter = "\t" if suffix == "tsv" else ","
    pack = gzip.compress if suffix.endswith(".gz") else bytes
    for n, names in enumerate((("id", "name"), ("name", "id"), ("id", "mail"))):
        # More rows than fit a chunk: the first would be sent before the second file is opened.
        text = delimiter.join(names) + "\n" + f"1{delimiter}2\n" * 60_000
        (tmp_path / f"{n}.{suffix}").write_bytes(pack(text.encode()))
    file = io.BytesIO()
    with pytest.raises(fastresp.SourceError, match=rf"2\.{suffix} has the columns id, mail, but"):
        fastresp.dump(fastresp.read(tmp_path / f"*.{suffix}"), "HSET k{id} {**}", file)
    assert file.getvalue() == b""


def test_different_parquet_columns_are_found_before_the_first_row(tmp_path: Path) -> None:
    for n, name in enumerate(("a", "b")):
        parquet.write_table(pa.table({name: [1] * 60_000}), tmp_path / f"{n}.parquet")
    file = io.BytesIO()
    with pytest.raises(fastresp.SourceError, match="has the columns b, but"):
        fastresp.dump(fastresp.read(tmp_path / "*.parquet"), "SET k {0}", file)
    assert file.getvalue() == b""


# Lines.


@pytest.mark.parametrize("end", ["\n", "\0"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines(end: str, pack: Any) -> None:
    items = [b"a", b"", b'{"b": 1}', b" c,\td\r", b"\xff\xfe", b'"', b"x" * (5 << 20), b"last"]
    if end == "\0":
        items.append(b"two\nlines")
    delimiter = None if end == "\n" else end
    for behind in (end, ""):
        data = end.encode().join(items) + behind.encode()
        rows = rows_of(io.BytesIO(pack(data)), format="lines", delimiter=delimiter)
        assert [row["line"] for row in rows] == items
    assert rows_of(io.BytesIO(pack(data)), format="lines", delimiter=delimiter, limit=2) == [
        {"line": b"a"},
        {"line": b""},
    ]


def test_no_lines(tmp_path: Path) -> None:
    assert rows_of(io.BytesIO(b""), format="lines") == []
    (tmp_path / "1").write_bytes(b"a\n")
    (tmp_path / "2").write_bytes(b"b")
    rows = rows_of([tmp_path / "1", tmp_path / "2"], format="lines")
    assert rows == [{"line": b"a"}, {"line": b"b"}]


# Encodings.


@pytest.mark.few(6)
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252", "utf-8-sig"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_encodings(encoding: str, pack: Any) -> None:
    text = "id,name\n" + "".join(f"{n},Zoë €\n" for n in range(60_000))
    text = text.replace("€", "ß") if encoding == "latin-1" else text
    data = text.encode(encoding)
    rows = rows_of(io.BytesIO(pack(data)), encoding=encoding)
    assert len(rows) == 60_000
    assert rows[-1] == {"id": "59999", "name": text[:-1].rpartition(",")[2]}
    document = '{"a": "Zoë", "b": 1.10}'
    file = io.BytesIO()
    table = fastresp.read(io.BytesIO(pack(document.encode(encoding))), encoding=encoding)
    fastresp.dump(table, "SET k {*!json}", file)
    assert file.getvalue() == fastresp.pack("SET", "k", document)


def test_wrong_encoding() -> None:
    said = failure(io.BytesIO(b"a\ncaf\xe9\n"), encoding="utf-8")
    assert "it is not valid utf-8: " in said and "set encoding= to its encoding" in said
    assert "not valid utf-16" in failure(io.BytesIO(codecs.BOM_UTF16_LE + b"a"), encoding="utf-16")
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        fastresp.read(io.BytesIO(b""), encoding="latin-99")


# Nulls.


def test_null_values() -> None:
    text = b'a,b\nNULL,\\N\n"NULL",\nnull,""\n'
    rows = rows_of(io.BytesIO(text), format="csv", null_values=["NULL", "\\N"])
    assert rows == [{"a": None, "b": None}, {"a": "NULL", "b": None}, {"a": "null", "b": ""}]


# Bad rows.


def test_bad_rows_of_csv(tmp_path: Path) -> None:
    bad = ["1,2,3", "1", '"x,\ny",2,3']
    text = "a,b\n" + "1,2\n" + "".join(f"{row}\n3,4\n" for row in bad) + LONG + "5,6,7\n8,9\n"
    target = tmp_path / "bad.csv"
    for policy in ("skip", target):
        target.unlink(missing_ok=True)
        table = fastresp.read(io.BytesIO(text.encode()), format="csv", bad_rows=policy)
        assert isinstance(table, fastresp.Table)
        assert pa.table(table).num_rows == 5 + 100_000
        assert table.bad_rows == 4
    assert target.read_text() == "".join(f"{row}\n" for row in [*bad, "5,6,7"])
    with pytest.raises(FileExistsError, match="look at them, then move the file away; or name"):
        rows_of(io.BytesIO(b"a\n1\n"), format="csv", bad_rows=target)
    other = tmp_path / "none.csv"
    rows_of(io.BytesIO(b"a\n1\n"), format="csv", bad_rows=other)
    assert other.read_bytes() == b""


def test_a_table_read_again_writes_its_bad_rows_again(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n2,3\n")
    table = fastresp.read(tmp_path / "x.csv", bad_rows=tmp_path / "bad")
    for _ in range(2):
        assert pa.table(table).num_rows == 1
        assert (tmp_path / "bad").read_text() == "2,3\n"


def test_bad_rows_of_several_files(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.csv").write_text(f"a,b\n{n},{n},{n}\n1,2\n")
    table = fastresp.read(tmp_path / "?.csv", bad_rows="skip")
    assert isinstance(table, fastresp.Table)
    assert pa.table(table).num_rows == table.bad_rows == 3


def test_bad_rows_do_not_overwrite_the_source(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n")
    with pytest.raises(ValueError, match="is also the source; write to another file"):
        fastresp.read(path, bad_rows=path)
    assert path.read_text() == "a\n1\n"


def test_bad_rows_that_are_not_utf8() -> None:
    source = io.BytesIO(b"a,b\ncaf\xe9,1,2\n")
    assert "set encoding= to its encoding" in failure(source, format="csv", bad_rows="skip")
    source = io.BytesIO(b"a,b\ncaf\xe9,1,2\n")
    assert rows_of(source, format="csv", bad_rows="skip", encoding="latin-1") == []


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp037"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_bad_rows_keep_their_encoding(tmp_path: Path, encoding: str, kind: str) -> None:
    """Fixed rows can thus be loaded with the same options."""
    bad = ["caf\xe9,1,2", "\xfc"] if kind == "csv" else ['{"a": "caf\xe9"', "\xfc"]
    good = "\xe9,1" if kind == "csv" else '{"a": "\xe9", "b": "1"}'
    lines = ["a,b"] * (kind == "csv") + [good, bad[0], good, bad[1]]
    source = tmp_path / f"x.{kind}"
    source.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    target = tmp_path / "bad"
    for sql in (None, "FROM source"):
        target.unlink(missing_ok=True)
        rows = fastresp.read(source, sql=sql, encoding=encoding, bad_rows=target)
        assert isinstance(rows, fastresp.Table)
        assert pa.table(rows).to_pylist() == [{"a": "\xe9", "b": "1"}] * 2
        assert target.read_bytes() == "".join(f"{line}\n" for line in bad).encode(encoding)


# Options for other formats.


@pytest.mark.parametrize(
    ("suffix", "options", "words"),
    [
        ("jsonl", {"header": False}, "header= is for CSV and TSV, but this is JSON lines"),
        ("jsonl", {"columns": ["a"]}, "columns= is for CSV and TSV, but this is JSON lines"),
        ("jsonl", {"delimiter": ";"}, "delimiter= is for CSV and lines, but this is JSON lines"),
        ("tsv", {"delimiter": ";"}, "delimiter= is for CSV and lines, but this is TSV"),
        ("parquet", {"encoding": "latin-1"}, "encoding= is for CSV, TSV, JSON lines and lines"),
        ("arrow", {"null_values": ["x"]}, "null_values= is for CSV and TSV, but this is Arrow IPC"),
        ("parquet", {"bad_rows": "skip"}, "bad_rows= is for CSV, TSV and JSON lines, but this is"),
    ],
)  # fmt: skip
def test_options_of_other_formats(tmp_path: Path, suffix: str, options: Any, words: str) -> None:
    path = write(tmp_path / f"x.{suffix}")
    with pytest.raises(ValueError, match=words):
        fastresp.read(path, **options)
    with pytest.raises(ValueError, match=words):
        fastresp.read(path, sql="FROM source", **options)
    if suffix == "jsonl":
        assert words in failure(io.BytesIO(Path(path).read_bytes()), **options)
    with pytest.raises(ValueError, match="is for files; in a query, use the options of read_csv"):
        fastresp.read("SELECT 1 AS a", **options)
    (tmp_path / "x.resp").write_bytes(b"")
    with pytest.raises(ValueError, match="is for rows of text, but this file contains commands"):
        fastresp.read(tmp_path / "x.resp", **options)


@pytest.mark.parametrize("kind", ["jsonl", "lines", "parquet", "resp"])
def test_the_error_names_columns_rather_than_header(tmp_path: Path, kind: Any) -> None:
    """columns= turns header off, but the user did not set header."""
    path = tmp_path / "x"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^columns= is for "):
        fastresp.read(path, format=kind, columns=["x"])
    with pytest.raises(ValueError, match=r"^header= is for "):
        fastresp.read(path, format=kind, header=False)
    with pytest.raises(ValueError, match=r"^columns= is for files"):
        fastresp.read("SELECT 1", columns=["x"])
