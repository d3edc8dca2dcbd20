"""Fixtures for the tests of the command line: a server, and files to load."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CSV

import fastresp


@pytest.fixture
def url_in_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set REDIS_URL to the server of the test, if it has one."""
    if "server" in request.fixturenames:
        monkeypatch.setenv("REDIS_URL", request.getfixturevalue("server").url)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


@pytest.fixture
def resp(tmp_path: Path):
    """Return a function that writes a RESP file."""

    def write(commands: object = None) -> Path:
        path = tmp_path / "x.resp"
        if commands is None:
            commands = [("SET", f"key:{i}", i) for i in range(1000)]
        fastresp.dump(commands, None, path)  # type: ignore[arg-type]
        return path

    return write
