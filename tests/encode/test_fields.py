"""How placeholders find fields: paths, missing keys, all but some, nested values, near misses."""

from __future__ import annotations

import asyncio
import collections
import io
import json
import sqlite3
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from carets import check_caret
from columns import Array, dumped, outcome

import fastresp
from fastresp import (
    EncodeError,
    Template,
    TemplateError,
    pack,
    pack_many,
)


def refused(data: Any, marked: str, words: str, nulls: Any = "error") -> None:
    """A TemplateError with these words, and its caret where the marker ^ stands."""
    text = marked.replace("^", "")
    with pytest.raises(TemplateError) as caught:
        dumped(data, text, nulls=nulls)
    where = "" if caught.value.row is None else f"row {caught.value.row}: "
    check_caret(caught.value, text, marked.index("^"), where + words)


# A field within a field.


class Geo(NamedTuple):
    lat: float
    lon: float


@dataclass
class Address:
    city: str
    geo: Any = None


class Slotted:
    __slots__ = ("city", "geo")

    def __init__(self, city: str, geo: Any) -> None:
        self.city, self.geo = city, geo


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


CITIES = pa.array(
    [
        {"city": "Ulm", "geo": {"lat": 48.4, "lon": 10}, "tags": ["a", "b"]},
        None,
        {"city": None, "geo": None, "tags": None},
        {"city": "Bonn", "geo": {"lat": None, "lon": 7}, "tags": [None]},
        {"city": "", "geo": {"lat": 1.5, "lon": 2}, "tags": []},
    ]
)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], "int32"), CITIES[:3])
CODES = pa.DictionaryArray.from_arrays(pa.array([3, None, 0, 1, 3], "int8"), CITIES)
VECTORS = pa.array([{"v": [1, 2]}, None, {"v": None}, {"v": [3, 4]}, {"v": [5, 6]}])
BASE = pa.table({"id": range(5), "at": CITIES, "vec": VECTORS, "name": ["a", "b", None, "d", "e"]})
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


def test_the_error_of_a_value_names_the_path() -> None:
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
    with pytest.raises(EncodeError, match=r"row 1, .* column 'at.v', .* another length"):
        dumped(table, "SET {at.v!f32}")


def test_a_name_with_dots_comes_before_a_path() -> None:
    """As a CSV file has it; where a row does not, it is a path."""
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
    # A path names a part of a field: the field is still one of {**}.
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


def test_path_through_what_has_no_fields() -> None:
    row = {"at": {"name": "Ulm", "tags": [1]}, "map": {"a": 1}}
    table = pa.table({"at": [row["at"]], "map": pa.array([[("a", 1)]], pa.map_("string", "int8"))})
    nowhere = "and a path leads through structs only"
    refused(table, "SET ^{at.name.title}", "the data has no column {at.name.title}: the column "
            f"'at.name' is of type string, {nowhere}")  # fmt: skip
    refused(table, "SET ^{at.tags.0}", "the data has no column {at.tags.0}: the column 'at.tags' "
            f"is of type list, {nowhere}")  # fmt: skip
    refused(table, "SET ^{map.a}", f"the data has no column {{map.a}}: the column 'map' is of type "
            f"map, {nowhere}")  # fmt: skip
    for nulls in ("error", "skip", "empty"):
        refused([row], "SET ^{at.name.title}", "the row has no field {at.name.title}: at.name is "
                "'Ulm' (a str), which has no fields", nulls)  # fmt: skip
        refused([row], "SET ^{at.tags.0}", "the row has no field {at.tags.0}: at.tags is [1] (a li",
                nulls)  # fmt: skip
        refused([{"at": Address("Ulm")}], "SET ^{at.ctiy}", "the row has no field {at.ctiy}: the "
                "fields of at are city, geo; did you mean {at.city}?", nulls)  # fmt: skip
        refused([{"at": (1, 2)}], "SET ^{at.count}", "the row has no field {at.count}", nulls)
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    refused(pa.table({"a": twice}), "SET ^{a.x}", "the data has no column {a.x}: 2 fields of a are "
            "named 'x'; rename one")  # fmt: skip


