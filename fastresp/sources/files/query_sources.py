"""What a query reads besides its ``source``, or makes at random."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

__all__ = ["reads_others"]

# In the names of DuckDB's functions that read files.
READING = ("read", "scan", "glob", "sniff", "query")
# Those that return something else each time.
RANDOM = frozenset(("random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval"))


def reads_others(sql: str) -> str:
    """Return what a query reads besides ``source``: a table, a file or a function; "" if nothing.

    What is random counts, too: it is other rows each time.

    A query with an error is left to DuckDB, which reports it.
    """
    with duckdb.connect(":memory:") as connection:
        [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    statement = json.loads(text)
    if statement.get("error_type") == "not implemented":
        return "what PIVOT names"  # DuckDB takes only SELECT apart
    nodes = list(_nodes(statement))
    own = {"source"} | {
        each["key"] for node in nodes for each in (node.get("cte_map") or {}).get("map", ())
    }
    for node in nodes:
        if node.get("type") == "BASE_TABLE" and node["table_name"] not in own:
            return str(node["table_name"])
        name = node.get("function_name", "") if node.get("type") == "FUNCTION" else ""
        if name.lower() in RANDOM or any(part in name for part in READING):
            return f"{name}()"
        if isinstance(node.get("sample"), dict):
            return "a sample"
    return ""


def _nodes(found: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of some JSON."""
    if isinstance(found, dict):
        yield found
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from _nodes(each)
