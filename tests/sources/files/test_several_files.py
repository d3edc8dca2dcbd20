"""Several files: each keeps the types of its columns; folders name columns."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyarrow import parquet
from tables import failure, rows_of, write_ipc

import fastresp
from fastresp.server.options import Options
from fastresp.sources.source import encoding, released

# A value of the first file and one of the second; a cast to the first type changes it, or fails.
TYPES = {
    "text into int64": (pa.array([1]), pa.array(["007"])),
    "timestamp into date": (pa.array([date(2024, 1, 1)]), pa.array([datetime(2024, 1, 2, 17, 45)])),
    "struct with one more field": (pa.array([{"a": 1}]), pa.array([{"a": 2, "b": "x"}])),
    "list of structs": (pa.array([[{"a": 1}]]), pa.array([[{"a": 2, "b": "x"}]])),
    "float64 into float32": (pa.array([0.5], pa.float32()), pa.array([123456789.123])),
    "float32 into float64": (pa.array([0.5]), pa.array([0.1], pa.float32())),
    "decimal into float64": (pa.array([1.5]), pa.array([Decimal("12345678901234567.89")])),
    "float64 into decimal": (pa.array([1], pa.decimal128(10, 2)), pa.array([0.125])),
    "int64 into bool": (pa.array([True]), pa.array([7])),
    "timestamp into int64": (pa.array([1]), pa.array([datetime(2024, 1, 2)])),
    "time zone": (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC"))),
    "decimal into text": (pa.array(["a"]), pa.array([Decimal("0.00000001")])),
    "uint64 into int64": (pa.array([-1]), pa.array([2**64 - 1], pa.uint64())),
    # One type can represent both values.
    "int64 into int8": (pa.array([1], pa.int8()), pa.array([300])),
    "text of other types": (pa.array(["a"]), pa.array(["b"], pa.large_string())),
    "categories": (pa.array(["a"]), pa.array(["b"]).dictionary_encode()),
    "nulls": (pa.nulls(1), pa.array(["x"])),
}
EACH = " ".join(["HSET", "{id}", *(f"{at} {{{name}!json}}" for at, name in enumerate(TYPES))])
ONE = ("int64 into int8", "text of other types", "categories", "nulls")


def parts(
    folder: Path, suffix: str, columns: Mapping[str, tuple[pa.Array, pa.Array]]
) -> list[Path]:
    """Write two files of one row; the second has its columns in another order."""
    first, second = (
        {"id": [n], **{name: both[n] for name, both in columns.items()}} for n in range(2)
    )
    tables = [pa.table(first), pa.table(dict(reversed(second.items())))]
    paths = [folder / f"part-{number}.{suffix}" for number in range(2)]
    for path, table in zip(paths, tables, strict=True):
        if suffix == "parquet":
            parquet.write_table(table, path)
        else:
            write_ipc(path, table)
    return paths


def sent(source: Any, template: str, **options: Any) -> bytes:
    """Return the commands of a load."""
    output = io.BytesIO()
    fastresp.dump(fastresp.read(source, **options), template, output, nulls="empty")
    return output.getvalue()


@pytest.mark.parametrize("template", [EACH, "RPUSH k {*!json}"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_each_file_keeps_its_types(tmp_path: Path, suffix: str, template: str) -> None:
    paths = parts(tmp_path, suffix, TYPES)
    alone = [sent([path], template) for path in paths]
    if "*" in template:  # the columns have the order of the first file
        names = ", ".join(f'"{name}"' for name in ("id", *TYPES))
        alone[1] = sent([paths[1]], template, sql=f"SELECT {names} FROM source")
    assert sent(paths, template) == b"".join(alone)
    assert sent(tmp_path / "part-*", template, limit=2) == b"".join(alone)


@pytest.mark.few(12)
@pytest.mark.parametrize("form", [{"sort_by": "id"}, {"sql": "FROM source ORDER BY id"}])
@pytest.mark.parametrize("kind", TYPES)
def test_sorted_rows_and_queries_need_one_type(
    tmp_path: Path, kind: str, form: dict[str, str]
) -> None:
    paths = parts(tmp_path, "parquet", {"v": TYPES[kind]})
    if kind in ONE:
        whole = sent(paths, "SET {id} {v}")
        assert sent(paths, "SET {id} {v}", **form) == whole
        assert len(rows_of(paths)) == 2
        return
    assert sent(paths, "SADD {id}", sort_by="id") == sent(paths, "SADD {id}")
    for options in (form, {}):
        said = failure(paths, **options)
        assert said.startswith("column 'v' is ")
        assert said.endswith("load them without sort_by and sql: then each file keeps its own")


def test_verify_compares_the_types_of_each_file(tmp_path: Path, client: redis.Redis) -> None:
    paths = parts(tmp_path, "parquet", {"v": TYPES["float64 into float32"]})
    client.mset({"0": "0.5", "1": "123456792.0"})  # cast to the first type
    assert not fastresp.verify(paths, "SET {id} {v}", server=client).same
    fastresp.mass_insert(paths, "SET {id} {v}", server=client)
    assert client.get("1") == b"123456789.123"
    assert fastresp.verify(paths, "SET {id} {v}", server=client).same


def test_a_later_file_with_other_columns_is_refused_first(tmp_path: Path) -> None:
    paths = parts(tmp_path, "parquet", {"v": (pa.array([[1.5]]), pa.array(["x"]))})
    output = io.BytesIO()
    with pytest.raises(fastresp.TemplateError, match="v!f32") as caught:
        fastresp.dump(fastresp.read(paths), "HSET {id} v {v!f32}", output)
    assert caught.value.file == str(paths[1])
    assert not output.getvalue()


def test_resumed_rows_have_the_types_of_their_file(tmp_path: Path) -> None:
    """Whole files, row groups and batches before the first row are skipped."""
    paths = []
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.int64())
    for number, kind in enumerate(kinds):
        path = tmp_path / f"{number}.{'arrow' if number == 2 else 'parquet'}"
        table = pa.table({"v": pa.array(range(4)).cast(kind)})
        if number == 2:
            write_ipc(path, table, max_chunksize=2)
        else:
            parquet.write_table(table, path, row_group_size=2)
        paths.append(path)
    texts = [f"{v}.0" if kind == pa.float64() else f"{v}" for kind in kinds for v in range(4)]
    for start in range(len(texts) + 1):
        encoder, source = encoding(fastresp.read(paths), "SADD {v}", Options(), start)
        with released(source):
            chunks = b"".join(bytes(chunk.piece(0, len(chunk))) for chunk in encoder.chunks(source))
        assert chunks == b"".join(fastresp.pack("SADD", text) for text in texts[start:])
        assert encoder.rows == len(texts)


def test_a_table_is_loaded_twice(tmp_path: Path) -> None:
    """The end of the first reading does not end the second."""
    table = fastresp.read(parts(tmp_path, "parquet", {"v": TYPES["int64 into bool"]}))
    outputs = [io.BytesIO(), io.BytesIO()]
    for output in outputs:
        assert fastresp.dump(table, "SET {id} {v}", output) == 2
    assert outputs[0].getvalue() == outputs[1].getvalue()


def test_files_named_in_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read like ``source``, and have the aliases that DuckDB gives them."""
    monkeypatch.chdir(tmp_path)
    parts(Path(), "parquet", {"v": TYPES["text into int64"]})
    with pytest.raises(fastresp.SourceError, match=r"column 'v' is int64 in part-0\.parquet and"):
        sent("SELECT * FROM 'part-*.parquet'", "SET {id} {v}")
    Path("day=007").mkdir()
    Path("part-0.parquet").rename("day=007/one.parquet")
    Path("two.csv").write_text("id,name\n0,Zoë\n")
    query = "SELECT 'ë' AS e, one.day, two.name FROM '{}' JOIN \"two.csv\" ON one.id = two.id"
    query = query.format("day=007/one.parquet")
    assert rows_of(query) == [{"e": "ë", "day": "007", "name": "Zoë"}]


