"""Columns with wrong offsets, indices or lengths: an error with row and column, no other bytes.

The arrays are made from buffers, without validation, and passed through the PyCapsule protocol, as
any library could.
"""

from __future__ import annotations

import ctypes as c
import io
import re
from typing import Any

import pyarrow as pa
import pytest
from columns import Array, CArray, CSchema, pointer_in, written
from raw_arrays import Raw, frame, int32, int64, strings, view

import fastresp
from fastresp import EncodeError, SourceError, TemplateError
from fastresp.lists import ListBuffer
from fastresp.resp.split import CommandSplitter
from fastresp.server.local_server import LocalServer

INJECTED = b"\r\n*1\r\n$8\r\nFLUSHALL\r\n"
TEXT = b"x" * 150 + INJECTED * 10
INTS = Raw("l", 10, None, int64(*range(10)))
WORDS = strings(*range(11), data=b"0123456789")
BACKWARDS = strings(0, 3, 2, 5, data=TEXT)


def views(*each: bytes, kind: str = "vu", data: bytes = TEXT) -> Raw:
    return Raw(kind, len(each), None, b"".join(each), data, int64(len(data)))


def listed(kind: str, *offsets: int, values: Raw = INTS) -> Raw:
    pack = int64 if kind == "+L" else int32
    return Raw(kind, len(offsets) - 1, None, pack(*offsets), children=[values])