# A key that a mapping does not have.

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
def test_what_is_declared_may_not_be_missing(nulls: Any) -> None:
    """Columns, attributes and positions are declared; only a mapping may leave out a key."""
    with sqlite3.connect(":memory:") as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT 7 AS id").fetchone()
    refused([row], "GET ^{idd}", "the row has no field {idd}: its fields are id; did you", nulls)
    refused([Address("Ulm")], "GET ^{zip}", "the row has no field {zip}: its fields are ci", nulls)
    refused([Geo(1, 2)], "GET ^{zip}", "the row has no field {zip}: its fields are lat", nulls)
    refused([(1, 2)], "GET ^{2}", "the row has no field {2}: it is a tuple of 2 values", nulls)
    refused([{"a": 1}], "GET ^{0}", "the row has no field {0}: its fields are a; fields of", nulls)
    refused(BASE, "GET ^{zip}", "the data has no column {zip}: its columns are id, at, vec", nulls)


def test_number_as_a_name() -> None:
    row = {"2023": "a", "2024": "b", "x": "c"}
    for data in ([row], [types.MappingProxyType(row)], pa.Table.from_pylist([row])):
        assert dumped(data, "HSET {2024} {**}") == pack("HSET", "b", "2023", "a", "x", "c")
        assert dumped(data, "HSET k {**-2024}") == pack("HSET", "k", "2023", "a", "x", "c")


# All fields but some, and nested values as JSON.


def test_all_but_some() -> None:
    row = {"id": 7, "secret": "s", "a b": 1, "c,d": 2, "e}f": 3}
    for data in ([row], [types.MappingProxyType(row)], pa.Table.from_pylist([row])):
        assert dumped(data, 'HSET u:{id} {**-secret, a b,"c,d"}') == pack("HSET", "u:7", "e}f", 3)
        assert dumped(data, 'HSET u {**-"e}f",secret} {**-id,secret,"c,d" , "e}f"}') == pack(
            "HSET", "u", "id", 7, "a b", 1, "c,d", 2, "a b", 1
        )
        assert dumped(data, 'SET {"e}f"} {a b} {c,d} {"c,d"}') == pack("SET", 3, 1, 2, 2)
    for each in (Address("Ulm", 5), Slotted, types.SimpleNamespace(city="Ulm", geo=5), Geo(5, 1)):
        if each is not Slotted:
            name = "lon" if isinstance(each, Geo) else "city"
            assert dumped([each], f"HSET k {{**-{name}}}").count(b"\r\n") == 9
    assert dumped([Geo(5, 1)], "HSET k {**-1}") == pack("HSET", "k", "lat", 5)
    twice = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "a"])
    assert dumped(twice, "HSET k {**-a}") == pack("HSET", "k", "b", 2)
    for nulls, expected in (
        ("skip", b""),
        ("empty", pack("HSET", "k")),
        ("error", pack("HSET", "k")),
    ):
        for data in ([{"a": 1}], pa.table({"a": [1]})):
            assert dumped(data, "HSET k {**-a}", nulls=nulls) == expected


@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
def test_left_out_is_what_there_is(nulls: Any) -> None:
    """A name with a typo would send what it was to keep back."""
    columns = "the data has no column {nam}: its columns are id, at, vec, name; did you mean {name}"
    refused(BASE, "HSET k ^{**-nam}", columns, nulls)
    words = "the first row has no field {secrt}, and a field to leave out has to be there, even as "
    words += "None: its fields are "
    row = {"id": 1, "secret": 2}
    for each in (row, collections.UserDict(row), types.SimpleNamespace(**row)):
        for text in ("HSET k ^{**-secrt}", "HSET {id} ^{**-secrt!json}", "HSET k ^{**-id,secrt}"):
            refused([each], text, words + "id, secret; did you mean {secret}?", nulls)
    refused([Geo(5, 1)], "HSET k ^{**-secrt}", words + "lat, lon", nulls)
    refused([Address("Ulm")], "HSET k ^{**-secrt}", words + "city, geo", nulls)
    refused([{}], "HSET k x 1 ^{**-secrt}", words.replace("its fields are ", "the dict has"), nulls)
    for each in (Geo(5, 1), Address("Ulm"), {"a": 1}, collections.UserDict({"a": 1})):
        with pytest.raises(TemplateError, match=r"the first row has no field \{2\}"):
            dumped([each], "HSET k {**-2}", nulls=nulls)


