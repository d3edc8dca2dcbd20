"""JSON lines and JSON arrays: numbers keep their text, and documents their bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import hiredis
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import ROWS, failure, rows_of, write

import fastresp
from fastresp.sources.files.reading import BLOCK_BYTES


def lines(*rows: str) -> io.BytesIO:
    return io.BytesIO("".join(row + "\n" for row in rows).encode())


def made(source: Any, template: str, **options: Any) -> list[list[bytes]]:
    """Return the commands that a load would send."""
    nulls = options.pop("nulls", "skip")
    file = io.BytesIO()
    fastresp.dump(fastresp.read(source, **options), template, file, nulls=nulls)
    reader = hiredis.Reader()
    reader.feed(file.getvalue())
    return list(iter(reader.gets, False))  # type: ignore[arg-type]


def values(source: Any, template: str, **options: Any) -> list[str]:
    return [command[-1].decode() for command in made(source, template, **options)]


# Numbers.

LARGE = ["9223372036854775808", "9223372036854775809", "9223372036854775810"]
NUMBERS = [
    "9007199254740993", "1.5", "1", "-1", "0", "-0", "-0.0", "1.10", "1.0", "1e5", "1E+5", "1e-7",
    "18446744073709551616", "170141183460469231731687303715884105728", "123456789012345678.25",
    "0.1000000000000000055511151231257827", "1" * 80, "1e400", "5e-324",
    "NaN", "Infinity", "-Infinity",
]  # fmt: skip


def test_large_integers_stay_distinct_keys() -> None:
    rows = [f'{{"id": {number}}}' for number in LARGE]
    assert made(lines(*rows), "SET user:{id} {id}") == [
        [b"SET", f"user:{number}".encode(), number.encode()] for number in LARGE
    ]


@pytest.mark.parametrize("form", ["{v}", "{v!json}"])
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_keep_their_text(form: str, turned: bool) -> None:
    numbers = NUMBERS[::-1] if turned else NUMBERS
    rows = [f'{{"id": 1, "v": {number}}}' for number in numbers]
    assert values(lines(*rows), f"SET k {form}") == numbers


def test_numbers_inside_objects_and_lists_keep_their_text() -> None:
    text = f'{{"a":{{"x":[{",".join(NUMBERS)}],"y":{{"z":1.10}}}},"b":[{",".join(NUMBERS)}]}}'
    assert values(lines(text), "SET k {a!json}") == [
        f'{{"x":[{",".join(NUMBERS)}],"y":{{"z":1.10}}}}'
    ]
    assert made(lines(text), "SADD k {*b}") == [[b"SADD", b"k", *map(str.encode, NUMBERS)]]
    assert made(lines('{"a":{"x":1.10,"y":2}}'), "HSET k {*a}") == [
        [b"HSET", b"k", b"x", b"1.10", b"y", b"2"]
    ]
    assert made(lines('{"a":1.10,"b":"x","c":null}'), "HSET k {**}") == [
        [b"HSET", b"k", b"a", b"1.10", b"b", b"x"]
    ]


def test_vectors_of_numbers() -> None:
    both = made(lines('{"v":[1.5,2],"n":1.10}'), "HSET k v {v!f32} n {n}")
    assert both == [[b"HSET", b"k", b"v", b"\0\0\xc0\x3f\0\0\0\x40", b"n", b"1.10"]]


# More than a block.
MANY = [json.dumps({"a": number, "b": "x" * 500}) for number in range(8_000)]


@pytest.mark.parametrize(
    "number", ["01", "1.", ".5", "+1", "-", "1e", "1e+", "--1", "1-2", "0x1", "1_0", "1 2", "1a"]
)
def test_invalid_numbers(number: str) -> None:
    said = failure(lines('{"a": 1}', f'{{"a": {number}}}', '{"a": 2}'))
    assert "row 1, line 2: " in said


@pytest.mark.parametrize(
    "line",
    ['{"a":"x"1}', '{"a" 1}', '{1:2}', '{"a":1,2}', '[1]', '5', '"x"', 'null', '{"a":1}}',
     '{"a":1} {"a":2}', '{"a":1},', '{"a":[1}', '{"a":tru1}', '{"a":1', '{"a":"x', '{"a":"x\\"}'],
)  # fmt: skip
def test_invalid_json(line: str) -> None:
    for template in ("SET k {a}", "SET k {*!json}"):
        with pytest.raises(fastresp.SourceError, match=r"row 1, line 2: "):
            made(lines('{"a": 1}', line, '{"a": 2}'), template)


def test_marker_bytes_are_refused() -> None:
    """These bytes, invalid in UTF-8, mark numbers for the parser."""
    source = io.BytesIO(b'{"a": "\xff5"}\n')
    with pytest.raises(fastresp.SourceError, match="not UTF-8; set encoding="):
        made(source, "SET k {a}")
    assert values(lines('{"a": "\\u00ff5"}', '{"a": "ÿ5"}'), "SET k {a}") == ["ÿ5", "ÿ5"]


@pytest.mark.parametrize("byte", [b"\xc3", b"\xff"])
@pytest.mark.parametrize(
    ("template", "row"),
    [
        ("HSET k - - {**!json}", b'{"a": 1, "x%b": 1}'),
        ("HSET k{0} - - {**!json}", b'{"a": 1, "x%b": 1}'),
        ("SET k {*!json}", b'{"a": 1, "x%b": 1, "x%b": 1}'),
        ("HSET k {*t}", b'{"a": 1, "t": {"x%b": 1}}'),
        ("HSET k - - {**!json}", b'{"a": 1, "t": {"x%b": 1, "x%b": 1}}'),
        ("SET k {t.y}", b'{"a": 1, "t": {"y": 1, "x%b": 1}}'),
    ],
)
def test_a_key_that_is_not_utf8(template: str, row: bytes, byte: bytes) -> None:
    many = "".join(f', "k{n}": 1' for n in range(120))
    good = [f'{{"a": 1, "t": {{"y": 1}}{keys}}}\n'.encode() for keys in ("", many)]
    bad = row.replace(b"%b", byte) + b"\n"
    for before in good:
        with pytest.raises(fastresp.SourceError, match=r"row 1, line 2: not UTF-8; set encoding="):
            made(io.BytesIO(before + bad), template)
        assert len(made(io.BytesIO(before + bad), template, bad_rows="skip")) == 1
    with pytest.raises(fastresp.SourceError, match=r"row 0, line 1: (not UTF-8|Column)"):
        made(io.BytesIO(bad), "HSET k - - {**!json}", sort_by="a")


@pytest.mark.few(3)
@pytest.mark.parametrize("options", [{"sort_by": "a"}, {"sql": "FROM source"}])
@pytest.mark.parametrize("late", ['"b": 1.50', '"b": true', '"new": 1e5'])
def test_advice_for_later_types_keeps_each_value(late: str, options: dict[str, Any]) -> None:
    rows = [*MANY, f'{{"a": 5, {late}}}']
    with pytest.raises(fastresp.SourceError) as caught:
        made(lines(*rows), "HSET k {**}", **options)
    assert "but a load without sort_by and sql lets each row have its own keys" in str(caught.value)
    name, text = late[1:].split('": ')
    pair = [name.encode(), text.replace("true", "1").encode()]
    assert made(lines(*rows), "HSET k {**}")[-1] == [b"HSET", b"k", b"a", b"5", *pair]


def test_types_outside_a_load() -> None:
    """As Arrow data, columns have types, and no value changes."""
    rows = [f'{{"i": 1, "d": {LARGE[0]}, "f": {n}, "s": "1"}}' for n in (1, 2.5)]
    assert rows_of(lines(*rows)) == [
        {"i": 1, "d": Decimal(LARGE[0]), "f": n, "s": "1"} for n in (1.0, 2.5)
    ]
    said = failure(lines('{"a": 9007199254740993}', '{"a": 1.5}'))
    assert "Column(/a) also has fractions, and a float can't represent 9007199254740993" in said
    assert "row 0, line 1" in said
    said = failure(lines(*MANY, f'{{"a": {LARGE[0]}, "b": "x"}}'))
    assert "row 8,000, line 8,001: Column(/a): " in said


@pytest.mark.parametrize(
    "number", ["1" * 39, "-" + "1" * 40, "1" * 41, str(2**1024), "1" * 400, "1" * 5_000]
)
@pytest.mark.parametrize("first", ["1", str(2**64)])
def test_integers_of_more_than_38_digits_are_refused_as_numbers(number: str, first: str) -> None:
    said = failure(lines(f'{{"id": {first}}}', f'{{"id": {number}}}'))
    assert "row 1, line 2: Column(/id) has integers of up to 38 digits, and " in said
    assert f"and {number[:39]}" in said
    assert said.endswith("is not one; write it as a string")
    assert len(said) < 200
    assert values(lines(f'{{"id": {number}}}'), "SET k {id}") == [number]


@pytest.mark.parametrize("number", ["9" * 38, "-" + "9" * 38])
def test_integers_of_38_digits(number: str) -> None:
    assert rows_of(lines(f'{{"id": {number}}}')) == [{"id": Decimal(number)}]


@pytest.mark.parametrize("number", ["1e400", "-1.5E+309", "1" * 400, "1" * 5_000])
def test_numbers_that_are_too_large_for_floats_are_refused(number: str) -> None:
    said = failure(lines('{"v": 1.5}', f'{{"v": {number}}}'))
    assert "row 1, line 2: Column(/v) has floats, and " in said
    assert said.endswith("is too large for a float; write it as a string")
    with pytest.raises(fastresp.SourceError, match="is too large for a float"):
        made(lines(f'{{"v": [1.5, {number}]}}'), "SET k {v!f32}")
    assert values(lines('{"v": 1.5}', f'{{"v": {number}}}'), "SET k {v}") == ["1.5", number]


def test_infinity_stays_infinity() -> None:
    found = rows_of(lines('{"v": Infinity}', '{"v": -Infinity}', '{"v": 1.10}'))
    assert [row["v"] for row in found] == [float("inf"), float("-inf"), 1.1]


@pytest.mark.parametrize("last", ['{"v": 1.5}', '{"v": 1, "new": 2}'])
def test_last_line_without_a_line_end_adds_columns(last: str) -> None:
    for end in (b"\n", b""):
        source = io.BytesIO(b'{"v": 1}\n' + last.encode() + end)
        assert rows_of(source) == [{"v": 1, **({"new": None} if "new" in last else {})},
                                   json.loads(last)]  # fmt: skip


MANY_KEYS = "".join(f'"k{n}": 1, ' for n in range(20))


@pytest.mark.few(6)
@pytest.mark.parametrize("options", [{}, {"sort_by": "a"}])
@pytest.mark.parametrize(
    ("template", "row"),
    [
        ("SET k {a}", '{"a": 1, "a": 2}'),
        ("HSET k {**}", '{"a": 1, "b": null, "b": 2}'),
        ("HSET k {**!json}", '{"a": 1, "b": {"x": [{"y": 1, "\\u0079": 2}]}}'),
        ("SET k {b!json}", f'{{"a": 1, "b": {{{MANY_KEYS}"k7": 2}}}}'),
        ("SET k {b.x}", '{"a": 1, "b": {"x": 2, "x": 1}}'),
        ("RPUSH k {*b}", '{"a": 1, "b": {"x": 2, "x": 1}}'),
        ("SET k {*!json}", '{"a": 1, "b": {"x": 2, "x": 1}}'),
        ("SET k{a} {*!json}", '{"a": 1, "b": 1, "b": 2}'),
        ("HSET k {**-b}", '{"a": 1, "b": {"x": 2, "x": 1}}'),
        ("SET k {b.y}", '{"a": 1, "b": {"y": 1, "x": 2, "x": 1}}'),
        ("SET k {0}", '{"a": 1, "b": 1, "b": 2}'),
    ],
)
def test_a_duplicate_key_is_an_error_of_its_row(
    template: str, row: str, options: dict[str, Any]
) -> None:
    """Every reader of the object refuses it, since JSON readers differ in the value they use."""
    good = json.dumps(json.loads(row))
    with pytest.raises(
        fastresp.SourceError, match=r"row 1, line 2: .* (is duplicated|twice)"
    ) as caught:
        made(lines(good, row), template, **options)
    assert caught.value.line == 2
    assert len(made(lines(good, row), template, bad_rows="skip", **options)) == 1
    with pytest.raises(fastresp.SourceError, match=r"row 1, line 1: .* (is duplicated|twice)"):
        made(io.BytesIO(f"[{good},{row}]".encode()), template, **options)


def test_unused_columns_may_have_duplicate_keys() -> None:
    row = '{"x": 1, "x": 2, "y": {"z": 1, "z": 2}, "a": 5}'
    assert values(lines(row), "SET k {a}") == ["5"]
    assert values(lines(row.replace("5", '{"b": 5}')), "SET k {a.b}") == ["5"]


# Columns outside a load.


def test_strings_of_json_stay_strings() -> None:
    row = {
        "day": "2020-01-01",
        "at": {"time": "2020-01-01 10:00:00", "n": [1, 2]},
        "days": ["2020-01-01", None],
        "deep": [{"day": "2020-01-01T00:00:00Z", "nothing": None}],
        "flag": True,
        "float": 1.5,
    }
    assert rows_of(lines(json.dumps(row))) == [row]


def test_json_later_in_the_file() -> None:
    late = '{"b":"2020-01-01"}'
    assert rows_of(lines(*MANY, late))[-1] == {"a": None, "b": "2020-01-01"}
    nulls = [json.dumps({"a": None, "b": "x" * 500})] * 8_000
    assert rows_of(lines(*nulls, '{"a":"text"}'))[-1] == {"a": "text", "b": None}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"a":"x"}', "Column(/a) changed from number to string; columns and types are taken from"),
        ('{"b":5}', "Column(/b) changed from string to number; columns and types are taken from"),
        ('{"c":1}', "unexpected field; columns and types are taken from the first 2 MiB, but a"),
        ('{"a":1.5}', "Column(/a): Failed to parse string: '1.5' as"),
        ('{"a":1', "the line ends inside its JSON object; fix it"),
        ('{"a":1,}', "Missing a name for object member; fix it: each line"),
        ("nonsense", "not a JSON object; fix it: each row, a line or an element"),
    ],
)
def test_faults_of_json(line: str, words: str) -> None:
    assert f"row 8,000, line 8,001: {words}" in failure(lines(*MANY, line))


def test_rows_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b'{"a": "' + b"x" * (5 << 20) + b'"}\n{"a": "y"}\n'
    table = pa.table(fastresp.read(io.BytesIO(rows), format="jsonl"))
    assert [len(row["a"]) for row in table.to_pylist()] == [5 << 20, 1]
    said = "from row 0 on: a row is larger than 3,000,000 bytes, the maximum; raise max_row_bytes"
    with pytest.raises(fastresp.SourceError, match=said):
        pa.table(fastresp.read(io.BytesIO(rows), format="jsonl", max_row_bytes=3_000_000))
    monkeypatch.setattr("fastresp.sources.files.reading.ROW_BYTES", 3_000_000)  # can't be raised
    said = failure(io.BytesIO(rows), format="jsonl", max_row_bytes=3_000_000)
    assert said.endswith("larger than 3,000,000 bytes, the maximum; split it")


# Documents.


DOCUMENTS = [
    '{"id": 1, "v": 1.10}',
    '{"v":1,"id":2}',
    '{ "id" : 3 }',
    '{"id":4,"v":null,"x":{"b":1,"a":[1.0, 2]},"s":"\\u00e9\\n"}',
]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_documents_keep_their_bytes(pack: Any) -> None:
    text = "\ufeff" + "\n\n".join(DOCUMENTS) + "\r\n  \n"
    source = io.BytesIO(pack(text.encode()))
    assert values(source, "SET event:{id} {*!json}") == DOCUMENTS
    source = io.BytesIO(pack(text.encode()))
    assert values(source, "RPUSH k {*!json}") == DOCUMENTS


def test_documents_and_all_fields() -> None:
    rows = ['{"id": 1, "v": 1.10}', '{"v":1,"id":2}']
    assert made(lines(*rows), "HSET k{id} doc {*!json} {**}") == [
        [b"HSET", b"k1", b"doc", rows[0].encode(), b"v", b"1.10"],
        [b"HSET", b"k2", b"doc", rows[1].encode(), b"v", b"1"],
    ]
    source = io.BytesIO("\n".join(rows).encode())
    assert values(source, "SET k{id} {*!json}", limit=1) == rows[:1]


def test_documents_of_several_files(tmp_path: Path) -> None:
    for name, text in enumerate(DOCUMENTS):
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert values(tmp_path / "*.jsonl", "SET event:{id} {*!json}") == DOCUMENTS
    (tmp_path / "4.csv").write_text("id\n5\n")
    both = [tmp_path / "2.jsonl", tmp_path / "4.csv"]
    assert values(both, "SET event:{id} {*!json}") == [DOCUMENTS[2], '{"id":"5"}']


@pytest.mark.slow
def test_unused_fields_may_be_anything() -> None:
    rows = [*MANY, '{"a": 5, "b": {"x": 1}, "late": 1}']
    assert values(lines(*rows), "SET k {a}")[-1] == "5"
    assert values(lines(*rows), "SET k{a} {*!json}")[-1] == rows[-1]
    with pytest.raises(fastresp.EncodeError, match=r"row 8,000.*, column 'b'"):
        made(lines(*rows), "HSET k {**}")
    nested = ['{"a": {"x": 1}}', *MANY]
    late = lines(*(['{"a": {"x": 1}}'] * 200_000), '{"a": {"late": 1}}')
    assert values(late, "SET k {a!json}")[-1] == '{"late":1}'
    assert "Column(/a) changed" in failure(lines(*nested))


def test_no_row_of_a_block_with_a_bad_row_is_sent() -> None:
    file = io.BytesIO()
    table = fastresp.read(lines('{"a": 1}', '{"a": 2', '{"a": 3}'))
    with pytest.raises(fastresp.SourceError, match=r"row 1, line 2"):
        fastresp.dump(table, "SET k {a}", file)
    assert file.getvalue() == b""


def test_documents_need_not_be_columns() -> None:
    rows = ['{"id": 1, "v": 1.10}', '{"id": 2, "v": "x"}', '{"v": [1, {}], "id": 3}', '{"v": {}}']
    assert values(lines(*rows), "RPUSH k {*!json}") == rows
    assert values(lines(*rows[:3]), "SET k{id} {*!json}") == rows[:3]
    assert values(lines(*rows[:3]), "SET k {id}") == ["1", "2", "3"]
    with pytest.raises(fastresp.TemplateError, match=r"no column \{nmae\}"):
        made(lines(*rows), "SET k{nmae} {*!json}")


# Depth.


@pytest.mark.parametrize("levels", [129, 20_000, 200_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_deep_nesting_is_refused(levels: int, brackets: str) -> None:
    begin = "[" if brackets == "[]" else '{"x":'
    deep = f'{{"a":{begin * (levels - 1)}1{brackets[1] * (levels - 1)}}}'
    for source in (lines('{"a": null}', deep), lines("[", '{"a": null},', deep, "]")):
        with pytest.raises(fastresp.SourceError, match=r"row 1[:,] .*more than 128 levels deep"):
            made(source, "SET k {a!json}")
    assert "more than 128 levels" in failure(lines('{"a": null}', deep))
    said = failure(lines('{"a": null}', deep), sql="FROM source")
    assert "more than 128 levels" in said


def test_deepest_allowed_nesting(tmp_path: Path) -> None:
    document = '{"a":' + "[" * 127 + "1.10" + "]" * 127 + "}"
    assert values(lines(document), "SET k {*!json}") == [document]
    assert values(lines(document), "SET k {a!json}") == [document[5:-1]]
    brackets = json.dumps({"a": "[{" * 5_000})
    assert values(lines(brackets), "SET k {*!json}") == [brackets]


# Arrays.


ARRAYS = [
    json.dumps(ROWS),
    json.dumps(ROWS, indent=2),
    json.dumps(ROWS, indent=2).replace("\n", "\r\n"),
    "\ufeff \n" + json.dumps(ROWS) + "\n\n",
]


@pytest.mark.parametrize("text", ARRAYS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_array_is_read_like_lines(tmp_path: Path, text: str, pack: Any) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(pack(text.encode()))
    assert rows_of(path, format="jsonl") == ROWS
    assert rows_of(io.BytesIO(pack(text.encode()))) == ROWS
    assert rows_of([path, write(tmp_path / "more.jsonl")], format="jsonl") == ROWS * 2
    assert rows_of(path, format="jsonl", limit=3) == ROWS[:3]


def test_an_array_may_end_in_a_block_of_one_byte() -> None:
    text = '[{"a": 1}'.ljust(BLOCK_BYTES) + "]"
    assert values(io.BytesIO(text.encode()), "SET {a} {a}", format="jsonl") == ["1"]
    assert b"x]"[1:].hex() == "5d"  # Python shares the objects of single bytes


def test_documents_of_an_array_keep_their_bytes() -> None:
    odd = [
        '{"s": "[],{}\\"\\\\", "n": [1.10, [2]]}',
        '{"s": "a,\\n]", "n": [[], {}]}',
        '{"n":null}',
    ]
    source = io.BytesIO(f"[{odd[0]},{odd[1]} , {odd[2]}]".encode())
    assert values(source, "RPUSH k {*!json}") == odd
    large = [f'{{"id": {n}, "v": "{"x" * 600}"}}' for n in range(12_000)]
    source = io.BytesIO(("[\n" + ",\n".join(large) + "\n]").encode())
    assert values(source, "SET k{id} {*!json}") == large


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1}', "it ends inside its JSON array"),
        ('[{"a": 1},', "it ends inside its JSON array"),
        ('[{"a": "x', "it ends inside its JSON array"),
        ('[{"a": 1}] {"a": 2}', "extra text after the end of the JSON array"),
        ('[{"a": 1} {"a": 2}]', "extra text after the JSON object"),
        ("[1, 2]", "not a JSON object"),
        ('[[{"a": 1}]]', "not a JSON object"),
        ('[{"a": 1}, nonsense]', "row 1, line 1: not a JSON object"),
    ],
)
def test_faults_of_an_array(text: str, words: str) -> None:
    assert words in failure(io.BytesIO(text.encode()))


@pytest.mark.parametrize("text", ["[]", "[ ]\n", " [\n]"])
def test_an_array_without_rows(text: str) -> None:
    assert rows_of(io.BytesIO(text.encode()), format="jsonl") == []


# Bad rows.


def test_bad_rows_of_json(tmp_path: Path) -> None:
    bad = ['{"a": 1', "nonsense", '{"a": "text"}', '{"a": 01}', '{"a": 1, "late": {}}']
    rows = [row for index, row in enumerate(MANY[:500]) for row in ([row, bad[index // 100]]
            if index % 100 == 99 else [row])]  # fmt: skip
    target = tmp_path / "bad.jsonl"
    for policy in ("skip", target):
        table = fastresp.read(lines(*rows, *MANY[500:], bad[0]), bad_rows=policy)
        assert isinstance(table, fastresp.Table)
        found = pa.table(table)
        # Columns are taken from the whole first block, so `late` is one.
        assert sorted(row["a"] for row in found.to_pylist()) == sorted([*range(8_000), 1])
        assert table.bad_rows == 5
    assert target.read_text().splitlines() == [*bad[:4], bad[0]]


def test_bad_rows_at_the_beginning() -> None:
    assert rows_of(lines("{", '{"a": 1}'), bad_rows="skip") == [{"a": 1}]
    assert rows_of(lines("{", "}"), bad_rows="skip", format="jsonl") == []


@pytest.mark.parametrize("text", [b"", b"\n", b"[]"])
@pytest.mark.parametrize(
    "template", ["SET {id} 1", "SET {a.b} {0}", "HSET k {**}", "RPUSH k {*!json}", "HSET k {*a}"]
)
def test_json_without_rows_loads_nothing(text: bytes, template: str) -> None:
    assert made(io.BytesIO(text), template, format="jsonl") == []


# Keys and types that change from row to row.


DRIFTING = [
    '{"id": 1, "v": 1.10, "w": {"x": 1e5}}',
    '{"v": "a", "id": 2, "w": {"y": [true, null, "\\u00e9\\n\\ud83d\\ude00"]}}',
    '{"id": 3, "v": true, "late": "1"}',
    '{"id": 4, "v": false, "w": "2024-01-01 00:00:00"}',
    '{"id": 5, "v": null, "w": [1, {"z": "\\/ \\"q\\""}]}',
    '{"id": 6, "w": 18446744073709551616}',
]
MORE = {
    "SET k{id} {v}": ["1.10", "a", "1", "0"],
    "SET k{id} {v!json}": ["1.10", '"a"', "true", "false", "null", "null"],
    "SET k{id} {w!json}": [
        '{"x":1e5}',
        '{"y":[true,null,"é\\n😀"]}',
        "null",
        '"2024-01-01 00:00:00"',
        '[1,{"z":"/ \\"q\\""}]',
        "18446744073709551616",
    ],
    "SET k{id} {late}": ["1"],
}


@pytest.mark.parametrize("many", [0, 6_000])
@pytest.mark.parametrize("turned", [1, -1])
@pytest.mark.parametrize("template", list(MORE))
def test_each_value_keeps_its_type_and_text(template: str, turned: int, many: int) -> None:
    rows = [f'{{"id": {n}, "b": "{"x" * 500}"}}' for n in range(many)]
    found = values(lines(*rows, *DRIFTING[::turned]), template)
    expected = MORE[template][::turned]
    assert found[-len(expected) :] == expected
    assert len(found) - len(expected) in (0, many)


@pytest.mark.parametrize("form", ["jsonl", "several", "array"])
def test_all_fields_follow_the_row(tmp_path: Path, form: str) -> None:
    rows = [f'{{"id": {n}, "k{n % 7}": {n}.0}}' for n in range(100)]
    rows += ['{"id": 100, "new": "x", "k1": "text"}', '{"id": 101, "other": {"a": 1.10}}']
    source: Any = lines(*rows)
    if form == "array":
        source = io.BytesIO(f"[{','.join(rows)}]".encode())
    if form == "several":
        for n, row in enumerate(rows[-9:]):
            (tmp_path / f"{n}.jsonl").write_text(row)
        source, rows = tmp_path / "*.jsonl", rows[-9:]
    found = made(source, "HSET k:{id} {**!json}")
    for row, command in zip(rows, found, strict=True):
        fields = json.loads(row, parse_float=str, parse_int=str)
        number = fields.pop("id")
        expected = {k: v if isinstance(v, str) else '{"a":1.10}' for k, v in fields.items()}
        pairs = dict(zip(command[2::2], command[3::2], strict=True))
        assert command[1] == f"k:{number}".encode()
        assert pairs == {k.encode(): v.encode() for k, v in expected.items()}


def test_fields_of_objects_that_change() -> None:
    rows = ['{"a": {"x": 1.0}}', '{"a": {"y": 2}}', "{}", '{"a": {"x": "t", "z": [1]}}']
    assert values(lines(*rows), "SET k {a.x}") == ["1.0", "t"]
    assert values(lines('{"a": [1, "x"]}', '{"a": {"b": 2}}'), "RPUSH k {*a}") == ["x", "2"]
    with pytest.raises(fastresp.EncodeError, match=r"row 1.*JSON object or list.*\{v!json\}"):
        made(lines('{"v": 1}', '{"v": [1]}'), "SET k {v}")


@pytest.mark.parametrize(
    ("template", "wrong", "words"),
    [
        ("SET k {v.x}", '"text"', r"\{v.x\} needs an object, but v is a single value"),
        ("SET k {v.x!json}", "[]", r"\{v.x!json\} needs an object, but v is a list"),
        ("SET k {v.x}", '{"x": {"y": 1}}', r"\{v.x\} needs a single value.*write \{v.x!json\}"),
        ("SET k {v.x.y}", '{"x": 7}', r"\{v.x.y\} needs an object, but v.x is a single value"),
        ("RPUSH k {*v}", "true", r"\{\*v\} needs a list or an object, but its value is a single"),
        ("RPUSH k {*v}", "[[1]]", r"\{\*v\} needs items that are one argument.*one is a list"),
        ("RPUSH k {*v}", "[1, [2]]", r"all items of a list must have one kind: write \{name!json"),
        ("RPUSH k {*v.x}", '{"x": 1}', r"\{\*v.x\} needs a list or an object"),
        ("SET k {v!f32}", '"text"', r"\{v!f32\} needs a list of numbers, but its value is a sing"),
        ("SET k {v!f32}", '["1"]', r"\{v!f32\} needs a list of numbers, but an item in it is not"),
        ("SET k {v.x!f64}", '{"x": {}}', r"\{v.x!f64\} needs a list of numbers.* an object"),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_of_its_row(
    template: str, wrong: str, words: str
) -> None:
    """It is not an error of the template, since earlier rows are valid."""
    rows = ["{}", '{"v": null}', f'{{"v": {wrong}}}', "{}"]
    for before in (rows[:2], []):
        text = before + rows[2:]
        place = f"row {len(before)}, line {len(before) + 1}: "
        with pytest.raises(fastresp.SourceError, match=place + ".*" + words):
            made(lines(*text), template)
        with pytest.raises(fastresp.SourceError, match=f"row {len(before)}, line 1: .*{words}"):
            made(io.BytesIO(f"[{','.join(text)}]".encode()), template)
        source = fastresp.read(lines(*text), bad_rows="skip")
        fastresp.dump(source, template, io.BytesIO(), nulls="skip")
        assert isinstance(source, fastresp.Table)
        assert source.bad_rows == 1


def test_lists_and_vectors_that_are_null_or_empty_in_a_block() -> None:
    late = '{"v": [1.5, 2], "w": {"x": [18446744073709551616]}}'
    rows = ["{}", '{"v": null, "w": {}}', '{"v": [], "w": {"x": null}}', *MANY[:5_000], late]
    assert made(lines(*rows), "RPUSH k {*v}") == [[b"RPUSH", b"k", b"1.5", b"2"]]
    assert made(lines(*rows), "SET k {w.x!f32}") == [[b"SET", b"k", b"\0\0\x80_"]]


def test_a_key_that_no_row_has_is_an_error() -> None:
    with pytest.raises(fastresp.TemplateError, match=r"no column \{nmae\}"):
        made(lines('{"name": 1}'), "SET k {nmae}")
    with pytest.raises(fastresp.SourceError, match="no row has the key 'nmae'"):
        made(lines(*MANY), "SET k{a} {nmae}")


@pytest.mark.parametrize(
    "text",
    ["[1", "[1,]", "[,1]", '{"a"}', '{"a":1,}', '{1:2}', "[1}", '{"a" 1}', "[tru]", '["\\x"]',
     '["\\ud800"]', "[01]", '["a" "b"]', "[1]2", "trueish", "[nul]", '["\\u12"]'],
)  # fmt: skip
def test_invalid_nested_json(text: str) -> None:
    with pytest.raises(fastresp.SourceError, match=r"row 1, line 2: "):
        made(lines('{"v": 1}', f'{{"v": {text}}}'), "SET k {v!json}")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9),
    st.booleans())  # fmt: skip
def test_any_nested_value(value: Any, escaped: bool) -> None:
    text = json.dumps({"v": value}, ensure_ascii=escaped)
    found = values(lines(text), "SET k {v!json}")
    assert found == [json.dumps(value, ensure_ascii=False, separators=(",", ":"))]


def number(value: Decimal) -> str:
    """Return a decimal as JSON text."""
    return format(value, "f") if value.is_finite() else "0"


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "ä", 'c"']),
            st.one_of(st.integers(), st.floats(), st.none(), st.decimals(allow_nan=False)),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_any_numbers(rows: list[dict[str, Any]]) -> None:
    texts = [
        {name: "null" if v is None else json.dumps(v) if not isinstance(v, Decimal) else number(v)
         for name, v in row.items()}
        for row in rows
    ]  # fmt: skip
    documents = [
        "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in row.items()) + "}"
        for row in texts
    ]
    found = made(lines(*documents), "RPUSH k {*!json}")
    assert [command[2].decode() for command in found] == documents
    names = {name for row in texts for name, text in row.items()}
    sent = made(lines(*documents), "HSET k x y {**}") if names else []
    kept = [
        row for row in texts if set(row.values()) - {"null"}
    ]  # {**} without fields makes no command
    assert len(sent) == len(kept)
    for row, command in zip(kept, sent, strict=True):
        pairs = dict(zip(command[4::2], command[5::2], strict=True))
        assert pairs == {
            name.encode(): text.encode() for name, text in row.items() if text != "null"
        }