def list_views(kind: str, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Raw:
    pack = int64 if kind == "+vL" else int32
    return Raw(kind, len(starts), None, pack(*starts), pack(*sizes), children=[INTS])


def dictionary(*indices: int, values: Raw = WORDS) -> Raw:
    return Raw("i", len(indices), None, int32(*indices), dictionary=values)


def runs(*ends: int, length: int, values: Raw = WORDS) -> Raw:
    return Raw("+r", length, children=[Raw("i", len(ends), None, int32(*ends)), values])


# Each array, and its first row that can't be sent.
ONE: dict[str, tuple[Raw, int]] = {
    "string": (BACKWARDS, 1),
    "string, below 0": (strings(-8, 2, 4, data=TEXT), 0),
    "string, above and back": (strings(0, 200, 140, 250, data=TEXT), 1),
    "string, no memory": (strings(0, 0, 0, 9, data=None), 2),
    "large_string": (strings(0, 3, 2, 5, kind="U", data=TEXT), 1),
    "large_string, below 0": (strings(-1, 3, 5, kind="U", data=TEXT), 0),
    "large_string, a huge one": (strings(0, 2, 2**62, 5, kind="U", data=TEXT), 1),
    "large_string, far apart": (strings(0, 2**63 - 1, -(2**63), kind="U", data=TEXT), 0),
    "view, below 0": (views(view(3), view(-5)), 1),
    "view, too long": (views(view(20), view(len(TEXT) + 1)), 1),
    "view, starts too late": (views(view(20), view(20, 0, len(TEXT) - 19)), 1),
    "view, starts below 0": (views(view(20, 0, -4)), 0),
    "view, no such buffer": (views(view(20), view(20, 1)), 1),
    "view, buffer below 0": (views(view(20, -1)), 0),
    "view, no buffers": (Raw("vu", 2, None, view(4) + view(20), None), 1),
    "dictionary": (dictionary(9, 10, 0), 1),
    "dictionary, below 0": (dictionary(0, 1, -1), 2),
    "dictionary of damaged values": (dictionary(0, 1, values=BACKWARDS), 1),
    "runs that end too early": (runs(2, 4, length=6), 4),
    "runs that fall": (runs(2, 1, 6, length=6), 2),
    "runs from 0": (runs(0, 1, length=1), 0),
    "more runs than values": (runs(2, 4, length=4, values=strings(0, 1, data=b"a")), 2),
    "runs of damaged values": (runs(2, 4, length=4, values=BACKWARDS), 2),
    "numbers without memory": (Raw("l", 3, None, None), 0),
}
PAIRS = Raw("+s", 10, None, children=[WORDS.named("key"), WORDS.named("value")])
MANY: dict[str, tuple[Raw, int]] = {
    "list": (listed("+l", 0, 5, 3, 7), 1),
    "list, below 0": (listed("+l", -3, 5, 7), 0),
    "list, beyond its items": (listed("+l", 0, 5, 11), 1),
    "list of damaged items": (listed("+l", 0, 1, 2, 3, values=BACKWARDS), 1),
    "list without memory": (Raw("+l", 2, None, None, children=[INTS]), 0),
    "large_list": (listed("+L", 0, 2, 5, 3), 1),
    "large_list, beyond": (listed("+L", 0, 2**40), 0),
    "list_view": (list_views("+vl", (0, 8), (5, 3)), 1),
    "list_view, below 0": (list_views("+vl", (0, -1), (5, 3)), 1),
    "list_view, size below 0": (list_views("+vl", (0, 5), (5, -3)), 1),
    "list_view, a huge one": (list_views("+vl", (0, 2**31 - 1), (5, 2**31 - 1)), 1),
    "large_list_view": (list_views("+vL", (0, 8), (5, 3)), 1),
    "large_list_view, a huge one": (list_views("+vL", (0, 2**63 - 1), (5, 2**63 - 1)), 1),
    "fixed": (Raw("+w:4", 3, None, children=[INTS]), 2),
    "map": (listed("+m", 0, 2, 4, 3, values=PAIRS), 1),
    "map, beyond its pairs": (listed("+m", 0, 4, 11, values=PAIRS), 1),
    "struct": (Raw("+s", 12, None, children=[INTS.named("f")]), 10),
    "struct of damaged values": (Raw("+s", 3, None, children=[BACKWARDS.named("f")]), 1),
    "dictionary of damaged lists": (dictionary(0, 1, values=listed("+l", 0, 5, 11)), 1),
}


def outcome(data: Any, template: str) -> tuple[int, EncodeError]:
    """Return the number of commands written before the error, and the error."""
    with pytest.raises(EncodeError) as caught:
        fastresp.dump(data, template, io.BytesIO())
    before = written(data, template)
    splitter = CommandSplitter(count_names=True)
    if before:
        splitter.feed(before)
    assert splitter.pending == 0 and set(splitter.names) <= {template.split()[0]}
    return splitter.commands, caught.value


def refused(array: Raw, row: int, template: str) -> None:
    """Check that all rows before this one are written, then the error is raised."""
    ids = Raw("l", array.length, None, int64(*range(array.length)))
    commands, error = outcome(frame(array.length, id=ids, value=array), template)
    assert (commands, error.row) == (row, row)
    assert "damaged" in str(error) and re.match(rf"row {row}( \(id={row}\))?, ", str(error))
    assert "column 'value'" in str(error)
    if row > 0:  # including batches that begin inside their arrays
        commands, error = outcome(frame(array.length - 1, 1, id=ids, value=array), template)
        assert (commands, error.row) == (row - 1, row - 1)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize(
    "template", ["SET {id} {value}", "SET user:{value} {id}", "HSET {id} {**}"]
)
def test_damaged_value(name: str, template: str) -> None:
    refused(*ONE[name], template)


@pytest.mark.parametrize("name", ONE | MANY)
@pytest.mark.parametrize("template", ["SET {id} {value!json}", "SET {id} {*!json}"])
def test_damaged_json(name: str, template: str) -> None:
    refused(*(ONE | MANY)[name], template)


@pytest.mark.parametrize("name", MANY)
def test_damaged_items(name: str) -> None:
    refused(*MANY[name], "RPUSH {id} {*value}")


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("form", ["f32", "f64"])
def test_damaged_vector(name: str, form: str) -> None:
    array, _ = MANY[name]
    if "struct" in name or "map" in name or "dictionary" in name or "items" in name.split():
        return
    # The first vector may be valid, and the second have another length.
    with pytest.raises(EncodeError, match=r"damaged|length differs"):
        fastresp.dump(frame(array.length, v=array), f"SET k {{v!{form}}}", io.BytesIO())


def test_rows_before_the_damage_are_sent(server: LocalServer) -> None:
    """Rows before the error are sent, answered and counted."""
    count = 100_000
    offsets = [*range(count + 1)]
    offsets[70_000] = 10
    ids = Raw("i", count, None, int32(*range(count)))
    data = frame(count, id=ids, value=strings(*offsets, data=b"v" * count))
    with pytest.raises(EncodeError) as caught:
        fastresp.mass_insert(data, "SET {id} {value}", server=server.url)
    assert caught.value.row == 69_999
    report: Any = caught.value.report  # type: ignore[attr-defined]
    assert report.replies == 69_999


def test_damage_in_an_unused_column() -> None:
    """Damage ends the load: the other columns of the batch can't be trusted."""
    refused(BACKWARDS, 1, "SET {id} v")


@pytest.mark.parametrize(
    "array", [BACKWARDS, strings(0, -5, 5, kind="U", data=TEXT), views(view(20, 3))]
)
def test_damaged_items_pushed(server: LocalServer, array: Raw) -> None:
    with ListBuffer("list", server=server.url) as buffer:
        with pytest.raises(EncodeError, match="damaged"):
            buffer.push(array)
        assert len(buffer) == 0


def test_array_below_0_pushed(server: LocalServer) -> None:
    with ListBuffer("list", server=server.url) as buffer:
        for array in (Raw("u", -1, None, int32(0), b""), Raw("u", 1, None, None, offset=-1)):
            with pytest.raises(SourceError, match="negative length or offset"):
                buffer.push(array)


def test_single_column() -> None:
    commands, error = outcome(BACKWARDS, "SET {0} v")
    assert (commands, error.row) == (1, 1)


def test_data_of_nulls_may_be_invalid() -> None:
    """The data of a null is never read."""
    valid = b"\x05"
    kept = list_views("+vl", (0, 50, 2), (2, 7, 2))
    for array in (
        Raw("i", 3, valid, int32(0, 99, 1), dictionary=WORDS),
        Raw("vu", 3, valid, view(3) + view(20, 9) + view(4), None),
        Raw("+vl", 3, valid, *kept.buffers[1:], children=[INTS]),
    ):
        template = "RPUSH k {*a}" if array.children else "RPUSH k {a}"
        file = io.BytesIO()
        fastresp.dump(frame(3, a=array), template, file, nulls="skip")
        assert file.getvalue().count(b"RPUSH") == 2


class Changed:
    """An array whose C structs a function changes before they are exported."""

    def __init__(self, data: Any, change: Any) -> None:
        self.data, self.change = data, change

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        schema, array = self.data.__arrow_c_array__(requested_schema)
        self.change(
            CSchema.from_address(pointer_in(schema, b"arrow_schema")),
            CArray.from_address(pointer_in(array, b"arrow_array")),
        )
        return schema, array


def only(struct: Any) -> Any:
    """Return the C struct of the only column."""
    return type(struct).from_address(c.c_void_p.from_address(struct.children).value or 0)


def column(field: str, value: Any) -> Any:
    return lambda _, array: setattr(only(array), field, value)


SHAPES: dict[str, tuple[Raw, Any]] = {
    "offset below 0": (WORDS, column("offset", -1)),
    "length below 0": (WORDS, column("length", -1)),
    "an end beyond all numbers": (WORDS, column("offset", 2**63 - 5)),
    "too few buffers": (WORDS, column("n_buffers", 2)),
    "too few buffers of views": (views(view(3)), column("n_buffers", 2)),
    "no buffers": (INTS, column("buffers", None)),
    "too few children": (PAIRS, column("n_children", 1)),
    "no pointers to children": (PAIRS, column("children", None)),
    "no dictionary": (dictionary(0), column("dictionary", None)),
    "no columns": (INTS, lambda _, array: setattr(array, "n_children", 0)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_array_that_does_not_fit_its_schema(name: str) -> None:
    array, change = SHAPES[name]
    with pytest.raises(SourceError, match="does not match its type"):
        fastresp.dump(Changed(frame(1, a=array), change), "SET k {a!json}", io.BytesIO())


def test_shorter_column_than_the_batch() -> None:
    commands, error = outcome(frame(14, a=INTS), "SET {a} v")
    assert (commands, error.row) == (10, 10)


@pytest.mark.parametrize(
    "kind", ["d:1", "d:5,2,4096", "d:5,2,-8", "d:a,b", "ts", "tt", "tD?", "w:-4", "w:x", "?"]
)
def test_invalid_type(kind: str) -> None:
    data = frame(1, a=Raw(kind, 1, None, int64(1)))
    for template in ("SET k {a}", "SET k {a!json}"):
        with pytest.raises(TemplateError, match="column 'a'"):
            fastresp.dump(data, template, io.BytesIO())


@pytest.mark.parametrize("kind", ["+l", "+L", "+w:-4", "+w:x", "+w:2", "+m", "+vl", "+r"])
def test_nested_type_with_the_wrong_children(kind: str) -> None:
    array = Raw(kind, 1, None, int64(0, 0), int64(0, 0), children=PAIRS.children)
    for template in ("SADD k {*a}", "SET k {a!json}", "SET k {a!f32}"):
        with pytest.raises(TemplateError, match="column 'a'"):
            fastresp.dump(frame(1, a=array), template, io.BytesIO())


@pytest.mark.parametrize("name", ["arrow.uuid", "arrow.bool8", "arrow.json"])
def test_known_extension_with_the_wrong_storage(name: str) -> None:
    """A UUID has 16 bytes; with a storage of 4 bytes, 12 bytes beyond it would be read."""
    field = pa.field("a", pa.binary(4), metadata={"ARROW:extension:name": name})
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"abcd"], pa.binary(4))], schema=pa.schema([field])
    )
    with pytest.raises(TemplateError, match=f"column 'a' is of type {name}"):
        fastresp.dump(Array(batch), "SET k {a}", io.BytesIO())


def test_valid_columns_still_pass() -> None:
    """Offsets that don't start at 0, nulls, slices, arrays without memory."""
    words = pa.array(["a", None, "", "bcd"])
    for array in (
        words, words.slice(1), words.slice(3, 0), pa.array([], pa.string()), pa.array(["", ""]),
        pa.array([None, None]), pa.nulls(3, pa.list_(pa.string())), pa.nulls(3, pa.int64()),
        pa.array([b"", b""], pa.binary(0)), pa.array([b"0123456789abcdef"], pa.uuid()),
    ):  # fmt: skip
        file = io.BytesIO()
        template = "SADD k {*a}" if pa.types.is_nested(array.type) else "SADD k {a}"
        fastresp.dump(pa.table({"a": array}), template, file, nulls="empty")
        assert file.getvalue().count(b"SADD") == len(array)
    for raw in (strings(0, 0, data=None), Raw("w:0", 1, None, None), Raw("u", 0, None, None, None)):
        file = io.BytesIO()
        fastresp.dump(frame(raw.length, a=raw), "SADD k {a}", file)
        assert file.getvalue() == fastresp.pack("SADD", "k", "") * raw.length
