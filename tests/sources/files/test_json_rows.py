"""Random rows of JSON, compared with Python's json module; rows whose keys drift."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import hiredis
import pyarrow as pa
import pytest
from peak import PEAK

import fastresp
from fastresp.server.local_server import LocalServer
from fastresp.sources.files import json_lines
from fastresp.sources.files.json_rows import strings_of
from fastresp.sources.files.json_split import Split

NAMES = ["a", "b", "long name", "ä", "€", "😀", 'q"', "b\\", "", "n\n", "\x01", "/", "k" * 40]
TEXTS = [
    "", "x", "007", "1.10", "-0", "true", "null", "{}", "ÿ", "é\n\t\r\b\f", "\x00\x1f\x7f", '"\\/',
    "😀" * 3, "2024-01-01", "2024-01-01 00:00:00", "\u2028", "\ud7ff\ue000", "x" * 300,
]  # fmt: skip
NUMBERS = ["0", "-0", "1.10", "1e5", "1E+5", "-1.5e-07", "9" * 30, "0.0", "123456789012345678.25"]
SEPARATORS = [(",", ":"), (", ", ": "), (" ,\t", " :\r")]


class Number(float):
    """A number that json.dumps() writes with its text."""

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def dumped(value: Any, **options: Any) -> str:
    """Return JSON that keeps the text of numbers."""
    if isinstance(value, Number):
        return value.text
    comma, colon = options.get("separators", (",", ":"))
    if isinstance(value, dict):
        pairs = (f"{dumped(k, **options)}{colon}{dumped(v, **options)}" for k, v in value.items())
        return "{" + comma.join(pairs) + "}"
    if isinstance(value, list):
        return "[" + comma.join(dumped(each, **options) for each in value) + "]"
    return json.dumps(value, **options)


def value_of(random: Random, depth: int = 0) -> Any:
    kind = random.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return random.choice([None, True, False])
    if kind == 1:
        return random.randrange(-(10**6), 10**6)
    if kind == 2:
        return Number(random.choice(NUMBERS))
    if kind < 5:
        return "".join(random.choices(TEXTS, k=random.randrange(3)))
    count = random.randrange(4)
    if kind == 5:
        return [value_of(random, depth + 1) for _ in range(count)]
    return {random.choice(NAMES): value_of(random, depth + 1) for _ in range(count)}


def sent(value: Any) -> bytes:
    """Return the argument for a value other than null."""
    if isinstance(value, bool):
        return b"%d" % value
    return (value if isinstance(value, str) else dumped(value, ensure_ascii=False)).encode()


def made(rows: Any, template: str, **options: Any) -> list[list[bytes]]:
    """Return the commands of a load of rows, or of JSON Lines if they are bytes."""
    file = io.BytesIO()
    source = fastresp.read(io.BytesIO(rows), format="jsonl") if isinstance(rows, bytes) else rows
    fastresp.dump(source, template, file, **options)
    reader = hiredis.Reader()
    reader.feed(file.getvalue())
    return list(iter(reader.gets, False))  # type: ignore[arg-type]


def written(random: Random, rows: list[dict[str, Any]]) -> bytes:
    """Return rows as lines, in different styles."""
    lines = []
    for row in rows:
        ascii_only, separators = random.random() < 0.5, random.choice(SEPARATORS)
        text = dumped(row, ensure_ascii=ascii_only, separators=separators)
        lines.append(random.choice(["", " ", "\n", "\t\r\n"]) + text + random.choice(["", "\r"]))
    return "\n".join(lines).encode("utf-8")


def checked(random: Random, rows: list[dict[str, Any]]) -> None:
    """Load rows in several ways, and compare each with Python's result."""
    text = written(random, rows)
    commands = made(text, "HSET k:{id} - - {**!json}")
    assert len(commands) == len(rows)
    for row, command in zip(rows, commands, strict=True):
        assert command[1] == sent(f"k:{row['id']}")
        assert list(zip(command[4::2], command[5::2], strict=True)) == [
            (name.encode(), sent(v)) for name, v in row.items() if name != "id" and v is not None
        ]
    commands = made(text, "SET k {*!json}")
    assert [json.loads(command[2]) for command in commands] == [
        json.loads(dumped(row)) for row in rows
    ]
    named = [name for name in ("a", "b", "ä") if any(name in row for row in rows)]
    for name in named:
        values = [row.get(name) for row in rows]
        commands = made(text, f"SET k {{{name}!json}}")
        assert [command[2].decode() for command in commands] == [
            dumped(value, ensure_ascii=False) for value in values
        ]
        objects = [{"id": number, name: {"x": v, "y": None}} for number, v in enumerate(values)]
        if not any(isinstance(value, (dict, list)) for value in values):
            commands = made(written(random, objects), f"SET {{id}} {{{name}.x}}", nulls="skip")
            assert [command[2] for command in commands] == [
                sent(value) for value in values if value is not None
            ]


