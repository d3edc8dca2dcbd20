"""The physical lines of failed rows, in files of each format."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from loads import Insert

import fastresp
from fastresp import pack
from fastresp.outcome.messages import Hint
from fastresp.server.local_server import LocalServer

# The server refuses the row with the id "bad".
SET = "SADD {id} {name}"
HEAD = "id,name\n1,x\n"
JSON = '{"id": 1, "name": "x"}\n'
BAD = '{"id": "bad", "name": "y"}'
CASES: list[tuple[str, str | bytes, dict[str, Any], int, int]] = [
    # The file's name, its text, options, the row that the server refuses, and its line.
    ("a.csv", f"{HEAD}bad,y\n2,z\n", {}, 1, 3),
    ("a.csv", f"{HEAD}bad,y", {}, 1, 3),
    ("a.csv", "id,name\r\n1,x\r\nbad,y\r\n", {}, 1, 3),
    ("a.csv", 'id,name\r1,"x\r\ny\nz\r"\rbad,y\r', {}, 1, 6),
    ("a.csv", '"i\nd",name\n1,"a\nb ""c""\n"\n\n\r\nbad,y\n', {"columns": ["id", "name"]}, 2, 8),
    ("a.csv", '\n"id","name","a\nb"\n1,"a\nb",\n\nbad,y,\n', {}, 1, 7),
    ("a.csv", "1,x\nbad,y\n", {"columns": ["id", "name"]}, 1, 2),
    ("a.csv", '1;"\n"\nbad;y\n', {"columns": ["id", "name"], "delimiter": ";"}, 1, 3),
    ("a.csv", "id,name\n1,'a\nb'\nbad,y\n", {"quote": "'"}, 1, 4),
    ("a.csv", '\ufeffid,name\n1,"a \\"\n\\" b"\nbad,y\n', {"escape": "\\"}, 1, 4),
    ("a.csv", 'id,name\n1,"\n2,x\nbad,y\n', {"quote": ""}, 2, 4),
    ("a.csv", "id,name\n1\n2,x\n3,y,z\nbad,y\n", {"bad_rows": "skip"}, 1, 5),
    ("a.csv", "id,name\n1,é\nbad,y\n".encode("latin-1"), {"encoding": "latin-1"}, 1, 3),
    ("a.csv", '#id,id,name\n#1,1,x\n#2,"bad",y\n', {}, 1, 3),
    ("a.tsv", 'id\tname\n1\t"\n2\tx"\nbad\ty\n', {}, 2, 4),
    ("a.tsv", '"id"\t"name"\n1\t"a\nb"\nbad\ty\n', {}, 1, 4),
    ("a.csv.gz", gzip.compress(f"{HEAD}bad,y\n".encode()), {}, 1, 3),
    ("a.csv.bz2", bz2.compress(f"{HEAD}bad,y\n".encode()), {}, 1, 3),
    ("a.jsonl.zst", pa.compress(f"{JSON}\n{BAD}\n".encode(), "zstd", asbytes=True), {}, 1, 3),
    ("a.jsonl", f"{JSON}{BAD}\n", {}, 1, 2),
    ("a.jsonl", f"\n \t\r\n{JSON}\n\r\n{BAD}", {}, 1, 6),
    ("a.jsonl", f"\ufeff{JSON}{BAD}", {}, 1, 2),
    ("a.jsonl", f"oops\n{JSON}\n]\n{BAD}\n{{\n{JSON}", {"bad_rows": "skip"}, 1, 5),
    ("a.jsonl", f"{JSON}{BAD}".encode("utf-16"), {"encoding": "utf-16"}, 1, 2),
    ("a.json", f"[{JSON},\n\n{BAD}]", {}, 1, 4),
    ("a.json", f" [\r\n{JSON}, {BAD},\n{JSON}\n]\n", {}, 1, 3),
    ("a.json", f"\ufeff[{JSON},\noops,\n\n{{\n3}},{BAD}]", {"bad_rows": "skip"}, 1, 6),
    ("a.json", "[" + f"{JSON}\n," * 100_000 + f"{BAD}]", {}, 100_000, 200_001),
    ("a.jsonl", JSON * 100_000 + f"\n{BAD}\n", {}, 100_000, 100_002),
    ("a.csv", 'id,name\n1,"\n\n"\n' * 200_000 + "bad,y\n", {}, 399_999, 800_001),
]


@pytest.fixture(autouse=True)
def refusing(client: redis.Redis) -> None:
    client.set("bad", "text")


@pytest.mark.parametrize(
    ("name", "text", "options", "row", "line"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_lines(
    insert: Insert, server: LocalServer, tmp_path: Path, name: str, text: str | bytes,
    options: dict[str, Any], row: int, line: int,
) -> None:  # fmt: skip
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source = fastresp.read(path, **options)
    report = insert(source, SET, server=server.url, on_error="collect")
    [error] = report.errors
    assert (error.row, error.file, error.row_in_file) == (row, str(path), row)
    assert (error.line, error.row_key) == (line, "id=bad")
    where = f"row {row:,} (id=bad), line {line:,} of {path}"
    assert str(error).startswith(f"{where}, command {row:,}: WRONGTYPE")
    assert f"first for {where}" in str(report)


def test_a_row_with_a_wrong_number_of_fields(
    insert: Insert, server: LocalServer, tmp_path: Path
) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text(f"{HEAD}2,x\n")
    other.write_text('id,name\n1,"\n"\n\n2\n')
    words = f"{other}: row 1, line 5 has 1 field for 2 columns: '2'"
    for read in (
        lambda: insert(fastresp.read([path, other]), SET, server=server.url),
        lambda: fastresp.dump(fastresp.read([path, other]), SET, tmp_path / "a.resp"),
        lambda: pa.table(fastresp.read([path, other])),
    ):
        with pytest.raises((fastresp.SourceError, pa.ArrowInvalid)) as caught:
            read()
        assert words in str(caught.value)
        if isinstance(caught.value, fastresp.SourceError):
            found = caught.value
            assert (found.file, found.row_in_file, found.line) == (str(other), 1, 5)
            assert found.hints == [Hint("bad_rows", "skip")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'id,name\n1,x\n2,"y\n3,z\n'),
        ("a.csv", 'id,name\r1,x\r2,"y\r3,"z" x\r'),
        ("a.csv", 'id,name\n1,x\n2,"a \\" b"\n'),
        ("a.txt", 'SET a b\n\nSET "a b\n'),
        ("rejects.jsonl", '{"arguments": ["PING"]}\n\n{"arguments": 1}\n'),
    ],
)
def test_lines_that_cannot_be_read(
    server: LocalServer, tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    is_csv = name == "a.csv"
    read: Any = fastresp.read_rejects if "rejects" in name else fastresp.read
    source = read(path, format="commands") if name == "a.txt" else read(path)
    with pytest.raises(fastresp.SourceError) as caught:
        fastresp.mass_insert(source, SET if is_csv else None, server=server.url)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert str(caught.value).count("line 3") == 1


RESP = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\n\r\n\n\r\n"
REFUSED = b"*3\r\n$4\r\nSADD\r\n$3\r\nbad\r\n$1\r\nx\r\n"


@pytest.mark.parametrize(
    ("name", "text", "row", "line"),
    [
        ("a.resp", REFUSED, 0, 1),
        ("a.resp", RESP + REFUSED + RESP, 1, 11),
        ("a.resp", RESP + b"\r\n\n\r\n" + REFUSED, 1, 14),
        ("a.resp", RESP * 100_000 + b"\r\n" + REFUSED, 100_000, 1_000_002),
        ("a.resp", pack("SET", "a", b"\n" * 5_000_000) + REFUSED, 1, 5_000_008),
        ("a.txt", b"SADD bad x", 0, 1),
        ("a.txt", b'\n SET a "\\n"\r\n \t\r\nSADD bad x\nSET b c\n', 1, 4),
    ],
    ids=lambda each: str(each)[:20],
)
def test_lines_of_commands(
    insert: Insert, server: LocalServer, tmp_path: Path, name: str, text: bytes, row: int, line: int
) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    source = fastresp.read(path, format="resp" if name == "a.resp" else "commands")
    report = insert(source, server=server.url, on_error="collect")
    [error] = report.errors
    assert (error.row, error.file, error.row_in_file, error.line) == (row, str(path), row, line)
    assert str(error).startswith(f"row {row:,}, line {line:,} of {path}, command {row:,}: WRONG")


def test_refused_commands_of_files(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "a.resp"
    path.write_bytes(RESP + b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n")
    with pytest.raises(fastresp.EncodeError) as caught:
        insert(fastresp.read(path), server=server.url)
    assert (caught.value.file, caught.value.row, caught.value.line) == (str(path), 1, 11)
    assert str(caught.value).startswith(f"{path}, line 11: command 1: ")


@pytest.mark.parametrize(
    ("text", "delimiter", "line"),
    [("a\n\nbad\nb", None, 3), ("a\nb\0\0bad\nc\0d", "\0", 2), ("\0bad", "\0", 1)],
)
def test_lines_of_lines(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path, text: str,
    delimiter: str | None, line: int,
) -> None:  # fmt: skip
    client.set("bad\nc", "text")
    path = tmp_path / "items"
    path.write_text(text)
    source = fastresp.read(path, format="lines", delimiter=delimiter)
    report = insert(source, "SADD {line} x", server=server.url, on_error="collect")
    [error] = report.errors
    assert (error.file, error.line) == (str(path), line)


def test_lines_of_several_files(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    texts = ["", f"{BAD}\n", f"oops\n{JSON}\n{BAD}\n", JSON, f"\noops\n{JSON}oops\n\n{BAD}\n"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.jsonl").write_text(text)
    report = insert(
        fastresp.read(tmp_path / "*.jsonl", bad_rows="skip"), SET, server=server.url,
        on_error="collect",
    )  # fmt: skip
    found = [(Path(str(error.file)).name, error.line) for error in report.errors]
    assert found == [("1.jsonl", 1), ("2.jsonl", 4), ("4.jsonl", 6)]


class Interrupted(io.BytesIO):
    """A file that is interrupted by Ctrl-C during its second reading."""

    readings = 0

    def read1(self, size: int | None = -1) -> bytes:
        self.readings += self.tell() == 0
        if self.readings > 1:
            signal.raise_signal(signal.SIGINT)
        return super().read1(size)


def test_file_objects(insert: Insert, server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"skipped\n{HEAD}bad,y\n")
    with open(path, "rb") as file:
        file.readline()
        source = fastresp.read(file)
        [error] = insert(source, SET, server=server.url, on_error="collect").errors
        assert (error.file, error.row, error.line, file.tell()) == (str(path), 1, 4, 26)
    broken = io.BytesIO(b"id,name\n\n1\n")
    with pytest.raises(fastresp.SourceError, match="file object: row 0, line 3 has 1 field"):
        insert(fastresp.read(broken), SET, server=server.url)


def test_ctrl_c_ends_only_the_search(server: LocalServer) -> None:
    source = Interrupted(f"{HEAD}bad,y\n3,z\n".encode())
    report = fastresp.mass_insert(fastresp.read(source), SET, server=server.url, on_error="collect")
    [error] = report.errors
    assert (report.acknowledged, error.row, error.line) == (3, 1, None)
    assert source.readings == 2
    with pytest.raises(fastresp.EncodeError, match=r"^row 0 of the file object, command 0, column"):
        fastresp.dump(fastresp.read(Interrupted(b"id,name\n,x\n")), SET, io.BytesIO())


def test_the_search_is_limited(
    insert: Insert, server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastresp.sources.files.input.SEARCH_S", -1.0)
    path = tmp_path / "a.csv"
    path.write_text(f"{HEAD}bad,y\n")
    [error] = insert(path, SET, server=server.url, on_error="collect").errors
    assert (error.file, error.row, error.line) == (str(path), 1, None)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("id,name\nbad,z\n")])
def test_a_file_that_changed_has_no_lines(
    insert: Insert, server: LocalServer, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{HEAD}bad,y\n")
    source = fastresp.read(path)
    # The first reply arrives when the whole file has been read.
    with pytest.raises(fastresp.LoadErrors) as caught:
        insert(source, SET, server=server.url, rejects=lambda error: change(path))
    [error] = caught.value.report.errors
    assert (error.file, error.row, error.line) == (str(path), 1, None)


def test_lines_after_an_exception(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{HEAD}bad,y\n" + "2,z\n" * 100_000 + ",z\n")
    with pytest.raises(fastresp.EncodeError) as caught:
        insert(path, SET, server=server.url)
    assert (caught.value.line, caught.value.row) == (100_004, 100_002)
    assert str(caught.value).startswith(f"row 100,002, line 100,004 of {path}, command 100,002, ")
    [error] = caught.value.report.errors  # type: ignore[attr-defined]
    assert error.line == 3
    where = f"row 1 (id=bad), line 3 of {path}"
    assert any(f"first for {where}" in note for note in caught.value.__notes__)
    path.write_text(f"{HEAD}bad,y\n" + "2,z\n" * 100_000)
    with pytest.raises(fastresp.LoadErrors, match=re.escape(f"first for {where}")):
        insert(path, SET, server=server.url, on_error="stop")


@pytest.mark.parametrize("mode", ["merge", "serialize"])
def test_lines_in_modes(insert: Insert, server: LocalServer, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'{HEAD}2,"\n"\nbad,y\nbad,z\n3,z\n')
    report = insert(path, SET, server=server.url, mode=mode, on_error="collect")
    assert [error.line for error in report.errors] == [5, 6]