def test_left_out_may_be_missing_in_later_rows() -> None:
    rows = [{"id": 1, "secret": None}, {"id": 2}, {"id": 3, "secret": "s"}]
    expected = pack_many([("HSET", i, "n", i) for i in (1, 2, 3)])
    for kind in (dict, collections.UserDict, lambda row: types.SimpleNamespace(**row)):
        data = [kind({**row, "n": row["id"]}) for row in rows]
        assert dumped(data, "HSET {id} {**-secret}") == expected
    # One that is skipped as a whole says nothing.
    data = [{"id": None, "n": 0}, *data]
    template = Template("HSET {id} {**-secret}")
    with pytest.raises(TemplateError, match=r"row 1: the first row has no field \{secret\}"):
        dumped([data[0], {"id": 1}], template, nulls="skip")
    # Each load has a first row of its own.
    assert dumped([{"id": 1, "secret": 1, "n": 1}], template) == pack("HSET", 1, "n", 1)
    with pytest.raises(TemplateError, match=r"row 0: the first row has no field \{secret\}"):
        dumped([{"id": 1, "n": 1}], template)


def test_left_out_before_anything_is_sent(client: Any, server: Any) -> None:
    def load(rows: list[Any]) -> None:
        fastresp.mass_insert(rows, "HSET k {**-secrt}", server=server.url)

    async def load_later(rows: list[Any]) -> None:
        await fastresp.aio.mass_insert(rows, "HSET k {**-secrt}", server=server.url)

    for call in (load, lambda rows: asyncio.run(load_later(rows))):
        with pytest.raises(TemplateError, match=r"did you mean \{secret\}"):
            call([{"secret": 1}])
    assert client.dbsize() == 0


def test_position_is_none_of_a_mapping() -> None:
    for kind in (dict, collections.UserDict, types.MappingProxyType):
        assert dumped([kind({"x": 1, "0": 2})], "HSET {0} {**}") == pack("HSET", 2, "x", 1)
        assert dumped([kind({"x": 1, "0": 2})], "HSET k {**-0}") == pack("HSET", "k", "x", 1)


NESTED = {
    "id": 1,
    "list": [1, None, {"x": "ä"}],
    "dict": {"on": True, "none": None},
    "text": "plain",
    "empty": [],
    "number": 1.5,
}


def test_nested_values_as_json() -> None:
    expected = pack(
        "HSET", 1, "list", '[1,null,{"x":"ä"}]', "dict", '{"on":true,"none":null}',
        "text", "plain", "empty", "[]", "number", 1.5,
    )  # fmt: skip
    for row in (NESTED, types.MappingProxyType(NESTED), types.SimpleNamespace(**NESTED)):
        assert dumped([row], "HSET {id} {**!json}") == expected
    assert dumped([{"t": (1, "a"), "g": Geo(1, 2)}], "HSET k {**!json}") == pack(
        "HSET", "k", "t", '[1,"a"]', "g", "[1,2]"
    )
    assert dumped([{"t": [complex(1)]}], "HSET k {**!json}", default=str) == pack(
        "HSET", "k", "t", '["(1+0j)"]'
    )
    with pytest.raises(EncodeError, match="field 't', argument 3: JSON has no form for"):
        dumped([{"t": [complex(1)]}], "HSET k {**!json}")
    # A bool is refused as it is in {**}, within JSON it has a form.
    with pytest.raises(EncodeError, match="field 'b', argument 3: cannot send True"):
        dumped([{"b": True}], "HSET k {**!json}")


