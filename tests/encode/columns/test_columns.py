"""Columns as commands: the text of every type, at any place in a command."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from columns import Array, as_rows, dumped
from pyarrow import parquet

import fastresp
from fastresp import EncodeError, TemplateError, pack, pack_many

HALVES = np.array([1.5, 0.1, -0.0, 65504, np.inf], "f2")
SINGLES = np.array([0.1, 1e16, 16777216, -1e-7, np.nan], "f4")
BERLIN = "Europe/Berlin"


def stamps(unit: str, values: list[int | None], zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))


def numbers(kind: pa.DataType, values: list[int]) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def small_decimals(kind: pa.DataType, size: int, values: list[int]) -> pa.Array:
    data = b"".join(value.to_bytes(size, "little", signed=True) for value in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


INTEGERS = {
    f"{sign}int{bits}": (
        pa.array([low, 0, 7, high], f"{sign}int{bits}"), [str(low), "0", "7", str(high)]
    )
    for bits in (8, 16, 32, 64)
    for sign, low, high in (
        ("", -(1 << bits - 1), (1 << bits - 1) - 1), ("u", 0, (1 << bits) - 1)
    )
}  # fmt: skip
WORDS = ["", "a", "twelve bytes", "thirteen byte", "ä€😀" * 9, "\r\n\0", "x" * 5000]
BYTES = [word.encode() for word in WORDS[:-1]] + [b"\xff\0" * 3000]
NINE = [1, -2, 0, 12345, -98765]
DECIMALS = ["0.01", "-0.02", "0.00", "123.45", "-987.65"]

# Values of each type as an array, and their texts.
TEXTS: dict[str, tuple[pa.Array, list[Any]]] = {
    **INTEGERS,
    "half": (pa.array(HALVES), ["1.5", "0.1", "-0.0", "65500.0", "inf"]),
    "float": (pa.array(SINGLES), ["0.1", "1e+16", "16777216.0", "-1e-07", "nan"]),
    "double": (pa.array([0.1, 1e16, 5e-324, -0.0]), ["0.1", "1e+16", "5e-324", "-0.0"]),
    "bool": (pa.array([True, False] * 9), ["1", "0"] * 9),
    "string": (pa.array(WORDS), WORDS),
    "large_string": (pa.array(WORDS, pa.large_string()), WORDS),
    "string_view": (pa.array(WORDS, pa.string_view()), WORDS),
    "binary": (pa.array(BYTES), BYTES),
    "large_binary": (pa.array(BYTES, pa.large_binary()), BYTES),
    "binary_view": (pa.array(BYTES, pa.binary_view()), BYTES),
    "fixed_binary": (pa.array([b"abc", b"\0\r\n"], pa.binary(3)), [b"abc", b"\0\r\n"]),
    "empty_binary": (pa.array([b"", b""], pa.binary(0)), [b"", b""]),
    "decimal32": (small_decimals(pa.decimal32(9, 2), 4, NINE), DECIMALS),
    "decimal64": (small_decimals(pa.decimal64(18, 2), 8, NINE), DECIMALS),
    "decimal128": (pa.array([Decimal(text) for text in DECIMALS], pa.decimal128(38, 2)), DECIMALS),
    "decimal256": (
        pa.array([Decimal("1." + "1" * 75), Decimal(-2)], pa.decimal256(76, 75)),
        ["1." + "1" * 75, "-2." + "0" * 75],
    ),
    "decimal_hundreds": (
        small_decimals(pa.decimal128(5, -2), 16, [12, 0, -1]), ["1200", "0", "-100"]
    ),
    "date32": (
        numbers(pa.date32(), [0, -1, -719162, 2932896]),
        ["1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31"],
    ),
    "date64": (numbers(pa.date64(), [86_400_000, -86_400_000]), ["1970-01-02", "1969-12-31"]),
    "time_s": (numbers(pa.time32("s"), [0, 86399]), ["00:00:00", "23:59:59"]),
    "time_ms": (numbers(pa.time32("ms"), [1, 86399999]), ["00:00:00.001000", "23:59:59.999000"]),
    "time_us": (numbers(pa.time64("us"), [1]), ["00:00:00.000001"]),
    "time_ns": (numbers(pa.time64("ns"), [1, 1000]), ["00:00:00.000000001", "00:00:00.000001"]),
    "timestamp_s": (stamps("s", [-1, 0]), ["1969-12-31T23:59:59", "1970-01-01T00:00:00"]),
    "timestamp_ms": (stamps("ms", [-1]), ["1969-12-31T23:59:59.999000"]),
    "timestamp_us": (
        stamps("us", [-1, 10**6]), ["1969-12-31T23:59:59.999999", "1970-01-01T00:00:01"]
    ),
    "timestamp_ns": (
        stamps("ns", [-1, 1000, -(2**63)]),
        ["1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000001",
         "1677-09-21T00:12:43.145224192"],
    ),
    "utc": (stamps("us", [0, -1], "UTC"),
            ["1970-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999+00:00"]),
    "fixed_offset": (stamps("s", [0], "+05:30"), ["1970-01-01T05:30:00+05:30"]),
    "west": (stamps("ms", [0], "-08:00"), ["1969-12-31T16:00:00-08:00"]),
    "summer_time": (
        stamps("s", [1711846799, 1711846800, 1729990799, 1729990800], BERLIN),
        ["2024-03-31T01:59:59+01:00", "2024-03-31T03:00:00+02:00",
         "2024-10-27T02:59:59+02:00", "2024-10-27T02:00:00+01:00"],
    ),
    "historic": (
        stamps("s", [-3000000000, -62135590000], BERLIN),
        ["1874-12-07T19:33:28+00:53:28", "0001-01-01T02:46:48+00:53:28"],
    ),
    "duration_s": (numbers(pa.duration("s"), [-93600, 0]), ["-P1DT2H", "PT0S"]),
    "duration_ms": (numbers(pa.duration("ms"), [93784500]), ["P1DT2H3M4.5S"]),
    "duration_us": (numbers(pa.duration("us"), [1]), ["PT0.000001S"]),
    "duration_ns": (numbers(pa.duration("ns"), [-1]), ["-PT0.000000001S"]),
}  # fmt: skip


def plain(array: pa.Array) -> pa.Array:
    return array


def sliced(array: pa.Array) -> pa.Array:
    """Slice at an offset that is not a multiple of 8."""
    return pa.concat_arrays([array, pa.nulls(11, array.type), array])[11 + len(array) :]


INDEX_TYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("shape", [plain, sliced])
@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, shape: Any) -> None:
    array, texts = TEXTS[name]
    array = shape(array)
    expected = [text if isinstance(text, bytes) else text.encode() for text in texts]
    table = pa.table({"a": array, "v": array})
    assert dumped(table, "SET k {v}") == pack_many(("SET", "k", text) for text in expected)
    assert dumped(table, "SET k:{a}:{v} 1") == pack_many(
        ("SET", b"k:%b:%b" % (text, text), 1) for text in expected
    )
    assert dumped(table, "HSET k {**}", nulls="skip") == pack_many(
        ("HSET", "k", "a", text, "v", text) for text in expected
    )
    assert dumped(table, "HSET {v} {**}") == pack_many(
        ("HSET", text, "a", text) for text in expected
    )
    assert dumped(Array(array), "ECHO {0}") == pack_many(("ECHO", text) for text in expected)


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_dictionary(name: str) -> None:
    array, texts = TEXTS[name]
    last = len(array) - 1
    first, second = texts[0], texts[last]
    expected = pack_many(("SET", "k", text) for text in ("", second, second, first, second))
    for index in INDEX_TYPES:
        indices = pa.array([0, None, last, last, 0, last], index)
        table = pa.table({"v": pa.DictionaryArray.from_arrays(indices, sliced(array))[1:]})
        assert dumped(table, "SET k {v}", nulls="empty") == expected, index


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_runs(name: str) -> None:
    array, texts = TEXTS[name]
    values = pa.concat_arrays([sliced(array), pa.nulls(1, array.type)])
    expected = [text for text in [*texts, ""] for _ in range(3)]
    for ends, start in product(["int16", "int32", "int64"], [0, 1, 3, 3 * len(array)]):
        encoded = pa.RunEndEncodedArray.from_arrays(
            pa.array([3 * i + 3 for i in range(len(values))], ends), values
        )
        assert dumped(pa.table({"v": encoded[start:]}), "SET k {v}", nulls="empty") == pack_many(
            ("SET", "k", text) for text in expected[start:]
        ), (ends, start)


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_lists(name: str) -> None:
    array, texts = TEXTS[name]
    values = pa.concat_arrays([array, pa.nulls(1, array.type), array])
    texts = [*texts, "", *texts]
    n = len(values)
    lists = {
        "list": pa.ListArray.from_arrays([0, 1, n, n], values),
        "large": pa.LargeListArray.from_arrays([0, 1, n, n], values),
        "view": pa.ListViewArray.from_arrays([0, 1, n], [1, n - 1, 0], values),
        "large_view": pa.LargeListViewArray.from_arrays([0, 1, n], [1, n - 1, 0], values),
    }
    expected = [("SADD", "k", *texts[:1]), ("SADD", "k", *texts[1:])]
    table = pa.table(lists)
    for kind in lists:
        template = f"SADD k {{*{kind}}}"
        assert dumped(table, template, nulls="empty") == pack_many(expected)
        assert dumped(table[1:2], template, nulls="empty") == pack_many(expected[1:2])
        left = [item for item in texts[1:n] if item != ""] if "" not in array.to_pylist() else None
        if left is not None and name not in ("empty_binary", "string", "binary"):
            assert dumped(table[1:], template, nulls="skip") == pack("SADD", "k", *left)
    fixed = pa.FixedSizeListArray.from_arrays(values, n)
    assert dumped(pa.table({"v": fixed}), "SADD k {*v}", nulls="empty") == pack("SADD", "k", *texts)
    pair = pa.FixedSizeListArray.from_arrays(pa.concat_arrays([array, array[:1]] * 2), n // 2 + 1)
    assert dumped(pa.table({"v": pair})[1:], "SADD k {*v}", nulls="empty") == pack(
        "SADD", "k", *texts[: n // 2], texts[0]
    )


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_structs_and_maps(name: str) -> None:
    array, texts = TEXTS[name]
    first, last = texts[0], texts[-1]
    struct = pa.StructArray.from_arrays([sliced(array), sliced(array)], ["a", "b c"])
    assert dumped(pa.table({"v": struct})[-1:], "HSET k {*v}") == pack(
        "HSET", "k", "a", last, "b c", last
    )
    assert dumped(struct[-1:], "HSET k {a} {**}") == pack("HSET", "k", last, "b c", last)
    n = len(array)
    maps = pa.MapArray.from_arrays([0, 1, 1, n], sliced(array), sliced(array))
    pairs = [text for text in texts[1:] for _ in range(2)]
    table = pa.table({"v": maps})
    last_map = pack("HSET", "k", *pairs) if pairs else b""
    assert dumped(table, "HSET k {*v}") == pack("HSET", "k", first, first) + last_map
    assert dumped(table[2:], "HSET k {*v}") == last_map


@pytest.mark.parametrize("name", [name for name in TEXTS if "binary" not in name])
def test_text_as_json(name: str) -> None:
    """Numbers and booleans stay as they are, other types become strings; infinity is refused."""
    array, texts = TEXTS[name]
    rows = as_rows(pa.table({"v": array}), {"v": "json"}) if "_ns" not in name else []
    table = pa.table({"v": array, "l": pa.array([[1]] * len(array))})
    for i, text in enumerate(texts):
        one = table[i : i + 1]
        if text in ("inf", "nan"):
            with pytest.raises(EncodeError, match=r"row 0, .*'v'.*: NaN and infinity") as caught:
                dumped(one, "SET k {v!json}")
            assert caught.value.argument == 2
            continue
        number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
        value = text if number else json.dumps(text, ensure_ascii=False)
        if name == "bool":
            value = "true" if text == "1" else "false"
        assert dumped(one, "SET k {v!json}") == pack("SET", "k", value)
        assert dumped(one, "SET k {*!json}") == pack("SET", "k", f'{{"v":{value},"l":[1]}}')
        if rows and "duration" not in name:
            assert dumped(rows[i : i + 1], "SET k {v!json}") == pack("SET", "k", value)


@pytest.mark.parametrize(
    "array",
    [
        numbers(pa.date32(), [-719163]),
        numbers(pa.date32(), [2**31 - 1]),
        pa.array([2**62], pa.int64()).view(pa.date64()),
        stamps("s", [2**62]),
        stamps("us", [-62135596800000001]),
        stamps("s", [2**63 - 1], "+01:00"),
        stamps("s", [-(2**63)], BERLIN),
        stamps("s", [253402300799], BERLIN),
        numbers(pa.time32("s"), [86400]),
        numbers(pa.time64("ns"), [-1]),
    ],
    ids=lambda array: str(array.type),
)
def test_times_without_a_text(array: pa.Array) -> None:
    table = pa.table({"n": [1], "when": array})
    with pytest.raises(EncodeError, match="'when', argument 2: this date or time is not within"):
        dumped(table, "SET {n} {when}", nulls="skip")
    with pytest.raises(EncodeError, match="'when', argument 1: this date"):
        dumped(table, "SET a:{when} 1", nulls="empty")


ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Africa/Monrovia",
         "Australia/Lord_Howe", "UTC", "+00:00", "-09:30"]  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_offsets_of_zones(zone: str) -> None:
    """Offsets equal Python's, over a thousand years and near each change."""
    seconds = [*range(-(10**10), 10**10, 9_999_991), *range(-(10**9), 2 * 10**9, 1_799_999)]
    table = pa.table({"t": stamps("s", list(seconds), zone)})
    assert dumped(table, "ECHO {t}") == dumped(as_rows(table), "ECHO {t}")