# Folders that name columns.

WAYS: list[dict[str, Any]] = [{}, {"sort_by": "n"}, {"sql": "FROM source ORDER BY n"}]


def write_partition(folder: Path, suffix: str, number: int, **more: str) -> Path:
    """Write a file of one row into a new folder."""
    folder.mkdir(parents=True)
    path = folder / f"part.{suffix}"
    row = {"n": number, **more}
    if suffix == "parquet":
        parquet.write_table(pa.table({name: [value] for name, value in row.items()}), path)
    elif suffix == "csv":
        path.write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
    else:
        path.write_text(str(row).replace("'", '"'))
    return path


@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_folders_name_columns(tmp_path: Path, suffix: str, form: dict[str, Any]) -> None:
    """Columns follow the path, as text; also for one path, a relative path, and !json."""
    null = "__HIVE_DEFAULT_PARTITION__"
    write_partition(tmp_path / "z=007" / "day=a%20b", suffix, 1)
    second = write_partition(tmp_path / f"z={null}" / "day=2024-01-02", suffix, 2)
    found = rows_of(tmp_path / "*" / "*" / f"*.{suffix}", **form)
    assert [list(row) for row in found] == [["n", "z", "day"]] * 2
    assert [(row["z"], row["day"]) for row in found] == [("007", "a b"), (None, "2024-01-02")]
    template = "HSET {z}:{day} z {z} day {day} doc {*!json}"
    made = sent(tmp_path / "*" / "*" / f"*.{suffix}", template, **form)
    assert b"\r\n007:a b\r\n" in made
    assert b'"day":"2024-01-02"}\r\n' in made
    assert sent(second, "SET {day} {n}", **form) == sent([second], "SET 2024-01-02 {n}")