def test_nested_columns_as_json() -> None:
    table = pa.table(
        {
            "id": [1, 2, 3],
            "list": [[1, None], None, []],
            "struct": [{"a": "x", "b": [True]}, {"a": None, "b": None}, None],
            "map": pa.array([[("a", 1)], None, []], pa.map_("string", "int8")),
            "text": ["p", "q", None],
            "on": [True, False, None],
            "code": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], "int8"), [[1], [2, 3]]),
        }
    )
    first = [
        "list", "[1,null]", "struct", '{"a":"x","b":[true]}', "map", '{"a":1}', "text", "p",
        "on", 1, "code", "[1]",
    ]  # fmt: skip
    second = ["struct", '{"a":null,"b":null}', "text", "q", "on", 0, "code", "[2,3]"]
    third = ["list", "[]", "map", "{}"]
    assert dumped(table, "HSET {id} {**!json}", nulls="skip") == pack_many(
        [("HSET", 1, *first), ("HSET", 2, *second), ("HSET", 3, *third)]
    )
    assert dumped(table[:1], "HSET {id} {**!json}") == pack("HSET", 1, *first)
    with pytest.raises(EncodeError, match="row 1, command 1, column 'list', argument 3: cannot"):
        dumped(table, "HSET {id} {**!json}")
    odd = pa.table({"l": [[b"x"]]})
    refused(odd, "HSET k ^{**!json}", "the column 'l' is of type list, which has no form in JSON")
    refused(table, "HSET k ^{**}", "the column 'list' is of type list, which is not one argument: "
            "{**!json} makes JSON of it, {**-list} leaves it out")  # fmt: skip


# Hints.

