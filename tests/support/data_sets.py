"""Data sets of every type, with the expected text of each value, written by hand."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

__all__ = ["DATA_SETS", "DataSet", "Mixed"]

Text: TypeAlias = str | bytes | None


@dataclass(frozen=True)
class DataSet:
    """Columns, and the stored text of each value.

    Attributes:
        name: the name of the data set in the tests' IDs.
        table: the data. A column ``id`` is added to each data set: 0, 1, 2, ...
        texts: the text of each value, by column; None for a null, which is not stored.
        without: the families of sources that can't represent this data, each with the reason.
        lacking: by column, rows whose dicts and JSON lack a key instead of having a null.
    """

    name: str
    table: pa.Table
    texts: Mapping[str, Sequence[Text]]
    without: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, Collection[int]] = field(default_factory=dict)

    @property
    def nested(self) -> bool:
        return any(pa.types.is_nested(each.type) for each in self.table.schema)

    @property
    def template(self) -> str:
        return "HSET k:{id} {**!json}" if self.nested else "HSET k:{id} {**}"

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, which may lack keys."""
        return [
            {key: row[key] for key in row if row["id"] not in self.lacking.get(key, ())}
            for row in self.table.to_pylist()
        ]

    def counts(self, *, keyed: bool) -> tuple[int, int, int]:
        """Return the numbers of rows, of commands left out, and of nulls left out of commands.

        Args:
            keyed: whether rows may lack keys; with columns, each row has a value or a null.
        """
        texts = [
            dict(zip(self.texts, row, strict=True))
            for row in zip(*self.texts.values(), strict=True)
        ]
        lacking = [
            sum(number in self.lacking.get(key, ()) for key in self.texts) if keyed else 0
            for number in range(len(texts))
        ]
        nulls = [sum(text is None for text in row.values()) for row in texts]
        sent = [count < len(self.texts) for count in nulls]
        left_out = sum(
            count - lack
            for count, lack, is_sent in zip(nulls, lacking, sent, strict=True)
            if is_sent
        )
        return len(texts), len(texts) - sum(sent), left_out

    def expected(self) -> dict[bytes, dict[bytes, bytes]]:
        """Return the hashes expected in the server; a hash without fields does not exist."""
        rows = {}
        for number in range(self.table.num_rows):
            pairs = {
                name.encode(): text if isinstance(text, bytes) else text.encode()
                for name, texts in self.texts.items()
                if (text := texts[number]) is not None
            }
            if pairs:
                rows[b"k:%d" % number] = pairs
        return rows


@dataclass(frozen=True)
class Mixed(DataSet):
    """Rows with keys and types that differ, which columns can't represent.

    Attributes:
        given: the rows.
        stored: the hash of each row that creates a hash.
        nulls: the number of nulls left out of the stored hashes.
        pairs: the placeholders after the key.
    """

    given: Sequence[dict[str, Any]] = ()
    stored: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    nulls: int = 0
    pairs: str = "{**!json}"

    @property
    def template(self) -> str:
        return f"HSET k:{{id}} {self.pairs}"

    def rows(self) -> list[dict[str, Any]]:
        return list(self.given)

    def counts(self, *, keyed: bool) -> tuple[int, int, int]:
        return len(self.given), len(self.given) - len(self.stored), self.nulls

    def expected(self) -> dict[bytes, dict[bytes, bytes]]:
        return {
            b"k:%d" % number: {name.encode(): text.encode() for name, text in pairs.items()}
            for number, pairs in self.stored.items()
        }


def mixed() -> Mixed:
    rows: list[dict[str, Any]] = [
        {"id": 0, "v": 1},
        {"id": 1, "v": "1.10", "w": None},
        {"id": 2, "late": "x", "v": [1, {"a": None, "b": []}]},
        {"id": 3, "v": {"a": 1, "b": {}}, "other": None},
        {"id": 4},
        {"id": 5, "v": None},
        {"w": "2024-01-01", "id": 6, "late": 2.5},
    ]
    stored = {
        0: {"v": "1"},
        1: {"v": "1.10"},
        2: {"late": "x", "v": '[1,{"a":null,"b":[]}]'},
        3: {"v": '{"a":1,"b":{}}'},
        6: {"w": "2024-01-01", "late": "2.5"},
    }
    table = pa.table({"id": range(len(rows))})
    return Mixed("keys and types that differ", table, {}, given=rows, stored=stored, nulls=2)


