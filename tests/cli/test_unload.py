"""``fastresp unload``: writes hashes to files that ``fastresp load`` reloads."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from command_line import ENDED, PROGRAM, invoke, run
from pyarrow import parquet
from waiting import until

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.cli.unload import write_json_lines
from fastresp.server.local_server import LocalServer

pytestmark = pytest.mark.usefixtures("server", "url_in_environment")

HSET = "HSET user:{id} {**}"
TEXTS = [
    "Ann", "", None, 'say "hi"', "a,b;c\td", "line\nline\r\nline\r", "Zoë 😀", "'", "\\n", " x ",
    "null", "NaN", "00123", "1.10", "{}", "\0", "x" * 10_000,
]  # fmt: skip


def users() -> list[dict[str, Any]]:
    """Return every pair of texts, with an id for each row."""
    pairs = [(a, b) for a in TEXTS for b in TEXTS if a is not None or b is not None]
    return [{"id": str(i), "name": a, "note": b} for i, (a, b) in enumerate(pairs)]


def stored(client: redis.Redis) -> dict[bytes, dict[bytes, bytes]]:
    return {key: client.hgetall(key) for key in client.scan_iter()}


def test_the_second_argument_is_the_output_file(client: redis.Redis, tmp_path: Path) -> None:
    """A file that the shell substituted for an unquoted pattern is not overwritten."""
    client.hset("user:1", "name", "Ann")
    output = tmp_path / "users.csv"
    result = invoke("unload", "user:*", output)
    assert result.stderr.startswith(f"1 row written to {output}: ")
    before = output.read_bytes()
    assert before.endswith(b'"user:1","Ann"\n')
    for arguments in ([tmp_path / "user.csv", output], ["user:*", tmp_path / "dump.rdb"]):
        result = invoke("unload", *arguments, "--format", "csv")
        assert result.exit_code
    assert "dump.rdb is no output file ending in .csv, .jsonl or .parquet" in result.stderr
    result = invoke("unload", "user:*", output, "-o", output)
    assert (result.exit_code, "two output files" in result.stderr) == (Exit.USAGE, True)
    assert output.read_bytes() == before


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_field_names_round_trip(suffix: str, client: redis.Redis, tmp_path: Path) -> None:
    names = [
        "a",
        "",
        "b,c",
        'q"q',
        "line\nend",
        "\t",
        "A",
        " x ",
        "column_2",
        "é",
        "\r",
        "{x}",
        "%s",
    ]
    client.hset("h:1", mapping={name: str(place) for place, name in enumerate(names)})
    client.hset("h:2", mapping={"a": "1"})
    before = stored(client)
    path = tmp_path / f"x.{suffix}"
    assert invoke("unload", "h:{id}", "-o", path).exit_code == Exit.OK
    client.flushall()
    done = invoke("load", path, "HSET h:{id} {**}", "--nulls", "skip")
    assert (done.exit_code, stored(client)) == (Exit.OK, before)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_round_trip(suffix: str, client: redis.Redis, tmp_path: Path) -> None:
    rows = users()
    fastresp.mass_insert(rows, HSET, nulls="skip")
    before = stored(client)
    path = tmp_path / f"users.{suffix}"
    result = invoke("unload", "user:{id}", "--fields", "name,note", "-o", path)
    assert result.exit_code == Exit.OK
    assert f"{len(rows)} rows written to" in result.stderr
    read = pa.table(fastresp.read(path)).to_pylist()
    assert sorted(read, key=lambda row: int(row["id"])) == rows
    client.flushall()
    result = invoke("load", path, HSET, "--nulls", "skip")
    assert result.exit_code == Exit.OK
    assert stored(client) == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_bytes(client: redis.Redis, tmp_path: Path) -> None:
    client.hset("photo:1", mapping={"data": b"\xff\0\r\n", "name": "ä"})
    client.hset("photo:\xff".encode("latin-1"), mapping={"data": b"", "name": "b"})
    before = stored(client)
    path = tmp_path / "photos.parquet"
    result = invoke(
        "unload", "photo:{id}", "--fields", "data", "--fields", "name", "--binary", "data,id",
        "--output", path,
    )  # fmt: skip
    assert result.exit_code == Exit.OK
    table = parquet.read_table(path)
    assert [str(kind) for kind in table.schema.types] == ["binary", "binary", "string"]
    client.flushall()
    assert invoke("load", path, "HSET photo:{id} {**}").exit_code == Exit.OK
    assert stored(client) == before


def test_stdout(client: redis.Redis) -> None:
    client.hset("user:1", mapping={"name": "Ann", "city": ""})
    done = run("unload", "user:*", "--fields", "name,city,age")
    assert done.stdout == '"key","name","city","age"\n"user:1","Ann","",\n'
    assert done.stderr.startswith("1 row written: ")
    done = run("unload", "user:{id}", "--fields", "name,age", "-o", "-", "--format", "jsonl")
    assert done.stdout == '{"id": "1", "name": "Ann", "age": null}\n'
    done = run("unload", "none:*", "--fields", "name")
    assert (done.returncode, done.stdout) == (Exit.OK, '"key","name"\n')


def test_json_lines_equal_pythons() -> None:
    rows = [{'a %s "b"': text, "ü": text} for text in TEXTS]
    file = io.BytesIO()
    write_json_lines(file, pa.RecordBatch.from_pylist(rows))
    lines = file.getvalue().decode().split("\n")
    assert lines == [*(json.dumps(row, ensure_ascii=False) for row in rows), ""]


def test_pipe_into_load(client: redis.Redis) -> None:
    client.hset("user:1", mapping={"name": "Ann", "city": ""})
    unload = [*PROGRAM, "unload", "user:{id}", "--fields", "name,city"]
    load = [*PROGRAM, "load", "-", "HSET copy:{id} {**}", "--format", "csv"]
    with preloaded.Popen(unload, stdout=subprocess.PIPE) as first:
        preloaded.run(load, stdin=first.stdout, check=True, timeout=200)
    assert client.hgetall("copy:1") == {b"name": b"Ann", b"city": b""}


def test_reader_that_exits(client: redis.Redis) -> None:
    rows = ({"id": i, "name": "x" * 100} for i in range(200_000))
    fastresp.mass_insert(rows, HSET)
    command = [*PROGRAM, "unload", "user:*", "--fields", "name"]
    with preloaded.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == Exit.ERRORS
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_json(client: redis.Redis, tmp_path: Path) -> None:
    client.hset("user:1", "name", "Ann")
    path = tmp_path / "users.csv"
    done = run("unload", "user:*", "--fields", "name", "-o", path, "--json")
    fields = json.loads(done.stdout)
    assert (fields["rows"], fields["exit_code"], fields["error"]) == (1, 0, None)
    assert (fields["output"], done.stderr) == (str(path), "")
    done = run("unload", "user:*", "--fields", "name", "--json")
    assert json.loads(done.stderr)["rows"] == 1
    assert done.stdout == '"key","name"\n"user:1","Ann"\n'


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["user:1", "-o", "x.csv"], Exit.ERRORS, "there is no key user:1"),
        (["user:*", "-o", "x.data"], Exit.USAGE, "add --format csv"),
        (["user:*", "--format", "parquet"], Exit.USAGE, "add -o FILE"),
        (["user:*", "--binary", "name", "--format", "jsonl"], Exit.USAGE, "write CSV or Parquet"),
        (["user:*", "-o", "x.parquet", "--binary", "age"], Exit.USAGE, "--binary names 'age'"),
        (["user:*", "-o", "none/x.csv"], Exit.USAGE, "none/x.csv: No such file"),
        (["user:*", "-o", "."], Exit.USAGE, "add --format"),
        (["user:*", "--timeout", "-1"], Exit.USAGE, "--timeout must be"),
        (["user:*", "-o", "x.csv", "--server", "redis://127.0.0.1:1"], Exit.LOST, "refused"),
        (["bad:*", "-o", "x.csv"], Exit.ERRORS, "name 'name' after --binary"),
    ],
)
def test_failures(
    arguments: list[str],
    code: Exit,
    words: str,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each failure has its exit code; no file is created, and an existing one is unchanged."""
    monkeypatch.chdir(tmp_path)
    client.hset("bad:1", "name", b"\xff")
    Path("x.csv").write_text("old")
    result = invoke("unload", *arguments, "--fields", "name")
    assert result.exit_code == code
    assert words in " ".join(result.stderr.split())
    assert os.listdir() == ["x.csv"]
    assert Path("x.csv").read_text() == "old"


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(
    number: signal.Signals, start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    server = start_server()
    rows = ({"id": i, "name": "x" * 100} for i in range(200_000))
    fastresp.mass_insert(rows, HSET, server=server.url)
    path = tmp_path / "users.csv"
    command = [*PROGRAM, "unload", "user:*", "--fields", "name", "-o", str(path)]
    with preloaded.Popen(
        [*command, "--server", server.url], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        until(lambda: any(each.stat().st_size for each in tmp_path.iterdir()), 60)
        os.kill(server.process.pid, signal.SIGSTOP)
        process.send_signal(number)
        code, word = ENDED[number]
        assert process.wait(20) == code
        assert process.stderr.read() == f"fastresp: {word}\n"
    os.kill(server.process.pid, signal.SIGCONT)
    assert list(tmp_path.iterdir()) == []


def test_progress_on_a_terminal(client: redis.Redis, tmp_path: Path) -> None:
    client.hset("user:1", "name", "Ann")
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "unload", "user:*", "--fields", "name", "-o", str(tmp_path / "x.csv")]
    done = preloaded.run(command, stderr=theirs, timeout=200, check=False)
    os.close(theirs)
    assert done.returncode == Exit.OK
    shown = b""
    with suppress(OSError):  # raised at the end of a terminal
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert b"1 row  0.0 MB" in shown
    assert b"1 row written to" in shown


def test_output_may_be_a_device(client: redis.Redis) -> None:
    client.hset("user:1", "name", "Ann")
    done = run("unload", "user:*", "--fields", "name", "-o", "/dev/stdout", "--format", "csv")
    assert done.stdout == '"key","name"\n"user:1","Ann"\n'


@pytest.mark.slow
def test_fields_with_spaces_and_without_a_name(server: LocalServer) -> None:
    for fields in ("", "name,", ","):
        done = run("unload", "user:*", "--fields", fields, "--server", server.url)
        assert done.returncode == Exit.USAGE
        assert "--fields has an empty name" in done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (["a, b ,c"], ["a", "b", "c"]),
        (['"x,y",z'], ["x,y", "z"]),
        (['" x "', "z"], [" x ", "z"]),
        (['"say ""hi""", "x,y"'], ['say "hi"', "x,y"]),
    ],
)
def test_fields_are_lines_of_csv(fields: list[str], names: list[str], client: redis.Redis) -> None:
    client.hset("user:1", mapping=dict.fromkeys(names, "v"))
    given = [word for text in fields for word in ("--fields", text)]
    done = run("unload", "user:{id}", *given, "--format", "jsonl")
    assert json.loads(done.stdout) == {"id": "1"} | dict.fromkeys(names, "v")


