"""What DuckDB's readers would read otherwise than a load does, in files that it reads itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from .formats import schema_of
from .partitions import Partitions
from .reading import FileOptions, Reading
from .schemas import one_schema

__all__ = ["changed_columns", "partitions"]

# Types of Parquet columns, also within others, that DuckDB reads as something else in silence.
CHANGED = {
    re.compile(r"decimal256\((39|[4-7]\d), "): "rounds to 64-bit floats",
    re.compile("duration"): "reads as plain numbers",
}


def changed_columns(sources: Sequence[str]) -> dict[str, str]:
    """Return the columns of Parquet files that DuckDB would change, each with what is wrong.

    Columns may be missing in some of the files.

    Raises:
        SourceError: a column has types in the files that DuckDB would cast to a common one, which
            changes values.
    """
    schemas = [(path, schema_of(path, "parquet", Reading(FileOptions()))) for path in sources]
    whole = one_schema((path, pa.schema([]) if each is None else each) for path, each in schemas)
    return {
        field.name: (
            f"column {field.name!r} is {field.type}, which DuckDB {what}; load it without a query, "
            "leave it out, or name the file in the query to get what DuckDB reads"
        )
        for field in whole
        for kind, what in CHANGED.items()
        if kind.search(str(field.type))
    }


def partitions(sources: Sequence[str]) -> list[str] | None:
    """Return the columns that folders of Parquet files name; None if DuckDB would read others.

    It prefers the name of the folder to the file's own column, and ignores case.
    """
    first, *others = [Partitions(source).values for source in sources]
    if any(list(each) != list(first) for each in others):
        return None
    for source in sources if first else ():
        own = schema_of(source, "parquet", Reading(FileOptions()))
        names = () if own is None else own.names
        if {name.lower() for name in names} & {name.lower() for name in first}:
            return None
    return list(first)
