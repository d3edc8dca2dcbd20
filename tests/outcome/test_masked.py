"""No credentials in texts: URLs, settings in queries, and errors that quote them."""

from __future__ import annotations

import traceback
from pathlib import Path

import pyarrow as pa
import pytest

import fastresp
from fastresp.outcome.passwords import cause_shown, masked


@pytest.mark.few(3)
@pytest.mark.parametrize("repeated", ["https://h/?,;", ",;", "a.", "a-", "://", "'", "password ="])
def test_long_texts(repeated: str) -> None:
    """The time is linear; otherwise, a text of 1 MB would take hours."""
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
        "https://h/x?X-Amz-Credential=geheim&X-Amz-Expires=60&X-Amz-Signature=geheim",
        "https://h/x?page=2&access_token=geheim#key=geheim",
        "https://h/x?geheim-with-more-than-20-characters",
        "https://h/x?page=1;token=geheim&sig=a;geheim?geheim",
        "https://h/x?next=http://u:geheim@h",
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
        "(see https://h/x.csv?page=2&size=10#top) or https://h/?",
        "compass=1, bypass='x', key='y'",
        "'http://h:80' and x@y, redis://[::1]:6379/0 and x@y, http://h: x@y, h:1,h:2 x@y",
    ],
)
def test_texts_without_credentials(text: str) -> None:
    assert masked(text) == text


def test_parameters_that_are_not_secret_stay() -> None:
    url = "https://h/x.csv?page=2&sig=a/b=&size=10"
    assert masked(f"({url}), x") == "(https://h/x.csv?page=2&sig=***&size=10), x"


def test_missing_files_keep_their_names(tmp_path: Path) -> None:
    for path in (f"{tmp_path}/token=5/x.csv", f"{tmp_path}/{'long/' * 200}x.csv"):
        with pytest.raises(FileNotFoundError) as caught:
            fastresp.read(path)
        assert caught.value.filename == path
    for statement in ("SET x TO password='geheim'", "COPY (SELECT * FROM 'http://u:geheim@h/x')"):
        with pytest.raises(FileNotFoundError, match=r"\*\*\*") as caught:
            fastresp.read(statement)
        assert "geheim" not in str(caught.value)


def test_causes_are_shown_without_credentials(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,name,token\n1,x,geheim\n")
    sql = "SELECT CAST(name AS INT) AS n FROM source WHERE token = 'geheim'"
    with pytest.raises(fastresp.SourceError) as caught:
        pa.table(fastresp.read(path, sql=sql))
    cause = caught.value.__cause__
    assert type(cause).__name__ == "ConversionException" and "token = ***" in str(cause)
    shown = "".join(traceback.format_exception(caught.value))
    assert "ConversionException" in shown and "geheim" not in shown


def test_copies_of_causes() -> None:
    """Types that can't be created from one text, notes, and causes of causes."""
    wrong = UnicodeDecodeError("utf-8", b"x", 0, 1, "password=geheim")
    for error, kind in ((OSError(2, "pass=geheim"), FileNotFoundError), (wrong, UnicodeError)):
        copy = cause_shown(error)
        assert (type(copy), str(copy)) == (kind, masked(str(error)))
    outer = KeyError("x")
    outer.__cause__ = error
    outer.add_note("token=geheim")
    shown = "".join(traceback.format_exception(cause_shown(outer)))
    assert "geheim" not in shown and "token=***" in shown and "password=***" in shown
    harmless = KeyError("x")
    assert cause_shown(harmless) is harmless


def test_checkpoints_have_no_digest_of_a_password(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    sql = "SELECT id FROM source WHERE id = '{}' AND password = '{}'"

    def query_of(*values: str) -> str:
        return fastresp.read(path, sql=sql.format(*values)).description(str)["query"]

    assert query_of("1", "geheim") == query_of("1", "other") != query_of("2", "geheim")
