"""Prepare tables of other libraries for a lossless export as Arrow columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from ...outcome.errors import SourceError

__all__ = [
    "Described",
    "Exported",
    "NestedNames",
    "altered",
    "check_names",
    "exported",
    "names_of",
    "names_with_nul",
]

# The names of a type's fields, each paired with the NestedNames of the field's type.
NestedNames: TypeAlias = list[tuple[str, Any]]
# The base class of all pyarrow objects.
PYARROW = "_Weakrefable"
# DuckDB types whose values change in the export.
ALTERED = {"uhugeint", "bit", "time with time zone"}


class Described:
    """A stream of columns, with information that its Arrow export loses."""

    arrow_schema: Any = None
    unknown: Mapping[str, str] = MappingProxyType({})


class Exported(NamedTuple):
    """An object that exports Arrow columns, and information that the export lacks.

    Attributes:
        data: the object.
        unknown: why columns can't be sent, by column name; each reason is the end of a sentence.
        single: whether structs are the values of one column, not the rows of a table.
    """

    data: Any
    unknown: Mapping[str, str]
    single: bool


def exported(data: Any) -> Exported:
    """Return data from any library as an object with a lossless Arrow export.

    Raises:
        SourceError: the export would lose names or values.
        ImportError: a pandas DataFrame needs pyarrow, which is not installed.
        ValueError, TypeError, OverflowError, NotImplementedError: pandas can't export the data.
    """
    if _of(data, "pandas", "DataFrame"):
        return Exported(*_of_pandas(data), False)
    _check_names(data)
    unknown: Mapping[str, str] = {}
    if _of(data, "duckdb", "DuckDBPyRelation"):
        unknown = altered(data)
    elif _of(data, "polars", "DataFrame", "Series"):
        unknown = _objects(data)
    kind = type(data)
    single = (hasattr(kind, "type") or hasattr(kind, "dtype")) and not (
        hasattr(kind, "schema") or hasattr(kind, "columns")
    )
    return Exported(data, unknown, single)


def _of(data: Any, library: str, *names: str) -> bool:
    """Return whether an object is of a library's classes, without importing the library."""
    module = sys.modules.get(library)
    return any(isinstance(data, getattr(module, name, ())) for name in names)


def names_with_nul(data: Any) -> NestedNames | None:
    """Return the names of all columns and fields if any of them has a NUL; otherwise None.

    The C interface ends a name at the first NUL.

    Args:
        data: the object with the columns; only pyarrow and Described objects are checked.
    """
    schema = data.arrow_schema if isinstance(data, Described) else None
    if _of(data, "pyarrow.lib", PYARROW):
        schema = data.schema if hasattr(data, "schema") else data.type
    try:
        found = [] if schema is None else _names(schema)
    except UnicodeDecodeError:  # a name is not UTF-8: the C interface keeps all its bytes
        return None
    return found if any("\0" in name for name in _flat(found)) else None


def _names(schema: Any) -> NestedNames:
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return [(field.name, _names(field.type)) for field in schema]
    kind = schema.storage_type if isinstance(schema, pa.BaseExtensionType) else schema
    if pa.types.is_dictionary(kind):
        return [("", _names(kind.value_type))]
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return [(field.name, _names(field.type)) for field in fields]


def names_of(schema: Any) -> Iterator[str]:
    """Yield the names of all columns and fields of a pyarrow schema."""
    return _flat(_names(schema))


def _flat(names: NestedNames) -> Iterator[str]:
    for name, within in names:
        yield name
        yield from _flat(within)


