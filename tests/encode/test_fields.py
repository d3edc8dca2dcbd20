"""How placeholders find fields: paths, missing keys, near misses."""

from __future__ import annotations

import collections
import re
import sqlite3
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from columns import Array, dumped, outcome
from named_fields import BASE, CITIES, CODES, RUNS, Address, Geo, Slotted, refused

import fastresp
from fastresp import EncodeError, Template, TemplateError, pack, pack_many

# A field within a field.

ULM: dict[str, Any] = {"city": "Ulm", "geo": {"lat": 48.4, "lon": 10}, "tags": ["a", 1]}
PLACES = [
    ULM,
    types.MappingProxyType({**ULM, "geo": types.MappingProxyType({"lat": 48.4, "lon": 10})}),
    collections.ChainMap({**ULM, "geo": Geo(48.4, 10)}),
    Address("Ulm", Geo(48.4, 10)),
    Slotted("Ulm", types.SimpleNamespace(lat=48.4, lon=10)),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: type(place).__name__)
def test_path_in_rows(place: Any) -> None:
    expected = pack("GEOADD", "Ulm", 10, 48.4, "u:Ulm:7")
    text = "GEOADD {at.city} {at.geo.lon} {at.geo.lat} u:{at.city}:{id}"
    row = {"id": 7, "at": place}
    for each in (row, types.MappingProxyType(row), types.SimpleNamespace(**row)):
        assert dumped([each, each], text) == expected * 2
    by_position = text.replace("{at.", "{1.").replace("{id}", "{0}")
    assert dumped([(7, place)], by_position) == expected
    assert dumped([place], text.replace("{at.", "{").replace("{id}", "7")) == expected


FORMS = [
    "SET {id} {at.city}",
    "SET k:{at.city}:{at.geo.lat} {at.geo.lon}",
    "SADD {id} {*at.tags}",
    "HSET {id} {*at.geo}",
    "SET {id} {at.geo!json}",
    "SET {id} x:{at.geo.lat!json}",
    "SET {id} {vec.v!f32}",
    "HSET {at.city} {**-at,vec}",
    "HSET {at.city} id {id} {**!json}",
    "HSET k {**-at!json} {at.geo.lon}",
    "HSET k {**-id, name,vec!json}",
    "HSET k {**-0,1,2}",
]


@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
@pytest.mark.parametrize("template", FORMS)
def test_columns_send_what_rows_send(template: str, nulls: Any) -> None:
    tables = [BASE]
    if "{*" not in template.replace("{**", ""):
        tables += [BASE.set_column(1, "at", RUNS), BASE.set_column(1, "at", CODES)]
    for whole in tables:
        for table in (
            whole,
            whole[1:],
            whole[2:4],
            whole[4:],
            pa.concat_tables([whole[3:], whole]),
        ):
            rows = table.to_pylist()
            if "-0," in template:
                template = template.replace("-0,1,2", "-id,at,vec")
            assert outcome(table, template, nulls) == outcome(rows, template, nulls), template


def test_path_in_columns() -> None:
    text = "GEOADD {at.city} {at.geo.lon} {at.geo.lat} u:{at.city}:{id}"
    expected = pack("GEOADD", "Ulm", 10, 48.4, "u:Ulm:0")
    assert dumped(BASE[:1], text) == expected
    assert dumped(BASE[:1], text.replace("{at.", "{1.")) == expected
    assert dumped(Array(CITIES[:1]), "GEO {geo.lon} {city}") == pack("GEO", 10, "Ulm")
    for encoded in (RUNS, CODES):
        table = BASE.set_column(1, "at", encoded)
        assert dumped(table[2:3], "SET {at.city} 1", nulls="empty") == pack(
            "SET", "" if encoded is RUNS else "Ulm", 1
        )
    long = pa.table({"a": [{"b": "x" * 2_000_000}, {"b": "y" * 5000}]})
    assert dumped(long, "SET k {a.b}") == dumped(long.to_pylist(), "SET k {a.b}")


