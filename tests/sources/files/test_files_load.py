"""Load tables into a server: rows in errors, memory, interruption."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import preloaded
import pyarrow as pa
import pytest
import redis
from command_line import invoke
from loads import Insert
from peak import PEAK
from pyarrow import parquet
from tables import ROWS, csv_bytes, run, write

import fastresp
from fastresp.cli.exit_codes import Exit
from fastresp.server.local_server import LocalServer


@pytest.mark.parametrize("name", ["x.txt", "x", "x.log.gz"])
def test_files_without_a_format_are_lines_for_one_placeholder(
    server: LocalServer, client: redis.Redis, tmp_path: Path, insert_singly: Insert, name: str
) -> None:
    data = b'a,b\n"c\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    for path in (tmp_path / name, [tmp_path / name]):
        assert insert_singly(path, "RPUSH {line} x", server=server.url).rows == 2
    assert client.llen("a,b") == client.llen('"c') == 2
    report = fastresp.verify(tmp_path / name, "RPUSH {line} x", server=server.url)
    assert report.rows == 2
    done = invoke("load", tmp_path / name, "SADD s {line}", "--server", server.url, "--verify")
    assert done.exit_code == 0 and client.scard("s") == 2
    with pytest.raises(ValueError, match=f"can't tell the format of .*{name} .*; set format="):
        insert_singly(tmp_path / name, "SADD s {id}", server=server.url)
    (tmp_path / "x.csv").write_text("line\n1\n")
    assert insert_singly(tmp_path / "x.csv", "SADD csv {line}", server=server.url).rows == 1


def parts(folder: Path, names: tuple[str, ...] = ("1", "2")) -> list[str]:
    """Write files of three rows each; the server refuses the second row of each."""
    paths = []
    for name in names:
        rows = [{"key": key, "value": name} for key in ("list", "text", "list")]
        paths.append(write(folder / f"{name}.csv", rows))
    return paths


def test_errors_name_the_file(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    client.set("text", "x")
    paths = parts(tmp_path)
    rejects = tmp_path / "rejects.jsonl"
    report = insert_singly(
        fastresp.read(tmp_path / "?.csv"),
        "RPUSH {key} {value}",
        server=server.url,
        on_error="collect",
        rejects=rejects,
    )
    found = [(error.row, error.file, error.row_in_file) for error in report.errors]
    assert found == [(1, paths[0], 1), (4, paths[1], 1)]
    where = f"row 1 (key=text), line 3 of {paths[1]}, command 4: WRONGTYPE"
    assert str(report.errors[1]).startswith(where)
    assert f"first for row 1 (key=text), line 3 of {paths[0]}" in str(report)
    lines = [json.loads(line) for line in rejects.read_text().splitlines()]
    found = [(line["file"], line["row_in_file"], line["row"], line["command"]) for line in lines]
    assert found == [(paths[0], 1, 1, 1), (paths[1], 1, 4, 4)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_paths_as_data(
    client: redis.Redis, insert_singly: Insert, kind: Any, tmp_path: Path, server: LocalServer
) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for number, path in enumerate(paths):
        path.write_text(f"id,name\n{number},n{number}\n")
    report = insert_singly(kind(paths), "SET {id} {name}", server=server.url)
    assert (report.rows, client.get("0"), client.get("1")) == (2, b"n0", b"n1")
    fastresp.dump(kind(paths), "SET {id} {name}", tmp_path / "x.resp")
    assert b"n1" in (tmp_path / "x.resp").read_bytes()
    # A list of str is rows, not paths.
    with pytest.raises(fastresp.TemplateError, match=r"pass read\(\['.*a.csv', ...\]\)"):
        insert_singly([str(path) for path in paths], "SET {id} {name}", server=server.url)
    with pytest.raises(fastresp.TemplateError, match=r"write \{0\} for it\n"):
        insert_singly(["none.csv"], "SET {id} {name}", server=server.url)


def test_errors_of_a_single_file_name_it(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    client.set("text", "x")
    rejects = tmp_path / "rejects.jsonl"
    report = insert_singly(
        fastresp.read(path := parts(tmp_path)[0]),
        "RPUSH {key} {value}",
        server=server.url,
        on_error="collect",
        rejects=rejects,
    )
    found = [(error.file, error.row, error.line) for error in report.errors]
    assert found == [(path, 1, 3)]
    reject = json.loads(rejects.read_text())  # written before the line is known
    assert (reject["file"], reject["row_in_file"], "line" in reject) == (path, 1, False)


def test_rows_that_cannot_be_encoded_name_the_file(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    paths = parts(tmp_path)
    Path(paths[1]).write_text("key,value\nlist,1\nlist,\n")
    with pytest.raises(fastresp.EncodeError) as caught:
        insert_singly(fastresp.read(paths), "RPUSH {key} {value}", server=server.url)
    assert caught.value.row == 4
    where = f"row 1 (key=list), line 3 of {paths[1]}, command 4, column 'value'"
    assert str(caught.value).startswith(where)
    assert client.llen("list") == 3


@pytest.mark.few(1)
def test_exceptions_of_the_source_propagate_unchanged(
    insert_singly: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(csv_bytes(ROWS * 3000) + b"1,2\n")
    with pytest.raises(
        fastresp.SourceError, match=r"users.csv: row 300,000, line 402,002 has 2 fields"
    ) as caught:
        insert_singly(fastresp.read(path), "LPUSH list {id}", server=server.url)
    assert not isinstance(caught.value, pa.ArrowInvalid)
    assert 0 < client.llen("list") <= 300_000


# Memory and interruption, in separate processes.


MEMORY_CODE = (
    PEAK
    + """