def _of_pandas(frame: Any) -> tuple[Any, dict[str, str]]:
    """Return (table, unknown): a DataFrame as a pyarrow Table, and why columns can't be sent.

    ``unknown`` has a reason for each such column, by name. Every named index becomes a column,
    even a RangeIndex, which pyarrow leaves out by default.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(
            "pandas DataFrames need pyarrow, which is not installed: pip install 'fastresp[files]'"
        ) from error
    keep = True if any(name is not None for name in frame.index.names) else None
    for name in frame.index.names:
        same = name is not None and name in frame.columns
        if same and not frame.index.get_level_values(name).equals(frame.set_index(name).index):
            raise SourceError(
                f"an index and a column of this DataFrame are named {name!r}, with other values; "
                "rename one, such as frame.rename_axis('row')"
            )
    try:
        return pa.Table.from_pandas(frame, preserve_index=keep), {}
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        table, unknown = pa.Table.from_pandas(frame.iloc[:, :0], preserve_index=keep), {}
        for index in range(frame.shape[1]):
            one = frame.iloc[:, [index]]
            try:
                part = pa.Table.from_pandas(one, preserve_index=False)
            except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
                name = str(frame.columns[index])
                unknown[name] = f"can't be converted to Arrow: {'; '.join(map(str, error.args))}"
                part = pa.table({name: pa.nulls(len(frame))})
            table = table.add_column(index, part.schema.field(0), part.column(0))
        if not unknown:
            raise
        return table, unknown


def _objects(data: Any) -> dict[str, str]:
    """Return, by column name, why columns of Python objects can't be sent.

    polars would export the memory addresses of the objects.

    Raises:
        SourceError: the data is a single column of Python objects.
    """
    if not hasattr(data, "schema"):
        if _is_of_objects(data.dtype):
            raise SourceError(
                f"this {type(data).__name__} contains Python objects, which Arrow receives only "
                "as memory addresses; convert them to text or numbers first, or load them as rows"
            )
        return {}
    reason = "is of type Object, whose values Arrow receives only as memory addresses"
    return {name: reason for name, kind in data.schema.items() if _is_of_objects(kind)}


def _is_of_objects(kind: Any) -> bool:
    """Return whether a type is polars' Object, or an Array of Object, possibly nested."""
    while getattr(kind, "inner", None) is not None:
        kind = kind.inner
    return str(kind) == "Object"


def altered(relation: Any) -> dict[str, str]:
    """Return, by column name, why columns of a DuckDB relation can't be sent.

    DuckDB's export would change the values of these columns.
    """
    return {
        name: f"is of DuckDB's type {kind}, whose values Arrow can't represent"
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if _is_altered(kind)
    }


def _is_altered(kind: Any) -> bool:
    if kind.id in ("struct", "list", "map", "array", "union"):
        return any(_is_altered(each) for _, each in kind.children if hasattr(each, "id"))
    return kind.id in ALTERED


def _check_names(data: Any) -> None:
    """Refuse names that contain a NUL, if the library would truncate them or abort the export.

    Raises:
        SourceError: a name has a NUL.
    """
    if _of(data, "pyarrow.lib", PYARROW):
        return
    names = getattr(data, "columns", None) or getattr(data, "column_names", None)
    if _of(data, "polars", "DataFrame"):
        names = _names_of_polars(data.schema)
    elif _of(data, "polars", "Series"):
        names = _names_of_polars({data.name: data.dtype})
    check_names(names if isinstance(names, list | tuple | set) else (), type(data).__name__)


def check_names(names: Iterable[object], what: str) -> None:
    """Refuse names with a NUL.

    Args:
        names: the names; objects other than str are ignored.
        what: the type of the data, for the message.

    Raises:
        SourceError: a name has a NUL.
    """
    for name in names:
        if isinstance(name, str) and "\0" in name:
            raise SourceError(
                f"{name!r} can't be the name of a column or field of a {what}, whose library "
                "accepts no NUL in names; rename it, or load the data as rows"
            )


def _names_of_polars(schema: Mapping[str, Any]) -> set[str]:
    """Return the names of all columns and fields of a polars schema."""
    names = set(schema)
    for kind in schema.values():
        while getattr(kind, "inner", None) is not None:
            kind = kind.inner
        fields = getattr(kind, "fields", ())
        names |= _names_of_polars({field.name: field.dtype for field in fields})
    return names