def test_unknown_zone() -> None:
    for zone in ("Mars/Olympus", "+25:00", "../etc", "+1"):
        with pytest.raises(EncodeError, match=r"column 't' has the time zone '.*not known here"):
            dumped(pa.table({"t": stamps("s", [0], zone)}), "ECHO {t}")


def test_names_that_are_not_utf_8() -> None:
    def table(array: pa.Array) -> Any:
        field = pa.field(b"caf\xe9", array.type)
        return Array(pa.StructArray.from_arrays([array], fields=[field]))

    assert dumped(table(pa.array([1])), "HSET k {**}") == pack("HSET", "k", b"caf\xe9", 1)
    with pytest.raises(EncodeError, match="not UTF-8, which JSON requires"):
        dumped(table(pa.array([1])), "SET k {*!json}")
    with pytest.raises(EncodeError, match=r"row 0, .* column 'caf\\\\xe9', argument 3: cannot"):
        dumped(table(pa.nulls(1)), "HSET k {**}", nulls="error")
    with pytest.raises(EncodeError, match=r"column 'caf\\\\xe9' has the time zone 'Mars'"):
        dumped(table(stamps("s", [0], "Mars")), "HSET k {**}")
    with pytest.raises(TemplateError, match=r"has no column \{a\}: its columns are caf\\xe9"):
        dumped(table(pa.array([1])), "GET {a}")


