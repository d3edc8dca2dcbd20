"""The row that an error names: the tables of docs/reference/outcome.md, checked by loads."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from click.testing import CliRunner
from loads import insert_sync

import fastresp
from fastresp import pack
from fastresp.cli.app import app
from fastresp.encode.row_key import RowKeys
from fastresp.encode.writer import Writer
from fastresp.outcome.errors import RowLocation
from fastresp.resp.route import Router
from fastresp.server.local_server import LocalServer

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "outcome.md"

# The server refuses the second row, whose id is "bad"; in text it begins in line 3.
SADD = "SADD {id} {name}"
ROWS = [{"id": "1", "name": "x"}, {"id": "bad", "name": "y"}]
CSV = "id,name\n1,x\nbad,y\n"
COMMANDS = [("SADD", "1", "x"), ("SADD", "bad", "y")]
JSON = [json.dumps(row) for row in ROWS]

Source: TypeAlias = Callable[[Path], Any]


@pytest.fixture(autouse=True)
def refusing(client: redis.Redis) -> None:
    client.set("bad", "text")


def rows_of(first_heading: str) -> Iterator[list[str]]:
    """Yield the rows of the table of the page whose first heading this is."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n| {first_heading} |")[2]
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def file(name: str, text: str | bytes, **options: Any) -> Source:
    """Return functions that write and read a file."""

    def source(folder: Path) -> Any:
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return fastresp.read(path, **options)

    return source


def rejects(folder: Path) -> Any:
    fields = [json.dumps({"arguments": command}) for command in COMMANDS]
    (folder / "rejects.jsonl").write_text(f"{fields[0]}\n\n{fields[1]}\n")
    return fastresp.read_rejects(folder / "rejects.jsonl")


def opened(folder: Path) -> Any:
    (folder / "users.csv").write_text(CSV)
    return fastresp.read(open(folder / "users.csv", "rb"))


def named_pipe(folder: Path) -> Any:
    os.mkfifo(folder / "pipe")
    threading.Thread(target=(folder / "pipe").write_text, args=(CSV,), daemon=True).start()
    return fastresp.read(folder / "pipe", format="csv")


class Once(io.RawIOBase):
    """A file object that can be read once."""

    def __init__(self) -> None:
        self._text = io.BytesIO(CSV.encode())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._text.readinto(buffer)


def url(folder: Path) -> Any:
    import fsspec

    with fsspec.open("memory://places/users.csv", "wb") as written:
        written.write(CSV.encode())
    return fastresp.read("memory://places/users.csv")


def parquet(folder: Path) -> Any:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "users.parquet")
    return folder / "users.parquet"


def arrow(folder: Path) -> Any:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(folder / "users.arrow", table.schema) as written:
        written.write_table(table)
    return folder / "users.arrow"


SOURCES: dict[str, list[Source]] = {
    "CSV, TSV, JSON Lines, a JSON array, lines; even compressed, or in another encoding": [
        file("users.csv", CSV),
        file("users.tsv", CSV.replace(",", "\t")),
        file("users.jsonl", f"{JSON[0]}\n\n{JSON[1]}"),
        file("users.json", f"[\n{JSON[0]},\n{JSON[1]}]"),
        file("users.txt", "1\n\n\0bad", format="lines", delimiter="\0"),
        file("users.csv.gz", gzip.compress(CSV.encode())),
        file("users.csv", CSV.encode("utf-16"), encoding="utf-16"),
    ],
    "RESP files, text files of commands, rejects files": [
        file("users.resp", pack("SADD", "1", "\n") + pack(*COMMANDS[1])),
        file("users.txt", "SADD 1 x\n\nSADD bad y\n", format="commands"),
        rejects,
    ],
    "text formats from seekable standard input (`< users.csv`), and other seekable file objects": [
        opened,
        lambda folder: fastresp.read(io.BytesIO(CSV.encode())),
    ],
    "pipes, named pipes, file objects that can be read only once": [
        named_pipe,
        lambda folder: fastresp.read(Once()),
    ],
    "URLs": [url],
    "Parquet, Arrow": [parquet, arrow],
    "`sql=`, `sort_by=`": [file("a.csv", CSV, sql="FROM source"), file("a.csv", CSV, sort_by="id")],
    "DataFrames, tables, Python rows": [
        lambda folder: pa.Table.from_pylist(ROWS),
        lambda folder: ROWS,
    ],
    "rows that are whole commands, without a template": [lambda folder: COMMANDS],
}


def known(cell: str) -> bool:
    return cell != "no"


def test_the_table_of_sources(server: LocalServer, tmp_path: Path) -> None:
    table = {name: tuple(map(known, cells)) for name, *cells in rows_of("Source")}
    assert list(table) == list(SOURCES)
    for name, sources in SOURCES.items():
        for number, make in enumerate(sources):
            folder = tmp_path / f"{list(SOURCES).index(name)}-{number}"
            folder.mkdir()
            source = make(folder)
            template: str | None = SADD if table[name][2] else None
            if "txt" in str(getattr(source, "files", "")):
                template = "SADD {line} x"
            report = insert_sync(source, template, server=server.url, on_error="collect")
            [error] = report.errors
            found = (error.file is not None, error.line is not None, bool(error.row_key))
            assert found == table[name], (name, number)
            assert error.row == 1
            assert error.row_in_file in (None, 1)
            if error.line is not None:
                line = 9 if str(error.file).endswith("resp") else 3
                assert error.line == line, (name, number)
            if error.row_key:
                assert error.row_key in ("id=bad", "line=bad")
            assert error.place in str(error)


def names(error: Any) -> list[Any]:
    """Return the place that an error, or its JSON, names."""
    if isinstance(error, dict):
        return [error.get(name) for name in ("row", "row_key", "file", "line")]
    return [getattr(error, name, None) for name in ("row", "row_key", "file", "line")]


