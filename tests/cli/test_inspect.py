"""``fastresp inspect``: an RDB file as a table, JSON and a page."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from command_line import invoke
from rdb_files import every_opcode, finished, text

from fastresp.cli.exit_codes import Exit

CREATED_S = 1_700_000_000


def expiring(seconds: int, key: bytes) -> bytes:
    return b"\xfd" + struct.pack("<i", CREATED_S + seconds) + b"\x00" + text(key) + text(b"v" * 10)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "<dump>.rdb"
    body = b"\xfa" + text(b"ctime") + text(str(CREATED_S).encode())
    body += every_opcode() + b"\xfe\x00"
    body += expiring(-5, b"user:1:a") + expiring(5, b"user:2:<b>") + expiring(90_000, b"user:2")
    path.write_bytes(finished(body))
    return path


def test_json(dump: Path) -> None:
    result = invoke("inspect", dump, "--json", "--depth", 2)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["exit_code"], found["error"]) == (Exit.OK, 0, None)
    assert (found["rdb_version"], found["server"], found["keys"]) == (11, "Redis 7.2.5", 9)
    assert (found["functions"], found["created"]) == (1, "2023-11-14T22:13:20+00:00")
    assert {name: each["keys"] for name, each in found["types"].items()} == {"string": 8, "list": 1}
    assert {name: each["keys"] for name, each in found["databases"].items()} == {"0": 8, "10": 1}
    assert {name: each["keys"] for name, each in found["prefixes"].items()} == {
        "(no prefix)": 6, "user:1:": 1, "user:2:": 1, "user:": 1,
    }  # fmt: skip
    assert {name: each["keys"] for name, each in found["expiry"].items() if each["keys"]} == {
        "expired": 1, "within an hour": 1, "within a week": 1, "later": 2, "never": 4,
    }  # fmt: skip
    assert found["largest"][0] == {"key": "a" * 18, "type": "string", "database": 10, "bytes": 220}
    assert sum(each["bytes"] for each in found["types"].values()) == found["bytes"]


def test_table(dump: Path) -> None:
    result = invoke("inspect", dump, "--match", "user:*")
    assert result.exit_code == Exit.OK
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["keys", "that", "do", "not", "match", "6"] in lines
    assert ["user:", "3", "57", "bytes", "100.0%", "█" * 20] in lines
    assert ["written", "by", "Redis", "7.2.5"] in lines


def test_page(dump: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = invoke("inspect", dump, "--html", page)
    assert (result.exit_code, result.stdout) == (Exit.OK, "")
    html = page.read_text()
    assert "&lt;dump&gt;.rdb" in html
    assert "user:2:&lt;b&gt;" in html
    assert "<dump>" not in html
    assert "http" not in html, "the page must not need other files"


def test_damaged_file_shows_what_was_read(dump: Path, tmp_path: Path) -> None:
    dump.write_bytes(dump.read_bytes()[:-12])
    result = invoke("inspect", dump, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["keys"]) == (Exit.ERRORS, 8)
    assert "truncated: it ends at byte" in found["error"]
    page = tmp_path / "page.html"
    assert invoke("inspect", dump, "--html", page).exit_code == Exit.ERRORS
    assert "truncated" in page.read_text()


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "dump.csv"
    path.write_text("id,name\n1,Ann\n")
    result = invoke("inspect", path)
    assert result.exit_code == Exit.ERRORS
    assert "not an RDB file" in result.stderr
    assert invoke("inspect", tmp_path / "none.rdb").exit_code == Exit.USAGE