@pytest.mark.parametrize(
    "text",
    [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\x80"],
)
def test_json_of_text_that_is_not_utf_8(text: bytes) -> None:
    array = pa.Array.from_buffers(
        pa.string(),
        1,
        [None, pa.array([0, len(text)], pa.int32()).buffers()[1], pa.py_buffer(text)],
    )
    table = pa.table({"a": array})
    assert dumped(table, "SET k {a}") == pack("SET", "k", text)
    with pytest.raises(EncodeError, match=r"row 0, .*column 'a', .*not UTF-8"):
        dumped(table, "SET k {a!json}")


def test_json_of_every_character() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)]))
    document = json.dumps({"a": text}, ensure_ascii=False, separators=(",", ":"))
    assert dumped(pa.table({"a": [text]}), "SET k {*!json}") == pack("SET", "k", document)


def test_extension_types() -> None:
    number = uuid.uuid4()
    identifiers = pa.array([number.bytes, None], pa.uuid())
    assert dumped(pa.table({"a": identifiers}), "SADD k {a}", nulls="skip") == pack(
        "SADD", "k", number
    )
    assert dumped(pa.table({"a": identifiers[:1]}), "SET k {*!json}") == pack(
        "SET", "k", f'{{"a":"{number}"}}'
    )
    truths = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2, 0], pa.int8()))
    assert dumped(pa.table({"a": truths}), "SADD k {a}; LPUSH j {a!json}") == b"".join(
        pack("SADD", "k", each) + pack("LPUSH", "j", text)
        for each, text in ((1, "true"), (0, "false"))
    )
    documents = pa.array(['{"b": [1]}'], pa.json_())
    assert dumped(pa.table({"a": documents}), "SET k {*!json}") == pack(
        "SET", "k", '{"a":{"b": [1]}}'
    )
    unknown = pa.table(
        {
            "a": pa.ExtensionArray.from_storage(
                pa.opaque(pa.int8(), "t", "v"), pa.array([1], pa.int8())
            )
        }
    )
    for template in ("SET k {a}", "HSET k {**}", "SET k {*!json}"):
        with pytest.raises(TemplateError, match=r"'a'.*arrow\.opaque, an Arrow ext|no JSON form"):
            dumped(unknown, template)


