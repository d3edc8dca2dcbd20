"""ColumnWriter: large values that are not copied, growing memory, many columns, few rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from columns import Array, Counted, Stream, as_rows, dumped, outcome, written
from peak import PEAK

import fastresp
from fastresp import EncodeError, Template, pack, pack_many
from fastresp.encode.columns.arrow import ArrowStream
from fastresp.encode.columns.column_writer import ColumnWriter

MIB = 1 << 20
BIG = "x" * MIB
BIGGER = "ä" * (2 * MIB)


def writer_of(data: Any, template: str, **options: Any) -> tuple[ColumnWriter, ArrowStream]:
    stream = ArrowStream(data)
    return ColumnWriter(Template(template), stream, **options), stream


LARGE = {
    "string": pa.array(["a", BIG, None, BIGGER, "", BIG]),
    "large_string": pa.array(["a", BIG, None, BIGGER, "", BIG], pa.large_string()),
    "view": pa.array(["a", BIG, None, BIGGER, "", BIG], pa.string_view()),
    "binary": pa.array([b"a", b"\0" * MIB, None, b"\xff" * 3 * MIB, b"", b"\r\n" * MIB]),
    "fixed": pa.array([b"a" * MIB, None, b"b" * MIB], pa.binary(MIB)),
    "dictionary": pa.array(["a", BIG, None, BIG, "", BIG]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 3, 6], pa.int32()), pa.array(["a", BIG, None])
    ),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
@pytest.mark.parametrize("name", LARGE)
def test_large_values(name: str, nulls: str) -> None:
    """Values of 1 MiB and more: alone, several in a command, and in rolled-back commands."""
    values = LARGE[name]
    n = len(values)
    table = pa.table({"id": range(n), "v": values, "w": pa.array([BIG, None] * n).slice(0, n)})
    for template in (
        "SET {id} {v}", "HSET {id} a {v} b {w} c {v}", "HSET {id} {**}", "HSET {w} {**}; SET k {v}",
        "SET {v}:{w} {id}; SET {v} {w}", "{w} {v}",
    ):  # fmt: skip
        for data in (table, table[1:]):
            assert outcome(data, template, nulls) == outcome(as_rows(data), template, nulls)
            assert written(data, template, nulls, chunk_bytes=64) == written(
                as_rows(data), template, nulls
            )


@pytest.mark.slow
@pytest.mark.parametrize("nulls", ["error", "skip", "empty"])
@pytest.mark.parametrize("count", [1, 9, 99])
def test_large_items(nulls: str, count: int) -> None:
    """If the argument count has more digits than guessed, the whole command is moved."""
    items = [BIG, "a", None, BIG] + ["b"] * count
    lists = pa.array([["x"], items, ["y"], [None], [BIG, BIG], None, items[:2]])
    maps = pa.array(
        [[("a", "x")], [(BIG, item) for item in items], [("k", None)], None],
        pa.map_(pa.string(), pa.string()),
    )
    table = pa.table({"v": lists})
    for template in ("{*v}", "SADD k {*v}", "SADD {*v} {*v}", "SADD {*v}; DEL k"):
        assert outcome(table, template, nulls) == outcome(as_rows(table), template, nulls)
    for template in ("HSET k {*v}", "HSET {*v}; PING"):
        table = pa.table({"v": maps[:1]})
        assert outcome(table, template, nulls) == outcome(as_rows(table), template, nulls)
    expected = pack("HSET", *[part for item in items for part in (BIG, item or "")])
    assert written(pa.table({"v": maps[1:2]}), "HSET {*v}", "empty") == expected


def test_large_values_are_not_copied() -> None:
    """Large values outlive the stream and the batch, and are released with their chunk."""
    before = pa.total_allocated_bytes()
    batches = [pa.record_batch({"v": pa.array(["a", "x" * 8 * MIB])}) for _ in range(3)]
    source = Counted(batches)
    addresses = {batch["v"].buffers()[2].address + 1 for batch in batches}
    del batches
    writer, stream = writer_of(source, "SET k {v}")
    chunks = list(writer.chunks(stream))
    stream.release_columns()
    assert source.given - source.released == 3
    payloads = [piece for chunk in chunks for piece in chunk.pieces() if len(piece) == 8 * MIB]
    assert {pa.py_buffer(piece).address for piece in payloads} == addresses
    assert all(set(piece[:: 1 << 16]) == {ord("x")} for piece in payloads)
    del payloads
    source.batches.clear()
    while chunks:
        assert source.given - source.released == len(chunks)
        chunks.pop()
    assert source.released == 3
    assert pa.total_allocated_bytes() - before < MIB


@pytest.mark.slow
def test_large_vectors() -> None:
    singles = pa.array([i / 8 for i in range(2 * MIB)], pa.float32())
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(singles, MIB)})
    data = singles.buffers()[1].to_pybytes()
    half = len(data) // 2
    assert dumped(table, "SET k {v!f32}") == pack_many(
        [("SET", "k", data[:half]), ("SET", "k", data[half:])]
    )
    assert written(table, "SET k {v!f64}", chunk_bytes=64) == written(
        as_rows(table, {"v": "vector"}), "SET k {v!f64}"
    )


def test_huge_json() -> None:
    table = pa.table({"v": [[BIGGER, '"' * MIB, "\x01" * MIB], None]})
    assert dumped(table, "SET k {v!json}") == dumped(as_rows(table), "SET k {v!json}")
    assert dumped(table, "SET k {*!json}") == dumped(as_rows(table), "SET k {*!json}")


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk_bytes", [1, 64, 1000, 70_000])
def test_small_chunks(chunk_bytes: int) -> None:
    """Memory may grow at any point of a command."""
    n = 3000
    words = [None if i % 7 == 3 else "w" * (i * 37 % 6000) for i in range(n)]
    table = pa.table(
        {
            "id": range(n),
            "word": words,
            "tags": [[str(k) * (i % 50) for k in range(i % 40)] for i in range(n)],
            "time": pa.array(range(n), pa.timestamp("ns", "Europe/Berlin")),
        }
    )
    rows = [row | {"time": row["time"].isoformat()} for row in as_rows(table)]
    for template in (
        "HSET {id} {**} {*tags}", "SADD {id}:{word}:{time} {*tags}; SET {word} {time}",
        "SET k {word!json}", "{word} {id} {time}", "HSET {id} a {word} b {time}",
    ):  # fmt: skip
        for nulls in ("skip", "empty"):
            whole = written(rows, template, nulls)
            assert written(table, template, nulls, chunk_bytes=chunk_bytes) == whole
        chunked = pa.Table.from_batches(table.to_batches(max_chunksize=113))
        assert written(chunked, template, "skip", chunk_bytes=chunk_bytes) == written(
            rows, template, "skip"
        )


@pytest.mark.slow
@pytest.mark.parametrize("count", [255, 1000, 5000])
def test_many_columns(count: int) -> None:
    table = pa.table({f"column {i}": pa.array([i, None, -i]) for i in range(count)})
    for nulls in ("error", "skip", "empty"):
        for template in ("HSET k {**}", "SET k {*!json}", "SET {7}:{8} {9}"):
            rows = as_rows(table)
            found = outcome(table, template, nulls)
            assert found == outcome(
                rows, template.replace("{", "{column ") if "7" in template else template, nulls
            )


def test_many_commands() -> None:
    table = pa.table({"id": range(5)})
    template = "; ".join(["SET {id} 1"] * 2000)
    expected = pack_many(("SET", i, 1) for i in range(5) for _ in range(2000))
    assert written(table, template, chunk_bytes=64) == expected
    assert dumped(table, template) == expected


def test_many_parts() -> None:
    table = pa.table({"a": ["x" * 4000], "b": [BIG]})
    template = "SET " + "{a}" * 300 + "{b} 1"
    assert dumped(table, template) == pack("SET", "x" * 4000 * 300 + BIG, 1)


def test_few_rows() -> None:
    batch = pa.record_batch({"a": pa.array([1], pa.int8())})
    batches = [batch[:0], batch, batch[:0], batch[:0], batch, batch[1:]] * 50
    for data in (pa.Table.from_batches(batches), Counted(batches)):
        writer, stream = writer_of(data, "SET {a} 1; PING")
        assert (
            b"".join(map(bytes, writer.chunks(stream))) == (pack("SET", 1, 1) + pack("PING")) * 100
        )
        assert (writer.rows, writer.commands) == (100, 200)
        assert writer.take() is None
        assert not writer.fill(stream)
    assert dumped(Counted([batch[:0]]), "SET {a} 1") == b""
    assert dumped(pa.Table.from_batches([], batch.schema), "SET {a} 1") == b""


def test_places_of_commands() -> None:
    """Each command has the right end and row, across chunks and skipped rows."""
    table = pa.table(
        {"a": [i if i % 3 else None for i in range(100)], "b": ["y" * i for i in range(100)]}
    )
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=7))
    writer, stream = writer_of(chunked, "SET {a} {b}; DEL {b}", nulls="skip", chunk_bytes=200)
    rows, commands = [], []
    for chunk in writer.chunks(stream):
        assert chunk.first_command == len(commands)
        start = 0
        for end in chunk.ends:
            commands.append(bytes(chunk)[start:end])
            start = end
        rows += chunk.rows
    expected = [
        (i, command)
        for i in range(100)
        for command in ([pack("SET", i, "y" * i)] if i % 3 else []) + [pack("DEL", "y" * i)]
    ]
    assert list(zip(rows, commands, strict=True)) == expected
    assert (writer.rows, writer.commands) == (100, len(expected))


@pytest.mark.parametrize(
    ("template", "argument"),
    [
        ("SET {i} {v}", 2), ("SET a{v} 1", 1), ("SADD k {*l}", 3), ("SET k {v!json}", 2),
        ("HSET k {**} {*l}", 5), ("HSET {*m} 1", 2), ("HSET {*k} 1", 1),
        ("SET k {i}{i}{i}{i}{i}{i}{i}{i}", 2), ("SET k {f!f64}", 2),
    ],
)  # fmt: skip
def test_argument_larger_than_the_server_accepts(template: str, argument: int) -> None:
    """Only the size of an argument decides, whether the argument is copied or not."""
    for size in (100, 5000, 2 * MIB):
        table = pa.table(
            {
                "i": [1, 2, 10 ** (size // 8) if size == 100 else 3],
                "v": ["a", None, "v" * size],
                "l": [["a"], None, ["b", "l" * size]],
                "m": pa.array([None, None, [("k", "m" * size)]], pa.map_("string", "string")),
                "k": pa.array([None, None, [("k" * size, "")]], pa.map_("string", "string")),
                "f": pa.array([[0.0], None, [0.5]])
                if size > 100
                else pa.array([None, None, [0.5] * 13]),
            }
        )
        if ("{i}{i}" in template or "!f64" in template) and size > 100:
            continue
        data = table.select([name for name in "ivlmkf" if f"{name}" in template])
        if "{**}" in template:
            data = table.select(["i", "v", "l"])
        writer, stream = writer_of(data, template, nulls="skip")
        writer.max_bulk_bytes = size - 1
        assert writer.max_bulk_bytes == size - 1
        with pytest.raises(EncodeError, match="bytes that the server accepts") as caught:
            list(writer.chunks(stream))
        assert (caught.value.row, caught.value.argument) == (2, argument)
        writer, stream = writer_of(data, template, nulls="skip")
        writer.max_bulk_bytes = size + 4
        assert b"".join(map(bytes, writer.chunks(stream))) == dumped(data, template, nulls="skip")


def test_no_limit() -> None:
    writer, _ = writer_of(pa.table({"a": [1]}), "SET {a} 1")
    assert writer.max_bulk_bytes is None
    writer.max_bulk_bytes = 7
    writer.max_bulk_bytes = None
    assert writer.max_bulk_bytes is None


def test_commands_before_an_error() -> None:
    """Whole rows remain as whole commands, including after large values."""
    table = pa.table(
        {
            "a": [BIG, "b", BIG, "c"],
            "when": pa.array([0, 1, 2, 2**60], pa.int64()).cast(pa.timestamp("s")),
        }
    )
    rows = [
        ("1970-01-01T00:00:00", BIG),
        ("1970-01-01T00:00:01", "b"),
        ("1970-01-01T00:00:02", BIG),
    ]
    for chunk_bytes in (64, MIB, 100 * MIB):
        writer, stream = writer_of(table, "SET {a} 1; SET {when} {a}", chunk_bytes=chunk_bytes)
        out = bytearray()
        with pytest.raises(EncodeError) as caught:
            for chunk in writer.chunks(stream):
                out += chunk
        assert (caught.value.row, caught.value.command, caught.value.argument) == (3, 7, 1)
        assert (writer.rows, writer.commands) == (3, 6)
        out += writer.take() or b""
        assert out == pack_many(
            command for when, a in rows for command in (("SET", a, 1), ("SET", when, a))
        )


def test_source_that_uses_the_writer() -> None:
    def reenter(_: int) -> None:
        for method in (writer.take, lambda: writer.fill(stream)):
            with pytest.raises(RuntimeError, match="is encoding a row"):
                method()
        calls.append(1)

    calls: list[int] = []
    batch = pa.record_batch({"a": [1, 2]})
    writer, stream = writer_of(Counted([batch], on_batch=reenter), "PING {a}")
    assert len(list(writer.chunks(stream))) == 1
    assert calls == [1, 1]


def test_bad_options() -> None:
    with pytest.raises(ValueError, match=r"nulls must be 'auto', 'skip', .* not 'drop'"):
        fastresp.dump(pa.table({"a": [1]}), "PING {a}", "/dev/null", nulls="drop")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ArrowStream"):
        ColumnWriter(Template("PING"), [])  # type: ignore[arg-type]


def test_struct_without_fields() -> None:
    rows = pa.array([{}, {}, {}], pa.struct([]))
    assert dumped(Array(rows), "PING") == pack("PING") * 3
    assert dumped(Array(rows), "SET k {*!json}") == pack("SET", "k", "{}") * 3
    assert dumped(Array(rows), "HSET k {**}") == b""
    assert dumped(pa.table({"s": rows}), "HSET k {*s}") == b""


def test_dictionaries_of_runs_and_runs_of_dictionaries() -> None:
    """A dictionary whose values are run-end encoded has more values than runs."""
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([3, 7], pa.int16()), pa.array(["a", "b"]))
    coded = pa.DictionaryArray.from_arrays(pa.array([6, 0, None, 3], "int8"), encoded)
    assert dumped(Stream(pa.table({"v": coded})), "GET {v}", nulls="empty") == pack_many(
        ("GET", value) for value in ("b", "a", "", "b")
    )
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3], pa.int16()), pa.array([None, "x"]).dictionary_encode()
    )
    assert dumped(pa.table({"v": runs}), "GET {v}", nulls="skip") == pack("GET", "x")
    lists = pa.array([["a", "b"], None, ["c"]])
    for encoded in (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int16()), lists),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 2], "int8"), lists),
    ):
        table = pa.table({"v": encoded})
        for template in ("SADD k {*v}", "SET k {v!json}"):
            assert dumped(table, template, nulls="empty") == dumped(
                as_rows(table), template, nulls="empty"
            )


def test_index_outside_of_the_dictionary() -> None:
    for index in (-1, 2, 127):
        coded = pa.DictionaryArray.from_arrays(
            pa.array([0, index], "int8"), pa.array(["a", "b"]), safe=False
        )
        for template in ("GET {v}", "GET {v!json}", "GET a{v}", "HSET k {**}"):
            with pytest.raises(EncodeError, match=r"row 1, .*'v'.* points outside its dict"):
                dumped(pa.table({"v": coded}), template, nulls="skip")


def test_null_as_a_name() -> None:
    """Neither Arrow's maps nor JSON allow it."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1], "int8"), pa.array(["a", None]))
    maps = pa.MapArray.from_arrays([0, 1, 2], names, pa.array([1, 2]))
    for template, argument in (("HSET k {*v}", 2), ("SET k {v!json}", 2)):
        with pytest.raises(
            EncodeError, match=r"row 1, .*'v'.*: the field of a field-value pair is null"
        ) as caught:
            dumped(pa.table({"v": maps}), template, nulls="skip")
        assert caught.value.argument == argument


MEMORY_CODE = (
    PEAK
    + """
import sys
import pyarrow as pa, fastresp
batch = pa.record_batch({"id": range(10_000), "v": ["x" * 100] * 10_000})
def load(count):
    reader = pa.RecordBatchReader.from_batches(batch.schema, (
        pa.record_batch({"id": range(10_000), "v": ["x" * 100] * 10_000}) for _ in range(count)))
    fastresp.dump(reader, "HSET user:{id} {**}", "/dev/null")
load(5)
before = peak()
load(200)
print(peak() - before)
"""
)


@pytest.mark.slow
def test_batches_in_bounded_memory() -> None:
    """200 batches of 1 MiB each need at most 16 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CODE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 16 * MIB