def test_value_errors_name_the_path() -> None:
    table = pa.table({"at": [{"geo": {"lat": None}}]})
    for data, what in ((table, "column"), (table.to_pylist(), "field")):
        for text in ("SET k {at.geo.lat}", "SET k x:{at.geo.lat}", "SADD k {*at.geo.lat}"):
            if "*" in text and what == "column":
                continue
            with pytest.raises(EncodeError, match=f"row 0, .*{what} 'at.geo.lat', argument 2: "):
                dumped(data, text)
    table = pa.table({"at": [{"x": float("nan"), "v": [1.0]}, {"x": 1, "v": [1.0, 2.0]}]})
    with pytest.raises(EncodeError, match=r"column 'at.x', argument 1: NaN and infinity"):
        dumped(table, "SET {at.x!json}")
    with pytest.raises(EncodeError, match=r"row 1 .* column 'at.v', .* length differs"):
        dumped(table, "SET {at.v!f32}")


def test_a_name_with_dots_takes_precedence_over_a_path() -> None:
    """A CSV column may have such a name; rows without that name use the path."""
    both = {"a.b": 1, "a": {"b": 2, "c.d": 3}, "No.": 4, ".x": 5}
    rows = [both, {"a": {"b": 2}, "No.": 4, ".x": 5}]
    table = pa.Table.from_pylist([both])
    assert dumped(rows, "SET {a.b} {No.} {.x}") == pack_many([("SET", 1, 4, 5), ("SET", 2, 4, 5)])
    for data in ([both], table, [types.MappingProxyType(both)]):
        assert dumped(data, 'SET {a.b} {"a.b"} {a."b"} {"a"."c.d"} {No.}') == pack(
            "SET", 1, 1, 2, 3, 4
        )
        assert dumped(data, "HSET {a.b} {**-a}") == pack("HSET", 1, "No.", 4, ".x", 5)
        assert dumped(data, "HSET k {**-a,a.b}") == pack("HSET", "k", "No.", 4, ".x", 5)
    # A path names a part of a field; {**} still contains the field.
    nested = {"a": {"b": 2}, "c": 1}
    for data in ([nested], pa.Table.from_pylist([nested])):
        assert dumped(data, "HSET {a.b} {**!json}") == pack("HSET", 2, "a", '{"b":2}', "c", 1)


NOT_WITHIN = [
    ("SET ^{at.ctiy}", "the fields of at are city, geo, tags; did you mean {at.city}?"),
    ("SET ^{at.geo.lng}", "the fields of at.geo are lat, lon; did you mean {at.geo.lon}?"),
    ("SET ^{*at.tag.x}", "the fields of at are city, geo, tags; did you mean {at.tags.x}?"),
    ("SET ^{att.city}", "its {} are id, at, name; did you mean {{at.city}}?"),
    ("SET x^{at.geo.zzz!json}", "the fields of at.geo are lat, lon"),
]


@pytest.mark.parametrize(("marked", "words"), NOT_WITHIN)
def test_path_that_leads_nowhere(marked: str, words: str) -> None:
    table = BASE.drop(["vec"])[:1]
    key = marked[marked.index("{") :].strip("{}*").removesuffix("!json")
    text = words.format("columns") if "{}" in words else words
    refused(table, marked, f"the data has no column {{{key}}}: {text}")
    text = words.format("fields") if "{}" in words else words
    refused(table.to_pylist(), marked, f"the row has no field {{{key}}}: {text}")


