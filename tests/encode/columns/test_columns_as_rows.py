"""Templates over columns: the same RESP as for rows, nulls, and bad columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from columns import Array, as_rows, dumped, outcome, written

import fastresp
from fastresp import EncodeError, TemplateError, pack, pack_many

TAGS = pa.array([["a", "b"], None, [], ["c", None], [None]])
PAIRS = pa.array(
    [{"x": "1", "y": 2}, None, {"x": None, "y": 3}, {"x": None, "y": None}, {"x": "", "y": 0}]
)
MAPS = pa.array(
    [[("a", 1), ("b", None)], None, [], [("c", None)], [("d", 4)]], pa.map_("string", "int32")
)
NESTED = pa.array([{"l": [1, None], "s": {"t": "a\"\\\n"}}, None, {"l": None, "s": None},
                   {"l": [], "s": {"t": None}}, {"l": [5], "s": {"t": "ä"}}])  # fmt: skip
BASE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5]),
        "name": pa.array(["ann", None, "", "dä", "e"]),
        "score": pa.array([0.5, 1.5, None, None, 3.25]),
        "flag": pa.array([True, None, False, None, True]),
        "tags": TAGS,
        "pairs": PAIRS,
        "map": MAPS,
        "nested": NESTED,
        "code": pa.array(["x", None, "y", "x", None]).dictionary_encode(),
        "gone": pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 1, 0], "int8"), pa.array(["z", None])
        ),
        "run": pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 3, 5], "int32"), pa.array(["r", None, "q"])
        ),
        "none": pa.nulls(5),
        "vector": pa.array([[1.0, 2.5], None, [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
    }
)

TEMPLATES = [
    ("id", "SET {id} 1"),
    ("id name", "SET {id} {name}"),
    ("id name", "SET user:{id}:{name} 1"),
    ("name", "SET {name}{name} {name}"),
    ("id name score flag", "HSET user:{id} {**}"),
    ("id name score flag", "HSET {id} fixed 1 {**} last 2"),
    ("name score", "HSET k {**}"),
    ("name score", "HSET k {**} {**}"),
    ("name", "{name} {**}"),
    ("none", "HSET k {**}"),
    ("none id", "HSET k {**}; PING; SET {id} {none}"),
    ("id tags", "SADD {id} {*tags}"),
    ("id tags", "SADD {id} {*tags} end {*tags}"),
    ("tags", "{*tags}"),
    ("tags", "{*tags} {**}"),
    ("id pairs", "HSET {id} {*pairs}"),
    ("pairs id", "{*pairs}; SET {id} 1"),
    ("id map", "HSET {id} {*map}"),
    ("map id", "HSET {*map} {id} {**}"),
    ("id nested", "SET {id} {nested!json}"),
    ("id nested", "SET {id}:{nested!json} x"),
    ("id nested flag score", "SET k {*!json}"),
    ("id code gone run", "HSET {id} {**}"),
    ("code gone run", "SET {code}:{gone} {run}"),
    ("run code", "SADD {run} {code}; SADD {code} {run}; PING {run}"),
    ("id vector", "HSET {id} v {vector!f32}"),
    ("id vector", "HSET {id} v {vector!f64} w {vector!f16}"),
    ("id name", "SET {0} 1; DEL {id}; SADD {name} {id}; SADD all {name}"),
    ("name id", "CLIENT {name} {id}"),
]


def by_position(template: str, names: list[str]) -> str:
    return template.replace("{0}", f"{{{names[0]}}}")


@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
@pytest.mark.parametrize(("columns", "template"), TEMPLATES, ids=lambda value: value)
def test_same_as_rows(columns: str, template: str, nulls: Any) -> None:
    """The bytes are equal; errors have the same type, row, command and argument."""
    names = columns.split()
    forms = {"*": "json"} if "!json}" in template else {}
    if "vector!" in template:
        forms = {"*": "vector"}
    whole = BASE.select(names)
    tables = [whole, whole[1:], whole[2:4], whole[4:], whole[:0]]
    tables.append(pa.concat_tables([whole[3:], whole[:0], whole[:3], whole[2:]]))
    for table in tables:
        found = outcome(table, template, nulls)
        assert found == outcome(as_rows(table, forms), by_position(template, names), nulls)


BAD = [
    ("SUBSCRIBE", "a", "SUBSCRIBE changes the reply stream"),
    ("client", "reply", "CLIENT REPLY changes the reply stream"),
    ("monitor", "a", "MONITOR changes the reply stream"),
]


@pytest.mark.parametrize(("command", "key", "words"), BAD)
def test_commands_from_the_data(command: str, key: str, words: str) -> None:
    commands = ["SET", None, "client", "subscribed", command, "GET"]
    table = pa.table({"cmd": commands, "key": ["a", "b", "LIST", "d", key, "f"]})
    before = pack_many([("SET", "a"), ("client", "LIST"), ("subscribed", "d")])
    with pytest.raises(EncodeError, match=words) as caught:
        dumped(table, "{cmd} {key}", nulls="skip")
    assert (caught.value.row, caught.value.command, caught.value.argument) == (4, 3, None)
    assert written(table, "{cmd} {key}", "skip") == before
    assert outcome(table, "{cmd} {key}", "skip") == outcome(as_rows(table), "{cmd} {key}", "skip")


def test_null_rows() -> None:
    rows = pa.array([{"a": 1, "b": None}, {"a": None, "b": 2}, None, {"a": 3, "b": 3}])
    for nulls, command in (("skip", 0), ("empty", 2)):
        with pytest.raises(EncodeError) as caught:
            dumped(Array(rows), "SET {a} {b}", nulls=nulls)
        error = caught.value
        assert str(error).startswith(f"row 2, command {command}: the row itself is null")
        assert (error.row, error.command, error.argument) == (2, command, None)


MAPS = [{"id": 1, "t": [("a", 3), ("b", 2)], "v": [1]}, {"id": 2, "t": [], "v": []}]


@pytest.mark.parametrize("nulls", ["auto", "skip", "empty", "error"])
def test_command_without_items(nulls: Any) -> None:
    """A command is left out if no list and no {**} has an item."""
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table({
        "id": [1, 2], "t": pa.array([each["t"] for each in MAPS], kind),
        "v": pa.array([each["v"] for each in MAPS], pa.list_(pa.int64())),
    })  # fmt: skip
    rows: list[Any] = [each | {"t": dict(each["t"])} for each in MAPS]
    pairs = pack("HSET", "k:1", "a", 3, "b", 2)
    for template, expected in {
        "HSET k:{id} {*t} {**-v}": pairs,
        "HSET k:{id} {**-v} {*t}": pairs,
        "HSET k:{id} {*t}": pairs,
        "SADD k:{id} {*v}": pack("SADD", "k:1", 1),
        "SADD k:{id} {*v} {*t}": pack("SADD", "k:1", 1, "a", 3, "b", 2),
        "{*v}": pack(1),
        "HSET k {**-id,t,v}": b"",
        "{**-id,t,v}": b"",
    }.items():
        for data in (table, rows):
            assert outcome(data, template, nulls) == (expected, None), template


# Columns that a template can't use.

UNION = pa.UnionArray.from_sparse(pa.array([0], "int8"), [pa.array([1])])
INTERVAL = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
ODD = pa.table(
    {
        "n": [1],
        "bytes": [b"x"],
        "union": UNION,
        "interval": INTERVAL,
        "list": [[1]],
        "struct": [{"a": 1}],
        "map": pa.array([[("a", 1)]], pa.map_("string", "int8")),
        "deep": [[[1]]],
        "coded": pa.DictionaryArray.from_arrays(pa.array([0], "int8"), pa.array([[1]])),
        "unions": pa.ListArray.from_arrays([0, 1], UNION),
    }
)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "SET {union} 1",
            "the column 'union' is of type union, which is not one argument: cast it",
        ),
        (
            "SET {interval} 1",
            "the column 'interval' is of type interval, which is not one argument",
        ),
        ("SET {list} 1", "'list' is of type list, which is not one argument: write {*list}"),
        (
            "SET a:{struct} 1",
            "'struct' is of type struct, which is not one argument: write {*struct}",
        ),
        ("SET {map} 1", "'map' is of type map, which is not one argument: write {*map} for one"),
        (
            "SET {coded} 1",
            "'coded' is of type dictionary, which is not one argument: write {*coded}",
        ),
        ("SET k {*n}", "the column 'n' is of type int64, and {*n} needs a list; write {n}"),
        ("SET k {*deep}", "'deep' is of type list, whose items are not one argument each"),
        ("SET k {*unions}", "'unions' is of type list, whose items are not one argument each"),
        ("SET k {bytes!json}", "'bytes' is of type binary, which has no JSON form"),
        ("SET k {union!json}", "'union' is of type union, which has no JSON form: cast it"),
        ("SET k {unions!json}", "'unions' is of type list, which has no JSON form"),
        ("SET k {*!json}", "the column 'bytes' is of type binary, which has no JSON form"),
        ("SET k {n!f32}", "the column 'n' is of type int64, and !f32 needs lists of numbers"),
        ("SET k {deep!f32}", "'deep' is of type list, and !f32 needs lists of numbers"),
        ("HSET k {**}", "the column 'union' is of type union, which is not one argument"),
        ("SET k {m}", "the data has no column {m}: its columns are n, bytes, union"),
        ("SET k {10}", "the data has no column {10}: its columns are n"),
    ],
)
def test_bad_column(template: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        dumped(ODD, template)
    assert words in str(caught.value)
    assert caught.value.template == template
    assert template[caught.value.position] == "{"


def test_unused_unsupported_columns_are_allowed() -> None:
    assert dumped(ODD, "SET {n} {bytes}") == pack("SET", 1, b"x")
    assert dumped(ODD, "SET {n} {deep!json}") == pack("SET", 1, "[[1]]")


def test_names() -> None:
    names = ['quo"te', "new\nline", "b\\s", "\x01", "ä€", "a b", ""]
    table = pa.table([pa.array([i]) for i in range(7)], names)
    assert dumped(table, "HSET k {**}") == pack(
        "HSET", "k", *[part for i, name in enumerate(names) for part in (name, i)]
    )
    assert json.loads(dumped(table, "{*!json}").split(b"\r\n")[2]) == {
        name: i for i, name in enumerate(names)
    }
    rows = as_rows(table)
    assert dumped(table, "SET k {*!json}") == dumped(rows, "SET k {*!json}")
    assert dumped(table, 'SET {quo"te} {ä€}') == dumped(rows, 'SET {quo"te} {ä€}')


def test_duplicate_names() -> None:
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "a"])
    for template in ("HSET k {**}", "SET k {*!json}"):
        with pytest.raises(TemplateError, match="two columns are named 'a'; rename one"):
            dumped(table, template)
    assert dumped(table, "HSET {2} {**}") == pack("HSET", 3, "a", 1, "b", 2)
    with pytest.raises(TemplateError, match=r"2 columns are named 'a'; .*: \{0\} or \{2\}"):
        dumped(table, "GET {a}")


def test_names_that_are_numbers() -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], ["10", "1", "x"])
    assert dumped(table, "MSET {10} {1} {0} {2}") == pack("MSET", "a", "b", "a", "c")


def test_columns_need_a_template() -> None:
    with pytest.raises(TypeError, match="a Table has columns and needs a template"):
        fastresp.dump(BASE, None, "/dev/null")
