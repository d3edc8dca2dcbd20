"""The receipt of a load: its fields, its digest, whatever ends the load, and its verification."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from loads import Insert, commands, lost
from places import ROOT
from receipts import HSET, receipt, write_users
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.load.receipt import _rejects_of
from fastresp.load.stored_receipt import ChangedSource, SourceDigest
from fastresp.server.local_server import LocalServer
from fastresp.server.options import Options
from fastresp.sources.chunks import Chunks

ROWS = [{"id": str(i), "name": f"name {i}"} for i in range(1000)]
PAGE = ROOT / "docs" / "reference" / "receipt.md"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipt.json"


def digest(path: Path) -> tuple[str, str | None]:
    found = receipt(path)["source"]["digest"]
    assert (found["sha256"] is None) == (found["reason"] is not None)
    return found["over"], found["sha256"]


def test_fields(
    insert: Insert, server: LocalServer, client: redis.Redis, users: Path, path: Path
) -> None:
    """Each documented field has the value of the load, and no others are there."""
    report = insert(users, HSET, server=server.url, receipt=path)
    found = receipt(path)
    documented = set(
        re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.M)))
    )
    assert documented >= {*found, *found["source"]}
    assert (found["format"], found["version"]) == ("fastresp receipt", 1)
    assert (found["state"], found["error"], found["stopped"]) == ("complete", None, None)
    assert found["started"] <= found["ended"] and found["started"].endswith("Z")
    sha256 = hashlib.sha256(users.read_bytes()).hexdigest()
    assert found["source"]["digest"] == {"over": "files", "sha256": sha256, "reason": None}
    assert found["source"]["read"] == {"source": str(users), "format": "csv"}
    [file] = found["source"]["files"]
    assert (file["path"], file["size"]) == (str(users), users.stat().st_size)
    assert found["template"] == HSET
    info = client.info()
    assert found["server"]["run_id"] == info["run_id"]
    assert found["server"]["version"] == info.get("valkey_version", info["redis_version"])
    assert found["counts"] == {name: getattr(report, name) for name in found["counts"]}
    assert found["counts"]["rows"] == 1000
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


def test_the_same_load_has_the_same_digest(
    server: LocalServer, users: Path, path: Path, tmp_path: Path
) -> None:
    """However the commands are sent; a table and a list with the same values are equal."""
    table = pa.table({name: [row[name] for row in ROWS] for name in ("id", "name")})
    for data in (ROWS, iter(ROWS), table, table.to_pandas(), table.to_batches(100)):
        fastresp.mass_insert(data, HSET, server.url, receipt=path)
        first = digest(path)
        assert first[0] == "commands" and first[1] is not None
        if data is ROWS:
            wanted = first
        assert first == wanted
    assert wanted[1] == hashlib.sha256(b"".join(
        fastresp.pack("HSET", f"user:{row['id']}", "name", row["name"]) for row in ROWS
    )).hexdigest()  # fmt: skip
    for options in (
        {"mode": "merge"}, {"connections": 3}, {"rate_limit": "50MB"}, {"transport": "redis-cli"},
        {"mode": fastresp.Serialize(exists="replace")},
        {"checkpoint": "job"}, {"mode": "merge", "connections": 2},
    ):  # fmt: skip
        fastresp.mass_insert(ROWS, HSET, server.url, receipt=path, **options)  # type: ignore[arg-type]
        assert digest(path) == wanted
    with fastresp.loader(HSET, server.url, receipt=path) as load:
        for row in ROWS:
            load.write(row)
    assert digest(path) == wanted
    # A file is another source, whose digest is of its bytes.
    pq.write_table(table, tmp_path / "users.parquet")
    for file in (users, tmp_path / "users.parquet"):
        fastresp.mass_insert(file, HSET, server.url, receipt=path)
        assert digest(path) == ("files", hashlib.sha256(file.read_bytes()).hexdigest())
    fastresp.mass_insert(fastresp.read(users, limit=1000), HSET, server.url, receipt=path)
    assert digest(path) == wanted


def test_asyncio_sources(server: LocalServer, path: Path) -> None:
    async def rows() -> AsyncIterator[dict[str, str]]:
        for row in ROWS:
            yield row

    async def load() -> None:
        await fastresp.aio.mass_insert(rows(), HSET, server.url, receipt=path)
        first = digest(path)
        async with fastresp.aio.loader(HSET, server.url, receipt=path) as loader:
            for row in ROWS:
                await loader.write(row)
        assert digest(path) == first
        assert (await fastresp.aio.verify(ROWS, receipt=path)).same
        with pytest.raises(ChangedSource, match="has changed since the load"):
            await fastresp.aio.verify(ROWS[1:], receipt=path)

    asyncio.run(load())


def test_errors_and_rejects(
    insert: Insert, server: LocalServer, client: redis.Redis, path: Path, tmp_path: Path
) -> None:
    client.set("user:7", "x")
    rejects = tmp_path / "rejects.jsonl"
    with pytest.raises(fastresp.LoadErrors):
        insert(ROWS, HSET, server=server.url, receipt=path, rejects=rejects)
    found = receipt(path)
    assert (found["state"], found["errors"], found["counts"]["failed"]) == (
        "complete", {"WRONGTYPE": 1}, 1,
    )  # fmt: skip
    assert found["rejects"] == {
        "path": str(rejects), "count": 1,
        "sha256": hashlib.sha256(rejects.read_bytes()).hexdigest(),
    }  # fmt: skip
    with pytest.raises(fastresp.LoadErrors):
        insert([("LPUSH", "user:7", "x")], server=server.url, receipt=path, on_error="stop")
    found = receipt(path)
    assert found["state"] == "stopped" and found["stopped"] and digest(path)[1] is None


@pytest.mark.parametrize(
    ("error", "state"),
    [(OSError("redis://u:secret@x"), "failed"), (KeyboardInterrupt(), "interrupted"),
     (SystemExit(1), "interrupted")],
)  # fmt: skip
def test_source_that_raises(
    insert: Insert, server: LocalServer, path: Path, error: BaseException, state: str
) -> None:
    def source() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise error

    path.write_text('{\n  "format": "fastresp receipt", of an earlier load')
    with pytest.raises(type(error)):
        insert(source(), "SET {0} {1}", server=server.url, receipt=path)
    found = receipt(path)
    assert found["state"] == state and found["error"]["type"] == type(error).__name__
    assert digest(path) == ("commands", None) and "secret" not in path.read_text()
    with pytest.raises(ValueError, match="is not complete"):
        fastresp.verify(receipt=path)


def test_cancelled(server: LocalServer, path: Path) -> None:
    async def rows() -> AsyncIterator[tuple[str, str]]:
        yield "a", "b"
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(fastresp.aio.mass_insert(rows(), "SET {0} {1}", server.url, receipt=path))
    assert receipt(path)["state"] == "interrupted"


def test_dropped_loader(server: LocalServer, path: Path) -> None:
    loader = fastresp.loader("SET {0} {1}", server.url, receipt=path)
    loader.__enter__()
    loader.write(("a", "b"))
    with pytest.warns(ResourceWarning):
        del loader
    assert receipt(path)["state"] == "interrupted"


@pytest.mark.few(1)
def test_lost_server(insert: Insert, start_server: Callable[..., LocalServer], path: Path) -> None:
    """Commands in doubt and unsent commands are counted."""
    server = start_server()
    error = lost(insert, server.url, commands(50_000, 40_000, server.stop), receipt=path)
    found = receipt(path)
    assert error.report is not None
    assert found["state"] == "failed" and found["error"]["type"] == "TransportError"
    assert found["counts"]["in_doubt"] == error.report.in_doubt


def test_no_server(path: Path) -> None:
    url = "redis://user:secret@127.0.0.1:1/3"
    with pytest.raises(fastresp.TransportError):
        fastresp.mass_insert(ROWS, HSET, url, receipt=path)
    found = receipt(path)
    assert found["server"]["url"] == "redis://127.0.0.1:1/3"
    assert found["server"]["product"] is None and found["counts"]["commands"] == 0
    assert "secret" not in path.read_text()


def test_resumed(server: LocalServer, path: Path, users: Path) -> None:
    """A resumed load of rows has no digest of all commands; files always have one."""

    def failing() -> Iterator[dict[str, str]]:
        yield from ROWS[:500]
        raise OSError("the source has failed")

    checkpoint = fastresp.Checkpoint("job", source_id="a", resume=True)
    with pytest.raises(OSError, match="the source has failed"):
        fastresp.mass_insert(failing(), HSET, server.url, receipt=path, checkpoint=checkpoint)
    for resumed in (500, 1000):
        fastresp.mass_insert(ROWS, HSET, server.url, receipt=path, checkpoint=checkpoint)
        found = receipt(path)
        assert (found["counts"]["resumed_at"], found["checkpoint"]) == (resumed, "job")
        assert found["state"] == "complete" and digest(path) == ("commands", None)
    with pytest.raises(ValueError, match="has no digest of the source"):
        fastresp.verify(ROWS, receipt=path)
    for _ in range(2):
        checkpoint = fastresp.Checkpoint("files", resume=True)
        fastresp.mass_insert(users, HSET, server.url, receipt=path, checkpoint=checkpoint)
        assert digest(path)[1] is not None and fastresp.verify(receipt=path).same


def test_replicate(server: LocalServer, path: Path, users: Path) -> None:
    fastresp.mass_insert(users, HSET, server.url, receipt=path, mode="replicate")
    assert receipt(path)["counts"]["keys"] == 1000 and fastresp.verify(receipt=path).same


def test_limited_user(start_server: Callable[..., LocalServer], path: Path, users: Path) -> None:
    server = start_server()
    client = redis.Redis.from_url(server.url)
    client.acl_setuser(
        "loader", enabled=True, passwords=["+secret"], keys="*",
        commands=["+hset", "+ping", "+echo", "+hmget"],
    )  # fmt: skip
    client.close()
    url = f"{server.url}?username=loader&password=secret"
    fastresp.mass_insert(users, HSET, url, receipt=path)
    assert receipt(path)["server"]["run_id"] is None and "secret" not in path.read_text()


@pytest.mark.parametrize("name", ["redis-8.2", "valkey-9.1"])
def test_products(
    start_server: Callable[..., LocalServer], name: str, path: Path, users: Path
) -> None:
    server = start_server(program=located(name, WHEEL_SERVERS))
    fastresp.mass_insert(users, HSET, server.url, receipt=path)
    found = receipt(path)["server"]
    assert f"{found['product']}-{found['version'].rpartition('.')[0]}" == name
    assert fastresp.verify(receipt=path).same


def test_interrupted_while_files_are_read(path: Path, tmp_path: Path) -> None:
    """Ctrl-C at the end of a load, while files are read: the receipt has no digest."""
    large, resp = tmp_path / "large.resp", fastresp.pack("SET", "a", 1)
    large.write_bytes(resp)
    digest = SourceDigest(fastresp.RespFile(large))
    os.truncate(large, 1 << 40)  # a hole, which takes minutes to read
    digest.start(Chunks([], None, Options()))
    digest.stop("interrupted")
    assert digest.result() is None and digest.reason == "interrupted"


def test_file_that_changes_after_its_digest(tmp_path: Path) -> None:
    """A load reads a file for longer than its digest does."""
    file = tmp_path / "a.resp"
    file.write_bytes(fastresp.pack("SET", "a", 1))
    digest = SourceDigest(fastresp.RespFile(file))
    digest.start(Chunks([], None, Options()))
    assert digest.result() is not None
    file.write_bytes(fastresp.pack("SET", "a", 2) * 2)
    assert digest.result() is None
    assert digest.reason == f"{file} was changed while it was read"
    file.unlink()
    assert digest.result() is None


@pytest.mark.skipif(not os.path.isfile("/proc/self/mem"), reason="needs Linux")
def test_rejects_that_cannot_be_read() -> None:
    """A digest of a part of the file would be wrong."""
    found = _rejects_of(Options(rejects="/proc/self/mem"))
    assert found == {"path": "/proc/self/mem", "count": None, "sha256": None}


def test_cancelled_while_files_are_read(
    server: LocalServer, client: redis.Redis, path: Path, tmp_path: Path
) -> None:
    """A query may need only a part of a file. The report and the receipt are kept."""
    large = tmp_path / "large.csv"
    large.write_text("id,name\n1,Ann\n")
    os.truncate(large, 1 << 40)
    source = fastresp.read(large, sql="SELECT * FROM source LIMIT 1")

    async def load() -> None:
        loading = fastresp.aio.mass_insert(source, HSET, server.url, receipt=path)
        task = asyncio.create_task(loading)
        while not client.dbsize():
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(load())
    assert caught.value.report.commands == 1  # type: ignore[attr-defined]
    assert receipt(path)["counts"]["commands"] == 1 and digest(path) == ("files", None)


class TestPath:
    def test_other_file(self, server: LocalServer, client: redis.Redis, path: Path) -> None:
        path.write_text("precious")
        with pytest.raises(FileExistsError, match="is not a receipt file"):
            fastresp.mass_insert(ROWS, HSET, server.url, receipt=path)
        assert path.read_text() == "precious" and client.dbsize() == 0

    def test_same_file_as_others(self, server: LocalServer, path: Path, users: Path) -> None:
        with pytest.raises(ValueError, match="another option; use another one for receipt="):
            fastresp.mass_insert(ROWS, HSET, server.url, receipt=path, rejects=str(path))
        with pytest.raises((ValueError, FileExistsError)):
            fastresp.mass_insert(users, HSET, server.url, receipt=users)
        assert users.stat().st_size > 1000

    def test_missing_folder(self, server: LocalServer, client: redis.Redis, path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            fastresp.mass_insert(ROWS, HSET, server.url, receipt=path / "missing" / "r.json")
        assert client.dbsize() == 0

    def test_full_disk(self, server: LocalServer, client: redis.Redis, path: Path) -> None:
        """A load that succeeded raises, with its report; there is no half file."""
        code = (
            "import fastresp, resource, signal, sys\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))\n"
            "url, path = sys.argv[1:]\n"
            "try: fastresp.mass_insert([(1, 2)], 'SET {0} {1}', url, receipt=path)\n"
            "except OSError as error: print(error.report.replies, error)\n"
        )
        done = preloaded.run(
            [sys.executable, "-c", code, server.url, str(path)],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.startswith("1 [Errno 27] File too large; no file was written")
        assert client.dbsize() == 1 and list(path.parent.iterdir()) == []

    @pytest.mark.few(1)
    @pytest.mark.parametrize("seed", range(50))
    def test_killed(self, server: LocalServer, path: Path, seed: int) -> None:
        """After SIGKILL, there is a whole receipt or none."""
        code = (
            "import fastresp, sys\n"
            "while True:\n"
            "    fastresp.mass_insert([(1, 2)], 'SET {0} {1}', sys.argv[1], receipt=sys.argv[2])\n"
            "    print(flush=True)\n"
        )
        command = [sys.executable, "-c", code, server.url, str(path)]
        with preloaded.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(3 + seed % 7):
                child.stdout.readline()
            time.sleep(random.Random(seed).uniform(0, 0.005))  # the moment is random
            child.kill()
        assert not path.exists() or receipt(path)["state"] == "complete"


class TestVerify:
    def test_differences(
        self, server: LocalServer, client: redis.Redis, users: Path, path: Path
    ) -> None:
        fastresp.mass_insert(str(users), HSET, server.url, receipt=path)
        assert fastresp.verify(receipt=path).values == 1000
        assert fastresp.verify(users, receipt=path).same
        client.delete("user:1")
        assert fastresp.verify(receipt=path).by_kind == {"missing": 1}
        with pytest.raises(ValueError, match="the receipt has the template"):
            fastresp.verify(receipt=path, template=HSET)

    @pytest.mark.parametrize("change", ["append", "same size", "remove"])
    def test_changed_file(self, server: LocalServer, users: Path, path: Path, change: str) -> None:
        fastresp.mass_insert(users, HSET, server.url, receipt=path)
        text = users.read_text()
        changed = {"append": f"{text}1,2\n", "same size": text.replace("name 1", "name 2")}
        times = users.stat().st_atime_ns, users.stat().st_mtime_ns
        if change == "remove":
            users.unlink()
        else:
            users.write_text(changed[change])
            os.utime(users, ns=times)
        with pytest.raises(ChangedSource, match="is missing" if change == "remove" else "SHA-256"):
            fastresp.verify(receipt=path)

    def test_every_kind_of_file(self, server: LocalServer, tmp_path: Path, path: Path) -> None:
        """The rows are read again with the options of the load."""
        texts = tmp_path / "texts.csv"
        texts.write_bytes("1;'Zo\xe9';\n2;b;x;\n3;c;x\n".encode("latin-1"))
        read = fastresp.read
        options: dict[str, Any] = {"delimiter": ";", "quote": "'", "encoding": "latin-1"}
        options |= {"columns": ["id", "name", "x"], "bad_rows": "skip"}
        folder = tmp_path / "day=1"
        folder.mkdir()
        for name in ("a", "b"):
            (folder / f"{name}.jsonl").write_text(f'{{"id": "{name}", "v": [1, 2]}}\n')
        fastresp.dump(ROWS, HSET, tmp_path / "users.resp")
        fastresp.dump(ROWS, HSET, tmp_path / "dump.rdb", format="rdb")
        lines = tmp_path / "lines.txt"
        lines.write_text("HSET l:1 a b\nHSET l:2 a 'b c'\n")
        query = f"SELECT id, v[1] AS first FROM '{folder}/a.jsonl'"
        sources: list[tuple[Any, str | None, str]] = [
            (read(texts, **options), "HSET t:{id} {**}", "files"),
            (read(texts, **options, limit=1), "HSET t:{id} {**}", "commands"),
            (read(f"{tmp_path}/day=*/*.jsonl"), "HSET d:{id} day {day} v {v!json}", "files"),
            (read([folder / "b.jsonl", folder / "a.jsonl"]), "SET e:{id} {*!json}", "files"),
            (read(folder / "a.jsonl", sql="SELECT id FROM source"), "SET f:{id} x", "files"),
            (read(folder / "a.jsonl", sort_by="id"), "SET f:{id} x", "files"),
            (read(query), "SET g:{id} {first}", "commands"),
            (read(tmp_path / "users.resp"), None, "files"),
            (read(tmp_path / "users.resp", limit=10), None, "commands"),
            (read(lines, format="commands"), None, "files"),
            (read(lines, format="lines"), "SADD lines {line}", "files"),
            (read(tmp_path / "dump.rdb", match="user:{id}"), "HSET u:{id} name {name}", "files"),
        ]
        for data, template, over in sources:
            fastresp.mass_insert(data, template, server.url, receipt=path)
            assert digest(path)[0] == over, data
            report = fastresp.verify(receipt=path)
            assert report.same and report.rows, data

    def test_sources_that_are_read_once(self, server: LocalServer, users: Path, path: Path) -> None:
        with users.open("rb") as file:
            fastresp.mass_insert(fastresp.read(file), HSET, server.url, receipt=path)
        assert receipt(path)["source"]["read"] is None
        with pytest.raises(ValueError, match=r"call fastresp\.verify\(data, receipt="):
            fastresp.verify(receipt=path)
        assert fastresp.verify(ROWS, receipt=path).same
        with pytest.raises(ValueError, match=r"the digest in .* is of commands"):
            fastresp.verify(users, receipt=path)

    def test_query_without_order(self, server: LocalServer, path: Path) -> None:
        """Its rows are the same, but their order is not; the message says what to do."""
        query = "SELECT range AS id FROM range(1000) ORDER BY random()"
        fastresp.mass_insert(fastresp.read(query), "SET o:{id} x", server.url, receipt=path)
        with pytest.raises(ChangedSource, match="in the same order each time: use ORDER BY"):
            fastresp.verify(receipt=path)

    def test_options(self, server: LocalServer, client: redis.Redis, path: Path) -> None:
        """Nulls, the default function, and the start of the load are as in the load."""
        rows = [{"id": 1, "name": None, "at": {1}}]
        template = "HSET n:{id} {**}; EXPIRE n:{id} 100"
        fastresp.mass_insert(
            rows, template, server.url, nulls="empty", default=str, receipt=path
        )  # fmt: skip
        with pytest.raises(ValueError, match="default= function"):
            fastresp.verify(rows, receipt=path)
        assert fastresp.verify(rows, receipt=path, default=str).same
        client.expire("n:1", 10)  # shorter than since the start
        assert not fastresp.verify(rows, receipt=path, default=str).same

    def test_server(
        self, start_server: Callable[..., LocalServer], users: Path, path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """REDIS_URL has the password of the same server."""
        server = start_server()
        fastresp.mass_insert(users, HSET, server.url, receipt=path)
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "secret")
        with pytest.raises(fastresp.TransportError):
            fastresp.verify(receipt=path)
        monkeypatch.setenv("REDIS_URL", f"{server.url}?password=secret")
        assert fastresp.verify(receipt=path).same
        monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
        assert fastresp.verify(receipt=path, server=f"{server.url}?password=secret").same

    def test_damaged(self, server: LocalServer, users: Path, path: Path) -> None:
        fastresp.mass_insert(users, HSET, server.url, receipt=path)
        text, whole = path.read_text(), receipt(path)
        other = path.with_name("other.json")
        cases: list[tuple[str, str]] = [
            ("", "is not a receipt"), ("[1]", "is not a receipt"), ("{}", "is not a receipt"),
            ("[" * 100_000, "is not a receipt"), (text[:-40], "damaged receipt: its end"),
            (json.dumps(whole | {"version": 2}), "from a newer fastresp"),
            (json.dumps(whole | {"version": "1"}), "its version is missing or wrong"),
            (json.dumps(whole | {"started": "today"}), "its started is missing"),
            (json.dumps(whole | {"started": "0001-01-01"}), "its started is missing"),
            (json.dumps(whole | {"counts": []}), "its counts.resumed_at is missing"),
        ]  # fmt: skip
        for read in ({"source": 5}, {}, {"source": str(users), "sql": {}}, {"source": "x", "y": 1}):
            source = whole["source"] | {"read": read}
            cases.append((json.dumps(whole | {"source": source}), "source.read is missing or"))
        for content, message in cases:
            other.write_text(content)
            with pytest.raises(ValueError, match=message):
                fastresp.verify(receipt=other)


def test_a_mirrored_load_is_verified_with_its_pattern(
    server: LocalServer, client: redis.Redis, users: Path, path: Path
) -> None:
    mirror = fastresp.Mirror("user:*", limit="100%")
    client.hset("user:0", "stale", "1")
    client.hset("user:stale", "a", "b")
    fastresp.mass_insert(users, HSET, server.url, receipt=path, mirror=mirror)
    found = receipt(path)
    assert found["options"]["mirror"] == {"keys": "user:*", "limit": "100%"}
    assert found["not_mirrored"] is None
    assert (found["counts"]["deleted"], found["counts"]["deleted_fields"]) == (1, 1)
    assert fastresp.verify(receipt=path).same
    client.hset("user:0", "new", "1")
    client.hset("user:new", "a", "b")
    assert fastresp.verify(receipt=path).differing == 2
    assert fastresp.verify(receipt=path, sample="50%").differing <= 1  # no keys of the pattern


@pytest.mark.parametrize("rows", [False, True])
def test_replaced_hashes_are_verified_as_a_whole(
    rows: bool, server: LocalServer, client: redis.Redis, path: Path, tmp_path: Path
) -> None:
    """The last row with fields replaces all others; a row without fields replaces nothing."""
    data = [{"id": 1, "a": 1}, {"id": 1, "b": 2}, {"id": 1}, {"id": 2}]
    client.hset("user:2", "old", "stays")
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in data))
    mode = fastresp.Merge(exists="replace")
    template = "HSET user:{id} {**-id}"
    given: Any = data if rows else source
    fastresp.mass_insert(given, template, server.url, receipt=path, mode=mode)
    assert client.hgetall("user:1") == {b"b": b"2"}
    verify = partial(fastresp.verify, data if rows else None, receipt=path)
    assert (verify().same, verify(exact=True).same, client.hlen("user:2")) == (True, True, 1)
    client.hset("user:1", "a", "1")
    assert verify(exact=True).differing == 1
    client.hset("user:1", "b", "1")
    assert [each.field for each in verify().differences] == [b"b"]
