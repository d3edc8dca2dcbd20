"""The command line: usage, help, exit codes, and streams."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import HSET, PROGRAM, run

from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["load"],
        ["load", "nothing.csv", HSET],
        ["load", "nothing.csv", "HSET user:{id"],
        ["send", "nothing.resp"],
        ["check", "nothing.resp"],
        ["dump", "nothing.csv", HSET],
        ["send"],
        ["load", "x.resp", "--bogus"],
        ["send", "x.resp", "--transport", "bogus"],
        ["send", "x.resp", "--transport", "redis-cli", "--rejects", "r"],
        ["send", "x.resp", "--transport", "redis-cli", "--on-error", "stop"],
        ["send", "x.resp", "--max-errors", "many"],
        ["send", "x.resp", "--max-errors", "3", "--on-error", "stop"],
        ["send", "x.resp", "--rate-limit", "0"],
        ["send", "x.resp", "--timeout", "-1"],
        ["send", "x.resp", "--limit", "-1"],
        ["send", "x.resp", "--connections", "0"],
        ["send", "x.resp", "--connections", "2", "--transport", "redis-cli"],
        ["send", "x.resp", "--server", "http://:hidden@x"],
        ["send", "x.resp", "--server", "redis://:hid/hidden@x"],
    ],
    ids=" ".join,
)
def test_bad_usage(server, resp, tmp_path: Path, arguments: list[str]) -> None:
    path = resp()
    done = run(*(str(path) if each == "x.resp" else each for each in arguments))
    assert done.returncode == Exit.USAGE, done
    assert done.stderr.strip()
    assert "hidden" not in done.stderr + done.stdout


@pytest.mark.slow
def test_messages_of_bad_usage(resp) -> None:
    assert "--connections must be a number from 1" in run("send", "x", "--connections", 65).stderr
    assert run("load", "none.csv", "SET {id").stderr.endswith("\n    SET {id\n        ^\n")
    done = run("send", resp(), "--max-errors", "x")
    assert "--max-errors must be a number" in done.stderr
    assert "check the path" in run("send", "nothing.resp").stderr
    words = run("send", resp(), "--transport", "redis-cli", "--rejects", "r").stderr
    assert "redis-cli --pipe can't tell which command an error belongs to; use --transport" in words


@pytest.mark.slow
def test_streams_that_are_closed(server, users: Path) -> None:
    load = f"{' '.join(PROGRAM)} load {users} 'SET {{id}} 1'"
    for how, code, words in (
        ("--json >&-", 0, ""),
        ("--json > /dev/full", 1, "standard output: No space left on device"),
        ("2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{load} {how}"], capture_output=True, text=True, timeout=200
        )
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (how, done.stderr)
        assert words in done.stderr
    for how in ("load - 'SET {id} 1' <&-", f"pack {users} 'SET {{id}} 1' >&-"):
        command = f"{' '.join(PROGRAM)} {how}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=200)
        assert (done.returncode, "is closed; use" in done.stderr) == (Exit.USAGE, True), done


def test_database_that_is_not_a_number(server) -> None:
    done = run("send", "-", "--server", "redis://localhost:1/abc")
    assert done.returncode == Exit.USAGE
    assert "can't read this server URL" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
class TestCompletion:
    def test_script(self, shell: str) -> None:
        done = run("--show-completion", shell)
        assert done.returncode == 0
        assert f"_FASTRESP_COMPLETE={shell}_complete" in done.stdout
        assert run("--show-completion", SHELL=f"/bin/{shell}").stdout == done.stdout
        if (program := shutil.which(shell)) is None:
            pytest.skip(f"{shell} is not installed")
        checked = subprocess.run([program, "-n"], input=done.stdout, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")

    @pytest.mark.few(1)
    def test_options_and_commands(self, shell: str) -> None:
        for line, expected in (("fastresp load --rej", "--rejects"), ("fastresp un", "unload")):
            last = line.split()[-1] if shell == "fish" else str(len(line.split()) - 1)
            done = run(_FASTRESP_COMPLETE=f"{shell}_complete", COMP_WORDS=line, COMP_CWORD=last)
            assert (done.returncode, expected in done.stdout) == (0, True), done

    def test_install(self, shell: str, tmp_path: Path) -> None:
        for _ in range(2):
            done = run("--install-completion", shell, HOME=str(tmp_path))
            assert done.returncode == 0
        [script] = [path for path in tmp_path.rglob("[!.]*") if path.is_file()]
        assert "_FASTRESP_COMPLETE" in script.read_text()
        assert str(script) in done.stdout
        if shell != "fish":
            assert (tmp_path / f".{shell}rc").read_text() == f'. "{script}"\n'


def test_completion_that_cannot_be_written(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.touch()
    done = run("--install-completion", "bash", HOME=str(home))
    assert (done.returncode, done.stdout) == (Exit.ERRORS, "")
    assert f"{home}/.config" in done.stderr
    assert "Not a directory; --show-completion prints the script" in done.stderr


def test_completion_for_another_shell() -> None:
    done = run("--show-completion", "csh")
    assert done.returncode == Exit.USAGE
    assert "'csh' is not one of bash, zsh, fish" in done.stderr


def test_broken_pipe(server, resp) -> None:
    done = subprocess.run(
        f"{' '.join(PROGRAM)} send {resp()} --json | true", shell=True, capture_output=True
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_traceback_is_shown_on_request(port: int, resp) -> None:
    done = run("--traceback", "send", resp(), "--server", f"redis://localhost:{port}")
    assert "Traceback" in done.stderr
    assert done.returncode == Exit.LOST
