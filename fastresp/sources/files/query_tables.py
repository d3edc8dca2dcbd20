"""Find the tables that a query reads; write queries over the Parquet files that DuckDB can read."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import types

from ...outcome.errors import SourceError
from .columnar import has_checksums, one_schema
from .formats import metadata_of
from .paths import Partitions, folders_of

__all__ = [
    "as_name", "check_distinct", "columns_of_all", "in_zones", "parquet_select", "reads_others",
    "tables_of", "with_aliases",
]  # fmt: skip

# Parts of the names of DuckDB's functions that read files.
READING = ("read", "scan", "glob", "sniff", "query")
# Functions that return different values each time.
RANDOM = frozenset(("random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval"))

# A name or a text in a query.
QUOTED = re.compile("""['"]([^'"]+)['"]""")


def reads_others(sql: str) -> str:
    """Return a table, file or function that a query reads besides ``source``; "" if there is none.

    Random functions count, because their values differ each time. A query with an error is left to
    DuckDB, which reports the error.
    """
    nodes = _nodes_of(sql)
    if nodes is None:
        return "what PIVOT names"
    other = next((table for table in _tables(nodes) if table != "source"), "")
    if other:
        return other
    for node in nodes:
        name = node.get("function_name", "") if node.get("type") == "FUNCTION" else ""
        if name.lower() in RANDOM or any(part in name for part in READING):
            return f"{name}()"
        if isinstance(node.get("sample"), dict):
            return "a sample"
    return ""


def tables_of(sql: str) -> list[str]:
    """Return the names of the tables that a query reads, which may be files.

    For PIVOT, all names in quotes are returned.
    """
    nodes = _nodes_of(sql)
    names = QUOTED.findall(sql) if nodes is None else _tables(nodes)
    return list(dict.fromkeys(names))


def with_aliases(sql: str, files: Sequence[str]) -> str:
    """Return a query with the aliases that DuckDB assigns to files: ``a`` for ``'folder/a.csv'``.

    DuckDB assigns no aliases to our tables, which are registered under the names of files.
    """
    stems = {file: os.path.basename(file).partition(".")[0] for file in files}
    locations = {
        (node["query_location"], node["table_name"])
        for node in (_nodes_of(sql) or () if files else ())
        if node.get("type") == "BASE_TABLE" and node["table_name"] in stems and not node["alias"]
    }
    text = sql.encode()
    for location, file in sorted(locations, reverse=True):
        stem = stems[file]
        if not stem or glob.has_magic(file) or list(stems.values()).count(stem) > 1:
            continue
        for quote in ("'", '"'):
            name = (quote + file.replace(quote, 2 * quote) + quote).encode()
            if text.startswith(name, location):
                end = location + len(name)
                text = text[:end] + f' AS "{stem}"'.encode() + text[end:]
    return text.decode()


def _tables(nodes: Sequence[dict[str, Any]]) -> Iterator[str]:
    own = {each["key"] for node in nodes for each in (node.get("cte_map") or {}).get("map", ())}
    for node in nodes:
        if node.get("type") == "BASE_TABLE" and node["table_name"] not in own:
            yield str(node["table_name"])


def _nodes_of(sql: str) -> list[dict[str, Any]] | None:
    """Return the JSON objects that describe a query; None for PIVOT, which DuckDB can't analyse."""
    with duckdb.connect(":memory:") as connection:
        [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    statement = json.loads(text)
    return None if statement.get("error_type") == "not implemented" else list(_nodes(statement))


def _nodes(found: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects within a JSON value, at any depth."""
    if isinstance(found, dict):
        yield found
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from _nodes(each)


# Parquet types that DuckDB silently replaces by other types, even when nested.
CHANGED = {
    re.compile(r"decimal256\((39|[4-7]\d), "): "rounds to 64-bit floats",
    re.compile("duration"): "reads as plain numbers",
}

# Parts of a path that make DuckDB misread the names and values of folders, or fail: escapes in a
# name, escapes of bytes beyond ASCII, a second "=", line ends, backslashes and wildcards.
UNLIKE = re.compile(r"%[^/]*=|%[89A-Fa-f]|=[^/]*=|[\n\r\\*?[]")


def parquet_select(files: Sequence[str], schema: pa.Schema, pattern: str | None) -> str | None:
    """Return a query over Parquet files; None if DuckDB would not read the same values as a load.

    Args:
        pattern: the pattern that found the files; None if the user named the files.
    """
    changed = changed_columns(schema)
    folders = None if any(map(has_checksums, files)) else partitions(files, pattern)
    if folders is None:  # DuckDB does not compare checksums
        return None
    names = ", ".join(map(as_name, folders))
    columns = f"* EXCLUDE ({names})" if names else "*"
    if changed:  # an error only if the query uses the column
        errors = (f"error({as_text(why)}) AS {as_name(name)}" for name, why in changed.items())
        columns += f" REPLACE ({', '.join(errors)})"
    if names:  # DuckDB finds only folders within the path
        columns, files = f"{columns}, {names}", list(map(os.path.abspath, files))
    return (
        f"SELECT {columns} FROM read_parquet([{', '.join(map(as_text, files))}], "
        f"union_by_name = true, hive_partitioning = {bool(folders)}, hive_types_autocast = false)"
    )


def check_distinct(names: Sequence[str]) -> None:
    """Refuse column names that DuckDB changes: empty names, and names that differ only in case.

    DuckDB ignores the case of ASCII letters.
    """
    known: dict[bytes, str] = {}
    for name in names:
        if not name:
            raise SourceError(
                "a query can't use a column whose name is empty; rename it, or leave out the query"
            )
        other = known.setdefault(name.encode().lower(), name)
        if other != name:
            raise SourceError(
                f"a query can't tell column {name!r} from column {other!r}; rename it, or leave "
                "out the query"
            )


def as_name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def as_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def columns_of_all(files: Sequence[str]) -> pa.Schema:
    """Return the columns of all Parquet files; some files may lack a column."""
    opened = ((path, metadata_of(path, "parquet")) for path in files)
    return one_schema((path, file.schema if file else pa.schema([])) for path, file in opened)


def in_zones(result: pa.Schema, sources: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of a query's result with the time zones of the sources.

    DuckDB stores timestamps without their zone. A column gets the zone of the source columns with
    the same name, if all of these have the same zone.
    """
    kinds: dict[str, set[pa.DataType]] = {}
    for source in sources:
        for field in source:
            kinds.setdefault(field.name.lower(), set()).add(field.type)
    fields = []
    for field in result:
        zoned = {in_zone(field.type, each) for each in kinds.get(field.name.lower(), ())}
        fields.append(field.with_type(zoned.pop()) if len(zoned) == 1 else field)
    return pa.schema(fields)


def in_zone(kind: pa.DataType, source: pa.DataType) -> pa.DataType:
    """Return a type of DuckDB's result with a source type's time zones, including nested ones."""
    if types.is_dictionary(source) or types.is_run_end_encoded(source):
        source = source.value_type
    if types.is_timestamp(kind) and types.is_timestamp(source) and kind.tz and source.tz:
        return pa.timestamp(kind.unit, source.tz)
    if types.is_map(kind) and types.is_map(source):
        return pa.map_(
            in_zone(kind.key_type, source.key_type), in_zone(kind.item_type, source.item_type)
        )
    if types.is_list(kind) and hasattr(source, "value_type"):
        return pa.list_(in_zone(kind.value_type, source.value_type))
    if types.is_struct(kind) and types.is_struct(source):
        within = {field.name: field.type for field in source}
        return pa.struct(
            field.with_type(in_zone(field.type, within.get(field.name, field.type)))
            for field in kind
        )
    return kind


def changed_columns(columns: pa.Schema) -> dict[str, str]:
    """Return the columns of Parquet files that DuckDB would change, each with the reason.

    Raises:
        SourceError: DuckDB would change the name of a column.
    """
    check_distinct(columns.names)
    return {
        field.name: (
            f"column {field.name!r} is {field.type}, which DuckDB {what}; load it without a query, "
            "leave it out, or use read_parquet(...) in the query to accept DuckDB's values"
        )
        for field in columns
        for kind, what in CHANGED.items()
        if kind.search(str(field.type))
    }


def partitions(sources: Sequence[str], pattern: str | None) -> list[str] | None:
    """Return the names of the columns that folders such as ``name=value`` add to Parquet files.

    None if DuckDB would find different columns: DuckDB uses all folders of a path, prefers a
    folder's value to the file's own column, ignores case, and splits some folder names differently.
    """
    first, *others = [Partitions(source, pattern).values for source in sources]
    if any(list(each) != list(first) for each in others):
        return None
    if len({name.lower() for name in first}) < len(first) or any(map(UNLIKE.search, sources)):
        return None
    for source in sources if first else ():
        folders = folders_of(source)
        if UNLIKE.search("/".join(folders)) or sum("=" in each for each in folders) > len(first):
            return None
        file = metadata_of(source, "parquet")
        names = () if file is None else file.schema.names
        if {name.lower() for name in names} & {name.lower() for name in first}:
            return None
    return list(first)