def items_and_pairs() -> Mixed:
    """Return rows with pairs from an object, from the other fields, or from both."""
    rows: list[dict[str, Any]] = [
        {"id": 0, "t": {"a": 3, "b": 2}},
        {"id": 1, "t": {}, "v": "x"},
        {"id": 2, "t": {}},
        {"id": 3, "t": {"c": None}},
        {"id": 4, "t": {"a": 1}, "v": None},
        {"id": 5, "t": {"a": 1}, "v": "y"},
    ]
    stored = {0: {"a": "3", "b": "2"}, 1: {"v": "x"}, 4: {"a": "1"}, 5: {"a": "1", "v": "y"}}
    table = pa.table({"id": range(len(rows))})
    return Mixed(
        "items and pairs", table, {}, given=rows, stored=stored, nulls=1, pairs="{*t} {**}"
    )


def make(
    name: str,
    columns: Mapping[str, tuple[Any, Sequence[Text]]],
    lacking: Mapping[str, Collection[int]] | None = None,
    **without: str,
) -> DataSet:
    arrays = {key: pa.array(values) if isinstance(values, list) else values
              for key, (values, _) in columns.items()}  # fmt: skip
    rows = len(next(iter(arrays.values())))
    table = pa.table({"id": pa.array(range(rows), pa.int64()), **arrays})
    texts = {key: texts for key, (_, texts) in columns.items()}
    return DataSet(name, table, texts, without, lacking or {})


def text(name: str, *values: str | None, column: str = "v", **without: str) -> DataSet:
    """Return a data set of texts, which are stored unchanged."""
    return make(name, {column: (pa.array(values, pa.string()), values)}, **without)


def typed(
    name: str, kind: pa.DataType, pairs: Sequence[tuple[Any, Text]], **without: str
) -> DataSet:
    array = pa.array([value for value, _ in pairs], kind)
    return make(name, {"v": (array, [each for _, each in pairs])}, **without)


def _integers() -> DataSet:
    columns = {}
    for bits in (8, 16, 32, 64):
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        values = [least, -1, 0, most]
        columns[f"int{bits}"] = (pa.array(values, f"int{bits}"), [str(each) for each in values])
        values = [0, 1, 2**bits - 2, 2**bits - 1]
        columns[f"uint{bits}"] = (pa.array(values, f"uint{bits}"), [str(each) for each in values])
    return make("integers", columns)


def _nested(name: str, kind: pa.DataType, values: Sequence[Any], **without: str) -> DataSet:
    texts = [
        None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        for value in values
    ]
    return make(name, {"v": (pa.array(values, kind), texts)}, **without)


ZONE = "Europe/Berlin"