def test_path_through_a_value_without_fields() -> None:
    row = {"at": {"name": "Ulm", "tags": [1]}, "map": {"a": 1}}
    table = pa.table({"at": [row["at"]], "map": pa.array([[("a", 1)]], pa.map_("string", "int8"))})
    nowhere = "and a path can only go through structs"
    refused(table, "SET ^{at.name.title}", "the data has no column {at.name.title}: the column "
            f"'at.name' is of type string, {nowhere}")  # fmt: skip
    refused(table, "SET ^{at.tags.0}", "the data has no column {at.tags.0}: the column 'at.tags' "
            f"is of type list, {nowhere}")  # fmt: skip
    refused(table, "SET ^{map.a}", f"the data has no column {{map.a}}: the column 'map' is of type "
            f"map, {nowhere}")  # fmt: skip
    for nulls in ("error", "skip", "empty"):
        # An error of the row, as in JSON Lines: other rows may be valid.
        for name, value in (("at.name.title", "'Ulm' (a str)"), ("at.tags.0", "[1] (a list)")):
            words = f"the row has no field {{{name}}}: {name.rpartition('.')[0]} is {value}, which"
            with pytest.raises(EncodeError, match="row 0, .*" + re.escape(words)):
                dumped([row], f"SET {{{name}}} 1", nulls=nulls)
        refused([{"at": Address("Ulm")}], "SET ^{at.ctiy}", "the row has no field {at.ctiy}: the "
                "fields of at are city, geo; did you mean {at.city}?", nulls)  # fmt: skip
        with pytest.raises(EncodeError, match=r"row 0, .*at is \(1, 2\) \(a tuple\)"):
            dumped([{"at": (1, 2)}], "SET {at.count} 1", nulls=nulls)
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    refused(pa.table({"a": twice}), "SET ^{a.x}", "the data has no column {a.x}: 2 fields of a are "
            "named 'x'; rename one")  # fmt: skip


# Keys that a mapping lacks.

MISSING: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("SET k {b}; GET {a}", {"a": 1}, [("GET", 1)], [("SET", "k", ""), ("GET", 1)]),
    ("SET k x{b}{a}", {"a": 1}, [], [("SET", "k", "x1")]),
    ("SADD k {*b}", {"a": 1}, [], [("SADD", "k", "")]),
    ("SET k {b!json}", {"a": 1}, [("SET", "k", "null")], [("SET", "k", "null")]),
    ("SET k {b!f32}", {"a": 1}, [], [("SET", "k", "")]),
    ("HSET {b} {**}", {"a": 1}, [], [("HSET", "", "a", 1)]),
    ("HSET k {b} {**}", {"a": 1}, [], [("HSET", "k", "", "a", 1)]),
    ("{b} k", {"a": 1}, [], [("", "k")]),
    ("SET k {b.c}", {"a": 1}, [], [("SET", "k", "")]),
    ("SET k {a.b}", {"a": {}}, [], [("SET", "k", "")]),
    ("SET k {a.b.c}", {"a": {}}, [], [("SET", "k", "")]),
    ("SET k {a.b}", {"a": None}, [], [("SET", "k", "")]),
    ("SET k {a.b!json}", {"a": {}}, [("SET", "k", "null")], [("SET", "k", "null")]),
]


@pytest.mark.parametrize("make", [dict, types.MappingProxyType, collections.ChainMap])
@pytest.mark.parametrize(("text", "row", "skipped", "emptied"), MISSING)
def test_missing_key_is_a_null(
    text: str, row: Any, skipped: list[Any], emptied: list[Any], make: Callable[..., Any]
) -> None:
    rows = [make(row)] * 2
    assert dumped(rows, text, nulls="skip") == pack_many(skipped) * 2
    assert dumped(rows, text, nulls="empty") == pack_many(emptied) * 2
    with pytest.raises((TemplateError, EncodeError), match=r"has no field \{|cannot send None"):
        dumped(rows, text)


def test_missing_keys_as_in_json_lines(tmp_path: Path) -> None:
    lines = [{"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": None}]
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1, "name": "a"}\n{"id": 2}\n{"id": 3, "name": null}\n')
    for nulls in ("skip", "empty"):
        for text in ("SET {id} {name}", "SET x:{name} {id}"):
            assert dumped(lines, text, nulls=nulls) == dumped(
                fastresp.read(path), text, nulls=nulls
            )


