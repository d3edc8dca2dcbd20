"""Files of object stores and web servers: fsspec's memory, and a web server on loopback."""

from __future__ import annotations

import http.server
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner
from command_line import invoke
from pyarrow import parquet

import fastresp
from fastresp.cli.app import app
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer

ROWS = [{"id": str(i), "name": f"n{i}"} for i in range(30_000)]
SUFFIXES = ["csv", "jsonl", "parquet", "csv.gz"]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with ranges if ``ranges`` is set; counts the bytes that it sends.

    Attributes:
        asked: the methods of all requests.
        head: the status of the reply to HEAD, if not 200.
        tagged: whether files have an ETag.
    """

    folder: Path
    ranges = True
    sent: list[int]
    asked: list[str]
    cut: int | None = None
    head = 200
    tagged = True

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        self.asked.append(self.command)
        path = self.folder / self.path.partition("?")[0].lstrip("/")
        if path.name.isdigit() or (not body and self.head != 200):
            self.send_error(int(path.name) if path.name.isdigit() else self.head)
            return
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found and self.ranges:
            start, end = int(found[1]), int(found[2] or len(data) - 1) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            part = data[start:end]
        else:
            self.send_response(200)
            part = data
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        if self.tagged:
            self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        if body:
            self.sent.append(len(part))
            self.wfile.write(part[: self.cut])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[type[Handler]]:
    """Start a web server of the test's folder; ``web.url`` is its address."""

    class Own(Handler):
        folder = tmp_path
        sent: list[int] = []  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Own.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        yield Own
        server.shutdown()
        thread.join()


@pytest.fixture
def memory() -> Iterator[Callable[[str, bytes], str]]:
    """Return a function that writes a file into fsspec's memory, and returns its URL."""
    system = fsspec.filesystem("memory")

    def write(name: str, data: bytes) -> str:
        system.pipe(f"/t/{name}", data)
        return f"memory://t/{name}"

    yield write
    system.rm("/t", recursive=True)


def bytes_of(suffix: str, tmp_path: Path, rows: list[dict[str, str]] = ROWS) -> bytes:
    """Return a file of rows."""
    path = tmp_path / f"made.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return path.read_bytes()
    if suffix == "jsonl":
        return "".join(f'{{"id": "{r["id"]}", "name": "{r["name"]}"}}\n' for r in rows).encode()
    text = "id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in rows)
    with fsspec.open(path, "wb", compression="infer") as file:
        file.write(text.encode())
    return path.read_bytes()


def read(source: Any, **options: Any) -> list[dict[str, str]]:
    return pa.table(fastresp.read(source, **options)).to_pylist()


