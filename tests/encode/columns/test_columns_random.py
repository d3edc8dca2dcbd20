"""Random tables of all types, nested, encoded, sliced, batched: the same RESP as their rows."""

from __future__ import annotations

import string
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from columns import as_rows, outcome, written
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import types

ZONES = [None, None, "UTC", "+05:30", "Europe/Berlin", "America/St_Johns"]
CHARACTERS = string.ascii_letters + '"\\\n\r\t\0\x1f ä€😀{}$*'
EXAMPLES = 1000


class Maker:
    """Make random arrays, tables and templates."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def maybe(self, share: float) -> bool:
        return self.random.random() < share

    def leaf(self) -> pa.DataType:
        choose = self.random.choice
        unit = choose(["s", "ms", "us", "ns"])
        return choose(
            [
                pa.null(), pa.bool_(),
                choose([pa.int8(), pa.int16(), pa.int32()]),
                choose([pa.uint8(), pa.uint16(), pa.uint32()]),
                pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
                pa.string(), pa.string(), pa.large_string(), pa.string_view(),
                pa.binary(), pa.large_binary(), pa.binary_view(),
                pa.binary(choose([0, 1, 5, 20])),
                pa.decimal32(9, 3), pa.decimal64(18, 0), pa.decimal128(20, 5), pa.decimal256(50, 9),
                pa.date32(), pa.date64(), pa.time32(choose(["s", "ms"])),
                pa.time64(choose(["us", "ns"])),
                pa.timestamp(unit, choose(ZONES)), pa.duration(unit),
            ]
        )  # fmt: skip

    def scalar(self) -> pa.DataType:
        kind = self.leaf()
        if self.maybe(0.2) and not types.is_null(kind):
            index = self.random.choice([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
            kind = pa.dictionary(index, kind)
        # pyarrow 26 crashes in to_pylist() of runs of dictionaries of halves.
        if self.maybe(0.15) and "halffloat, " not in str(kind):
            kind = pa.run_end_encoded(self.random.choice([pa.int16(), pa.int64()]), kind)
        return kind

    def nested(self, depth: int = 0) -> pa.DataType:
        if depth and (depth > 2 or self.maybe(0.6)):
            return self.scalar()
        inner = self.nested(depth + 1)
        return self.random.choice(
            [
                pa.list_(inner), pa.large_list(inner), pa.list_(inner, self.random.randrange(1, 4)),
                pa.list_view(inner), pa.large_list_view(inner),
                pa.struct([("a", inner), ('b"', self.nested(depth + 1))]),
                pa.map_(self.random.choice([pa.string(), pa.int32(), pa.large_string()]), inner),
            ]
        )  # fmt: skip

    def vector(self) -> pa.DataType:
        inner = self.random.choice([pa.float16(), pa.float32(), pa.float64(), pa.int16()])
        make = self.random.choice([pa.list_, pa.large_list, pa.list_view])
        return pa.list_(inner, 3) if self.maybe(0.5) else make(inner)

    def value(self, kind: pa.DataType) -> Any:
        below = self.random.randrange
        if types.is_boolean(kind):
            return self.maybe(0.5)
        if types.is_integer(kind):
            bits = below(1, kind.bit_width + 1)
            return below(1 << bits) - (0 if types.is_unsigned_integer(kind) else 1 << bits - 1)
        if types.is_floating(kind):
            if self.maybe(0.02):
                return self.random.choice([float("inf"), float("-inf"), float("nan"), -0.0])
            if self.maybe(0.3):
                return float(below(-100, 100))
            return self.random.uniform(-1, 1) * 10.0 ** below(-5, 5)
        if types.is_decimal(kind):
            size = below(1, kind.precision + 1)
            return Decimal(below(-(10**size) + 1, 10**size)).scaleb(-kind.scale)
        if types.is_date(kind):
            return date.fromordinal(below(1, 3652060))
        if types.is_time(kind):
            micros = below(10**6) if self.maybe(0.5) else 0
            micros -= micros % 1000 if types.is_time32(kind) else 0
            micros = 0 if kind.unit == "s" else micros
            return time(below(24), below(60), below(60), micros)
        if types.is_timestamp(kind):
            per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
            second = (
                below(-9 * 10**9, 9 * 10**9) if kind.unit == "ns" else below(-6 * 10**10, 10**11)
            )
            return second * per_second + (below(per_second) if self.maybe(0.5) else 0)
        if types.is_duration(kind):
            return timedelta(below(-9999, 9999), below(86400), 0 if kind.unit == "s" else 5000)
        size = self.random.choice([0, 1, 3, 12, 13, 20, 300 if self.maybe(0.2) else 30])
        if types.is_fixed_size_binary(kind):
            return self.random.randbytes(kind.byte_width)
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
            return self.random.randbytes(size)
        return "".join(self.random.choices(CHARACTERS, k=size))

    def mask(self, n: int) -> pa.Array:
        share = self.nulls
        return pa.array([self.maybe(share) for _ in range(n)], pa.bool_())

    def array(self, kind: pa.DataType, n: int) -> pa.Array:
        """Return an array of this length, often a slice of a longer one."""
        before = self.random.choice([0, 0, 1, 7, 8, 13])
        whole = self.whole(kind, n + before + self.random.choice([0, 0, 3]))
        return whole.slice(before, n)

    def offsets(self, n: int) -> list[int]:
        offsets = [0]
        for _ in range(n):
            offsets.append(offsets[-1] + self.random.choice([0, 1, 1, 2, 5]))
        return offsets

    def whole(self, kind: pa.DataType, n: int) -> pa.Array:
        if types.is_null(kind):
            return pa.nulls(n)
        if types.is_dictionary(kind):
            size = self.random.randrange(1, 6)
            indices = [
                None if self.maybe(self.nulls) else self.random.randrange(size) for _ in range(n)
            ]
            return pa.DictionaryArray.from_arrays(
                pa.array(indices, kind.index_type), self.array(kind.value_type, size)
            )
        if types.is_run_end_encoded(kind):
            ends = [0]
            while ends[-1] < n:
                ends.append(ends[-1] + self.random.choice([1, 2, 3, 9]))
            return pa.RunEndEncodedArray.from_arrays(
                pa.array(ends[1:], kind.run_end_type), self.array(kind.value_type, len(ends) - 1)
            ).slice(0, n)
        if types.is_struct(kind):
            fields = [self.array(field.type, n) for field in kind]
            return pa.StructArray.from_arrays(fields, fields=list(kind), mask=self.mask(n))
        if types.is_map(kind):
            offsets = self.offsets(n)
            keys = [str(i) if types.is_unicode(kind.key_type) else i for i in range(offsets[-1])]
            if types.is_large_string(kind.key_type):
                keys = [f"name {i}" for i in keys]
            return pa.MapArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(keys, kind.key_type),
                self.array(kind.item_type, offsets[-1]), mask=self.mask(n),
            )  # fmt: skip
        if types.is_fixed_size_list(kind):
            items = self.array(kind.value_type, n * kind.list_size)
            return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=self.mask(n))
        if types.is_nested(kind):
            return self.lists(kind, n)
        values = [None if self.maybe(self.nulls) else self.value(kind) for _ in range(n)]
        if types.is_timestamp(kind):
            return pa.array(values, pa.int64()).cast(kind)
        return pa.array(values, kind)

    def lists(self, kind: pa.DataType, n: int) -> pa.Array:
        offsets = self.offsets(n)
        items = self.array(kind.value_type, offsets[-1])
        if types.is_list(kind):
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=self.mask(n))
        if types.is_large_list(kind):
            return pa.LargeListArray.from_arrays(
                pa.array(offsets, pa.int64()), items, mask=self.mask(n)
            )
        width = pa.int32() if types.is_list_view(kind) else pa.int64()
        make = pa.ListViewArray if types.is_list_view(kind) else pa.LargeListViewArray
        places = list(pairwise(offsets))
        self.random.shuffle(places)
        return make.from_arrays(
            pa.array([start for start, _ in places], width),
            pa.array([end - start for start, end in places], width),
            items, mask=self.mask(n),
        )  # fmt: skip

    def table(self) -> tuple[pa.Table, dict[str, str]]:
        """Return a table of several batches, and each column's role: scalar, vector, or neither."""
        roles = {
            f"{role[0]}{i}": role
            for role, most in (("scalar", 4), ("nested", 2), ("vector", 1))
            for i in range(self.random.randrange(most + 1))
        }
        kinds = {
            name: {"scalar": self.scalar, "nested": self.nested, "vector": self.vector}[role]()
            for name, role in roles.items()
        }
        batches = []
        for _ in range(self.random.randrange(1, 4)):
            self.nulls = self.random.choice([0, 0, 0.1, 0.5])
            n = self.random.choice([0, 1, 2, 5, 20])
            arrays = [self.array(kind, n) for kind in kinds.values()]
            batches.append(pa.RecordBatch.from_arrays(arrays, list(kinds)))
        table = pa.Table.from_batches(batches)
        if self.maybe(0.3):
            table = table.slice(self.random.randrange(4))
        return table, roles

    def path(self, name: str, kind: pa.DataType, form: str) -> str | None:
        """Return a placeholder for a field within a struct, at any depth."""
        path, kind = name, inside(kind)
        while types.is_struct(kind) and (path == name or self.maybe(0.8)):
            field = self.random.choice(list(kind))
            path, kind = f"{path}.{field.name}", inside(field.type)
        if path == name:
            return None
        if form == "json":
            return f"{{{path}!json}}" if self.maybe(0.7) else f"x:{{{path}!json}}"
        if types.is_nested(kind):
            return f"{{*{path}}}" if flat(kind) else None
        return f"{{{path}}}" if self.maybe(0.7) else f"x:{{{path}}}"

    def template(self, table: pa.Table, roles: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return a template for these columns, and how it uses each."""
        scalars = [name for name, role in roles.items() if role == "scalar"]
        nested = [name for name, role in roles.items() if role == "nested"]
        if self.maybe(0.15) and all(has_json(field.type) for field in table.schema):
            return "SET k {*!json}", {"*": "json"}
        forms = dict.fromkeys((n for n, role in roles.items() if role == "vector"), "vector")
        for name in (*scalars, *nested):
            if self.maybe(0.3 if name in scalars else 0.6) and has_json(
                table.schema.field(name).type
            ):
                forms[name] = "json"
        plain = [name for name in scalars if name not in forms]
        commands = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            words = ["CMD"]
            if self.maybe(0.1) and plain:
                words = ["{" + self.random.choice(plain) + "}"]
            for name in self.random.sample(list(roles), self.random.randrange(len(roles) + 1)):
                if forms.get(name) == "vector":
                    words.append(f"{{{name}!{self.random.choice(['f16', 'f32', 'f64'])}}}")
                elif forms.get(name) == "json":
                    words.append(f"{{{name}!json}}")
                elif name in nested:
                    if flat(table.schema.field(name).type):
                        words.append(f"{{*{name}}}")
                elif self.maybe(0.5):
                    words.append(f"{{{name}}}")
                else:
                    words.append(f"x:{{{name}}}{{{self.random.choice(plain)}}}")
            for name in nested:
                word = self.path(name, table.schema.field(name).type, forms.get(name, "text"))
                if word and self.maybe(0.5):
                    words.append(word)
            named = {name for name in roles if any(f"{name}}}" in word or f"{name}!" in word
                                                   for word in words)}  # fmt: skip
            if self.maybe(0.7):
                as_json = self.maybe(0.5)
                left_out = [
                    name
                    for name in roles
                    if self.maybe(0.1)
                    or (
                        not (name in plain or name in named)
                        and not (as_json and name in nested and forms.get(name) == "json")
                    )
                ]
                words.insert(self.random.randrange(1, len(words) + 1), pairs(left_out, as_json))
            if self.maybe(0.3):
                words.insert(self.random.randrange(1, len(words) + 1), "fixed")
            commands.append(" ".join(words))
        return "; ".join(commands), forms


def pairs(left_out: list[str], as_json: bool) -> str:
    """Return a placeholder for all fields except the given ones."""
    return f"{{**{'-' if left_out else ''}{','.join(left_out)}{'!json' if as_json else ''}}}"


def inside(kind: pa.DataType) -> pa.DataType:
    encoded = types.is_dictionary(kind) or types.is_run_end_encoded(kind)
    return inside(kind.value_type) if encoded else kind


def children(kind: pa.DataType) -> list[pa.DataType]:
    kind = inside(kind)
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    if types.is_struct(kind):
        return [field.type for field in kind]
    return [kind.value_type] if types.is_nested(kind) else []


def has_json(kind: pa.DataType) -> bool:
    return "binary" not in str(inside(kind)) and all(map(has_json, children(kind)))


def flat(kind: pa.DataType) -> bool:
    return not any(types.is_nested(inside(child)) for child in children(kind))


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**64))
def test_random_columns(seed: int) -> None:
    maker = Maker(seed)
    table, roles = maker.table()
    for _ in range(3):
        template, forms = maker.template(table, roles)
        rows = as_rows(table, forms)
        for nulls in ("error", "skip", "empty"):
            found = outcome(table, template, nulls)
            assert found == outcome(rows, template, nulls), (template, nulls, table.schema)
            assert written(table, template, nulls, chunk_bytes=64) == found[0]


@pytest.mark.long
@settings(max_examples=5 * EXAMPLES)
@given(st.integers(0, 2**64))
def test_more_random_columns(seed: int) -> None:
    test_random_columns.hypothesis.inner_test(seed)  # type: ignore[attr-defined]