@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
def test_declared_fields_must_exist(nulls: Any) -> None:
    """Columns, attributes and positions are declared; only a mapping may lack a key."""
    with sqlite3.connect(":memory:") as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT 7 AS id").fetchone()
    refused([row], "GET ^{idd}", "the row has no field {idd}: its fields are id; did you", nulls)
    refused([Address("Ulm")], "GET ^{zip}", "the row has no field {zip}: its fields are ci", nulls)
    refused([Geo(1, 2)], "GET ^{zip}", "the row has no field {zip}: its fields are lat", nulls)
    refused([(1, 2)], "GET ^{2}", "the row has no field {2}: it is a tuple of 2 values", nulls)
    refused([{"a": 1}], "GET ^{0}", "the row has no field {0}: its fields are a; write a", nulls)
    refused(BASE, "GET ^{zip}", "the data has no column {zip}: its columns are id, at, vec", nulls)


def test_number_as_a_name() -> None:
    row = {"2023": "a", "2024": "b", "x": "c"}
    for data in ([row], [types.MappingProxyType(row)], pa.Table.from_pylist([row])):
        assert dumped(data, "HSET {2024} {**}") == pack("HSET", "b", "2023", "a", "x", "c")
        assert dumped(data, "HSET k {**-2024}") == pack("HSET", "k", "2023", "a", "x", "c")


# Hints.

HINTS = [
    ("GET ^{full name}", "{full name}", "user_id; did you mean {Full Name}?"),
    ("GET ^{full_name}", "{full_name}", "user_id; did you mean {Full Name}?"),
    ("GET ^{edge}", "{edge}", 'user_id; did you mean {" edge"}?'),
    ("GET ^{ID}", "{ID}", "user_id; did you mean {id}?"),
    ("GET ^{'id'}", "{'id'}", "user_id; did you mean {id}?"),
    ("GET ^{id:05d}", "{id:05d}", "user_id; a placeholder can't have a format such as ':05d': "
     "write {id}, and format the value in the data, with an f-string or in the query"),
    ("GET x^{id:>8.2f}", "{id:>8.2f}",
     "user_id; a placeholder can't have a format such as ':>8.2f'"),
    ("GET ^{zzzzzz}", "{zzzzzz}", "user_id\n"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "key", "words"), HINTS)
def test_hint(marked: str, key: str, words: str) -> None:
    row = {"id": 1, "Full Name": "a", " edge": 2, "user_id": 3}
    text = marked.replace("^", "")
    for data, has in (
        ([row], "row 0: the row has no field {}: its fields are "),
        (pa.Table.from_pylist([row]), "the data has no column {}: its columns are "),
        ([types.SimpleNamespace(**row)], "row 0: the row has no field {}: its fields are "),
    ):
        with pytest.raises(TemplateError) as caught:
            dumped(data, text)
        assert str(caught.value).startswith(has.format(key) + 'id, Full Name, " edge", ')
        assert words in str(caught.value)
        assert caught.value.position == marked.index("^")


def test_a_format_is_refused_with_every_nulls_policy() -> None:
    for nulls in ("skip", "empty"):
        for text in ("SET ^{id:05d}", "SET k:^{a.id:>3}"):
            words = "the row has no field {" + text[text.index("{") + 1 : -1]
            refused([{"id": 1, "a": {"id": 2}}], text, words, nulls)
    # A colon may be part of a name.
    assert dumped([{"rdf:type": 1}], "SET {rdf:type}") == pack("SET", 1)
    assert dumped([{"rdf": 1}], "SET {rdf:type}", nulls="skip") == b""


def test_names_with_spaces() -> None:
    row = {"Full Name": "Ann", " edge ": 2}
    for data in ([row], pa.Table.from_pylist([row])):
        assert dumped(data, 'SET {Full Name} {"Full Name"} { edge } {" edge "}') == pack(
            "SET", "Ann", "Ann", 2, 2
        )
    # As a shell passes it if the quotes are missing.
    with pytest.raises(
        TemplateError, match=r"not closed; .*; put a template with spaces in quotes"
    ):
        Template("SET", "{id}", "{Full", "Name}")
