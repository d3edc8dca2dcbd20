"""Modules that a command must not import: imports take most of the time of a short command."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastresp
from fastresp.server.local_server import LocalServer

PRINT = "import atexit, sys; atexit.register(lambda: print('modules', *sys.modules))"
# None in sys.modules makes these packages seem missing.
BLOCKED = {"numpy", "pandas"}
TYPER = {"typer", "pydantic"}
ENGINES = {"dask", "distributed", "dlt", "pyspark", "ray"}
HELP = {
    "redis", "hiredis", "asyncio", "rich", "pyarrow", "duckdb", "numpy", "pandas", *TYPER, *ENGINES,
}  # fmt: skip


def imported(code: str, *arguments: str, **environment: str) -> set[str]:
    """Run code; return the imported modules."""
    program = f"{PRINT}; sys.argv[0] = 'fastresp'; {code}"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=100, check=True, env=os.environ | environment,
    )  # fmt: skip
    modules = set(done.stdout.partition("modules ")[2].split())
    assert "fastresp" in modules
    return modules


def command(*arguments: str, **environment: str) -> set[str]:
    code = "from fastresp.__main__ import main; main()"
    return imported(code, *arguments, **environment) - BLOCKED


def test_package() -> None:
    """Importing fastresp imports none of its modules."""
    modules = imported("import fastresp")
    assert {name for name in modules if name.startswith("fastresp")} == {"fastresp"}
    assert not modules & (HELP | {"click"})


def test_sink() -> None:
    """A sink imports no engine, and an adapter only its own."""
    modules = imported("import fastresp.sink")
    assert not modules & {"rich", "duckdb", "numpy", "pandas", "pyarrow", "click", *TYPER, *ENGINES}
    for name in filter(find_spec, ("dask", "dlt", "ray")):
        assert imported(f"import fastresp.{name}") & ENGINES <= {name}


def test_names_of_the_package() -> None:
    names = [name for names in fastresp.MODULES.values() for name in names.split()]
    assert sorted(names) == sorted(fastresp.__all__)
    for name in names:
        assert name in dir(fastresp)
        assert getattr(fastresp, name) is not None
    assert fastresp.aio.ListBuffer is not fastresp.ListBuffer
    assert "aio" in dir(fastresp)
    with pytest.raises(AttributeError, match="'fastresp' has no attribute 'nothing'"):
        fastresp.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help(option: str) -> None:
    modules = command(option)
    assert not modules & HELP
    ours = {name for name in modules if name.startswith("fastresp.")}
    assert not ours & {"fastresp.outcome", "fastresp.load", "fastresp.cli.load", "fastresp.doctor"}


def test_load(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,name\n1,Ann\n")
    modules = command("load", str(path), "HSET user:{id} {**}", REDIS_URL=server.url)
    assert {"redis", "pyarrow.csv"} <= modules
    unused = {"rich", "duckdb", "pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", *TYPER}
    assert not modules & (unused | ENGINES)
    assert not modules & {f"fastresp.{name}" for name in ("doctor", "lists", "aio", "redis_py")}
    commands = {"unload", "doctor", "demo", "pop", "files"}
    assert not modules & {f"fastresp.cli.{name}" for name in commands}
    features = {"stored_receipt", "verifying.report", "copying.options"}
    assert not modules & {f"fastresp.load.{name}" for name in features}
    # The first reads the metadata of packages, such as redis-py's version.
    assert not modules & {"email.parser", "html", "zoneinfo", "difflib"}


def test_send(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "x.resp"
    fastresp.dump([("SET", "k", "v")], None, path)
    modules = command("send", str(path), REDIS_URL=server.url)
    assert not modules & {"rich", "pyarrow", "duckdb", *TYPER}
