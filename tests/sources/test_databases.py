"""The recipes of docs/guides/databases.md that need a server: PostgreSQL and MariaDB."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from needed import imported, lacking
from places import ROOT

from fastresp.server.local_server import LocalServer

PAGE = ROOT / "docs" / "guides" / "databases.md"
BLOCK = re.compile(r"^<!-- not run with this page.*?-->\n```python\n(.*?)^```$", re.DOTALL | re.M)
USERS = [
    (1, "Ann", "1.10", "Ulm"),
    (2, 'B,"o"\n', "00.50", None),
    (3, "\\N \t", "12345678901234567890.123456789", ""),
]


def recipes(heading: str) -> list[str]:
    """Return the code below a heading that needs a server."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.M)
    return BLOCK.findall(section)


def program(name: str) -> str:
    """Return the path of a database program; skip the test without it, and fail in CI.

    Debian keeps PostgreSQL's programs out of the PATH, and root's programs out of a user's.
    """
    found = sorted(Path("/").glob(f"usr/lib/postgresql/*/bin/{name}"))
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None and not found:
        lacking(f"there is no {name}")
    return path or str(found[-1])


@pytest.fixture
def database_url() -> Iterator[str]:
    """Start PostgreSQL on a unix socket; it refuses to run as root."""
    initdb, postgres = program("initdb"), program("pg_ctl")
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
    """With ADBC and COPY, each value is PostgreSQL's text."""
    psycopg = imported("psycopg")
    imported("adbc_driver_postgresql")
    with psycopg.connect(database_url) as database:
        database.execute("CREATE TABLE users (id bigint, name text, price numeric, city text)")
        for row in USERS:
            database.execute("INSERT INTO users VALUES (%s, %s, %s::numeric, %s)", row)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("REDIS_URL", server.url)
    found = recipes("PostgreSQL")
    assert len(found) == 2
    names: dict[str, Any] = {}
    for text in found:
        exec(text, names)
    for kind in ("user", "copy"):
        for number, name, price, city in USERS:
            wanted = {"name": name, "price": price.removeprefix("0"), "city": city}
            stored = {k.decode(): v.decode() for k, v in client.hgetall(f"{kind}:{number}").items()}
            assert stored == {key: value for key, value in wanted.items() if value is not None}


@pytest.fixture
def option_file(tmp_path: Path) -> Iterator[Path]:
    """Start MariaDB on a unix socket, and return a file of options for its clients."""
    mariadbd = program("mariadbd")
    folder = Path(tempfile.mkdtemp(prefix="fastresp-mysql-", dir="/tmp"))
    socket = folder / "socket"
    options = [f"--datadir={folder}", f"--socket={socket}", "--skip-networking"]
    if os.geteuid() == 0:
        options.append("--user=root")
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(  # without user tables, it needs no installation
            [mariadbd, "--no-defaults", "--skip-grant-tables", *options], stdout=log, stderr=log
        )
    try:
        ends = time.monotonic() + 60
        while not socket.exists():
            assert started.poll() is None and time.monotonic() < ends, (folder / "log").read_text()
            time.sleep(0.05)
        path = tmp_path / ".my.cnf"
        path.write_text(f"[client]\nsocket={socket}\nuser=root\n")
        yield path
    finally:
        started.kill()
        started.wait()
        shutil.rmtree(folder)


def test_mysql(
    option_file: Path, server: LocalServer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    pymysql = imported("pymysql")
    monkeypatch.setenv("HOME", str(option_file.parent))
    monkeypatch.setenv("REDIS_URL", server.url)
    with pymysql.connect(read_default_file=option_file, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        cursor.execute("USE shop")
        kinds = "id bigint, name text, price decimal(38, 9), city text"
        cursor.execute(f"CREATE TABLE users ({kinds})")
        cursor.executemany("INSERT INTO users VALUES (%s, %s, %s, %s)", USERS)
    [text] = recipes("MySQL and MariaDB")
    exec(text, {})
    for number, name, price, city in USERS:
        wanted = {"name": name, "price": f"{Decimal(price):.9f}", "city": city}
        stored = {k.decode(): v.decode() for k, v in client.hgetall(f"user:{number}").items()}
        assert stored == {key: value for key, value in wanted.items() if value is not None}