@pytest.mark.few(2)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("folder", "name", "columns"),
    [
        ("y=1/z=2/data/day=a", "part.{}", ["day"]),
        ("y=1/z=2/data/day=a", "../day=a/part.{}", ["day"]),
        ("y=1/z=2/data", "day=a/*.{}", ["day"]),
        ("y=1/z=2/data", "*/*.{}", ["day"]),
        ("y=1", "*/*/**/part.{}", ["y", "z", "day"]),
        ("y=1/z=2/data/day=a", "../../../*/data/**/part.{}", ["y", "z", "day"]),
        (".", "y=1/z=2/data/day=a/part.{}", ["day"]),
    ],
)
def test_folders_that_are_not_part_of_the_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    name: str,
    columns: list[str],
    suffix: str,
) -> None:
    """The relative and the absolute path of a file have the same columns."""
    write_partition(tmp_path / "y=1/z=2/data/day=a", suffix, 1)
    monkeypatch.chdir(tmp_path / folder)
    relative = name.format(suffix)
    absolute = str(tmp_path / folder / relative)
    ways = [(path, {}) for path in (relative, absolute, f"SELECT * FROM '{relative}'")]
    for path, form in [*ways, (relative, WAYS[1]), (relative, WAYS[2]), (absolute, WAYS[2])]:
        assert [list(row) for row in rows_of(path, **form)] == [["n", *columns]]
        made = sent(path, "RPUSH k {*!json}", **form)
        assert b'"day":"a"' in made and (b'"y":"1"' in made) == ("y" in columns)