@pytest.mark.parametrize("seed", range(25))
def test_random_rows(seed: int) -> None:
    random = Random(seed)
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    rows = [
        {"id": number, **{name: value_of(random) for name in random.sample(names, len(names) // 2)}}
        for number in range(random.choice([1, 5, 60]))
    ]
    for row in rows[:: random.randint(1, 3)]:
        items = list(row.items())
        random.shuffle(items)
        row.clear()
        row.update(items)
    checked(random, rows)


@pytest.mark.parametrize("columns", [50, 3_000])
def test_keys_drift(columns: int) -> None:
    random = Random(columns)
    rows = [
        {"id": n, **{f"k{(n * 5 + i) % columns}": value_of(random, 3) for i in range(5)}}
        for n in range(1_500)
    ]
    checked(random, rows)


def test_keys_drift_over_several_blocks() -> None:
    rows = [{"id": n, f"k{n // 3_000}": n, f"r{n % 50}": "x" * 100} for n in range(30_000)]  # 4 MB
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    commands = made(text, "HSET k:{id} {**}", nulls="skip")
    assert [dict(zip(c[2::2], c[3::2], strict=True)) for c in commands] == [
        {k.encode(): str(v).encode() for k, v in row.items() if k != "id"} for row in rows
    ]


@pytest.mark.parametrize("columns", [2, 1_000])
def test_missing_keys_are_not_nulls(server: LocalServer, columns: int) -> None:
    """They are neither counted, sent nor deleted, whatever keys other rows have, as in dicts."""
    rows = [{"id": n, f"k{n % columns}": n if n % 3 else None} for n in range(3_000)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for source in (rows, fastresp.read(io.BytesIO(text), format="jsonl")):
        report = fastresp.mass_insert(source, "HSET k:{id} {**}", server=server.url)
        assert (report.rows, report.commands, report.skipped) == (3_000, 2_000, 1_000)
        assert report.nulls_skipped == 0  # commands that would have had them are left out
        source = rows if source is rows else fastresp.read(io.BytesIO(text), format="jsonl")
        report = fastresp.mass_insert(source, "HSET k:{id} a b {**}", server=server.url)
        assert (report.commands, report.nulls_skipped) == (3_000, 1_000)
    for template in ("HSET k:{id} {**}", "HSET k:{id} a b {**!json}"):
        for nulls in ("skip", "empty", "delete"):
            assert made(text, template, nulls=nulls) == made(rows, template, nulls=nulls)
    with pytest.raises(fastresp.EncodeError, match=r"row 0.*, command 0, column 'k0'"):
        made(text, "HSET k:{id} {**}", nulls="error")
    full = [row for row in rows if None not in row.values()]
    text = "".join(json.dumps(row) + "\n" for row in full).encode()
    assert made(text, "HSET k:{id} {**}", nulls="error") == made(full, "HSET k:{id} {**}")


def test_positions_follow_the_first_occurrence_of_keys() -> None:
    text = b'{"a": 1, "b": 2, "c": 3}\n{"d": 4, "b": 5, "a": 6}\n'
    assert made(text, "HSET k{0} {**}; SET {1} {a}") == [
        [b"HSET", b"k1", b"b", b"2", b"c", b"3"],
        [b"SET", b"2", b"1"],
        [b"HSET", b"k6", b"d", b"4", b"b", b"5"],
        [b"SET", b"5", b"6"],
    ]


def test_only_columns_that_have_a_position_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each key would be a column: 1,000 columns of 1,000 rows took several batches."""
    columns = []

    def counted(split: Split, first: int, last: int, chosen: list[int]) -> Iterator[pa.Array]:
        columns.append(len(chosen))
        return strings_of(split, first, last, chosen)

    monkeypatch.setattr(json_lines, "strings_of", counted)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    paths[0].write_text('{"id": "a"}\n')
    paths[1].write_text("".join(f'{{"k{n}": {n}, "id": {n}, "z": 5}}\n' for n in range(1_000)))
    commands = made(fastresp.read(paths), "HSET k:{0} z {z} {**}; SET {1} x", nulls="skip")
    assert commands[:3] == [
        [b"HSET", b"k:0", b"z", b"5", b"k0", b"0"],
        [b"SET", b"0", b"x"],
        [b"HSET", b"k:1", b"z", b"5", b"k1", b"1"],
    ]
    assert len(commands) == 1_001
    assert sum(columns) < 10


@pytest.mark.parametrize("template", ["HSET k:{id} {*t}", "HSET k:{id} {*o.t} a {a}"])
def test_missing_keys_within_an_object_are_not_nulls(server: LocalServer, template: str) -> None:
    objects = [{f"k{n % 700}": n if n % 3 else None, "é\n": "x"} for n in range(1_000)]
    objects += [["f", "v"], None, {}]
    rows = [{"id": n, "t": t, "o": {"t": t}, "a": "1"} for n, t in enumerate(objects)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for source in (rows, fastresp.read(io.BytesIO(text), format="jsonl")):
        report = fastresp.mass_insert(source, template, server=server.url, nulls="skip")
        assert report.nulls_skipped == 334
    for nulls in ("skip", "empty"):
        assert made(text, template, nulls=nulls) == made(rows, template, nulls=nulls)
    text = b"\n".join(text.replace(b"null", b"7").splitlines()[:1_000])
    rows = [json.loads(line) for line in text.splitlines()]
    assert made(text, template, nulls="error") == made(rows, template, nulls="error")
    shared = b'{"t": {"a": 1}}\n{"t": {"a": 2, "b": 3}}\n'
    assert made(shared, "HSET k:{t.a} {*t}") == [
        [b"HSET", b"k:1", b"a", b"1"],
        [b"HSET", b"k:2", b"a", b"2", b"b", b"3"],
    ]


@pytest.mark.parametrize(
    ("late", "sent"),
    [
        ('{"a": "[x{"}', [b"a", b"[x{"]),
        ('["a", "[x"]', [b"a", b"[x"]),
        ('{"a": {"b": 1}}', None),
        ('{"a": ["b"]}', None),
    ],
)
def test_memory_of_objects_whose_keys_drift(late: str, sent: list[bytes] | None) -> None:
    """A brace in a text, or one row of another kind, doesn't create a column for each key."""
    text = "".join(f'{{"id": {n}, "t": {{"k{n}": {n}}}}}\n' for n in range(1_000))
    text += f'{{"id": 1000, "t": {late}}}\n'
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        source = fastresp.read(io.BytesIO(text.encode()), format="jsonl", bad_rows="skip")
        commands = made(source, "HSET k:{id} {*t}")
    finally:
        pa.set_memory_pool(before)
    assert commands[999] == [b"HSET", b"k:999", b"k999", b"999"]
    assert [command[2:] for command in commands[1_000:]] == ([] if sent is None else [sent])
    assert pool.max_memory() < 1 << 20  # 1,000 columns of 1,000 rows have 4 MiB


MEMORY = (
    PEAK
    + """
import io, os, sys
import fastresp

count = int(sys.argv[1])
rows = b"".join(b'{"id": %d, "key-%d": "value-%d"}\\n' % (n, n, n) for n in range(count))
rows += b'{"id": 0%b}\\n' % b"".join(b', "field-%d": "value-%d"' % (n, n) for n in range(2 * count))
rows += b'nonsense\\n{"id": 0, "a": 1}\\n' * count
with open(os.devnull, "wb") as file:
    source = fastresp.read(io.BytesIO(rows), bad_rows="skip")
    commands = fastresp.dump(source, "HSET k:{id} {**}", file)
assert source.bad_rows == count
print(commands, peak())
"""
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_memory_of_rows_with_new_or_many_keys_and_of_bad_rows() -> None:
    command = [sys.executable, "-c", MEMORY, "80000"]
    found = subprocess.run(command, capture_output=True, check=True, env=dict(os.environ))
    commands, kilobytes = map(int, found.stdout.split())
    assert commands == 160_001
    assert kilobytes < 256 << 10


# Rows that are wrong.


class Pairs(list[Any]):
    """The pairs of an object."""


def is_row(text: str, compared: set[str] | None) -> bool:
    """Return whether Python reads a text as an object of valid characters.

    Args:
        compared: keys that must not be duplicated, at any depth; None for all.
    """
    try:
        pairs = json.loads(text, object_pairs_hook=Pairs)
        json.dumps(pairs, ensure_ascii=False).encode()
    except ValueError:
        return False
    if not isinstance(pairs, Pairs):
        return False
    return not has_twice(Pairs(pair for pair in pairs if compared is None or pair[0] in compared))


def has_twice(value: Any) -> bool:
    """Return whether an object in a value has a duplicate key."""
    if isinstance(value, Pairs):
        names = [name for name, _ in value]
        return len(names) > len(set(names)) or any(has_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(map(has_twice, value))


def replaced(random: Random, text: str) -> str:
    at, end = sorted(random.randrange(len(text) + 1) for _ in range(2))
    extra = random.choice([*list('{}[]",:\\ \t0-1.eEtfnulu/x\x01\x7f\x00'), "\\u", "\\ud800", "ä"])
    changes: list[Callable[[], str]] = [
        lambda: text[:at] + extra + text[at:],
        lambda: text[:at] + extra + text[at + 1 :],
        lambda: text[:at] + text[at + 1 :],
        lambda: text[:end],
        lambda: text[:at] + text[at:end] + text[at:],
    ]
    return random.choice(changes)()


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("template", "compared"),
    [("SET k {a!json}", {"a"}), ("HSET k - - {**!json}", None), ("SET k {*!json}", None)],
)
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_python_refuses_are_refused(
    template: str, compared: set[str] | None, seed: int
) -> None:
    random = Random(seed)
    refused = 0
    for _ in range(150):
        row = {name: value_of(random, random.randrange(4)) for name in random.sample(NAMES, 3)}
        text = replaced(random, dumped({"a": 1, **row}, ensure_ascii=random.random() < 0.5))
        if not text.strip() or "-N" in text:  # -NaN
            continue
        lines = f'{{"a": 1}}\n\n{text}\n{{"a": 2}}\n'.encode()
        if is_row(text, compared):
            made(lines, template)
        else:
            refused += 1
            with pytest.raises(fastresp.SourceError, match="row 1, line 3"):
                made(lines, template)
    assert refused > 30


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"a":1,"a":2}', "the key 'a' is duplicated in an object; remove one"),
        ('{"a":1,"\\u0061":2}', "the key 'a' is duplicated in an object; remove one"),
        ('{"b":[{"é":{}},{"\\u00e9":1,"é":[]}]}', "the key 'é' is duplicated in an object; remove"),
        ('{"a":"\\ud800"}', "The surrogate pair in string is invalid; fix it: each line must"),
        ('{"a":"x\x01"}', "Invalid encoding in string; fix it: each line must be one JSON object"),
        ('{"a":"x\\q"}', "Invalid escape character in string; fix it: each line must be one"),
        ('{"b":1,,"a":1}', "Missing a name for object member; fix it: each line must be one"),
        ('{"b":"x", "a" 1}', "Missing a colon after a name of object member; fix it: each line"),
        ('{"b":"x""a":1}', "Missing a comma or '}' after an object member; fix it: each line"),
        ('{"b":1 "a":1}', "a number is not valid JSON, or no comma or bracket follows it; fix it"),
        ('{"b":nulx}', "Invalid value; fix it: each line must be one JSON object"),
        ('{"b":trux}', "an object, a list or a literal is not valid JSON; fix it"),
        ('{"b":[1,]}', "an object, a list or a literal is not valid JSON; fix it"),
        ('{"b":[1', "the line ends inside its JSON object; fix it: each line must be one JSON"),
        ('{"b":1} x', "extra text after the JSON object; fix it: each line must be one JSON"),
        ("[1]", "not a JSON object; fix it: each row, a line or an element of the array, must"),
    ],
)
def test_words_for_what_is_wrong(line: str, words: str) -> None:
    rows = "".join(f'{{"a": {n}, "k{n % 7}": "x"}}\n' for n in range(1_000))
    with pytest.raises(fastresp.SourceError) as caught:
        made(f"{rows}\n{line}\n{rows}".encode(), "HSET k - - {**}")
    assert f"row 1,000, line 1,002: {words}" in str(caught.value)


def test_a_key_may_be_written_with_escapes() -> None:
    text = b'{"a": 1}\n{"\\u0061": 2}\n{"\\u0061\\u0062": 3}\n'
    commands = made(text, "SET {a} {ab}", nulls="empty")
    assert commands == [[b"SET", b"1", b""], [b"SET", b"2", b""], [b"SET", b"", b"3"]]


def test_items_of_lists_that_begin_with_null() -> None:
    text = b'{"a": [null, null, "x", 1.0], "b": {"c": [null, 2]}}\n{}\n{"a": [null, "y"]}\n'
    assert made(text, "RPUSH k {*a}", nulls="skip") == [
        [b"RPUSH", b"k", b"x", b"1.0"],
        [b"RPUSH", b"k", b"y"],
    ]
    assert made(text, "SET k {b.c!json}") == [
        [b"SET", b"k", b"[null,2]"],
        [b"SET", b"k", b"null"],
        [b"SET", b"k", b"null"],
    ]


def test_rows_without_keys_at_the_beginning() -> None:
    text = b"{}\n{}\n{}\n[]\n" + b'{"a": 1}\n'
    file = io.BytesIO()
    source = fastresp.read(io.BytesIO(text), format="jsonl", bad_rows="skip")
    assert fastresp.dump(source, "HSET k {**}", file) == 1
    assert source.bad_rows == 1
    assert made(b"{}\n" * 800_000 + text.replace(b"[]\n", b""), "HSET k {**}") == [
        [b"HSET", b"k", b"a", b"1"]
    ]
    wide = "".join(json.dumps({f"k{n}-{i}": n for i in range(300)}) + "\n{}\n" for n in range(900))
    assert len(made(wide.encode() + b'{"a": {}}', "SET k {a!json}")) == 1_801
    with pytest.raises(fastresp.EncodeError, match=r"row 1,800.*, command 900, column 'a'"):
        made(wide.encode() + b'{"a": {}}', "HSET k {**}")
