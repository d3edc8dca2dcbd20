"""Columns named by the folders of a file, as in ``sales/day=2024-01-01/part-0.parquet`` (Hive)."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...outcome.errors import SourceError
from .remote import is_remote, path_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Partitions", "folders_of"]

# The name of the folder for nulls. Source: org.apache.hadoop.hive.conf.HiveConf.
NULL = "__HIVE_DEFAULT_PARTITION__"
# The first character of a wildcard. Source: the module glob.
WILDCARD = re.compile(r"[*?[]")
# The key of the metadata that names the type of a column.
NAME = b"ARROW:extension:name"
# A row of JSON without fields.
EMPTY = r"^\{\s*\}$"


def folders_of(path: str) -> list[str]:
    """Return the names of all folders above a file, even if the path is relative."""
    path = path_of(path)
    return (path if is_remote(path) else os.path.abspath(path)).split("/")[:-1]


class Partitions:
    """The columns that folders with names such as ``day=2024-01-01`` add to a file, as text.

    Folders directly above the file are used, up to the first folder whose name is not of this form:
    folders further up, such as ``/data/user=bob/project``, are not part of the data. At or below
    the pattern's topmost folder with a wildcard, other names are ignored, and folders further up
    are still used.

    If the file has a column of the same name, the values of that column are used, and must be
    equal to the folder's value.

    Args:
        source: a path, or a file object, which is in no folder.
        pattern: the pattern that found the file; None if the user named the file.

    Attributes:
        values: the value of each column, by name; None for a null.

    Raises:
        SourceError: two folders name the same column with different values.
    """

    def __init__(self, source: Any, pattern: str | None) -> None:
        self._source = source
        self.values: dict[str, str | None] = {}
        parts = list(map(_parse_folder, folders_of(source))) if isinstance(source, str) else []
        first = len(parts)
        if pattern is not None:
            fixed = folders_of(WILDCARD.split(pattern, maxsplit=1)[0] + "*")
            first = min(first, len(fixed))
        while first and parts[first - 1]:
            first -= 1
        for name, value in filter(None, parts[first:]):
            self._add(unquote(name), None if value == NULL else unquote(value))

    def _add(self, name: str, value: str | None) -> None:
        if self.values.setdefault(name, value) != value:
            raise SourceError(
                f"{self._source}: two of its folders name the column {name!r}, with the values "
                f"{self.values[name]!r} and {value!r}; rename one folder"
            )

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """Add the folders' columns after the file's own; a column of whole rows stays last."""
        import pyarrow as pa

        if not columns.names:
            return columns  # JSON without rows
        at = len(columns) - _has_document(columns)
        for name in reversed(self._new_names(columns)):
            columns = columns.insert(at, pa.field(name, pa.string()))
        return columns

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the file with the columns of the file's folders."""
        if not self.values:
            return batch
        import pyarrow as pa

        added = self._new_names(batch.schema)
        for name in self.values.keys() - set(added):
            self._check(batch, name)
        constants = [
            pa.repeat(pa.scalar(self.values[name], pa.string()), len(batch)) for name in added
        ]
        columns = batch.columns
        documents = (
            [self._extend_documents(columns.pop(), added)] if _has_document(batch.schema) else []
        )
        return pa.RecordBatch.from_arrays(
            [*columns, *constants, *documents], schema=self.schema(batch.schema)
        )

    def _extend_documents(self, documents: pa.Array, added: list[str]) -> pa.Array:
        if not added:
            return documents
        import pyarrow.compute as pc

        values = {name: self.values[name] for name in added}
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:].encode()
        longer = pc.binary_replace_slice(documents, -1, sys.maxsize, b"," + text)
        return pc.if_else(pc.match_substring_regex(documents, EMPTY), b"{" + text, longer)

    def _new_names(self, columns: pa.Schema) -> list[str]:
        return [name for name in self.values if name not in columns.names]

    def _check(self, batch: pa.RecordBatch, name: str) -> None:
        """Check that the file's own column has the value that the folder names."""
        import pyarrow as pa
        import pyarrow.compute as pc  # takes 30 ms

        value = self.values[name]
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if value is None:
            same = column.null_count == len(column)
        else:
            try:
                if pa.types.is_string_view(column.type):  # equal() does not compare this type
                    column = column.cast(pa.string())
                wanted = pa.scalar(value).cast(column.type)
                same = pc.all(pc.equal(column, wanted), skip_nulls=False, min_count=0).as_py()
            except pa.ArrowException:  # the text is not a value of this type
                same = not len(column)
        if not same:
            raise SourceError(
                f"{self._source}: its column {name!r} has other values than {value!r}, which its "
                "folder has; rename the column or the folder"
            )


def _has_document(columns: pa.Schema) -> bool:
    return bool(columns) and (columns.field(-1).metadata or {}).get(NAME) == b"fastresp.document"


def _parse_folder(folder: str) -> tuple[str, str] | None:
    """Return the column and the value named by a folder; None if the folder names no column."""
    name, equals, value = folder.partition("=")
    return (name, value) if name and equals else None