@pytest.mark.parametrize(
    "array", [pa.array(["a", None]), pa.array([None, "a"]).dictionary_encode()]
)
def test_single_column(array: pa.Array) -> None:
    for data in (Array(array), array, pa.chunked_array([array])):
        assert dumped(data, "SADD k {0}", nulls="skip") == pack("SADD", "k", "a")
        with pytest.raises(TemplateError, match="needs columns with names, and this is a single"):
            dumped(data, "HSET k {**}")
        with pytest.raises(TemplateError, match="needs columns with names, and this is a single"):
            dumped(data, "SET k {*!json}")
        with pytest.raises(TemplateError, match=r"no column \{1\}: it is a single column"):
            dumped(data, "SET k {1}")


@pytest.mark.parametrize(
    ("template", "column"),
    [
        ("SET {a} 1", '"a"'),
        ("SET k:{a} 1", '"a"'),
        ("ZADD k {a} x", '"a"'),
        ("""SET '{x "y"}' 1""", '"x ""y"""'),
        ("SET {s.a} 1", "..."),
    ],
)
def test_nulls_that_are_refused_have_advice(template: str, column: str, tmp_path: Path) -> None:
    table = pa.table({"a": ["v", None], 'x "y"': ["v", None], "s": [{"a": "v"}, {"a": None}]})
    parquet.write_table(table, tmp_path / "x.parquet")
    ends = {
        ", or drop such rows": table,
        f", sql='FROM source WHERE {column} IS NOT NULL' filters the rows of files": fastresp.read(
            tmp_path / "x.parquet"
        ),
    }
    for end, data in ends.items():
        with pytest.raises(EncodeError) as caught:
            dumped(data, template)
        assert "row 1, command 1, column " in str(caught.value) or "row 1 of" in str(caught.value)
        assert str(caught.value).endswith(
            "Redis has no null; nulls='skip' leaves out the command (or the pair), nulls='empty' "
            f"sends an empty string{end}"
        )