def of_report(path: Path, url: str) -> Any:
    [error] = insert_sync(path, SADD, server=url, on_error="collect").errors
    done = run(url, "load", str(path), SADD, "--json")
    assert names(json.loads(done)["errors"][0]) == names(error)
    return error


def of_encoding(path: Path, url: str) -> Any:
    path.write_text("id,name\n1,x\nbad,\n")
    for load in (
        lambda: insert_sync(path, SADD, server=url),
        lambda: fastresp.dump(fastresp.read(path), SADD, io.BytesIO()),
    ):
        with pytest.raises(fastresp.EncodeError, match=r"^row 1 \(id=bad\), line 3 of ") as caught:
            load()
    return caught.value


def of_reading(path: Path, url: str) -> Any:
    path.write_text("id,name\n1,x\nbad\n")
    with pytest.raises(fastresp.SourceError, match="row 1, line 3 has 1 field") as caught:
        insert_sync(path, SADD, server=url)
    assert caught.value.row_in_file == 1
    return caught.value


def of_rejects(path: Path, url: str) -> Any:
    kept = path.with_name("rejects.jsonl")
    insert_sync(path, SADD, server=url, on_error="collect", rejects=kept)
    failed: list[Any] = []
    insert_sync(
        path, SADD, server=url, on_error="collect", rejects=lambda e: failed.append(names(e))
    )
    fields = json.loads(kept.read_text())
    assert names(fields) == failed[0]
    return fields


def of_log(path: Path, url: str) -> Any:
    lines = [
        json.loads(line) for line in run(url, "load", str(path), SADD, "--log", "json").splitlines()
    ]
    [error] = [each for each in lines if each["event"] == "command_error"]
    return error


def of_replies(path: Path, url: str) -> Any:
    with pytest.raises(fastresp.CommandError) as caught:
        list(fastresp.iter_replies(fastresp.read(path), SADD, server=url))
    return caught.value


def of_collected_replies(path: Path, url: str) -> Any:
    source = fastresp.read(path)
    return list(fastresp.iter_replies(source, SADD, server=url, on_error="collect"))[1]


def of_differences(path: Path, url: str) -> Any:
    fastresp.execute("DEL", "1", "bad", server=url)
    fastresp.execute("SADD", "1", "x", server=url)
    [difference] = fastresp.verify(path, SADD, server=url).differences
    return difference


def of_redis_cli(path: Path, url: str) -> Any:
    report = fastresp.mass_insert(path, SADD, server=url, transport="redis-cli", on_error="collect")
    return report.errors[0]


def run(url: str, *arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments), env={"REDIS_URL": url}).output


PLACES: dict[str, Callable[[Path, str], Any]] = {
    "`report.errors`, and `--json`": of_report,
    "`EncodeError`": of_encoding,
    "`SourceError` for a row that can't be read": of_reading,
    "rejects": of_rejects,
    "`command_error` of `--log json`": of_log,
    "`iter_replies()` that raises": of_replies,
    '`iter_replies(on_error="collect")`': of_collected_replies,
    "differences of `verify()`": of_differences,
    '`transport="redis-cli"`': of_redis_cli,
}


def test_the_table_of_places(server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    table = {name: cells for name, *cells in rows_of("Where")}
    assert list(table) == list(PLACES)
    path = tmp_path / "users.csv"
    for name, find in PLACES.items():
        path.write_text(CSV)
        client.set("bad", "text")
        found = [each if each != "" else None for each in names(find(path, server.url))]
        wanted = [1, "id=bad", str(path), 3]
        expected = [
            None if cell.startswith("no") else value
            for cell, value in zip(table[name], wanted, strict=True)
        ]
        assert found == expected, name


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("MULTI; SADD {id} {name}; EXEC", {}),
        ("MULTI; SADD {id} {name}; EXEC", {"connections": 3}),
        ("SADD all {name}; SADD {id} {name}; SADD bad x", {"max_errors": 9}),
        ("SADD {id} {name}", {"checkpoint": "places"}),
        ("SADD {id} {name}", {"mode": "merge"}),
        ("SADD {id} {name}", {"mode": "serialize"}),
        ("SADD {id} {name}", {"retry": "idempotent"}),
    ],
)
def test_keys_of_rows(
    server: LocalServer, tmp_path: Path, template: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "users.csv"
    path.write_text(CSV)
    report = insert_sync(
        path, template.split("; "), server=server.url, on_error="collect", **options
    )
    errors = [each for each in report.errors if each.row == 1]
    assert errors
    assert all(names(each) == [1, "id=bad", str(path), 3] for each in errors)


def test_keys_of_rows_that_cannot_be_routed_or_serialised(
    server: LocalServer, tmp_path: Path
) -> None:
    template = fastresp.Template("DEL {id} other")
    chunk = next(Writer(template).chunks(ROWS))
    router = Router(1, 1 << 20, 0, of_slots=[0] * 16384)
    router.route(chunk)
    error = RowKeys(template).of_failing(router)
    assert isinstance(error, RowLocation)
    assert (error.row, error.row_key) == (0, "id=1")
    path = tmp_path / "users.csv"
    path.write_text("id,name\n1,x\nbad,y\n1,z\n")
    where = re.escape(f"row 2 (id=1), line 4 of {path}, command 2: ")
    for load in (
        lambda: insert_sync(path, SADD, server=server.url, mode="serialize"),
        lambda: fastresp.dump(path, SADD, tmp_path / "x.rdb", format="rdb"),
    ):
        with pytest.raises(fastresp.EncodeError, match=f"^{where}row 0 and row 2 make the same"):
            load()
