"""An error has the index of its row in the load and, for files, names file, row and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner
from loads import Insert

import fastresp
from fastresp.cli.app import app
from fastresp.encode.template import Template
from fastresp.load.dry_run import dry_run
from fastresp.server.local_server import LocalServer

# Row 3 can't be encoded if it is null; the server refuses rows 1 and 2.
ROWS = [
    {"key": "list", "value": "a"},
    {"key": "text", "value": "b"},
    {"key": "text", "value": "c"},
    {"key": "list", "value": None},
]
RPUSH = "RPUSH {key} {value}"


def rows(folder: Path) -> Any:
    return [dict(row) for row in ROWS]


def columns(folder: Path) -> Any:
    return pa.Table.from_pylist(ROWS)


def one_file(folder: Path) -> Any:
    write(folder / "one.csv", ROWS)
    return fastresp.read(folder / "one.csv")


def several_files(folder: Path) -> Any:
    write(folder / "part-1.csv", ROWS[:2])
    write(folder / "part-2.csv", ROWS[2:])
    return fastresp.read(folder / "part-*.csv")


def several_files_with_bad_rows(folder: Path) -> Any:
    write(folder / "part-1.csv", ROWS[:2], bad="too,many,fields\n")
    write(folder / "part-2.csv", ROWS[2:], bad="too,many,fields\n")
    return fastresp.read(folder / "part-*.csv", bad_rows="skip")


def write(path: Path, rows: list[dict[str, Any]], bad: str = "") -> None:
    lines = [f"{row['key']},{row['value'] or ''}\n" for row in rows]
    path.write_text("".join(["key,value\n", bad, *lines]))


SOURCES = [rows, columns, one_file, several_files, several_files_with_bad_rows]


@pytest.mark.parametrize("source", SOURCES)
def test_a_row_has_one_number(
    insert: Insert,
    server: LocalServer,
    client: redis.Redis,
    tmp_path: Path,
    source: Callable[[Path], Any],
) -> None:
    client.set("text", "x")
    failed: list[fastresp.CommandError] = []
    with pytest.raises(fastresp.EncodeError) as caught:
        insert(source(tmp_path), RPUSH, server=server.url, rejects=failed.append)
    first, second, last = *failed, caught.value
    assert [error.row for error in (first, second, last)] == [1, 2, 3]
    assert last.command == 3
    found = [(error.file, error.row_in_file, error.line) for error in (first, second, last)]
    if "several" in source.__name__:
        one, other = (str(tmp_path / f"part-{number}.csv") for number in (1, 2))
        line = 3 if "bad_rows" in source.__name__ else 2
        assert found == [(one, 1, line + 1), (other, 0, line), (other, 1, line + 1)]
        assert str(second).startswith(
            f"row 0 (key=text), line {line} of {other}, command 2: WRONGT"
        )
        where = f"row 1 (key=list), line {line + 1} of {other}, command 3, column 'value'"
        assert str(last).startswith(where)
    elif source is one_file:
        file = str(tmp_path / "one.csv")
        assert found == [(file, 1, 3), (file, 2, 4), (file, 3, 5)]
        assert str(second).startswith(f"row 2 (key=text), line 4 of {file}, command 2: WRONGTYPE")
    else:
        assert found == [(None, None, None)] * 3
        assert str(second).startswith("row 2 (key=text), command 2: WRONGTYPE")


def test_a_dump_and_a_dry_run_name_the_file(server: LocalServer, tmp_path: Path) -> None:
    path = tmp_path / "part-2.csv"
    with pytest.raises(fastresp.EncodeError) as caught:
        fastresp.dump(several_files(tmp_path), RPUSH, tmp_path / "x.resp")
    assert (caught.value.row, caught.value.file, caught.value.row_in_file) == (3, str(path), 1)
    assert caught.value.line == 3
    done = CliRunner().invoke(
        app,
        ["load", str(tmp_path / "part-*.csv"), RPUSH, "--dry-run"],
        env={"REDIS_URL": server.url},
    )
    assert f"row 1 (key=list), line 3 of {path}, command 3, column 'value'" in done.output


def test_a_dry_run_names_the_file_of_a_row_after_the_sample(
    server: LocalServer, tmp_path: Path
) -> None:
    write(tmp_path / "part-1.csv", ROWS[:1] * 50_000)
    write(tmp_path / "part-2.csv", ROWS[2:])
    found = dry_run(fastresp.read(tmp_path / "part-*.csv"), Template(RPUSH), server.url)
    assert found.sample.rows == 1_000
    path = tmp_path / "part-2.csv"
    where = f"row 1 (key=list), line 3 of {path}, command 50,001, column 'value'"
    assert found.problems[0].startswith(where)
    done = CliRunner().invoke(
        app,
        ["load", str(tmp_path / "part-*.csv"), RPUSH, "--dry-run"],
        env={"REDIS_URL": server.url},
    )
    assert where in done.output
    assert "--nulls empty sends" in done.output


def test_rejects_have_the_row_of_the_load_and_its_file(
    insert: Insert, server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    client.set("text", "x")
    source = several_files(tmp_path)
    write(tmp_path / "part-2.csv", ROWS[2:3])
    rejects = tmp_path / "rejects.jsonl"
    insert(source, RPUSH, server=server.url, rejects=rejects, on_error="collect")
    lines = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(line["row"], line["file"], line["row_in_file"]) for line in lines] == [
        (1, str(tmp_path / "part-1.csv"), 1),
        (2, str(tmp_path / "part-2.csv"), 0),
    ]
    # When rejects are loaded again, each command is a row.
    report = insert(fastresp.read_rejects(rejects), server=server.url, on_error="collect")
    assert [(e.row, e.file, e.row_in_file) for e in report.errors] == [
        (0, str(rejects), 0),
        (1, str(rejects), 1),
    ]


def test_the_command_line_names_the_file(
    server: LocalServer, client: redis.Redis, tmp_path: Path
) -> None:
    several_files(tmp_path)
    url = {"REDIS_URL": server.url}
    done = CliRunner().invoke(app, ["load", str(tmp_path / "part-*.csv"), RPUSH], env=url)
    assert (
        f"row 1 (key=list), line 3 of {tmp_path / 'part-2.csv'}, command 3, column" in done.output
    )
    client.flushall()
    client.set("text", "x")
    again = ["load", str(tmp_path / "part-*.csv"), RPUSH, "--json", "--nulls", "skip"]
    done = CliRunner().invoke(app, again, env=url)
    errors = json.loads(done.stdout)["errors"]
    found = [(error["row"], error["row_in_file"], error["line"]) for error in errors]
    assert found == [(1, 1, 3), (2, 0, 2)]
    rejects = tmp_path / "rejects.jsonl"
    CliRunner().invoke(app, [*again, "--rejects", str(rejects)], env=url)
    done = CliRunner().invoke(app, ["load", str(rejects), "--from-rejects", "--json"], env=url)
    errors = json.loads(done.stdout)["errors"]
    assert [(error["file"], error["line"]) for error in errors] == [
        (str(rejects), 1),
        (str(rejects), 2),
    ]
