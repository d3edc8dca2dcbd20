"""All fields but some, nested values as JSON, and the values for which ``default`` is called."""

from __future__ import annotations

import asyncio
import collections
import csv
import io
import json
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from columns import dumped
from named_fields import BASE, Address, Geo, Slotted, refused

import fastresp
from fastresp import EncodeError, Template, TemplateError, pack, pack_many


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
    for nulls in ("skip", "empty", "error", "auto", "delete"):
        for data in ([{"a": 1}], pa.table({"a": [1]})):
            assert dumped(data, "HSET k {**-a}", nulls=nulls) == b""


@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
def test_left_out_fields_must_exist(nulls: Any) -> None:
    """A typo in a name would send the field that it should leave out."""
    columns = "the data has no column {nam}: its columns are id, at, vec, name; did you mean {name}"
    refused(BASE, "HSET k ^{**-nam}", columns, nulls)
    words = "the first row has no field {secrt}; a field to leave out must exist, even as "
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
    # A skipped row does not count.
    data = [{"id": None, "n": 0}, *data]
    template = Template("HSET {id} {**-secret}")
    with pytest.raises(
        TemplateError, match=r"row 1 \(id=1\): the first row has no field \{secret\}"
    ):
        dumped([data[0], {"id": 1}], template, nulls="skip")
    # Each load has its own first row.
    assert dumped([{"id": 1, "secret": 1, "n": 1}], template) == pack("HSET", 1, "n", 1)
    with pytest.raises(TemplateError, match=r"row 0 \(id=1\): the first row has no field"):
        dumped([{"id": 1, "n": 1}], template)


def test_left_out_fields_are_checked_before_anything_is_sent(client: Any, server: Any) -> None:
    def load(rows: list[Any]) -> None:
        fastresp.mass_insert(rows, "HSET k {**-secrt}", server=server.url)

    async def load_later(rows: list[Any]) -> None:
        await fastresp.aio.mass_insert(rows, "HSET k {**-secrt}", server=server.url)

    for call in (load, lambda rows: asyncio.run(load_later(rows))):
        with pytest.raises(TemplateError, match=r"did you mean \{secret\}"):
            call([{"secret": 1}])
    assert client.dbsize() == 0


def test_mappings_have_no_positions() -> None:
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
    # A bool is refused in {**} itself, but allowed within JSON.
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
    with pytest.raises(
        EncodeError, match=r"row 1 \(id=2\), command 1, column 'list', arg.* 3: cannot"
    ):
        dumped(table, "HSET {id} {**!json}", nulls="error")
    odd = pa.table({"l": [[b"x"]]})
    refused(odd, "HSET k ^{**!json}", "the column 'l' is of type list, which has no JSON form")
    refused(table, "HSET k ^{**}", "the column 'list' is of type list, which is not one argument: "
            "write {**!json} for JSON, or {**-list} to leave it out")  # fmt: skip


# Values for which default= is called.


def test_default_with_columns_is_refused() -> None:
    table = pa.table({"a": [1]})
    words = "default= is for Python objects, and the columns of a Table are encoded without them"
    with pytest.raises(TypeError, match=words):
        dumped(table, "SET k {a}", default=str)
    # default= is refused before any request to the server, which doesn't exist.
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
    with pytest.raises(TypeError, match=r"a.resp contains whole commands; leave out default="):
        fastresp.mass_insert(fastresp.read(path), server="redis://127.0.0.1:1", default=str)


def test_default_is_not_called_for_none() -> None:
    """With default=str it would become the text 'None'."""
    words = "Redis has no null, and default= is not called for it; "
    for text in ("SET k {a}", "SET k x{a}", "HSET k {**}", "SADD k {*b}"):
        with pytest.raises(EncodeError, match=words + "nulls='skip' leaves out"):
            dumped([{"a": None, "b": [None]}], text, default=str, nulls="error")
    for call in (lambda: pack("SET", None, default=str), lambda: pack_many([("SET", None)])):
        with pytest.raises(EncodeError, match="; leave it out, or send an empty string"):
            call()
    with pytest.raises(EncodeError, match=words + "nulls='skip' leaves out"):
        dumped([("SET", None)], None, default=str)  # type: ignore[arg-type]


def test_a_list_changed_by_default_is_an_error() -> None:
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


def test_json_of_a_value_changed_by_default_is_an_error() -> None:
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
                with pytest.raises(EncodeError, match=f"a {kind.__name__} changed while it was"):
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
    second = '{"x":3,"y":null}' if kind == "columns" else '{"x":3}'
    for nulls in ("error", "skip", "empty"):
        assert dumped(data(), "SET {id} {at!json}", nulls=nulls) == pack_many(
            [("SET", 1, '{"x":1,"y":2}'), ("SET", 2, second), ("SET", 3, "null")]
        )


def test_nested_values_in_pairs_name_json() -> None:
    for value in ({"a": 1}, [1]):
        with pytest.raises(
            EncodeError, match=r"not one argument: write \{\*\*!json\} .*-address\}"
        ):
            dumped([{"id": 1, "address": value}], "HSET {id} {**}")
        assert dumped([{"a": value}], "HSET k {**}", default=str) == pack(
            "HSET", "k", "a", str(value)
        )


def test_rows_of_csv_with_too_many_fields() -> None:
    rows = list(csv.DictReader(io.StringIO("id,v\n1,a,extra\n")))
    for template in ("HSET {id} {**}", "SET {id} {*!json}"):
        with pytest.raises(
            EncodeError, match=r"row 0 \(id=1\), .*name of a field is None, .*more values than"
        ):
            dumped(rows, template, nulls="skip")