import sys
import pyarrow.parquet, fastresp
from fastresp import *  # its modules are not what is measured
before = peak()
rows = 0
for batch in pyarrow.RecordBatchReader.from_stream(fastresp.read(sys.argv[1], {options})):
    rows += len(batch)
print(rows, before, peak())
"""
)


@pytest.mark.slow
def test_memory_does_not_grow_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    numbers = pa.array(range(1_000_000))
    columns = {f"n{at}": numbers for at in range(5)}
    columns |= {f"s{at}": numbers.cast(pa.string()) for at in range(5)}
    parquet.write_table(pa.table(columns), path)
    # The whole file is 110 MB.
    for options, max_mib in (("", 96), ("sql='FROM source'", 192)):
        code = MEMORY_CODE.format(options=options)
        done = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
        )
        rows, before, peak = map(int, done.stdout.split())
        assert rows == 1_000_000
        assert (peak - before) / 1024 < max_mib


BAR_CODE = """
import sys, pyarrow, fastresp
table = fastresp.read(sys.argv[1], sql="SELECT current_setting('enable_progress_bar') FROM source")
print(pyarrow.RecordBatchReader.from_stream(table).read_all()[0].to_pylist())
"""


def test_a_long_query_draws_no_bar(tmp_path: Path) -> None:
    """By default DuckDB draws a bar on stdout if the session seems interactive."""
    path = tmp_path / "one.csv"
    path.write_text("a\n1\n")
    done = preloaded.run([sys.executable, "-c", BAR_CODE, path], capture_output=True, check=True)
    assert done.stdout == b"[False]\n"


PIPE_CODE = """
import sys, fastresp
table = fastresp.read(sys.stdin.buffer)
try:
    print("reading", flush=True)
    fastresp.mass_insert(table, "SET {a} {b}", server=sys.argv[1], transport="socket")
except KeyboardInterrupt as error:
    print("interrupted", error.report.commands, flush=True)
"""


def test_ctrl_c_while_a_pipe_is_silent(server: LocalServer) -> None:
    child = preloaded.Popen(
        [sys.executable, "-c", PIPE_CODE, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"a,b\n" + b"key,value\n" * 700_000)
    child.stdin.flush()
    assert child.stdout.readline() == b"reading\n"
    while not (count := redis.Redis.from_url(server.url).dbsize()):
        time.sleep(0.01)
    assert count == 1
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert output.startswith(b"interrupted ")
    assert (child.returncode, errors) == (0, b"")


def test_the_interpreter_ends_while_a_pipe_is_silent() -> None:
    code = (
        "import fastresp, pyarrow, sys\n"
        "reader = pyarrow.RecordBatchReader.from_stream(fastresp.read(sys.stdin.buffer))\n"
        "print(reader.read_next_batch().num_rows > 0, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None and child.stdout is not None
    with suppress(BrokenPipeError):  # the process may have ended before reading all
        child.stdin.write(b"a,b\n" + b"key,value\n" * 700_000)
        child.stdin.flush()
    assert child.stdout.readline() == b"True\n"
    assert child.wait(timeout=30) == 0
    assert child.stderr is not None and child.stderr.read() == b""
    with suppress(BrokenPipeError):
        child.stdin.close()


def test_the_import_is_light() -> None:
    code = "import fastresp, sys; print({'pyarrow', 'duckdb', 'pandas', 'numpy'} & {*sys.modules})"
    assert run(code).stdout == "set()\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pyarrow", "fastresp.read(sys.executable, format='csv')"),
        ("pyarrow", "fastresp.read('FROM x')"),
        ("duckdb", "pyarrow.table(fastresp.read('FROM x'))"),
        ("duckdb", "pyarrow.table(fastresp.read(sys.executable, format='lines', sort_by='line'))"),
    ],
)
def test_missing_package(package: str, call: str) -> None:
    code = (
        "import sys, fastresp, pyarrow\n"
        f"sys.modules['{package}'] = None\n"
        f"try: {call}\n"
        "except ImportError as error: print(error)\n"
    )
    assert run(code).stdout == (
        f"reading files needs {package}, which is not installed: pip install 'fastresp[files]'\n"
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("source", ["nope.csv", "nope-*.csv", "nope.gz"])
def test_a_missing_file_is_reported_before_a_missing_package(tmp_path: Path, source: str) -> None:
    code = "import sys\nsys.modules['pyarrow'] = None\nfrom fastresp.cli.app import main\nmain()\n"
    path = tmp_path / source
    command = [sys.executable, "-c", code, "load", str(path), "SET {id} v"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == Exit.USAGE
    assert str(path) in done.stderr
    assert "pyarrow" not in done.stderr