@pytest.mark.few(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_formats(
    suffix: str, web: Any, memory: Any, tmp_path: Path, server: LocalServer, client: redis.Redis
) -> None:
    data = bytes_of(suffix, tmp_path)
    (tmp_path / f"x.{suffix}").write_bytes(data)
    for url in (memory(f"x.{suffix}", data), f"{web.url}/x.{suffix}?version=1"):
        assert read(url) == ROWS
        assert read(url, sql="SELECT * FROM source ORDER BY id::int DESC") == ROWS[::-1]
        assert read(url, sort_by="name", limit=2) == sorted(ROWS, key=lambda row: row["name"])[:2]
        client.flushall()
        report = fastresp.mass_insert(url, "HSET u:{id} {**}", server=server.url)
        assert (report.rows, client.hgetall("u:7")) == (len(ROWS), {b"name": b"n7"})
        assert fastresp.verify(url, "HSET u:{id} {**}", server=server.url).same


def test_patterns_and_lists(memory: Any, tmp_path: Path) -> None:
    first = memory("day=1/a.csv", bytes_of("csv", tmp_path, ROWS[:2]))
    second = memory("day=2/b.csv", bytes_of("csv", tmp_path, ROWS[2:4]))
    wanted = [row | {"day": str(1 + i // 2)} for i, row in enumerate(ROWS[:4])]
    assert read("memory://t/*/*.csv") == read([first, second]) == wanted
    assert read(f"FROM '{first}'") == wanted[:2]
    with pytest.raises(fastresp.SourceError, match="no file matches memory://t/none-"):
        fastresp.read("memory://t/none-*.csv")
    with pytest.raises(IsADirectoryError, match="name its files"):
        fastresp.read("memory://t/day=1")


def test_servers_without_ranges(web: Any, tmp_path: Path) -> None:
    web.ranges = False
    (tmp_path / "x.csv").write_bytes(bytes_of("csv", tmp_path))
    assert read(f"{web.url}/x.csv") == ROWS


def test_parquet_is_read_by_ranges(web: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    numbers = pa.table({"id": range(4_000_000)})
    parquet.write_table(numbers, path, compression="none", use_dictionary=False)
    assert fastresp.read(f"{web.url}/x.parquet").rows == 4_000_000  # type: ignore[union-attr]
    assert 0 < sum(web.sent) < path.stat().st_size / 2


def test_unreadable_urls_end_a_command_with_errors(web: Any, port: int) -> None:
    faults = {
        f"{web.url}/no.csv": "the server answers 404 Not Found; check the URL",
        f"{web.url}/403": "403 Forbidden; check the credentials, and whether a signature",
        f"{web.url}/503": "503 Service Unavailable; try again later",
        f"http://127.0.0.1:{port}/x.csv": "check the URL and the network, then try again",
        web.url.replace("http", "https") + "/x.csv": "check the server's certificate",
        "memory://none/x.csv": "there is no such file; check the URL",
    }
    for url, words in faults.items():
        done = invoke("load", url, "SET {id} {name}", "--format", "csv")
        assert (done.exit_code, words in done.stderr) == (Exit.ERRORS, True), done.stderr
        assert done.stderr.count("\n") == 1


def test_failures(web: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weird; check the beginning of the URL"):
        fastresp.read("weird://127.0.0.1/x.csv")
    with pytest.raises(ValueError, match="set the credentials in the environment"):
        fastresp.read("http://user:secret@127.0.0.1/x.csv")
    (tmp_path / "x.csv").write_bytes(bytes_of("csv", tmp_path))
    web.cut = 100_000
    with pytest.raises(fastresp.SourceError, match=r"x\.csv"):
        fastresp.dump(f"{web.url}/x.csv", "HSET u:{id} {**}", tmp_path / "x.resp")


def test_a_scheme_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError, match=r"s3fs.*pip install 'fastresp\[remote\]'"):
        fastresp.mass_insert("s3://bucket/users.parquet", "SADD ids {id}")


def test_resume_requires_the_same_file(
    memory: Any, web: Any, tmp_path: Path, server: LocalServer
) -> None:
    for number, rows in enumerate((ROWS, ROWS[:-1])):
        memory("x.csv", bytes_of("csv", tmp_path, rows))
        (tmp_path / "x.csv").write_bytes(bytes_of("csv", tmp_path, rows))
        for name, url in (("m", "memory://t/x.csv"), ("w", f"{web.url}/x.csv")):
            load = ["load", url, "HSET u:{id} {**}", "--checkpoint", name, "--resume"]
            done = invoke(*load, "--server", server.url)
            assert done.exit_code == (Exit.USAGE if number else Exit.OK), done.output
            if not number:
                done = invoke(*load, "--server", server.url)
                assert "30,000 rows were loaded before" in done.output


def test_file_that_changes_while_it_is_read(memory: Any, tmp_path: Path) -> None:
    url = memory("x.csv", bytes_of("csv", tmp_path) * 20)
    table = pa.RecordBatchReader.from_stream(fastresp.read(url))
    next(iter(table))
    memory("x.csv", b"id,name\n1,2\n")
    with pytest.raises(Exception, match="while it was read"):
        table.read_all()


def test_commands_of_a_url(web: Any, tmp_path: Path, server: LocalServer) -> None:
    fastresp.dump([("SET", "k", "v")], None, tmp_path / "x.resp")
    done = invoke("send", f"{web.url}/x.resp", "--server", server.url)
    assert done.exit_code == Exit.OK, done.output


def test_a_url_is_checked_before_and_after_reading(
    web: Any, tmp_path: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_bytes(bytes_of("csv", tmp_path, ROWS[:9]))
    (tmp_path / "x").write_bytes(b"1\n2\n")
    for load in (["x.csv", "SET {id} {name}"], ["x", "SET {line} 1"]):
        web.asked.clear()
        done = invoke("load", f"{web.url}/{load[0]}", load[1], "--server", server.url)
        assert (done.exit_code, web.asked) == (Exit.OK, ["HEAD", "GET", "HEAD"]), done.output
    web.head = 403  # as for a URL that is signed for GET
    assert read(f"{web.url}/x.csv") == ROWS[:9]
    web.head = 200
    table = fastresp.read(f"{web.url}/x.csv")
    assert pa.table(table).num_rows == 9
    (tmp_path / "x.csv").write_bytes(bytes_of("csv", tmp_path, ROWS[:5]))
    assert pa.table(table).num_rows == 5


def test_checkpoints_of_files_that_differ_only_in_their_urls(
    web: Any, tmp_path: Path, server: LocalServer
) -> None:
    web.tagged = False
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"id,name\n1,x\n")

    def load(url: str) -> Any:
        options = ["--checkpoint", "c", "--resume", "--server", server.url]
        return invoke("load", f"{web.url}/{url}", "SET {id} {name}", *options)

    assert load("a.csv?X-Amz-Signature=one").exit_code == Exit.OK
    assert load("a.csv?X-Amz-Signature=two").exit_code == Exit.OK
    other = load("b.csv?X-Amz-Signature=one")
    assert other.exit_code == Exit.USAGE
    assert "belongs to another load: source was" in other.stderr
    assert load("a.csv?version=2").exit_code == Exit.USAGE
    urls = [f"{web.url}/a.csv?page={page}&sig=geheim" for page in (1, 2)]
    assert fastresp.read(urls).files == [url.replace("geheim", "***") for url in urls]


def test_no_signature_or_password_is_shown_or_stored(
    web: Any, tmp_path: Path, server: LocalServer, client: redis.Redis, port: int
) -> None:
    (tmp_path / "x.csv").write_bytes(b"id,name\n1,x\n2,y\n")
    (tmp_path / "bad.csv").write_bytes(b"id,name\n1\n")
    signed = "?X-Amz-Signature=geheim&sig=geheim"
    url, rejects = f"{web.url}/x.csv{signed}", tmp_path / "rejects"
    at = ["--server", server.url]
    client.lpush("1", "another type")
    dsn = "SELECT * FROM postgres_scan('host=127.0.0.1 password=geheim', 'a', 'b')"
    calls = [
        ["load", url, "APPEND {id} {name}", "--rejects", str(rejects), "--json", *at],
        ["load", url, "APPEND {id} {name}", "--log", "json", *at],
        ["load", url, "SET {id} {name}", "--checkpoint", "c", *at],
        ["load", url, "SET {id} {name}", "--dry-run", *at],
        ["verify", url, "SET {id} z", "--differences", "-", *at],
        ["--traceback", "load", f"{web.url}/403{signed}", "SET {id} 1", "--format", "csv", *at],
        ["--traceback", "load", f"{web.url}/bad.csv{signed}", "SET {id} 1", *at],
        ["load", f"{web.url}/bad.csv{signed}", "SET {id} 1", "--log", "json", *at],
        ["load", f"{web.url}/x{signed}", "SET {id} 1", *at],
        ["load", "http://user:geheim@127.0.0.1/x.csv", "SET {id} 1", *at],
        ["load", f"SELECT nothing FROM '{url}'", "SET {id} 1", *at],
        ["--traceback", "load", f"SELECT * FROM '{web.url}/403.csv{signed}'", "SET {id} 1", *at],
        ["--traceback", "load", dsn, "SET {a} 1", *at],
        ["load", url, "SET {id} 1", "--sql", "CREATE SECRET (TYPE s3, SECRET 'geheim')", *at],
        ["load", url, "SET {id} 1", "--server", f"redis://user:geheim@127.0.0.1:{port}/0"],
        ["load", url, "SET {id} 1", "--server", "redis://user:gehe/im@127.0.0.1/0"],
        ["send", f"{web.url}/x.resp{signed}", *at],
        ["inspect", url, signed],
    ]
    said = [CliRunner().invoke(app, call) for call in calls]
    texts = [done.output for done in said]
    kept = [client.hgetall(key) for key in client.scan_iter("fastresp:{c}", _type="hash")]
    texts += [rejects.read_text(), str(kept)]
    assert '"file": "http://127.0.0.1' in rejects.read_text()
    assert "x.csv?***" in str(kept)
    table = fastresp.read(url, sql="SELECT * FROM source WHERE name <> 'password=geheim'")
    texts += [repr(table), table._repr_html_(), repr(table.files)]
    for text, call in zip(texts, [*calls, *"rcthf"], strict=True):
        assert "geheim" not in text and "gehe/im" not in text, (call, text)
