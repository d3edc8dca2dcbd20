"""The recipes of docs/guides/databases.md that need PostgreSQL, with a server of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from places import ROOT

from fastresp.server.local_server import LocalServer

PAGE = ROOT / "docs" / "guides" / "databases.md"
BLOCK = re.compile(r"^<!-- not run with this page.*?-->\n```python\n(.*?)^```$", re.DOTALL | re.M)
USERS = [
    (1, "Ann", "1.10", "Ulm"),
    (2, 'B,"o"\n', "00.50", None),
    (3, "\\N \t", "12345678901234567890.123456789", ""),
]


def program(name: str) -> str | None:
    """Return a program of PostgreSQL, which Debian keeps out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


@pytest.fixture
def database_url() -> Iterator[str]:
    """Start PostgreSQL on a unix socket; it refuses to run as root."""
    initdb, postgres = program("initdb"), program("pg_ctl")
    if initdb is None or postgres is None:
        if os.environ.get("CI"):
            pytest.fail("there is no PostgreSQL")
        pytest.skip("needs PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="fastresp-pg-", dir="/tmp"))  # not in a folder of root
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(folder, "postgres", "postgres")

    def run(*command: str) -> None:
        subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=100, **user
        )

    run(initdb, "-D", "data", "-U", "shop", "-A", "trust", "--no-sync", "-E", "UTF8")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    run(postgres, "-D", "data", "-w", "-o", options, "-l", "log", "start")
    try:
        yield f"postgresql://shop@/postgres?host={folder}"
    finally:
        run(postgres, "-D", "data", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def test_postgresql(
    database_url: str, server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ADBC and by COPY, each value is the text of PostgreSQL."""
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("adbc_driver_postgresql")
    with psycopg.connect(database_url) as database:
        database.execute("CREATE TABLE users (id bigint, name text, price numeric, city text)")
        for row in USERS:
            database.execute("INSERT INTO users VALUES (%s, %s, %s::numeric, %s)", row)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("REDIS_URL", server.url)
    found = BLOCK.findall(PAGE.read_text())
    assert len(found) == 2
    names: dict[str, Any] = {}
    for text in found:
        exec(text, names)
    for kind in ("user", "copy"):
        for number, name, price, city in USERS:
            wanted = {"name": name, "price": price.removeprefix("0"), "city": city}
            stored = {k.decode(): v.decode() for k, v in client.hgetall(f"{kind}:{number}").items()}
            assert stored == {key: value for key, value in wanted.items() if value is not None}
