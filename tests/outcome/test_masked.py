"""No credentials in texts: URLs, settings in queries, and errors that quote them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fastresp
from fastresp.outcome.passwords import masked


@pytest.mark.parametrize("repeated", ["https://h/?,;", ",;", "a.", "a-", "://", "'", "password ="])
def test_long_texts(repeated: str) -> None:
    """The time is linear: a text of 1 MB would take hours otherwise."""
    masked(f"https://h/?{repeated * (2**20 // len(repeated))}x")
    masked(repeated * (2**20 // len(repeated)))


@pytest.mark.parametrize(
    "text",
    [
        "{'password': 'geheim'}",
        '{"password":"geheim"}',
        "MAP {'secret': 'geheim'}",
        "EXTRA_HTTP_HEADERS MAP {'Authorization': 'Bearer geheim'}",
        "Authorization: Bearer geheim",
        "{secret: 'geheim'}",
        "api_key='geheim'",
        "apikey=geheim",
        "pass=geheim",
        "db_pass = geheim",
        "SECRET 'geheim'",
        'SECRET "geheim"',
        r"SECRET E'\'geheim'",
        "SECRET 'ge''geheim'",
        "SECRET $$geheim$$",
        "PASSWORD := 'geheim'",
        "password => 'geheim'",
        "password: geheim",
        "postgres_scan('host=h password=geheim', 'a', 'b')",
        "can't connect with password='geheim'",
        """the query "SELECT 'a', token='geheim'" failed""",
        "ftp://u:p'geheim@h/x",
        "ftp://u:p geheim@h/x",
        "SELECT * FROM 'ftp://u:p''geheim/@h/x'",
        "read redis://:geheim@h:6379/0, then",
        "x_https://h/x?sig=geheim",
    ],
)
def test_credentials(text: str) -> None:
    shown = masked(text)
    assert "geheim" not in shown and "***" in shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'token', 'name' FROM source",
        "columns are 'id', 'token', 'name'",
        "('password', 'VARCHAR')",
        "SELECT token::VARCHAR, password FROM source WHERE name = 'x'",
        'SELECT "token" AS "Token", token FROM source WHERE password IS NULL',
        "id: int64, token: string, password: large_string",
        "compass=1, bypass='x', key='y'",
        "'http://h:80' and x@y, redis://[::1]:6379/0 and x@y, http://h: x@y, h:1,h:2 x@y",
    ],
)
def test_texts_without_credentials(text: str) -> None:
    assert masked(text) == text


def test_missing_files_keep_their_names(tmp_path: Path) -> None:
    for path in (f"{tmp_path}/token=5/x.csv", f"{tmp_path}/{'long/' * 200}x.csv"):
        with pytest.raises(FileNotFoundError) as caught:
            fastresp.read(path)
        assert caught.value.filename == path
    for statement in ("SET x TO password='geheim'", "COPY (SELECT * FROM 'http://u:geheim@h/x')"):
        with pytest.raises(FileNotFoundError, match=r"\*\*\*") as caught:
            fastresp.read(statement)
        assert "geheim" not in str(caught.value)
