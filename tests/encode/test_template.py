"""Templates filled in: every kind of row, value and null."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import json
import sqlite3
import types
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastresp import EncodeError, Template, TemplateError, Writer, pack, pack_many
from fastresp.encode.template import as_template


def fill(text: str | Template, *rows: Any, **options: Any) -> bytes:
    template = text if isinstance(text, Template) else Template(text)
    return b"".join(map(bytes, Writer(template, **options).chunks(rows)))


class Point(NamedTuple):
    x: int
    y: str


@dataclass
class User:
    id: int
    name: str


@dataclass(slots=True, frozen=True)
class Slots:
    id: int
    name: str


class Plain:
    def __init__(self) -> None:
        self.id, self.name = 7, "né"

    @property
    def upper(self) -> str:
        return self.name.upper()


class Slotted:
    __slots__ = ("id", "name")

    def __init__(self) -> None:
        self.id, self.name = 7, "né"


def sqlite_row() -> sqlite3.Row:
    with sqlite3.connect(":memory:") as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute("SELECT 7 AS id, 'né' AS name").fetchone()


def defaulting() -> collections.defaultdict[str, str]:
    return collections.defaultdict(lambda: "fresh", {"id": "7"})


FIELDS = {"id": 7, "name": "né"}
BY_NAME = "HSET user:{id} name {name}"
NAMED = ("HSET", "user:7", "name", "né")
ALL = ("HSET", "u", "id", 7, "name", "né")

ROWS = [
    (BY_NAME, FIELDS, NAMED),
    (BY_NAME, types.MappingProxyType(FIELDS), NAMED),
    (BY_NAME, collections.OrderedDict(FIELDS), NAMED),
    (BY_NAME, collections.ChainMap(FIELDS), NAMED),
    (BY_NAME, sqlite_row(), NAMED),
    (BY_NAME, User(7, "né"), NAMED),
    (BY_NAME, Slots(7, "né"), NAMED),
    (BY_NAME, Plain(), NAMED),
    (BY_NAME, Slotted(), NAMED),
    ("SET {id} {upper}", Plain(), ("SET", 7, "NÉ")),
    ("SET {id} {other}", defaulting(), ("SET", "7", "fresh")),
    ("SET {x} {y}", Point(1, "b"), ("SET", 1, "b")),
    ("SET {0} {1}", Point(1, "b"), ("SET", 1, "b")),
    ("SET {0} {1}", ("a", 2), ("SET", "a", 2)),
    ("SET {1} {0}", ["a", 2.5], ("SET", 2.5, "a")),
    ("SET {0} {1}", sqlite_row(), ("SET", 7, "né")),
    ("SET {0} {1}", np.array([1.5, 2.5]), ("SET", 1.5, 2.5)),
    ("{0} {1}", ("GET", "a"), ("GET", "a")),
    ("{0}{1} x", ("G", "ET"), ("GET", "x")),
    ("{*0}", (["GET", "a"],), ("GET", "a")),
    ("{cmd} {**}", {"cmd": "GET", "a": "b"}, ("GET", "a", "b")),
    ("SADD s {0}", "text", ("SADD", "s", "text")),
    ("SADD s {0}", b"bytes", ("SADD", "s", b"bytes")),
    ("SADD s {0}", 12, ("SADD", "s", 12)),
    ("SADD s {0}", np.int64(12), ("SADD", "s", 12)),
    ("SADD s {0} x{0}", 1.5, ("SADD", "s", 1.5, "x1.5")),
    ("HSET u {**}", FIELDS, ALL),
    ("HSET u {**}", types.MappingProxyType(FIELDS), ALL),
    ("HSET u {**}", sqlite_row(), ALL),
    ("HSET u {**}", User(7, "né"), ALL),
    ("HSET u {**}", Slots(7, "né"), ALL),
    ("HSET u {**}", Plain(), ALL),
    ("HSET u {**}", Point(1, "b"), ("HSET", "u", "x", 1, "y", "b")),
    ("HSET u {**} end", {"a": 1, 2: b"b"}, ("HSET", "u", "a", 1, 2, b"b", "end")),
    # {**} leaves out the fields that its own command names in any form.
    ("HSET u:{id} {**}", FIELDS, ("HSET", "u:7", "name", "né")),
    ("HSET {id!json} {**}", FIELDS, ("HSET", "7", "name", "né")),
    ("HSET {*id} {**}", {"id": [1, 2], "name": "b"}, ("HSET", 1, 2, "name", "b")),
    ("HSET {0} {**}", Point(1, "b"), ("HSET", 1, "y", "b")),
    ("HSET {x} {**}", Point(1, "b"), ("HSET", 1, "y", "b")),
    ("HSET {0} {**}", sqlite_row(), ("HSET", 7, "name", "né")),
    ("HSET u {**-0}", sqlite_row(), ("HSET", "u", "name", "né")),
    ("HSET {id} {**}", User(7, "né"), ("HSET", 7, "name", "né")),
    ("SADD s {*t}", {"t": ["a", 1, 2.5, b"\x00"]}, ("SADD", "s", "a", 1, 2.5, b"\x00")),
    ("SADD s {*t} end {t2}", {"t": (1,), "t2": 3}, ("SADD", "s", 1, "end", 3)),
    ("HSET u {*t}", {"t": {"a": 1, "b": 2}}, ("HSET", "u", "a", 1, "b", 2)),
    ("SADD s {*t}", {"t": {5}}, ("SADD", "s", 5)),
    ("SADD s {*t}", {"t": range(3)}, ("SADD", "s", 0, 1, 2)),
    ("SADD s {*t}", {"t": np.array([1, 2])}, ("SADD", "s", 1, 2)),
    ("SADD s {*1}", ("x", ["a", "b"]), ("SADD", "s", "a", "b")),
    ("SADD s {*0}", {4}, ("SADD", "s", 4)),
    ("SET k {v!json}", {"v": {"a": [1, None, "é"]}}, ("SET", "k", '{"a":[1,null,"é"]}')),
    ("SET k {v!json}", {"v": None}, ("SET", "k", "null")),
    ("SET k {v!json}", {"v": True}, ("SET", "k", "true")),
    ("SET k v:{v!json}:{0!json}", Point(1, "b"), TemplateError),
    ("SET k {0!json}:{1!json}", (1, "b"), ("SET", "k", '1:"b"')),
    ("SET {id} {*!json}", FIELDS, ("SET", 7, '{"id":7,"name":"né"}')),
    ("SET k {*!json}", types.MappingProxyType(FIELDS), ("SET", "k", '{"id":7,"name":"né"}')),
    ("SET k {*!json}", sqlite_row(), ("SET", "k", '{"id":7,"name":"né"}')),
    ("SET k {*!json}", User(7, "né"), ("SET", "k", '{"id":7,"name":"né"}')),
    ("SET k {*!json}", Slots(7, "né"), ("SET", "k", '{"id":7,"name":"né"}')),
    ("SET k {*!json}", Plain(), ("SET", "k", '{"id":7,"name":"né"}')),
    ("SET {0} <{*!json}>{0}", Point(1, "b"), ("SET", 1, '<{"x":1,"y":"b"}>1')),
    (
        "HSET u doc {*!json} {**}",
        {"*": 1, "**": 2},
        ("HSET", "u", "doc", '{"*":1,"**":2}', "*", 1, "**", 2),
    ),
    ("SET k {*!json}", {}, ("SET", "k", "{}")),
    ("SET {a b} {a-b}", {"a b": 1, "a-b": 2}, ("SET", 1, 2)),
]


@pytest.mark.parametrize(("text", "row", "expected"), ROWS)
def test_row(text: str, row: Any, expected: Any) -> None:
    if expected is TemplateError:
        with pytest.raises(TemplateError):
            fill(text, row)
        return
    # Twice: the second row uses what was cached for the first.
    assert fill(text, row, row) == pack(*expected) * 2


def test_generators_and_sets() -> None:
    rows = ({"t": (c for c in "ab")}, {"t": iter([1])})
    assert fill("SADD s {*t}", *rows) == pack_many([("SADD", "s", "a", "b"), ("SADD", "s", 1)])
    written = fill("SADD s {*t}", {"t": {1, 2, 3}})
    assert written in [pack("SADD", "s", *order) for order in ([1, 2, 3], list({1, 2, 3}))]


def test_rows_of_changing_types() -> None:
    rows = [FIELDS, User(8, "b"), types.MappingProxyType(FIELDS), Slots(9, "c"), FIELDS, Plain()]
    expected = [(7, "né"), (8, "b"), (7, "né"), (9, "c"), (7, "né"), (7, "né")]
    assert fill("SET {id} {name}", *rows) == pack_many(("SET", *each) for each in expected)
    assert fill("SET {0}", (1,), "a", [2], 3) == pack_many(("SET", v) for v in (1, "a", 2, 3))


PART_VALUES = ["é", b"\x00", bytearray(b"b"), 2**70, -5, 0.1, np.float64(1.5), np.int64(7)]


@pytest.mark.parametrize("value", PART_VALUES)
def test_part_of_every_type(value: Any) -> None:
    payload = pack(value).split(b"\r\n", 2)[2][:-2]
    assert fill("SET <{0}>", (value,)) == pack("SET", b"<" + payload + b">")


def test_each_command_has_its_own_remaining_fields() -> None:
    expected = [("HSET", 1, "b", 2, "c", 3), ("HSET", "x", "a", 1, "c", 3, "2")]
    assert fill("HSET {a} {**}; HSET x {**} {b}", {"a": 1, "b": 2, "c": 3}) == pack_many(expected)


HOSTILE = ["a b", "a\r\nb", "\r\n$5\r\nhello", "*3", "$5", "\x00", "'", '"', ";", "\n", "{a}", "{{"]
HOSTILE += ["}", "\\", "", " ", "a;FLUSHALL", "QUIT", "\r\n*1\r\n$8\r\nFLUSHALL\r\n"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_always_one_argument(value: str) -> None:
    row = {"v": value, "l": [value, value], "d": {value: value}}
    assert fill("SET {v} k:{v} '{v}' {*l} {*d}", row) == pack(
        "SET", value, f"k:{value}", value, value, value, value, value
    )
    assert fill("HSET k {**}", {value: value}) == pack("HSET", "k", value, value)
    assert fill("SET {v!json}", row) == pack("SET", json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize("name", ["MONITOR", "quit", b"Subscribe", "HELLO"])
def test_refused_command_from_a_row(name: Any) -> None:
    with pytest.raises(EncodeError, match=r"row 0, command 0: .* changes the reply stream"):
        fill("{0} x", (name,))
    with pytest.raises(EncodeError, match="changes the reply stream"):
        fill("{0}{1} x", (name[:2], name[2:]))
    with pytest.raises(EncodeError, match="changes the reply stream"):
        fill("{*0}", ([name, "x"],))
    for text in ("CLIENT {0}", "client RE{1}"):
        with pytest.raises(EncodeError, match="CLIENT REPLY changes the reply stream"):
            fill(text, ("REPLY", "PLY"))
    assert fill("CLIENT {0}", ("LIST",)) == pack("CLIENT", "LIST")


NULL_ROWS = [
    ("SET k {a}; GET {b}", {"a": None, "b": 1}, [("GET", 1)], [("SET", "k", ""), ("GET", 1)]),
    ("SET k x{a}y", {"a": None}, [], [("SET", "k", "xy")]),
    ("SADD k {*a}", {"a": None}, [], [("SADD", "k", "")]),
    ("SADD k {*a}", {"a": [1, None, 2]}, [("SADD", "k", 1, 2)], [("SADD", "k", 1, "", 2)]),
    ("SADD k {*a}", {"a": [None]}, [], [("SADD", "k", "")]),
    ("HSET k {*a}", {"a": {"x": None, "y": 1}}, [("HSET", "k", "y", 1)],
     [("HSET", "k", "x", "", "y", 1)]),
    ("HSET k {**}", {"a": None, "b": 1}, [("HSET", "k", "b", 1)],
     [("HSET", "k", "a", "", "b", 1)]),
    ("HSET k {**}", {"a": None}, [], [("HSET", "k", "a", "")]),
    ("HSET k {**}", Point(1, None), [("HSET", "k", "x", 1)],
     [("HSET", "k", "x", 1, "y", "")]),
    ("{a} {b}", {"a": "GET", "b": None}, [], [("GET", "")]),
    ("{a} {b}; GET x", {"a": None, "b": 1}, [("GET", "x")], EncodeError),
    ("SET k {0}", None, [], [("SET", "k", "")]),
    ("SET k {0}{1} {1}", (None, 1), [], [("SET", "k", "1", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "row", "skipped", "emptied"), NULL_ROWS)
def test_nulls(text: str, row: Any, skipped: list[Any], emptied: Any) -> None:
    assert fill(text, row, nulls="skip") == pack_many(skipped)
    if emptied is not EncodeError:
        assert fill(text, row, nulls="empty") == pack_many(emptied)
    advice = "cannot send None: .* nulls='skip' leaves out .*, nulls='empty' sends an empty string"
    with pytest.raises(EncodeError, match=advice):
        fill(text, row, nulls="error")


def test_rows_without_nulls_are_not_skipped() -> None:
    rows = [("SET", "a", 1), ("GET", "b", 2)]
    assert fill("{0} {1} {2}", *rows, nulls="skip") == pack_many(rows)
    for nulls in ("error", "skip", "empty"):
        assert fill("SET {v!json}", {"v": None}, nulls=nulls) == pack("SET", "null")
        assert fill("SET {*!json}", {"v": None}, nulls=nulls) == pack("SET", '{"v":null}')


def test_json_of_common_text_forms() -> None:
    values = [decimal.Decimal("1E+3"), dt.date(2013, 1, 2), dt.timedelta(1), uuid.UUID(int=1)]
    texts = ["1000", "2013-01-02", "P1D", "00000000-0000-0000-0000-000000000001"]
    row = {"v": {"a": values}, "w": values[1]}
    expected = json.dumps({"a": texts}, separators=(",", ":"))
    assert fill("SET {v!json} {w!json} {w} x{w}", row) == pack(
        "SET", expected, '"2013-01-02"', "2013-01-02", "x2013-01-02"
    )
    assert fill("SET {w!json}", row, default=lambda value: 7) == pack("SET", "7")
    assert fill("SET {*!json}", {"w": values[1]}) == pack("SET", '{"w":"2013-01-02"}')


def test_json_default() -> None:
    class Odd:
        pass

    def default(value: object) -> str:
        return "odd"

    row = {"v": [Odd()], "w": Odd()}
    assert fill("SET {v!json} {w} x{w}", row, default=default) == pack(
        "SET", '["odd"]', "odd", "xodd"
    )


def header_rows() -> Iterable[tuple[str, list[int]]]:
    """Lengths and counts just below and above each power of ten, in mixed order."""
    sizes = [0, 1, 6, 7, 8, 9, 10, 96, 97, 98, 99, 100, 996, 997, 998, 999, 1000, 9999, 100_000]
    for a in sizes:
        for b in sizes:
            yield "é" * (a // 2) + "x" * (a % 2), list(range(b % 1200))


def test_wrongly_guessed_headers() -> None:
    rows = list(header_rows())
    assert fill("SET <{0}> {0}", *rows) == pack_many(("SET", f"<{v}>", v) for v, _ in rows)
    assert fill("SADD x{0} {*1} y{0}", *rows) == pack_many(
        ("SADD", f"x{v}", *items, f"y{v}") for v, items in rows
    )


@pytest.mark.parametrize("count", [1, 9, 10, 99, 100, 999, 1000])
def test_fixed_number_of_arguments(count: int) -> None:
    text = "DEL " + " ".join(f"{{{i}}}" for i in range(count))
    assert fill(text, range(count)) == pack("DEL", *range(count))
    assert fill("DEL " + "k " * count, ()) == pack("DEL", *["k"] * count)


SCALARS = st.one_of(st.text(st.characters(exclude_categories=("Cs",))), st.integers(), st.binary())
FIELD_ROWS = st.fixed_dictionaries(
    {"id": SCALARS, "v": st.one_of(SCALARS, st.none()), "t": st.lists(SCALARS | st.none())},
    optional={"x": st.one_of(SCALARS, st.none()), "y z": SCALARS},
)


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def expected_commands(row: dict[str, Any], nulls: str) -> Iterable[list[Any]]:
    """Return the commands that the template below makes of a row, in plain Python."""
    empty = {key: "" if value is None else value for key, value in row.items()}
    if nulls == "empty" or row["v"] is not None:
        yield ["SET", b"k:" + as_bytes(row["id"]) + b":" + as_bytes(empty["v"]), empty["v"]]
    items = [item for item in row["t"] if nulls == "empty" or item is not None]
    if items:
        yield ["SADD", "s", *("" if item is None else item for item in items)]
    pairs = [(key, empty[key]) for key in row if key not in ("id", "t")]
    if nulls == "skip":
        pairs = [(key, row[key]) for key, _ in pairs if row[key] is not None]
    if nulls == "empty" or items:
        flat = [each for pair in pairs for each in pair]
        yield ["HSET", row["id"], *flat, *("" if item is None else item for item in items)]


@given(st.lists(FIELD_ROWS), st.sampled_from(["skip", "empty"]))
def test_random_rows(rows: list[dict[str, Any]], nulls: str) -> None:
    text = "SET k:{id}:{v} {v}; SADD s {*t}\nHSET {id} {**} {*t}"
    expected = pack_many(each for row in rows for each in expected_commands(row, nulls))
    assert fill(text, *rows, nulls=nulls) == expected
    proxies = [types.MappingProxyType(row) for row in rows]
    assert fill(text, *proxies, nulls=nulls) == expected


def test_a_file_is_not_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h2.csv").write_text("id\n1\n")
    for template in ("h2.csv", ["h2.csv", "SET k v"]):
        with pytest.raises(ValueError, match=r"h2\.csv is a file, but a template is expected"):
            as_template(template)
    assert as_template("h3.csv") is not None