def test_fields_that_are_invalid_csv() -> None:
    done = run("unload", "user:*", "--fields", 'a,"b')
    assert (done.returncode, "--fields is not valid CSV" in done.stderr) == (Exit.USAGE, True)


@pytest.mark.slow
def test_mode_of_the_file(client: redis.Redis, tmp_path: Path) -> None:
    """The mode is the old file's, otherwise the umask's."""
    client.hset("user:1", "name", "Ann")
    new, old = tmp_path / "new.csv", tmp_path / "old.csv"
    old.touch()
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (new, old):
            assert run("unload", "user:*", "--fields", "name", "-o", path).returncode == Exit.OK
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (new, old)] == [0o640, 0o640]
    old.chmod(0o604)
    assert run("unload", "user:*", "--fields", "name", "-o", old).returncode == Exit.OK
    assert old.stat().st_mode & 0o777 == 0o604


def test_temporary_file_of_a_killed_process(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may have had the same id, as in a container."""
    client.hset("user:1", "name", "Ann")
    path = tmp_path / "users.csv"
    (tmp_path / f".users.csv.{os.getpid()}.part").touch()
    assert invoke("unload", "user:*", "--fields", "name", "-o", path).exit_code == Exit.OK
    assert path.read_text().splitlines()[1:] == ['"user:1","Ann"']


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("where", ["file", "/dev/full"])
def test_failure_during_an_unload(
    kind: str, where: str, client: redis.Redis, tmp_path: Path
) -> None:
    rows = ({"id": i, "name": "x" * 100} for i in range(1000))
    fastresp.mass_insert(rows, HSET)
    if where == "file":
        client.hset("user:bad", "name", b"\xff")
    path = tmp_path / "k" if where == "file" else where
    done = run("unload", "user:*", "--fields", "name", "-o", path, "--format", kind)
    assert done.returncode == Exit.ERRORS
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["unload 'user:*' --fields name", "pop user:list"])
def test_stdout_is_closed(command: str, client: redis.Redis) -> None:
    client.hset("user:1", "name", "Ann")
    client.rpush("user:list", 1)
    line = f"{' '.join(PROGRAM)} {command} >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=200)
    assert done.returncode == Exit.ERRORS
    assert done.stderr == "fastresp: standard output is closed; redirect it to a file\n"
    assert client.lrange("user:list", 0, -1) == [b"1"]


def test_parquet_has_dictionaries_of_values_that_repeat(
    client: redis.Redis, tmp_path: Path
) -> None:
    rows = [{"id": i, "name": f"name {i}", "city": f"city {i % 5}"} for i in range(100)]
    fastresp.mass_insert(rows, HSET)
    path = tmp_path / "users.parquet"
    assert invoke("unload", "user:{id}", "-o", path).exit_code == Exit.OK
    columns = map(parquet.read_metadata(path).row_group(0).column, range(3))
    found = {each.path_in_schema for each in columns if each.has_dictionary_page}
    assert found == {"city"}
    assert parquet.read_table(path).num_rows == 100
