"""``dump(format="rdb")``: servers that read the file have the same data as after a load."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pytest
import redis
from needed import imported
from peak import PEAK
from server_programs import WHEEL_SERVERS, located
from twice import SERVERS, debugged
from waiting import until_loaded

import fastresp
from fastresp import EncodeError, TemplateError
from fastresp.encode.payload.format import checksum, shifted
from fastresp.load import rdb_file

VERSIONS = [9, 10, 11]
# The newest version that a server reads; other servers read all.
NEWEST = {"redis-6.2": 9, "redis-server": 10}
DAY_MS = 86_400_000


def commands() -> Iterator[tuple[Any, ...]]:
    """Keys of each kind and size, each created by one to four commands."""
    source = random.Random(7)
    for number in range(300):
        size = source.choice([1, 2, 7, 60, 200])
        words = [source.choice([i, -i, f"word {i}", "x" * (i % 90)]) for i in range(size)]
        kind = source.choice(["SET", "HSET", "RPUSH", "LPUSH", "SADD", "ZADD"])
        for _ in range(source.randrange(1, 5)):
            if kind == "SET":
                yield kind, f"key:{number}", words[0]
            elif kind in ("HSET", "ZADD"):
                pairs = [each for word in words for each in (source.randrange(99), word)]
                yield kind, f"key:{number}", *(pairs if kind == "ZADD" else pairs[::-1])
            else:
                yield kind, f"key:{number}", *words


def counts(data: bytes) -> tuple[int, int]:
    """Return the numbers of keys and of expiring keys in a file's header."""
    at = data.index(b"\xfe\x00\xfb\x80") + 4
    keys, middle, expiring = unpack(">IBI", data[at : at + 9])
    assert middle == 0x80
    return keys, expiring


def check(path: Path, program: str) -> str:
    """Check a file with ``redis-check-rdb``, which is the server's program under another name."""
    folder = path.with_suffix(".check")
    folder.mkdir(exist_ok=True)
    name = "valkey-check-rdb" if "valkey" in Path(program).name else "redis-check-rdb"
    link = folder / name
    link.symlink_to(program)
    done = subprocess.run([str(link), str(path)], capture_output=True, text=True, timeout=60)
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stdout
    assert "RDB looks OK" in done.stdout
    return done.stdout


@contextmanager
def reading(path: Path, name: str = "redis-server") -> Iterator[redis.Redis]:
    """Start a server with a file; yield a client once the file is loaded."""
    place = ["--dir", str(path.parent), "--dbfilename", path.name]
    with debugged(name, *place) as server, redis.Redis.from_url(server.url) as client:
        until_loaded(client)
        yield client


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "version"),
    [(name, v) for name in SERVERS for v in VERSIONS if v <= NEWEST.get(name, v)],
)
def test_servers_have_the_same_data_as_after_a_load(
    name: str, version: int, tmp_path: Path
) -> None:
    path = tmp_path / "dump.rdb"
    count = fastresp.dump(commands(), None, path, format="rdb", rdb_version=version)
    assert count == len(list(commands()))
    assert path.read_bytes().startswith(b"REDIS%04d" % version)
    assert counts(path.read_bytes()) == (300, 0)
    assert "300 keys read" in check(path, located(name, WHEEL_SERVERS))
    with reading(path, name) as client:
        assert client.dbsize() == 300
        found = client.execute_command("DEBUG DIGEST")
    with debugged(name) as server, redis.Redis.from_url(server.url) as live:
        fastresp.mass_insert(commands(), server=server.url, transport="socket")
        assert live.execute_command("DEBUG DIGEST") == found


