"""Find out whether a query reads data besides its ``source``, or random data."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

__all__ = ["reads_others", "tables_of", "with_aliases"]

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
    places = {
        (node["query_location"], node["table_name"])
        for node in (_nodes_of(sql) or () if files else ())
        if node.get("type") == "BASE_TABLE" and node["table_name"] in stems and not node["alias"]
    }
    text = sql.encode()
    for place, file in sorted(places, reverse=True):
        stem = stems[file]
        if not stem or glob.has_magic(file) or list(stems.values()).count(stem) > 1:
            continue
        for quote in ("'", '"'):
            name = (quote + file.replace(quote, 2 * quote) + quote).encode()
            if text.startswith(name, place):
                end = place + len(name)
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