HINTS = [
    ("GET ^{full name}", "{full name}", "user_id; did you mean {Full Name}?"),
    ("GET ^{full_name}", "{full_name}", "user_id; did you mean {Full Name}?"),
    ("GET ^{edge}", "{edge}", 'user_id; did you mean {" edge"}?'),
    ("GET ^{ID}", "{ID}", "user_id; did you mean {id}?"),
    ("GET ^{'id'}", "{'id'}", "user_id; did you mean {id}?"),
    ("GET ^{id:05d}", "{id:05d}", "user_id; a placeholder takes no format such as ':05d': write "
     "{id}, and format the value in the data, with an f-string or in the query"),
    ("GET x^{id:>8.2f}", "{id:>8.2f}", "user_id; a placeholder takes no format such as ':>8.2f'"),
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


def test_a_format_is_refused_whatever_nulls_do() -> None:
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
    # As a shell hands it over when the quotes are missing.
    with pytest.raises(TemplateError, match=r"not closed; .*; a template with spaces in it has to"):
        Template("SET", "{id}", "{Full", "Name}")


# What default= is asked about.


def test_default_with_columns_is_refused() -> None:
    table = pa.table({"a": [1]})
    words = "default= is for Python objects, and the columns of a Table are encoded without any"
    with pytest.raises(TypeError, match=words):
        dumped(table, "SET k {a}", default=str)
    # Before anything is asked of the server: there is none.
    nowhere = "redis://127.0.0.1:1"
    with pytest.raises(TypeError, match=words):
        fastresp.mass_insert(table, "SET k {a}", server=nowhere, default=str)
    with pytest.raises(TypeError, match=words):
        list(fastresp.iter_replies(table, "GET {a}", server=nowhere, default=str))
    with pytest.raises(TypeError, match=words):
        asyncio.run(fastresp.aio.mass_insert(table, "SET k {a}", server=nowhere, default=str))


def test_default_with_a_file_of_commands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.resp"
    path.write_bytes(pack("SET", "a", 1))
    with pytest.raises(TypeError, match=r"a.resp holds whole commands, so leave out default="):
        fastresp.mass_insert(fastresp.read(path), server="redis://127.0.0.1:1", default=str)


def test_default_is_not_asked_about_none() -> None:
    """It would be the text 'None' with default=str."""
    words = "a null has no RESP form, and default= is not asked about one; leave it out"
    for text in ("SET k {a}", "SET k x{a}", "HSET k {**}", "SADD k {*b}"):
        with pytest.raises(EncodeError, match=words):
            dumped([{"a": None, "b": [None]}], text, default=str)
    with pytest.raises(EncodeError, match=words):
        pack("SET", None, default=str)
    with pytest.raises(EncodeError, match=words):
        dumped([("SET", None)], None, default=str)  # type: ignore[arg-type]


def test_a_list_that_default_cuts_short_is_an_error() -> None:
    def cutting(_: object) -> str:
        items.clear()
        return "x"

    def adding(_: object) -> str:
        items.append(object())
        return "x"

    class Items(list[Any]):
        pass

    for default in (cutting, adding):
        for kind in (list, Items):
            items = kind([1, object(), 2, 3])
            with pytest.raises(
                EncodeError, match=r"the list of \{\*t\} changed while it was being"
            ):
                dumped([{"t": items}], "SADD s {*t}", default=default)


def test_json_that_default_cuts_short_is_an_error() -> None:
    def cutting(_: object) -> str:
        items.pop()
        return "x"

    def adding(_: object) -> str:
        items.append(object())
        return "x"

    class Holder:
        def __init__(self) -> None:
            self.items = items

    def opening(value: Any) -> Any:
        return vars(value)["items"] if isinstance(value, Holder) else cutting(value)

    class Items(list[Any]):
        pass

    for text in ("SET k {t!json}", "SET k {*!json}", "HSET k {**!json}", "SET k {t.in!json}"):
        for kind in (list, Items):
            for default in (cutting, adding, opening):
                items = kind([1, object(), 2, 3])
                inner: Any = Holder() if default is opening else items
                row = {"t": {"in": [0, inner]}}
                with pytest.raises(EncodeError, match=f"a {kind.__name__} changed while JSON was"):
                    dumped([row], text, default=default)
    removed: dict[str, Any] = {"a": object(), "b": 1, "c": 2}
    with pytest.raises(EncodeError, match="changed"):
        dumped([{"t": removed}], "SET k {t!json}", default=lambda _: str(removed.popitem()))
    circle: list[Any] = [object()]
    circle.append(circle)
    with pytest.raises(EncodeError, match="Circular"):
        dumped([{"t": circle}], "SET k {t!json}", default=str)
    shared = [1, object()]
    assert dumped([{"t": [shared, shared]}], "SET k {t!json}", default=lambda _: [7]) == pack(
        "SET", "k", "[[1,[7]],[1,[7]]]"
    )


@pytest.mark.parametrize("kind", ["rows", "columns", "JSON lines"])
def test_missing_key_within_a_field(kind: str) -> None:
    rows: list[Any] = [{"id": 1, "at": {"x": 1, "y": 2}}, {"id": 2, "at": {"x": 3}}]
    rows.append({"id": 3, "at": None})

    def data() -> Any:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        return {
            "rows": lambda: rows,
            "columns": lambda: pa.Table.from_pylist(rows),
            "JSON lines": lambda: fastresp.read(io.BytesIO(lines), format="jsonl"),
        }[kind]()

    for text, prefix in (("SET {id} {at.y}", ""), ("SET {id} k:{at.y}", "k:")):
        with pytest.raises(fastresp.FastrespError, match=r"^row 1"):
            dumped(data(), text)
        first = pack("SET", 1, f"{prefix}2")
        assert dumped(data(), text, nulls="skip") == first
        empty = pack("SET", 2, prefix) + pack("SET", 3, prefix)
        assert dumped(data(), text, nulls="empty") == first + empty
    second = '{"x":3}' if kind == "rows" else '{"x":3,"y":null}'
    for nulls in ("error", "skip", "empty"):
        assert dumped(data(), "SET {id} {at!json}", nulls=nulls) == pack_many(
            [("SET", 1, '{"x":1,"y":2}'), ("SET", 2, second), ("SET", 3, "null")]
        )
