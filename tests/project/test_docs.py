"""The docs are right: their blocks run from top to bottom, and their tables are checked."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import preloaded
import pytest
from local_cluster import free_port
from module_server import MODULES, module_options
from needed import imported
from places import ROOT
from server_programs import WHEEL_SERVERS, located

import fastresp
from fastresp.server.local_server import LocalServer

DOCS = ROOT / "docs"
# Pages with independent blocks: tests/project/test_readme.py runs them.
OTHERS = {"decisions.md", "design.md", "errors.md", "redis-py.md"}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.name not in OTHERS | {"cli.md"}]
# Extra packages of pages that need more than the tests do; CI runs them where installed.
NEEDED = {"engines": "ray", "spark": "pyspark"}
# Pages that need a server with modules.
MODULE_PAGES = {"modules"}
# Pages with two servers, whose URLs are OLD and NEW.
MOVE_PAGES = {"move"}

BLOCK = re.compile(r"(<!-- not run.*?-->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language: python; sh, commands that print nothing; console, commands and their output.
        line: the line of the page where its text begins, counted from 0.
    """

    language: str
    line: int
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if found[1] is None:
            yield Block(found[2], text.count("\n", 0, found.start(3)), found[3])


class Shell:
    """A user's shell in an empty folder, with a server on the port of ``REDIS_URL``."""

    def __init__(self, folder: Path, cli: str, port: int) -> None:
        self.folder = folder
        # A user's redis-cli finds the server on the default port; fastresp uses REDIS_URL.
        self.start = f'redis-cli() {{ {shlex.quote(cli)} -p {port} "$@"; }}\n'
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "100", "TERM": "dumb"}

    def run(self, command: str) -> str:
        """Run a command; return its output, stderr included."""
        unquoted = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "", command)
        if unquoted.startswith("fastresp ") and not set(unquoted) & set("|<>;&$`*?()\\\"'#\n"):
            run, words = preloaded.run, [*preloaded.PROGRAM, *shlex.split(command)[1:]]
        else:
            run, words = subprocess.run, ["bash", "-c", self.start + command]
        done = run(
            words,
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False,
        )  # fmt: skip
        return done.stdout


def check_console(shell: Shell, block: Block, where: str) -> None:
    """Run each line after a ``$``, and compare its output; ``...`` matches anything."""
    pieces = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert pieces[0] == "", f"{where} does not begin with a command"
    for command, expected in zip(pieces[1::2], pieces[2::2], strict=True):
        printed = "\n".join(line.rstrip() for line in shell.run(command).splitlines())
        pattern = re.escape(expected.strip("\n")).replace(r"\.\.\.", ".*?")
        assert re.fullmatch(pattern, printed.strip("\n"), re.DOTALL), (
            f"{where}: {command}\nprints\n{printed}\nand not\n{expected}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path,
    start_server: Callable[..., LocalServer],
    cli: str,
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run the blocks of a page one after another, in one folder and one namespace."""
    imported(NEEDED.get(page.stem, "fastresp"))
    options = ["--port", str(port)]
    if page.stem in MODULE_PAGES:
        options += module_options(tmp_path, *MODULES)
        start_server(*options, program=located("redis-8.2", WHEEL_SERVERS))
    elif page.stem in MOVE_PAGES:
        start_server(*options, program=located("redis-8.2", WHEEL_SERVERS))
        other = free_port()
        start_server("--port", str(other), program=located("valkey-9.1", WHEEL_SERVERS))
        monkeypatch.setenv("OLD", f"redis://127.0.0.1:{port}")
        monkeypatch.setenv("NEW", f"redis://127.0.0.1:{other}")
    else:
        start_server(*options)
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{port}")
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path, cli, port)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.language == "python":
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile("\n" * block.line + block.text, page.name, "exec"), names)
        elif block.language == "sh":
            assert shell.run(f"set -e\n{block.text}") == "", where
        elif block.language == "console":
            check_console(shell, block, where)
        else:
            assert block.language == "text", f"{where}: unknown language {block.language}"
            # The output of the preceding Python block.
            assert printed.getvalue() == block.text, where


def test_blocks_are_found() -> None:
    languages = [block.language for page in PAGES for block in blocks(page)]
    assert languages.count("python") > 30
    assert languages.count("console") >= 5
    for page in sorted(DOCS.rglob("*.md")):
        fences = re.findall(r"^```", page.read_text(), re.MULTILINE)
        assert len(fences) % 2 == 0, page.name
        if page in PAGES:
            assert len(fences) == 2 * len(BLOCK.findall(page.read_text())), page.name


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_tables_follow_a_blank_line(page: Path) -> None:
    """Otherwise Markdown shows them as text."""
    lines = ["", *page.read_text().splitlines()]
    for before, line in pairwise(lines):
        if line.startswith("|") and not before.startswith("|"):
            assert not before, line


def table_rows(heading: str) -> list[list[str]]:
    """Return the rows of the tables between a heading of templates.md and the next."""
    section = (DOCS / "reference" / "templates.md").read_text().partition(f"\n## {heading}\n")[2]
    section = section.partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line] for line in lines]
    return [row for row in rows if len(row) == 3 and CODE.fullmatch(row[1])]


def code(cell: str) -> str:
    found = CODE.fullmatch(cell)
    assert found is not None, cell
    return found[1]


def expected_bytes(cell: str) -> bytes:
    text = code(cell)
    if text.startswith('b"'):
        value = eval(text)
        assert isinstance(value, bytes)
        return value
    return b"" if text == '""' else text.encode()


NAMES = """
import datetime as dt, enum, uuid
from array import array
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo
import numpy as np, pandas as pd, pyarrow as pa
"""


def namespace() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(NAMES, names)
    return names


@pytest.mark.parametrize("row", table_rows("What Python values become"), ids=lambda row: row[1])
def test_python_values(row: list[str]) -> None:
    value = eval(code(row[1]), namespace())
    assert fastresp.pack("ECHO", value) == fastresp.pack("ECHO", expected_bytes(row[2]))


@pytest.mark.parametrize("row", table_rows("What Arrow types become"), ids=lambda row: row[1])
def test_arrow_types(row: list[str]) -> None:
    import pyarrow as pa

    names = namespace()
    array = eval(code(row[1]), names)
    file = io.BytesIO()
    fastresp.dump(pa.table({"v": array}), "ECHO {v}", file)
    assert file.getvalue() == fastresp.pack("ECHO", expected_bytes(row[2]))


def test_tables_are_found() -> None:
    assert len(table_rows("What Python values become")) >= 15
    assert len(table_rows("What Arrow types become")) >= 15


def test_generated_pages_are_up_to_date() -> None:
    path = DOCS / "make_cli.py"
    spec = importlib.util.spec_from_file_location("make_cli", path)
    assert spec is not None and spec.loader is not None
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    for path, made in make_cli.PAGES.items():
        assert path.read_text() == made(), "run python docs/make_cli.py"