DATA_SETS = [
    mixed(),
    items_and_pairs(),
    _integers(),
    typed("integers with nulls", pa.int64(), [(1, "1"), (None, None), (-3, "-3")],
          numpy="pandas makes floats of them"),
    typed("float64", pa.float64(), [(0.1, "0.1"), (-0.0, "-0.0"), (1e16, "1e+16"), (1.0, "1.0"),
          (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308")]),
    typed("infinite", pa.float64(), [(float("inf"), "inf"), (float("-inf"), "-inf")]),
    typed("float32", pa.float32(), [(0.1, "0.1"), (16777216.0, "16777216.0"), (-1.5, "-1.5")],
          rows="Python has no float32"),
    typed("float16", pa.float16(), [(0.5, "0.5"), (0.1, "0.1"), (-2.0, "-2.0")],
          rows="Python has no float16", polars="polars: float32", duckdb="DuckDB has no float16",
          sorted="sort_by refuses it"),
    typed("booleans", pa.bool_(), [(True, "1"), (False, "0"), (None, None)],
          rows="a bool of Python is refused", numpy="pandas makes objects of them"),
    typed("nulls", pa.null(), [(None, None), (None, None)]),
    make("no rows", {"v": (pa.array([], pa.string()), [])}),
    make("one row", {"v": (["x"], ["x"])}),
    make("some nulls", {"a": (["x", None, "z", None], ["x", None, "z", None]),
                        "b": ([None, 2, None, None], [None, "2", None, None])},
         numpy="pandas makes floats of them"),
    make("missing keys", {"a": (["x", None, None, "z", None], ["x", None, None, "z", None]),
                          "b": ([None, None, "y", None, None], [None, None, "y", None, None])},
         {"a": {1, 4}, "b": {0, 1, 3}}),
    make("late keys", {key: ([None] * row + ["x"] + [None] * (39 - row),) * 2
                       for row, key in enumerate(f"k{number}" for number in range(40))},
         {f"k{number}": [row for row in range(40) if (row + number) % 3 and row != number]
          for number in range(40)}),
    text("empty strings and nulls", "", None, "x", ""),
    text("numbers as text", "007", "1.10", "+5", " 7", "1e5", "0x1F", "1_000", "-0", "1,5", "٣"),
    text("texts that mean null elsewhere", "NA", "null", "NULL", "None", "nan", "NaN", "\\N", "-",
         "#N/A", "n/a", "nil"),
    text("texts like booleans", "true", "False", "t", "yes", "0"),
    text("texts like dates", "2024-01-01", "01/02/2024", "12:30", "2024-01-01T00:00:00Z"),
    text("numbers of orders", "#1001", "1002", "#", "# comment"),
    text("quotes", '"Quick" fox', "it's", '"', '""', "a\"b", "'", '"open'),
    text("delimiters", "a,b", "a;b", "a|b", "a\tb", ","),
    text("line ends", "a\nb", "a\r\nb", "\n", "a\n\nb", "a\rb", "end\n"),
    text("backslashes", "\\", "\\n", "a\\", '\\"', "C:\\new", "\\\\"),
    text("spaces", " ", "  x  ", "\t", "\u00a0", "x "),
    text("NUL bytes", "a\0b", "\0", "a\0", duckdb="DuckDB: no NUL in text"),
    text("control characters", "\x01", "\x1b[31m", "\x7f", "\x85", "\u2028"),
    text("Unicode", "Zoë", "Zoe\u0308", "日本語", "😀", "👩‍👩‍👧", "\ufeffx", "\u202e", "ﬁ", "İ"),
    text("formulas", "=1+1", "@x", "-x", "+x"),
    text("braces", "{id}", "{{", "}", "{**}", ";"),
    text("protocol", "*1\r\n$4\r\nPING\r\n", "$5\r\n", "+OK", "-ERR", "_\r\n"),
    text("long strings", "x" * 100_000, "y", "é" * 40_000),
    text("two digits, then text", *(str(number) for number in range(3000)), "x"),
    typed("binary", pa.binary(), [(b"\0\xff", b"\0\xff"), (b"", ""), (b"\r\n", "\r\n"),
          (None, None)], json="JSON has no bytes"),
    typed("fixed-size binary", pa.binary(3), [(b"abc", "abc"), (b"\0\1\xfe", b"\0\1\xfe")],
          json="JSON has no bytes"),
    typed("large binary", pa.large_binary(), [(b"\x80", b"\x80")], json="JSON has no bytes"),
    typed("string views", pa.string_view(), [("short", "short"), ("x" * 40, "x" * 40),
          (None, None)], parquet="pyarrow can't write it", sorted="pyarrow can't write it"),
    typed("large strings", pa.large_string(), [("a", "a"), ("é", "é"), (None, None)]),
    make("dictionary", {"v": (pa.array(["red", "blue", None, "red"]).dictionary_encode(),
                              ["red", "blue", None, "red"])}),
    make("dictionary of integers",
         {"v": (pa.array([7, 5, 7]).dictionary_encode(), ["7", "5", "7"])}),
    typed("decimals", pa.decimal128(20, 2), [(Decimal("1.10"), "1.10"),
          (Decimal("-0.05"), "-0.05"),
          (Decimal("123456789012345678.99"), "123456789012345678.99"), (None, None)]),
    typed("wide decimals", pa.decimal256(60, 5), [(Decimal(10**50), f"{10**50}.00000")],
          polars="polars: at most 38 digits", duckdb="DuckDB: at most 38 digits",
          sorted="sort_by refuses it"),
    typed("dates", pa.date32(), [(date(2024, 2, 29), "2024-02-29"), (date(1, 1, 1), "0001-01-01"),
          (date(9999, 12, 31), "9999-12-31"), (None, None)], numpy="pandas: objects or NaT"),
    typed("times", pa.time64("us"), [(time(12, 30), "12:30:00"),
          (time(23, 59, 59, 999999), "23:59:59.999999")]),
    typed("timestamps", pa.timestamp("us"), [
          (datetime(2024, 5, 1, 12), "2024-05-01T12:00:00"),
          (datetime(1969, 12, 31, 23, 59, 59, 999999), "1969-12-31T23:59:59.999999"),
          (datetime(1, 1, 1), "0001-01-01T00:00:00"),
          (datetime(9999, 12, 31), "9999-12-31T00:00:00")], numpy="pandas: nanoseconds"),
    typed("timestamps in seconds", pa.timestamp("s"), [(0, "1970-01-01T00:00:00"),
          (1_700_000_000, "2023-11-14T22:13:20")]),
    typed("timestamps in nanoseconds", pa.timestamp("ns"), [
          (1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001")],
          rows="Python has no nanoseconds"),
    typed("timestamps with a zone", pa.timestamp("us", ZONE), [
          (datetime(2024, 7, 1), "2024-07-01T02:00:00+02:00"),
          (datetime(2024, 1, 1), "2024-01-01T01:00:00+01:00")],
          relation="DuckDB: all in the zone of the session"),
    typed("timestamps with an offset", pa.timestamp("ns", "-09:30"), [
          (1_700_000_000_000_000_001, "2023-11-14T12:43:20.000000001-09:30"), (None, None)],
          rows="Python has no nanoseconds", numpy="pandas: objects or NaT",
          polars="polars has no offsets", relation="DuckDB: all in the zone of the session"),
    make("nested timestamps with a zone", {
        "Moments": (pa.array([[datetime(2024, 7, 1)], [None]], pa.list_(pa.timestamp("us", ZONE))),
                    ['["2024-07-01T02:00:00+02:00"]', "[null]"]),
        "s": (pa.array([{"at": datetime(2024, 1, 1)}, None],
                       pa.struct({"at": pa.timestamp("s", ZONE)})),
              ['{"at":"2024-01-01T01:00:00+01:00"}', None]),
        "m": (pa.array([[("a", 0)], []], pa.map_(pa.string(), pa.timestamp("ms", ZONE))),
              ['{"a":"1970-01-01T01:00:00+01:00"}', "{}"])},
         rows="rows have dicts", polars="polars: lists of structs", json="JSON: texts",
         relation="DuckDB: all in the zone of the session"),
    typed("durations", pa.duration("us"), [(timedelta(seconds=90), "PT1M30S"),
          (timedelta(days=-1), "-P1D")], duckdb="DuckDB: INTERVAL", sorted="DuckDB: integers"),
    _nested("lists", pa.list_(pa.int64()), [[1, 2], [], None, [3]]),
    _nested("lists of texts", pa.list_(pa.string()), [["a", None, "é\n\""], ["007"]]),
    _nested("structs", pa.struct({"a": pa.int64(), "b": pa.string()}),
            [{"a": 1, "b": "x"}, {"a": 2, "b": None}, None]),
    _nested("maps", pa.map_(pa.string(), pa.int64()), [{"a": 1, "b": 2}, {}],
            rows="rows have dicts", polars="polars: lists of structs", json="JSON: structs"),
    _nested("lists of structs", pa.list_(pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})),
            [[{"a": 1, "b": ["x"]}, {"a": None, "b": []}], []]),
    make("odd names", {name: (["x", None, ""], ["x", None, ""]) for name in (
        "Full Name", "a.b", "a,b", 'a"b', "a'b", "a}b", "{c}", "a!json", " lead", "Zoë", "😀", "0",
        "-", "#", "a\nb", "k:{id}", "**", "é" * 300, "column_1", "true")}),
    make("NUL in names", {"a\0b": (["x"], ["x"]), "a": (["y"], ["y"])},
         duckdb="DuckDB: no NUL in names", sorted="DuckDB: no NUL in names",
         capsule="the C data interface ends names at a NUL", polars="the same",
         duckdb_names="a query refuses them"),
    make("an empty name", {"": (["x"], ["x"]), "a": (["y"], ["y"])},
         polars="polars: column_1", duckdb="DuckDB refuses it", sorted="DuckDB refuses it",
         duckdb_names="a query refuses it"),
    make("names in two cases", {"A": ([1], ["1"]), "a": ([2], ["2"])},
         duckdb="DuckDB: A_1", sorted="DuckDB: names ignore case",
         duckdb_names="a query refuses them"),
    make("new keys in each row",
         {f"k{key}": (["x" if row == key // 10 else None for row in range(30)],) * 2
          for key in range(300)},
         {f"k{key}": set(range(30)) - {key // 10} for key in range(300)}),
    make("many rows", {"v": (pa.array(range(5000)), [str(each) for each in range(5000)])}),
]  # fmt: skip