@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_folder_and_file_have_the_same_column(
    tmp_path: Path, suffix: str, form: dict[str, Any]
) -> None:
    """The file's own value is used; the folder must not have another one."""
    same = write_partition(tmp_path / "day=X", suffix, 1, day="X")
    other = write_partition(tmp_path / "day=Y", suffix, 2, day="x")
    assert sent(same, "RPUSH k {*!json}", **form) == sent(same, "RPUSH k {*!json}")
    assert rows_of(same, **form)[0]["day"] == "X"
    said = failure(other, **form)
    assert f"{other}: its column 'day' has other values than 'Y', which its folder has" in said


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["7"]).dictionary_encode(),
        pa.array(["7"], pa.string_view()),
        pa.array([b"7"]),
        pa.array([7.0]),
        pa.array([Decimal("7.00")]),
        pa.array(["7"], pa.large_string()),
    ],
    ids=lambda column: str(column.type),
)
def test_types_of_a_column_named_by_a_folder(tmp_path: Path, column: pa.Array) -> None:
    for folder in ("x=7", "x=8"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "part.parquet"
        parquet.write_table(pa.table({"x": column}), path)
    assert rows_of(tmp_path / "x=7" / "*") == [{"x": column[0].as_py()}]
    assert "its column 'x' has other values than '8'" in failure(path)


@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize(
    ("folders", "columns"),
    [
        ("x=1/x=1", {"x": "1"}),
        ("x=a=b", {"x": "a=b"}),
        ("x=a\\b", {"x": "a\\b"}),
        ("x=a\nb", {"x": "a\nb"}),
        ("x=%FF", {"x": "\N{REPLACEMENT CHARACTER}"}),
        ("a%20b=1", {"a b": "1"}),
    ],
)
def test_folders_that_duckdb_reads_differently(
    tmp_path: Path, folders: str, columns: dict[str, str], form: dict[str, Any]
) -> None:
    path = write_partition(tmp_path / folders, "parquet", 1)
    assert rows_of(path, **form) == [{"n": 1, **columns}]


@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_two_folders_that_name_the_same_column(
    tmp_path: Path, suffix: str, form: dict[str, Any]
) -> None:
    path = write_partition(tmp_path / "x=1" / "y=1" / "%78=2", suffix, 1)
    said = failure(path, **form)
    assert f"{path}: two of its folders name the column 'x', with the values '1' and '2'; " in said


@pytest.mark.parametrize("form", WAYS)
def test_folders_that_name_other_columns(tmp_path: Path, form: dict[str, Any]) -> None:
    paths = [
        write_partition(tmp_path / folder, "parquet", number)
        for number, folder in enumerate(("day=1", "hour=1"))
    ]
    assert f"{paths[1]} has the columns n, hour, but {paths[0]} has n, day" in failure(
        paths, **form
    )


@pytest.mark.parametrize("template", ["SADD k {day}", "SADD k {**}", "SADD k {*!json}"])
def test_rows_without_columns_besides_their_folders(tmp_path: Path, template: str) -> None:
    for day, text in ((1, ""), (2, "{}\n{}\n"), (3, "{}")):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        (folder / "e.jsonl").write_text(text)
    items = {"{day}": ["{}"], "{**}": ["day", "{}"], "{*!json}": ['{{"day":"{}"}}']}[template[7:]]
    expected = [("SADD", "k", *(each.format(day) for each in items)) for day in (2, 2, 3)]
    assert sent(str(tmp_path / "*" / "e.jsonl"), template) == fastresp.pack_many(expected)


def test_error_names_the_file_that_defines_the_columns(tmp_path: Path) -> None:
    one, two, three = (tmp_path / f"{number}.{end}" for number, end in enumerate(
        ("jsonl", "csv", "parquet")
    ))  # fmt: skip
    one.write_text('{"id":1,"a":2}\n')
    two.write_text("id,a\n1,2\n")
    parquet.write_table(pa.table({"id": [1], "a": [2], "b": [3]}), three)
    words = f"{two} has the columns id, a, but {three} has id, a, b; load"
    with pytest.raises(fastresp.SourceError, match=re.escape(words)):
        sent([str(each) for each in (one, two, three)], "SADD k {a}")


def test_documents_have_no_keys_of_other_rows(tmp_path: Path) -> None:
    """They have only their own keys, and the keys of their folders."""
    lines = '{"id":1,"v":null,"w":1.50}\n{"id":2}\n{ }\n'
    paths = [tmp_path / place for place in ("day=1/a.jsonl", "day=2/a.jsonl", "c.csv", "d.jsonl")]
    for path, text in zip(paths, (lines, '{"z":"}"}\n', "id,v\n3,\n", lines), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    own = ['{"id":1,"v":null,"w":1.50', '{"id":2', "{"]
    folders = [f'{each}{"," * (each != "{")}"day":"1"}}' for each in own] + ['{"z":"}","day":"2"}']
    mixed = ['{"id":"3","v":null}', *(f"{each}}}" for each in own[:2]), "{ }"]
    sources: list[Any] = [str(tmp_path / "*" / "a.jsonl"), [str(path) for path in paths[2:]]]
    for source, expected in zip(sources, (folders, mixed), strict=True):
        commands = [("SADD", "k", each) for each in expected]
        assert sent(source, "SADD k {*!json}") == fastresp.pack_many(commands)