def test_expiries(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    rows: list[tuple[Any, ...]] = [
        ("SET", "ex", 1, "EX", 86_400),
        ("SET", "px", 1, "px", DAY_MS * 2),
        ("HSET", "h", "a", 1), ("EXPIRE", "h", 3 * 86_400),
        ("RPUSH", "l", "a"), ("EXPIRE", "l", 1), ("RPUSH", "l", "b"), ("PEXPIRE", "l", 4 * DAY_MS),
        ("SET", "none", 1, "EX", 5), ("SET", "none", 2),
    ]  # fmt: skip
    assert fastresp.dump(rows, None, path, format="rdb") == 10
    assert counts(path.read_bytes()) == (5, 4)
    with reading(path) as client:
        for number, key in enumerate(["ex", "px", "h", "l"], start=1):
            assert number * DAY_MS - 100_000 < client.pttl(key) <= number * DAY_MS
        assert client.ttl("none") == -1
        assert client.lrange("l", 0, -1) == [b"a", b"b"]


def test_template_and_columns(tmp_path: Path) -> None:
    pa = imported("pyarrow")
    path = tmp_path / "dump.rdb"
    table = pa.table({"id": range(50_000), "a": [1.5] * 50_000, "b": ["text"] * 50_000})
    template = "HSET row:{id} {**}; EXPIRE row:{id} 86400"
    assert fastresp.dump(table, template, str(path), format="rdb") == 100_000
    assert counts(path.read_bytes()) == (50_000, 50_000)
    with reading(path) as client:
        assert client.dbsize() == 50_000
        assert client.hgetall("row:49999") == {b"a": b"1.5", b"b": b"text"}


def test_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    assert fastresp.dump([], "SET {0} {1}", path, format="rdb") == 0
    assert counts(path.read_bytes()) == (0, 0)
    with reading(path) as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("zeros", [0, 1, 7, 1000, 70_001])
def test_checksum_with_zeros_after(zeros: int) -> None:
    assert shifted(checksum(b"abc"), zeros) == checksum(b"abc" + bytes(zeros))


def test_checksum_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    rows = [(number, "x" * 1000) for number in range(30_000)]
    fastresp.dump(rows, "SET {0} {1}", path, format="rdb")
    data = path.read_bytes()
    assert data[-9:] == b"\xff" + pack("<Q", checksum(data[:-8]))


MOST = 512


@pytest.mark.parametrize(("first", "second"), [(0, 2), (3, 400), (0, 1999), (600, 39_999)])
def test_rows_of_a_key_that_are_not_adjacent(
    first: int, second: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdb_file, "MAX_KEYS", MOST)
    keys = [f"key:{number}" for number in range(second)] + [f"key:{first}", "more"]
    path = tmp_path / "dump.rdb"
    path.write_bytes(b"old")
    with pytest.raises(EncodeError, match=f"row {first:,} and row {second:,} make the") as caught:
        fastresp.dump(keys, "SET {0} v", path, format="rdb")
    assert caught.value.row == second
    assert os.listdir(tmp_path) == ["dump.rdb"]
    assert path.read_bytes() == b"old"


def test_keys_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinct keys, and adjacent rows of a key, are not reported as duplicates."""
    monkeypatch.setattr(rdb_file, "MAX_KEYS", MOST)
    path = tmp_path / "dump.rdb"
    rows = [(f"key:{number // 2}", number) for number in range(100_000)]
    assert fastresp.dump(rows, "RPUSH {0} {1}", path, format="rdb") == 100_000
    assert counts(path.read_bytes()) == (50_000, 0)


def interrupted() -> Iterator[Any]:
    yield from ((number, "x" * 1000) for number in range(20_000))
    os.kill(os.getpid(), signal.SIGINT)
    yield from ((number, "x" * 1000) for number in range(20_000, 30_000))


def failing(error: Any) -> Iterator[Any]:
    yield from ((number, "x" * 1000) for number in range(20_000))
    if isinstance(error, BaseException):
        raise error
    yield error


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (lambda: failing(KeyError("mine")), KeyError),
        (lambda: failing((1, None)), EncodeError),
        (lambda: failing((1, "not adjacent")), EncodeError),
        (interrupted, KeyboardInterrupt),
    ],
    ids=["source", "null", "repeated", "Ctrl-C"],
)
@pytest.mark.parametrize("before", [None, b"old"])
def test_an_error_changes_nothing(
    source: Any, kind: type[BaseException], before: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "dump.rdb"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(kind):
        fastresp.dump(source(), "SET {0} {1}", path, format="rdb")
    assert os.listdir(tmp_path) == ([] if before is None else ["dump.rdb"])
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("INCR", "a"), '"INCR" does not make a string, hash'),
        (("MULTI",), '"MULTI" does not make'),
        (("EXPIRE", "a", 5), "must follow a command that makes its key"),
        (("SET", "a", 1, "NX"), "SET may only have EX or PX"),
        (("SET", "a", 1, "EX", 0), "SET may only have EX or PX"),
        (("ZADD", "a", "x", "b"), "not a plain decimal number"),
        (("HSET", "a", "b"), "1 argument after the key"),
    ],
)
def test_commands_that_create_no_value(command: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match=words):
        fastresp.dump([("SET", "x", 1), command], None, tmp_path / "dump.rdb", format="rdb")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("template", ["INCR {0}", "MULTI; SET {0} 1; EXEC", "SET {0} 1; SET b 1"])
def test_templates_that_create_no_value(template: str, tmp_path: Path) -> None:
    def rows() -> Iterator[Any]:
        raise AssertionError("read")
        yield

    with pytest.raises(TemplateError, match="RDB file"):
        fastresp.dump(rows(), template, tmp_path / "dump.rdb", format="rdb")
    assert os.listdir(tmp_path) == []


def test_large_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdb_file, "MAX_KEY_BYTES", 1_000_000)
    rows = ["x" * 1000] * 2000
    with pytest.raises(EncodeError, match=r'key "key" is too large for an RDB file: .* 1,000,000'):
        fastresp.dump(rows, "RPUSH key {0}", tmp_path / "dump.rdb", format="rdb")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("version", [8, 12, "10", None])
def test_unsupported_versions(version: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rdb_version must be 9 \(read by"):
        fastresp.dump([], "SET a b", tmp_path / "x", format="rdb", rdb_version=version)
    assert os.listdir(tmp_path) == []


def test_other_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="an RDB file needs a path"):
        fastresp.dump([], "SET a b", io.BytesIO(), format="rdb")
    with pytest.raises(ValueError, match="format must be 'resp' or 'rdb'"):
        fastresp.dump([], "SET a b", tmp_path / "x", format="aof")  # type: ignore[arg-type]
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match="is also the source"):
        fastresp.dump(tmp_path / "x.csv", "SET {a} b", tmp_path / "x.csv", format="rdb")
    assert (tmp_path / "x.csv").read_text() == "a\n1\n"


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("becomes", ["another file", "symbolic link"])
def test_path_that_changes(tmp_path: Path, before: str | None, becomes: str) -> None:
    """The file that has appeared at the path is kept, as is the new file, under another name."""
    path, other = tmp_path / "a.rdb", tmp_path / "other"
    other.write_text("other")
    if before is not None:
        path.write_text(before)

    def rows() -> Iterator[tuple[int, int]]:
        yield 1, 1
        path.unlink(missing_ok=True)
        if becomes == "symbolic link":
            path.symlink_to(other)
        else:
            path.write_text("other")

    with pytest.raises(FileExistsError, match="was replaced meanwhile") as caught:
        fastresp.dump(rows(), "SET {0} {1}", path, format="rdb")
    assert path.read_text() == other.read_text() == "other"
    [new] = tmp_path.glob(".fastresp-*")
    assert str(new) in str(caught.value)
    assert counts(new.read_bytes()) == (1, 0)


def test_kinds_of_paths(tmp_path: Path) -> None:
    def write(path: Any) -> None:
        fastresp.dump([(1, 2)], "SET {0} {1}", path, format="rdb")

    umask = os.umask(0o027)
    try:
        write(tmp_path / "new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    (tmp_path / "link").symlink_to("new")
    (tmp_path / "new").write_bytes(b"")
    write(str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert counts((tmp_path / "new").read_bytes()) == (1, 0)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
    with pytest.raises(ValueError, match="is not a file"):
        write("/dev/null")
    with pytest.raises(ValueError, match="is not a file"):
        write(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file was written"):
        write(tmp_path / "missing" / "x")
    assert sorted(os.listdir(tmp_path)) == ["link", "new"]


LIMITED = """
import resource, sys
import fastresp
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    rows = ((i, "v" * 1000) for i in range(20_000))
    fastresp.dump(rows, "SET {0} {1}", sys.argv[1], format="rdb")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", [0, 100, 5_000_000])
def test_full_disk(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    path.touch()
    # -B: under the limit, Python would write truncated files for all later processes.
    command = [sys.executable, "-B", "-c", LIMITED, str(path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "File too large; no file was written\n"
    assert os.listdir(tmp_path) == ["dump.rdb"]
    assert path.read_bytes() == b""


FORKING = """
import os, sys
import fastresp

def rows():
    yield from ((i, "v" * 1000) for i in range(5_000))
    global child
    child = os.fork()
    yield from ((i, "v" * 1000) for i in range(5_000, 20_000))

try:
    print(fastresp.dump(rows(), "SET {0} {1}", sys.argv[1], format="rdb"))
except OSError as error:
    os._exit(7 * ("parent process" in str(error) and not child))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_fork_in_the_source(tmp_path: Path) -> None:
    """The child can't continue the file, and leaves it to its parent."""
    path = tmp_path / "dump.rdb"
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("20000\n7\n", "")
    data = path.read_bytes()
    assert data[-8:] == pack("<Q", checksum(data[:-8]))
    assert os.listdir(tmp_path) == ["dump.rdb"]


MEMORY = f"""
import sys
import fastresp
{PEAK}
rows = ((f"key:{{i}}", i, "x" * 60) for i in range(int(sys.argv[2])))
fastresp.dump(rows, "HSET {{0}} a {{1}} b {{2}}", sys.argv[1], format="rdb")
print(peak())
"""


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    """Beyond the keys kept in memory, memory does not grow with the file."""
    peaks = []
    for count in (1_100_000, 4_000_000):
        command = [sys.executable, "-c", MEMORY, str(tmp_path / "x"), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 10_000
    assert peaks[1] < 160_000
